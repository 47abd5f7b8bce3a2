// SPDX-License-Identifier: Apache-2.0
//
// Tables for people: sizes base 1024, "-" for what is empty. Emulated HBM is called so everywhere.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/ctl/printer.h"
#include "client/ctl/table.h"

namespace hmm::ctl {
namespace {

std::string KindCell(const std::string& kind, bool emulated) {
  return emulated ? kind + "(emulated)" : kind;
}

template <typename Tiers>
std::string TierTable(const Tiers& tiers, const TableStyle& style) {
  Table table({{"TIER"},
               {"KIND"},
               {"BACKEND"},
               {"STATE"},
               {"CAPACITY", true},
               {"USED", true},
               {"USE", true},
               {"PINNED", true},
               {"HIGH", true},
               {"LOW", true},
               {"TENSORS", true},
               {"HITS", true},
               {"NOTE"}});
  for (const v1::TierInfo& tier : tiers) {
    const double use = tier.capacity_bytes() == 0 ? 0
                                                  : static_cast<double>(tier.used_bytes()) /
                                                        static_cast<double>(tier.capacity_bytes());
    table.AddRow({tier.name(), KindCell(KindWord(tier.kind()), tier.emulated()), tier.backend(),
                  StateCell(tier.state()), Size(tier.capacity_bytes()), Size(tier.used_bytes()),
                  Percent(use, use > tier.high_watermark() ? Tint::kWarn : Tint::kNone),
                  Size(tier.pinned_bytes()), Percent(tier.high_watermark()),
                  Percent(tier.low_watermark()), absl::StrCat(tier.tensors()),
                  absl::StrCat(tier.hits()), tier.note()});
  }
  return table.ToString(style);
}

std::string Flags(const v1::TensorInfo& tensor) {
  std::string flags;
  if (tensor.sealed()) flags += "s";
  if (tensor.droppable()) flags += "d";
  if (tensor.owner_session() != 0) flags += "o";
  if (tensor.reserved()) flags += "r";
  return flags;
}

std::string PinsCell(const v1::TensorInfo& tensor) {
  std::uint64_t pins = 0;
  for (const v1::TensorInfo::SessionPins& session : tensor.pins()) pins += session.pins();
  return absl::StrCat(pins);
}

std::string Share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "";
  return PercentCell(static_cast<double>(part) / static_cast<double>(whole));
}

std::string PercentileText(const Histogram& histogram) {
  if (histogram.count() == 0) return "-";
  const auto cell = [](std::uint64_t us) {
    return us < 10'000 ? absl::StrCat(us, "us") : TimeCell(us / 1000);
  };
  return absl::StrCat(cell(histogram.Percentile(0.50)), " / ", cell(histogram.Percentile(0.99)));
}

std::string RateText(std::uint64_t bytes, double seconds) {
  if (bytes == 0) return "";
  return absl::StrFormat("%.3gGB/s", static_cast<double>(bytes) / seconds / 1e9);
}

class TablePrinter final : public Printer {
 public:
  explicit TablePrinter(const TableStyle& style) : style_(style) {}

  std::string Status(const v1::GetStatusResponse& status) override {
    std::string out =
        absl::StrFormat("hmmd %s  epoch %d  up %s  sessions %d  pins %d  tensors %d%s\n\n",
                        status.version().empty() ? "-" : status.version(), status.epoch(),
                        TimeCell(status.uptime_ms()), status.sessions(), status.pins(),
                        status.tensors(), status.draining() ? "  draining" : "");
    out += TierTable(status.tiers(), style_);
    Table links({{"LINK"},
                 {"MOVES", true},
                 {"FAILED", true},
                 {"MOVED", true},
                 {"RATE", true},
                 {"QUEUED", true},
                 {"RUNNING", true}});
    for (const v1::LinkInfo& link : status.links()) {
      const double busy_s = static_cast<double>(link.busy_us()) / 1e6;
      links.AddRow({absl::StrCat(link.from(), "->", link.to()), absl::StrCat(link.moves()),
                    absl::StrCat(link.failed_moves()), Size(link.moved_bytes()),
                    busy_s > 0 ? Rate(static_cast<double>(link.moved_bytes()) / busy_s) : "",
                    absl::StrCat(link.queued()), absl::StrCat(link.running())});
    }
    out += "\n" + links.ToString(style_);
    const v1::Counters& counters = status.counters();
    out += absl::StrFormat(
        "\nlookups %d  hits %d  misses %d  evictions %d  demotions %d  promotions "
        "%d  lost %d\n",
        counters.lookups(), counters.lookup_hits(), counters.misses(), counters.evictions(),
        counters.demotions(), counters.promotions(), counters.lost_tensors());
    return out;
  }

