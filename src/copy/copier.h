// SPDX-License-Identifier: Apache-2.0
//
// A copier carries bytes between two extents. It is told what to do and says when it is done; it
// neither queues by priority nor knows tensors (that is the mover's and the manager's work).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/units.h"
#include "tier/tier.h"

namespace hmm::copy {

struct CopyJob {
  const tier::Tier* from = nullptr;
  tier::Extent source;
  const tier::Tier* to = nullptr;
  tier::Extent target;
  Bytes bytes = 0;  // <= both lengths
  // Set when reading from a medium that is not trusted (flash): the XXH3-64 of the bytes, verified
  // before the copy is called good.
  std::optional<std::uint64_t> expected_checksum;
};

struct CopyResult {
  absl::Status status;         // DATA_LOSS/CHECKSUM on a mismatch, DATA_LOSS/IO on a failed read,
                               // errno's words otherwise
  std::uint64_t checksum = 0;  // XXH3-64 of the bytes; set when the target is not mappable
  Duration elapsed{};          // of the copy itself
};

using CopyDone = absl::AnyInvocable<void(CopyResult) &&>;

class Copier {
 public:
  virtual ~Copier() = default;
  // Starts the copy. `done` runs exactly once, on the executor, never from inside Submit; until
  // then both extents belong to the copier.
  virtual void Submit(const CopyJob& job, CopyDone done) = 0;
};

}  // namespace hmm::copy
