// SPDX-License-Identifier: Apache-2.0
#include "tier/tier_order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace hmm::tier {
namespace {

using Targets = std::vector<std::optional<std::size_t>>;

std::optional<std::size_t> ByName(const std::vector<TierPlace>& places, const std::string& name) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].name == name) return i;
  }
  return std::nullopt;
}

// Whether the way down from `from` comes past `to`. Bounded, for the way may be a circle.
bool Reaches(const Targets& targets, std::size_t from, std::size_t to) {
  std::optional<std::size_t> at = from;
  for (std::size_t steps = 0; at.has_value() && steps <= targets.size(); ++steps) {
    if (*at == to) return true;
    at = targets[*at];
  }
  return false;
}

Targets Given(const std::vector<TierPlace>& places) {
  Targets targets(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i].demote_to.empty()) targets[i] = ByName(places, places[i].demote_to);
  }
  return targets;
}

// Comparable: smaller is faster. Memory that is bound to no node is what the CPUs have next to
// them.
using Speed = std::tuple<TierKind, bool, double, unsigned>;
Speed SpeedOf(const TierPlace& place, const Topology& topology) {
  unsigned rank = 0;
  if (place.kind != TierKind::kFlash) {
    const MemoryNode* node = place.numa_node < 0 ? nullptr : topology.Find(place.numa_node);
    if (node != nullptr) {
      rank = node->rank;
    } else if (place.kind == TierKind::kDdr) {
      unsigned local = ~0U;
      for (const MemoryNode& other : topology.nodes) {
        const bool ordinary = !other.cpuless && other.type != "HBM" && other.type != "MCDRAM";
        if (ordinary) local = std::min(local, other.rank);
      }
      rank = local == ~0U ? 0 : local;
    }
  }
  const bool paced = place.link_bandwidth > 0;
  return {place.kind, paced, -static_cast<double>(place.link_bandwidth), rank};
}

// 0: next to the same CPUs; 2: not; 1: nobody knows.
int Distance(const TierPlace& a, const TierPlace& b, const Topology& topology) {
  if (a.numa_node < 0 || b.numa_node < 0) return 1;
  if (a.numa_node == b.numa_node) return 0;
  const MemoryNode* node = topology.Find(a.numa_node);
  if (node == nullptr) return 1;
  return std::find(node->near.begin(), node->near.end(), b.numa_node) != node->near.end() ? 0 : 2;
}

std::optional<std::size_t> Derive(const std::vector<TierPlace>& places, const Topology& topology,
                                  const std::vector<unsigned>& ranks, const Targets& targets,
                                  std::size_t tier) {
  std::optional<std::size_t> best;
  const auto key = [&](std::size_t i) {
    return std::make_tuple(ranks[i], Distance(places[tier], places[i], topology));
  };
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (ranks[i] <= ranks[tier] || places[tier].kind == TierKind::kFlash) continue;
    // Another device's HBM is no store for this one's.
    if (places[i].kind == TierKind::kHbm) continue;
    if (Reaches(targets, i, tier)) continue;
    if (!best.has_value() || key(i) < key(*best)) best = i;
  }
  return best;
}

}  // namespace

std::optional<PathFault> CheckPaths(const std::vector<TierPlace>& places) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const TierPlace& place = places[i];
    if (place.demote_to.empty()) continue;
    const auto fault = [&](const std::string& what) { return PathFault{i, what}; };
    if (place.kind == TierKind::kFlash) {
      return fault("flash is the last; what leaves it is dropped. Remove the key");
    }
    const auto target = ByName(places, place.demote_to);
    if (!target.has_value()) {
      return fault(
          absl::StrCat("there is no tier '", place.demote_to, "'; there are ",
                       absl::StrJoin(places, ", ", [](std::string* out, const TierPlace& other) {
                         out->append(other.name);
                       })));
    }
    if (*target == i) return fault("a tier cannot demote to itself");
    if (places[*target].kind < place.kind) {
      return fault(absl::StrCat(place.demote_to, " is ",
                                std::string(TierKindName(places[*target].kind)), ", faster than ",
                                std::string(TierKindName(place.kind)), "; name a slower tier"));
    }
  }
  const Targets targets = Given(places);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!targets[i].has_value() || !Reaches(targets, *targets[i], i)) continue;
    std::string way = places[i].name;
    for (std::size_t at = *targets[i]; at != i; at = *targets[at]) {
      absl::StrAppend(&way, " -> ", places[at].name);
    }
    return PathFault{i, absl::StrCat("the way down is a circle: ", way, " -> ", places[i].name)};
  }
  return std::nullopt;
}

TierOrder OrderTiers(const std::vector<TierPlace>& places, const Topology& topology) {
  HMM_CHECK(!places.empty());
  TierOrder result;
  std::vector<std::size_t> sorted(places.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    return SpeedOf(places[a], topology) < SpeedOf(places[b], topology);
  });
  result.ranks.assign(places.size(), 0);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const bool slower =
        SpeedOf(places[sorted[i - 1]], topology) < SpeedOf(places[sorted[i]], topology);
    result.ranks[sorted[i]] = result.ranks[sorted[i - 1]] + (slower ? 1 : 0);
  }
  result.demote_to = Given(places);
  // From the slowest up, so that what is derived finds the ways of those below.
  for (auto at = sorted.rbegin(); at != sorted.rend(); ++at) {
    if (result.demote_to[*at].has_value()) continue;
    result.demote_to[*at] = Derive(places, topology, result.ranks, result.demote_to, *at);
  }
  // The fastest that nobody who is still to come demotes to.
  std::vector<bool> placed(places.size(), false);
  while (result.order.size() < places.size()) {
    const auto next = std::find_if(sorted.begin(), sorted.end(), [&](std::size_t i) {
      if (placed[i]) return false;
      for (std::size_t j = 0; j < places.size(); ++j) {
        if (!placed[j] && result.demote_to[j] == i) return false;
      }
      return true;
    });
    HMM_CHECK(next != sorted.end());  // else a circle
    placed[*next] = true;
    result.order.push_back(*next);
  }
  return result;
}

}  // namespace hmm::tier