  std::string Tiers(const v1::ListTiersResponse& tiers) override {
    return TierTable(tiers.tiers(), style_);
  }

  std::string Tensors(const v1::ListTensorsResponse& page, bool first, bool) override {
    Table table({{"HANDLE", false, 14},
                 {"KIND", false, 15},
                 {"STATE", false, 8},
                 {"TIER", false, 6},
                 {"SIZE", true, 8},
                 {"PINS", true},
                 {"FLAGS"},
                 {"TENANT", false, 8},
                 {"AGE", true, 6},
                 {"IDLE", true, 6},
                 {"KEY"}});
    for (const v1::TensorInfo& tensor : page.tensors()) {
      table.AddRow({absl::StrCat(tensor.handle()), KindWord(tensor.kind()),
                    StateWord(tensor.state()), tensor.tier_name(), Size(tensor.bytes()),
                    PinsCell(tensor), Flags(tensor), tensor.tenant(), Time(tensor.age_ms()),
                    Time(tensor.idle_ms()), EscapeKey(tensor.key())});
    }
    return table.ToString(Styled(first));
  }

  std::string Tensor(std::uint64_t, const v1::TensorInfo& tensor) override {
    std::vector<std::string> pins;
    for (const v1::TensorInfo::SessionPins& session : tensor.pins()) {
      pins.push_back(absl::StrCat("session ", session.session(), ": ", session.pins()));
    }
    Table table({{"FIELD"}, {"VALUE"}});
    table.AddRow({"handle", absl::StrCat(tensor.handle())});
    table.AddRow({"key", EscapeKey(tensor.key())});
    table.AddRow({"kind", KindWord(tensor.kind())});
    table.AddRow({"state", StateWord(tensor.state())});
    table.AddRow({"tier", tensor.tier_name()});
    table.AddRow({"size", absl::StrCat(SizeCell(tensor.bytes()), " (", tensor.bytes(), " B)")});
    table.AddRow({"sealed", tensor.sealed() ? "yes" : "no"});
    table.AddRow({"droppable", tensor.droppable() ? "yes" : "no"});
    table.AddRow({"priority", absl::StrCat(tensor.priority())});
    table.AddRow(
        {"recompute", tensor.recompute_us() == 0 ? "" : absl::StrCat(tensor.recompute_us(), "us")});
    table.AddRow({"tenant", tensor.tenant()});
    table.AddRow({"owner", tensor.owner_session() == 0
                               ? "tenant"
                               : absl::StrCat("session ", tensor.owner_session())});
    table.AddRow({"pins", absl::StrJoin(pins, ", ")});
    table.AddRow({"age", TimeCell(tensor.age_ms())});
    table.AddRow({"idle", TimeCell(tensor.idle_ms())});
    table.AddRow({"clean copies", absl::StrCat(tensor.clean_copies_size())});
    return table.ToString();
  }

