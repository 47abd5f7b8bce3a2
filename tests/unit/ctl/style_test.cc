// SPDX-License-Identifier: Apache-2.0
// Tables for scripts and for terminals, the live view, words into filters.
#include "base/status.h"
#include "client/ctl/printer.h"
#include "client/ctl/select.h"
#include "client/ctl/stat_live.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;

Table Sample() {
  Table table({{"TIER"}, {"USED", true}, {"USE", true}, {"STATE"}});
  table.AddRow({"hbm0", Size(1536), Percent(0.75), StateCell("online")});
  table.AddRow({"ddr0", Size(0), Percent(1.0 / 3), StateCell("offline")});
  return table;
}

TEST_CASE("-H: tabs and no header; -p: exact numbers") {
  CHECK(Sample().ToString({.tabs = true}) ==
        "hbm0\t1.5KiB\t75%\tonline\nddr0\t0B\t33.3%\toffline\n");
  CHECK(Sample().ToString({.tabs = true, .exact = true}) ==
        "hbm0\t1536\t0.75\tonline\nddr0\t0\t0.333333\toffline\n");
  CHECK(Sample().ToString({.exact = true}) ==
        "TIER  USED       USE  STATE\n"
        "hbm0  1536      0.75  online\n"
        "ddr0     0  0.333333  offline\n");
}

TEST_CASE("colour changes no column") {
  const std::string plain = Sample().ToString();
  std::string coloured = Sample().ToString({.colour = true});
  CHECK_THAT(coloured, Contains("\x1b[32monline\x1b[0m") && Contains("\x1b[31moffline\x1b[0m"));
  for (std::size_t at; (at = coloured.find('\x1b')) != std::string::npos;) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  CHECK(coloured == plain);
}

TEST_CASE("lists and stat for scripts") {
  v1::ListTiersResponse tiers;
  v1::TierInfo* tier = tiers.add_tiers();
  tier->set_name("ddr0");
  tier->set_kind(v1::TIER_KIND_DDR);
  tier->set_backend("host");
  tier->set_state("online");
  tier->set_capacity_bytes(1 << 20);
  tier->set_used_bytes(1 << 19);
  tier->set_high_watermark(0.9);
  tier->set_low_watermark(0.8);
  CHECK(MakeTablePrinter({.tabs = true, .exact = true})->Tiers(tiers) ==
        "ddr0\tddr\thost\tonline\t1048576\t524288\t0.5\t0\t0.9\t0.8\t0\t0\t-\n");
  StatReport report;
  report.seconds = 2;
  report.tiers.push_back({.name = "ddr0", .kind = "ddr", .bytes_in = 4096});
  // Nothing but rows: the line of counters is for people, and in the JSON.
  const auto printer = MakeTablePrinter({.tabs = true, .exact = true});
  for (int round = 0; round < 2; ++round) {
    CHECK(printer->Stat(report) == "ddr0\tddr\t0\t0\t0\t0.0\t0.0\t0.0\t2048\t0\n");
  }
}

