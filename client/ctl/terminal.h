// SPDX-License-Identifier: Apache-2.0
//
// What standard output is. Any thread.
#pragma once

#include <string>

namespace hmm::ctl {

bool OnTerminal();
// A terminal that knows escapes, as $TERM says.
bool OnDrawingTerminal();
// `choice`: always, never, or auto: on a terminal that can, unless $NO_COLOR is set (no-color.org).
bool WantsColour(const std::string& choice);

struct WindowSize {
  int rows = 24;
  int columns = 80;
};
WindowSize TerminalSize();

}  // namespace hmm::ctl
