// SPDX-License-Identifier: Apache-2.0
#include "client/lib/pin_counts.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>

#include "base/check.h"

namespace hmm::client_internal {
namespace {

long Membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

// Which stripes have a thread. Static because threads belong to the process: one stripe number
// serves a thread in all attachments, and it is given back when the thread ends.
constinit std::atomic<std::uint64_t> stripes_taken{1};

int TakeStripe() {
  std::uint64_t taken = stripes_taken.load(std::memory_order_relaxed);
  for (;;) {
    const int stripe = std::countr_one(taken);
    if (stripe == 64) return 0;
    // Acquire: what the stripe's thread before wrote is where this one goes on.
    if (stripes_taken.compare_exchange_weak(taken, taken | (std::uint64_t{1} << stripe),
                                            std::memory_order_acquire, std::memory_order_relaxed)) {
      return stripe;
    }
  }
}

}  // namespace

constinit thread_local int PinCounts::thread_stripe = -1;

// Gives the thread's stripe back. Pins that later thread_locals drop are counted in the shared one.
struct PinCounts::Claim {
  Claim() { thread_stripe = TakeStripe(); }
  ~Claim() {
    const int stripe = thread_stripe;
    thread_stripe = 0;
    if (stripe > 0) {
      stripes_taken.fetch_and(~(std::uint64_t{1} << stripe), std::memory_order_release);
    }
  }
};

PinCounts::PinCounts(bool asymmetric)
    : asymmetric_(asymmetric && Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {}

void PinCounts::AddSlow(std::int64_t pins) {
  if (thread_stripe < 0) {
    static thread_local Claim claim;
    if (thread_stripe > 0 && asymmetric_) return Add(pins);
  }
  stripes_[0].pins.fetch_add(pins, std::memory_order_seq_cst);
}

void PinCounts::Settle() const {
  if (asymmetric_) HMM_CHECK(Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
}

std::int64_t PinCounts::Sum() const {
  std::int64_t sum = 0;
  for (const Stripe& stripe : stripes_) sum += stripe.pins.load(std::memory_order_seq_cst);
  return sum;
}

}  // namespace hmm::client_internal
