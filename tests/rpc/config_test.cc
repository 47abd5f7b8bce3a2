// SPDX-License-Identifier: Apache-2.0
//
// The configuration: what is read, what is refused, and with which words.
#include "daemon/config.h"

#include <fstream>
#include <sstream>

#include "base/status.h"
#include "daemon/log_format.h"
#include "daemon/text.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::daemon {
namespace {

// A machine of 16 GiB memory and a disk of 100 GiB.
Resources Machine16() {
  Resources resources;
  resources.machine.memory_total = 16 * kGiB;
  resources.machine.memory_available = 16 * kGiB;
  resources.disk = [](const std::string&) -> absl::StatusOr<Resources::Disk> {
    return Resources::Disk{.device = 1, .available = 100 * kGiB};
  };
  return resources;
}

absl::StatusOr<Config> Read(const std::string& text) {
  absl::StatusOr<Config> config = ParseConfig(text, "hmmd.toml");
  if (!config.ok()) return config;
  if (const absl::Status status = CheckConfig(*config, Machine16()); !status.ok()) return status;
  return config;
}

// Checks code and reason and returns the message.
std::string Refusal(const std::string& text,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<Config> config = Read(text);
  REQUIRE(!config.ok());
  CHECK(config.status().code() == code);
  CHECK(ReasonOf(config.status()) == Reason::kBadConfig);
  return std::string(MessageOf(config.status()));
}

using Catch::Contains;
using Catch::StartsWith;

constexpr char kDdr[] = "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"1GiB\"\n";

}  // namespace

TEST_CASE("the default file is written from the table of keys") {
  std::ifstream file(HMM_SOURCE_DIR "/config/hmmd.toml");
  std::ostringstream text;
  text << file.rdbuf();
  // When this fails: hmmd --default-config > config/hmmd.toml
  CHECK(text.str() == DefaultConfigText());
}

TEST_CASE("the default file, with every key switched on, is what no file means") {
  std::string text;
  std::istringstream lines(DefaultConfigText());
  for (std::string line; std::getline(lines, line);) {
    const bool key = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    text += (key ? line.substr(1) : "") + "\n";
  }
  const absl::StatusOr<Config> config = ParseConfig(text, "hmmd.toml");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  const Config none;
  CHECK(config->dir == none.dir);
  CHECK(config->socket_mode == none.socket_mode);
  CHECK(config->commit_headroom == none.commit_headroom);
  CHECK(config->limits.max_tensors == none.limits.max_tensors);
  CHECK(config->limits.rescan == none.limits.rescan);
  CHECK(config->limits.session_pinned_max == none.limits.session_pinned_max);
  CHECK(config->message_max == none.message_max);
  REQUIRE(config->tiers.size() == 1);
}

TEST_CASE("values are read with their units") {
  const auto config = Read(
      "[daemon]\ndir = \"/tmp/x\"\nsocket_mode = \"0660\"\nstop_timeout = \"1500ms\"\n"
      "[limits]\nmax_tensors = 64\nsession_pinned_max = 0.5\ntenant_resident_max = 1\n"
      "[move]\nrescan = \"50us\"\n"
      "[[tier]]\nname = \"hbm0\"\nkind = \"hbm\"\nemulated = true\ncapacity = \"1GiB\"\n"
      "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"50%\"\nreserve = \"10%\"\nhigh = "
      "0.8\n"
      "low = 0.5\n"
      "[[tier]]\nname = \"flash0\"\nkind = \"flash\"\ncapacity = \"10%\"\n");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->dir == "/tmp/x");
  CHECK(config->socket_mode == 0660);
  CHECK(config->stop_timeout == std::chrono::milliseconds(1500));
  CHECK(config->limits.rescan == std::chrono::microseconds(50));
  CHECK(config->limits.max_tensors == 64);
  CHECK(config->limits.session_pinned_max == 0.5);
  CHECK(config->limits.tenant_resident_max == 1.0);
  REQUIRE(config->tiers.size() == 3);
  CHECK(config->tiers[0].high == 0.85);
  CHECK(config->tiers[0].low == 0.75);
  CHECK(config->tiers[1].capacity_bytes == RoundDown((16 * kGiB - 256 * kMiB) / 2, 2 * kMiB));
  CHECK(config->tiers[1].reserve_bytes ==
        RoundDown(config->tiers[1].capacity_bytes / 10, 2 * kMiB));
  CHECK(config->tiers[1].low == 0.5);
  CHECK(config->tiers[2].capacity_bytes == 10 * kGiB);
  CHECK(config->tiers[2].path == "/var/lib/hmm/flash0.tier");
  CHECK(config->tiers[2].high == 0.9);
  // Nothing needs no unit.
  CHECK(Read(std::string(kDdr) + "reserve = \"0\"\n")->tiers[0].reserve_bytes == 0);
  // A size is kept as it is, also below the chunk in which memory is committed.
  CHECK(Read(std::string(kDdr) + "reserve = \"1MiB\"\n")->tiers[0].reserve_bytes == kMiB);
  CHECK(Read(std::string(kDdr) + "reserve = \"4096B\"\n")->tiers[0].reserve_bytes == 4096);
}

