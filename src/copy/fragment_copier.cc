// SPDX-License-Identifier: Apache-2.0
#include "copy/fragment_copier.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

#include "base/clock.h"
#include "copy/memory_copy.h"

namespace hmm::copy {
namespace {

// Below it a second thread costs more than it saves.
constexpr Bytes kPartMin = 2 * kMiB;
// Between two looks at `stop` inside one long piece.
constexpr Bytes kStride = 16 * kMiB;

// A list under way; the thread that ends the last part reports.
struct Running {
  FragmentJob job;
  FragmentDone done;
  TimePoint start{};
  std::atomic<std::size_t> parts{0};
  std::atomic<bool> complete{true};

  bool Stopped() const { return job.stop != nullptr && job.stop->load(std::memory_order_relaxed); }
};

class WorkerFragmentCopier final : public FragmentCopier {
 public:
  WorkerFragmentCopier(Executor& executor, unsigned threads)
      : executor_(executor), threads_(std::max(1U, threads)), pool_(threads_) {}
  ~WorkerFragmentCopier() override { pool_.join(); }

  void Submit(FragmentJob job, FragmentDone done) override {
    auto running = std::make_shared<Running>();
    running->job = std::move(job);
    running->done = std::move(done);
    running->start = clock_.Now();
    const std::vector<std::size_t> ends = Cut(running->job.pieces);
    running->parts.store(ends.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      boost::asio::post(pool_, [this, running, begin, end] { CopyPart(running, begin, end); });
      begin = end;
    }
  }

 private:
  // Where the parts end: about as many bytes in each, at least one part.
  std::vector<std::size_t> Cut(const std::vector<CopyPiece>& pieces) const {
    Bytes total = 0;
    for (const CopyPiece& piece : pieces) total += piece.bytes;
    const Bytes parts = std::clamp<Bytes>(total / kPartMin, 1, threads_);
    std::vector<std::size_t> ends;
    Bytes seen = 0;
    for (std::size_t i = 0; i < pieces.size() && ends.size() + 1 < parts; ++i) {
      seen += pieces[i].bytes;
      if (seen >= total / parts * (ends.size() + 1)) ends.push_back(i + 1);
    }
    if (ends.empty() || ends.back() < pieces.size()) ends.push_back(pieces.size());
    return ends;
  }

  void CopyPart(const std::shared_ptr<Running>& running, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const CopyPiece& piece = running->job.pieces[i];
      for (Bytes at = 0; at < piece.bytes; at += kStride) {
        if (running->Stopped()) {
          running->complete.store(false, std::memory_order_relaxed);
          return EndPart(running);
        }
        CopyMemory(piece.to + at, piece.from + at, std::min(kStride, piece.bytes - at));
      }
    }
    EndPart(running);
  }

  void EndPart(const std::shared_ptr<Running>& running) {
    if (running->parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const FragmentResult result{running->complete.load(std::memory_order_relaxed),
                                clock_.Now() - running->start};
    executor_.Post(
        [done = std::move(running->done), result]() mutable { std::move(done)(result); });
  }

  Executor& executor_;
  const unsigned threads_;
  const SteadyClock clock_;
  boost::asio::thread_pool pool_;  // last: its threads use all of the above
};

}  // namespace

std::unique_ptr<FragmentCopier> CreateWorkerFragmentCopier(Executor& executor, unsigned threads) {
  return std::make_unique<WorkerFragmentCopier>(executor, threads);
}

}  // namespace hmm::copy
