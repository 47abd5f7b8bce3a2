// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/stat_live.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/ctl/table.h"

namespace hmm::ctl {
namespace {

constexpr std::size_t kBar = 20;

std::string Bar(double use) {
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(use, 0.0, 1.0) * kBar));
  return std::string(full, '#') + std::string(kBar - full, '.');
}

Tint TintOf(const v1::GetStatusResponse& status, const std::string& name, double use) {
  for (const v1::TierInfo& tier : status.tiers()) {
    if (tier.name() != name) continue;
    if (tier.state() == "offline") return Tint::kBad;
    return use > tier.high_watermark() || tier.state() != "online" ? Tint::kWarn : Tint::kGood;
  }
  return Tint::kNone;
}

std::string TierLines(const LiveFrame& frame) {
  Table table({{"TIER"},
               {"KIND"},
               {"USE"},
               {"", true},
               {"USED", true},
               {"CAPACITY", true},
               {"PINNED", true},
               {"HITS/s", true},
               {"IN/s", true},
               {"OUT/s", true},
               {"BYTES-IN", true},
               {"BYTES-OUT", true}});
  const StatReport& report = frame.report;
  for (const StatTier& tier : report.tiers) {
    const double use = tier.capacity_bytes == 0 ? 0
                                                : static_cast<double>(tier.used_bytes) /
                                                      static_cast<double>(tier.capacity_bytes);
    const Tint tint = TintOf(frame.status, tier.name, use);
    table.AddRow({tier.name, tier.emulated ? tier.kind + "(emulated)" : tier.kind,
                  Cell(Bar(use), "", tint), Percent(use), Size(tier.used_bytes),
                  Size(tier.capacity_bytes), Size(tier.pinned_bytes),
                  absl::StrFormat("%.1f", report.PerSecond(tier.hits)),
                  absl::StrFormat("%.1f", report.PerSecond(tier.moves_in)),
                  absl::StrFormat("%.1f", report.PerSecond(tier.moves_out)),
                  Rate(report.PerSecond(tier.bytes_in)), Rate(report.PerSecond(tier.bytes_out))});
  }
  return table.ToString({.colour = frame.colour});
}

// Links that have something to do.
std::string LinkLines(const v1::GetStatusResponse& status) {
  Table table({{"LINK"}, {"RUNNING", true}, {"QUEUED", true}, {"FAILED", true}});
  bool any = false;
  for (const v1::LinkInfo& link : status.links()) {
    if (link.running() == 0 && link.queued() == 0) continue;
    any = true;
    table.AddRow({absl::StrCat(link.from(), "->", link.to()), absl::StrCat(link.running()),
                  absl::StrCat(link.queued()), absl::StrCat(link.failed_moves())});
  }
  return any ? "\n" + table.ToString() : "";
}

// Those that pin most stand first.
std::string SessionLines(const v1::ListSessionsResponse& sessions) {
  std::vector<const v1::SessionInfo*> order;
  for (const v1::SessionInfo& session : sessions.sessions()) order.push_back(&session);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->pinned_bytes() > b->pinned_bytes();
  });
  Table table({{"SESSION", true},
               {"PID", true},
               {"TENANT"},
               {"STATE"},
               {"PINNED", true},
               {"PINS", true},
               {"OWNS", true},
               {"AGE", true},
               {"COMMAND"}});
  for (const v1::SessionInfo* session : order) {
    table.AddRow({absl::StrCat(session->session()), absl::StrCat(session->pid()), session->tenant(),
                  session->state(), Size(session->pinned_bytes()), absl::StrCat(session->pins()),
                  absl::StrCat(session->tensors()), Time(session->age_ms()),
                  EscapeKey(session->command())});
  }
  return order.empty() ? "" : "\n" + table.ToString();
}

// The first `columns` characters; a colour that was begun ends.
std::string Cut(const std::string& line, std::size_t columns) {
  std::string out;
  std::size_t shown = 0;
  bool tinted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      const std::size_t end = std::min(line.find('m', i), line.size() - 1);
      tinted = line.compare(i, end - i + 1, "\x1b[0m") != 0;
      out += line.substr(i, end - i + 1);
      i = end;
    } else if (shown < columns) {
      out += line[i];
      ++shown;
    } else {
      break;
    }
  }
  return tinted ? out + "\x1b[0m" : out;
}

}  // namespace

std::string LiveScreen(const LiveFrame& frame, const WindowSize& size) {
  const v1::GetStatusResponse& status = frame.status;
  const StatReport& report = frame.report;
  std::string text = absl::StrFormat(
      "hmmd %s  up %s  sessions %d  tensors %d  pins %d%s  (every %gs; Ctrl-C ends)\n"
      "lookups %.1f/s  misses %.1f/s  allocations %.1f/s  evictions %.1f/s\n\n",
      status.version().empty() ? "-" : status.version(), TimeCell(status.uptime_ms()),
      status.sessions(), status.tensors(), status.pins(), status.draining() ? "  DRAINING" : "",
      frame.interval_s, report.PerSecond(report.lookups), report.PerSecond(report.misses),
      report.PerSecond(report.allocations), report.PerSecond(report.evictions));
  absl::StrAppend(&text, TierLines(frame), LinkLines(status), SessionLines(frame.sessions));
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  // The last row stays free: a line end there would scroll.
  const auto rows = static_cast<std::size_t>(std::max(size.rows - 1, 1));
  if (lines.size() > rows) lines.resize(rows);
  std::string out;
  for (const std::string& line : lines) {
    absl::StrAppend(&out, Cut(line, static_cast<std::size_t>(std::max(size.columns, 1))),
                    "\x1b[K\n");
  }
  return out;
}

}  // namespace hmm::ctl
