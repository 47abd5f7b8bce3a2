// SPDX-License-Identifier: Apache-2.0
//
// What was measured of the links, by pair of tiers, for whoever estimates. One thread (the
// executor's).
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "copy/link_model.h"
#include "hmm/types.h"

namespace hmm::core {

class LinkTimes {
 public:
  void Set(LinkMeasurement measured) {
    measured_ = std::move(measured);
    by_pair_.clear();
    for (std::size_t i = 0; i < measured_.links.size(); ++i) {
      by_pair_[{measured_.links[i].from, measured_.links[i].to}] = i;
    }
  }
  const LinkMeasurement& measured() const { return measured_; }

  // nullopt: not measured.
  std::optional<Duration> Time(TierId from, TierId to, Bytes bytes) const {
    const auto found = by_pair_.find({from, to});
    if (found == by_pair_.end()) return std::nullopt;
    const copy::LinkModel& link = measured_.links[found->second];
    if (!link.measured()) return std::nullopt;
    return copy::TimeOf(link, bytes);
  }

 private:
  LinkMeasurement measured_;
  std::map<std::pair<TierId, TierId>, std::size_t> by_pair_;
};

}  // namespace hmm::core
