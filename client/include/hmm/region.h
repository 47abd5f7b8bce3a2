// SPDX-License-Identifier: Apache-2.0
//
// Regions and jobs: for engines that own fixed frames (one tensor a layer, addressed by block id,
// captured in graphs) and cannot move to pointers that a daemon chooses.
//
// A Region is a contiguous range at a fixed address that reclaim never touches: leased from a tier,
// or a sealed memfd of your own. Jobs copy between tensors, by key, and fragments of regions:
//
//   Store  gathers fragments into new tensors: sealed at the end, visible only then
//   Load   scatters tensors into fragments, bringing them to memory first
//
// A job runs on after the call that started it. Each key has its own verdict. Fragments belong to
// the job until it has ended: do not write those of a Store, do not touch those of a Load.
//
// Threads: any method from any thread; one Region or Job object by one thread at a time. Statuses
// carry a reason and, where waiting helps, a delay, as everywhere (hmm/client.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hmm/client.h"

namespace hmm {

// Move-only; dropping it releases it.
class Region {
 public:
  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  bool valid() const { return id_ != 0; }
  // Leased: its first byte, for reading and writing, at this address until it is released.
  // Attached: nullptr, for the memory is yours.
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }  // bytes
  std::uint64_t id() const { return id_; }    // of the session
  std::string_view tier() const;              // leased: name of its tier
  // The daemon that held it is gone: jobs answer LOST; a lease's bytes stay as they are.
  bool lost() const;

  // Gives it back now; keys of jobs that use it and have not begun end CANCELLED. A lease must not
  // be touched any more. OK also when the daemon is gone. An attached file may be used and closed
  // as you like, but jobs under way may still touch it: drain first.
  absl::Status Release();

 private:
  friend class Regions;
  std::shared_ptr<client_internal::Attachment> attachment_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t id_ = 0;
  std::uint32_t segment_ = 0;
};

// A piece of a region. The region outlives the call that names it, and should outlive its job.
struct Fragment {
  const Region* region = nullptr;
  std::size_t offset = 0;  // bytes from the region's start
  std::size_t bytes = 0;   // > 0
};

struct StoreItem {
  std::string key{};                  // 1..256 bytes; ALREADY_EXISTS if a tensor has it
  std::vector<Fragment> fragments{};  // the tensor's bytes in order; a byte may be named twice
  Kind kind = Kind::kOther;
  std::uint32_t priority = 0;                   // 0..7, higher is kept longer
  std::chrono::microseconds recompute_cost{0};  // zero: unknown
  bool droppable = false;                       // as in AllocateOptions
};

struct LoadItem {
  std::string key{};
  std::vector<Fragment> fragments{};  // add up to the tensor's size; none of a job overlap
};

struct JobOptions {
  // From the start on; keys not done then end DEADLINE. Zero: ConnectOptions::default_timeout.
  Timeout timeout{0};
  std::string tier{};        // Store: of the new tensors; empty: the session's HBM
  bool allow_lower = false;  // Store: the next tier down when this one has no room
};

struct JobResult {
  bool ended = false;              // the fragments are yours again
  std::size_t keys = 0;            // of the job
  std::size_t keys_ended = 0;      // of them
  std::vector<absl::Status> done;  // by key once ended. Where a Load's is not OK its fragments hold
                                   // anything; where a Store's is not OK there is no tensor of it
};

// Move-only; dropping it stops nothing: the job runs on and its verdicts are forgotten.
class Job {
 public:
  Job() = default;
  Job(Job&& other) noexcept;
  Job& operator=(Job&& other) noexcept;
  ~Job();

  bool valid() const { return id_ != 0; }
  std::uint64_t id() const { return id_; }

 private:
  friend class Regions;
  std::shared_ptr<client_internal::Attachment> attachment_;
  std::uint64_t id_ = 0;
  std::unique_ptr<JobResult> result_;  // once it has ended
  std::size_t keys_ = 0;
};

struct DrainOptions {
  bool cancel = false;  // keys that have not begun end CANCELLED instead of being waited for
  Timeout timeout{0};
};

// The verbs. A light object; the Client outlives it.
class Regions {
 public:
  explicit Regions(Client& client) : client_(&client) {}

  // A range of where.tier (empty: the session's HBM), contents not zeroed; waits with where.wait.
  // It counts towards what the session may pin and the tenant may hold.
  absl::StatusOr<Region> Lease(std::size_t bytes, const PlaceOptions& where = {});
  // Makes a region of the first `bytes` of a memfd. It must be sealed with F_SEAL_SHRINK |
  // F_SEAL_GROW, not against writing, of normal pages, and open for reading and writing. The
  // descriptor stays yours and may be closed.
  absl::StatusOr<Region> Attach(int memfd, std::size_t bytes, Timeout timeout = Timeout{0});
  // After it returned OK nothing touches the region until the next job that names it; those that
  // come meanwhile are refused with DRAINING. DEADLINE: jobs use it still.
  absl::Status Drain(const Region& region, const DrainOptions& options = {});

  // Start a job of at most 4,096 keys, 16,384 fragments a key and 65,536 in all. What is wrong with
  // one key is its verdict. QUEUE_FULL, with a delay: 64 jobs whose verdicts were not taken (or
  // dropped), or too many fragments under way. DEADLINE of the call itself: the daemon hangs, and
  // may do the job yet; drain the regions before their fragments are used again.
  absl::StatusOr<Job> Store(absl::Span<const StoreItem> items, const JobOptions& options = {});
  absl::StatusOr<Job> Load(absl::Span<const LoadItem> items, const JobOptions& options = {});

  // How it stands now. ABORTED/LOST: the daemon is gone; it touches nothing any more.
  absl::StatusOr<JobResult> Poll(Job& job);
  // Once it has ended, or as it stands when the time is up. DEADLINE: a daemon that hangs does not
  // say.
  absl::StatusOr<JobResult> Wait(Job& job, Timeout timeout = Timeout{0});
  // Keys that have not begun end CANCELLED, copies under way stop; the job ends soon.
  absl::Status Cancel(const Job& job);

  // An eventfd (non-blocking) that turns readable when jobs of this Client have ended, before the
  // first call of it too, or their daemon is gone: read it, then Poll. The library's: do not close
  // it. Ask again after a restart of the daemon.
  absl::StatusOr<int> EventFd();

 private:
  template <typename Items, typename Request>
  absl::StatusOr<Job> Start(const Items& items, Request& request, const JobOptions& options);
  absl::StatusOr<JobResult> Ask(Job& job, bool wait,
                                std::chrono::steady_clock::time_point deadline);

  Client* client_;
};

}  // namespace hmm
