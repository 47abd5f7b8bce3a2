// SPDX-License-Identifier: Apache-2.0
//
// World: construction, the step, and what is checked after each.
#include "support/sim_world.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "share/pin.h"

namespace hmm::testing {
namespace {

constexpr std::uint32_t kSlots = 256;

std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::unique_ptr<FakeTier> MakeTier(const char* name, TierKind kind, Bytes capacity, TierId id) {
  FakeTierOptions options;
  options.tier.name = name;
  options.tier.kind = kind;
  options.tier.emulated = kind == TierKind::kHbm;
  options.tier.capacity = capacity;
  options.tier.high = kind == TierKind::kHbm ? 0.85 : 0.90;
  options.tier.low = kind == TierKind::kHbm ? 0.75 : 0.80;
  options.id = id;
  options.mappable = kind != TierKind::kFlash;
  return std::make_unique<FakeTier>(std::move(options));
}

}  // namespace

std::byte SimWorld::PatternByte(std::uint64_t pattern, Bytes i) {
  return static_cast<std::byte>(Mix(pattern + i / 8) >> (8 * (i % 8)));
}

void (*SimWorld::fail)(const SimWorld&, const std::string&) = nullptr;

SimWorld::SimWorld(SimOptions options)
    : options_(options),
      rng_(options.seed),
      executor_(clock_),
      copier_(executor_),
      fragments_(executor_) {
  core::ManagerOptions core;
  core.boot_epoch = 1 + options.seed;
  core.seed = options.seed + 1;
  core.max_tensors = kSlots;
  core.waiting_max = 24;
  core.calls_remembered_max = 64;
  core.session_pinned_max = 0.6;
  core.mover.queued_max = 16;
  core.mover.running_max = 2;
  core.victims_per_batch = 4;
  std::vector<std::unique_ptr<tier::Tier>> tiers;
  const auto add = [&](const char* name, TierKind kind, Bytes capacity) {
    first_sizes_.push_back(capacity);
    tiers.push_back(MakeTier(name, kind, capacity, static_cast<TierId>(tiers.size())));
  };
  add("hbm0", TierKind::kHbm, options.hbm);
  if (options.many) add("hbm1", TierKind::kHbm, options.hbm);
  add("ddr0", TierKind::kDdr, options.ddr);
  if (options.many) add("ddr1", TierKind::kDdr, options.ddr / 2);
  add("flash0", TierKind::kFlash, options.flash);
  if (options.many) core.demote_to = {TierId{2}, TierId{2}, TierId{3}, TierId{4}, std::nullopt};
  manager_ = std::make_unique<core::Manager>(std::move(core), std::move(tiers), copier_, executor_,
                                             clock_, &fragments_);
}

SimWorld::~SimWorld() = default;

void SimWorld::Step() {
  ++steps_;
  const std::size_t roll = Pick(100);
  if (clients_.empty() || (roll < 2 && clients_.size() < options_.clients_max)) {
    OpenClient();
  } else if (roll < 3) {
    CloseClient(*clients_[Pick(clients_.size())]);
  } else if (roll < 4) {
    ReapClient(Pick(clients_.size()));
  } else if (roll < 24) {
    if (options_.regions && Chance(0.5)) {
      EndFragments(1 + Pick(3));
    } else {
      EndCopies(1 + Pick(3), /*faults=*/true);
    }
  } else if (roll < 44) {
    action_ = "run tasks";
    executor_.RunReady(1 + Pick(8));
  } else if (roll < 50) {
    AdvanceTime();
  } else if (roll < 53) {
    Admin();
  } else {
    SimClient& client = *clients_[Pick(clients_.size())];
    if (options_.regions && Chance(0.7)) {
      RegionStep(client);
      return CheckEverything();
    }
    switch (Pick(19)) {
      case 0:
      case 1:
      case 2:
        Allocate(client);
        break;
      case 3:
      case 4:
        SealSome(client);
        break;
      case 5:
      case 6:
        TryPin(client);
        break;
      case 7:
      case 8:
        Unpin(client);
        break;
      case 9:
        Acquire(client);
        break;
      case 10:
        Lookup(client);
        break;
      case 11:
        Prefetch(client);
        break;
      case 12:
        Swap(client);
        break;
      case 13:
        FreeSome(client);
        break;
      case 14:
        if (Chance(0.5)) {
          ReleaseSome(client);
        } else {
          CancelSome(client);
        }
        break;
      case 15:
      case 16:
        TakeAhead(client);
        break;
      case 17:
        if (Chance(0.5)) {
          TellTaken(client);
        } else {
          UseAhead(client);
        }
        break;
      default:
        Describe(client);
    }
  }
  CheckEverything();
}

void SimWorld::RequireStatus(const absl::Status& status, std::initializer_list<Reason> allowed,
                             const std::string& what) const {
  if (status.ok()) return;
  const auto reason = ReasonOf(status);
  for (const Reason known : allowed) {
    if (reason == known) return;
  }
  Require(false, absl::StrCat(what, " must not answer ", status.ToString()));
}

// --- bytes --------------------------------------------------------------------------------------

std::byte* SimWorld::At(const ModelPin& pin) const {
  return manager_->tier(pin.tier).Address(
      {pin.segment, pin.offset, manager_->tier(pin.tier).LengthFor(tensors_[pin.tensor].bytes)});
}

void SimWorld::Fill(const ModelPin& pin) {
  const ModelTensor& tensor = tensors_[pin.tensor];
  std::byte* bytes = At(pin);
  for (Bytes i = 0; i < tensor.bytes; ++i) bytes[i] = PatternByte(tensor.pattern, i);
}

void SimWorld::Verify(const ModelPin& pin) {
  const ModelTensor& tensor = tensors_[pin.tensor];
  const std::byte* bytes = At(pin);
  for (Bytes i = 0; i < tensor.bytes; ++i) {
    if (bytes[i] != PatternByte(tensor.pattern, i)) {
      Require(false, absl::StrCat("tensor slot ", tensor.handle.slot, " generation ",
                                  tensor.handle.generation, " has a wrong byte at ", i));
    }
  }
  verified_ += tensor.bytes;
}

void SimWorld::AddPin(SimClient& client, std::size_t tensor, const core::Location& location,
                      bool verify) {
  const ModelPin pin{tensor, location.tier, location.segment, location.offset};
  Require(location.bytes == tensors_[tensor].bytes, "a location has the wrong size");
  Require(manager_->tier(pin.tier).mappable(), "a pin on a tier that clients cannot map");
  client.pins.push_back(pin);
  if (verify) Verify(pin);
  // What is not sealed may be written again: no earlier copy is worth anything then.
  if (verify && !tensors_[tensor].sealed && Chance(0.3)) {
    tensors_[tensor].pattern = rng_();
    verify = false;
  }
  if (!verify) Fill(pin);
}

void SimWorld::DropPin(SimClient& client, std::size_t i) {
  share::Unpin(share::PinWords(client.page.data())[tensors_[client.pins[i].tensor].handle.slot]);
  client.pins[i] = client.pins.back();
  client.pins.pop_back();
}

// --- the model ----------------------------------------------------------------------------------

SimClient* SimWorld::ClientOf(SessionId session) {
  for (auto& client : clients_) {
    if (client->session == session) return client.get();
  }
  return nullptr;
}

std::size_t SimWorld::NewTensor(const SimClient& client, const core::TensorSpec& spec,
                                Handle handle) {
  Require(!ByHandle(client.tenant, handle).has_value(), "a handle was given out twice");
  ModelTensor tensor;
  tensor.handle = handle;
  tensor.tenant = client.tenant;
  tensor.bytes = spec.bytes;
  tensor.pattern = rng_();
  tensor.key = spec.key;
  tensor.owner = client.session;
  tensor.droppable = spec.droppable;
  tensors_.push_back(tensor);
  return tensors_.size() - 1;
}

std::optional<std::size_t> SimWorld::ByHandle(int tenant, Handle handle) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].tenant == tenant && tensors_[i].handle == handle) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> SimWorld::PickTensor(int tenant) {
  if (tensors_.empty()) return std::nullopt;
  // Mostly recent ones: old ones are mostly gone.
  const std::size_t window = std::min<std::size_t>(tensors_.size(), 64);
  for (int tries = 0; tries < 8; ++tries) {
    const std::size_t i = tensors_.size() - 1 - Pick(window);
    if (tensors_[i].tenant == tenant) return i;
  }
  return std::nullopt;
}

