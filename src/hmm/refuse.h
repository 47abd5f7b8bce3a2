// SPDX-License-Identifier: Apache-2.0
//
// How a verb of the manager answers a call that cannot begin. The executor's thread.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "hmm/manager.h"

namespace hmm::core {

// Answers with `why`; the id of no op, for the verb to return.
template <typename Result>
Manager::OpId Refuse(Callback<Result>& done, const absl::Status& why) {
  std::move(done)(why);
  return 0;
}

}  // namespace hmm::core
