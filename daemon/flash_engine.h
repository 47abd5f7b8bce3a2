// SPDX-License-Identifier: Apache-2.0
//
// Which copier serves which link: memory by worker threads, flash by io_uring where the system lets
// us have it, else by the same threads. A refusal is no failure: it is logged, and said in the note
// of each flash tier.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/units.h"
#include "copy/copier.h"
#include "copy/under_way.h"
#include "daemon/config.h"

namespace hmm::daemon {

struct FlashEngine {
  std::unique_ptr<copy::Copier> copier;  // of all links
  std::string note;                      // "io_uring", "io_uring refused: ..., worker threads"
  bool degraded = false;                 // io_uring was asked for by name and is refused
  // MoverOptions::file_running_*: what keeps the engine busy.
  std::size_t running_max = 0;
  Bytes running_bytes = 0;
};

// REQUIRES: checked. `executor` and `under_way`, which is told of each copy, outlive the copier.
FlashEngine CreateFlashEngine(const Config& config, Executor& executor, copy::UnderWay& under_way);

}  // namespace hmm::daemon