bool SimWorld::Certain(const ModelTensor& tensor) const {
  return !tensor.freed && !tensor.droppable && !faulty_;
}

// A pinned tensor stays what and where it is.
void SimWorld::CheckPin(const SimClient& client, const ModelPin& pin) {
  const ModelTensor& tensor = tensors_[pin.tensor];
  const share::TableSlot& slot =
      share::TableSlots(static_cast<const void*>(client.table.data()))[tensor.handle.slot];
  const share::StateWord word = share::StateWord::Unpack(slot.state.load());
  Require(word.generation == tensor.handle.generation, "a pinned slot has another generation");
  Require(word.state == TensorState::kResident || word.state == TensorState::kCreating ||
              word.state == TensorState::kDoomed,
          absl::StrCat("a pinned tensor is ", std::string(TensorStateName(word.state))));
  Require(word.tier == pin.tier && slot.segment.load() == pin.segment &&
              slot.offset.load() == pin.offset,
          "a pinned tensor moved");
  if (steps_ % 7 == 0) Verify(pin);
}

void SimWorld::CheckEverything() {
  const absl::Status valid = manager_->Validate();
  Require(valid.ok(), valid.ToString());
  for (const auto& client : clients_) {
    std::vector<ModelPin> held = client->pins;
    held.insert(held.end(), client->keepers.begin(), client->keepers.end());
    for (const ModelPin& pin : held) CheckPin(*client, pin);
    CheckFences(*client);
    if (steps_ % 3 != 0 || !client->waiting.empty()) continue;
    // No pin that nobody holds.
    std::size_t pins = 0;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      pins += share::PinsOf(share::PinWords(client->page.data())[slot].load());
    }
    const std::size_t all = held.size() + client->fences.size();
    Require(pins == all,
            absl::StrCat("session ", client->session, " holds ", all, " pins, its page ", pins));
  }
}

