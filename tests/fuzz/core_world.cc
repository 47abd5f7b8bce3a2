// SPDX-License-Identifier: Apache-2.0
#include "fuzz/core_world.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fuzz/require.h"
#include "support/fake_tier.h"

namespace hmm::fuzz {
namespace {

using std::chrono::milliseconds;

// More tasks than any script's calls can make ready at one instant.
constexpr std::size_t kTasksMax = 100'000;
// Longer than any deadline that a script gives: then a call still waits for ever.
constexpr int kRoundsMax = 8000;

std::unique_ptr<tier::Tier> MakeTier(const char* name, TierKind kind, Bytes capacity, TierId id) {
  testing::FakeTierOptions options;
  options.tier.name = name;
  options.tier.kind = kind;
  options.tier.emulated = kind == TierKind::kHbm;
  options.tier.capacity = capacity;
  options.tier.high = 0.9;
  options.tier.low = 0.8;
  options.id = id;
  options.mappable = kind != TierKind::kFlash;
  return std::make_unique<testing::FakeTier>(std::move(options));
}

}  // namespace

core::ManagerOptions CoreWorld::SmallOptions() {
  core::ManagerOptions options;
  options.boot_epoch = 7;
  options.seed = 1;
  options.max_tensors = kSlots;
  options.batch_max = 64;
  options.key_bytes_max = 32;
  options.sessions_max = 8;
  options.sessions_per_tenant_max = 6;
  options.waiting_max = 24;
  options.calls_remembered_max = 32;
  options.session_pinned_max = 0.6;
  options.ahead_max = 16;
  options.ahead_bytes_max = 8 * kKiB;
  options.victims_per_batch = 4;
  options.generation_max = 40;
  options.events_kept = 64;
  options.moves_kept = 64;
  options.demote_to = {TierId{2}, TierId{2}, TierId{3}, std::nullopt};
  options.mover.queued_max = 16;
  options.mover.running_max = 2;
  options.jobs.regions_per_session_max = 4;
  options.jobs.regions_max = 8;
  options.jobs.attached_bytes_max = 64 * kKiB;
  options.jobs.jobs_per_session_max = 6;
  options.jobs.fragments_per_key_max = 16;
  options.jobs.fragments_per_job_max = 32;
  options.jobs.fragments_max = 64;
  options.jobs.keys_under_way_max = 2;
  return options;
}

CoreWorld::CoreWorld() : CoreWorld(SmallOptions()) {}

CoreWorld::CoreWorld(core::ManagerOptions options) : options_(std::move(options)) {
  std::vector<std::unique_ptr<tier::Tier>> tiers;
  tiers.push_back(MakeTier("hbm0", TierKind::kHbm, 16 * kKiB, 0));
  tiers.push_back(MakeTier("hbm1", TierKind::kHbm, 16 * kKiB, 1));
  tiers.push_back(MakeTier("ddr0", TierKind::kDdr, 32 * kKiB, 2));
  tiers.push_back(MakeTier("flash0", TierKind::kFlash, 64 * kKiB, 3));
  manager_ = std::make_unique<core::Manager>(options_, std::move(tiers), copier_, executor_, clock_,
                                             &fragments_);
}

absl::StatusOr<core::SessionGrant> CoreWorld::Open(const std::string& tenant) {
  core::SessionInfo info;
  info.tenant = tenant;
  return manager_->OpenSession(info);
}

void CoreWorld::EndCopies(std::size_t n) {
  for (std::size_t i = 0; i < n && copier_.size() > 0; ++i) copier_.Complete(0);
  for (std::size_t i = 0; i < n && fragments_.size() > 0; ++i) fragments_.Complete(0);
}

void CoreWorld::Run(Duration by) {
  Require(executor_.Advance(by, kTasksMax) < kTasksMax, "the executor comes to rest");
}

void CoreWorld::RunUntil(const std::function<bool()>& done, const char* what) {
  for (int round = 0; round < kRoundsMax; ++round) {
    Run();
    EndCopies(copier_.size() + fragments_.size());
    Run();
    if (done()) return;
    Run(milliseconds(1));
  }
  Require(false, absl::StrCat("in a bounded time: ", what));
}

void CoreWorld::Validate() const { RequireOk(manager_->Validate(), "the core is whole"); }

void CoreWorld::Empty() {
  std::set<std::string> tenants;
  (void)manager_->Drain(false);
  for (const core::SessionStatus& session : manager_->ListSessions(std::nullopt)) {
    tenants.insert(session.tenant);
    manager_->ReapSession(session.session);
  }
  std::uint64_t cursor = 0;
  do {
    const auto page = manager_->ListTensors(std::nullopt, {}, cursor, 100);
    RequireOk(page.status(), "tensors are listed");
    for (const core::TensorInfo& tensor : page->tensors) tenants.insert(tensor.tenant);
    cursor = page->next;
  } while (cursor != 0);
  const auto quiet = [&] { return copier_.size() + fragments_.size() + executor_.ready() == 0; };
  RunUntil(quiet, "copies end");
  for (const std::string& tenant : tenants) {
    const auto grant = Open(tenant);
    RequireOk(grant.status(), "a tenant's next session opens");
    std::vector<Handle> handles;
    do {
      const auto page = manager_->ListTensors(grant->session, {}, cursor, 100);
      RequireOk(page.status(), "tensors are listed");
      for (const core::TensorInfo& tensor : page->tensors) {
        if (tensor.state != TensorState::kDoomed) handles.push_back(tensor.handle);
      }
      cursor = page->next;
    } while (cursor != 0);
    for (const Handle handle : handles) {
      (void)manager_->Free(grant->session, absl::MakeConstSpan(&handle, 1));
    }
    manager_->ReapSession(grant->session);
  }
  RunUntil(
      [&] {
        const core::StatusInfo status = manager_->GetStatus(std::nullopt);
        return status.tensors == 0 && status.sessions == 0 && status.pins == 0 &&
               std::all_of(status.tiers.begin(), status.tiers.end(),
                           [](const core::TierInfo& tier) { return tier.used == 0; });
      },
      "all tiers are empty when everybody has gone");
  Validate();
}

}  // namespace hmm::fuzz