TEST_CASE("every level that the file takes can also be set, and the other way round") {
  const std::string before = LogLevel();
  for (const char* level : {"trace", "debug", "info", "warn", "error", "critical", "off"}) {
    INFO(level);
    CHECK(Read("[daemon]\nlog_level = \"" + std::string(level) + "\"\n" + kDdr).ok());
    CHECK(SetLogLevel(level).ok());
  }
  CHECK(SetLogLevel(before).ok());
}

TEST_CASE("unknown keys are named with file, line and the nearest known one", "[case 29]") {
  CHECK_THAT(
      Refusal("\n[daemon]\nlog_levle = \"info\"\n"),
      StartsWith("hmmd.toml:3: daemon.log_levle: ") && Contains("did you mean 'log_level'?"));
  CHECK_THAT(Refusal(std::string(kDdr) + "hihg = 0.8\n"),
             StartsWith("hmmd.toml:5: tier[0].hihg: ") && Contains("did you mean 'high'?"));
  CHECK_THAT(Refusal("[limit]\nmax_tensors = 1\n"),
             StartsWith("hmmd.toml:1: limit: ") && Contains("did you mean 'limits'?"));
  CHECK_THAT(Refusal("[daemon]\nzzzzzzzzzzzzzzzzzzzz = 1\n"),
             Contains("known are") && Contains("socket_mode"));
  CHECK_THAT(Refusal("dir = \"/run/hmm\"\n"), StartsWith("hmmd.toml:1: dir: unknown section"));
  CHECK_THAT(Refusal("[tier]\nname = \"ddr0\"\n"), Contains("[[tier]]"));
  CHECK_THAT(Refusal("[daemon]\ndir = \n"), StartsWith("hmmd.toml:2: syntax: "));
}

TEST_CASE("units that are not ours are refused with what to write", "[case 28]") {
  const std::string tier = "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = ";
  CHECK_THAT(Refusal(tier + "\"64MB\"\n"),
             StartsWith("hmmd.toml:4: ") && Contains("write \"64MiB\""));
  CHECK_THAT(Refusal(tier + "0.8\n"), Contains("write \"80%\""));
  CHECK_THAT(Refusal(tier + "1073741824\n"), Contains("has no unit"));
  CHECK_THAT(Refusal(tier + "\"1073741824\"\n"),
             Contains("'1073741824' has no unit") && Contains("\"1073741824B\""));
  CHECK_THAT(Refusal("[move]\nio_unit = \"65536\"\n"), Contains("has no unit"));
  CHECK_THAT(Refusal("[move]\nio_unit = 65536\n"), Contains("a size in quotes"));
  CHECK_THAT(Refusal(std::string(kDdr) + "link_bandwidth = \"4096/s\"\n"), Contains("has no unit"));
  CHECK_THAT(Refusal(tier + "\"120%\"\n"), Contains("percentage"));
  CHECK_THAT(Refusal(tier + "\"lots\"\n"), Contains("64KiB"));
  CHECK_THAT(Refusal(tier + "true\n"), Contains("8GiB"));
  CHECK_THAT(Refusal(std::string(kDdr) + "high = 85\n"), Contains("write 0.85"));
  CHECK_THAT(Refusal(std::string(kDdr) + "high = \"85%\"\n"), Contains("write 0.85"));
  CHECK_THAT(Refusal(std::string(kDdr) + "high = 0\n"), Contains("above 0"));
  CHECK_THAT(Refusal(std::string(kDdr) + "high = nan\n"), Contains("ratio"));
  CHECK_THAT(Refusal(std::string(kDdr) + "emulated = \"yes\"\n"), Contains("true or false"));
  CHECK_THAT(Refusal("[daemon]\nstop_timeout = 5\n"), Contains("\"5s\""));
  CHECK_THAT(Refusal("[daemon]\nsocket_mode = 660\n"), Contains("\"0660\""));
  CHECK_THAT(Refusal("[daemon]\nlog_level = \"loud\"\n"), Contains("\"debug\""));
  CHECK_THAT(Refusal("[limits]\nbatch_max = 0\n"), Contains("1..65536"));
  CHECK_THAT(Refusal("[limits]\nbatch_max = -1\n"), Contains("whole number"));
  CHECK_THAT(Refusal("[limits]\nbatch_max = 1.5\n"), Contains("whole number"));
}

