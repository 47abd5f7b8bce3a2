// SPDX-License-Identifier: Apache-2.0
// hmmctl as a user runs it: exit codes, both formats of every verb, and replay against what an
// exact LRU would find.
#include <signal.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "client/ctl/lru_forecast.h"
#include "client/ctl/trace_reader.h"
#include "support/catch.h"
#include "support/daemon_process.h"
#include "support/read_file.h"
#include "support/run_command.h"
#include "support/wait_until.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::json;
using testing::DaemonProcess;
using testing::Outcome;
using testing::ReadFile;
using testing::RunCommand;
using testing::TempDir;

const std::string kChat = HMM_TEST_DATA "/traces/mooncake_conversation.jsonl.gz";

// `arguments` are words without quotes.
Outcome Ctl(const std::string& arguments) { return RunCommand(HMMCTL_BINARY " " + arguments); }

json Json(const std::string& arguments) {
  const Outcome outcome = Ctl(arguments + " -o json");
  INFO(arguments << "\n" << outcome.out << outcome.err);
  REQUIRE(outcome.code == 0);
  json value = json::parse(outcome.out, nullptr, false);
  REQUIRE_FALSE(value.is_discarded());
  return value;
}

std::string OnDir(const DaemonProcess& daemon) { return "--dir " + daemon.dir() + " "; }

// Tiers of so many blocks of 4 KiB whose whole capacity may be used.
std::string ExactTiers(std::size_t hbm, std::size_t ddr, std::size_t flash) {
  std::ostringstream config;
  config << "[daemon]\ncommit_headroom = \"16MiB\"\n[calibration]\nat_start = \"never\"\n";
  const auto tier = [&](const char* name, const char* kind, std::size_t blocks, const char* more) {
    config << "[[tier]]\nname = \"" << name << "\"\nkind = \"" << kind << "\"\ncapacity = \""
           << blocks * 4 << "KiB\"\nhigh = 1.0\nlow = 0.999\nreserve = \"0\"\n"
           << more;
  };
  const char* host = "commit_chunk = \"64KiB\"\npages = \"small\"\n";
  tier("hbm0", "hbm", hbm, (std::string("emulated = true\n") + host).c_str());
  tier("ddr0", "ddr", ddr, host);
  tier("flash0", "flash", flash, "");
  return config.str();
}

// Nobody attached, nothing pinned: waits for the daemon to see the end of a client.
bool AtRest(const DaemonProcess& daemon) {
  return testing::WaitUntil([&] {
    const json status = Json(OnDir(daemon) + "status");
    return status["sessions"] == 0 && status["pins"] == 0;
  });
}

TEST_CASE("no daemon: a helpful word and exit code 1; wrong usage: 2") {
  const TempDir dir;
  for (const std::string verb :
       {"status", "tier list", "tensor list", "tensor show 1", "session list", "stat", "evict hbm0",
        "watermark set hbm0 --high 0.9 --low 0.8", "drain", "topology", "topology --calibrate"}) {
    const Outcome outcome = Ctl("--dir " + dir.path() + " " + verb);
    INFO(verb);
    CHECK(outcome.code == 1);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Catch::StartsWith("hmmctl: no daemon answers on " + dir.path()) &&
                                Contains("systemctl start hmmd"));
  }
  const Outcome replay = Ctl("--dir " + dir.path() + " replay " + kChat);
  CHECK(replay.code == 1);
  CHECK_THAT(replay.err, Catch::StartsWith("hmmctl: no daemon answers"));
  for (const std::string words : {"--help", "--version", "tensor show --help"}) {
    const Outcome full = RunCommand("(" HMMCTL_BINARY " " + words + " >/dev/full)");
    INFO(words);
    CHECK(full.code == 1);
    CHECK_THAT(full.err, Catch::StartsWith("hmmctl: standard output: No space left"));
  }
  const Outcome usage = Ctl("status --nonsense");
  CHECK(usage.code == 2);
  CHECK_THAT(usage.err, Catch::StartsWith("hmmctl: "));
}

