// SPDX-License-Identifier: Apache-2.0
//
// JSON: sizes and counts exact, keys in a fixed order. `stat` writes one object a line, the rest
// are indented.
#include <nlohmann/json.hpp>

#include "client/ctl/json_text.h"
#include "client/ctl/printer.h"
#include "client/ctl/table.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;

ordered_json TierToJson(const v1::TierInfo& tier) {
  ordered_json out;
  out["name"] = tier.name();
  out["kind"] = KindWord(tier.kind());
  out["backend"] = tier.backend();
  out["emulated"] = tier.emulated();
  out["capacity_bytes"] = tier.capacity_bytes();
  out["used_bytes"] = tier.used_bytes();
  out["pinned_bytes"] = tier.pinned_bytes();
  out["high_watermark"] = tier.high_watermark();
  out["low_watermark"] = tier.low_watermark();
  out["state"] = tier.state();
  out["note"] = tier.note();
  out["reserve_bytes"] = tier.reserve_bytes();
  out["free_bytes"] = tier.free_bytes();
  out["committed_free_bytes"] = tier.committed_free_bytes();
  out["creating_bytes"] = tier.creating_bytes();
  out["resident_bytes"] = tier.resident_bytes();
  out["moving_bytes"] = tier.moving_bytes();
  out["reserved_bytes"] = tier.reserved_bytes();
  out["clean_copy_bytes"] = tier.clean_copy_bytes();
  out["tensors"] = tier.tensors();
  out["hits"] = tier.hits();
  return out;
}

template <typename Tiers>
ordered_json TiersToJson(const Tiers& tiers) {
  ordered_json out = ordered_json::array();
  for (const v1::TierInfo& tier : tiers) out.push_back(TierToJson(tier));
  return out;
}

ordered_json LinkToJson(const v1::LinkInfo& link) {
  ordered_json out;
  out["from"] = link.from();
  out["to"] = link.to();
  out["moves"] = link.moves();
  out["failed_moves"] = link.failed_moves();
  out["moved_bytes"] = link.moved_bytes();
  out["busy_us"] = link.busy_us();
  out["queued"] = link.queued();
  out["running"] = link.running();
  return out;
}

ordered_json CountersToJson(const v1::Counters& counters) {
  ordered_json out;
  out["allocations"] = counters.allocations();
  out["allocation_failures"] = counters.allocation_failures();
  out["lookups"] = counters.lookups();
  out["lookup_hits"] = counters.lookup_hits();
  out["misses"] = counters.misses();
  out["evictions"] = counters.evictions();
  out["demotions"] = counters.demotions();
  out["promotions"] = counters.promotions();
  out["cancelled_demotions"] = counters.cancelled_demotions();
  out["clean_drops"] = counters.clean_drops();
  out["taken_back_moves"] = counters.taken_back_moves();
  out["lost_tensors"] = counters.lost_tensors();
  out["expelled_sessions"] = counters.expelled_sessions();
  out["reaped_sessions"] = counters.reaped_sessions();
  out["ahead_taken_back"] = counters.ahead_taken_back();
  return out;
}

}  // namespace

ordered_json TensorToJson(const v1::TensorInfo& tensor) {
  ordered_json out;
  out["handle"] = tensor.handle();
  out["key"] = EscapeKey(tensor.key());
  out["kind"] = KindWord(tensor.kind());
  out["state"] = StateWord(tensor.state());
  out["tier"] = tensor.tier_name();
  out["bytes"] = tensor.bytes();
  out["sealed"] = tensor.sealed();
  out["reserved"] = tensor.reserved();
  out["droppable"] = tensor.droppable();
  out["priority"] = tensor.priority();
  out["recompute_us"] = tensor.recompute_us();
  out["tenant"] = tensor.tenant();
  out["owner_session"] = tensor.owner_session();
  out["pins"] = ordered_json::array();
  for (const v1::TensorInfo::SessionPins& pins : tensor.pins()) {
    ordered_json one;
    one["session"] = pins.session();
    one["pins"] = pins.pins();
    out["pins"].push_back(std::move(one));
  }
  out["age_ms"] = tensor.age_ms();
  out["idle_ms"] = tensor.idle_ms();
  out["clean_copies"] = ordered_json::array();
  for (const std::uint32_t tier : tensor.clean_copies()) out["clean_copies"].push_back(tier);
  return out;
}