TEST_CASE("a ratio in quotes is no size, and never counts as nothing", "[case 28]") {
  const std::string tier = "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = ";
  const std::string tenant = std::string(kDdr) + "[[tenant]]\nname = \"uid:7\"\nresident_max = ";
  // Shares: a percentage is what they take for it.
  CHECK_THAT(
      Refusal(std::string(kDdr) + "reserve = \"0.02\"\n"),
      StartsWith("hmmd.toml:5: tier[0].reserve: '0.02' has no unit") && Contains("write \"2%\""));
  CHECK_THAT(Refusal(tier + "\"0.2\"\n"),
             Contains("tier[0].capacity: '0.2' has no unit") && Contains("write \"20%\""));
  CHECK_THAT(Refusal(tier + "\"0.8\"\n"), Contains("write \"80%\""));
  CHECK_THAT(Refusal(tenant + "\"0.25\"\n"),
             Contains("resident_max: '0.25' has no unit") && Contains("write \"25%\""));
  CHECK_THAT(Refusal(tenant + "{ ddr0 = \"0.25\" }\n"),
             Contains("resident_max.ddr0: '0.25' has no unit") && Contains("write \"25%\""));
  // Sizes and rates take none.
  CHECK_THAT(Refusal("[limits]\nattached_max = \"0.1\"\n"),
             StartsWith("hmmd.toml:2: limits.attached_max: '0.1' has no unit") &&
                 Contains("without quotes") && Contains("\"64KiB\""));
  CHECK_THAT(Refusal(std::string(kDdr) + "link_bandwidth = \"0.5/s\"\n"),
             Contains("'0.5' has no unit"));
  // Nor is a part of a byte a size, in whatever unit.
  for (const char* size : {"1.5", "0.2B", "1.5B", "0.0001KiB"}) {
    CHECK_THAT(Refusal(std::string(kDdr) + "reserve = \"" + size + "\"\n"),
               Contains(size) && Contains("a fraction of a byte"));
  }
  CHECK(Read(std::string(kDdr) + "reserve = \"0.5MiB\"\n")->tiers[0].reserve_bytes == 512 * kKiB);
  // Where a ratio is meant.
  CHECK_THAT(Refusal(std::string(kDdr) + "high = \"0.85\"\n"),
             Contains("tier[0].high: '0.85': a ratio is written without quotes; write 0.85"));
}

