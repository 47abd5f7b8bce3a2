// SPDX-License-Identifier: Apache-2.0
//
// A manager over three small fake tiers, in one thread: copies end when the test says so, time
// passes when it says so, clients pin through the real shared pages. Watermarks and quotas are out
// of the way unless a test sets them.
//
//   hbm0 8 KiB   ddr0 16 KiB   flash0 32 KiB      extents in units of 64 bytes
//
// New bytes stay out of the largest extent given out so far, at most an eighth of the tier: with
// tensors of 1 KiB, hbm0 takes seven of them.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hmm/manager.h"
#include "share/pin.h"
#include "support/catch.h"
#include "support/fake_copier.h"
#include "support/fake_fragment_copier.h"
#include "support/fake_tier.h"
#include "support/manual_clock.h"
#include "support/manual_executor.h"

namespace hmm::testing {

using std::chrono::milliseconds;

struct CoreOptions {
  Bytes hbm = 8 * kKiB;
  Bytes ddr = 16 * kKiB;
  Bytes flash = 32 * kKiB;
  double high = 1.0;
  double low = 0.9;
  Bytes reserve = 0;
  bool many = false;  // hbm0, hbm1 -> ddr0 -> remote -> flash0 instead
  core::ManagerOptions core;
  CoreOptions() {
    core.boot_epoch = 7;
    core.seed = 1;
    core.max_tensors = 512;
    core.session_pinned_max = 100.0;
  }
};

inline core::TensorSpec Spec(Bytes bytes, const std::string& key = "") {
  core::TensorSpec spec;
  spec.bytes = bytes;
  spec.key = key;
  return spec;
}

struct CoreClient {
  SessionId session = 0;
  share::Token token{};
  share::Mapping table;
  share::Mapping page;
  std::uint64_t next_call = 1;

  std::atomic<std::uint32_t>& Word(Handle handle) const {
    return share::PinWords(const_cast<std::byte*>(page.data()))[handle.slot];
  }
  const share::TableSlot& Slot(Handle handle) const {
    return share::TableSlots(static_cast<const void*>(table.data()))[handle.slot];
  }
  share::StateWord State(Handle handle) const {
    return share::StateWord::Unpack(Slot(handle).state.load());
  }
  bool TryPin(Handle handle) const {
    return share::TryPin(Word(handle), Slot(handle), handle.generation);
  }
  void Unpin(Handle handle) const { share::Unpin(Word(handle)); }
  std::uint32_t Pins(Handle handle) const { return share::PinsOf(Word(handle).load()); }
};

// What a call answered, once it has.
template <typename T>
struct Answer {
  core::Manager::OpId op = 0;
  std::uint64_t call = 0;
  std::optional<absl::StatusOr<T>> value;
  bool done() const { return value.has_value(); }
  const T& get() const {
    REQUIRE(done());
    INFO(value->status().ToString());
    REQUIRE(value->ok());
    return **value;
  }
  absl::Status status() const {
    REQUIRE(done());
    return value->status();
  }
};
template <typename T>
using AnswerPtr = std::shared_ptr<Answer<T>>;

class CoreFixture {
 public:
  static constexpr TierId kHbm = 0;
  static constexpr TierId kDdr = 1;
  static constexpr TierId kFlash = 2;

  explicit CoreFixture(CoreOptions options = {})
      : executor(clock), copier(executor), fragments(executor) {
    std::vector<std::unique_ptr<tier::Tier>> tiers;
    AddTier(tiers, options, "hbm0", TierKind::kHbm, options.hbm);
    if (options.many) AddTier(tiers, options, "hbm1", TierKind::kHbm, options.hbm);
    AddTier(tiers, options, "ddr0", TierKind::kDdr, options.ddr);
    if (options.many) {
      AddTier(tiers, options, "remote", TierKind::kDdr, options.ddr);
      options.core.demote_to = {TierId{2}, TierId{2}, TierId{3}, TierId{4}, std::nullopt};
    }
    AddTier(tiers, options, "flash0", TierKind::kFlash, options.flash);
    manager = std::make_unique<core::Manager>(options.core, std::move(tiers), copier, executor,
                                              clock, &fragments);
  }

  // --- sessions ---------------------------------------------------------------------------------
  CoreClient Open(const std::string& tenant = "a", const std::string& device = "") {
    core::SessionInfo info;
    info.tenant = tenant;
    info.device = device;
    auto grant = manager->OpenSession(info);
    REQUIRE(grant.ok());
    CoreClient client;
    client.session = grant->session;
    client.token = grant->token;
    auto table = share::Mapping::Map(grant->table.get(), share::TableBytes(grant->max_tensors),
                                     share::Mapping::Access::kReadOnly, false);
    auto page = share::Mapping::Map(grant->page.get(), share::PageBytes(grant->max_tensors),
                                    share::Mapping::Access::kReadWrite, false);
    REQUIRE(table.ok());
    REQUIRE(page.ok());
    client.table = *std::move(table);
    client.page = *std::move(page);
    return client;
  }

