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
#include "share/memory_file.h"
#include "support/fake_copier.h"
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

struct SimClient {
  SessionId session = 0;
  int tenant = 0;
  bool closing = false;
  share::Mapping table;
  share::Mapping page;
  std::uint64_t next_call = 1;
  std::map<std::uint64_t, core::Manager::OpId> waiting;  // calls not answered, by call id
  std::vector<ModelPin> pins;
};

struct SimOptions {
  std::uint64_t seed = 1;
  std::size_t tenants = 2;
  std::size_t clients_max = 5;
  Bytes hbm = 16 * kKiB;
  Bytes ddr = 32 * kKiB;
  Bytes flash = 64 * kKiB;
  Bytes tensor_max = 3 * kKiB;
  double fault_rate = 0.02;  // of copies
  double corrupt_rate = 0.005;
};

class SimWorld {
 public:
  explicit SimWorld(SimOptions options);
  ~SimWorld();

  // One random step, then every invariant. Throws nothing; a broken rule ends in Fail().
  void Step();
  // Faults stop; every waiting call must end within a bounded number of steps.
  void Settle();
  // Everybody leaves, everything is freed: all tiers must be empty.
  void Empty();

  std::uint64_t steps() const { return steps_; }
  const core::TransitionCounts& transitions() const { return manager_->transitions(); }
  core::Counters counters() const { return manager_->GetStatus(std::nullopt).counters; }
  std::uint64_t verified() const { return verified_; }
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
  void Admin();
  void EndCopies(std::size_t n, bool faults);
  void AdvanceTime();

  // --- help -------------------------------------------------------------------------------------
  core::CallContext NextCall(SimClient& client);
  void Launched(SimClient& client, std::uint64_t call, core::Manager::OpId op);
  SimClient* ClientOf(SessionId session);
  std::size_t NewTensor(const SimClient& client, const core::TensorSpec& spec, Handle handle);
  std::optional<std::size_t> PickTensor(int tenant);
  std::optional<std::size_t> ByHandle(int tenant, Handle handle) const;
  std::byte* At(const ModelPin& pin) const;
  void Fill(const ModelPin& pin);
  void Verify(const ModelPin& pin);
  void AddPin(SimClient& client, std::size_t tensor, const core::Location& location, bool verify);
  void DropPin(SimClient& client, std::size_t i);
  // The tensor must be there, with its bytes, for whoever asks.
  bool Certain(const ModelTensor& tensor) const;
  void CheckEverything();
  TierId RandomTier() { return static_cast<TierId>(Pick(3)); }
  std::string TierName(bool may_be_empty);

  SimOptions options_;
  Rng rng_;
  ManualClock clock_;
  ManualExecutor executor_;
  FakeCopier copier_;
  std::unique_ptr<core::Manager> manager_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  std::vector<ModelTensor> tensors_;
  std::uint64_t steps_ = 0;
  std::uint64_t verified_ = 0;
  std::uint64_t next_key_ = 0;
  bool faulty_ = false;  // some copy failed or was corrupted: tensors may be lost
  bool quiet_ = false;   // no faults any more
  std::string action_;
};

}  // namespace hmm::testing