TEST_CASE("tiers that contradict themselves") {
  CHECK_THAT(Refusal(std::string(kDdr) + "high = 0.7\nlow = 0.8\n"), Contains("tier ddr0"));
  CHECK_THAT(Refusal(std::string(kDdr) + "reserve = \"2GiB\"\n"), Contains("reserve"));
  CHECK_THAT(Refusal(std::string(kDdr) + "reserve = \"99%\"\n"), Contains("more than half"));
  CHECK(Read(std::string(kDdr) + "reserve = \"50%\"\n").ok());
  CHECK_THAT(Refusal(std::string(kDdr) + "reserve = \"-5MiB\"\n"),
             Contains("negative") && Contains("4096B") && !Contains("plain count"));
  CHECK_THAT(Refusal(std::string(kDdr) + kDdr), Contains("another tier has this name"));
  CHECK_THAT(Refusal(std::string(kDdr) + "commit_chunk = \"96KiB\"\n"), Contains("power of two"));
  CHECK_THAT(Refusal(std::string(kDdr) + "commit_chunk = \"4KiB\"\n"), Contains("64KiB"));
  CHECK_THAT(Refusal(std::string(kDdr) + "numa_node = 7\n"), Contains("numa_node"));
  CHECK_THAT(Refusal(std::string(kDdr) + "emulated = true\n"), Contains("give its link_bandwidth"));
  CHECK_THAT(Refusal(std::string(kDdr) + "path = \"/x\"\n"), Contains("only a flash tier"));
  const std::string hbm = "[[tier]]\nname = \"hbm0\"\nkind = \"hbm\"\ncapacity = \"1GiB\"\n";
  CHECK_THAT(Refusal(hbm), Contains("emulated = true"));
  CHECK_THAT(Refusal(std::string(kDdr) + hbm + "emulated = true\n"), Contains("order the tiers"));
  CHECK_THAT(Refusal("[[tier]]\nname = \"DDR 0\"\nkind = \"ddr\"\ncapacity = \"1GiB\"\n"),
             Contains("a-z"));
  CHECK_THAT(Refusal("[[tier]]\nkind = \"ddr\"\ncapacity = \"1GiB\"\n"), Contains("name: missing"));
  CHECK_THAT(Refusal("[[tier]]\nname = \"ddr0\"\ncapacity = \"1GiB\"\n"),
             Contains("kind: missing"));
  CHECK_THAT(Refusal("[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\n"), Contains("capacity: missing"));
  CHECK_THAT(Refusal("[[tier]]\nname = \"f\"\nkind = \"flash\"\ncapacity = \"1GiB\"\n"),
             Contains("only flash"));
}

TEST_CASE("capacities beyond the machine") {
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  CHECK_THAT(
      Refusal("[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"16GiB\"\n", exhausted),
      StartsWith("hmmd.toml:1: tier ddr0: capacity: ") && Contains("15.8 GiB"));
  // Together, though each would fit.
  const std::string two =
      "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"10GiB\"\n"
      "[[tier]]\nname = \"ddr1\"\nkind = \"ddr\"\ncapacity = \"10GiB\"\n";
  CHECK_THAT(Refusal(two, exhausted), StartsWith("hmmd.toml:5: tier ddr1: "));
  CHECK_THAT(
      Refusal("[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"16777215TiB\"\n", exhausted),
      Contains("tier ddr0"));
  CHECK_THAT(Refusal(std::string(kDdr) +
                         "[[tier]]\nname = \"flash0\"\nkind = \"flash\"\ncapacity = \"101GiB\"\n",
                     exhausted),
             Contains("file system"));
  CHECK_THAT(Refusal(std::string(kDdr) + "pages = \"hugetlb\"\n", exhausted), Contains("huge"));
}

TEST_CASE("several tiers of a kind are fine") {
  const auto config = Read(
      "[[tier]]\nname = \"hbm0\"\nkind = \"hbm\"\nemulated = true\ncapacity = \"1GiB\"\n"
      "[[tier]]\nname = \"hbm1\"\nkind = \"hbm\"\nemulated = true\ncapacity = \"1GiB\"\n"
      "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"2GiB\"\n"
      "[[tier]]\nname = \"ddr1\"\nkind = \"ddr\"\ncapacity = \"2GiB\"\n");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(Summary(*config) == "hbm0 1 GiB (emulated), hbm1 1 GiB (emulated), ddr0 2 GiB, ddr1 2 GiB");
}

TEST_CASE("without tiers, modest ones are chosen and HBM is called emulated") {
  Config config;
  CHECK(ChooseTiers(config, Machine16()));
  REQUIRE(CheckConfig(config, Machine16()).ok());
  CHECK(Summary(config) == "hbm0 1 GiB (emulated), ddr0 2 GiB, flash0 16 GiB");
  CHECK(!ChooseTiers(config, Machine16()));

  Resources tiny = Machine16();
  tiny.machine.memory_available = 512 * kMiB;
  Config small;
  CHECK(ChooseTiers(small, tiny));
  const absl::Status status = CheckConfig(small, tiny);
  INFO(status.ToString());
  CHECK(status.ok());
  CHECK(Summary(small) == "hbm0 32 MiB (emulated), ddr0 64 MiB, flash0 16 GiB");
}

