// SPDX-License-Identifier: Apache-2.0
#include "graph/annotation.h"

#include <numeric>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/plan_proto.h"

namespace hmm::graph {

absl::StatusOr<std::string> EncodePlan(const plan::Plan& plan, const plan::Graph& graph) {
  HMM_ASSIGN_OR_RETURN(const std::string bytes, FormatPlanBinary(plan, IdentityOf(graph)));
  return absl::Base64Escape(bytes);
}

std::string EncodeOrder(const std::vector<std::uint32_t>& order) {
  return absl::StrJoin(order, ",");
}

absl::StatusOr<std::vector<std::uint32_t>> DecodeOrder(std::string_view text, std::size_t count,
                                                       const std::string& file) {
  const auto bad = [&] {
    return BadGraph(absl::StrCat(file, ": ", kBeforeKey),
                    absl::StrCat("is no order of the ", count, " nodes that are not of a plan"));
  };
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(count, false);
  const std::string all(text);
  for (const absl::string_view part : absl::StrSplit(all, ',', absl::SkipEmpty())) {
    std::uint32_t place = 0;
    if (!absl::SimpleAtoi(part, &place) || place >= count || seen[place]) return bad();
    seen[place] = true;
    order.push_back(place);
  }
  if (order.size() != count) return bad();
  return order;
}

absl::Status MovesWithoutPlan(const std::string& file, const std::string& name) {
  return BadGraph(
      file, absl::StrCat("holds the moves of a plan (", Shown(name),
                         "), but no longer the metadata that hmmctl wrote beside them (",
                         kBeforeKey, ", ", kPlanKey, "); read the model that it was made of"));
}

const char* WovenMoveName(plan::MoveKind kind) {
  return kind == plan::MoveKind::kSwapOut  ? "SwapOut"
         : kind == plan::MoveKind::kSwapIn ? "SwapIn"
                                           : "Drop";
}

bool Unweaver::Take(const std::vector<std::string>& outputs,
                    const std::vector<std::string>& inputs) {
  bool woven = false;
  for (const std::string& output : outputs) {
    const WovenName name = ParseWovenName(output);
    if (!name.woven) continue;
    woven = true;
    if (!name.value.empty()) {
      values_[output] = name.value;
    } else if (!inputs.empty()) {
      values_[output] = Value(inputs[0]);
    }
  }
  return woven;
}

std::string Unweaver::Value(const std::string& name) const {
  const auto found = values_.find(name);
  return found != values_.end() ? found->second : name;
}

}  // namespace hmm::graph
