// SPDX-License-Identifier: Apache-2.0
//
// libhmm_client: an inference process's view of the node's memory.
//
//   auto client = hmm::Client::Connect();                        // or ConnectOptions{.dir = ...}
//   auto block = (*client)->Allocate({.bytes = 1 << 20, .kind = Kind::kKvCache, .key = "b0"});
//   std::memcpy(block->pin.data(), bytes, block->pin.size());    // in place, no copy by anybody
//   (*client)->Seal(block->tensor, std::move(block->pin));       // immutable, visible under "b0"
//   ...
//   if (auto pin = block->tensor.TryPin()) Use(pin->data());     // nanoseconds, no RPC
//   else if (auto got = (*client)->Acquire(block->tensor); got.ok()) Use(got->data());  // waits
//
// Threads: every method of every class may be called from any thread at any time, except that one
// Pin object is used by one thread at a time (as a unique_ptr).
//
// Errors: absl::Status; the codes below, and ReasonOfStatus(status) for the UPPER_SNAKE reason.
//   INVALID_ARGUMENT     the request is wrong; mend it
//   NOT_FOUND            no such tensor or key (freed, evicted, another tenant's)
//   ALREADY_EXISTS       the key is taken
//   FAILED_PRECONDITION  PINNED, NOT_SEALED, SEALED, TOO_LARGE, NOT_PINNED, FORKED
//   RESOURCE_EXHAUSTED   FULL, PINNED, QUOTA, NO_MEMORY; RetryAfterOf(status): when to retry
//   UNAVAILABLE          no daemon, draining, queue full
//   DEADLINE_EXCEEDED    the deadline passed; nothing is held
//   ABORTED              LOST: the daemon that held the bytes is gone; recompute
//   DATA_LOSS            the medium gave back other bytes than were written; recompute
//
// Daemon restarts: a Client re-attaches by itself. Tensors and Pins of the daemon before answer
// LOST, never garbage; the bytes under a Pin that is still held stay readable until it is dropped.
//
// fork(): a child must not use a Client, Tensor or Pin of its parent: all calls answer FORKED and
// destructors do nothing. Connect answers FORKED there too, for gRPC does not survive a fork: fork
// before the first Connect, or exec.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hmm {

class Client;
class Pin;
class Regions;
class Tensor;
class Timeline;

namespace client_internal {
class Attachment;  // one session with one daemon: sockets, mappings, token
}

// What a tensor holds; shown to operators.
enum class Kind : std::uint8_t {
  kWeight = 1,
  kKvCache = 2,
  kActivation = 3,
  kOptimizerState = 4,
  kOther = 5,
};

// UPPER_SNAKE reason of a status ("FULL"), empty when it carries none. See docs/errors.md.
std::string ReasonOfStatus(const absl::Status& status);
// How long to wait before a retry can help; nullopt when waiting does not help.
std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status);

// Every member of an options struct has an initialiser, so that naming some of them warns of none.
struct ConnectOptions {
  // Runtime directory of the daemon, with its sockets. Empty: $HMM_DIR, else /run/hmm.
  std::string dir{};
  // HBM tier this process works on ("hbm1"). Empty: the daemon's first.
  std::string device{};
  // How long Connect and a re-attach try before they give up.
  std::chrono::milliseconds connect_timeout{5000};
  // Deadline of a call that names none.
  std::chrono::milliseconds default_timeout{10000};
  // Magazines: from the third Allocate of a size (and kind, ...) without a key on, the library has
  // the daemon allocate more of them ahead and takes the next ones from there, without an RPC. At
  // most so many of one size, and so many bytes of all. They count as reserved, go back when unused
  // for a second, and the daemon takes them back when others need the room. 0: off.
  std::uint32_t magazine_tensors = 64;
  std::uint64_t magazine_bytes = 16 << 20;
};

// Deadline of one call; zero means ConnectOptions::default_timeout.
using Timeout = std::chrono::milliseconds;

struct AllocateOptions {
  std::uint64_t bytes = 0;  // > 0
  Kind kind = Kind::kOther;
  std::string key{};                            // at most 256 bytes; empty: none
  std::uint32_t priority = 0;                   // 0..7, higher is kept longer
  std::chrono::microseconds recompute_cost{0};  // zero: unknown
  // May be dropped: from the last tier, from one that no tier below takes it from (offline, or full
  // of what cannot leave), and earlier where recompute_cost is below bringing it back.
  bool droppable = false;
};