TEST_CASE("every verb in both formats, before and after there is something to see") {
  const DaemonProcess daemon(HMMD_BINARY);
  const std::string on = OnDir(daemon);
  for (int round = 0; round < 2; ++round) {
    const json status = Json(on + "status");
    CHECK(status["tiers"].size() == 3);
    CHECK(status["tiers"][0]["emulated"] == true);
    CHECK(Json(on + "tier list")["tiers"].size() == 3);
    CHECK(Json(on + "tensor list")["tensors"].size() == status["tensors"]);
    CHECK(Json(on + "session list")["sessions"].empty());
    CHECK(Json(on + "stat")["tiers"].size() == 3);
    CHECK_THAT(Ctl(on + "status").out, Contains("hbm(emulated)"));
    CHECK(Ctl(on + "tier list -q").out == "hbm0\nddr0\nflash0\n");
    for (const char* verb : {"tensor list", "session list", "stat 0.01 2", "drain", "drain --off",
                             "watermark set ddr0 --high 0.95 --low 0.7 --reserve 1MiB"}) {
      INFO(verb);
      CHECK(Ctl(on + verb).code == 0);
    }
    if (round == 0) {
      const json report =
          Json(on + "replay " HMM_TEST_DATA "/traces/small_mooncake.jsonl --block-bytes 4KiB");
      CHECK(report["requests"] == 3);
      CHECK(report["accesses"] == 11);
      CHECK(report["hits"]["hbm"] == 3);
      CHECK(report["misses"] == 8);
      CHECK(report["verified_bytes"] == 3 * 4096);
      CHECK(AtRest(daemon));
      const std::string file = daemon.dir() + "/report.json";
      const Outcome both =
          Ctl(on + "replay " HMM_TEST_DATA "/traces/small_mooncake.jsonl --block-bytes 4KiB " +
              "--report " + file);
      CHECK(both.code == 0);
      CHECK_THAT(both.out, Contains("requests") && !Contains("{"));
      const json written = json::parse(std::ifstream(file), nullptr, false);
      CHECK(written["accesses"] == 11);
      CHECK(written["hits"]["hbm"] == 11);
      const Outcome nowhere =
          Ctl(on + "replay " HMM_TEST_DATA "/traces/small_mooncake.jsonl --report /nonexistent/r");
      CHECK(nowhere.code == 1);
      CHECK_THAT(nowhere.err, Contains("--report /nonexistent/r: No such file"));
    }
  }
  const json tensors = Json(on + "tensor list")["tensors"];
  REQUIRE(tensors.size() == 8);
  const std::string handle = tensors[0]["handle"].dump();
  CHECK(Json(on + "tensor show " + handle)["tensor"]["handle"] == tensors[0]["handle"]);
  CHECK(Json(on + "tensor show " + tensors[0]["key"].get<std::string>())["tensor"]["kind"] ==
        "kv_cache");
  CHECK(Ctl(on + "tensor show 1").code == 1);
  CHECK(Json(on + "tier list")["tiers"][1]["high_watermark"] == 0.95);
}

TEST_CASE("topology: measured on request, and a machine file that the planner reads") {
  const DaemonProcess daemon(HMMD_BINARY);
  const std::string on = OnDir(daemon);
  CHECK(Json(on + "topology")["links"].empty());
  CHECK_THAT(Ctl(on + "topology").out, Contains("never measured"));
  const Outcome none = Ctl(on + "topology --machine-toml");
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Contains("hmmctl topology --calibrate"));
  // On a machine that is busy beyond measure a link may not get its time: then once more.
  json topology;
  const bool measured = testing::WaitUntil([&] {
    topology = Json(on + "topology --calibrate");
    bool all = topology["links"].size() == 4;
    for (const json& link : topology["links"]) all = all && !link["curve"].empty();
    return all;
  });
  INFO(topology.dump());
  REQUIRE(measured);
  CHECK(topology["tiers"][0]["demote_to"] == "ddr0");
  CHECK_THAT(Ctl(on + "topology").out, Contains("hbm0->ddr0") && Contains("DUPLEX"));
  const TempDir dir;
  const Outcome toml = Ctl(on + "topology --machine-toml");
  REQUIRE(toml.code == 0);
  // Nothing is assumed of tiers and links that the daemon measured.
  CHECK_THAT(toml.out, Contains("as the daemon measured them") && !Contains("no flash") &&
                           !Contains("there is no device"));
  dir.Write("m.toml", toml.out);
  const Outcome plan =
      Ctl("plan " HMM_TEST_DATA "/graphs/onnx/light_resnet50.onnx --hbm 90% --machine " +
          dir.File("m.toml"));
  INFO(toml.out << plan.out << plan.err);
  CHECK(plan.code <= 1);  // what it finds depends on what was measured
  CHECK_THAT(plan.out, Contains("hmmd-hbm0"));
}

