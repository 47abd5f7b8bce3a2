// SPDX-License-Identifier: Apache-2.0
//
// Load and Store jobs: lists of keys, each with the fragments of regions that its bytes go to or
// come from. A key goes its own way and has its own verdict:
//
//   Store  open -> waits for room -> gathered into a tensor nobody can name -> sealed, visible
//   Load   open -> waits until the tensor is in memory -> scattered into the fragments
//              \__ verdict known (bad, cancelled, deadline) -> ended, once no copier is at it
//
// A job ends when all its keys have; until then the copier may touch its fragments. Its status is
// kept until the client forgets it or the session goes.
//
// Who keeps what alive while a copier is at it: the regions count the key as a user, the tensor's
// copy counts a copier (an extent outlives its tensor). So a session, a region or a tensor may go
// at any time. One thread (the executor's).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "copy/fragment_copier.h"
#include "hmm/region_table.h"
#include "hmm/region_types.h"
#include "hmm/tensor.h"

namespace hmm::core {

class Core;

class JobTable {
 public:
  // `copier` nullptr: jobs are refused. It outlives the table or its completions die with the
  // executor.
  JobTable(Core& core, RegionTable& regions, copy::FragmentCopier* copier);
  ~JobTable();

  // Takes the job; keys that are bad by themselves have their verdict at once. Errors: of the job
  // as a whole. INVALID_ARGUMENT (id 0, no keys, more than a bound in one job), ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED/QUEUE_FULL with a retry delay past what may be under way, UNIMPLEMENTED.
  absl::Status Start(Session& session, JobArgs args, TierId tier);
  // NOT_FOUND: never started, or forgotten.
  absl::StatusOr<JobStatus> Status(SessionId session, JobId job) const;
  std::vector<JobStatus> All(SessionId session) const;
  bool Ended(SessionId session, JobId job) const;  // also true for unknown ones
  // Forgets a job, one that runs when it ends.
  void Forget(SessionId session, JobId job);

  // Keys that have not begun end with `why`; copies under way stop at their next piece.
  absl::Status Cancel(SessionId session, JobId job, const absl::Status& why);
  void CancelSession(SessionId session, const absl::Status& why);  // 0: all sessions
  // The keys that use a region, alone.
  void CancelRegion(const Region& region, const absl::Status& why);
  // The session is gone: nobody will ask any more.
  void ForgetSession(SessionId session);

  // Starts what can start, and ends what is past its deadline.
  void Look();
  // Whether any is not over: its keys hold tensors, and no event announces its deadline.
  bool waiting() const { return !alive_.empty(); }
  std::size_t fragments() const { return fragments_; }
  void OnEnded(std::function<void(SessionId)> ended) { ended_ = std::move(ended); }
  absl::Status Validate() const;

 private:
  struct Piece {
    Region* region = nullptr;
    Bytes offset = 0;
    Bytes bytes = 0;
  };
  struct Key {
    enum class Place : std::uint8_t { kOpen, kWaiting, kCopying, kEnded };
    TensorSpec spec;
    std::vector<Piece> pieces;
    std::vector<Region*> regions;   // used, each once
    absl::Status verdict;           // when `judged`
    std::uint64_t op = 0;           // call that waits for room or the tensor
    Handle handle;                  // Load: of the tensor
    TensorIndex tensor = kNoIndex;  // Store: being filled
    CopyIndex copy = kNoIndex;      // while a copier is at it
    Place place = Place::kOpen;
    bool judged = false;
    std::shared_ptr<std::atomic<bool>> stop;
  };
  struct Job {
    JobId id = 0;
    SessionId session = 0;
    TenantId tenant = 0;
    JobKind kind = JobKind::kLoad;
    TierId tier = 0;
    bool allow_lower = false;
    bool forgotten = false;  // nobody will ask when it has ended
    TimePoint deadline = TimePoint::max();
    std::vector<Key> keys;
    std::size_t next = 0;       // first that was never begun
    std::size_t under_way = 0;  // waiting or copying
    std::size_t ended = 0;
    std::size_t fragments = 0;
    bool over() const { return ended == keys.size(); }
  };
  using JobPtr = std::shared_ptr<Job>;
  using Id = std::pair<SessionId, JobId>;

  // --- accepting (job_table.cc) -----------------------------------------------------------------
  absl::Status CheckJob(const Session& session, const JobArgs& args, std::size_t fragments) const;
  absl::Status FillKey(Job& job, Key& key, JobKeySpec& spec);
  static void JudgeOverlaps(Job& job);

  // --- running (job_run.cc) ---------------------------------------------------------------------
  void Pump(const JobPtr& job);
  bool Begin(const JobPtr& job, std::size_t i);  // false: the core takes no more calls that wait
  absl::Status BeginLoad(const JobPtr& job, std::size_t i);
  absl::Status BeginStore(const JobPtr& job, std::size_t i);
  // False: the key ended.
  bool StopWaiting(const JobPtr& job, std::size_t i, const absl::Status& got);
  void OnBrought(const JobPtr& job, std::size_t i, const absl::Status& brought);
  void OnRoom(const JobPtr& job, std::size_t i, absl::StatusOr<Room> room);
  void CopyKey(const JobPtr& job, std::size_t i);
  void OnCopied(const JobPtr& job, std::size_t i, const copy::FragmentResult& result);
  void SealKey(Key& key);
  void DropTensor(Key& key);
  void CancelKey(const JobPtr& job, std::size_t i, const absl::Status& why);
  void CancelJob(const JobPtr& job, const absl::Status& why);
  static void Judge(Key& key, const absl::Status& verdict);  // the first one stands
  void EndKey(JobPtr job, std::size_t i);  // the table may have held the last other reference
  static JobStatus StatusOf(const Job& job);

  Core& core_;
  RegionTable& regions_;
  copy::FragmentCopier* copier_;
  std::map<Id, JobPtr> jobs_;
  std::vector<JobPtr> alive_;  // not over, those of dead sessions too; in order of arrival
  std::size_t fragments_ = 0;  // of jobs that are not over
  std::function<void(SessionId)> ended_;
};

}  // namespace hmm::core
