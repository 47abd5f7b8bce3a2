// SPDX-License-Identifier: Apache-2.0
//
// The whole core in one thread, driven by a seed: fake tiers, a copier whose copies end when the
// seed says so, a clock that moves when the seed says so, and clients that use the real pin
// protocol on the real shared pages. Beside it a simple model says what must be true.
//
// Every choice comes from one generator, so a seed replays a run exactly.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "hmm/manager.h"
#include "share/fence.h"
#include "share/memory_file.h"
#include "support/fake_copier.h"
#include "support/fake_fragment_copier.h"
#include "support/fake_tier.h"
#include "support/manual_clock.h"
#include "support/manual_executor.h"

namespace hmm::testing {

// What the model knows of one tensor. `certain` tensors must be found and must hold their bytes.
struct ModelTensor {
  Handle handle;
  int tenant = 0;
  Bytes bytes = 0;
  std::uint64_t pattern = 0;
  std::string key;
  SessionId owner = 0;  // 0: the tenant
  bool sealed = false;
  bool droppable = false;
  bool freed = false;
};

struct ModelPin {
  std::size_t tensor = 0;  // index into the model's tensors
  TierId tier = 0;
  SegmentId segment = 0;
  Bytes offset = 0;
};

// A tensor allocated ahead for a client's magazine; not in the model before it is taken.
struct ModelAhead {
  Handle handle;
  core::TensorSpec spec;
};

// A leased region.
struct ModelRegion {
  core::RegionId id = 0;
  core::Location at;
};

// A job of one key. Store: `tensor` is what it makes. Load: what it reads.
struct ModelJob {
  core::JobId id = 0;
  bool store = false;
  std::string key;
  Bytes bytes = 0;
  std::uint64_t pattern = 0;
  core::RegionId region = 0;
  Bytes offset = 0;
  std::optional<std::size_t> tensor;  // Load
};

// A pin that ends when its timeline reaches a value.
struct ModelFence {
  ModelPin pin;
  share::FenceTicket ticket;
  std::uint32_t timeline = 0;
  std::uint64_t value = 0;
};

// Fences by who ended them while the world ran.
struct FenceCounts {
  std::uint64_t by_client = 0;
  std::uint64_t by_daemon = 0;
};

struct SimClient {
  SessionId session = 0;
  int tenant = 0;
  bool closing = false;
  share::Mapping table;
  share::Mapping page;
  std::uint64_t next_call = 1;
  std::map<std::uint64_t, core::Manager::OpId> waiting;  // calls not answered, by call id
  std::vector<ModelPin> pins;
  std::vector<ModelFence> fences;
  std::vector<ModelAhead> ahead;
  // Second pins on what was taken, until the daemon knows (client/lib/magazine.h).
  std::vector<ModelPin> keepers;
  std::vector<ModelRegion> regions;
  std::vector<ModelJob> jobs;  // whose verdicts were not taken
};

struct SimOptions {
  std::uint64_t seed = 1;
  std::size_t tenants = 2;
  std::size_t clients_max = 5;
  Bytes hbm = 16 * kKiB;
  Bytes ddr = 32 * kKiB;
  Bytes flash = 64 * kKiB;
  Bytes tensor_max = 3 * kKiB;
  bool many = false;         // hbm0, hbm1 -> ddr0 -> ddr1 -> flash0
  double fault_rate = 0.02;  // of copies
  double corrupt_rate = 0.005;
  bool regions = false;  // leases, jobs and fences too
};

class SimWorld {
 public:
  explicit SimWorld(SimOptions options);
  ~SimWorld();

  // One random step, then every invariant. Throws nothing; a broken rule ends in Fail().
  void Step();
  // Faults stop; every waiting call must end within a bounded number of steps.
  void Settle();
  // Everybody leaves. What they left can be had again, byte for byte, by a session that comes; then
  // it is freed, and all tiers must be empty.
  void Empty();

  std::uint64_t steps() const { return steps_; }
  const core::TransitionCounts& transitions() const { return manager_->transitions(); }
  core::Counters counters() const { return manager_->GetStatus(std::nullopt).counters; }
  std::uint64_t resized() const { return resized_; }      // tiers that took another size
  std::uint64_t compacted() const { return compacted_; }  // tensors moved for it
  std::uint64_t verified() const { return verified_; }
  std::uint64_t taken() const { return taken_; }              // out of what was allocated ahead
  std::uint64_t round_trips() const { return round_trips_; }  // Loads whose bytes were right
  std::uint64_t had_again() const { return had_again_; }      // tensors, in Empty()
  // Verdicts of jobs: "Load OK", "Store DEADLINE".
  const std::map<std::string, std::uint64_t>& verdicts() const { return verdicts_; }
  const FenceCounts& fences() const { return fences_; }
  const std::string& last_action() const { return action_; }

  // Called with what broke; set by the test. Must not return.
  static void (*fail)(const SimWorld& world, const std::string& what);

 private:
  using Rng = std::mt19937_64;

  std::size_t Pick(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(rng_() % n); }
  bool Chance(double p) { return static_cast<double>(rng_() >> 11) * 0x1p-53 < p; }
  void Require(bool ok, const std::string& what) const {
    if (!ok) fail(*this, what);
  }
  void RequireStatus(const absl::Status& status, std::initializer_list<Reason> allowed,
                     const std::string& what) const;

