// SPDX-License-Identifier: Apache-2.0
//
// hmmctl events.
#include "base/status.h"
#include "client/ctl/event_text.h"
#include "client/ctl/select.h"
#include "client/ctl/stop_signal.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {
namespace {

v1::WatchRequest RequestOf(const EventArgs& args) {
  v1::WatchRequest request;
  for (const std::string& type : args.types) request.add_types(EventTypeOf(type));
  request.set_occupancy_ms(args.occupancy_ms);
  if (args.after) request.set_after_sequence(*args.after);
  request.set_tier(args.tier);
  request.set_tenant(args.tenant);
  return request;
}

// With the reason by which docs and other clients know it, and the options that help.
absl::Status Explained(const absl::Status& ended) {
  const std::optional<Reason> reason = ReasonOf(ended);
  std::string_view help;
  if (reason == Reason::kSlowWatcher) help = " (--type, --tier, --tenant)";
  if (reason == Reason::kEventsGone) help = "; list anew, then watch without --after";
  if (help.empty()) return ended;
  const std::string message(ended.message());
  return Error(ended.code(), *reason,
               std::string(ReasonName(*reason)) + ": " + message + std::string(help));
}

}  // namespace

absl::StatusOr<int> RunEvents(const Command& command) {
  StopSignal stop;  // before gRPC starts its threads
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  bool first = true;
  std::uint64_t left = command.events.count;
  const auto print = [&](const v1::WatchResponse& response) -> absl::StatusOr<bool> {
    v1::WatchResponse events = response;
    if (left > 0 && static_cast<std::uint64_t>(events.events_size()) > left) {
      events.mutable_events()->DeleteSubrange(static_cast<int>(left),
                                              events.events_size() - static_cast<int>(left));
    }
    // The first response has no events: whoever reads the header knows that the watch has begun.
    HMM_RETURN_IF_ERROR(WriteOut(command.format == Format::kJson
                                     ? EventsJson(events)
                                     : EventsTable(events, command.style, first)));
    first = false;
    if (left == 0) return true;
    left -= static_cast<std::uint64_t>(events.events_size());
    return left > 0;
  };
  HMM_RETURN_IF_ERROR(Explained((*link)->Watch(RequestOf(command.events), stop.token(), print)));
  return 0;
}

}  // namespace hmm::ctl
