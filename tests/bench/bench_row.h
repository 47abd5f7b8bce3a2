// SPDX-License-Identifier: Apache-2.0
//
// Medians, and the row that each figure of a bench ends in. Ours and the limit are measured in
// turns within one run, and the ratio is the median of the pairs' ratios: absolute times of a
// shared machine mean little.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace hmm::bench {

inline double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}
inline double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

// Ours against the limit, round by round.
struct Pairs {
  std::vector<double> ours;
  std::vector<double> limit;
  void Add(double our, double theirs) {
    ours.push_back(our);
    limit.push_back(theirs);
  }
  double Ratio() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / limit[i]);
    return Median(ratios);
  }
};

enum class Bar { kAtMost, kAtLeast };

// "pin.random    34.1 ns    21.0 ns    1.62   <= 2   met"
inline void Row(const char* name, double ours, double limit, const char* unit, double ratio,
                Bar kind, double bar) {
  const bool met = kind == Bar::kAtMost ? ratio <= bar : ratio >= bar;
  std::printf("%-38s %12.4g %12.4g %-9s ratio %8.3f  bar %s %-6g %s\n", name, ours, limit, unit,
              ratio, kind == Bar::kAtMost ? "<=" : ">=", bar, met ? "met" : "MISSED");
  std::fflush(stdout);
}
inline void Row(const char* name, const Pairs& pairs, double scale, const char* unit, Bar kind,
                double bar) {
  Row(name, Median(pairs.ours) * scale, Median(pairs.limit) * scale, unit, pairs.Ratio(), kind,
      bar);
}

}  // namespace hmm::bench
