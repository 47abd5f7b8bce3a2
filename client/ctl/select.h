// SPDX-License-Identifier: Apache-2.0
//
// Words of the command line into the wire's filters and selectors. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/inspect_args.h"
#include "hmm/v1/admin.pb.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

// "\x41b" -> "Ab": the bytes that `tensor list` printed so.
std::string UnescapeKey(const std::string& text);

v1::ListTensorsRequest QueryOf(const SelectArgs& select);
// INVALID_ARGUMENT/BAD_ARGUMENT: handles and keys at once.
absl::StatusOr<v1::TensorSelector> SelectorOf(const SelectArgs& select);
// "tier_health". REQUIRES: one of the words that the command line takes.
v1::EventType EventTypeOf(const std::string& word);

}  // namespace hmm::ctl
