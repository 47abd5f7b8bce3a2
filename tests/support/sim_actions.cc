// SPDX-License-Identifier: Apache-2.0
//
// What clients and the world do in a step, and what they demand of the answers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "share/pin.h"
#include "support/sim_world.h"

namespace hmm::testing {
core::CallContext SimWorld::NextCall(SimClient& client) {
  core::CallContext call;
  call.session = client.session;
  call.call_id = client.next_call++;
  call.oldest_live_call_id = client.waiting.empty() ? call.call_id : client.waiting.begin()->first;
  call.deadline = clock_.Now() + std::chrono::milliseconds(Pick(60));
  client.waiting.emplace(call.call_id, 0);
  return call;
}

void SimWorld::Launched(SimClient& client, std::uint64_t call, core::Manager::OpId op) {
  const auto it = client.waiting.find(call);
  if (it != client.waiting.end()) it->second = op;
}

std::uint64_t SimWorld::Begin(TimePoint deadline) {
  under_way_.emplace(next_begun_, Begun{action_, deadline});
  return next_begun_++;
}

void SimWorld::Answered(std::uint64_t begun) {
  Require(under_way_.erase(begun) == 1, "a call was answered twice");
}

// When nothing is ready to run any more. The core looks at deadlines each `rescan`.
void SimWorld::RequireInTime() const {
  for (const auto& [begun, call] : under_way_) {
    Require(call.deadline + core::ManagerOptions().rescan >= clock_.Now(),
            absl::StrCat("past its deadline: ", call.action));
  }
}

std::string SimWorld::TierName(bool may_be_empty) {
  if (may_be_empty && Chance(0.4)) return "";
  const std::string number = options_.many && Chance(0.5) ? "1" : "0";
  return (Chance(0.6) ? "hbm" : "ddr") + number;
}

// --- sessions -----------------------------------------------------------------------------------

void SimWorld::OpenClient() {
  action_ = "open";
  if (clients_.empty()) (void)manager_->Drain(false);
  (void)Connect(static_cast<int>(Pick(options_.tenants)));
}

SimClient* SimWorld::Connect(int tenant) {
  core::SessionInfo info;
  info.tenant = absl::StrCat("tenant", tenant);
  if (options_.many) info.device = Chance(0.5) ? "hbm1" : "";
  auto grant = manager_->OpenSession(info);
  if (!grant.ok()) {
    RequireStatus(grant.status(), {Reason::kDraining}, "OpenSession");
    return nullptr;
  }
  auto client = std::make_unique<SimClient>();
  client->session = grant->session;
  client->tenant = tenant;
  auto table = share::Mapping::Map(grant->table.get(), share::TableBytes(grant->max_tensors),
                                   share::Mapping::Access::kReadOnly, false);
  auto page = share::Mapping::Map(grant->page.get(), share::PageBytes(grant->max_tensors),
                                  share::Mapping::Access::kReadWrite, false);
  Require(table.ok() && page.ok(), "the granted pages cannot be mapped");
  client->table = *std::move(table);
  client->page = *std::move(page);
  Require(manager_->FindSession(grant->token) == grant->session, "the token names no session");
  clients_.push_back(std::move(client));
  return clients_.back().get();
}

void SimWorld::CloseClient(SimClient& client) {
  action_ = absl::StrCat("close ", client.session);
  client.closing = true;
  manager_->CloseSession(client.session);
  Require(client.waiting.empty(), "calls of a closing session still wait");
}

void SimWorld::ReapClient(std::size_t i) {
  action_ = absl::StrCat("reap ", clients_[i]->session);
  const SessionId session = clients_[i]->session;
  // Dead processes touch nothing; the client leaves first so that answers find nobody.
  auto dead = std::move(clients_[i]);
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
  for (ModelTensor& tensor : tensors_) {
    if (tensor.owner == session) tensor.freed = true;
  }
  manager_->ReapSession(session);
}

// --- verbs --------------------------------------------------------------------------------------

void SimWorld::Allocate(SimClient& client) {
  core::AllocateArgs args;
  const std::size_t count = 1 + (Chance(0.3) ? Pick(5) : 0);
  for (std::size_t i = 0; i < count; ++i) {
    core::TensorSpec spec;
    spec.bytes = Chance(0.01) ? (Chance(0.5) ? 0 : ~Bytes{0}) : 1 + Pick(options_.tensor_max);
    spec.kind = TensorKind::kKvCache;
    spec.droppable = Chance(0.6);
    spec.priority = static_cast<std::uint32_t>(Pick(3));
    if (Chance(0.7)) spec.key = absl::StrCat("k", Chance(0.9) ? next_key_++ : Pick(next_key_ + 1));
    args.tensors.push_back(spec);
  }
  args.all = Chance(0.3);
  args.wait = Chance(0.5);
  args.allow_lower = Chance(0.4);
  args.tier = TierName(true);
  if (Chance(0.4)) AskAhead(client, args);
  const core::CallContext call = NextCall(client);
  action_ = absl::StrCat("allocate ", args.tensors.size(), " by ", client.session, " call ",
                         call.call_id, " ahead ", args.ahead, " taken ", args.taken.size());
  const auto specs = args.tensors;
  const core::TensorSpec like =
      args.ahead_like.value_or(specs.empty() ? core::TensorSpec() : specs.front());
  const std::size_t ahead = args.ahead;
  const std::vector<Handle> taken = args.taken;
  const bool lose = Chance(0.05);
  const SessionId session = client.session;
  const std::uint64_t begun = Begin(call.deadline);
  const core::Manager::OpId op = manager_->Allocate(
      call, std::move(args),
      [this, session, call, specs, like, lose, ahead,
       begun](absl::StatusOr<core::AllocateResult> result) {
        Answered(begun);
        SimClient* self = ClientOf(session);
        if (self == nullptr) return;
        self->waiting.erase(call.call_id);
        if (!result.ok()) {
          RequireStatus(result.status(),
                        {Reason::kFull, Reason::kPinned, Reason::kQuota, Reason::kExists,
                         Reason::kTooLarge, Reason::kQueueFull, Reason::kDraining, Reason::kBadSize,
                         Reason::kCancelled, Reason::kUnknownSession},
                        "Allocate");
          return;
        }
        for (std::size_t i = 0; i < specs.size(); ++i) {
          const auto& one = result->tensors[i];
          if (!one.ok()) {
            RequireStatus(
                one.status(),
                {Reason::kFull, Reason::kPinned, Reason::kQuota, Reason::kExists, Reason::kTooLarge,
                 Reason::kQueueFull, Reason::kDraining, Reason::kBadSize},
                "an element of Allocate");
            continue;
          }
          Require(specs[i].bytes > 0 && specs[i].bytes <= options_.tensor_max, "impossible size");
          if (lose) continue;
          const std::size_t tensor = NewTensor(*self, specs[i], one->handle);
          AddPin(*self, tensor, one->location, /*verify=*/false);
        }
        Require(result->ahead.size() <= ahead, "more ahead than asked for");
        if (!lose) GotAhead(*self, like, result->ahead);
        // A lost reply: the client knows nothing, asks to undo, and asks again.
        for (int times = 0; lose && times < 2; ++times) {
          const auto undone = manager_->Release(session, call.call_id, 0);
          Require(undone.ok() && (times == 0 || *undone == 0), "Release of a lost Allocate");
        }
        if (lose) MustBeGone(session, result->ahead);
      });
  if (!client.closing) DropKeepers(client, taken);
  Launched(client, call.call_id, op);
}

void SimWorld::SealSome(SimClient& client) {
  if (client.pins.empty()) return;
  const std::size_t at = Pick(client.pins.size());
  ModelTensor& tensor = tensors_[client.pins[at].tensor];
  core::SealItem item{tensor.handle, "", Chance(0.7)};
  if (tensor.key.empty() && Chance(0.5)) item.key = absl::StrCat("s", next_key_++);
  action_ = absl::StrCat("seal slot ", tensor.handle.slot, " by ", client.session);
  auto results = manager_->Seal(client.session, absl::MakeConstSpan(&item, 1));
  if (!results.ok()) {
    return RequireStatus(results.status(), {Reason::kUnknownSession}, "Seal");
  }
  const absl::Status& status = (*results)[0];
  if (!status.ok()) {
    Require(tensor.sealed || tensor.freed || faulty_, absl::StrCat("Seal: ", status.ToString()));
    return;
  }
  Require(!tensor.sealed && !tensor.freed, "sealed twice, or after Free");
  tensor.sealed = true;
  DropKeeper(client, tensor.handle);
  if (!item.key.empty()) tensor.key = item.key;
  if (!tensor.key.empty()) tensor.owner = 0;
  if (item.unpin) {
    // The daemon gave one pin of this session on it back.
    client.pins[at] = client.pins.back();
    client.pins.pop_back();
  }
}

void SimWorld::TryPin(SimClient& client) {
  const auto picked = PickTensor(client.tenant);
  if (!picked.has_value()) return;
  const ModelTensor& tensor = tensors_[*picked];
  action_ = absl::StrCat("try pin slot ", tensor.handle.slot, " by ", client.session);
  const share::TableSlot& slot =
      share::TableSlots(static_cast<const void*>(client.table.data()))[tensor.handle.slot];
  if (!share::TryPin(share::PinWords(client.page.data())[tensor.handle.slot], slot,
                     tensor.handle.generation)) {
    return;
  }
  Require(!tensor.freed, "pinned a tensor that was freed");
  core::Location location;
  location.tier = share::StateWord::Unpack(slot.state.load()).tier;
  location.segment = slot.segment.load();
  location.offset = slot.offset.load();
  location.bytes = slot.bytes.load();
  AddPin(client, *picked, location, /*verify=*/true);
}

void SimWorld::Unpin(SimClient& client) {
  if (client.pins.empty()) return;
  action_ = absl::StrCat("unpin by ", client.session);
  for (std::size_t n = 1 + Pick(client.pins.size()); n > 0 && !client.pins.empty(); --n) {
    DropPin(client, Pick(client.pins.size()));
  }
}

void SimWorld::Acquire(SimClient& client) {
  core::AcquireArgs args;
  std::vector<std::size_t> asked;
  for (std::size_t n = 1 + Pick(4); n > 0; --n) {
    const auto picked = PickTensor(client.tenant);
    if (!picked.has_value()) continue;
    asked.push_back(*picked);
    args.handles.push_back(tensors_[*picked].handle);
  }
  args.all = Chance(0.3);
  args.allow_lower = Chance(0.4);
  args.tier = TierName(true);
  const std::string tier = args.tier;
  const bool lower = args.allow_lower;
  const core::CallContext call = NextCall(client);
  action_ = absl::StrCat("acquire ", asked.size(), " to '", tier, "' by ", client.session);
  const bool lose = Chance(0.05);
  const SessionId session = client.session;
  const std::uint64_t begun = Begin(call.deadline);
  const core::Manager::OpId op = manager_->Acquire(
      call, std::move(args),
      [this, session, call, asked, lose, tier, lower,
       begun](absl::StatusOr<core::AcquireResult> result) {
        Answered(begun);
        SimClient* self = ClientOf(session);
        if (self == nullptr) return;
        self->waiting.erase(call.call_id);
        for (std::size_t i = 0; result.ok() && i < asked.size(); ++i) {
          const ModelTensor& tensor = tensors_[asked[i]];
          const auto& one = result->tensors[i];
          if (one.ok()) {
            Require(!tensor.freed, "acquired a tensor that was freed");
            Require(tier.empty() || lower || manager_->tier(one->location.tier).name() == tier,
                    "acquired in another tier than asked for");
            if (!lose) AddPin(*self, asked[i], one->location, /*verify=*/true);
          } else if (ReasonOf(one.status()) == Reason::kNotFound) {
            Require(!Certain(tensor), "a tensor that must be there is NOT_FOUND");
          } else if (one.status().code() == absl::StatusCode::kDataLoss) {
            Require(faulty_, "DATA_LOSS without a fault");
          }
        }
        for (int times = 0; lose && times < 2; ++times) {
          (void)manager_->Release(session, call.call_id, 0);
        }
      });
  Launched(client, call.call_id, op);
}

void SimWorld::Lookup(SimClient& client) {
  core::LookupArgs args;
  std::vector<std::size_t> asked;
  for (std::size_t n = 1 + Pick(4); n > 0; --n) {
    const auto picked = PickTensor(client.tenant);
    if (!picked.has_value() || tensors_[*picked].key.empty()) continue;
    asked.push_back(*picked);
    args.keys.push_back(tensors_[*picked].key);
  }
  args.allow_lower = Chance(0.5);
  args.no_pin = Chance(0.1);
  args.tier = TierName(true);
  const bool no_pin = args.no_pin;
  const core::CallContext call = NextCall(client);
  action_ = absl::StrCat("lookup ", asked.size(), " by ", client.session);
  const SessionId session = client.session;
  const std::uint64_t begun = Begin(call.deadline);
  const core::Manager::OpId op = manager_->Lookup(
      call, std::move(args),
      [this, session, call, no_pin, begun](absl::StatusOr<core::LookupResult> result) {
        Answered(begun);
        SimClient* self = ClientOf(session);
        if (self == nullptr) return;
        self->waiting.erase(call.call_id);
        if (!result.ok() || no_pin) return;
        for (const core::Found& found : result->run) {
          const auto tensor = ByHandle(self->tenant, found.handle);
          // Unknown to the model: allocated by a call whose reply was lost, never
          // sealed.
          Require(tensor.has_value(), "found a tensor that nobody sealed");
          Require(tensors_[*tensor].sealed && !tensors_[*tensor].freed,
                  "found what is not visible");
          AddPin(*self, *tensor, found.location, /*verify=*/true);
        }
      });
  Launched(client, call.call_id, op);
}

void SimWorld::Prefetch(SimClient& client) {
  core::PrefetchArgs args;
  for (std::size_t n = 1 + Pick(3); n > 0; --n) {
    const auto picked = PickTensor(client.tenant);
    if (picked.has_value()) args.handles.push_back(tensors_[*picked].handle);
  }
  args.tier = TierName(true);
  if (Chance(0.5)) args.deadline = clock_.Now() + std::chrono::milliseconds(Pick(20));
  action_ = absl::StrCat("prefetch by ", client.session);
  auto results = manager_->Prefetch(client.session, args);
  if (!results.ok()) {
    return RequireStatus(results.status(), {Reason::kUnknownSession}, "Prefetch");
  }
  for (const absl::Status& status : *results) {
    RequireStatus(status, {Reason::kDropped, Reason::kNotFound, Reason::kChecksum}, "Prefetch");
  }
}

void SimWorld::Swap(SimClient& client) {
  core::SwapArgs args;
  for (std::size_t n = 1 + Pick(3); n > 0; --n) {
    const auto picked = PickTensor(client.tenant);
    if (picked.has_value()) args.handles.push_back(tensors_[*picked].handle);
  }
  args.tier = manager_->tier(RandomTier()).name();
  core::CallContext call;
  call.session = client.session;
  call.deadline = clock_.Now() + std::chrono::milliseconds(Pick(60));
  action_ = absl::StrCat("swap to ", args.tier, " by ", client.session);
  const std::uint64_t begun = Begin(call.deadline);
  const auto answer = [this, begun](const absl::StatusOr<core::SwapResult>& result) {
    Answered(begun);
    if (!result.ok()) return;
    for (const auto& one : result->tensors) {
      if (one.ok()) continue;
      Require(one.status().code() != absl::StatusCode::kInternal, one.status().ToString());
    }
  };
  (void)manager_->Swap(call, std::move(args), answer);
}

void SimWorld::FreeSome(SimClient& client) {
  const auto picked = PickTensor(client.tenant);
  if (!picked.has_value()) return;
  ModelTensor& tensor = tensors_[*picked];
  action_ = absl::StrCat("free slot ", tensor.handle.slot, " by ", client.session);
  const Handle handle = tensor.handle;
  auto results = manager_->Free(client.session, absl::MakeConstSpan(&handle, 1));
  if (!results.ok()) return RequireStatus(results.status(), {Reason::kUnknownSession}, "Free");
  if ((*results)[0].ok()) {
    Require(!tensor.freed, "freed twice");
    tensor.freed = true;
    DropKeeper(client, handle);
  } else {
    Require(!Certain(tensor), "a tensor that must be there cannot be freed");
  }
}

void SimWorld::ReleaseSome(SimClient& client) {
  // A Release that overtakes its call: the call, when it comes, pins nothing.
  action_ = absl::StrCat("release by ", client.session);
  if (client.waiting.empty()) {
    const std::uint64_t call = client.next_call++;
    (void)manager_->Release(client.session, call, 0);
    core::AcquireArgs args;
    core::CallContext late;
    late.session = client.session;
    late.call_id = call;
    bool answered = false;
    (void)manager_->Acquire(late, std::move(args), [&](absl::StatusOr<core::AcquireResult> result) {
      answered = true;
      Require(!result.ok(), "a call that was released before it came must pin nothing");
    });
    Require(answered, "a released call must not wait");
    return;
  }
  const std::uint64_t call = client.waiting.begin()->first;
  (void)manager_->Release(client.session, call, 0);
  Require(!client.waiting.contains(call), "a released call still waits");
}

void SimWorld::CancelSome(SimClient& client) {
  if (client.waiting.empty()) return;
  action_ = absl::StrCat("cancel by ", client.session);
  const auto [call, op] = *client.waiting.begin();
  if (op == 0) return;
  manager_->Cancel(op);
  Require(!client.waiting.contains(call), "a cancelled call was not answered");
}

void SimWorld::Describe(SimClient& client) {
  const auto picked = PickTensor(client.tenant);
  if (!picked.has_value()) return;
  const ModelTensor& tensor = tensors_[*picked];
  action_ = absl::StrCat("describe slot ", tensor.handle.slot);
  const Handle handle = tensor.handle;
  auto results = manager_->Describe(client.session, absl::MakeConstSpan(&handle, 1), {});
  if (!results.ok()) return RequireStatus(results.status(), {Reason::kUnknownSession}, "Describe");
  const auto& one = (*results)[0];
  if (!one.ok()) return Require(!Certain(tensor), "a tensor that must be there is unknown");
  Require(!tensor.freed, "a freed tensor is described");
  Require(one->bytes == tensor.bytes && one->sealed == tensor.sealed && one->key == tensor.key,
          "Describe differs from what was allocated");
}

// --- the world
// -------------------------------------------------------------------------------------

void SimWorld::EndCopies(std::size_t n, bool faults) {
  action_ = "end copies";
  for (; n > 0 && copier_.size() > 0; --n) {
    const std::size_t at = Pick(copier_.size());
    if (faults && !quiet_ && Chance(options_.fault_rate)) {
      faulty_ = true;
      copier_.Fail(at,
                   Error(Chance(0.5) ? absl::StatusCode::kDataLoss : absl::StatusCode::kInternal,
                         Reason::kIo, "injected"));
    } else if (faults && !quiet_ && Chance(options_.corrupt_rate) &&
               !copier_.job(at).to->mappable()) {
      faulty_ = true;
      copier_.Corrupt(at, Pick(copier_.job(at).bytes));
    } else {
      copier_.Complete(at);
    }
  }
}

void SimWorld::AdvanceTime() {
  action_ = "time passes";
  const auto by = std::chrono::milliseconds(1 + Pick(Chance(0.05) ? 1500 : 10));
  // Calls that cannot go on wait for an event or the clock; they do not spin.
  Require(executor_.Advance(by, 5000) < 5000, "the executor never comes to rest");
  RequireInTime();
}

}  // namespace hmm::testing
