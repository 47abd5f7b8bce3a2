// SPDX-License-Identifier: Apache-2.0
//
// Magazines, as client/lib/magazine.h uses them: tensors allocated ahead, taken by TryPin with a
// second pin that stays until the daemon has been told.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "share/pin.h"
#include "support/sim_world.h"

namespace hmm::testing {

void SimWorld::AskAhead(SimClient& client, core::AllocateArgs& args) {
  args.ahead = 1 + Pick(8);
  if (Chance(0.5)) {
    args.tensors.front().key.clear();
  } else {
    args.ahead_like = args.tensors.front();
    args.ahead_like->key.clear();
    if (Chance(0.5)) args.tensors.clear();  // from behind: nothing but these
  }
  for (const ModelPin& keeper : client.keepers) {
    if (Chance(0.7)) args.taken.push_back(tensors_[keeper.tensor].handle);
  }
}

void SimWorld::GotAhead(SimClient& client, const core::TensorSpec& spec,
                        const std::vector<core::Allocated>& ahead) {
  for (const core::Allocated& one : ahead) {
    Require(one.location.bytes == spec.bytes, "a tensor ahead has another size");
    Require(!ByHandle(client.tenant, one.handle).has_value(), "a handle ahead is in use");
    client.ahead.push_back({one.handle, spec});
  }
}

void SimWorld::MustBeGone(SessionId session, const std::vector<core::Allocated>& ahead) {
  for (const core::Allocated& one : ahead) {
    auto info = manager_->Describe(session, absl::MakeConstSpan(&one.handle, 1), {});
    if (!info.ok()) return;
    Require(!(*info)[0].ok(), "a tensor ahead of a lost Allocate outlived its Release");
  }
}

void SimWorld::DropKeeper(SimClient& client, Handle handle) { DropKeepers(client, {handle}); }

void SimWorld::DropKeepers(SimClient& client, const std::vector<Handle>& told) {
  std::erase_if(client.keepers, [&](const ModelPin& keeper) {
    const Handle handle = tensors_[keeper.tensor].handle;
    if (std::find(told.begin(), told.end(), handle) == told.end()) return false;
    share::Unpin(share::PinWords(client.page.data())[handle.slot]);
    return true;
  });
}

void SimWorld::TakeAhead(SimClient& client) {
  if (client.ahead.empty()) return;
  const std::size_t at = Pick(client.ahead.size());
  const ModelAhead one = client.ahead[at];
  client.ahead.erase(client.ahead.begin() + static_cast<std::ptrdiff_t>(at));
  action_ = absl::StrCat("take slot ", one.handle.slot, " by ", client.session);
  const share::TableSlot& slot =
      share::TableSlots(static_cast<const void*>(client.table.data()))[one.handle.slot];
  std::atomic<std::uint32_t>& word = share::PinWords(client.page.data())[one.handle.slot];
  if (!share::TryPin(word, slot, one.handle.generation)) {
    // Taken back; or our failed try met the daemon's, and then it is ours to free.
    (void)manager_->Free(client.session, absl::MakeConstSpan(&one.handle, 1));
    return;
  }
  ++taken_;
  const std::size_t tensor = NewTensor(client, one.spec, one.handle);
  core::Location location;
  location.tier = share::StateWord::Unpack(slot.state.load()).tier;
  location.segment = slot.segment.load();
  location.offset = slot.offset.load();
  location.bytes = slot.bytes.load();
  AddPin(client, tensor, location, /*verify=*/false);
  word.fetch_add(share::kPinOne);
  client.keepers.push_back(client.pins.back());
}

void SimWorld::TellTaken(SimClient& client) {
  core::AllocateArgs args;
  for (const ModelPin& keeper : client.keepers) {
    args.taken.push_back(tensors_[keeper.tensor].handle);
  }
  // What is not ahead (any more), or never was, does no harm.
  args.taken.push_back({static_cast<std::uint32_t>(Pick(512)), 1});
  const std::vector<Handle> told = args.taken;
  const core::CallContext call = NextCall(client);
  action_ = absl::StrCat("tell ", told.size(), " taken by ", client.session);
  const SessionId session = client.session;
  const std::uint64_t begun = Begin(call.deadline);
  (void)manager_->Allocate(
      call, std::move(args),
      [this, session, call, begun](absl::StatusOr<core::AllocateResult> result) {
        Answered(begun);
        if (SimClient* self = ClientOf(session)) self->waiting.erase(call.call_id);
        RequireStatus(result.status(), {Reason::kUnknownSession, Reason::kQueueFull},
                      "Allocate of nothing");
      });
  if (!client.closing) DropKeepers(client, told);
}

// By handle, without having taken it: that makes it ordinary.
void SimWorld::UseAhead(SimClient& client) {
  if (client.ahead.empty() || client.closing) return;
  const std::size_t at = Pick(client.ahead.size());
  const Handle handle = client.ahead[at].handle;
  action_ = absl::StrCat("use slot ", handle.slot, " ahead of ", client.session);
  const std::size_t how = Pick(4);
  if (how == 0) {
    core::PrefetchArgs args;
    args.handles = {handle};
    args.in_place = Chance(0.5);
    (void)manager_->Prefetch(client.session, args);
  } else if (how == 1) {
    core::CallContext call;
    call.session = client.session;
    call.deadline = clock_.Now() + std::chrono::milliseconds(Pick(20));
    const std::uint64_t begun = Begin(call.deadline);
    (void)manager_->Swap(
        call, {{handle}, manager_->tier(RandomTier()).name()},
        [this, begun](const absl::StatusOr<core::SwapResult>&) { Answered(begun); });
  } else if (how == 2) {
    auto freed = manager_->Free(client.session, absl::MakeConstSpan(&handle, 1));
    if (freed.ok() && (*freed)[0].ok()) Require(!(*freed)[0]->deferred, "nobody pinned it");
    client.ahead.erase(client.ahead.begin() + static_cast<std::ptrdiff_t>(at));
    return;
  } else {
    auto info = manager_->Describe(client.session, absl::MakeConstSpan(&handle, 1), {});
    Require(info.ok(), "Describe of a tensor ahead");
    if ((*info)[0].ok() && (*info)[0]->ahead) {
      Require((*info)[0]->owner == client.session && !(*info)[0]->sealed, "ahead of nobody");
    }
    return;
  }
  auto info = manager_->Describe(client.session, absl::MakeConstSpan(&handle, 1), {});
  if (info.ok() && (*info)[0].ok()) Require(!(*info)[0]->ahead, "used by handle, still ahead");
}

}  // namespace hmm::testing
