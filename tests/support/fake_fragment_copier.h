// SPDX-License-Identifier: Apache-2.0
//
// A fragment copier whose lists end when the test says so, in the order it chooses, copied in whole
// or, where they were stopped, in half. One thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "copy/fragment_copier.h"

namespace hmm::testing {

class FakeFragmentCopier final : public copy::FragmentCopier {
 public:
  explicit FakeFragmentCopier(Executor& executor) : executor_(executor) {}

  void Submit(copy::FragmentJob job, copy::FragmentDone done) override {
    held_.push_back({std::move(job), std::move(done)});
  }

  // Lists held, oldest first; an index is valid until the next call that ends one.
  std::size_t size() const { return held_.size(); }
  const copy::FragmentJob& job(std::size_t i) const { return held_.at(i).job; }
  bool Stopped(std::size_t i) const {
    return held_.at(i).job.stop != nullptr && held_.at(i).job.stop->load();
  }
  // Whether a held list touches any byte of the range.
  bool Touches(const std::byte* data, Bytes bytes) const {
    for (const Held& held : held_) {
      for (const copy::CopyPiece& piece : held.job.pieces) {
        if (Overlap(piece.to, piece.bytes, data, bytes)) return true;
        if (Overlap(piece.from, piece.bytes, data, bytes)) return true;
      }
    }
    return false;
  }

  // Copies and ends the list; one that was stopped copies its first half only.
  void Complete(std::size_t i) {
    HMM_CHECK(i < held_.size());
    const bool stopped = Stopped(i);
    Held held = std::move(held_[i]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    const std::size_t count = held.job.pieces.size();
    for (std::size_t k = 0; k < (stopped ? count / 2 : count); ++k) {
      const copy::CopyPiece& piece = held.job.pieces[k];
      std::memcpy(piece.to, piece.from, piece.bytes);
    }
    executor_.Post([done = std::move(held.done), stopped]() mutable {
      std::move(done)({!stopped, std::chrono::microseconds(1)});
    });
  }

 private:
  struct Held {
    copy::FragmentJob job;
    copy::FragmentDone done;
  };
  static bool Overlap(const std::byte* a, Bytes a_bytes, const std::byte* b, Bytes b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
  }

  Executor& executor_;
  std::vector<Held> held_;
};

}  // namespace hmm::testing
