// SPDX-License-Identifier: Apache-2.0
// Tables as people see them, and the keys of the JSON, which are a contract.
#include "client/ctl/printer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "client/ctl/table.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using nlohmann::ordered_json;

std::vector<std::string> Keys(const ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

bool BeginsWith(const std::vector<std::string>& keys, const std::vector<std::string>& start) {
  return keys.size() >= start.size() && std::equal(start.begin(), start.end(), keys.begin());
}

v1::GetStatusResponse SomeStatus() {
  v1::GetStatusResponse status;
  status.set_epoch(18446744073709551615u);
  status.set_version("0.1.0");
  status.set_uptime_ms(3'725'000);
  status.set_sessions(1);
  status.set_pins(2);
  status.set_tensors(3);
  v1::TierInfo* hbm = status.add_tiers();
  hbm->set_name("hbm0");
  hbm->set_kind(v1::TIER_KIND_HBM);
  hbm->set_backend("host");
  hbm->set_emulated(true);
  hbm->set_state("online");
  hbm->set_capacity_bytes(64 << 20);
  hbm->set_used_bytes(48 << 20);
  hbm->set_high_watermark(0.85);
  hbm->set_low_watermark(0.755);
  hbm->set_hits(1038);
  v1::LinkInfo* link = status.add_links();
  link->set_from("hbm0");
  link->set_to("ddr0");
  link->set_moves(5);
  link->set_moved_bytes(5 << 20);
  link->set_busy_us(1'000'000);
  status.mutable_counters()->set_misses(7);
  return status;
}

TEST_CASE("status as JSON: the keys of the contract, exact numbers") {
  const ordered_json json = ordered_json::parse(MakeJsonPrinter()->Status(SomeStatus()));
  CHECK(BeginsWith(Keys(json), {"epoch", "sessions", "pins", "tensors", "tiers"}));
  CHECK(json["epoch"].get<std::uint64_t>() == 18446744073709551615u);
  CHECK(json["sessions"] == 1);
  CHECK(json["pins"] == 2);
  CHECK(json["tensors"] == 3);
  REQUIRE(json["tiers"].size() == 1);
  const ordered_json& tier = json["tiers"][0];
  CHECK(
      BeginsWith(Keys(tier), {"name", "kind", "backend", "emulated", "capacity_bytes", "used_bytes",
                              "pinned_bytes", "high_watermark", "low_watermark", "state"}));
  CHECK(tier["kind"] == "hbm");
  CHECK(tier["emulated"] == true);
  CHECK(tier["used_bytes"] == 48 << 20);
  CHECK(tier["high_watermark"] == 0.85);
  CHECK(json["links"][0]["moved_bytes"] == 5 << 20);
  CHECK(json["counters"]["misses"] == 7);
  CHECK(json["draining"] == false);
}

TEST_CASE("every counter of the daemon is in the JSON under its name") {
  v1::GetStatusResponse status;
  v1::Counters* counters = status.mutable_counters();
  const google::protobuf::Descriptor* fields = v1::Counters::descriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    counters->GetReflection()->SetUInt64(counters, fields->field(i),
                                         static_cast<std::uint64_t>(100 + i));
  }
  const ordered_json json = ordered_json::parse(MakeJsonPrinter()->Status(status))["counters"];
  for (int i = 0; i < fields->field_count(); ++i) {
    INFO(fields->field(i)->name());
    CHECK(json.value(fields->field(i)->name(), 0) == 100 + i);
  }
}

TEST_CASE("status as a table") {
  CHECK(MakeTablePrinter()->Status(SomeStatus()) ==
        "hmmd 0.1.0  epoch 18446744073709551615  up 1h02m  sessions 1  pins 2  tensors 3\n"
        "\n"
        "TIER  KIND           BACKEND  STATE   CAPACITY   USED  USE  PINNED  HIGH    LOW  TENSORS  "
        "HITS  NOTE\n"
        "hbm0  hbm(emulated)  host     online     64MiB  48MiB  75%      0B   85%  75.5%        0  "
        "1038  -\n"
        "\n"
        "LINK        MOVES  FAILED  MOVED    RATE  QUEUED  RUNNING\n"
        "hbm0->ddr0      5       0   5MiB  5MiB/s       0        0\n"
        "\n"
        "lookups 0  hits 0  misses 7  evictions 0  demotions 0  promotions 0  lost 0\n");
}

TEST_CASE("a daemon without tiers, sessions or tensors prints empty lists") {
  for (const Format format : {Format::kTable, Format::kJson}) {
    const std::unique_ptr<Printer> printer = MakePrinter(format);
    CHECK_FALSE(printer->Status({}).empty());
    CHECK_FALSE(printer->Tiers({}).empty());
    CHECK_FALSE(printer->Sessions({}).empty());
    CHECK_FALSE(printer->Stat({}).empty());
    CHECK_FALSE(printer->Replay({}).empty());
    CHECK_FALSE(printer->Forecast({}).empty());
  }
  CHECK(ordered_json::parse(MakeJsonPrinter()->Tiers({}))["tiers"].empty());
  CHECK(ordered_json::parse(MakeJsonPrinter()->Tensors({}, true, true))["tensors"].empty());
  CHECK(ordered_json::parse(MakeJsonPrinter()->Sessions({}))["sessions"].empty());
}

