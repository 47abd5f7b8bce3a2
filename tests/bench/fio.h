// SPDX-License-Identifier: Apache-2.0
// What fio makes of a file: the limit that moves from and to flash are measured against.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::bench {

struct FioJob {
  std::string file;  // of `bytes`, written before
  bool write = false;
  Bytes block = 0;
  unsigned depth = 0;
  Bytes bytes = 0;  // carried, from the start of the file to its end
};

// Bytes a second, by io_uring with O_DIRECT on small pages of shared memory, as the tiers' are.
// NOT_FOUND when there is no fio ("apt-get install fio").
absl::StatusOr<double> RunFio(const FioJob& job);

}  // namespace hmm::bench
