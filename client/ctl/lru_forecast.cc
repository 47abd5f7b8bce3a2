// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/lru_forecast.h"

#include <list>
#include <unordered_map>
#include <unordered_set>

namespace hmm::ctl {
namespace {

// One list a tier, front = most recently used. The concatenation of the lists is the order of one
// LRU over all tiers, so a block's tier is its place in that order.
class TierChain {
 public:
  explicit TierChain(absl::Span<const std::size_t> capacities)
      : capacities_(capacities.begin(), capacities.end()), lists_(capacities.size()) {}

  // Index of the tier that holds the block, or -1.
  int Find(std::uint64_t block) const {
    const auto it = where_.find(block);
    return it == where_.end() ? -1 : static_cast<int>(it->second.tier);
  }

  // Returns how many blocks were dropped for it.
  std::uint64_t Touch(std::uint64_t block) {
    if (lists_.empty()) return 0;
    const auto [it, added] = where_.try_emplace(block);
    if (added) {
      lists_[0].push_front(block);
    } else {
      lists_[0].splice(lists_[0].begin(), lists_[it->second.tier], it->second.at);
    }
    it->second = {0, lists_[0].begin()};
    return Overflow();
  }

 private:
  struct Place {
    std::size_t tier = 0;
    std::list<std::uint64_t>::iterator at;
  };

  std::uint64_t Overflow() {
    std::uint64_t dropped = 0;
    for (std::size_t tier = 0; tier < lists_.size(); ++tier) {
      while (lists_[tier].size() > capacities_[tier]) {
        const auto last = std::prev(lists_[tier].end());
        if (tier + 1 == lists_.size()) {
          where_.erase(*last);
          lists_[tier].erase(last);
          ++dropped;
        } else {
          where_[*last].tier = tier + 1;  // splice keeps the iterator
          lists_[tier + 1].splice(lists_[tier + 1].begin(), lists_[tier], last);
        }
      }
    }
    return dropped;
  }

  const std::vector<std::size_t> capacities_;
  std::vector<std::list<std::uint64_t>> lists_;
  std::unordered_map<std::uint64_t, Place> where_;
};

}  // namespace

LruForecast ForecastLru(absl::Span<const TraceRequest> requests,
                        absl::Span<const std::size_t> capacities) {
  LruForecast forecast;
  forecast.hits.resize(capacities.size());
  TierChain chain(capacities);
  std::unordered_set<std::uint64_t> seen;
  for (const TraceRequest& request : requests) {
    const std::vector<std::uint64_t> blocks = request.Blocks();
    ++forecast.requests;
    forecast.accesses += blocks.size();
    std::size_t run = 0;
    for (; run < blocks.size(); ++run) {
      const int tier = chain.Find(blocks[run]);
      if (tier < 0) break;
      ++forecast.hits[static_cast<std::size_t>(tier)];
    }
    forecast.misses += blocks.size() - run;
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      seen.insert(*block);
      forecast.dropped += chain.Touch(*block);
    }
  }
  forecast.unique_blocks = seen.size();
  return forecast;
}

}  // namespace hmm::ctl