TEST_CASE("replay keeps to what the daemon takes in one call") {
  const DaemonProcess daemon(HMMD_BINARY,
                             testing::kSmallTiers + std::string("\n[limits]\nbatch_max = 3\n"));
  const std::string what = "replay " + kChat + " --requests 20 --block-bytes 4KiB";
  CHECK(Json(OnDir(daemon) + what)["errors"] == 0);
  const json again = Json(OnDir(daemon) + what);
  CHECK(again["errors"] == 0);
  CHECK(again["verified_bytes"] > 0);
  CHECK(again["unstored"] == 0);
}

TEST_CASE("evict empties a tier, and says what it did") {
  const DaemonProcess daemon(HMMD_BINARY);
  const std::string on = OnDir(daemon);
  CHECK(Json(on + "replay " + kChat + " --requests 20 --block-bytes 4KiB")["errors"] == 0);
  REQUIRE(AtRest(daemon));
  const json before = Json(on + "status");
  REQUIRE(before["tiers"][0]["resident_bytes"] > 0);
  const json evicted = Json(on + "evict hbm0 --to 0");
  CHECK(evicted["tensors"] == before["tiers"][0]["tensors"]);
  CHECK(evicted["pinned_tensors"] == 0);
  CHECK(Json(on + "status")["tiers"][0]["tensors"] == 0);
  CHECK(Json(on + "status")["tensors"] == before["tensors"]);
  const Outcome unknown = Ctl(on + "evict nowhere0");
  CHECK(unknown.code == 1);
  CHECK_THAT(unknown.err, Catch::StartsWith("hmmctl: ") && Contains("nowhere0"));
}

// Within 2% of what an exact LRU finds: reclaim works in batches, and a block on its way down is
// counted where it lands.
void CheckAgainstLru(std::size_t hbm, std::size_t ddr, std::size_t flash) {
  const DaemonProcess daemon(HMMD_BINARY, ExactTiers(hbm, ddr, flash));
  const absl::StatusOr<Trace> trace = ReadTrace(kChat);
  REQUIRE(trace.ok());
  const auto first = absl::MakeConstSpan(trace->requests).subspan(0, 1000);
  const LruForecast forecast = ForecastLru(first, std::vector<std::size_t>{hbm, ddr, flash});
  const double expected =
      static_cast<double>(forecast.hits[0] + forecast.hits[1] + forecast.hits[2]);

  const json report =
      Json(OnDir(daemon) + "replay " + kChat + " --requests 1000 --block-bytes 4KiB");
  INFO(report.dump(2));
  CHECK(report["requests"] == 1000);
  CHECK(report["accesses"] == 27305);
  const auto hits = report["hits"]["hbm"].get<std::uint64_t>() +
                    report["hits"]["ddr"].get<std::uint64_t>() +
                    report["hits"]["flash"].get<std::uint64_t>();
  CHECK(hits + report["misses"].get<std::uint64_t>() == 27305);
  CHECK(std::abs(static_cast<double>(hits) - expected) <= 0.02 * expected);
  CHECK(report["verified_bytes"] == hits * 4096);
  CHECK(report["wrong_bytes"] == 0);
  CHECK(report["errors"] == 0);
  CHECK(report["unstored"] == 0);
  for (const char* tier : {"hbm", "ddr", "flash"}) CHECK(report["hits"][tier] >= 273);
  CHECK((report["evictions"] > 0) == (forecast.dropped > 0));
  CHECK(report["moved_bytes"]["hbm_to_ddr"] > 0);

  REQUIRE(AtRest(daemon));
  const json status = Json(OnDir(daemon) + "status");
  CHECK(status["tensors"] ==
        report["stored"].get<std::uint64_t>() - report["evictions"].get<std::uint64_t>());
}

