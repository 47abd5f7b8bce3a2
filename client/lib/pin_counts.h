// SPDX-License-Identifier: Apache-2.0
//
// How many Pins of this process are alive on one attachment, counted without a locked instruction:
// every thread has a stripe that it alone writes, and the sum of all stripes is the count. (A pin
// taken by one thread and dropped by another leaves +1 in one stripe and -1 in the other.)
//
//   taker                                     closer
//   1 own stripe += 1                         1 closed := true
//   2 pin word += 1 (a read-modify-write)     2 Settle()
//   3 read closed: if set, undo               3 Sum(): 0 means nobody holds a pin, and nobody will
//
// Dekker's argument again. The taker's store must not be overtaken by its load, and what sees to
// that is the closer: Settle makes every running thread of the process pass a full barrier
// (membarrier). Where the kernel refuses that, all threads count in one seq_cst word and pay for
// it.
//
// Add: any thread. Sum and Settle: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hmm::client_internal {

class PinCounts {
 public:
  // `asymmetric` false: as if the kernel had refused (tests).
  explicit PinCounts(bool asymmetric = true);

  void Add(std::int64_t pins) {
    const int stripe = thread_stripe;
    if (stripe > 0 && asymmetric_) [[likely]] {
      std::atomic<std::int64_t>& own = stripes_[static_cast<std::size_t>(stripe)].pins;
      own.store(own.load(std::memory_order_relaxed) + pins, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler's part of the order
    } else {
      AddSlow(pins);
    }
  }

  void Settle() const;
  // Never less than the Pins that were alive when it was called and still are when it returns.
  std::int64_t Sum() const;

 private:
  static constexpr int kStripes = 64;  // 0 is everybody's, for threads beyond the 63rd

  struct alignas(64) Stripe {
    std::atomic<std::int64_t> pins{0};
  };
  struct Claim;

  void AddSlow(std::int64_t pins);

  // Stripe of this thread in every PinCounts: 0 shared, -1 not asked for yet. Addressed without a
  // call, also in the shared library: that costs 4 bytes of the room for such when it is loaded at
  // run time, and saves two calls of __tls_get_addr a pin.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local int thread_stripe;

  bool asymmetric_;
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace hmm::client_internal
