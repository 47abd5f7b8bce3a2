// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/cli.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/ctl/cli_parts.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::ctl {
namespace {

ParsedCommand Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "hmmctl");
  return ParseCommandLine(static_cast<int>(words.size()), words.data());
}

Command Accepted(const std::vector<const char*>& words) {
  ParsedCommand parsed = Parse(words);
  REQUIRE(parsed.command);
  return *parsed.command;
}

TEST_CASE("each verb") {
  CHECK(Accepted({"status"}).verb == Verb::kStatus);
  CHECK(Accepted({"tier", "list"}).verb == Verb::kTierList);
  CHECK(Accepted({"tensor", "list", "--tier", "ddr0"}).select.tier == "ddr0");
  CHECK(Accepted({"tensor", "show", "42"}).tensor == "42");
  CHECK(Accepted({"session", "list", "-q"}).ids_only);
  CHECK(Accepted({"session", "list"}).verb == Verb::kSessionList);
  CHECK(Accepted({"stat"}).interval_s == 0);
  const Command stat = Accepted({"stat", "0.5", "3"});
  CHECK(stat.verb == Verb::kStat);
  CHECK(stat.interval_s == 0.5);
  CHECK(stat.count == 3);
  CHECK(Accepted({"drain"}).drain_off == false);
  CHECK(Accepted({"drain", "--off"}).drain_off);
  const Command evict = Accepted({"evict", "hbm0", "--to", "64KiB"});
  CHECK(evict.verb == Verb::kEvict);
  CHECK(evict.tier == "hbm0");
  CHECK(evict.evict_to == 65536);
  CHECK(Accepted({"evict", "hbm0", "--to", "0"}).evict_to == 0);
  const Command marks =
      Accepted({"watermark", "set", "ddr0", "--high", "0.9", "--low", "0.8", "--reserve", "2MiB"});
  CHECK(marks.verb == Verb::kWatermarkSet);
  CHECK(marks.high == 0.9);
  CHECK(marks.low == 0.8);
  CHECK(marks.reserve == 2 * kMiB);
  CHECK_FALSE(Accepted({"watermark", "set", "d", "--high", "1", "--low", "0.8"}).reserve);
}

TEST_CASE("topology") {
  CHECK(Accepted({"topology"}).verb == Verb::kTopology);
  CHECK_FALSE(Accepted({"topology"}).topology.calibrate);
  const Command measured = Accepted({"topology", "--calibrate", "--timeout", "5", "-o", "json"});
  CHECK(measured.topology.calibrate);
  CHECK(measured.timeout_s == 5);
  CHECK(measured.format == Format::kJson);
  const Command toml = Accepted({"topology", "--machine-toml", "--device", "hbm1"});
  CHECK(toml.topology.machine_toml);
  CHECK(toml.topology.device == "hbm1");
  CHECK(Parse({"topology", "--device", "hbm1"}).exit_code == 2);
  CHECK(Parse({"topology", "--machine-toml", "-o", "json"}).exit_code == 2);
  CHECK(Parse({"-o", "json", "topology", "--machine-toml"}).exit_code == 2);
}

TEST_CASE("filters, scripting and what steers") {
  const Command list = Accepted({"tensor", "list", "--kind", "kv_cache", "--state", "resident",
                                 "--tenant", "t", "--key-prefix", "p", "--pinned", "-H", "-p"});
  CHECK(list.select.kind == "kv_cache");
  CHECK(list.select.state == "resident");
  CHECK(list.select.tenant == "t");
  CHECK(list.select.key_prefix == "p");
  CHECK(list.select.pinned == true);
  CHECK(list.style.tabs);
  CHECK(list.style.exact);
  CHECK(Accepted({"tensor", "list", "--unpinned"}).select.pinned == false);
  CHECK_FALSE(Accepted({"tensor", "list"}).select.pinned);
  const Command events = Accepted({"events", "--type", "move,session", "--tier", "ddr0", "--after",
                                   "7", "--occupancy", "250", "--count", "2"});
  CHECK(events.verb == Verb::kEvents);
  CHECK(events.events.types == std::vector<std::string>{"move", "session"});
  CHECK(events.events.after == 7);
  CHECK(events.events.occupancy_ms == 250);
  CHECK(events.events.count == 2);
  const Command swap = Accepted({"swap", "--to", "ddr0", "--tenant", "t", "5", "6"});
  CHECK(swap.tier == "ddr0");
  CHECK(swap.select.ids == std::vector<std::string>{"5", "6"});
  CHECK(Accepted({"prefetch", "--tenant", "t", "--kind", "weight"}).tier.empty());
  CHECK(Accepted({"resize", "ddr0", "2GiB"}).resize_to == 2 * kGiB);
  CHECK(Accepted({"compact"}).tier.empty());
  CHECK(Accepted({"log-level", "debug"}).log_level == "debug");
  CHECK(Accepted({"explain", "k"}).tensor == "k");
  CHECK(Accepted({"health", "ddr0"}).tier == "ddr0");
  CHECK(Accepted({"doctor", "--json"}).format == Format::kJson);
  CHECK(Accepted({"stat", "1", "--scroll"}).scroll);
}

