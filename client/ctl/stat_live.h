// SPDX-License-Identifier: Apache-2.0
//
// The live view of `hmmctl stat`: one screen, like top(1). Pure.
#pragma once

#include <string>

#include "client/ctl/stat.h"
#include "client/ctl/terminal.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

struct LiveFrame {
  const v1::GetStatusResponse& status;
  const v1::ListSessionsResponse& sessions;
  StatReport report;  // of the last interval
  double interval_s = 1;
  bool colour = false;
};
// At most `size.rows` lines of at most `size.columns` characters; escapes count for nothing.
std::string LiveScreen(const LiveFrame& frame, const WindowSize& size);

// What goes around the frames, so that the terminal is afterwards as it was.
inline constexpr char kLiveBegin[] = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
inline constexpr char kLiveEnd[] = "\x1b[?25h\x1b[?1049l";
inline constexpr char kLiveHome[] = "\x1b[H";
inline constexpr char kLiveRest[] = "\x1b[J";  // clears what the last frame left below

}  // namespace hmm::ctl
