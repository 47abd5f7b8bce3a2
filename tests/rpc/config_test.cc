// SPDX-License-Identifier: Apache-2.0
//
// The configuration: what is read, what is refused, and with which words.
#include "daemon/config.h"

#include <fstream>
#include <sstream>

#include "base/status.h"
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
}

TEST_CASE("unknown keys are named with file, line and the nearest known one") {
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

TEST_CASE("units that are not ours are refused with what to write") {
  const std::string tier = "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = ";
  CHECK_THAT(Refusal(tier + "\"64MB\"\n"),
             StartsWith("hmmd.toml:4: ") && Contains("write \"64MiB\""));
  CHECK_THAT(Refusal(tier + "0.8\n"), Contains("write \"80%\""));
  CHECK_THAT(Refusal(tier + "1073741824\n"), Contains("has no unit"));
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

TEST_CASE("tiers that contradict themselves") {
  CHECK_THAT(Refusal(std::string(kDdr) + "high = 0.7\nlow = 0.8\n"), Contains("tier ddr0"));
  CHECK_THAT(Refusal(std::string(kDdr) + "reserve = \"2GiB\"\n"), Contains("reserve"));
  CHECK_THAT(Refusal(std::string(kDdr) + kDdr), Contains("another tier has this name"));
  CHECK_THAT(Refusal(std::string(kDdr) + "commit_chunk = \"96KiB\"\n"), Contains("power of two"));
  CHECK_THAT(Refusal(std::string(kDdr) + "commit_chunk = \"4KiB\"\n"), Contains("64KiB"));
  CHECK_THAT(Refusal(std::string(kDdr) + "numa_node = 7\n"), Contains("numa_node"));
  CHECK_THAT(Refusal(std::string(kDdr) + "emulated = true\n"), Contains("only an hbm tier"));
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

TEST_CASE("a file that is not there, or is none, says so") {
  const testing::TempDir dir;
  CHECK_THAT(std::string(LoadConfig(dir.File("")).status().message()), Contains("directory"));
  CHECK_THAT(std::string(LoadConfig("/dev/zero").status().message()), Contains("more than 1MiB"));
  const auto config = LoadConfig("/no/such/hmmd.toml");
  REQUIRE(!config.ok());
  CHECK(config.status().code() == absl::StatusCode::kNotFound);
}

}  // namespace hmm::daemon
