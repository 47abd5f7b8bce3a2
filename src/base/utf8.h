// SPDX-License-Identifier: Apache-2.0
//
// Whether bytes are text: names of files and of processes may be anything. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace hmm {

// Bytes of the character that `text` begins with; 0: it begins with none (or is empty).
std::size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace hmm
