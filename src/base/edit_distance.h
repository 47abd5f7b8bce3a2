// SPDX-License-Identifier: Apache-2.0
//
// How far two names are apart: for "did you mean". Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace hmm {

// The fewest bytes to insert, remove or replace that make `b` of `a`. Takes time in proportion to
// the product of the lengths and memory to that of `b`: the caller bounds names from outside.
std::size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace hmm
