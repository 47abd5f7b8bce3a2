// SPDX-License-Identifier: Apache-2.0
//
// Choosing a victim among up to a million tensors: the whole core in this thread, one tier full of
// droppable tensors at rest, so that each allocation has to choose and drop one. The whole
// allocation is held to the bar of the choice: the difference to one where there is room is too
// small to be measured well.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_support.h"
#include "hmm/manager.h"
#include "support/fake_copier.h"
#include "support/fake_tier.h"
#include "support/manual_clock.h"
#include "support/manual_executor.h"

namespace hmm::bench {
namespace {

using namespace hmm::testing;

constexpr Bytes kEach = 64;
constexpr std::size_t kVictims = 2000;

class World {
 public:
  // Room for `tensors` and no more.
  explicit World(std::size_t tensors) : executor_(clock_), copier_(executor_) {
    FakeTierOptions tier;
    tier.tier.name = "hbm0";
    tier.tier.kind = TierKind::kHbm;
    tier.tier.emulated = true;
    tier.tier.capacity = (tensors + 1) * kEach;  // the largest tensor's reserve
    tier.tier.high = 1.0;
    tier.tier.low = 0.99;
    std::vector<std::unique_ptr<tier::Tier>> tiers;
    tiers.push_back(std::make_unique<FakeTier>(std::move(tier)));
    core::ManagerOptions options;
    options.boot_epoch = 1;
    options.seed = 1;
    options.max_tensors = 1u << 21;
    options.session_pinned_max = 100;
    manager_ =
        std::make_unique<core::Manager>(options, std::move(tiers), copier_, executor_, clock_);
    core::SessionInfo info;
    info.tenant = "bench";
    session_ = Must(manager_->OpenSession(info)).session;
  }

  // Allocates `count` droppable tensors in one call and puts them down, sealed.
  void Put(std::size_t count) {
    for (std::size_t done = 0; done < count; done += std::min<std::size_t>(count - done, 4096)) {
      std::vector<Handle> handles = Allocate(std::min<std::size_t>(count - done, 4096));
      Seal(handles);
    }
  }
  // CPU seconds of each of `count` allocations of one tensor.
  double TimeEach(std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Handle> handle;
      sum += CpuTime([&] { handle = Allocate(1); });
      Seal(handle);
    }
    return sum / static_cast<double>(count);
  }
  std::uint64_t evictions() const { return manager_->GetStatus(std::nullopt).counters.evictions; }

 private:
  std::vector<Handle> Allocate(std::size_t count) {
    core::AllocateArgs args;
    args.tensors.resize(count);
    for (core::TensorSpec& spec : args.tensors) {
      spec.bytes = kEach;
      spec.droppable = true;
    }
    core::CallContext call;
    call.session = session_;
    call.call_id = call.oldest_live_call_id = ++last_call_;
    std::vector<Handle> handles;
    manager_->Allocate(call, std::move(args), [&](absl::StatusOr<core::AllocateResult> result) {
      Must(result.status());
      for (const auto& one : result->tensors) handles.push_back(Must(one).handle);
    });
    return handles;
  }
  void Seal(const std::vector<Handle>& handles) {
    std::vector<core::SealItem> items;
    for (const Handle handle : handles) items.push_back({handle, "", true});
    Must(manager_->Seal(session_, items).status());
    executor_.RunReady(1000);
  }

  ManualClock clock_;
  ManualExecutor executor_;
  FakeCopier copier_;
  std::unique_ptr<core::Manager> manager_;
  SessionId session_ = 0;
  std::uint64_t last_call_ = 0;
};

// Seconds of an allocation that has to choose and drop one victim among n.
double AllocationAmong(std::size_t n) {
  World world(n);
  world.Put(n - 2 * kVictims);
  const double without = world.TimeEach(kVictims);
  world.Put(4 * kVictims);  // all is full, and the first have gone
  const std::uint64_t before = world.evictions();
  const double with = world.TimeEach(kVictims);
  if (world.evictions() - before < kVictims) {
    std::fprintf(stderr, "bench_evict: an allocation dropped nothing\n");
    std::exit(1);
  }
  std::printf("evict: n %7zu  %.2f us with a victim, %.2f us without\n", n, with * 1e6,
              without * 1e6);
  return with;
}

int Run() {
  Pairs pairs;
  for (int round = 0; round < 3; ++round) {
    const double few = AllocationAmong(20'000);
    pairs.Add(AllocationAmong(1'000'000), few);
  }
  const double choice = Median(pairs.ours);
  Row("evict/allocation_among_a_million", choice * 1e6, 5, "us", choice / 5e-6, Bar::kAtMost, 1);
  Row("evict/a_million_against_20000", pairs, 1e6, "us", Bar::kAtMost, 1.5);
  return 0;
}

}  // namespace
}  // namespace hmm::bench

int main() { return hmm::bench::Run(); }
