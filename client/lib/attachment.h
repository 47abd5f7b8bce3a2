// SPDX-License-Identifier: Apache-2.0
//
// One session with one daemon: the session socket, everything mapped through it, and the channel.
//
//   attached --(hang-up seen, UNKNOWN_SESSION, another epoch, Close)--> lost    never back: attach
//   anew
//
// It lives as long as a Client, a Tensor or a Pin refers to it. The first two count references;
// Pins are counted apart (pin_counts.h), for a reference count would cost as much as the pin
// itself. Once lost, the segments are unmapped when the last Pin goes, whatever Tensors there are.
//
// Any thread. Two threads of its own: a watcher that polls the socket for hang-up and, after that,
// for the last pin; and a releaser that sends the releases owed (call_window.h). In a fork child
// nothing here may be touched: Pins do nothing and the attachment is leaked.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "client/lib/call_window.h"
#include "client/lib/fork_guard.h"
#include "client/lib/memory_rpc.h"
#include "client/lib/pin_counts.h"
#include "client/lib/segment_map.h"
#include "hmm/client.h"
#include "share/layout.h"
#include "share/pin.h"

namespace hmm::client_internal {

struct AttachOptions {
  std::string dir;     // holds session.sock and hmm.sock
  std::string device;  // HBM tier to work on; empty: the first
};

class alignas(64) Attachment {
 public:
  // One try. UNAVAILABLE when another may help; else what the daemon or the system refused.
  static absl::StatusOr<std::shared_ptr<Attachment>> Attach(const AttachOptions& options,
                                                            TimePoint deadline);
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  bool forked() const { return guard_.Forked(); }
  bool lost() const { return lost_.load(std::memory_order_seq_cst); }
  // Tells it that the daemon no longer knows the session.
  void MarkLost();
  // The Client is done with it: sends the releases owed, as far as a moment allows. It hangs up
  // when the last pin is gone.
  void Close();
  // A call failed in the transport. Waits a moment for the socket's hang-up, which tells a dead
  // daemon from a broken connection; true when lost.
  bool ConfirmLost();

  std::uint64_t epoch() const { return epoch_; }
  SessionId session() const { return session_; }
  std::string_view TierName(std::uint32_t tier) const;  // empty: no such tier

  MemoryRpc& rpc();
  CallWindow& calls();
  // After End(id, false): sees to it that the releaser runs.
  void EndPinningCall(std::uint64_t call_id, bool ok);

  // --- pins -------------------------------------------------------------------------------------
  struct Place {
    SegmentId segment = 0;
    Bytes offset = 0;
    Bytes bytes = 0;
  };
  static Tensor MakeTensor(const std::shared_ptr<Attachment>& self, std::uint64_t handle,
                           Bytes bytes);
  std::optional<Pin> TryPin(std::uint64_t handle);
  // Makes a Pin of a pin that the daemon gave to this session. When the bytes cannot be reached the
  // pin is given back: ABORTED/LOST, or what pulling the segment answered.
  absl::StatusOr<Pin> Adopt(std::uint64_t handle, const Place& place, TimePoint deadline);
  // One more pin of the same tensor. REQUIRES: `pin` is of this attachment, and its tensor has few.
  Pin Another(const Pin& pin);
  // Takes back one pin of this session on the slot of `handle`.
  void GiveBack(std::uint64_t handle);
  // Of a Pin. The attachment may be gone when it returns.
  void Unpin(std::uint32_t slot);

  // --- fences (attachment_regions.cc) -----------------------------------------------------------
  absl::StatusOr<std::uint32_t> NewTimeline();
  std::uint64_t* TimelineAddress(std::uint32_t timeline);
  std::uint64_t TimelineValue(std::uint32_t timeline) const;
  void Signal(std::uint32_t timeline, std::uint64_t value);
  // The Pin's pin ends at the fence. On an error it is still the Pin's.
  absl::Status UnpinAt(std::uint32_t slot, std::uint32_t timeline, std::uint64_t value);
  // Ends the pins whose fences are reached.
  void SweepFences();

