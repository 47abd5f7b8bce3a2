// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace hmm::ctl {

bool OnTerminal() { return isatty(STDOUT_FILENO) == 1; }

bool OnDrawingTerminal() {
  const char* const terminal = std::getenv("TERM");
  return OnTerminal() && terminal != nullptr && *terminal != '\0' &&
         std::strcmp(terminal, "dumb") != 0;
}

bool WantsColour(const std::string& choice) {
  if (choice != "auto") return choice == "always";
  const char* const refused = std::getenv("NO_COLOR");
  return OnDrawingTerminal() && (refused == nullptr || *refused == '\0');
}

WindowSize TerminalSize() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return {};
  }
  return {.rows = size.ws_row, .columns = size.ws_col};
}

}  // namespace hmm::ctl
