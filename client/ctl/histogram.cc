// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hmm::ctl {
namespace {

// Values below 16 have a bucket each; above, each power of two has 16.
std::size_t BucketOf(std::uint64_t us) {
  if (us < 16) return static_cast<std::size_t>(us);
  const int shift = static_cast<int>(std::bit_width(us)) - 5;
  return static_cast<std::size_t>(shift + 1) * 16 + static_cast<std::size_t>((us >> shift) - 16);
}

std::uint64_t LargestOf(std::size_t bucket) {
  if (bucket < 16) return bucket;
  const std::size_t shift = bucket / 16 - 1;
  const std::uint64_t top = bucket % 16 + 16;
  return ((top + 1) << shift) - 1;
}

}  // namespace

void Histogram::Add(std::uint64_t us) { AddBucket(BucketOf(us), 1); }

void Histogram::AddBucket(std::size_t bucket, std::uint64_t count) {
  if (bucket >= kBuckets) return;
  buckets_[bucket] += count;
  count_ += count;
}

void Histogram::Merge(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) AddBucket(i, other.buckets_[i]);
}

std::uint64_t Histogram::Percentile(double p) const {
  if (count_ == 0) return 0;
  const double exact = std::ceil(p * static_cast<double>(count_));
  const std::uint64_t rank =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(exact), 1, count_);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    below += buckets_[i];
    if (below >= rank) return LargestOf(i);
  }
  return LargestOf(kBuckets - 1);
}

}  // namespace hmm::ctl