TEST_CASE("a flash tier's path must be usable before anything is made there") {
  const testing::TempDir dir;
  absl::StatusOr<Resources> real = DetectResources();
  REQUIRE(real.ok());
  Resources resources = Machine16();
  resources.path = real->path;
  const auto check = [&](const std::string& path) {
    absl::StatusOr<Config> config = ParseConfig(
        std::string(kDdr) + "[[tier]]\nname = \"flash0\"\nkind = \"flash\"\ncapacity = \"1MiB\"\n" +
            "path = \"" + path + "\"\n",
        "hmmd.toml");
    REQUIRE(config.ok());
    return std::string(CheckConfig(*config, resources).message());
  };
  CHECK(check(dir.File("new")).empty());
  CHECK_THAT(check("/dev/null"), Contains("tier flash0: path: /dev/null is not a regular file"));
  CHECK_THAT(check(dir.File("")), Contains("is not a regular file"));
  CHECK_THAT(check(dir.File("none/f")), Contains("none is not a directory"));
}

TEST_CASE("limits that would turn into others are refused") {
  for (const char* size : {"4GiB", "1B"}) {
    CHECK_THAT(Refusal(std::string("[limits]\nmessage_max = \"") + size + "\"\n" + kDdr),
               Contains("limits.message_max"));
  }
  CHECK_THAT(Refusal("[daemon]\ndir = \"/" + std::string(120, 'd') + "\"\n" + kDdr),
             Contains("daemon.dir") && Contains("too long"));
  CHECK_THAT(Refusal("[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"0\"\n"),
             Contains("capacity: missing or 0"));
  CHECK_THAT(Refusal("[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = 16777216\n"),
             Contains("16777216 has no unit"));
}

TEST_CASE("how many events and moves are kept has bounds") {
  const auto config =
      Read(std::string("[limits]\nevents_kept = 256\nmoves_kept = 1048576\n") + kDdr);
  REQUIRE(config.ok());
  CHECK(config->limits.events_kept == 256);
  CHECK(config->limits.moves_kept == 1048576);
  for (const char* key : {"events_kept", "moves_kept"}) {
    for (const char* value : {"0", "255", "1048577"}) {
      CHECK_THAT(Refusal(std::string("[limits]\n") + key + " = " + value + "\n" + kDdr),
                 StartsWith(std::string("hmmd.toml:2: limits.") + key) && Contains("256..1048576"));
    }
  }
}

TEST_CASE("a file that is not there, or is none, says so") {
  const testing::TempDir dir;
  CHECK_THAT(std::string(LoadConfig(dir.File("")).status().message()), Contains("directory"));
  CHECK_THAT(std::string(LoadConfig("/dev/zero").status().message()), Contains("more than 1MiB"));
  const auto config = LoadConfig("/no/such/hmmd.toml");
  REQUIRE(!config.ok());
  CHECK(config.status().code() == absl::StatusCode::kNotFound);
}

namespace {

constexpr char kHbm[] = "[[tier]]\nname = \"hbm0\"\nkind = \"hbm\"\ncapacity = \"1GiB\"\n";
constexpr char kFlash[] = "[[tier]]\nname = \"f\"\nkind = \"flash\"\ncapacity = \"1GiB\"\n";

Resources MachineOf(const std::string& topology) {
  Resources resources = Machine16();
  resources.topology = tier::ReadTopology(
      {tier::TopologySource::Kind::kXml, HMM_SOURCE_DIR "/tests/data/topology/" + topology});
  REQUIRE(resources.topology.ok());
  return resources;
}

}  // namespace

TEST_CASE("demotion paths are checked by name and line, and tiers ordered by them") {
  const std::string two =
      std::string(kDdr) + "[[tier]]\nname = \"ddr1\"\nkind = \"ddr\"\n" + "capacity = \"1GiB\"\n";
  CHECK_THAT(Refusal(two + "demote_to = \"ddr2\"\n"),
             StartsWith("hmmd.toml:5: tier ddr1: demote_to: there is no tier 'ddr2'"));
  CHECK_THAT(Refusal(std::string(kDdr) + "demote_to = \"ddr1\"\n" + two.substr(sizeof(kDdr) - 1) +
                     "demote_to = \"ddr0\"\n"),
             Contains("circle: ddr0 -> ddr1 -> ddr0"));
  CHECK_THAT(Refusal(std::string(kHbm) + "emulated = true\n" + kDdr + "demote_to = \"hbm0\"\n"),
             Contains("hbm0 is hbm, faster than ddr"));
  const auto config = Read(two + "demote_to = \"ddr0\"\n" + kFlash);
  REQUIRE(config.ok());
  CHECK(config->tiers[0].name == "ddr1");
  CHECK(config->tiers[0].below == TierId{1});
  CHECK(config->tiers[1].name == "ddr0");
  CHECK(config->tiers[1].below == TierId{2});
  CHECK_FALSE(config->tiers[2].below.has_value());
}

