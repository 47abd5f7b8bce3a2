// SPDX-License-Identifier: Apache-2.0
//
// Session pages as a hostile client writes them: pin words, fences, timelines, headers, anything,
// between verbs, moves, audits and deaths. Another tenant lives beside it. Whatever the pages say:
// the core stays whole, the other tenant's pins are its own and show their bytes, its tensors move
// unless it pins them itself and can be had when the hostile ones are dead, and then nothing is
// left.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fuzz/core_world.h"
#include "fuzz/require.h"
#include "fuzz/script.h"
#include "share/bell.h"
#include "share/pin.h"

namespace {

using namespace hmm;
using fuzz::CoreWorld;
using fuzz::Require;
using std::chrono::milliseconds;

constexpr std::size_t kStepsMax = 400;
constexpr std::size_t kHandlesMax = 64;

core::ManagerOptions Options() {
  core::ManagerOptions options = CoreWorld::SmallOptions();
  // So that the other tenant's tensors have room somewhere, whatever is hoarded.
  for (std::size_t tier = 0; tier < options.demote_to.size(); ++tier) {
    options.tenant_limits["hostile"].push_back({.ratio = 0.5});
  }
  return options;
}

struct Client {
  SessionId session = 0;
  share::Mapping page;
  std::uint64_t next_call = 1;
  share::UniqueFd bell;
};

struct Kept {  // of the honest tenant
  Handle handle;
  Bytes bytes = 0;
  std::uint8_t pattern = 0;
  std::size_t taken = 0;  // so many times
};
struct Held {
  std::size_t kept = 0;
  core::Location at;
};

class PageWorld {
 public:
  explicit PageWorld(fuzz::Script script) : world_(Options()), script_(script) {
    honest_ = Open("honest");
    hostile_.push_back(Open("hostile"));
    for (std::uint8_t i = 0; i < 4; ++i) Keep(Bytes{200} + 300 * i, i);
  }

  void Play() {
    for (std::size_t step = 0; step < kStepsMax && !script_.done(); ++step) {
      Step();
      world_.Validate();
      for (const Held& held : held_) CheckBytes(held);
      CheckPins();
    }
    End();
  }

 private:
  core::Manager& manager() { return world_.manager(); }

  Client Open(const char* tenant) {
    Client client;
    auto grant = world_.Open(tenant);
    if (!grant.ok()) return client;  // draining, or all are taken
    client.session = grant->session;
    auto page = share::Mapping::Map(grant->page.get(), share::PageBytes(grant->max_tensors),
                                    share::Mapping::Access::kReadWrite, false);
    fuzz::RequireOk(page.status(), "the page can be mapped");
    client.page = *std::move(page);
    return client;
  }

  void Step() {
    switch (script_.Pick(12)) {
      case 0:
      case 1:
      case 2:
        return Scribble(hostile_[script_.Pick(hostile_.size())]);
      case 3:
      case 4:
        return Verb(hostile_[script_.Pick(hostile_.size())]);
      case 5:
        return Regions(hostile_[script_.Pick(hostile_.size())]);
      case 6:
        return Honest();
      case 7:
        return world_.EndCopies(1 + script_.Pick(4));
      case 8:
        return world_.Run();
      case 9:
        return world_.Run(milliseconds(script_.Pick(4) == 0 ? 1001 : script_.Pick(24)));
      case 10:
        return Admin();
      default:
        return DieOrCome();
    }
  }

  // --- the page ---------------------------------------------------------------------------------
  std::uint32_t Slot() {
    const std::uint8_t at = script_.Byte();
    if (at < 168) return at % 24;  // those in use
    return at < 208 ? at % CoreWorld::kSlots : script_.Number<std::uint32_t>();
  }
  std::uint32_t Word() {
    static constexpr std::array<std::uint32_t, 8> kWords = {
        0,          share::kPinOne, share::kPinMax, share::kPinMask,
        0xffffffff, 0xffff0000,     0x80000000,     0x7fff};
    const std::uint8_t which = script_.Byte();
    return which < 192 ? kWords[which % kWords.size()] : script_.Number<std::uint32_t>();
  }
  std::uint64_t Value() {
    const std::uint8_t small = script_.Byte();
    return small < 192 ? small % 6 : script_.Number<std::uint64_t>();
  }

