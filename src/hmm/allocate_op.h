// SPDX-License-Identifier: Apache-2.0
//
// Allocate: collects rooms, in order, then creates all tensors at once and pins them for writing.
// Until then nothing is visible and no key is taken.
#pragma once

#include <optional>
#include <vector>

#include "hmm/core.h"

namespace hmm::core {

class AllocateOp final : public Op {
 public:
  AllocateOp(Core& core, const CallContext& call, AllocateArgs args, TierId tier,
             Callback<AllocateResult> done);
  // INVALID_ARGUMENT for what no tensor can be like.
  static absl::Status CheckSpec(const TensorSpec& spec, const ManagerOptions& options);
  bool Step() override;
  void End(const absl::Status& why) override;
  std::size_t elements() const override { return items_.size(); }

 private:
  struct Item {
    std::optional<Room> room;
    absl::Status error;
    bool open() const { return !room.has_value() && error.ok(); }
  };
  void CheckSpecs();
  bool Collect();  // true: nothing is open any more
  absl::Status TakeFor(std::size_t i, TierId tier);
  bool Finish();
  absl::StatusOr<Allocated> CreateOne(Session& session, CallRecord& record, std::size_t i,
                                      TimePoint now);
  // What the call asked for ahead, from room that is to spare, as far as the session's bounds go.
  void FillAhead(Session& session, CallRecord& record, AllocateResult& result);
  bool FailIfAll();
  bool FailAll(std::size_t i, const absl::Status& why);
  void ReturnRooms();
  // What a call that has to wait may not keep: only the first keeps its rooms, and of its own tier
  // alone, or two calls could hold what the other waits for.
  void ReturnRoomsToWait();

  AllocateArgs args_;
  TierId tier_;
  Callback<AllocateResult> done_;
  std::vector<Item> items_;
  std::vector<Bytes> collected_;  // in rooms of items_, by tier
  bool last_chance_ = false;      // no more waiting: refusals become answers
};

}  // namespace hmm::core
