// SPDX-License-Identifier: Apache-2.0
//
// JSON written piece by piece, for documents of many numbers. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hmm::ctl {

// `text` as a JSON string in ASCII, with quotes. Also '<' is escaped, so that no text can end the
// script element of a page that the JSON stands in; what is not UTF-8 becomes U+FFFD.
std::string JsonText(std::string_view text);

// Nanoseconds for predicted microseconds: whole, never negative, at most what JSON readers count
// exactly (2^53).
std::int64_t WholeNs(double us);

}  // namespace hmm::ctl