v1::ListTensorsResponse Page(std::uint64_t first, int count) {
  v1::ListTensorsResponse page;
  page.set_epoch(9);
  for (int i = 0; i < count; ++i) {
    v1::TensorInfo* tensor = page.add_tensors();
    tensor->set_handle(first + static_cast<std::uint64_t>(i));
    tensor->set_key(std::string("k\xFF\n\0", 4));
    tensor->set_kind(v1::TENSOR_KIND_KV_CACHE);
    tensor->set_state(v1::TENSOR_STATE_RESIDENT);
    tensor->set_tier_name("hbm0");
    tensor->set_bytes(65536);
    tensor->set_sealed(true);
    tensor->set_droppable(true);
    v1::TensorInfo::SessionPins* pins = tensor->add_pins();
    pins->set_session(4);
    pins->set_pins(2);
  }
  return page;
}

TEST_CASE("pages of tensors join to one document") {
  const std::unique_ptr<Printer> json = MakeJsonPrinter();
  std::string text = json->Tensors(Page(1, 2), true, false);
  text += json->Tensors(Page(3, 0), false, false);
  text += json->Tensors(Page(3, 1), false, true);
  const ordered_json whole = ordered_json::parse(text);
  CHECK(whole["epoch"] == 9);
  REQUIRE(whole["tensors"].size() == 3);
  CHECK(whole["tensors"][2]["handle"] == 3);
  CHECK(whole["tensors"][0]["key"] == "k\\xff\\x0a\\x00");
  CHECK(whole["tensors"][0]["kind"] == "kv_cache");
  CHECK(whole["tensors"][0]["state"] == "resident");
  CHECK(whole["tensors"][0]["pins"][0]["session"] == 4);

  const std::unique_ptr<Printer> table = MakeTablePrinter();
  const std::string rows = table->Tensors(Page(1, 1), true, false);
  CHECK_THAT(rows, StartsWith("HANDLE"));
  CHECK_THAT(rows, Contains("64KiB") && Contains("k\\xff\\x0a\\x00") && Contains("sd"));
  CHECK_THAT(table->Tensors(Page(2, 1), false, true), StartsWith("2  "));
}

TEST_CASE("one tensor") {
  const v1::TensorInfo tensor = Page(5, 1).tensors(0);
  CHECK(ordered_json::parse(MakeJsonPrinter()->Tensor(9, tensor))["tensor"]["handle"] == 5);
  const std::string table = MakeTablePrinter()->Tensor(9, tensor);
  CHECK_THAT(table, Contains("64KiB (65536 B)") && Contains("session 4: 2"));
}

TEST_CASE("stat: the first report is since the start, the next the difference") {
  const v1::GetStatusResponse first = SomeStatus();
  StatReport report = MakeStatReport(std::nullopt, first);
  CHECK(report.seconds == 3725.0);
  CHECK(report.tiers[0].hits == 1038);
  CHECK(report.tiers[0].moves_out == 5);
  CHECK(report.tiers[0].moves_in == 0);

  v1::GetStatusResponse second = first;
  second.set_uptime_ms(first.uptime_ms() + 2000);
  second.mutable_tiers(0)->set_hits(1058);
  second.mutable_links(0)->set_moved_bytes(7 << 20);
  second.mutable_counters()->set_misses(17);
  report = MakeStatReport(first, second);
  CHECK(report.seconds == 2.0);
  CHECK(report.tiers[0].hits == 20);
  CHECK(report.tiers[0].bytes_out == 2 << 20);
  CHECK(report.misses == 10);
  CHECK(report.PerSecond(report.misses) == 5.0);

  second.set_epoch(3);
  CHECK(MakeStatReport(first, second).tiers[0].hits == 1058);

  const std::unique_ptr<Printer> table = MakeTablePrinter();
  CHECK_THAT(table->Stat(report), StartsWith("TIER") && Contains("10.0") && Contains("1MiB/s"));
  CHECK_THAT(table->Stat(report), StartsWith("hbm0"));  // the header comes once
  const std::string line = MakeJsonPrinter()->Stat(report);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(ordered_json::parse(line)["tiers"][0]["hits"] == 20);
}

ReplayReport SomeReport() {
  ReplayReport report;
  report.tally.requests = 1000;
  report.tally.accesses = 27305;
  report.tally.hits = {1038, 1592, 3161};
  report.tally.misses = 21514;
  report.tally.verified_bytes = 5791 * 65536;
  report.traffic = ReplayTraffic{1 << 20, 2 << 20, 3 << 20, 4 << 20, 514};
  report.seconds = 2.0;
  report.hbm_emulated = true;
  return report;
}

