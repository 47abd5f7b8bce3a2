// SPDX-License-Identifier: Apache-2.0
#include "copy/paced_copier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hmm::copy {
namespace {

// Timers tick in milliseconds: whoever feeds a link learns late that it is free. So much of the
// time that it was idle it makes up for.
constexpr Duration kCredit = std::chrono::milliseconds(2);

// Ends a copy that the memory is done with when its links are, too.
template <typename Done, typename Result>
void EndAt(TimePoint ready, Executor& executor, const Clock& clock, Done done, Result result) {
  const Duration left = ready - clock.Now();
  if (left <= Duration(0)) return std::move(done)(std::move(result));
  executor.PostAfter(left, [done = std::move(done), result = std::move(result)]() mutable {
    std::move(done)(std::move(result));
  });
}

class PacedCopier final : public Copier {
 public:
  PacedCopier(std::unique_ptr<Copier> inner, std::shared_ptr<PacedLinks> links, Executor& executor,
              const Clock& clock)
      : inner_(std::move(inner)), links_(std::move(links)), executor_(executor), clock_(clock) {}

  void Submit(const CopyJob& job, CopyDone done) override {
    HMM_CHECK(job.from != nullptr && job.to != nullptr);
    const PacedLinks::Carried out = links_->Carry(*job.from, false, job.bytes);
    const PacedLinks::Carried in = links_->Carry(*job.to, true, job.bytes);
    const Duration took = std::max(out.took, in.took);
    if (took == Duration(0)) return inner_->Submit(job, std::move(done));
    const TimePoint ready = std::max(out.until, in.until);
    inner_->Submit(job, [&executor = executor_, &clock = clock_, ready, took,
                         done = std::move(done)](CopyResult result) mutable {
      result.elapsed = std::max(result.elapsed, took);
      EndAt(ready, executor, clock, std::move(done), std::move(result));
    });
  }

 private:
  std::unique_ptr<Copier> inner_;
  const std::shared_ptr<PacedLinks> links_;
  Executor& executor_;
  const Clock& clock_;
};

class PacedFragmentCopier final : public FragmentCopier {
 public:
  PacedFragmentCopier(std::unique_ptr<FragmentCopier> inner, std::shared_ptr<PacedLinks> links,
                      Executor& executor, const Clock& clock)
      : inner_(std::move(inner)), links_(std::move(links)), executor_(executor), clock_(clock) {}

  void Submit(FragmentJob job, FragmentDone done) override {
    PacedLinks::Carried slowest;
    for (const Crossing& crossing : job.crossings) {
      const PacedLinks::Carried one = links_->Carry(*crossing.tier, crossing.into, crossing.bytes);
      slowest = {std::max(slowest.until, one.until), std::max(slowest.took, one.took)};
    }
    if (slowest.took == Duration(0)) return inner_->Submit(std::move(job), std::move(done));
    inner_->Submit(std::move(job), [&executor = executor_, &clock = clock_, slowest,
                                    done = std::move(done)](FragmentResult result) mutable {
      if (!result.complete) return std::move(done)(result);  // nobody wants it any more
      result.elapsed = std::max(result.elapsed, slowest.took);
      EndAt(slowest.until, executor, clock, std::move(done), result);
    });
  }

 private:
  std::unique_ptr<FragmentCopier> inner_;
  const std::shared_ptr<PacedLinks> links_;
  Executor& executor_;
  const Clock& clock_;
};

}  // namespace

PacedLinks::Carried PacedLinks::Carry(const tier::Tier& tier, bool into, Bytes bytes) {
  const Bytes rate = tier.options().link_bandwidth;
  if (rate == 0) return {};
  const Duration took = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / static_cast<double>(rate)));
  TimePoint& free_at = free_at_[{&tier, into}];
  free_at = std::max(free_at, clock_.Now() - kCredit) + took;
  return {free_at, took};
}

std::unique_ptr<Copier> CreatePacedCopier(std::unique_ptr<Copier> inner,
                                          std::shared_ptr<PacedLinks> links, Executor& executor,
                                          const Clock& clock) {
  return std::make_unique<PacedCopier>(std::move(inner), std::move(links), executor, clock);
}

std::unique_ptr<FragmentCopier> CreatePacedFragmentCopier(std::unique_ptr<FragmentCopier> inner,
                                                          std::shared_ptr<PacedLinks> links,
                                                          Executor& executor, const Clock& clock) {
  return std::make_unique<PacedFragmentCopier>(std::move(inner), std::move(links), executor, clock);
}

}  // namespace hmm::copy
