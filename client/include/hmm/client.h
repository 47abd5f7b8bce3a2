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
class Tensor;

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
};

// Deadline of one call; zero means ConnectOptions::default_timeout.
using Timeout = std::chrono::milliseconds;

struct AllocateOptions {
  std::uint64_t bytes = 0;  // > 0
  Kind kind = Kind::kOther;
  std::string key{};                            // at most 256 bytes; empty: none
  std::uint32_t priority = 0;                   // 0..7, higher is kept longer
  std::chrono::microseconds recompute_cost{0};  // zero: unknown
  bool droppable = false;                       // may be dropped from the last tier
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

  // Gives the pin back now. FAILED_PRECONDITION/NOT_PINNED when it was given back before.
  absl::Status Release();

 private:
  friend class Client;
  friend class Tensor;
  friend class client_internal::Attachment;
  client_internal::Attachment* attachment_ = nullptr;  // lives until its last Pin goes
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t slot_ = 0;
  std::uint8_t tier_ = 0;
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

  // --- one tensor -------------------------------------------------------------------------------
  // Room, pinned for writing.
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

  // Finds keys in order and pins the leading run that is there; keys beyond it are misses.
  absl::StatusOr<std::vector<Held>> Lookup(absl::Span<const std::string> keys,
                                           const PlaceOptions& where = {});

  // One of Describe's answers, as a user needs it.
  struct Info {
    std::string state;  // creating | resident | moving | absent | doomed
    std::string tier;
    std::string key;
    std::uint64_t bytes = 0;
    bool sealed = false;
    std::uint32_t pins = 0;  // over all sessions
  };
  absl::StatusOr<Info> Describe(const Tensor& tensor);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hmm