  // --- verbs ------------------------------------------------------------------------------------
  core::CallContext Call(CoreClient& client, milliseconds wait) {
    core::CallContext call;
    call.session = client.session;
    call.call_id = client.next_call++;
    call.deadline = clock.Now() + wait;
    return call;
  }

  AnswerPtr<core::AllocateResult> Allocate(CoreClient& client, core::AllocateArgs args,
                                           milliseconds wait = milliseconds(100)) {
    return Ask<core::AllocateResult>(client, wait, [&](const core::CallContext& call, auto done) {
      return manager->Allocate(call, std::move(args), std::move(done));
    });
  }
  // One tensor that may wait.
  AnswerPtr<core::AllocateResult> AllocateWaiting(CoreClient& client, Bytes bytes,
                                                  milliseconds wait = milliseconds(100)) {
    core::AllocateArgs args = One(bytes);
    args.wait = true;
    return Allocate(client, std::move(args), wait);
  }
  static core::AllocateArgs One(Bytes bytes, const std::string& tier = "") {
    core::AllocateArgs args;
    args.tensors.push_back(Spec(bytes));
    args.tier = tier;
    args.all = true;
    return args;
  }
  AnswerPtr<core::AcquireResult> Acquire(CoreClient& client, core::AcquireArgs args,
                                         milliseconds wait = milliseconds(100)) {
    return Ask<core::AcquireResult>(client, wait, [&](const core::CallContext& call, auto done) {
      return manager->Acquire(call, std::move(args), std::move(done));
    });
  }
  AnswerPtr<core::AcquireResult> Acquire(CoreClient& client, Handle handle,
                                         const std::string& tier = "",
                                         milliseconds wait = milliseconds(100)) {
    core::AcquireArgs args;
    args.handles = {handle};
    args.tier = tier;
    args.all = true;
    return Acquire(client, std::move(args), wait);
  }
  AnswerPtr<core::LookupResult> Lookup(CoreClient& client, core::LookupArgs args,
                                       milliseconds wait = milliseconds(100)) {
    return Ask<core::LookupResult>(client, wait, [&](const core::CallContext& call, auto done) {
      return manager->Lookup(call, std::move(args), std::move(done));
    });
  }
  AnswerPtr<core::LookupResult> Lookup(CoreClient& client, std::vector<std::string> keys) {
    core::LookupArgs args;
    args.keys = std::move(keys);
    return Lookup(client, std::move(args));
  }
  AnswerPtr<core::SwapResult> Swap(CoreClient& client, std::vector<Handle> handles,
                                   const std::string& tier, milliseconds wait = milliseconds(100)) {
    return Ask<core::SwapResult>(client, wait, [&](const core::CallContext& call, auto done) {
      return manager->Swap(call, {std::move(handles), tier}, std::move(done));
    });
  }
  AnswerPtr<core::EvictResult> Evict(const std::string& tier, Bytes used_max,
                                     milliseconds wait = milliseconds(1000)) {
    auto answer = std::make_shared<Answer<core::EvictResult>>();
    answer->op = manager->Evict(
        tier, used_max, clock.Now() + wait,
        [answer](absl::StatusOr<core::EvictResult> result) { answer->value = std::move(result); });
    return answer;
  }
  absl::Status Seal(const CoreClient& client, Handle handle, const std::string& key = "",
                    bool unpin = true) {
    const core::SealItem item{handle, key, unpin};
    auto results = manager->Seal(client.session, absl::MakeConstSpan(&item, 1));
    return results.ok() ? (*results)[0] : results.status();
  }
  absl::Status Prefetch(const CoreClient& client, Handle handle,
                        TimePoint deadline = TimePoint::max(), const std::string& tier = "") {
    core::PrefetchArgs args;
    args.handles = {handle};
    args.deadline = deadline;
    args.tier = tier;
    auto results = manager->Prefetch(client.session, args);
    return results.ok() ? (*results)[0] : results.status();
  }
  absl::StatusOr<core::FreeResult> Free(const CoreClient& client, Handle handle) {
    auto results = manager->Free(client.session, absl::MakeConstSpan(&handle, 1));
    if (!results.ok()) return results.status();
    return (*results)[0];
  }
  absl::StatusOr<core::TensorInfo> Describe(const CoreClient& client, Handle handle) {
    auto results = manager->Describe(client.session, absl::MakeConstSpan(&handle, 1), {});
    if (!results.ok()) return results.status();
    return (*results)[0];
  }

