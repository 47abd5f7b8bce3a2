// SPDX-License-Identifier: Apache-2.0
//
// A copier whose copies end when the test says so, in the order it chooses, well or badly. Bytes go
// between Tier::Address, or ByteStore where a tier is not mappable. Completions are posted to the
// executor. Checks what the contract promises: no two copies that are held may touch the same bytes
// if one of them writes. One thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/status.h"
#include "copy/copier.h"
#include "copy/memory_copy.h"
#include "support/byte_store.h"

namespace hmm::testing {

class FakeCopier final : public copy::Copier {
 public:
  explicit FakeCopier(Executor& executor) : executor_(executor) {}

  void Submit(const copy::CopyJob& job, copy::CopyDone done) override {
    HMM_CHECK(job.from != nullptr && job.to != nullptr);
    HMM_CHECK(job.bytes <= job.source.length && job.bytes <= job.target.length);
    for (const Held& held : held_) {
      HMM_CHECK(!Overlap(job.to, job.target, held.job.to, held.job.target));
      HMM_CHECK(!Overlap(job.to, job.target, held.job.from, held.job.source));
      HMM_CHECK(!Overlap(job.from, job.source, held.job.to, held.job.target));
    }
    held_.push_back({job, std::move(done)});
  }

  // Jobs held, oldest first; an index is valid until the next call that ends a job.
  std::size_t size() const { return held_.size(); }
  const copy::CopyJob& job(std::size_t i) const { return held_.at(i).job; }

  // Copies the bytes and ends the job as a real copier would.
  void Complete(std::size_t i) { Finish(i, false, 0); }

  // As Complete, but byte `at` of the target differs from the source. Into a medium that is not
  // mappable nobody notices before it is read; with an expected checksum it is DATA_LOSS/CHECKSUM.
  void Corrupt(std::size_t i, Bytes at = 0) { Finish(i, true, at); }

  // Ends the job with `status`; what lies in the target is then anything.
  void Fail(std::size_t i, absl::Status status) {
    HMM_CHECK(!status.ok());
    Held held = Take(i);
    std::memset(BytesOf(held.job.to, held.job.target), 0xDE, held.job.bytes);
    copy::CopyResult result;
    result.status = std::move(status);
    result.elapsed = kElapsed;
    Post(std::move(held.done), std::move(result));
  }

 private:
  struct Held {
    copy::CopyJob job;
    copy::CopyDone done;
  };
  static constexpr Duration kElapsed = std::chrono::microseconds(1);

  static bool Overlap(const tier::Tier* a_tier, const tier::Extent& a, const tier::Tier* b_tier,
                      const tier::Extent& b) {
    return a_tier == b_tier && a.segment == b.segment && a.offset < b.offset + b.length &&
           b.offset < a.offset + a.length;
  }

  static std::byte* BytesOf(const tier::Tier* tier, const tier::Extent& extent) {
    if (tier->mappable()) return tier->Address(extent);
    // The copier gets tiers const; the medium behind one is what a copy writes.
    const auto* store = dynamic_cast<const ByteStore*>(tier);
    HMM_CHECK(store != nullptr);
    return const_cast<ByteStore*>(store)->BytesAt(extent);
  }

  Held Take(std::size_t i) {
    HMM_CHECK(i < held_.size());
    Held held = std::move(held_[i]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    return held;
  }

  void Finish(std::size_t i, bool corrupt, Bytes at) {
    Held held = Take(i);
    const copy::CopyJob& job = held.job;
    const std::byte* from = BytesOf(job.from, job.source);
    std::byte* to = BytesOf(job.to, job.target);
    if (job.bytes > 0) std::memcpy(to, from, job.bytes);
    copy::CopyResult result;
    result.elapsed = kElapsed;
    if (!job.to->mappable()) result.checksum = copy::Checksum(to, job.bytes);
    if (corrupt) {
      HMM_CHECK(at < job.bytes);
      to[at] ^= std::byte{0x01};
    }
    if (job.expected_checksum.has_value() &&
        copy::Checksum(to, job.bytes) != *job.expected_checksum) {
      result.checksum = 0;
      result.status = Error(absl::StatusCode::kDataLoss, Reason::kChecksum,
                            "the bytes read do not match what was written");
    }
    Post(std::move(held.done), std::move(result));
  }

  void Post(copy::CopyDone done, copy::CopyResult result) {
    executor_.Post([done = std::move(done), result = std::move(result)]() mutable {
      std::move(done)(std::move(result));
    });
  }

  Executor& executor_;
  std::vector<Held> held_;
};

}  // namespace hmm::testing