  // --- actions ----------------------------------------------------------------------------------
  SimClient* Connect(int tenant);  // nullptr: draining
  void OpenClient();
  void CloseClient(SimClient& client);
  void ReapClient(std::size_t i);
  void Allocate(SimClient& client);
  void SealSome(SimClient& client);
  void TryPin(SimClient& client);
  void Unpin(SimClient& client);
  void Acquire(SimClient& client);
  void Lookup(SimClient& client);
  void Prefetch(SimClient& client);
  void Swap(SimClient& client);
  void FreeSome(SimClient& client);
  void ReleaseSome(SimClient& client);
  void CancelSome(SimClient& client);
  void Describe(SimClient& client);
  void TakeAhead(SimClient& client);
  void UseAhead(SimClient& client);
  void TellTaken(SimClient& client);
  // Regions and jobs (sim_regions.cc).
  void RegionStep(SimClient& client);
  void Lease(SimClient& client);
  void ReleaseRegion(SimClient& client);
  void DrainRegion(SimClient& client);
  void StoreJob(SimClient& client);
  void LoadJob(SimClient& client);
  void TakeVerdicts(SimClient& client);
  void Judge(SimClient& client, const ModelJob& job, const absl::Status& verdict);
  bool Busy(const SimClient& client, core::RegionId region) const;
  std::byte* BytesOf(const ModelRegion& region) const;
  std::optional<std::size_t> IdleRegion(SimClient& client);
  std::vector<core::FragmentSpec> Cut(core::RegionId region, Bytes offset, Bytes bytes);
  void EndFragments(std::size_t n);
  bool JobsOver();  // takes the verdicts there are
  // Fences (sim_fences.cc).
  void FenceStep(SimClient& client);
  void ArmFence(SimClient& client);
  void SignalTimeline(SimClient& client);
  void SweepFences(SimClient& client);
  static bool Reached(const SimClient& client, const ModelFence& fence);
  void CheckFences(SimClient& client);
  void EndFences();
  void Admin();
  void ResizeSome();
  void CompactSome();
  void SwapAll();
  void EndCopies(std::size_t n, bool faults);
  void MustBeHad(SimClient& client, Handle handle);
  void AdvanceTime();

  // --- help -------------------------------------------------------------------------------------
  core::CallContext NextCall(SimClient& client);
  void Launched(SimClient& client, std::uint64_t call, core::Manager::OpId op);
  // What waits, of clients and operators: noted before it begins, struck out by its answer, of
  // which there is one, at the look after its deadline at the latest.
  std::uint64_t Begin(TimePoint deadline);
  void Answered(std::uint64_t begun);
  void RequireInTime() const;
  SimClient* ClientOf(SessionId session);
  std::size_t NewTensor(const SimClient& client, const core::TensorSpec& spec, Handle handle);
  std::optional<std::size_t> PickTensor(int tenant);
  std::optional<std::size_t> ByHandle(int tenant, Handle handle) const;
  static std::byte PatternByte(std::uint64_t pattern, Bytes i);
  std::byte* At(const ModelPin& pin) const;
  void Fill(const ModelPin& pin);
  void Verify(const ModelPin& pin);
  void AddPin(SimClient& client, std::size_t tensor, const core::Location& location, bool verify);
  void DropPin(SimClient& client, std::size_t i);
  // What an Allocate carries for the magazines, and what becomes of its answer.
  void AskAhead(SimClient& client, core::AllocateArgs& args);
  void GotAhead(SimClient& client, const core::TensorSpec& spec,
                const std::vector<core::Allocated>& ahead);
  void MustBeGone(SessionId session, const std::vector<core::Allocated>& ahead);
  void DropKeeper(SimClient& client, Handle handle);
  void DropKeepers(SimClient& client, const std::vector<Handle>& told);
  // The tensor must be there, with its bytes, for whoever asks.
  bool Certain(const ModelTensor& tensor) const;
  void CheckPin(const SimClient& client, const ModelPin& pin);
  void CheckEverything();
  TierId RandomTier() { return static_cast<TierId>(Pick(manager_->tier_count())); }
  std::string TierName(bool may_be_empty);

  SimOptions options_;
  Rng rng_;
  ManualClock clock_;
  ManualExecutor executor_;
  FakeCopier copier_;
  FakeFragmentCopier fragments_;
  std::unique_ptr<core::Manager> manager_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  std::vector<ModelTensor> tensors_;
  struct Begun {
    std::string action;
    TimePoint deadline;
  };
  std::map<std::uint64_t, Begun> under_way_;
  std::uint64_t next_begun_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t verified_ = 0;
  std::vector<Bytes> first_sizes_;  // of the tiers, before any was resized
  std::uint64_t resized_ = 0;
  std::uint64_t compacted_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t next_key_ = 0;
  std::uint64_t next_id_ = 1;  // of regions and jobs
  std::uint64_t round_trips_ = 0;
  std::uint64_t had_again_ = 0;
  std::map<std::string, std::uint64_t> verdicts_;
  FenceCounts fences_;
  bool faulty_ = false;  // some copy failed or was corrupted: tensors may be lost
  bool quiet_ = false;   // no faults any more
  std::string action_;
};

}  // namespace hmm::testing
