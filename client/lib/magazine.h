// SPDX-License-Identifier: Apache-2.0
//
// Magazines: tensors that the daemon allocated ahead (AllocateRequest.ahead), by what they are
// alike in, so that most small allocations need no RPC.
//
//   Want -> [Allocate with ahead] -> Filled -> Take, Take, ... -> [Allocate with taken] -> Told
//                                         \-> idle, or taken back by the daemon -> Returned: freed
//
// One that is half empty is filled from behind (Low, by the upkeep), so that who takes from it
// steadily never waits for a call; only an empty one is filled by the allocation that finds it so.
//
// The daemon takes back, without notice, what is not pinned and not known to be taken. So a tensor
// that was taken is pinned twice: for its user, and by a *keeper* here until the daemon has been
// told, by `taken`, or by a Seal or Free of the tensor. Without the keeper a user who put down what
// he wrote, unsealed, could lose it. A keeper is a pin like any other: nobody can move the tensor
// meanwhile, so what is untold is told soon (kTellAfter).
//
// Everything here belongs to one attachment; that of a lost one is dropped.
//
// Any thread. Nothing here makes a call or waits for one, but for the segment that TryPin may pull.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"
#include "hmm/client.h"

namespace hmm::client_internal {

class Attachment;

struct MagazineOptions {
  std::size_t tensors_max = 64;             // of one magazine; 0: none at all
  Bytes bytes_max = 16 * kMiB;              // of all together
  std::size_t tensors_min = 8;              // what a magazine starts with
  std::size_t asks_min = 3;                 // so many allocations alike before one is filled
  std::size_t shapes_max = 16;              // magazines
  std::size_t untold_max = 256;             // then the next allocation is a call, which tells them
  Duration idle = std::chrono::seconds(1);  // unused for so long: given back
  Duration tell_after = std::chrono::milliseconds(50);
};

class Magazines {
 public:
  using AttachmentPtr = std::shared_ptr<Attachment>;

  // What tensors of one magazine are alike in: all but the key.
  struct Shape {
    Bytes bytes = 0;
    Kind kind = Kind::kOther;
    std::uint32_t priority = 0;
    std::int64_t recompute_us = 0;
    bool droppable = false;
    friend bool operator==(const Shape&, const Shape&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Shape& s) {
      return H::combine(std::move(hash), s.bytes, s.kind, s.priority, s.recompute_us, s.droppable);
    }
  };
  static Shape ShapeOf(const AllocateOptions& what);

  explicit Magazines(MagazineOptions options) : options_(options) {}

  bool on() const { return options_.tensors_max > 0; }

  // Counts an ask. A tensor of `current`, or nullopt: allocate by a call.
  std::optional<Held> Take(const Shape& shape, const AttachmentPtr& current, TimePoint now);
  // How many to allocate ahead in the call that Take could not save; 0: none. More than 0 must be
  // answered by Filled, once.
  std::size_t Want(const Shape& shape);
  // Those of this attachment that use has half emptied, and how many each wants: as Want.
  struct Wanted {
    Shape shape;
    std::size_t count;
  };
  std::vector<Wanted> Low(const AttachmentPtr& attachment);
  // `handles`: what came ahead of the call. `attachment` null: the call failed.
  void Filled(const Shape& shape, const AttachmentPtr& attachment,
              std::vector<std::uint64_t> handles, TimePoint now);

  // Taken out of magazines of this attachment, and the daemon does not know.
  std::vector<std::uint64_t> Untold(const AttachmentPtr& attachment) const;
  bool AnyUntold(std::span<const Tensor> tensors) const;
  // The daemon knows them for ordinary tensors: their keepers go.
  void Told(std::span<const std::uint64_t> handles);

  // To be freed, silently: idle ones, and those whose taking failed (should the daemon have met our
  // try while it took the tensor back, it counts it as taken). With the attachment they are of.
  std::vector<std::uint64_t> Returned(const AttachmentPtr& attachment, TimePoint now);
  // True once after something came that NextUpkeep speaks of.
  bool TakeUpkeepWanted() { return upkeep_wanted_.exchange(false, std::memory_order_relaxed); }
  // When Untold or Returned will have something to be done; max(): nothing is here.
  TimePoint NextUpkeep() const;
  bool TellDue(TimePoint now) const;

  // Of whatever attachment: all is forgotten, keepers go.
  void Clear();

 private:
  struct Magazine {
    std::size_t asks = 0;
    std::size_t want = 0;
    std::size_t asked = 0;   // of the daemon, not Filled yet; 0: not filling
    bool low = false;        // half emptied by use, and nobody has asked since
    bool scarce = false;     // less came than was asked for: no more from behind
    bool exhausted = false;  // emptied by use since it was filled
    TimePoint used{};
    std::vector<std::uint64_t> handles;
  };

  std::size_t WantLocked(const Shape& shape, Magazine& magazine);
  void ReturnLocked(const Shape& shape, Magazine& magazine);
  // What must not be destroyed under the lock: pins of a lost attachment, whose going may end it.
  struct Debris {
    AttachmentPtr attachment;
    std::vector<Pin> keepers;
  };
  Debris ClearLocked();

  const MagazineOptions options_;
  mutable std::mutex mutex_;
  AttachmentPtr home_;  // whose tensors these are; null: there are none
  absl::flat_hash_map<Shape, Magazine> magazines_;
  bool low_ = false;                                 // some magazine is
  Bytes bytes_ = 0;                                  // in magazines
  Bytes wanted_ = 0;                                 // asked for by Want, not Filled yet
  absl::flat_hash_map<std::uint64_t, Pin> keepers_;  // untold, by handle
  TimePoint untold_since_{};
  TimePoint returned_since_{};
  std::vector<std::uint64_t> returned_;
  std::atomic<bool> upkeep_wanted_{false};
};

}  // namespace hmm::client_internal
