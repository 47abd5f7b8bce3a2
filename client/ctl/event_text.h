// SPDX-License-Identifier: Apache-2.0
//
// What `hmmctl events` and `hmmctl explain` write. Pure.
#pragma once

#include <string>

#include "client/ctl/table.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

// One line an event (occupancy: one a tier), in columns that line up from call to call.
std::string EventsTable(const v1::WatchResponse& events, const TableStyle& style, bool first);
// One JSON object a line.
std::string EventsJson(const v1::WatchResponse& events);

std::string ExplainTable(const v1::ExplainResponse& why, const TableStyle& style);
std::string ExplainJson(const v1::ExplainResponse& why);

// "demand", "admin_evict"; "moved", "taken_back".
std::string CauseWord(v1::MoveCause cause);
std::string OutcomeWord(v1::MoveOutcome outcome);
// "2026-11-30T21:04:05.123", local time; "-" for 0.
std::string ClockText(std::int64_t time_us);

}  // namespace hmm::ctl
