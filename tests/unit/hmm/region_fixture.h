// SPDX-License-Identifier: Apache-2.0
//
// CoreFixture with regions and jobs.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "unit/hmm/core_fixture.h"

namespace hmm::testing {

struct RegionFixture : CoreFixture {
  using CoreFixture::CoreFixture;

  AnswerPtr<core::Location> Lease(const CoreClient& client, core::RegionId id, Bytes bytes,
                                  const std::string& tier = "hbm0", bool wait = false,
                                  milliseconds limit = milliseconds(100)) {
    auto answer = std::make_shared<Answer<core::Location>>();
    core::CallContext call;
    call.session = client.session;
    call.deadline = clock.Now() + limit;
    answer->op = manager->LeaseRegion(
        call, {.region = id, .bytes = bytes, .tier = tier, .wait = wait},
        [answer](absl::StatusOr<core::Location> at) { answer->value = std::move(at); });
    return answer;
  }
  // The bytes of a region that was leased.
  std::byte* BytesOf(const core::Location& at) {
    return tier(at.tier).BytesAt({at.segment, at.offset, at.bytes});
  }
  std::byte* LeaseNow(const CoreClient& client, core::RegionId id, Bytes bytes,
                      const std::string& tier = "ddr0") {
    return BytesOf(Lease(client, id, bytes, tier)->get());
  }

  using Fragments = std::vector<core::FragmentSpec>;
  static core::JobArgs Job(core::JobKind kind, core::JobId id,
                           std::vector<std::pair<std::string, Fragments>> keys) {
    core::JobArgs args;
    args.kind = kind;
    args.job = id;
    args.tier = kind == core::JobKind::kStore ? "ddr0" : "";
    for (auto& [key, cut] : keys) {
      core::JobKeySpec spec;
      spec.tensor.key = key;
      spec.fragments = std::move(cut);
      args.keys.push_back(std::move(spec));
    }
    return args;
  }
  absl::Status Store(const CoreClient& client, core::JobId id,
                     std::vector<std::pair<std::string, Fragments>> keys,
                     milliseconds limit = milliseconds(100)) {
    core::JobArgs args = Job(core::JobKind::kStore, id, std::move(keys));
    args.deadline = clock.Now() + limit;
    return manager->StartJob(client.session, std::move(args));
  }
  absl::Status Load(const CoreClient& client, core::JobId id,
                    std::vector<std::pair<std::string, Fragments>> keys,
                    milliseconds limit = milliseconds(100)) {
    core::JobArgs args = Job(core::JobKind::kLoad, id, std::move(keys));
    args.deadline = clock.Now() + limit;
    return manager->StartJob(client.session, std::move(args));
  }
  core::JobStatus StatusOf(const CoreClient& client, core::JobId id) {
    auto all = manager->PollJobs(client.session, absl::MakeConstSpan(&id, 1));
    REQUIRE(all.ok());
    REQUIRE((*all)[0].ok());
    return *(*all)[0];
  }
  bool Ended(const CoreClient& client, core::JobId id) { return StatusOf(client, id).ended; }
  absl::Status Verdict(const CoreClient& client, core::JobId id, std::size_t key = 0) {
    const core::JobStatus status = StatusOf(client, id);
    REQUIRE(status.ended);
    REQUIRE(key < status.done.size());
    return status.done[key];
  }
  // One key, run to its end.
  absl::Status StoreOne(const CoreClient& client, core::JobId id, const std::string& key,
                        Fragments cut) {
    const absl::Status started = Store(client, id, {{key, std::move(cut)}});
    if (!started.ok()) return started;
    Settle();
    return Verdict(client, id);
  }
  absl::Status LoadOne(const CoreClient& client, core::JobId id, const std::string& key,
                       Fragments cut) {
    const absl::Status started = Load(client, id, {{key, std::move(cut)}});
    if (!started.ok()) return started;
    Settle();
    return Verdict(client, id);
  }
  AnswerPtr<bool> Drain(const CoreClient& client, core::RegionId id, bool cancel = false,
                        milliseconds limit = milliseconds(100)) {
    auto answer = std::make_shared<Answer<bool>>();
    core::CallContext call;
    call.session = client.session;
    call.deadline = clock.Now() + limit;
    answer->op = manager->DrainRegion(call, {.region = id, .cancel = cancel},
                                      [answer](absl::StatusOr<bool> r) { answer->value = r; });
    return answer;
  }
  std::size_t Tensors() { return manager->GetStatus(std::nullopt).tensors; }
};

inline void FillNoise(std::byte* data, Bytes bytes, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  for (Bytes i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(rng());
}

}  // namespace hmm::testing