  // --- regions and jobs (attachment_regions.cc) -------------------------------------------------
  // A new id for a region or a job.
  std::uint64_t NewId();
  // The address of a leased range. It stays mapped, as for a Pin, until LetGo.
  absl::StatusOr<std::byte*> Hold(const Place& place, TimePoint deadline);
  void LetGo() { pins_.Add(-1); }
  absl::Status AttachRegion(std::uint64_t region, int fd, Bytes bytes, TimePoint deadline);
  // An eventfd that is written when a job ended. Ours, as long as the attachment lives.
  absl::StatusOr<int> JobEvents(TimePoint deadline);
  // Jobs that nobody asks about any more, for the next call to carry; put back if it failed.
  void Forget(std::uint64_t job);
  std::vector<std::uint64_t> TakeForgotten();
  // Regions that the daemon may hold for us and could not be told to release.
  void OweRegion(std::uint64_t region);
  std::vector<std::uint64_t> TakeOwedRegions();

 private:
  struct Resources;

  explicit Attachment(std::unique_ptr<Resources> resources);
  ~Attachment();
  // What shared_ptr does at the last reference: destroys it, or leaves that to the watcher and the
  // last pin.
  static void Retire(Attachment* attachment);
  absl::Status Map(std::uint32_t max_tensors);
  absl::Status Start();
  void Watch();
  void SendReleases();
  void Fill(Pin& pin, std::uint32_t slot, std::byte* data, const Place& place);
  // The address of a place, pulling its segment if it is not mapped yet.
  absl::StatusOr<std::byte*> Reach(const Place& place, TimePoint deadline);
  [[gnu::noinline, gnu::cold]] std::byte* PullAndResolve(const Place& place);  // of TryPin
  absl::StatusOr<const SegmentMap::Segment*> Pull(SegmentId segment, TimePoint deadline);

  // What TryPin reads, in one cache line; written before the attachment is shared, except lost_.
  ForkGuard guard_;
  std::atomic<bool> lost_{false};
  const share::TableSlot* table_ = nullptr;
  std::atomic<std::uint32_t>* words_ = nullptr;
  std::uint32_t max_tensors_ = 0;
  const SegmentMap* segments_ = nullptr;

  std::uint64_t epoch_ = 0;
  SessionId session_ = 0;
  std::unique_ptr<Resources> resources_;
  PinCounts pins_;
};

inline void Attachment::Fill(Pin& pin, std::uint32_t slot, std::byte* data, const Place& place) {
  pin.attachment_ = this;
  pin.data_ = data;
  pin.size_ = place.bytes;
  pin.slot_ = slot;
  // By the segment, not by the state word: the location stays put under a pin, while the word may
  // say MOVING for the moment that a move needs to find the pin and give up.
  pin.tier_ = TierOfSegment(place.segment);
  pin.found_tier_ = pin.tier_;
}

inline void Attachment::Unpin(std::uint32_t slot) {
  share::Unpin(words_[slot]);
  pins_.Add(-1);  // last: from here on the watcher may delete us
}

// Nanoseconds count here: no reference is counted, no Pin moved, a mapped segment is reached
// without a status, and what is rare lies elsewhere, or its needs would cost registers here. lost()
// is read after the pin was counted (pin_counts.h).
inline std::optional<Pin> Attachment::TryPin(std::uint64_t handle) {
  std::optional<Pin> out;
  const Handle tensor = Handle::Unpack(handle);
  if (forked() || tensor.slot >= max_tensors_) [[unlikely]]
    return out;
  const share::TableSlot& slot = table_[tensor.slot];
  std::atomic<std::uint32_t>& word = words_[tensor.slot];
  // The line is read right after a locked instruction, which nothing overtakes: ask for it now.
  __builtin_prefetch(&slot);
  pins_.Add(1);
  if (!share::TryPin(word, slot, tensor.generation)) [[unlikely]] {
    pins_.Add(-1);
    return out;
  }
  std::byte* data = nullptr;
  // Only now: before the pin the location may be another's.
  const Place place{slot.segment.load(std::memory_order_relaxed),
                    slot.offset.load(std::memory_order_relaxed),
                    slot.bytes.load(std::memory_order_relaxed)};
  if (!lost()) [[likely]] {
    const SegmentMap::Segment* segment = segments_->Find(place.segment);
    data = segment != nullptr ? SegmentMap::Resolve(*segment, place.offset, place.bytes)
                              : PullAndResolve(place);
  }
  if (data == nullptr) [[unlikely]] {
    Unpin(tensor.slot);
    return out;
  }
  Fill(out.emplace(), tensor.slot, data, place);
  return out;
}

}  // namespace hmm::client_internal
