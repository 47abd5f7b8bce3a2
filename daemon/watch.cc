// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "daemon/authenticate.h"
#include "daemon/convert.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kEventsPerMessage = 1024;  // some 0.5 us each, on the core's thread
constexpr std::size_t kLooksPerMessage = 1u << 14;
constexpr Duration kBreakAfter = std::chrono::seconds(10);
constexpr std::uint32_t kOccupancyMinMs = 10;
constexpr std::uint32_t kOccupancyMaxMs = 3'600'000;
constexpr std::uint32_t kOccupancyDefaultMs = 1000;

absl::Status SlowWatcher(std::uint64_t cursor, std::uint64_t oldest) {
  absl::Status status =
      Error(absl::StatusCode::kResourceExhausted, Reason::kSlowWatcher,
            Cat("events came faster than this watcher read them: it has those up to ", cursor,
                ", kept are those from ", oldest, "; watch again, with a narrower filter"));
  return WithDetail(WithDetail(status, "last_sequence", Cat(cursor)), "oldest_sequence",
                    Cat(oldest));
}

absl::Status Stopping() {
  return WithRetry(
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is stopping"),
      std::chrono::milliseconds(1000));
}

}  // namespace

WatchHub::WatchHub(core::Manager& manager, CoreGate gate, bool tenant_view,
                   std::size_t watchers_max)
    : manager_(manager), gate_(gate), tenant_view_(tenant_view), watchers_max_(watchers_max) {}

WatchHub::~WatchHub() = default;

// --- home's thread ------------------------------------------------------------------------------

void WatchHub::Serve(WatchStreamPtr stream) {
  if (ending_) return stream->Finish(Stopping());
  auto watcher = std::make_shared<Watcher>();
  watcher->stream = stream;
  if (const auto token = stream->Metadata(kTokenKey)) watcher->token.emplace(*token);
  streams_.insert(stream);
  stream->OnEnd([this, watcher, alive = std::weak_ptr<int>(alive_)] {
    streams_.erase(watcher->stream);
    gate_.LaterOnCore([this, watcher, alive] {
      if (!alive.expired()) Remove(watcher->id);
    });
  });
  gate_.ToCore([this, watcher] { Add(watcher); });
}

void WatchHub::End() {
  ending_ = true;
  const std::set<WatchStreamPtr> streams = streams_;
  for (const WatchStreamPtr& stream : streams) stream->Finish(Stopping());
}

// --- core's thread ------------------------------------------------------------------------------

void WatchHub::Add(const WatcherPtr& watcher) {
  absl::Status status = Configure(*watcher);
  if (status.ok() && watchers_.size() >= watchers_max_) {
    status = WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                             Cat("already ", watchers_.size(), " watchers of this socket")),
                       std::chrono::milliseconds(1000));
  }
  if (!status.ok()) {
    return gate_.ToHome([watcher, status] { watcher->stream->Finish(status); });
  }
  watcher->id = next_++;
  watchers_.emplace(watcher->id, watcher);
  if (!subscription_.has_value()) {
    subscription_ = manager_.events().Subscribe([this] {
      const auto watchers = watchers_;
      for (const auto& [id, one] : watchers) Pump(one);
    });
  }
  SampleLater(watcher);
  Pump(watcher);
}

void WatchHub::Remove(std::uint64_t id) {
  watchers_.erase(id);
  if (!watchers_.empty() || !subscription_.has_value()) return;
  manager_.events().Unsubscribe(*subscription_);
  subscription_.reset();
}

absl::Status WatchHub::ConfigureTypes(Watcher& watcher) const {
  const v1::WatchRequest& request = watcher.stream->request();
  if (request.types().empty()) watcher.types.fill(true);
  for (const int type : request.types()) {
    if (type == v1::EVENT_TYPE_UNSPECIFIED || !v1::EventType_IsValid(type)) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kBadEnum,
                   Cat("types: ", type, " is no event type that this daemon knows"));
    }
    watcher.types[static_cast<std::size_t>(type)] = true;
  }
  const std::uint32_t ms = request.occupancy_ms();
  if (ms != 0 && (ms < kOccupancyMinMs || ms > kOccupancyMaxMs)) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
        Cat("occupancy_ms = ", ms, "; ask for ", kOccupancyMinMs, " to ", kOccupancyMaxMs));
  }
  const bool named = !request.types().empty() && watcher.types[v1::EVENT_TYPE_OCCUPANCY];
  if (ms != 0) {
    watcher.occupancy = std::chrono::milliseconds(ms);
  } else if (named) {
    watcher.occupancy = std::chrono::milliseconds(kOccupancyDefaultMs);
  }
  return absl::OkStatus();
}

