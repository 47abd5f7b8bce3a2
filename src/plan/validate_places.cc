// SPDX-License-Identifier: Apache-2.0
//
// The part of validate that looks at addresses: in the order of the sequence, each place must find
// its range given up, by tasks that have ended before it begins, by whoever was there last.
#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "plan/validate_internal.h"

namespace hmm::plan::internal {
namespace {

// Ranges of addresses and who was there last.
class Occupants {
 public:
  // Calls fn(who) for each that was in the range, once a piece, and puts `now` there.
  template <typename Fn>
  void Replace(Bytes begin, Bytes end, std::uint32_t now, Fn fn) {
    Split(begin);
    Split(end);
    const auto first = ranges_.lower_bound(begin), last = ranges_.lower_bound(end);
    for (auto it = first; it != last; ++it) fn(it->second.second);
    ranges_.erase(first, last);
    ranges_[begin] = {end, now};
  }

 private:
  void Split(Bytes at) {
    auto it = ranges_.upper_bound(at);
    if (it == ranges_.begin()) return;
    --it;
    const auto [end, who] = it->second;
    if (it->first == at || end <= at) return;
    it->second.first = at;
    ranges_[at] = {end, who};
  }
  std::map<Bytes, std::pair<Bytes, std::uint32_t>> ranges_;  // begin -> end, holding
};

class Places {
 public:
  Places(const Graph& graph, const Plan& plan, const std::vector<Holding>& hbm,
         const Before& before, FaultList& faults)
      : graph_(graph), plan_(plan), hbm_(hbm), before_(before), faults_(faults) {}

  void Check() {
    if (!Match()) return;
    CheckFigures();
    CheckCycle();
    Occupants occupants;
    for (std::uint32_t i = 0; i < order_.size(); ++i) {
      const HbmPlace& place = *places_[i];
      occupants.Replace(place.offset, place.offset + place.bytes, i,
                        [&](std::uint32_t other) { CheckPair(other, i); });
    }
  }

 private:
  // One place a holding: order_[i] is placed by places_[i].
  bool Match() {
    // kNone + 1 is 0: what is there from the start comes first.
    for (const Holding& holding : hbm_) order_.push_back(&holding);
    for (const HbmPlace& place : plan_.places) places_.push_back(&place);
    std::sort(order_.begin(), order_.end(), [](const Holding* a, const Holding* b) {
      return std::tuple(a->begin + 1, a->storage) < std::tuple(b->begin + 1, b->storage);
    });
    std::sort(places_.begin(), places_.end(), [](const HbmPlace* a, const HbmPlace* b) {
      return std::tuple(a->begin + 1, a->storage) < std::tuple(b->begin + 1, b->storage);
    });
    if (order_.size() != places_.size()) {
      faults_.Add(Rule::kAddress, kNone, kNone,
                  absl::StrCat("there are ", places_.size(), " places for ", order_.size(),
                               " stays in HBM"));
      return false;
    }
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const Holding& h = *order_[i];
      const HbmPlace& p = *places_[i];
      const Bytes end = p.offset + p.bytes;
      if (h.begin == p.begin && h.storage == p.storage && h.bytes == p.bytes &&
          h.forever == p.kept && end > p.offset) {
        continue;
      }
      faults_.Add(Rule::kAddress, p.begin, p.storage, "a place of no stay, or of another size");
      return false;
    }
    return true;
  }

  void CheckFigures() {
    Bytes top = 0;
    for (const HbmPlace* place : places_) {
      top = std::max(top, place->offset + place->bytes);
      if (plan_.alignment_bytes == 0 || place->offset % plan_.alignment_bytes != 0) {
        return faults_.Add(Rule::kAddress, place->begin, place->storage, "an unaligned offset");
      }
    }
    if (top != plan_.high_water_bytes || plan_.lower_bound_bytes > top) {
      faults_.Add(Rule::kFigures, kNone, kNone,
                  absl::StrCat("places end at ", top, ", the plan says ", plan_.high_water_bytes,
                               " and at least ", plan_.lower_bound_bytes));
    }
  }

  // What the next step finds at its start lies where this one left it.
  void CheckCycle() {
    std::vector<const HbmPlace*> at_start(graph_.storages.size(), nullptr);
    for (const HbmPlace* place : places_) {
      if (place->storage == kNone || !graph_.storages[place->storage].persistent) continue;
      if (place->begin == kNone) at_start[place->storage] = place;
      const HbmPlace* first = at_start[place->storage];
      if (place->kept && first != nullptr && first->offset != place->offset) {
        faults_.Add(Rule::kAddress, place->begin, place->storage,
                    absl::StrCat(graph_.storages[place->storage].name,
                                 " ends the step at another offset than it began it"));
      }
    }
  }

  void CheckPair(std::uint32_t earlier, std::uint32_t later) {
    const Holding& a = *order_[earlier];
    const Holding& b = *order_[later];
    bool gone = !a.forever && b.begin != kNone;
    for (const TaskIndex task : a.until) gone = gone && before_(task, b.begin);
    if (gone) return;
    faults_.Add(Rule::kAddress, b.begin, b.storage,
                "may be put where other bytes have not gone yet");
  }

  const Graph& graph_;
  const Plan& plan_;
  const std::vector<Holding>& hbm_;
  const Before& before_;
  FaultList& faults_;
  std::vector<const Holding*> order_;
  std::vector<const HbmPlace*> places_;
};

}  // namespace

void CheckPlaces(const Graph& graph, const Plan& plan, const std::vector<Holding>& hbm,
                 const Before& before, FaultList& faults) {
  if (plan.places.empty()) {
    if (plan.high_water_bytes != 0 || plan.lower_bound_bytes != 0) {
      faults.Add(Rule::kFigures, kNone, kNone, "a high water, but no places");
    }
    return;
  }
  Places(graph, plan, hbm, before, faults).Check();
}

}  // namespace hmm::plan::internal
