// SPDX-License-Identifier: Apache-2.0
//
// Pins that are given to fences. The client arms and sweeps as its library does, the daemon ends
// what is in its way; the model knows of each whether its value is reached.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "share/fence.h"
#include "share/layout.h"
#include "share/pin.h"
#include "support/sim_world.h"

namespace hmm::testing {
namespace {

constexpr std::size_t kTimelinesUsed = 3;  // few, so that many fences wait for one

}  // namespace

void SimWorld::FenceStep(SimClient& client) {
  if (client.pins.empty() && client.fences.empty()) return TryPin(client);
  switch (Pick(4)) {
    case 0:
      return SignalTimeline(client);
    case 1:
      return SweepFences(client);
    default:
      return ArmFence(client);
  }
}

void SimWorld::ArmFence(SimClient& client) {
  if (client.pins.empty()) return;
  const std::size_t at = Pick(client.pins.size());
  share::FenceArea& area = share::Fences(client.page.data());
  ModelFence fence;
  fence.pin = client.pins[at];
  fence.timeline = static_cast<std::uint32_t>(Pick(kTimelinesUsed));
  // The value it stands at is reached already.
  fence.value = area.timelines[fence.timeline].value.load() + Pick(4);
  action_ = absl::StrCat("arm a fence of ", client.session);
  const auto ticket =
      share::ArmFence(area, tensors_[fence.pin.tensor].handle.slot, fence.timeline, fence.value);
  if (!ticket.has_value()) return Require(client.fences.size() >= share::kFences, "no free entry");
  fence.ticket = *ticket;
  client.fences.push_back(fence);
  client.pins[at] = client.pins.back();
  client.pins.pop_back();
}

void SimWorld::SignalTimeline(SimClient& client) {
  action_ = absl::StrCat("signal of ", client.session);
  share::TimelineWord& timeline = share::Fences(client.page.data()).timelines[Pick(kTimelinesUsed)];
  share::Signal(timeline, timeline.value.load() + 1);
}

void SimWorld::SweepFences(SimClient& client) {
  action_ = absl::StrCat("sweep of ", client.session);
  share::FenceArea& area = share::Fences(client.page.data());
  std::erase_if(client.fences, [&](const ModelFence& fence) {
    const auto slot = share::TakeFence(area, area.entries[fence.ticket.entry]);
    if (!slot.has_value()) return false;
    Require(Reached(client, fence), "a fence ended before its value was reached");
    share::Unpin(share::PinWords(client.page.data())[*slot]);
    share::FreeFence(area.entries[fence.ticket.entry]);
    ++fences_.by_client;
    return true;
  });
}

bool SimWorld::Reached(const SimClient& client, const ModelFence& fence) {
  const share::FenceArea& area = share::Fences(const_cast<std::byte*>(client.page.data()));
  return area.timelines[fence.timeline].value.load() >= fence.value;
}

// Forgets those that the daemon ended; what waits for its value is a pin like any other.
void SimWorld::CheckFences(SimClient& client) {
  const share::FenceArea& area = share::Fences(client.page.data());
  std::erase_if(client.fences, [&](const ModelFence& fence) {
    const std::uint64_t word = area.entries[fence.ticket.entry].state.load();
    if (share::SequenceOf(word) != fence.ticket.sequence) {
      Require(Reached(client, fence), "the daemon ended a fence before its value was reached");
      if (!quiet_) ++fences_.by_daemon;
      return true;
    }
    Require(share::StateOf(word) == share::FenceState::kArmed, "an entry was left in between");
    if (!Reached(client, fence)) CheckPin(client, fence.pin);
    return false;
  });
}

// Every value is reached, and nobody of the client's sweeps: the daemon finds it out by itself.
void SimWorld::EndFences() {
  for (const auto& client : clients_) {
    for (share::TimelineWord& timeline : share::Fences(client->page.data()).timelines) {
      share::Signal(timeline, ~std::uint64_t{0});
    }
  }
  auto left = [&] {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return !client->fences.empty(); });
  };
  for (int second = 0; left() && second < 10; ++second) {
    Require(executor_.Advance(std::chrono::seconds(1), 50'000) < 50'000,
            "the executor never comes to rest");
    CheckEverything();
  }
  Require(!left(), "fences that are reached still hold their pins long after");
}

}  // namespace hmm::testing