  std::string Sessions(const v1::ListSessionsResponse& sessions) override {
    Table table({{"SESSION", true},
                 {"TENANT"},
                 {"UID", true},
                 {"PID", true},
                 {"STATE"},
                 {"PINS", true},
                 {"PINNED", true},
                 {"OLDEST-PIN", true},
                 {"OWNS", true},
                 {"AGE", true},
                 {"COMMAND"}});
    for (const v1::SessionInfo& session : sessions.sessions()) {
      table.AddRow({absl::StrCat(session.session()), session.tenant(), absl::StrCat(session.uid()),
                    absl::StrCat(session.pid()), session.state(), absl::StrCat(session.pins()),
                    Size(session.pinned_bytes()),
                    session.oldest_pin_ms() == 0 ? Cell("") : Time(session.oldest_pin_ms()),
                    absl::StrCat(session.tensors()), Time(session.age_ms()),
                    EscapeKey(session.command())});
    }
    return table.ToString(style_);
  }

  std::string Stat(const StatReport& report) override {
    const bool header = !stat_header_shown_;
    stat_header_shown_ = true;
    Table table({{"TIER", false, 8},
                 {"KIND", false, 13},
                 {"CAPACITY", true},
                 {"USED", true, 8},
                 {"PINNED", true, 8},
                 {"HITS/s", true, 8},
                 {"IN/s", true, 6},
                 {"OUT/s", true, 6},
                 {"BYTES-IN", true, 11},
                 {"BYTES-OUT", true, 11}});
    for (const StatTier& tier : report.tiers) {
      table.AddRow({tier.name, KindCell(tier.kind, tier.emulated), Size(tier.capacity_bytes),
                    Size(tier.used_bytes), Size(tier.pinned_bytes),
                    absl::StrFormat("%.1f", report.PerSecond(tier.hits)),
                    absl::StrFormat("%.1f", report.PerSecond(tier.moves_in)),
                    absl::StrFormat("%.1f", report.PerSecond(tier.moves_out)),
                    Rate(report.PerSecond(tier.bytes_in)), Rate(report.PerSecond(tier.bytes_out))});
    }
    if (style_.tabs) return table.ToString(style_);
    return table.ToString(Styled(header)) +
           absl::StrFormat(
               "over %.1fs: lookups %.1f/s  misses %.1f/s  allocations %.1f/s  evictions "
               "%.1f/s\n",
               report.seconds, report.PerSecond(report.lookups), report.PerSecond(report.misses),
               report.PerSecond(report.allocations), report.PerSecond(report.evictions));
  }

  std::string Evict(const std::string& tier, const v1::EvictResponse& done) override {
    if (done.tensors() + done.freed_bytes() + done.pinned_tensors() + done.kept_tensors() == 0) {
      return tier + ": nothing had to go\n";
    }
    const std::uint64_t moved = done.tensors() - std::min(done.tensors(), done.dropped_tensors());
    std::string out = tier + ": ";
    if (moved > 0 || done.dropped_tensors() == 0) {
      absl::StrAppend(&out, moved, " tensors moved out, ");
    }
    if (done.dropped_tensors() > 0) {
      absl::StrAppend(&out, done.dropped_tensors(), " tensors dropped, ");
    }
    absl::StrAppend(&out, SizeCell(done.freed_bytes()), " freed, ", done.pinned_tensors(),
                    " pinned had to stay");
    if (done.kept_tensors() > 0) {
      absl::StrAppend(&out, ", ", done.kept_tensors(), " too: no room below, and not droppable");
    }
    return out + "\n";
  }

  std::string Watermarks(const v1::SetWatermarksRequest& set,
                         const v1::SetWatermarksResponse&) override {
    std::string out = absl::StrFormat("%s: high %s, low %s", set.tier(), PercentCell(set.high()),
                                      PercentCell(set.low()));
    if (set.has_reserve_bytes()) out += ", reserve " + SizeCell(set.reserve_bytes());
    return out + "\n";
  }

  std::string Drain(bool off, const v1::DrainResponse& done) override {
    return absl::StrFormat("%s, %d sessions attached\n", off ? "serving" : "draining",
                           done.sessions());
  }

  std::string Replay(const ReplayReport& report) override;

