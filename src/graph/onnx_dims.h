// SPDX-License-Identifier: Apache-2.0
//
// Dimensions that are names or expressions of names: "seq_len", "16*batch", "batch*(seq - 1)",
// "floor(h/2) + 1". Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace hmm::graph {

using DimBindings = std::map<std::string, std::int64_t>;

struct DimValue {
  std::optional<std::int64_t> value;  // >= 0
  // Without value, one of:
  std::set<std::string> unbound;  // symbols that the bindings lack
  std::string problem;            // negative, no integer, beyond 64 bits
};
// Integers, names, + - * / // % ( ), floor, ceiling, Max, Min. A whole text that the bindings name
// is that value; a text that is no expression is a name as it stands.
DimValue EvaluateDim(std::string_view text, const DimBindings& bindings);

// The names that `text` is made of.
std::set<std::string> DimSymbols(std::string_view text);

}  // namespace hmm::graph