  void Scribble(Client& client) {
    if (client.session == 0) return;
    share::FenceArea& fences = share::Fences(client.page.data());
    std::atomic<std::uint32_t>* const words = share::PinWords(client.page.data());
    switch (script_.Pick(8)) {
      case 0:
      case 1:
        words[Slot() % CoreWorld::kSlots] = Word();
        return;
      case 2: {  // as a client does, of slots that are not its own too
        std::atomic<std::uint32_t>& word = words[Slot() % CoreWorld::kSlots];
        if (script_.Chance(128)) {
          share::PinFor(word);
        } else {
          share::Unpin(word);
        }
        return;
      }
      case 3: {
        const std::uint8_t at = script_.Byte();
        share::FenceEntry& entry = fences.entries[at < 250 ? at % 4 : share::kFences - 1];
        entry.slot = Slot();
        entry.timeline = static_cast<std::uint32_t>(Value());
        entry.value = Value();
        entry.state = Value();
        // Mostly such as a sweep takes.
        if (script_.Chance(160)) entry.state = share::WithState(Value(), share::FenceState::kArmed);
        fences.used = Word();
        return;
      }
      case 4:
        fences.timelines[script_.Pick(share::kTimelines)].value = Value();
        return;
      case 5:
        (void)share::ArmFence(fences, Slot(), static_cast<std::uint32_t>(script_.Pick(4)), Value());
        return;
      default: {
        const std::string_view bytes = script_.Bytes(1 + script_.Pick(16));
        const std::size_t at = script_.Number<std::uint32_t>() % client.page.size();
        std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()),
                    std::min(bytes.size(), client.page.size() - at), client.page.data() + at);
        return;
      }
    }
  }

  // --- hostile calls ----------------------------------------------------------------------------
  core::CallContext Call(Client& client) {
    core::CallContext call;
    call.session = client.session;
    call.call_id = client.next_call++;
    if (script_.Chance(64)) call.oldest_live_call_id = call.call_id;
    call.deadline = world_.clock().Now() + milliseconds(script_.Pick(32));
    return call;
  }
  Handle AnyHandle() {
    const std::uint8_t at = script_.Byte();
    if (!handles_.empty() && at < 224) return handles_[at % handles_.size()];
    return {Slot(), 1u + static_cast<std::uint32_t>(script_.Pick(4))};
  }
  std::vector<Handle> Handles() {
    std::vector<Handle> handles;
    for (std::size_t n = 1 + script_.Pick(3); n > 0; --n) handles.push_back(AnyHandle());
    return handles;
  }
  std::string Key() { return absl::StrCat("k", script_.Pick(16)); }
  std::string Tier() {
    static constexpr std::array<const char*, 6> kNames = {"",     "hbm0",   "hbm1",
                                                          "ddr0", "flash0", "x"};
    return kNames[script_.Pick(kNames.size())];
  }
  void Learn(Handle handle) {
    if (handles_.size() < kHandlesMax) handles_.push_back(handle);
  }

  void Verb(Client& client) {
    switch (script_.Pick(9)) {
      case 0:
      case 1:
        return Allocate(client);
      case 2: {
        core::SealItem item{.handle = AnyHandle(), .key = {}, .unpin = script_.Chance(200)};
        if (script_.Chance(100)) item.key = Key();
        (void)manager().Seal(client.session, absl::MakeConstSpan(&item, 1));
        return;
      }
      case 3: {
        core::AcquireArgs args;
        args.handles = Handles();
        args.all = script_.Chance(64);
        args.tier = Tier();
        args.allow_lower = script_.Chance(128);
        manager().Acquire(Call(client), std::move(args), [](auto) {});
        return;
      }
      case 4: {
        core::LookupArgs args;
        for (std::size_t n = 1 + script_.Pick(3); n > 0; --n) args.keys.push_back(Key());
        args.tier = Tier();
        args.allow_lower = script_.Chance(128);
        args.no_pin = script_.Chance(64);
        manager().Lookup(Call(client), std::move(args), [](auto) {});
        return;
      }
      case 5:
        manager().Swap(Call(client), {.handles = Handles(), .tier = Tier()}, [](auto) {});
        return;
      case 6:
        (void)manager().Free(client.session, Handles());
        return;
      case 7:
        (void)manager().Release(client.session,
                                script_.Pick(2) == 0 ? client.next_call - 1 : Value(), 0);
        return;
      default: {
        core::PrefetchArgs args;
        args.handles = Handles();
        args.tier = Tier();
        args.in_place = script_.Chance(64);
        (void)manager().Prefetch(client.session, args);
        (void)manager().Describe(client.session, args.handles, {});
        return;
      }
    }
  }

  void Allocate(Client& client) {
    core::AllocateArgs args;
    for (std::size_t n = 1 + script_.Pick(3); n > 0; --n) {
      core::TensorSpec spec;
      spec.bytes = 1 + Bytes{script_.Byte()} * 12;
      if (script_.Chance(160)) spec.key = Key();
      spec.droppable = script_.Chance(128);
      args.tensors.push_back(spec);
    }
    args.all = script_.Chance(64);
    args.wait = script_.Chance(128);
    args.allow_lower = script_.Chance(128);
    args.tier = Tier();
    args.ahead = script_.Pick(4);
    if (script_.Chance(64)) args.taken = Handles();
    manager().Allocate(Call(client), std::move(args),
                       [this](const absl::StatusOr<core::AllocateResult>& result) {
                         if (!result.ok()) return;
                         for (const auto& one : result->tensors) {
                           if (one.ok()) Learn(one->handle);
                         }
                         for (const core::Allocated& one : result->ahead) Learn(one.handle);
                       });
  }

  void Regions(Client& client) {
    const core::RegionId region = 1 + script_.Pick(4);
    const core::JobId job = 1 + script_.Pick(6);
    switch (script_.Pick(6)) {
      case 0:
        manager().LeaseRegion(Call(client),
                              {.region = region,
                               .bytes = 1 + Bytes{script_.Byte()} * 16,
                               .tier = Tier(),
                               .wait = script_.Chance(64)},
                              [](auto) {});
        return;
      case 1:
        (void)manager().ReleaseRegion(client.session, region);
        return;
      case 2:
        manager().DrainRegion(Call(client), {.region = region, .cancel = script_.Chance(128)},
                              [](auto) {});
        return;
      case 3: {
        auto bell = manager().OpenJobEvents(client.session);
        if (bell.ok()) client.bell = *std::move(bell);
        if (script_.Chance(64)) client.bell.Reset();
        (void)manager().ForgetJobs(client.session, {job});
        (void)manager().CancelJobs(client.session, {job + 1});
        return;
      }
      default: {
        core::JobArgs args;
        args.kind = script_.Chance(128) ? core::JobKind::kStore : core::JobKind::kLoad;
        args.job = job;
        args.deadline = world_.clock().Now() + milliseconds(script_.Pick(32));
        args.tier = Tier();
        for (std::size_t n = 1 + script_.Pick(2); n > 0; --n) {
          core::JobKeySpec key;
          key.tensor.key = Key();
          for (std::size_t f = 1 + script_.Pick(3); f > 0; --f) {
            key.fragments.push_back({region, Value() * 64, 1 + Bytes{script_.Byte()}});
            key.tensor.bytes += key.fragments.back().bytes;
          }
          args.keys.push_back(std::move(key));
        }
        (void)manager().StartJob(client.session, std::move(args));
        return;
      }
    }
  }

  void Admin() {
    switch (script_.Pick(5)) {
      case 0:
        manager().Evict("hbm0", Bytes{script_.Byte()} * 32, world_.clock().Now() + milliseconds(20),
                        [](auto) {});
        return;
      case 1:
        manager().Compact("", world_.clock().Now() + milliseconds(20), [](auto) {});
        return;
      case 2:
        (void)manager().ListSessions(std::nullopt);
        (void)manager().GetStatus(std::nullopt);
        (void)manager().ListTensors(std::nullopt, {.pinned = true}, 0, 100);
        return;
      case 3:
        (void)manager().Explain(std::nullopt, "hostile", AnyHandle(), "", 8);
        return;
      default: {
        core::TensorSelector all;
        all.tenant = "hostile";
        manager().SwapMany(all, Tier(), world_.clock().Now() + milliseconds(20), [](auto) {});
        return;
      }
    }
  }

  void DieOrCome() {
    const std::size_t at = script_.Pick(hostile_.size());
    switch (script_.Pick(4)) {
      case 0:
        manager().CloseSession(hostile_[at].session);
        return;
      case 1:
        manager().ReapSession(hostile_[at].session);
        hostile_[at] = Open("hostile");
        return;
      default:
        if (hostile_.size() < 3) hostile_.push_back(Open("hostile"));
        return;
    }
  }

  // --- the honest tenant ------------------------------------------------------------------------
  void Honest() {
    const std::uint8_t n = script_.Byte();
    if (n % 4 == 0 && held_.size() < 2) {
      // By ddr0 too: hbm0 may be full of what is pinned.
      const std::size_t i = n / 4 % kept_.size();
      Take(i, world_.clock().Now() + milliseconds(10), nullptr);
    } else if (n % 4 == 1 && !held_.empty()) {
      Drop();
    } else if (n % 4 == 2) {
      const core::CallContext call{.session = honest_.session,
                                   .deadline = world_.clock().Now() + milliseconds(20)};
      const std::size_t i = n / 4 % kept_.size();
      const std::size_t taken = kept_[i].taken;
      const bool free = PinsOn(i) == 0;
      manager().Swap(call, {.handles = {kept_[i].handle}, .tier = Tier()},
                     [this, i, taken, free](const absl::StatusOr<core::SwapResult>& result) {
                       if (!result.ok() || !free || kept_[i].taken != taken) return;
                       Require(
                           ReasonOf(result->tensors[0].status()) != Reason::kPinned,
                           absl::StrCat("honest tensor ", i, " is pinned by nobody of its own"));
                     });
    }
  }

  // `answer`: set when the answer is there; else it may come after this returns.
  void Take(std::size_t i, TimePoint deadline, std::optional<absl::Status>* answer) {
    core::AcquireArgs args;
    args.handles = {kept_[i].handle};
    args.allow_lower = true;
    const core::CallContext call{
        .session = honest_.session, .call_id = honest_.next_call++, .deadline = deadline};
    manager().Acquire(call, std::move(args),
                      [this, i, answer](const absl::StatusOr<core::AcquireResult>& result) {
                        absl::Status status = result.status();
                        if (status.ok()) status = result->tensors[0].status();
                        if (status.ok()) {
                          ++kept_[i].taken;
                          held_.push_back({i, result->tensors[0]->location});
                          CheckBytes(held_.back());
                        } else if (ReasonOf(status) == Reason::kLost || absl::IsDataLoss(status) ||
                                   absl::IsNotFound(status)) {
                          fuzz::RequireOk(status, "an honest tensor is not lost");
                        }
                        if (answer != nullptr) *answer = status;
                      });
  }
  void Drop() {
    share::Unpin(share::PinWords(honest_.page.data())[kept_[held_.back().kept].handle.slot]);
    held_.pop_back();
  }

  std::byte* At(const core::Location& at, Bytes bytes) {
    const tier::Tier& tier = manager().tier(at.tier);
    return tier.Address({at.segment, at.offset, tier.LengthFor(bytes)});
  }
  std::size_t PinsOn(std::size_t i) const {
    return static_cast<std::size_t>(std::count_if(
        held_.begin(), held_.end(), [i](const Held& held) { return held.kept == i; }));
  }
  // As the core tells its owner.
  void CheckPins() {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const auto told =
          manager().Describe(honest_.session, absl::MakeConstSpan(&kept_[i].handle, 1), {});
      fuzz::RequireOk(told.status(), "Describe");
      fuzz::RequireOk((*told)[0].status(), "an honest tensor is known");
      std::size_t pins = 0;
      for (const auto& [session, count] : (*told)[0]->pins) pins += count;
      Require(pins == PinsOn(i), absl::StrCat("honest tensor ", i, " has the pins it was given"));
    }
  }
  void CheckBytes(const Held& held) {
    const Kept& kept = kept_[held.kept];
    const std::byte* const bytes = At(held.at, kept.bytes);
    const bool same = std::all_of(bytes, bytes + kept.bytes,
                                  [&](std::byte b) { return b == std::byte{kept.pattern}; });
    Require(same, absl::StrCat("honest tensor ", held.kept, " shows its bytes"));
  }

  void Keep(Bytes bytes, std::uint8_t i) {
    core::AllocateArgs args;
    args.tensors.push_back({.bytes = bytes, .key = absl::StrCat("honest", i)});
    const core::CallContext call{.session = honest_.session, .call_id = honest_.next_call++};
    bool done = false;
    manager().Allocate(call, std::move(args),
                       [&](const absl::StatusOr<core::AllocateResult>& result) {
                         fuzz::RequireOk(result.status(), "an honest Allocate at the start");
                         fuzz::RequireOk(result->tensors[0].status(), "its element");
                         const core::Allocated& got = *result->tensors[0];
                         kept_.push_back({got.handle, bytes, static_cast<std::uint8_t>(0xa0 + i)});
                         std::fill_n(At(got.location, bytes), bytes, std::byte{kept_[i].pattern});
                         done = true;
                       });
    Require(done, "an empty hbm0 gives room at once");
    const core::SealItem item{.handle = kept_[i].handle, .key = {}, .unpin = true};
    fuzz::RequireOk(manager().Seal(honest_.session, absl::MakeConstSpan(&item, 1)).status(),
                    "an honest Seal");
  }

  void End() {
    for (const Client& client : hostile_) manager().ReapSession(client.session);
    while (!held_.empty()) Drop();
    std::optional<absl::Status> answer;
    // What was asked before comes to its end, so that its pins are known.
    world_.RunUntil([&] { return world_.clock().Now() > deadline_max(); }, "time passes");
    while (!held_.empty()) Drop();
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      answer.reset();
      Take(i, world_.clock().Now() + milliseconds(2000), &answer);
      world_.RunUntil([&] { return answer.has_value(); }, "an honest Acquire is answered");
      fuzz::RequireOk(*answer, "an honest tensor can be had");
      Drop();
    }
    world_.Validate();
    world_.Empty();
  }
  TimePoint deadline_max() {
    if (!end_.has_value()) end_ = world_.clock().Now() + milliseconds(40);
    return *end_;
  }

  CoreWorld world_;
  fuzz::Script script_;
  Client honest_;
  std::vector<Client> hostile_;
  std::vector<Handle> handles_;  // that hostile calls got
  std::vector<Kept> kept_;
  std::vector<Held> held_;
  std::optional<TimePoint> end_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  PageWorld(fuzz::Script(data, size)).Play();
  return 0;
}