TEST_CASE("colour: never in a pipe, unless asked for") {
  CHECK_FALSE(Accepted({"tier", "list"}).style.colour);
  CHECK(Accepted({"tier", "list", "--color", "always"}).style.colour);
  CHECK_FALSE(Accepted({"tier", "list", "--color", "never"}).style.colour);
}

TEST_CASE("--dir and -o stand before or behind the verb") {
  for (const Command& command : {Accepted({"--dir", "/x", "-o", "json", "tier", "list"}),
                                 Accepted({"tier", "list", "--dir", "/x", "-o", "json"}),
                                 Accepted({"tier", "--output", "json", "list", "--dir=/x"})}) {
    CHECK(command.dir == "/x");
    CHECK(command.format == Format::kJson);
    CHECK(command.verb == Verb::kTierList);
  }
}

TEST_CASE("the directory comes from $HMM_DIR, else /run/hmm") {
  unsetenv("HMM_DIR");
  CHECK(Accepted({"status"}).dir == "/run/hmm");
  setenv("HMM_DIR", "/tmp/of-env", 1);
  CHECK(Accepted({"status"}).dir == "/tmp/of-env");
  CHECK(Accepted({"status", "--dir", "/y"}).dir == "/y");
  unsetenv("HMM_DIR");
}

TEST_CASE("replay's options") {
  const ReplayArgs plain = Accepted({"replay", "t.gz"}).replay;
  CHECK(plain.trace == "t.gz");
  CHECK(plain.block_bytes == 64 * kKiB);
  CHECK(plain.speed == 0);
  CHECK(plain.threads == 1);
  CHECK(plain.processes == 1);
  const ReplayArgs full = Accepted({"replay",
                                    "t",
                                    "--block-bytes",
                                    "4KiB",
                                    "--requests",
                                    "10",
                                    "--speed",
                                    "2.5",
                                    "--concurrency",
                                    "3",
                                    "--tenant-processes",
                                    "4",
                                    "--seed",
                                    "5",
                                    "--key-prefix",
                                    "p",
                                    "--tier",
                                    "hbm1",
                                    "--window-bytes",
                                    "1MiB",
                                    "--worker",
                                    "2"})
                              .replay;
  CHECK(full.block_bytes == 4096);
  CHECK(full.requests == 10);
  CHECK(full.speed == 2.5);
  CHECK(full.threads == 3);
  CHECK(full.processes == 4);
  CHECK(full.seed == 5);
  CHECK(full.key_prefix == "p");
  CHECK(full.tier == "hbm1");
  CHECK(full.window_bytes == kMiB);
  CHECK(full.worker == 2u);
  CHECK(Accepted({"replay", "t", "--forecast", "1000,4000,16000"}).replay.forecast ==
        std::vector<std::size_t>{1000, 4000, 16000});
}

TEST_CASE("a list is one word: what stands behind it is not taken for more of it") {
  const ReplayArgs replay =
      Accepted({"replay", "--forecast", "1,2", "t", "--requests", "3"}).replay;
  CHECK(replay.forecast == std::vector<std::size_t>{1, 2});
  CHECK(replay.trace == "t");
  const PlanArgs plan = Accepted({"plan", "--sweep", "--at", "50%,74%", "g.pb", "--svg", "x"}).plan;
  CHECK(plan.points.size() == 2);
  CHECK(plan.input.graph == "g.pb");
  CHECK(Accepted({"events", "--type", "move", "--type", "admin,session"}).events.types.size() == 3);
}

