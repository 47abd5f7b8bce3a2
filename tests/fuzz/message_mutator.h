// SPDX-License-Identifier: Apache-2.0
//
// Mutations of protobuf messages as messages: bytes changed at random are hardly ever a message
// that passes the readers' first checks. One thread.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

namespace hmm::fuzz {

// For LLVMFuzzerCustomMutator. `message` is an empty one of the type that the input is read as,
// binary or else (`text_too`) as text; what is neither, and one input in five, is changed as bytes.
std::size_t MutateAsMessage(google::protobuf::Message& message, bool text_too, std::uint8_t* data,
                            std::size_t size, std::size_t size_max, unsigned seed);

}  // namespace hmm::fuzz