absl::Status WatchHub::Configure(Watcher& watcher) const {
  const v1::WatchRequest& request = watcher.stream->request();
  if (tenant_view_) {
    HMM_ASSIGN_OR_RETURN(const SessionId session, Authenticate(manager_, watcher.token));
    HMM_ASSIGN_OR_RETURN(watcher.tenant, manager_.TenantOf(session, request.tenant()));
  } else if (!request.tenant().empty()) {
    HMM_ASSIGN_OR_RETURN(watcher.tenant, manager_.TenantOf(std::nullopt, request.tenant()));
  }
  HMM_RETURN_IF_ERROR(ConfigureTypes(watcher));
  if (!request.tier().empty()) {
    HMM_ASSIGN_OR_RETURN(watcher.tier, manager_.TierByName(request.tier()));
    watcher.tier_name = request.tier();
  }
  const core::EventBus& events = manager_.events();
  watcher.cursor = events.last();
  if (!request.has_after_sequence()) return absl::OkStatus();
  const std::uint64_t after = request.after_sequence();
  if (after > events.last() || after + 1 < events.oldest()) {
    return Error(absl::StatusCode::kOutOfRange, Reason::kEventsGone,
                 Cat("events after ", after, " are not kept; kept are ", events.oldest(), " to ",
                     events.last(), " of this start of the daemon"));
  }
  watcher.cursor = after;
  return absl::OkStatus();
}

bool WatchHub::Passes(const Watcher& watcher, const core::Event& event) const {
  if (!watcher.types[static_cast<std::size_t>(event.type)]) return false;
  if (event.type == core::EventType::kAdmin && (tenant_view_ || watcher.tier.has_value())) {
    return false;
  }
  // What is of no tenant is about a tier, or the operator's doing.
  if (watcher.tenant.has_value() && event.tenant != core::kNoTenant &&
      event.tenant != *watcher.tenant) {
    return false;
  }
  if (!watcher.tier.has_value() || event.tier == *watcher.tier) return true;
  return event.type == core::EventType::kMove && event.move.to == *watcher.tier;
}

bool WatchHub::Alive(const Watcher& watcher) const {
  return !tenant_view_ || Authenticate(manager_, watcher.token).ok();
}

std::optional<SessionId> WatchHub::ViewerOf(const Watcher& watcher) const {
  if (!tenant_view_) return std::nullopt;
  const auto session = Authenticate(manager_, watcher.token);
  return session.ok() ? std::optional<SessionId>(*session) : std::nullopt;
}

// False: there is nothing to send.
bool WatchHub::Fill(Watcher& watcher, v1::WatchResponse& out) const {
  const core::EventBus& events = manager_.events();
  std::size_t looks = kLooksPerMessage;
  while (watcher.cursor < events.last() && looks-- > 0 &&
         out.events_size() < static_cast<int>(kEventsPerMessage)) {
    const core::Event& event = events.at(++watcher.cursor);
    if (!Passes(watcher, event)) continue;
    v1::Event& to = *out.add_events();
    Encode(event, manager_, to);
    // Whose call it was that needed room is another tenant's business.
    if (tenant_view_ && to.has_move()) to.mutable_move()->mutable_move()->clear_for_session();
  }
  if (std::exchange(watcher.sample_due, false)) {
    v1::Event& to = *out.add_events();
    to.set_time_us(
        UnixUs(std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now())));
    EncodeOccupancy(manager_.ListTiers(ViewerOf(watcher)), watcher.tier_name,
                    *to.mutable_occupancy());
  }
  out.set_epoch(manager_.boot_epoch());
  out.set_sequence(watcher.cursor);
  return !out.events().empty() || !std::exchange(watcher.greeted, true);
}

void WatchHub::Pump(const WatcherPtr& watcher) {
  if (!watchers_.contains(watcher->id)) return;
  const std::uint64_t oldest = manager_.events().oldest();
  if (watcher->cursor + 1 < oldest) return Drop(watcher, SlowWatcher(watcher->cursor, oldest));
  if (!Alive(*watcher)) {
    return Drop(watcher, Error(absl::StatusCode::kUnauthenticated, Reason::kUnknownSession,
                               "the session has ended; attach again"));
  }
  if (watcher->writing) return;
  v1::WatchResponse out;
  if (!Fill(*watcher, out)) {
    // It looked at as many as one turn may, and none was for it: on, when others had theirs.
    if (watcher->cursor < manager_.events().last()) {
      gate_.LaterOnCore([this, watcher, alive = std::weak_ptr<int>(alive_)] {
        if (!alive.expired()) Pump(watcher);
      });
    }
    return;
  }
  watcher->greeted = true;
  watcher->writing = true;
  gate_.ToHome([this, watcher, out = std::move(out), alive = std::weak_ptr<int>(alive_)] {
    watcher->stream->Write(out, [this, watcher, alive](bool ok) {
      if (alive.expired()) return;
      gate_.LaterOnCore([this, watcher, ok, alive] {
        if (alive.expired()) return;
        watcher->writing = false;
        if (ok) Pump(watcher);
      });
    });
  });
}

void WatchHub::Drop(const WatcherPtr& watcher, const absl::Status& why) {
  Remove(watcher->id);
  gate_.ToHome([watcher, why, gate = gate_] {
    watcher->stream->Finish(why);
    // A client that does not read does not let go of its message either.
    gate.AfterOnHome(kBreakAfter, [stream = watcher->stream] { stream->Break(); });
  });
}

void WatchHub::SampleLater(const WatcherPtr& watcher) {
  if (watcher->occupancy == Duration{}) return;
  gate_.AfterOnCore(watcher->occupancy, [this, watcher, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired() || !watchers_.contains(watcher->id)) return;
    // A watcher that is behind gets one when it has caught up, not one for each that it missed.
    watcher->sample_due = true;
    Pump(watcher);
    SampleLater(watcher);
  });
}

}  // namespace hmm::daemon