namespace {

ordered_json PercentilesToJson(const Histogram& histogram) {
  ordered_json out;
  out["count"] = histogram.count();
  out["p50"] = histogram.Percentile(0.50);
  out["p99"] = histogram.Percentile(0.99);
  return out;
}

class JsonPrinter final : public Printer {
 public:
  std::string Status(const v1::GetStatusResponse& status) override {
    ordered_json out;
    out["epoch"] = status.epoch();
    out["sessions"] = status.sessions();
    out["pins"] = status.pins();
    out["tensors"] = status.tensors();
    out["tiers"] = TiersToJson(status.tiers());
    out["links"] = ordered_json::array();
    for (const v1::LinkInfo& link : status.links()) out["links"].push_back(LinkToJson(link));
    out["counters"] = CountersToJson(status.counters());
    out["version"] = status.version();
    out["uptime_ms"] = status.uptime_ms();
    out["draining"] = status.draining();
    return Document(out);
  }

  std::string Tiers(const v1::ListTiersResponse& tiers) override {
    ordered_json out;
    out["epoch"] = tiers.epoch();
    out["tiers"] = TiersToJson(tiers.tiers());
    return Document(out);
  }

  std::string Tensors(const v1::ListTensorsResponse& page, bool first, bool last) override {
    std::string out;
    if (first) out += "{\n  \"epoch\": " + std::to_string(page.epoch()) + ",\n  \"tensors\": [";
    for (const v1::TensorInfo& tensor : page.tensors()) {
      out += any_tensor_ ? ",\n    " : "\n    ";
      any_tensor_ = true;
      out += Dump(TensorToJson(tensor), -1);
    }
    if (last) out += any_tensor_ ? "\n  ]\n}\n" : "]\n}\n";
    return out;
  }

  std::string Tensor(std::uint64_t epoch, const v1::TensorInfo& tensor) override {
    ordered_json out;
    out["epoch"] = epoch;
    out["tensor"] = TensorToJson(tensor);
    return Document(out);
  }

  std::string Sessions(const v1::ListSessionsResponse& sessions) override {
    ordered_json out;
    out["epoch"] = sessions.epoch();
    out["sessions"] = ordered_json::array();
    for (const v1::SessionInfo& session : sessions.sessions()) {
      ordered_json one;
      one["session"] = session.session();
      one["tenant"] = session.tenant();
      one["uid"] = session.uid();
      one["pid"] = session.pid();
      one["command"] = session.command();
      one["state"] = session.state();
      one["pins"] = session.pins();
      one["pinned_bytes"] = session.pinned_bytes();
      one["age_ms"] = session.age_ms();
      one["tensors"] = session.tensors();
      one["oldest_pin_ms"] = session.oldest_pin_ms();
      one["oldest_pin_handle"] = session.oldest_pin_handle();
      out["sessions"].push_back(std::move(one));
    }
    return Document(out);
  }

  std::string Stat(const StatReport& report) override {
    ordered_json out;
    out["epoch"] = report.epoch;
    out["seconds"] = report.seconds;
    out["tiers"] = ordered_json::array();
    for (const StatTier& tier : report.tiers) {
      ordered_json one;
      one["name"] = tier.name;
      one["kind"] = tier.kind;
      one["emulated"] = tier.emulated;
      one["capacity_bytes"] = tier.capacity_bytes;
      one["used_bytes"] = tier.used_bytes;
      one["pinned_bytes"] = tier.pinned_bytes;
      one["hits"] = tier.hits;
      one["moves_in"] = tier.moves_in;
      one["moves_out"] = tier.moves_out;
      one["bytes_in"] = tier.bytes_in;
      one["bytes_out"] = tier.bytes_out;
      out["tiers"].push_back(std::move(one));
    }
    out["lookups"] = report.lookups;
    out["misses"] = report.misses;
    out["allocations"] = report.allocations;
    out["evictions"] = report.evictions;
    return Dump(out, -1) + "\n";
  }

