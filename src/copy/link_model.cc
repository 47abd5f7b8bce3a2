// SPDX-License-Identifier: Apache-2.0
#include "copy/link_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hmm::copy {
namespace {

constexpr std::size_t kPointsMax = 64;
constexpr double kRateMin = 1.0;
constexpr double kRateMax = 1e15;
constexpr std::uint32_t kEnginesMax = 4096;
constexpr Duration kLatencyMax = std::chrono::minutes(1);

}  // namespace

double RateAt(const LinkModel& link, Bytes bytes) {
  HMM_CHECK(link.measured());
  const auto& curve = link.curve;
  const auto above = std::find_if(curve.begin(), curve.end(),
                                  [bytes](const RatePoint& point) { return point.bytes >= bytes; });
  if (above == curve.begin()) return curve.front().bytes_per_second;
  if (above == curve.end()) return curve.back().bytes_per_second;
  const auto below = std::prev(above);
  const double span =
      std::log2(static_cast<double>(above->bytes)) - std::log2(static_cast<double>(below->bytes));
  const double at =
      (std::log2(static_cast<double>(bytes)) - std::log2(static_cast<double>(below->bytes))) / span;
  return below->bytes_per_second + at * (above->bytes_per_second - below->bytes_per_second);
}

Duration TimeOf(const LinkModel& link, Bytes bytes) {
  const double seconds = static_cast<double>(bytes) / RateAt(link, bytes);
  return link.latency +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

bool Plausible(const LinkModel& link) {
  if (link.latency < Duration(0) || link.latency > kLatencyMax) return false;
  if (link.engines < 1 || link.engines > kEnginesMax) return false;
  if (!(link.duplex_factor > 0 && link.duplex_factor <= 1)) return false;
  if (link.curve.size() > kPointsMax || link.contention_group == 0) return false;
  Bytes last = 0;
  for (const RatePoint& point : link.curve) {
    if (point.bytes <= last) return false;
    if (!(point.bytes_per_second >= kRateMin && point.bytes_per_second <= kRateMax)) return false;
    last = point.bytes;
  }
  return link.measured() || !link.note.empty();
}

}  // namespace hmm::copy
