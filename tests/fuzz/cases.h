// SPDX-License-Identifier: Apache-2.0
//
// The small graphs that plans and profiles of the seeds are for; the same in make_seeds and in the
// targets.
#pragma once

#include <cstddef>
#include <vector>

#include "support/gen_graph.h"

namespace hmm::fuzz {

inline std::vector<hmm::testing::GenCase> SmallCases() {
  constexpr std::size_t kCases = 24;
  hmm::testing::GenOptions options;
  options.ops_max = 12;
  hmm::testing::GraphGenerator generator(7);
  std::vector<hmm::testing::GenCase> cases;
  while (cases.size() < kCases) cases.push_back(generator.Next(options));
  return cases;
}

}  // namespace hmm::fuzz