TEST_CASE("a link's bandwidth has its unit and belongs to what is emulated") {
  const std::string hbm = std::string(kHbm) + "emulated = true\n";
  const auto config = Read(hbm + "link_bandwidth = \"16GiB/s\"\n" + kDdr +
                           "emulated = true\nlink_bandwidth = \"512MiB/s\"\n");
  INFO(config.status());
  REQUIRE(config.ok());
  CHECK(config->tiers[0].link_bandwidth == 16 * kGiB);
  CHECK(config->tiers[1].link_bandwidth == 512 * kMiB);
  CHECK_THAT(Refusal(hbm + "link_bandwidth = \"16GiB\"\n"), Contains("\"16GiB/s\""));
  CHECK_THAT(Refusal(hbm + "link_bandwidth = 5\n"), Contains("\"16GiB/s\""));
  CHECK_THAT(Refusal(hbm + "link_bandwidth = \"16GB/s\"\n"), Contains("write \"16GiB\""));
  CHECK_THAT(Refusal(hbm + "link_bandwidth = \"0B/s\"\n"), Contains("0 is no bandwidth"));
  CHECK_THAT(Refusal(std::string(kDdr) + "link_bandwidth = \"1GiB/s\"\n"),
             Contains("only an emulated tier has one"));
  CHECK_THAT(Refusal(std::string(kDdr) + kFlash + "emulated = true\n"),
             Contains("a flash tier cannot be"));
}

TEST_CASE("NUMA nodes are the machine's: unknown ones refused, forbidden ones warned of") {
  const std::string on = "numa_node = ";
  absl::StatusOr<Config> config = ParseConfig(std::string(kDdr) + on + "2\n", "hmmd.toml");
  REQUIRE(config.ok());
  const absl::Status unknown = CheckConfig(*config, MachineOf("cpuset_one_node.xml"));
  CHECK_THAT(std::string(MessageOf(unknown)), Contains("has no node 2; it has 0, 1"));

  config = ParseConfig(std::string(kDdr) + on + "1\n", "hmmd.toml");
  REQUIRE(CheckConfig(*config, MachineOf("cpuset_one_node.xml")).ok());
  REQUIRE(config->warnings.size() == 1);
  CHECK_THAT(config->warnings[0],
             StartsWith("ddr0: the cpuset of this process forbids NUMA node 1"));

  Resources unreadable = Machine16();
  unreadable.topology = Error(absl::StatusCode::kFailedPrecondition, Reason::kIo, "hwloc: no");
  config = ParseConfig(kDdr, "hmmd.toml");
  REQUIRE(CheckConfig(*config, unreadable).ok());
  REQUIRE(config->warnings.size() == 1);
  CHECK_THAT(config->warnings[0], StartsWith("hwloc: no"));
}

TEST_CASE("HBM that is a node: each package's goes to its own DRAM") {
  std::string text;
  for (const char* tier : {"hbm0 hbm 2", "hbm1 hbm 3", "ddr0 ddr 0", "ddr1 ddr 1"}) {
    std::istringstream words(tier);
    std::string name, kind, node;
    words >> name >> kind >> node;
    text += "[[tier]]\nname = \"" + name + "\"\nkind = \"" + kind +
            "\"\ncapacity = \"1GiB\"\nnuma_node = " + node + "\n";
  }
  absl::StatusOr<Config> config = ParseConfig(text, "hmmd.toml");
  REQUIRE(config.ok());
  const absl::Status checked = CheckConfig(*config, MachineOf("xeon_max.xml"));
  INFO(checked.ToString());
  REQUIRE(checked.ok());
  CHECK(config->tiers[0].below == TierId{2});
  CHECK(config->tiers[1].below == TierId{3});
  CHECK(config->tiers[2].rank == 1);
}

}  // namespace hmm::daemon
