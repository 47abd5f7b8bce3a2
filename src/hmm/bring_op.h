// SPDX-License-Identifier: Apache-2.0
//
// Acquire, Lookup, Swap and a Load's key: bring tensors to a tier, then pin them (the last two do
// not pin).
//
//   1 look at each: there already; on its way; must move (from where, along which path)
//   2 collect a room for every hop of every tensor that must move, fastest tier first
//   3 start the moves; from here on nothing is waited for but copies that run
//   4 pin what has arrived; answer when all has
//
// A tensor may change under a waiting call (freed, moved by another, demoted again): step 1 is
// taken anew at every look, and rooms that no longer fit are given back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hmm/core.h"

namespace hmm::core {

struct BringItem {
  Handle handle;
  TierId found = 0;
  Location location;
  absl::Status error;
  bool done = false;         // pinned (or there, for Swap)
  bool held = false;         // counted in the tensor's holds
  bool anywhere = false;     // any mappable tier will do (asked for, or fell back)
  unsigned attempts = 0;     // moves started for it
  std::size_t twin = 0;      // first element with the same handle; itself if it is the first
  std::vector<Room> rooms;   // by hop, as far as collected
  std::vector<TierId> path;  // what the rooms are for
  std::vector<TierId> past;  // hops that have no room for pins: the bytes go past them
  bool open() const { return !done && error.ok(); }
};

struct BringResult {
  std::vector<BringItem> items;
};

struct BringArgs {
  std::vector<Handle> handles;
  std::optional<TierId> target;  // nullopt: any mappable tier
  bool all = false;
  bool allow_lower = false;
  bool pin = true;   // false: Swap, Load
  bool run = false;  // Lookup: only the leading run counts
  MoveCause cause = MoveCause::kDemand;
  // An operator's call has no session: whose tensors they are. Nothing is pinned then.
  std::optional<TenantId> tenant;
};

class BringOp final : public Op {
 public:
  // `done`: OK with one item per handle; or why the call failed as a whole (all undone).
  BringOp(Core& core, const CallContext& call, BringArgs args, Callback<BringResult> done);
  bool Step() override;
  void End(const absl::Status& why) override;
  std::size_t elements() const override { return items_.size(); }
  MoveCause cause() const override { return args_.cause; }

 private:
  enum class Place { kThere, kOnItsWay, kMustMove, kPinnedElsewhere, kFailed };
  Place Look(BringItem& item);
  Place LookMoving(BringItem& item, TensorIndex index);
  void TakeBack(TensorIndex index);  // from a demotion under way
  bool Acceptable(const BringItem& item, TierId tier) const;
  bool FallBack(BringItem& item, TensorIndex index);
  TierId TargetOf(const BringItem& item) const;
  // kCollected: every open item has what it needs. kNotNeeded: none must move.
  enum class Rooms { kMissing, kCollected, kNotNeeded };
  Rooms CollectRooms();
  bool CollectOn(TierId tier);
  absl::Status TakeOn(TierId tier, BringItem& item, TensorIndex index);
  // Rooms are collected for the first of several elements that name one tensor.
  bool LeftToTwin(const BringItem& item) const {
    return &items_[item.twin] != &item && items_[item.twin].open();
  }
  void PlanPath(BringItem& item, TensorIndex index);
  void StartMoves();
  void PinArrived();
  bool FinishIfDone();
  void Unpin(BringItem& item);
  void DropDead();
  void CutRun();
  void Undo();
  void Settle(BringItem& item);  // rooms and hold given back
  TensorIndex Find(const BringItem& item) const;

  BringArgs args_;
  Callback<BringResult> done_;
  std::vector<BringItem> items_;
  TenantId tenant_ = 0;
  TierId device_ = 0;
  bool last_chance_ = false;
};

}  // namespace hmm::core