  // --- tensors ----------------------------------------------------------------------------------
  // Allocated at once in `tier` and pinned for writing.
  Handle Make(CoreClient& client, Bytes bytes, const std::string& tier = "hbm0",
              bool droppable = false, std::uint32_t priority = 0) {
    core::AllocateArgs args = One(bytes, tier);
    args.tensors[0].droppable = droppable;
    args.tensors[0].priority = priority;
    const auto answer = Allocate(client, std::move(args));
    return answer->get().tensors[0]->handle;
  }
  // The same, sealed (under `key` if there is one) and put down.
  Handle MakeSealed(CoreClient& client, Bytes bytes, const std::string& tier = "hbm0",
                    const std::string& key = "", bool droppable = false,
                    std::uint32_t priority = 0) {
    const Handle handle = Make(client, bytes, tier, droppable, priority);
    REQUIRE(Seal(client, handle, key).ok());
    return handle;
  }
  // Sealed and swapped down to flash.
  Handle MakeOnFlash(CoreClient& client, Bytes bytes, const std::string& key = "",
                     bool droppable = false) {
    const Handle handle = MakeSealed(client, bytes, "ddr0", key, droppable);
    const auto swap = Swap(client, {handle}, "flash0");
    Settle();
    REQUIRE(swap->get().tensors[0].ok());
    return handle;
  }
  // Every byte of the tensor, where the residency table says that it is.
  void Write(const CoreClient& client, Handle handle, std::uint8_t value) {
    std::memset(BytesOf(client, handle), value, client.Slot(handle).bytes.load());
  }
  bool Holds(const CoreClient& client, Handle handle, std::uint8_t value) {
    const std::byte* bytes = BytesOf(client, handle);
    const Bytes size = client.Slot(handle).bytes.load();
    for (Bytes i = 0; i < size; ++i) {
      if (bytes[i] != static_cast<std::byte>(value)) return false;
    }
    return true;
  }

  // --- the world --------------------------------------------------------------------------------
  // What is ready runs; it must come to rest.
  void Run() {
    REQUIRE(executor.RunReady(5000) < 5000);
    const absl::Status valid = manager->Validate();
    INFO(valid.ToString());
    REQUIRE(valid.ok());
  }
  void Pass(milliseconds by) {
    clock.Advance(by);
    Run();
  }
  // In steps, as an executor that is not starved sees it.
  void PassSlowly(milliseconds by) {
    for (; by.count() > 0; by -= milliseconds(1)) Pass(milliseconds(1));
  }
  // Copies end well until there are none.
  void Settle() {
    Run();
    while (copier.size() + fragments.size() > 0) {
      if (copier.size() > 0) copier.Complete(0);
      if (fragments.size() > 0) fragments.Complete(0);
      Run();
    }
  }
  void FailCopy(std::size_t i, absl::StatusCode code = absl::StatusCode::kInternal) {
    copier.Fail(i, Error(code, Reason::kIo, "injected"));
    Run();
  }

  FakeTier& tier(TierId id) { return *tiers_[id]; }
  Bytes Used(TierId id) { return tier(id).ledger().used(); }
  Bytes In(TierId id, tier::ByteState state) { return tier(id).ledger()[state]; }
  core::Counters Counted() { return manager->GetStatus(std::nullopt).counters; }

  ManualClock clock;
  ManualExecutor executor;
  FakeCopier copier;
  FakeFragmentCopier fragments;
  std::unique_ptr<core::Manager> manager;

 private:
  void AddTier(std::vector<std::unique_ptr<tier::Tier>>& tiers, const CoreOptions& options,
               const char* name, TierKind kind, Bytes capacity) {
    FakeTierOptions fake;
    fake.tier.name = name;
    fake.tier.kind = kind;
    fake.tier.emulated = kind == TierKind::kHbm;
    fake.tier.capacity = capacity;
    fake.tier.high = options.high;
    fake.tier.low = options.low;
    fake.tier.reserve = options.reserve;
    fake.id = static_cast<TierId>(tiers.size());
    fake.mappable = kind != TierKind::kFlash;
    auto tier = std::make_unique<FakeTier>(std::move(fake));
    tiers_.push_back(tier.get());
    tiers.push_back(std::move(tier));
  }

  std::byte* BytesOf(const CoreClient& client, Handle handle) {
    const share::TableSlot& slot = client.Slot(handle);
    const tier::Extent extent{slot.segment.load(), slot.offset.load(), slot.bytes.load()};
    return tier(client.State(handle).tier).BytesAt(extent);
  }

  template <typename T, typename Verb>
  AnswerPtr<T> Ask(CoreClient& client, milliseconds wait, Verb verb) {
    auto answer = std::make_shared<Answer<T>>();
    const core::CallContext call = Call(client, wait);
    answer->call = call.call_id;
    answer->op = verb(call, [answer](absl::StatusOr<T> result) {
      REQUIRE(!answer->done());
      answer->value = std::move(result);
    });
    return answer;
  }

  std::vector<FakeTier*> tiers_;
};

inline bool Is(const absl::Status& status, absl::StatusCode code, Reason reason) {
  UNSCOPED_INFO(status.ToString());
  return status.code() == code && ReasonOf(status) == reason;
}

}  // namespace hmm::testing
