// SPDX-License-Identifier: Apache-2.0
//
// The configuration as text: what it comes to and where from, the reference, tenants.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "daemon/config.h"
#include "daemon/text.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::daemon {
namespace {

using Catch::Contains;
using Catch::StartsWith;

Resources Machine16() {
  Resources resources;
  resources.machine.memory_total = 16 * kGiB;
  resources.machine.memory_available = 16 * kGiB;
  resources.disk = [](const std::string&) -> absl::StatusOr<Resources::Disk> {
    return Resources::Disk{.device = 1, .available = 100 * kGiB};
  };
  return resources;
}

absl::StatusOr<Config> Read(const std::string& text, const std::string& name = "hmmd.toml") {
  absl::StatusOr<Config> config = ParseConfig(text, name);
  if (!config.ok()) return config;
  if (const absl::Status status = CheckConfig(*config, Machine16()); !status.ok()) return status;
  return config;
}

std::string Refusal(const std::string& text) {
  const absl::StatusOr<Config> config = Read(text);
  REQUIRE(!config.ok());
  CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ReasonOf(config.status()) == Reason::kBadConfig);
  return std::string(MessageOf(config.status()));
}

constexpr char kTiers[] =
    "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"25%\"\n"
    "[[tier]]\nname = \"flash0\"\nkind = \"flash\"\ncapacity = \"1GiB\"\n";

