// SPDX-License-Identifier: Apache-2.0
#include "hmm/events.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hmm::core {
namespace {

// What happens meanwhile goes out together: an event costs a watcher little, a message much.
constexpr Duration kTick = std::chrono::milliseconds(2);

}  // namespace

EventBus::EventBus(std::size_t kept, Executor& executor, const Clock& clock)
    : kept_(kept), executor_(executor), clock_(clock) {
  HMM_CHECK(kept > 0);
}

Event& EventBus::Emit(EventType type) {
  ++last_;
  // Event n lies at n % kept_; the first lies at 1.
  if (ring_.size() < kept_) {
    ring_.resize(std::min(kept_, static_cast<std::size_t>(last_) + 1));
  }
  Event& event = ring_[last_ % kept_];
  std::string key = std::move(event.key);
  std::string text = std::move(event.text);
  std::string why = std::move(event.why);
  event = Event{};
  key.clear();
  text.clear();
  why.clear();
  event.key = std::move(key);
  event.text = std::move(text);
  event.why = std::move(why);
  event.sequence = last_;
  event.time = clock_.Now();
  event.type = type;
  if (!subscribers_.empty()) Tick();
  return event;
}

void EventBus::Tick() {
  if (std::exchange(ticking_, true)) return;
  executor_.PostAfter(kTick, [this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    ticking_ = false;
    // A subscriber may leave, or another come, while it runs.
    std::vector<Subscription> ids;
    for (const auto& [id, subscriber] : subscribers_) ids.push_back(id);
    for (const Subscription id : ids) {
      const auto it = subscribers_.find(id);
      if (it == subscribers_.end()) continue;
      const std::function<void()> on_events = it->second;
      on_events();
    }
  });
}

EventBus::Subscription EventBus::Subscribe(std::function<void()> on_events) {
  const Subscription id = next_++;
  subscribers_.emplace(id, std::move(on_events));
  return id;
}

void EventBus::Unsubscribe(Subscription subscription) { subscribers_.erase(subscription); }

}  // namespace hmm::core