// --- endings ------------------------------------------------------------------------------------

void SimWorld::Settle() {
  action_ = "settle";
  quiet_ = true;
  (void)manager_->Drain(false);
  for (int round = 0; round < 4000; ++round) {
    while (copier_.size() > 0) copier_.Complete(0);
    EndFragments(fragments_.size());
    Require(executor_.RunReady(5000) < 5000, "the executor never comes to rest");
    const bool over = JobsOver();
    if (under_way_.empty() && over && copier_.size() == 0 && executor_.ready() == 0)
      return EndFences();
    Require(executor_.Advance(std::chrono::milliseconds(1), 5000) < 5000,
            "the executor never comes to rest");
    RequireInTime();
    CheckEverything();
  }
  Require(false, "calls still wait long after all faults ended and all deadlines passed");
}

// Nothing is pinned and no copy fails any more: what is kept must come, however full the tiers are.
void SimWorld::MustBeHad(SimClient& client, Handle handle) {
  const std::optional<std::size_t> tensor = ByHandle(client.tenant, handle);
  core::CallContext call;
  call.session = client.session;
  call.call_id = client.next_call++;
  call.deadline = clock_.Now() + std::chrono::milliseconds(1000);
  const std::uint64_t begun = Begin(call.deadline);
  core::AcquireArgs args;
  args.handles = {handle};
  args.tier = handle.slot % 2 == 0 ? "" : "hbm0";
  manager_->Acquire(call, std::move(args), [&, begun](absl::StatusOr<core::AcquireResult> result) {
    Answered(begun);
    const absl::Status got = result.ok() ? result->tensors[0].status() : result.status();
    if (got.ok() && tensor.has_value()) {
      AddPin(client, *tensor, result->tensors[0]->location, /*verify=*/true);
      DropPin(client, client.pins.size() - 1);
      ++had_again_;
    } else if (got.ok()) {  // of a reply that was lost
      share::Unpin(share::PinWords(client.page.data())[handle.slot]);
    } else {
      const bool certain = tensor.has_value() && Certain(tensors_[*tensor]);
      Require(!certain, absl::StrCat("what is kept cannot be had: ", got.ToString()));
    }
  });
  Settle();
}

void SimWorld::Empty() {
  action_ = "empty";
  while (!clients_.empty()) ReapClient(clients_.size() - 1);
  Settle();
  for (std::size_t t = 0; t < options_.tenants; ++t) {
    SimClient* const last = Connect(static_cast<int>(t));
    Require(last != nullptr, "a session is refused when everybody has gone");
    std::uint64_t cursor = 0;
    do {
      auto page = manager_->ListTensors(last->session, {}, cursor, 100);
      Require(page.ok(), page.status().ToString());
      for (const core::TensorInfo& tensor : page->tensors) {
        Require(tensor.sealed && !tensor.key.empty() && tensor.owner == 0,
                "a tensor outlived its session without being sealed and keyed");
        const Handle handle = tensor.handle;
        MustBeHad(*last, handle);
        auto freed = manager_->Free(last->session, absl::MakeConstSpan(&handle, 1));
        Require(freed.ok(), "free at the end failed");
        const auto& one = (*freed)[0];  // not found: dropped to make room for another, or lost
        Require(one.ok() ? !one->deferred : absl::IsNotFound(one.status()),
                "free at the end failed");
      }
      cursor = page->next;
    } while (cursor != 0);
    ReapClient(0);
  }
  Settle();
  for (const core::TierInfo& tier : manager_->ListTiers(std::nullopt)) {
    Require(tier.used == 0, absl::StrCat(tier.name, " still holds ", tier.used, " bytes"));
  }
  const core::StatusInfo status = manager_->GetStatus(std::nullopt);
  Require(status.tensors == 0 && status.sessions == 0 && status.pins == 0,
          "something is left after everybody has gone");
}

}  // namespace hmm::testing