  std::string Evict(const std::string& tier, const v1::EvictResponse& done) override {
    ordered_json out;
    out["epoch"] = done.epoch();
    out["tier"] = tier;
    out["freed_bytes"] = done.freed_bytes();
    out["tensors"] = done.tensors();
    out["pinned_tensors"] = done.pinned_tensors();
    out["kept_tensors"] = done.kept_tensors();
    out["dropped_tensors"] = done.dropped_tensors();
    return Document(out);
  }

  std::string Watermarks(const v1::SetWatermarksRequest& set,
                         const v1::SetWatermarksResponse& done) override {
    ordered_json out;
    out["epoch"] = done.epoch();
    out["tier"] = set.tier();
    out["high_watermark"] = set.high();
    out["low_watermark"] = set.low();
    if (set.has_reserve_bytes()) out["reserve_bytes"] = set.reserve_bytes();
    return Document(out);
  }

  std::string Drain(bool off, const v1::DrainResponse& done) override {
    ordered_json out;
    out["epoch"] = done.epoch();
    out["draining"] = !off;
    out["sessions"] = done.sessions();
    return Document(out);
  }

  std::string Replay(const ReplayReport& report) override;
  std::string Forecast(const LruForecast& forecast) override {
    ordered_json out;
    out["requests"] = forecast.requests;
    out["accesses"] = forecast.accesses;
    out["unique_blocks"] = forecast.unique_blocks;
    out["hits"] = forecast.hits;
    out["misses"] = forecast.misses;
    out["dropped"] = forecast.dropped;
    return Document(out);
  }

 private:
  bool any_tensor_ = false;
};

std::string JsonPrinter::Replay(const ReplayReport& report) {
  const ReplayTally& tally = report.tally;
  ordered_json out;
  out["requests"] = tally.requests;
  out["accesses"] = tally.accesses;
  out["hits"]["hbm"] = tally.hits[0];
  out["hits"]["ddr"] = tally.hits[1];
  out["hits"]["flash"] = tally.hits[2];
  out["misses"] = tally.misses;
  out["verified_bytes"] = tally.verified_bytes;
  out["wrong_bytes"] = tally.wrong_bytes;
  out["errors"] = tally.errors;
  ordered_json& moved = out["moved_bytes"];
  const auto traffic = [&](auto member) {
    return report.traffic ? ordered_json((*report.traffic).*member) : ordered_json(nullptr);
  };
  moved["hbm_to_ddr"] = traffic(&ReplayTraffic::hbm_to_ddr);
  moved["ddr_to_hbm"] = traffic(&ReplayTraffic::ddr_to_hbm);
  moved["ddr_to_flash"] = traffic(&ReplayTraffic::ddr_to_flash);
  moved["flash_to_ddr"] = traffic(&ReplayTraffic::flash_to_ddr);
  out["evictions"] = traffic(&ReplayTraffic::evictions);
  out["seconds"] = report.seconds;
  out["stored"] = tally.stored;
  out["present"] = tally.present;
  out["unstored"] = tally.unstored;
  out["hit_us"] = PercentilesToJson(tally.hit_us);
  out["miss_us"] = PercentilesToJson(tally.miss_us);
  out["hbm_emulated"] = report.hbm_emulated;
  out["interrupted"] = tally.interrupted;
  return Document(out);
}

}  // namespace

std::unique_ptr<Printer> MakeJsonPrinter() { return std::make_unique<JsonPrinter>(); }

}  // namespace hmm::ctl