TEST_CASE("replay as JSON: the keys of the contract first, extras behind") {
  const ordered_json json = ordered_json::parse(MakeJsonPrinter()->Replay(SomeReport()));
  CHECK(BeginsWith(Keys(json), {"requests", "accesses", "hits", "misses", "verified_bytes",
                                "wrong_bytes", "errors", "moved_bytes", "evictions", "seconds"}));
  CHECK(Keys(json["hits"]) == std::vector<std::string>{"hbm", "ddr", "flash"});
  CHECK(json["hits"]["flash"] == 3161);
  CHECK(Keys(json["moved_bytes"]) ==
        std::vector<std::string>{"hbm_to_ddr", "ddr_to_hbm", "ddr_to_flash", "flash_to_ddr"});
  CHECK(json["moved_bytes"]["flash_to_ddr"] == 4 << 20);
  CHECK(json["evictions"] == 514);
  CHECK(json["seconds"] == 2.0);
  ReplayReport blind = SomeReport();
  blind.traffic.reset();
  CHECK(ordered_json::parse(MakeJsonPrinter()->Replay(blind))["evictions"].is_null());
}

TEST_CASE("replay as a table calls emulated HBM emulated") {
  const std::string table = MakeTablePrinter()->Replay(SomeReport());
  CHECK_THAT(table, Contains("hits in hbm(emulated)") && Contains("1038") && Contains("3.8%"));
  CHECK_THAT(table, Contains("moved flash->ddr") && Contains("4MiB"));
  ReplayReport real = SomeReport();
  real.hbm_emulated = false;
  CHECK_THAT(MakeTablePrinter()->Replay(real), !Contains("emulated"));
}

TEST_CASE("steering verbs answer in both formats") {
  CHECK(MakeTablePrinter()->Evict("hbm0", {}) == "hbm0: nothing had to go\n");
  v1::EvictResponse evicted;
  evicted.set_freed_bytes(1 << 20);
  evicted.set_tensors(16);
  evicted.set_pinned_tensors(1);
  CHECK(MakeTablePrinter()->Evict("hbm0", evicted) ==
        "hbm0: 16 tensors moved out, 1MiB freed, 1 pinned had to stay\n");
  evicted.set_dropped_tensors(6);
  CHECK(MakeTablePrinter()->Evict("ddr0", evicted) ==
        "ddr0: 10 tensors moved out, 6 tensors dropped, 1MiB freed, 1 pinned had to stay\n");
  evicted.set_dropped_tensors(16);
  CHECK(MakeTablePrinter()->Evict("flash0", evicted) ==
        "flash0: 16 tensors dropped, 1MiB freed, 1 pinned had to stay\n");
  const ordered_json json = ordered_json::parse(MakeJsonPrinter()->Evict("hbm0", evicted));
  CHECK(json["freed_bytes"] == 1 << 20);
  CHECK(json["dropped_tensors"] == 16);
  v1::SetWatermarksRequest set;
  set.set_tier("ddr0");
  set.set_high(0.9);
  set.set_low(0.8);
  CHECK(MakeTablePrinter()->Watermarks(set, {}) == "ddr0: high 90%, low 80%\n");
  set.set_reserve_bytes(2 << 20);
  CHECK(MakeTablePrinter()->Watermarks(set, {}) == "ddr0: high 90%, low 80%, reserve 2MiB\n");
  CHECK(ordered_json::parse(MakeJsonPrinter()->Watermarks(set, {}))["reserve_bytes"] == 2 << 20);
  v1::DrainResponse drained;
  drained.set_sessions(3);
  CHECK(MakeTablePrinter()->Drain(false, drained) == "draining, 3 sessions attached\n");
  CHECK(ordered_json::parse(MakeJsonPrinter()->Drain(true, drained))["draining"] == false);
}

TEST_CASE("cells") {
  CHECK(SizeCell(0) == "0B");
  CHECK(SizeCell(1536) == "1.5KiB");
  CHECK(PercentCell(1) == "100%");
  CHECK(PercentCell(0.1234) == "12.3%");
  CHECK(TimeCell(45) == "45ms");
  CHECK(TimeCell(12'345) == "12.3s");
  CHECK(TimeCell(125'000) == "2m05s");
  CHECK(TimeCell(90'000'000) == "1d01h");
  CHECK(EscapeKey("a b\\c") == "a\\x20b\\x5cc");
  Table table({{"A"}, {"BB", true}});
  table.AddRow({"", "1"});
  table.AddRow({"long", "22"});
  CHECK(table.ToString() == "A     BB\n-      1\nlong  22\n");
  CHECK(table.ToString(false) == "-      1\nlong  22\n");
}

}  // namespace
}  // namespace hmm::ctl