// The line of the text that starts with this.
std::string LineOf(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

// Without the comments, which say where a value comes from.
std::string Values(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t comment = line.find(" # ");
    if (!line.starts_with("#")) out += line.substr(0, comment) + "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("what is printed says where each value comes from, and what it comes to here") {
  auto config = Read(std::string("[limits]\nbatch_max = 7\n") + kTiers + "high = 0.95\n");
  REQUIRE(config.ok());
  config->sources["daemon.dir"] = "flag --dir";
  const std::string text = EffectiveConfigText(*config);
  CHECK_THAT(LineOf(text, "dir = "), Contains("\"/run/hmm\"") && Contains("# flag --dir"));
  CHECK_THAT(LineOf(text, "batch_max = "), Contains(" 7 ") && Contains("# hmmd.toml:2"));
  CHECK_THAT(LineOf(text, "max_tensors = "), Contains("1048576") && Contains("# default"));
  CHECK_THAT(LineOf(text, "capacity = \"25%\""), Contains("# hmmd.toml:6; 3.9GiB here"));
  CHECK_THAT(text, Contains("high = 0.95") && Contains("# hmmd.toml:11"));
  CHECK_THAT(LineOf(text, "# path = "), Contains("/var/lib/hmm/flash0.tier"));
  // Of flash these say nothing.
  CHECK_THAT(text.substr(text.find("flash0")), !Contains("commit_chunk") && !Contains("emulated"));
}

TEST_CASE("an emulated tier of another kind than HBM is printed as one") {
  const auto config = Read(
      "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"1GiB\"\n"
      "[[tier]]\nname = \"ddr_remote\"\nkind = \"ddr\"\ncapacity = \"1GiB\"\nemulated = true\n"
      "link_bandwidth = \"1GiB/s\"\n");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  const auto again = Read(EffectiveConfigText(*config), "printed.toml");
  INFO(again.status().ToString());
  REQUIRE(again.ok());
  CHECK(again->tiers[1].emulated);
  CHECK(again->tiers[1].link_bandwidth == kGiB);
}

TEST_CASE("what is printed, read again, is the same") {
  const std::string text =
      std::string(
          "[daemon]\ndir = \"/tmp/a \\\"b\\\" \\\\c\"\ncommit_headroom = \"1000001B\"\n"
          "[limits]\nsession_pinned_max = 0.123456789\n[move]\nrescan = \"1500us\"\n") +
      kTiers +
      "reserve = \"12.5%\"\n"
      "[[tenant]]\nname = \"pod-a\"\nresident_max = { ddr0 = \"12.5%\", flash0 = \"3MiB\" }\n"
      "[[tenant]]\nname = \"uid:1000\"\nresident_max = \"7%\"\n"
      "[[tenant]]\nname = \"b\"\ndir = \"/srv/b\"\nsocket_mode = \"0660\"\n"
      "connections_max = 7\n";
  const auto config = Read(text);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  const std::string printed = EffectiveConfigText(*config);
  INFO(printed);
  const auto again = Read(printed, "printed.toml");
  INFO(again.status().ToString());
  REQUIRE(again.ok());
  CHECK(Values(EffectiveConfigText(*again)) == Values(printed));
  CHECK(again->dir == "/tmp/a \"b\" \\c");
  CHECK(again->commit_headroom == 1000001);
  CHECK(again->limits.session_pinned_max == 0.123456789);
  CHECK(again->tiers[1].reserve_bytes == config->tiers[1].reserve_bytes);
  REQUIRE(again->tenants.size() == 3);
  CHECK(again->tenants[0].resident_max.by_tier.at("flash0").bytes == 3 * kMiB);
  CHECK(again->tenants[1].resident_max.all.ratio == 0.07);
  CHECK(again->tenants[2].socket_mode == 0660);
  CHECK(again->tenants[2].connections_max == 7);
}

TEST_CASE("the reference is written from the table of keys") {
  std::ifstream file(HMM_SOURCE_DIR "/docs/config.md");
  std::ostringstream text;
  text << file.rdbuf();
  // When this fails: hmmd --docs config.md > docs/config.md
  CHECK(text.str() == ConfigReferenceText());
  const std::string page = ConfigManPage("1.2.3");
  for (const char* key : {"dir", "max_tensors", "capacity", "resident_max"}) {
    CHECK_THAT(page, Contains(std::string("\n\\fB") + key));
    CHECK_THAT(text.str(), Contains(std::string("| `") + key + "` |"));
  }
}

TEST_CASE("tenants: sockets of their own, shares by tier") {
  const auto config = Read(std::string(kTiers) +
                           "[[tenant]]\nname = \"pod-a\"\nresident_max = { ddr0 = \"25%\" }\n"
                           "[[tenant]]\nname = \"uid:1000\"\nresident_max = \"1GiB\"\n"
                           "[[tenant]]\nname = \"pod_b\"\n");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  REQUIRE(config->tenants.size() == 3);
  CHECK(config->tenants[0].dir == "/run/hmm/pod-a");
  CHECK(config->tenants[0].has_sockets());
  CHECK_FALSE(config->tenants[1].has_sockets());
  const core::TenantLimits limits = TenantLimitsOf(*config);
  CHECK(limits.at("pod-a")[0].ratio == 0.25);
  CHECK(limits.at("pod-a")[1].ratio == 0);
  CHECK(limits.at("pod-a")[1].bytes == 0);
  CHECK(limits.at("uid:1000")[0].bytes == kGiB);
  CHECK(limits.at("uid:1000")[1].bytes == kGiB);
  CHECK(limits.at("pod_b").size() == 2);
}

TEST_CASE("tenants that contradict themselves or others") {
  const auto tenant = [](const std::string& keys) {
    return Refusal(std::string(kTiers) + "[[tenant]]\n" + keys);
  };
  CHECK_THAT(tenant("dir = \"/x\"\n"), StartsWith("hmmd.toml:9: tenant: name: missing"));
  CHECK_THAT(tenant("name = \"Pod\"\n"), Contains("a-z"));
  CHECK_THAT(tenant("name = \"a/../b\"\n"), Contains("a-z"));
  CHECK_THAT(tenant("name = \"" + std::string(33, 'a') + "\"\n"), Contains("at most 32"));
  for (const char* uid : {"uid:", "uid:x", "uid:-1", "uid:007", "uid: 7", "uid:4294967296"}) {
    CHECK_THAT(tenant(std::string("name = \"") + uid + "\"\n"), Contains("uid:1000"));
  }
  CHECK_THAT(tenant("name = \"uid:7\"\ndir = \"/x\"\n"), Contains("remove the key"));
  CHECK_THAT(tenant("name = \"uid:7\"\nsocket_mode = \"0600\"\n"), Contains("remove the key"));
  CHECK_THAT(tenant("name = \"uid:7\"\nconnections_max = 3\n"), Contains("remove the key"));
  CHECK_THAT(tenant("name = \"a\"\n[[tenant]]\nname = \"a\"\n"),
             StartsWith("hmmd.toml:11: tenant a: name: another tenant"));
  CHECK_THAT(tenant("name = \"a\"\ndir = \"/var/lib/hmm\"\n"), Contains("the daemon's own"));
  CHECK_THAT(tenant("name = \"a\"\ndir = \"/run/hmm/\"\n"), Contains("or another tenant's"));
  CHECK_THAT(tenant("name = \"a\"\ndir = \"/x/y\"\n[[tenant]]\nname = \"b\"\ndir = \"/x/./y/\"\n"),
             Contains("or another tenant's"));
  // Under another name: through a link, and counted from where the daemon starts.
  const testing::TempDir place;
  std::filesystem::create_directory_symlink("/run", place.File("link"));
  CHECK_THAT(tenant("name = \"a\"\ndir = \"" + place.File("link") + "/hmm\"\n"),
             Contains("the daemon's own"));
  const std::string relative =
      std::filesystem::path("/run/hmm").lexically_relative(std::filesystem::current_path());
  CHECK_THAT(Refusal("[daemon]\ndir = \"" + relative + "\"\n" + kTiers +
                     "[[tenant]]\nname = \"a\"\ndir = \"/run/hmm\"\n"),
             Contains("the daemon's own"));
  CHECK_THAT(tenant("name = \"a\"\ndir = \"/" + std::string(120, 'x') + "\"\n"),
             Contains("too long"));
  CHECK_THAT(tenant("name = \"a\"\nresident_max = { dr0 = \"5%\" }\n"),
             Contains("no tier 'dr0'") && Contains("did you mean 'ddr0'?"));
  CHECK_THAT(tenant("name = \"a\"\nresident_max = { ddr0 = 0.5 }\n"),
             StartsWith("hmmd.toml:11: tenant[0].resident_max.ddr0: ") && Contains("\"50%\""));
  CHECK_THAT(tenant("name = \"a\"\nresident_max = { ddr0 = \"0\" }\n"), Contains("0 is no share"));
  CHECK_THAT(tenant("name = \"a\"\nresident_max = \"0\"\n"), Contains("0 is no share"));
  CHECK_THAT(tenant("name = \"a\"\nresident_max = { }\n"), Contains("names no tier"));
  CHECK_THAT(tenant("name = \"a\"\nresident_max = true\n"), Contains("25%"));
  CHECK_THAT(tenant("name = \"a\"\nresident_mx = \"5%\"\n"),
             Contains("did you mean 'resident_max'?"));
  CHECK_THAT(Refusal("[tenant]\nname = \"a\"\n"), Contains("[[tenant]]"));
  std::string many;
  for (int i = 0; i <= 256; ++i) many += "[[tenant]]\nname = \"t" + std::to_string(i) + "\"\n";
  CHECK_THAT(Refusal(kTiers + many), Contains("at most 256"));
}

}  // namespace hmm::daemon
