// SPDX-License-Identifier: Apache-2.0
//
// Gives emulated tiers the link bandwidth that the configuration names
// (TierOptions::link_bandwidth, each way): the bytes are copied at once, and the completion waits
// until a link of that rate would have carried them, after those submitted before. Tiers without
// one are not held up. Jobs of regions (FragmentJob::crossings) share these links with the moves;
// one that was stopped is not held up either.
//
// Executors' timers are coarse: a link makes up for two milliseconds that it was idle, so that its
// rate is right over longer times, and a small move on an idle link is as fast as memory.
//
// Everything here is the executor's thread's.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "copy/copier.h"
#include "copy/fragment_copier.h"

namespace hmm::copy {

// The links of paced tiers: one into each and one out of it. `clock` outlives it; tiers outlive
// what is carried.
class PacedLinks {
 public:
  explicit PacedLinks(const Clock& clock) : clock_(clock) {}

  struct Carried {
    TimePoint until{};
    Duration took{};  // 0: the tier is not paced
  };
  // Takes the link, after all that took it before.
  Carried Carry(const tier::Tier& tier, bool into, Bytes bytes);

 private:
  using Wire = std::pair<const tier::Tier*, bool>;  // a tier, and whether into it
  const Clock& clock_;
  std::map<Wire, TimePoint> free_at_;  // two a paced tier at most
};

// `executor` and `clock` outlive the copiers. Those that are given the same links share them.
std::unique_ptr<Copier> CreatePacedCopier(std::unique_ptr<Copier> inner,
                                          std::shared_ptr<PacedLinks> links, Executor& executor,
                                          const Clock& clock);
std::unique_ptr<FragmentCopier> CreatePacedFragmentCopier(std::unique_ptr<FragmentCopier> inner,
                                                          std::shared_ptr<PacedLinks> links,
                                                          Executor& executor, const Clock& clock);

}  // namespace hmm::copy
