// SPDX-License-Identifier: Apache-2.0
//
// The tensors that a plan moves, one record each, with the three factors that decide (design
// section 7): how often it is used, what making it anew costs, what the link needs for it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::ctl {

struct MovedTensor {
  plan::StorageIndex storage = plan::kNone;  // kNone: members of `group`, fetched when known
  std::uint32_t group = plan::kNone;
  Bytes bytes = 0;  // of a group: what one fetch brings
  // The three factors.
  double uses_per_step = 0;
  double recompute_us = -1;  // < 0: cannot be made anew
  double in_us = 0;          // to bring it back over the link, alone

  double slack_us = 0;    // compute time between the uses round the gaps in which it is away
  double exposed_us = 0;  // predicted time that ops waited for its moves
  plan::OpIndex after_op = plan::kNone;   // away from the first of these gaps ...
  plan::OpIndex before_op = plan::kNone;  // ... until here; kNone: start or end of the step
  std::uint32_t gaps = 0;                 // in which it is away
  std::string how;                        // "SwapOut, SwapIn", "2 Drop, 2 SwapIn", "stays in ddr"
};

// In the order of the graph, groups last. REQUIRES: `plan` is a plan of `graph`.
std::vector<MovedTensor> MovedTensors(const plan::Graph& graph, const plan::Machine& machine,
                                      const plan::Plan& plan);

}  // namespace hmm::ctl
