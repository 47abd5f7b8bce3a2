// SPDX-License-Identifier: Apache-2.0
//
// Words of the command line into the wire's filters and selectors. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/inspect_args.h"
#include "hmm/v1/admin.pb.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

// "\x41b" -> "Ab": the bytes that `tensor list` printed so.
std::string UnescapeKey(const std::string& text);

v1::ListTensorsRequest QueryOf(const SelectArgs& select);
// The handle of the tensor that the request names; NOT_FOUND: there is none.
using FindTensor = std::function<absl::StatusOr<std::uint64_t>(const v1::ExplainRequest& named)>;
// A word of digits is a handle if a tensor has it, else a key, as for `tensor show`; `find` is
// asked of such words only. INVALID_ARGUMENT/BAD_ARGUMENT: handles and keys at once. Errors of
// `find`.
absl::StatusOr<v1::TensorSelector> SelectorOf(const SelectArgs& select, const FindTensor& find);
// "tier_health". REQUIRES: one of the words that the command line takes.
v1::EventType EventTypeOf(const std::string& word);

}  // namespace hmm::ctl
