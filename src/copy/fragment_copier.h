// SPDX-License-Identifier: Apache-2.0
//
// Copies lists of fragments between addresses: what Load and Store of regions are made of. It knows
// no regions; it is told addresses and says when none of them is touched any more. Which tiers the
// bytes come from and go to matters to paced_copier.h alone.
//
// Submit is called on the executor's thread; the memory is the caller's, who keeps it until `done`.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/executor.h"
#include "base/units.h"

namespace hmm::tier {
class Tier;
}

namespace hmm::copy {

struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  Bytes bytes = 0;
};

// Bytes that a job carries over the link of a tier that is paced.
struct Crossing {
  const tier::Tier* tier = nullptr;
  bool into = false;  // or out of it
  Bytes bytes = 0;
};

struct FragmentJob {
  // Copied in any order, also at once; targets do not overlap.
  std::vector<CopyPiece> pieces;
  // Set by anybody at any time: pieces that have not begun are left out. May be null.
  std::shared_ptr<const std::atomic<bool>> stop;
  // One for each such tier and direction; empty where none is paced.
  std::vector<Crossing> crossings;
};

struct FragmentResult {
  bool complete = false;  // false: stopped before all was copied
  Duration elapsed{};     // from the first piece's begin to the last one's end, or what a link took
};

using FragmentDone = absl::AnyInvocable<void(FragmentResult) &&>;

class FragmentCopier {
 public:
  virtual ~FragmentCopier() = default;
  // Starts the copy. `done` runs exactly once, on the executor, never from inside Submit; until
  // then all addresses belong to the copier. Called on the executor's thread.
  virtual void Submit(FragmentJob job, FragmentDone done) = 0;
};

// A fixed pool of threads; a long list is cut into parts that they copy at once. `executor`
// outlives the copier; the destructor waits for copies under way, whose completions are still
// posted.
std::unique_ptr<FragmentCopier> CreateWorkerFragmentCopier(Executor& executor, unsigned threads);

}  // namespace hmm::copy
