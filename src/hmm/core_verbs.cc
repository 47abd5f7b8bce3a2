// SPDX-License-Identifier: Apache-2.0
//
// What the verbs do to one element of a batch.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hmm/core.h"
#include "share/pin.h"

namespace hmm::core {
namespace {

absl::Status Unknown() {
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               "no such tensor: never allocated here, freed, or evicted");
}

absl::Status Lost() {
  return Error(absl::StatusCode::kDataLoss, Reason::kChecksum,
               "the bytes on flash are not what was written, or cannot be read; recompute");
}

absl::Status Dropped(std::string_view why) {
  return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kDropped,
                         absl::StrCat("the hint was not taken: ", std::string(why))),
                   std::chrono::milliseconds(10));
}

}  // namespace

absl::Status Core::MappableByName(std::string_view name, std::optional<TierId>& tier) const {
  if (name.empty()) return absl::OkStatus();
  HMM_ASSIGN_OR_RETURN(tier, TierByName(name));
  if (Mappable(*tier)) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat("tier ", std::string(name), " is not one that clients map"));
}

absl::Status Core::SealOne(Session& session, const SealItem& item) {
  const TensorIndex index = store.Find(session.tenant, item.handle);
  if (index == kNoIndex) return Unknown();
  Tensor& tensor = store[index];
  TakeAhead(index);
  if (tensor.lost) return Lost();
  if (tensor.sealed) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kSealed,
                 "the tensor is sealed already");
  }
  if (item.key.size() > options.key_bytes_max) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
        absl::StrCat("the key has ", item.key.size(), " bytes, at most ", options.key_bytes_max));
  }
  std::atomic<std::uint32_t>& word = session.words[tensor.slot];
  if (item.unpin && share::PinsOf(word.load()) == 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotPinned,
                 "the session holds no pin of the tensor to give back; nothing was sealed");
  }
  if (!item.key.empty() && tensor.key_linked && tensor.key() != item.key) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "the key differs from the one given at Allocate");
  }
  if (!item.key.empty() && !tensor.key_linked && !store.LinkKey(index, item.key)) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kExists,
                 "the key is taken by another tensor of this tenant");
  }
  store.Seal(index);
  if (tensor.key_linked && tensor.owner != 0) {
    // From here on it belongs to the tenant and outlives the session.
    if (Session* owner = sessions.Find(tensor.owner)) owner->owned.erase(index);
    tensor.owner = 0;
  }
  if (item.unpin) sessions.UndoOne(session, {tensor.slot, tensor.generation});
  return absl::OkStatus();
}

void Core::TakeAhead(TensorIndex index) {
  if (!store[index].ahead) return;
  store.MakeOrdinary(index);
  ++counters.allocations;
}

void Core::MarkTaken(Session& session, absl::Span<const Handle> taken) {
  for (const Handle handle : taken) {
    const TensorIndex index = store.Find(session.tenant, handle);
    if (index == kNoIndex || !store[index].ahead || store[index].owner != session.id) continue;
    TakeAhead(index);
    // Its pin was silent; without this the next audit alone would see it.
    if (share::IsPinned(session.words[handle.slot])) {
      session.pinned[store.home_tier(index)] += store[index].bytes;
    }
  }
}

LookupResult Core::FindRun(const Session& session, const std::vector<std::string>& keys,
                           std::optional<TierId> target) const {
  LookupResult result;
  for (const std::string& key : keys) {
    const TensorIndex index = store.FindKey(session.tenant, key);
    if (index == kNoIndex || store[index].lost) {
      result.miss_reason = ReasonName(index == kNoIndex ? Reason::kNotFound : Reason::kLost);
      break;
    }
    if (!store[index].sealed) {
      result.miss_reason = ReasonName(Reason::kNotSealed);
      break;
    }
    Found found;
    found.handle = store[index].handle();
    found.found_tier = store.home_tier(index);
    const TierId to = target.value_or(Mappable(found.found_tier) ? found.found_tier
                                                                 : LowestMappable(session.device));
    found.estimated_us =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                       EstimateTime(found.found_tier, to, store[index].bytes))
                                       .count());
    result.run.push_back(found);
  }
  return result;
}

absl::Status Core::PrefetchOne(TensorIndex index, TierId target, TimePoint deadline) {
  if (index == kNoIndex) return Unknown();
  const Tensor& tensor = store[index];
  if (tensor.lost) return Lost();
  if (draining) return Dropped("the daemon is draining");
  if (deadline <= clock.Now()) return Dropped("its deadline has passed");
  if (tensor.state == TensorState::kMoving && !relocator.Cancellable(index)) {
    relocator.Raise(index, copy::Priority::kPrefetch);
    return absl::OkStatus();
  }
  if (tensor.state == TensorState::kMoving) {
    if (relocator.PriorityOf(index) < copy::Priority::kBackground) {
      return Dropped("the tensor gives way to what others wait for");
    }
    relocator.CancelDemotion(index);
  }
  const TierId home = store.home_tier(index);
  if (Mappable(home) && home <= target) return absl::OkStatus();  // there, or faster
  if (tensor.state == TensorState::kCreating) return Dropped("the tensor is being written");
  std::vector<Room> rooms;
  absl::Status refused;
  ++store[index].holds;  // or it could be the victim of its own room
  for (const TierId hop : reclaimer.Path(home, target)) {
    if (!rooms_[hop].ops.empty()) {
      refused = Dropped("other calls wait for room");
      break;
    }
    // A hint stays out of the reserve, which is for those who wait.
    auto room = reclaimer.Take(tensor.tenant, hop, tensor.bytes, Purpose::kAllocate);
    if (!room.ok()) {
      refused =
          Dropped(std::string_view(room.status().message().data(), room.status().message().size()));
      break;
    }
    rooms.push_back(*room);
  }
  --store[index].holds;
  if (!refused.ok()) {
    for (const Room& room : rooms) store.ReturnRoom(room);
    return refused;
  }
  const absl::Status started =
      relocator.Start(index, std::move(rooms), copy::Priority::kPrefetch, deadline);
  if (started.ok()) return started;
  return Dropped(ReasonOf(started) == Reason::kPinned ? "pins hold the tensor"
                                                      : "the queue is full");
}

}  // namespace hmm::core
