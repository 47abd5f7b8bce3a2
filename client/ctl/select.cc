// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/select.h"

#include <vector>

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

struct Digits {
  bool is_handle = false;
  std::uint64_t handle = 0;  // 0: a key that is no number, or that names nothing
};

// What a word means, of the tensors that there are. One that names nothing is taken for a handle if
// it is a number.
absl::StatusOr<Digits> DigitsOf(const std::string& id, const std::string& tenant,
                                const FindTensor& find) {
  std::uint64_t number = 0;
  if (!absl::SimpleAtoi(id, &number) || number == 0) return Digits{};
  v1::ExplainRequest named;
  named.set_tenant(tenant);
  named.set_handle(number);
  absl::StatusOr<std::uint64_t> found = find(named);
  if (found.ok()) return Digits{.is_handle = true, .handle = number};
  if (!absl::IsNotFound(found.status())) return found.status();
  named.clear_handle();
  named.set_key(id);
  found = find(named);
  if (found.ok()) return Digits{.is_handle = false, .handle = *found};
  if (!absl::IsNotFound(found.status())) return found.status();
  return Digits{.is_handle = true, .handle = number};
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

absl::StatusOr<v1::TensorSelector> SelectorOf(const SelectArgs& select, const FindTensor& find) {
  v1::TensorSelector selector;
  selector.set_tenant(select.tenant);
  selector.set_key_prefix(UnescapeKey(select.key_prefix));
  selector.set_kind(KindOf(select.kind));
  std::string first_key;  // as it was written
  std::string first_handle;
  std::vector<std::uint64_t> digit_keys;  // the handles of those whose key is a number
  for (const std::string& id : select.ids) {
    HMM_ASSIGN_OR_RETURN(const Digits digits, DigitsOf(id, select.tenant, find));
    if (digits.is_handle) {
      if (first_handle.empty()) first_handle = id;
      selector.add_handles(digits.handle);
      continue;
    }
    selector.add_keys(UnescapeKey(id));
    if (digits.handle != 0) {
      digit_keys.push_back(digits.handle);
    } else if (first_key.empty()) {
      first_key = id;
    }
  }
  if (first_handle.empty() || selector.keys_size() == 0) return selector;
  if (!first_key.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat(first_handle, " is a handle and '", first_key,
                              "' is a key; name them in two calls"));
  }
  // One call takes handles or keys: these keys' handles are known.
  selector.clear_keys();
  for (const std::uint64_t handle : digit_keys) selector.add_handles(handle);
  return selector;
}

v1::EventType EventTypeOf(const std::string& word) {
  v1::EventType type = v1::EVENT_TYPE_UNSPECIFIED;
  HMM_CHECK(v1::EventType_Parse(WireName("EVENT_TYPE_", word), &type));
  return type;
}

}  // namespace hmm::ctl
