// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/select.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::ctl {
namespace {

std::string WireName(const char* prefix, const std::string& word) {
  return absl::StrCat(prefix, absl::AsciiStrToUpper(word));
}

v1::TensorKind KindOf(const std::string& word) {
  v1::TensorKind kind = v1::TENSOR_KIND_UNSPECIFIED;
  if (!word.empty()) HMM_CHECK(v1::TensorKind_Parse(WireName("TENSOR_KIND_", word), &kind));
  return kind;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

std::string UnescapeKey(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] == 'x' &&
        HexDigit(text[i + 2]) >= 0 && HexDigit(text[i + 3]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 2]) * 16 + HexDigit(text[i + 3]));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

v1::ListTensorsRequest QueryOf(const SelectArgs& select) {
  v1::ListTensorsRequest query;
  query.set_tier(select.tier);
  query.set_tenant(select.tenant);
  query.set_kind(KindOf(select.kind));
  if (!select.state.empty()) {
    v1::TensorState state = v1::TENSOR_STATE_UNSPECIFIED;
    HMM_CHECK(v1::TensorState_Parse(WireName("TENSOR_STATE_", select.state), &state));
    query.set_state(state);
  }
  query.set_key_prefix(UnescapeKey(select.key_prefix));
  if (select.pinned) query.set_pinned(*select.pinned);
  return query;
}

absl::StatusOr<v1::TensorSelector> SelectorOf(const SelectArgs& select) {
  v1::TensorSelector selector;
  selector.set_tenant(select.tenant);
  selector.set_key_prefix(UnescapeKey(select.key_prefix));
  selector.set_kind(KindOf(select.kind));
  std::string first_key;  // as it was written
  for (const std::string& id : select.ids) {
    std::uint64_t handle = 0;
    if (absl::SimpleAtoi(id, &handle)) {
      selector.add_handles(handle);
    } else {
      if (first_key.empty()) first_key = id;
      selector.add_keys(UnescapeKey(id));
    }
  }
  if (selector.handles_size() > 0 && selector.keys_size() > 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat(selector.handles(0), " is a handle and '", first_key,
                              "' is a key; name them in two calls"));
  }
  return selector;
}

v1::EventType EventTypeOf(const std::string& word) {
  v1::EventType type = v1::EVENT_TYPE_UNSPECIFIED;
  HMM_CHECK(v1::EventType_Parse(WireName("EVENT_TYPE_", word), &type));
  return type;
}

}  // namespace hmm::ctl