TEST_CASE("replay finds what an exact LRU finds: all fits") { CheckAgainstLru(1000, 4000, 18000); }
TEST_CASE("replay finds what an exact LRU finds: the bottom drops") {
  CheckAgainstLru(1000, 4000, 8000);
}

TEST_CASE("threads and processes share the blocks, and nothing is lost or left") {
  const DaemonProcess daemon(HMMD_BINARY, ExactTiers(1000, 4000, 18000));
  const json report = Json(OnDir(daemon) + "replay " + kChat +
                           " --requests 300 --block-bytes 4KiB --concurrency 2 "
                           "--tenant-processes 3");
  INFO(report.dump(2));
  CHECK(report["requests"] == 300);
  const auto hits = report["hits"]["hbm"].get<std::uint64_t>() +
                    report["hits"]["ddr"].get<std::uint64_t>() +
                    report["hits"]["flash"].get<std::uint64_t>();
  CHECK(hits > 0);
  CHECK(hits + report["misses"].get<std::uint64_t>() == report["accesses"]);
  CHECK(report["wrong_bytes"] == 0);
  CHECK(report["errors"] == 0);
  REQUIRE(AtRest(daemon));
  CHECK(Json(OnDir(daemon) + "status")["tensors"] == report["stored"]);
}

// A replay at the speed of the trace, an hour long; in the background until told to stop.
class LongReplay {
 public:
  LongReplay(const DaemonProcess& daemon, const std::string& more)
      : child_({"sh", "-c",
                "exec " HMMCTL_BINARY " " + OnDir(daemon) + "replay " + kChat +
                    " --speed 1 --block-bytes 4KiB -o json " + more + " >" + dir_.File("out")},
               dir_.File("err")) {
    REQUIRE(testing::WaitUntil(
        [&] { return Json(OnDir(daemon) + "status")["tensors"] > 0 || !child_.Running(); }));
  }
  testing::ChildProcess& child() { return child_; }
  std::string Out() const { return ReadFile(dir_.File("out")); }
  std::string Err() const { return ReadFile(dir_.File("err")); }

 private:
  const TempDir dir_;
  testing::ChildProcess child_;
};

TEST_CASE("a signal ends a replay with its report, and leaves no pin") {
  for (const char* processes : {"", "--tenant-processes 2"}) {
    const DaemonProcess daemon(HMMD_BINARY);
    LongReplay replay(daemon, processes);
    replay.child().Signal(SIGINT);
    CHECK(replay.child().Wait() == 1);
    const json report = json::parse(replay.Out(), nullptr, false);
    REQUIRE_FALSE(report.is_discarded());
    CHECK(report["interrupted"] == true);
    CHECK(report["errors"] == 0);
    CHECK_THAT(replay.Err(), Contains("stopped after"));
    CHECK(AtRest(daemon));
  }
}

TEST_CASE("a daemon that dies ends the replay with an error") {
  DaemonProcess daemon(HMMD_BINARY);
  LongReplay replay(daemon, "");
  daemon.Kill();
  CHECK(replay.child().Wait() == 1);
  CHECK_THAT(replay.Err(), Contains("hmmctl: "));
  const json report = json::parse(replay.Out(), nullptr, false);
  REQUIRE_FALSE(report.is_discarded());
  CHECK(report["errors"] > 0);
}

}  // namespace
}  // namespace hmm::ctl