TEST_CASE("a refused word is told those that are for people") {
  CLI::App app;
  std::string shell;
  OneOf(app.add_option("shell", shell), "bash|zsh|fish", "man");
  const auto refused = [&](const std::string& word) -> std::string {
    try {
      app.parse(word);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused("man").empty());
  CHECK_THAT(refused("tcsh"), Catch::Contains("bash|zsh|fish") && !Catch::Contains("man"));
}

TEST_CASE("a word that is no verb is named, behind a noun too") {
  const auto word_of = [](std::vector<const char*> words) {
    const testing::TempDir dir;
    std::fflush(stderr);
    const int kept = dup(2);
    std::FILE* const file = std::fopen(dir.File("err").c_str(), "w");
    dup2(fileno(file), 2);
    CHECK_FALSE(Parse(std::move(words)).command);
    std::fflush(stderr);
    dup2(kept, 2);
    close(kept);
    std::fclose(file);
    std::ifstream in(dir.File("err"));
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK_THAT(word_of({"lst"}), Catch::Contains("'lst' is no verb"));
  CHECK_THAT(word_of({"tier", "lst"}), Catch::Contains("'tier lst' is no verb"));
  CHECK_THAT(word_of({"--dir", "d", "watermark", "-o", "json", "get"}),
             Catch::Contains("'watermark get' is no verb"));
  CHECK_THAT(word_of({"tier"}), Catch::Contains("subcommand"));
  CHECK_THAT(word_of({"tier", "list", "--nope"}), Catch::Contains("--nope"));
}

TEST_CASE("wrong usage is exit code 2") {
  const std::vector<std::vector<const char*>> wrong = {
      {},
      {"nonsense"},
      {"tier"},
      {"status", "extra"},
      {"status", "-o", "xml"},
      {"status", "--dir", ""},
      {"stat", "-1"},
      {"stat", "x"},
      {"stat", "1", "0"},
      {"evict"},
      {"tensor", "list", "--kind", "kvcache"},
      {"tensor", "list", "--state", "lost"},
      {"tensor", "list", "--pinned", "--unpinned"},
      {"tensor", "list", "-q", "-H"},
      {"tensor", "list", "-o", "json", "-p"},
      {"status", "-H"},
      {"status", "--color", "sometimes"},
      {"events", "--type", "noise"},
      {"events", "--occupancy", "1"},
      {"events", "--count", "0"},
      {"explain"},
      {"swap", "--to", "ddr0"},
      {"swap", "--tenant", "t"},
      {"swap", "--to", "ddr0", "--tenant", "t", "5", "--kind", "weight"},
      {"prefetch"},
      {"resize", "ddr0"},
      {"resize", "ddr0", "0"},
      {"resize", "ddr0", "5GB"},
      {"log-level", "loud"},
      {"log-level"},
      {"completion"},
      {"completion", "tcsh"},
      {"doctor", "extra"},
      {"evict", "hbm0", "--to", "5MB"},
      {"evict", "hbm0", "--to", "-1"},
      {"watermark", "set", "hbm0"},
      {"watermark", "set", "hbm0", "--high", "0.5", "--low", "0.6"},
      {"watermark", "set", "hbm0", "--high", "0.5", "--low", "0"},
      {"watermark", "set", "hbm0", "--high", "85", "--low", "75"},
      {"tensor", "show"},
      {"replay"},
      {"replay", "t", "--requests", "0"},
      {"replay", "t", "--requests", "-3"},
      {"replay", "t", "--block-bytes", "0"},
      {"replay", "t", "--speed", "1e-9"},
      {"replay", "t", "--forecast", "-1"},
      {"replay", "t", "--forecast", "99999999999999999999"},
      {"replay", "t", "--forecast", "0,5"},
      {"replay", "t", "--forecast", ""},
      {"bogus"},
      {"replay", "t", "--block-bytes", "64K"},
      {"replay", "t", "--concurrency", "0"},
      {"replay", "t", "--concurrency", "100000"},
      {"replay", "t", "--tenant-processes", "0"},
      {"replay", "t", "--speed", "-1"},
      {"replay", "t", "--speed", "nan"},
      {"replay", "t", "--worker", "1"},
      {"replay", "t", "--forecast", "1,x"},
      {"status", "-q"},
      {"tensor", "list", "--tier", ""},
      {"tensor", "list", "--tenant", ""},
      {"tensor", "list", "--key-prefix", ""},
      {"events", "--tier", ""},
      {"events", "--tenant="},
      {"health", ""},
      {"explain", "1", "--tenant", ""},
      {"compact", ""},
      {"evict", ""},
      {"prefetch", "--tenant", "t", "--to", ""},
      {"swap", "--tenant", "t", "--to", "ddr0", "--key-prefix", ""},
      {"swap", "--tenant", "t", "--to", "ddr0", ""},
  };
  for (const auto& words : wrong) {
    std::string line;
    for (const char* word : words) line += std::string(word) + " ";
    INFO(line);
    const ParsedCommand parsed = Parse(words);
    CHECK_FALSE(parsed.command);
    CHECK(parsed.exit_code == 2);
  }
}

TEST_CASE("help and version are exit code 0") {
  for (const auto& words : std::vector<std::vector<const char*>>{
           {"--help"}, {"replay", "--help"}, {"--version"}, {"tier", "list", "-h"}}) {
    const ParsedCommand parsed = Parse(words);
    CHECK_FALSE(parsed.command);
    CHECK(parsed.exit_code == 0);
  }
}

}  // namespace
}  // namespace hmm::ctl
