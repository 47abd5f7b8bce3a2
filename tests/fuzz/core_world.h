// SPDX-License-Identifier: Apache-2.0
//
// The whole core in the target's thread, for targets that come in through a session or a call:
// small fake tiers, copies that end when the script says so, a clock that it moves.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hmm/manager.h"
#include "support/fake_copier.h"
#include "support/fake_fragment_copier.h"
#include "support/manual_clock.h"
#include "support/manual_executor.h"

namespace hmm::fuzz {

class CoreWorld {
 public:
  static constexpr std::uint32_t kSlots = 128;  // tensors of a tenant

  // hbm0, hbm1 (16 KiB each) -> ddr0 (32 KiB) -> flash0 (64 KiB, not mappable).
  CoreWorld();
  explicit CoreWorld(core::ManagerOptions options);
  // Small bounds, so that a short script reaches them.
  static core::ManagerOptions SmallOptions();

  core::Manager& manager() { return *manager_; }
  testing::ManualClock& clock() { return clock_; }
  testing::ManualExecutor& executor() { return executor_; }
  const core::ManagerOptions& options() const { return options_; }

  absl::StatusOr<core::SessionGrant> Open(const std::string& tenant);
  void EndCopies(std::size_t n);
  // What is ready, and what comes due within `by`. Must come to rest.
  void Run(Duration by = {});
  // Ends copies and lets time pass until `done`, which must come to be in a bounded time.
  void RunUntil(const std::function<bool()>& done, const char* what);
  // Every invariant of the core.
  void Validate() const;
  // Every session is reaped, every tensor freed: nothing may be left.
  void Empty();

 private:
  const core::ManagerOptions options_;
  testing::ManualClock clock_;
  testing::ManualExecutor executor_{clock_};
  testing::FakeCopier copier_{executor_};
  testing::FakeFragmentCopier fragments_{executor_};
  std::unique_ptr<core::Manager> manager_;
};

}  // namespace hmm::fuzz