struct PlaceOptions {
  std::string tier{};        // name; empty: Allocate the session's HBM, Acquire any mappable tier
  bool allow_lower = false;  // take the next tier down when there is no room
  bool wait = false;         // Allocate: wait for room until the deadline
  bool all = false;          // batch: all or nothing
  Timeout timeout{0};
};

// The right to touch a tensor's bytes; a pinned tensor does not move. Move-only; dropping it gives
// the pin back. Do not write through a pin of a sealed tensor.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;
  ~Pin();

  bool valid() const { return data_ != nullptr; }
  explicit operator bool() const { return valid(); }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }  // bytes, as allocated
  std::string_view tier() const;              // name of the tier the bytes are in
  std::string_view found_tier() const;        // where they were when asked for

  // Gives the pin back now. FAILED_PRECONDITION/NOT_PINNED when it was given back before.
  absl::Status Release();
  // Gives the pin back once `timeline` has reached `value`, and not before: for work that others
  // still do. OK: the pin is the fence's, this object is empty. On an error it stays with you:
  // NOT_PINNED, BAD_ARGUMENT (another Client's timeline), QUEUE_FULL (1,024 pins wait already).
  absl::Status ReleaseAt(const Timeline& timeline, std::uint64_t value);

 private:
  friend class Client;
  friend class Tensor;
  friend class client_internal::Attachment;
  client_internal::Attachment* attachment_ = nullptr;  // lives until its last Pin goes
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t slot_ = 0;
  std::uint8_t tier_ = 0;
  std::uint8_t found_tier_ = 0;
};

// A counter that only rises, at which pins end (Pin::ReleaseAt). It lies in memory that the daemon
// sees too, so that raising it needs no call. Copyable; of one Client, until its daemon restarts:
// pins that wait then end as their values are reached, for this process.
class Timeline {
 public:
  Timeline() = default;
  bool valid() const { return attachment_ != nullptr; }
  std::uint64_t value() const;
  // Raises it; lower values are ignored. What was done to the bytes before is done.
  void Signal(std::uint64_t value);
  // Where it lies, for whoever signals without this library (a host callback, a device): an atomic
  // 64-bit store with release order. Pins then end as soon as the daemon needs to know, or at the
  // next ReleaseAt or Signal.
  std::uint64_t* word() const;

 private:
  friend class Client;
  friend class Pin;
  std::shared_ptr<client_internal::Attachment> attachment_;
  std::uint32_t index_ = 0;
};

// A handle. Copyable, cheap; it keeps no bytes alive, neither in the daemon nor, once that is gone,
// in this process.
class Tensor {
 public:
  Tensor() = default;

  bool valid() const { return handle_ != 0; }
  std::uint64_t handle() const { return handle_; }
  std::size_t size() const { return size_; }  // bytes, as allocated
  // True once the daemon that held it is known to be gone, or the Client that answered it is.
  bool lost() const;

  // Pins without an RPC when the bytes are in a tier that is mapped. nullopt: moving, on flash, not
  // yet sealed and put down, freed, lost, or 32,767 pins of this process already: then Acquire.
  std::optional<Pin> TryPin() const;

 private:
  friend class Client;
  friend class client_internal::Attachment;
  std::shared_ptr<client_internal::Attachment> attachment_;
  std::uint64_t handle_ = 0;
  std::size_t size_ = 0;
};

// A tensor with the pin that its allocation or lookup gave.
struct Held {
  Tensor tensor;
  Pin pin;
  std::string found_tier;  // Lookup: where it was when asked for
};

class Client {
 public:
  // Attaches to the daemon. UNAVAILABLE/NO_DAEMON says where it looked and how to start one.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ConnectOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Boot epoch of the daemon now attached to; another value means a restart lies between.
  std::uint64_t epoch() const;
  std::uint32_t session() const;

  // A new timeline, at 0. At most 64 a session, which are never given back:
  // RESOURCE_EXHAUSTED/QUOTA.
  absl::StatusOr<Timeline> CreateTimeline();

