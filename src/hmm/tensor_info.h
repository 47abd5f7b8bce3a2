// SPDX-License-Identifier: Apache-2.0
//
// What the looking verbs show of a tensor. The executor's thread.
#pragma once

#include "hmm/core.h"

namespace hmm::core {

// A copy, which stays true of this moment only. REQUIRES: a live tensor.
TensorInfo InfoOf(const Core& core, TensorIndex index);

}  // namespace hmm::core
