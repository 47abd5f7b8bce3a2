// SPDX-License-Identifier: Apache-2.0
//
// One room of a tier, in order with the other calls that wait for room: what a lease and a key of a
// Store job wait for.
//
// The executor's thread; the core owns it until it has answered.
#pragma once

#include "hmm/core.h"

namespace hmm::core {

struct RoomArgs {
  TenantId tenant = 0;
  TierId tier = 0;
  Bytes bytes = 0;
  bool allow_lower = false;  // the next mappable tier down will do
  bool wait = false;
  bool fixed = false;  // for a lease: counts towards the session's share, like pins
};

class RoomOp final : public Op {
 public:
  // `done` is called once, with the room, which is then its to give back (TensorStore::ReturnRoom)
  // or to fill; or with why there is none: the errors of Reclaimer::Take, QUOTA also past the
  // session's share of a lease, or why the call was ended. The deadline is a last try, not an error
  // of its own.
  RoomOp(Core& core, const CallContext& call, const RoomArgs& args, Callback<Room> done)
      : Op(core, call), args_(args), done_(std::move(done)) {}
  bool Step() override;
  void End(const absl::Status& why) override;

 private:
  absl::StatusOr<Room> TakeIn(TierId tier);

  const RoomArgs args_;
  Callback<Room> done_;
  bool last_chance_ = false;
};

}  // namespace hmm::core
