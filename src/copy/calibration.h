// SPDX-License-Identifier: Apache-2.0
//
// Measures links: bandwidth by size, latency, engines and duplex factor of each direction, by moves
// between scratch extents of the real tiers, with the real copiers and checksums. Takes
// about its budget, four times that at most: what a link needs is cut into short runs, and
// what the time does not suffice for is left out and says so. Nothing is taken of a tier's reserve
// nor above its high mark, and a quarter of what is free at most: a full tier is not measured.
//
//   a link: warm -> 3 x (latency -> engines -> curve -> both ways)     (a Run each; then the next)
//
// One thread (the executor's).
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "base/executor.h"
#include "copy/copier.h"
#include "copy/link_model.h"

namespace hmm::copy {

// Tiers that exchange moves; `a` the faster.
struct LinkEnds {
  TierId a = 0;
  TierId b = 0;
};

struct CalibrationOptions {
  Duration budget = std::chrono::milliseconds(400);  // over all links
  Bytes scratch_max = 8 * kMiB;                      // of each tier of a link
  unsigned file_depth = 32;                          // most moves of flash under way at once
  unsigned memory_depth = 8;                         // and of memory
};

// Of both directions of each link, in the order of the links, a to b first.
using CalibrationDone = absl::AnyInvocable<void(std::vector<LinkModel>) &&>;

class Calibration {
 public:
  virtual ~Calibration() = default;
  // No new moves; `done` is not called. Scratch is freed when the moves under way have ended.
  virtual void Stop() = 0;
};

// The scratch of memory tiers is an arena of this tenant's, forgotten at the end.
inline constexpr TenantId kCalibrationTenant = ~TenantId{0};

// `done` is called on the executor, never from inside. The others are touched as long as `alive` is
// not expired; once it is, completions do nothing. The result lives until the last completion:
// while it does, no second one may be started on the same tiers.
std::shared_ptr<Calibration> StartCalibration(const std::vector<std::unique_ptr<tier::Tier>>& tiers,
                                              std::vector<LinkEnds> links, Copier& copier,
                                              Executor& executor, const Clock& clock,
                                              const CalibrationOptions& options,
                                              std::weak_ptr<void> alive, CalibrationDone done);

// Not measured for lack of time: another attempt may do better.
bool OutOfTime(const LinkModel& link);

// Which medium each direction of each link shares with which others: an emulated tier's own wire,
// the drive of a file, the memory of the host. From 1, by link.
std::vector<std::uint32_t> ContentionGroups(const std::vector<std::unique_ptr<tier::Tier>>& tiers,
                                            const std::vector<LinkEnds>& links);

}  // namespace hmm::copy
