// SPDX-License-Identifier: Apache-2.0
//
// Durations in microseconds, in buckets 1/16 wide (6%), so that percentiles of many processes can
// be merged exactly by adding counts. A value; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hmm::ctl {

class Histogram {
 public:
  static constexpr std::size_t kBuckets = 64 * 16;

  void Add(std::uint64_t us);
  void AddBucket(std::size_t bucket, std::uint64_t count);
  void Merge(const Histogram& other);

  std::uint64_t count() const { return count_; }
  std::uint64_t bucket(std::size_t i) const { return buckets_[i]; }
  // The largest value of the bucket that holds the p-quantile (0 < p <= 1); 0 when empty.
  std::uint64_t Percentile(double p) const;

 private:
  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
};

}  // namespace hmm::ctl