v1::GetStatusResponse BusyStatus() {
  v1::GetStatusResponse status;
  status.set_version("1.2.3");
  status.set_uptime_ms(61'000);
  status.set_sessions(2);
  v1::TierInfo* tier = status.add_tiers();
  tier->set_name("hbm0");
  tier->set_kind(v1::TIER_KIND_HBM);
  tier->set_emulated(true);
  tier->set_state("online");
  tier->set_capacity_bytes(1000);
  tier->set_used_bytes(950);
  tier->set_high_watermark(0.85);
  v1::LinkInfo* link = status.add_links();
  link->set_from("hbm0");
  link->set_to("ddr0");
  link->set_running(3);
  return status;
}

TEST_CASE("the live view says what a report says, and who pins most") {
  const v1::GetStatusResponse status = BusyStatus();
  v1::ListSessionsResponse sessions;
  for (const std::uint32_t id : {1u, 2u}) {
    v1::SessionInfo* session = sessions.add_sessions();
    session->set_session(id);
    session->set_command("engine" + std::to_string(id));
    session->set_pinned_bytes(id * 1000);
  }
  const LiveFrame frame{status, sessions, MakeStatReport(std::nullopt, status), 1, false};
  const std::string screen = LiveScreen(frame, {.rows = 40, .columns = 200});
  CHECK_THAT(screen, Contains("hmmd 1.2.3  up 1m01s") && Contains("hbm(emulated)") &&
                         Contains("###################.") && Contains("95%") &&
                         Contains("hbm0->ddr0        3"));
  CHECK(screen.find("engine2") < screen.find("engine1"));
  const LiveFrame coloured{status, sessions, MakeStatReport(std::nullopt, status), 1, true};
  CHECK_THAT(LiveScreen(coloured, {.rows = 40, .columns = 200}), Contains("\x1b[33m####"));
}

TEST_CASE("the live view keeps within the window, whatever its size") {
  const v1::GetStatusResponse status = BusyStatus();
  v1::ListSessionsResponse sessions;
  for (int i = 0; i < 100; ++i) sessions.add_sessions()->set_command(std::string(300, 'x'));
  for (const bool colour : {false, true}) {
    const LiveFrame frame{status, sessions, MakeStatReport(std::nullopt, status), 1, colour};
    for (const int rows : {0, 1, 2, 5, 24}) {
      for (const int columns : {0, 1, 30, 45, 80}) {
        const std::string screen = LiveScreen(frame, {.rows = rows, .columns = columns});
        std::size_t lines = 0;
        std::size_t shown = 0;
        std::size_t widest = 0;
        bool tinted = false;
        for (std::size_t i = 0; i < screen.size(); ++i) {
          if (screen[i] == '\x1b') {
            const std::size_t end = screen.find_first_of("mK", i);
            REQUIRE(end != std::string::npos);
            if (screen[end] == 'm') tinted = screen.compare(i, end - i, "\x1b[0") != 0;
            i = end;
          } else if (screen[i] == '\n') {
            ++lines;
            widest = std::max(widest, shown);
            shown = 0;
            CHECK_FALSE(tinted);
          } else {
            ++shown;
          }
        }
        CHECK(lines <= static_cast<std::size_t>(std::max(rows - 1, 1)));
        CHECK(widest <= static_cast<std::size_t>(std::max(columns, 1)));
      }
    }
  }
}

TEST_CASE("keys are read as they are printed") {
  for (const std::string& key : {std::string("plain"), std::string("a b\\c\n\0z", 8),
                                 std::string("\xff\xfe"), std::string("\\x41")}) {
    CHECK(UnescapeKey(EscapeKey(key)) == key);
  }
  CHECK(UnescapeKey("\\x4") == "\\x4");
  CHECK(UnescapeKey("\\xzz\\") == "\\xzz\\");
}

TEST_CASE("words into filters and selectors") {
  const v1::ListTensorsRequest query = QueryOf({.tenant = "t",
                                                .tier = "ddr0",
                                                .kind = "kv_cache",
                                                .state = "moving",
                                                .key_prefix = "a\\x20",
                                                .pinned = false});
  CHECK(query.kind() == v1::TENSOR_KIND_KV_CACHE);
  CHECK(query.state() == v1::TENSOR_STATE_MOVING);
  CHECK(query.key_prefix() == "a ");
  CHECK(query.has_pinned());
  CHECK_FALSE(query.pinned());
  CHECK_FALSE(QueryOf({}).has_pinned());
  const auto none = [](const v1::ExplainRequest&) -> absl::StatusOr<std::uint64_t> {
    return absl::NotFoundError("");
  };
  const auto keys = SelectorOf({.tenant = "t", .ids = {"k\\x00", "b"}}, none);
  REQUIRE(keys.ok());
  CHECK(keys->keys(0) == std::string("k\0", 2));
  CHECK(SelectorOf({.ids = {"7", "8"}}, none)->handles_size() == 2);
  const auto both = SelectorOf({.ids = {"7", "k"}}, none);
  CHECK(ReasonOf(both.status()) == Reason::kBadArgument);
  // Each is called what it is, wherever it stands.
  CHECK(SelectorOf({.ids = {"dup", "zzz", "12345"}}, none).status().message() ==
        "12345 is a handle and 'dup' is a key; name them in two calls");
  CHECK(EventTypeOf("tier_health") == v1::EVENT_TYPE_TIER_HEALTH);
}

TEST_CASE("a word of digits is a handle if there is one, else a key") {
  // Tensors of t: handle 5, and the key "12345" of handle 9.
  const auto find = [](const v1::ExplainRequest& named) -> absl::StatusOr<std::uint64_t> {
    CHECK(named.tenant() == "t");
    if (named.handle() == 5) return 5;
    if (named.key() == "12345") return 9;
    if (named.handle() == 66) return absl::UnavailableError("gone");
    return absl::NotFoundError("");
  };
  const auto of = [&](std::vector<std::string> ids) {
    return SelectorOf({.tenant = "t", .ids = std::move(ids)}, find);
  };
  const auto key = of({"12345"});
  REQUIRE(key.ok());
  CHECK(key->handles_size() == 0);
  REQUIRE(key->keys_size() == 1);
  CHECK(key->keys(0) == "12345");
  CHECK(of({"12345", "k"})->keys_size() == 2);
  CHECK(of({"5"})->handles(0) == 5);
  // Beside a handle it goes by its own.
  const auto both = of({"12345", "5"});
  REQUIRE(both.ok());
  CHECK(both->keys_size() == 0);
  CHECK(both->handles_size() == 2);
  CHECK(both->handles(1) == 9);
  CHECK(of({"0"})->keys(0) == "0");  // no tensor has it as its handle
  CHECK(of({"77"})->handles(0) == 77);
  CHECK(absl::IsUnavailable(of({"66"}).status()));
}

}  // namespace
}  // namespace hmm::ctl