  std::string Forecast(const LruForecast& forecast) override {
    Table table({{"LRU FORECAST"}, {"BLOCKS", true}, {"SHARE", true}});
    table.AddRow({"requests", absl::StrCat(forecast.requests), ""});
    table.AddRow({"accesses", absl::StrCat(forecast.accesses), ""});
    table.AddRow({"unique", absl::StrCat(forecast.unique_blocks), ""});
    for (std::size_t i = 0; i < forecast.hits.size(); ++i) {
      table.AddRow({absl::StrCat("hits in tier ", i), absl::StrCat(forecast.hits[i]),
                    Share(forecast.hits[i], forecast.accesses)});
    }
    table.AddRow(
        {"misses", absl::StrCat(forecast.misses), Share(forecast.misses, forecast.accesses)});
    table.AddRow({"dropped", absl::StrCat(forecast.dropped), ""});
    return table.ToString();
  }

 private:
  TableStyle Styled(bool header) const {
    TableStyle style = style_;
    style.header = style.header && header;
    return style;
  }

  const TableStyle style_;
  bool stat_header_shown_ = false;
};

std::string TablePrinter::Replay(const ReplayReport& report) {
  const ReplayTally& tally = report.tally;
  const double seconds = report.seconds > 0 ? report.seconds : 1e-9;
  Table table({{"REPLAY"}, {"VALUE", true}, {"SHARE", true}, {"RATE", true}});
  const auto blocks = [&](const std::string& name, std::uint64_t count) {
    table.AddRow({name, absl::StrCat(count), Share(count, tally.accesses), ""});
  };
  table.AddRow({"requests", absl::StrCat(tally.requests), "",
                absl::StrFormat("%.1f/s", static_cast<double>(tally.requests) / seconds)});
  table.AddRow({"accesses", absl::StrCat(tally.accesses), "",
                absl::StrFormat("%.1f/s", static_cast<double>(tally.accesses) / seconds)});
  blocks(absl::StrCat("hits in ", KindCell("hbm", report.hbm_emulated)), tally.hits[0]);
  blocks("hits in ddr", tally.hits[1]);
  blocks("hits in flash", tally.hits[2]);
  blocks("misses", tally.misses);
  blocks("misses stored", tally.stored);
  blocks("misses already there", tally.present);
  blocks("misses unstored (no room)", tally.unstored);
  const auto moved = [&](const char* name, std::uint64_t ReplayTraffic::*member) {
    if (!report.traffic) {
      table.AddRow({name, "", "", ""});
      return;
    }
    const std::uint64_t bytes = (*report.traffic).*member;
    table.AddRow({name, SizeCell(bytes), "", RateText(bytes, seconds)});
  };
  moved("moved hbm->ddr", &ReplayTraffic::hbm_to_ddr);
  moved("moved ddr->hbm", &ReplayTraffic::ddr_to_hbm);
  moved("moved ddr->flash", &ReplayTraffic::ddr_to_flash);
  moved("moved flash->ddr", &ReplayTraffic::flash_to_ddr);
  table.AddRow(
      {"evictions", report.traffic ? absl::StrCat(report.traffic->evictions) : "", "", ""});
  table.AddRow(
      {"verified", SizeCell(tally.verified_bytes), "", RateText(tally.verified_bytes, seconds)});
  table.AddRow({"wrong bytes", absl::StrCat(tally.wrong_bytes), "", ""});
  table.AddRow({"errors", absl::StrCat(tally.errors), "", ""});
  table.AddRow({"seconds", absl::StrFormat("%.2f", report.seconds), "", ""});
  return table.ToString() +
         absl::StrFormat("per request, p50 / p99: hits pinned in %s, misses stored in %s\n",
                         PercentileText(tally.hit_us), PercentileText(tally.miss_us));
}

}  // namespace

std::unique_ptr<Printer> MakeTablePrinter(const TableStyle& style) {
  return std::make_unique<TablePrinter>(style);
}

}  // namespace hmm::ctl
