// SPDX-License-Identifier: Apache-2.0
//
// How log lines look and which are written. Lines go to standard error: for people as text, for
// journald and the like, on request, as one JSON object a line:
//
//   {"time":"2026-11-30T20:15:04.123Z","level":"warn","priority":4,"pid":71,"message":"..."}
//
// Any thread; the logger itself is spdlog's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace spdlog {
class formatter;
}

namespace hmm::daemon {

// "text" or "json". REQUIRES: one of them.
std::unique_ptr<spdlog::formatter> MakeLogFormatter(std::string_view format);

// From here on protobuf's own lines go into our log, at debug: it writes one for each request that
// does not parse, which a client could fill a disk with. The client is told anyway.
void QuietProtobuf();

std::string LogLevel();
// INVALID_ARGUMENT/BAD_ARGUMENT: no such level.
absl::Status SetLogLevel(std::string_view level);

}  // namespace hmm::daemon