  // --- one tensor -------------------------------------------------------------------------------
  // Room, pinned for writing. Without an RPC where a magazine serves it (ConnectOptions).
  absl::StatusOr<Held> Allocate(const AllocateOptions& what, const PlaceOptions& where = {});
  // Ends writing and gives `pin` back; from here on the tensor is immutable and visible under its
  // key (`key` sets one if Allocate did not).
  absl::Status Seal(const Tensor& tensor, Pin pin, std::string_view key = {});
  // Ends writing; pins stay as they are.
  absl::Status Seal(const Tensor& tensor, std::string_view key = {});
  // Brings it to where.tier and pins it.
  absl::StatusOr<Pin> Acquire(const Tensor& tensor, const PlaceOptions& where = {});
  // The handle dies at once; bytes still pinned return when the last pin goes.
  absl::Status Free(const Tensor& tensor);
  // A hint to bring it up; OK also when it was there. UNAVAILABLE/DROPPED: not taken.
  absl::Status Prefetch(const Tensor& tensor, const PlaceOptions& where = {});
  // Moves it to where.tier (required). FAILED_PRECONDITION/PINNED when pins hold it.
  absl::Status Swap(const Tensor& tensor, const PlaceOptions& where);

  // --- batches: one RPC each, one answer an element (with where.all: all or nothing) -------------
  absl::StatusOr<std::vector<absl::StatusOr<Held>>> AllocateBatch(
      absl::Span<const AllocateOptions> what, const PlaceOptions& where = {});
  struct SealItem {
    Tensor tensor;
    Pin pin;          // may be empty
    std::string key;  // may be empty
  };
  absl::StatusOr<std::vector<absl::Status>> SealBatch(std::vector<SealItem> items);
  absl::StatusOr<std::vector<absl::StatusOr<Pin>>> AcquireBatch(absl::Span<const Tensor> tensors,
                                                                const PlaceOptions& where = {});
  absl::StatusOr<std::vector<absl::Status>> FreeBatch(absl::Span<const Tensor> tensors);
  absl::StatusOr<std::vector<absl::Status>> PrefetchBatch(absl::Span<const Tensor> tensors,
                                                          const PlaceOptions& where = {});
  // Says that these keys are in use, as if the first had been used last; nothing moves. A cache
  // that drops what was used longest ago then loses the end of a prefix before its start: call it
  // with a request's keys in prefix order when the request is done. NOT_FOUND: no longer there.
  absl::StatusOr<std::vector<absl::Status>> Touch(absl::Span<const std::string> keys);
  absl::StatusOr<std::vector<absl::Status>> SwapBatch(absl::Span<const Tensor> tensors,
                                                      const PlaceOptions& where);

  // --- later: seals and frees that need no answer now -------------------------------------------
  // As Seal and Free, but sent by the library together with others: when 64 are queued, after about
  // a millisecond, or before the next RPC of this Client, whichever is first. Order is kept, so
  // that what you ask after you are done is asked of what you did. Where 1,024 are queued the call
  // waits for them to be sent. Until then the tensor is not visible under its key, or its handle
  // lives. `pin` is given back when the daemon has answered; write nothing any more. Errors are
  // kept for Flush.
  void SealLater(const Tensor& tensor, Pin pin, std::string_view key = {});
  void FreeLater(const Tensor& tensor);
  // A SealLater or FreeLater that failed, and why.
  struct LateError {
    std::uint64_t handle = 0;
    std::string key;  // as given to SealLater
    absl::Status status;
  };
  // Sends what is queued, waits for the answers, and returns what failed since the last Flush, in
  // order: empty when all went well. At most 1,024 are kept; then the last one (handle 0) says how
  // many more there were. FORKED, and nothing else, in a fork child.
  [[nodiscard]] std::vector<LateError> Flush();

  // Finds keys in order and pins the leading run that is there; keys beyond it are misses.
  // `miss_reason`, if given: why the run ended (NOT_FOUND, NOT_SEALED, FULL ...); empty: all found.
  absl::StatusOr<std::vector<Held>> Lookup(absl::Span<const std::string> keys,
                                           const PlaceOptions& where = {},
                                           std::string* miss_reason = nullptr);

  // One of Describe's answers, as a user needs it.
  struct Info {
    std::string state;  // creating | resident | moving | absent | doomed | reserved (a magazine's)
    std::string tier;
    std::string key;
    std::uint64_t bytes = 0;
    bool sealed = false;
    std::uint32_t pins = 0;  // over all sessions
  };
  absl::StatusOr<Info> Describe(const Tensor& tensor);

  // The daemon's tiers, fastest first. Names are the operator's: only the kind says what one is.
  struct Tier {
    std::string name;
    std::string kind;   // hbm | ddr | flash
    std::string state;  // online | draining | degraded | offline
  };
  absl::StatusOr<std::vector<Tier>> Tiers();

 private:
  friend class Regions;
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hmm
