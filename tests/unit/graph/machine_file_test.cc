// SPDX-License-Identifier: Apache-2.0
#include "graph/machine_file.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "graph/quantity.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::graph {
namespace {

using Catch::Contains;
using hmm::testing::TempDir;

bool Same(const plan::Machine& a, const plan::Machine& b) {
  const auto same_link = [](const plan::Link& x, const plan::Link& y) {
    const auto same_point = [](const plan::BandwidthPoint& p, const plan::BandwidthPoint& q) {
      return p.bytes == q.bytes && p.bytes_per_us == q.bytes_per_us;
    };
    return x.from == y.from && x.to == y.to && x.engines == y.engines &&
           x.latency_us == y.latency_us && x.duplex_factor == y.duplex_factor &&
           x.contention_group == y.contention_group &&
           std::equal(x.curve.begin(), x.curve.end(), y.curve.begin(), y.curve.end(), same_point);
  };
  return a.name == b.name && a.assumptions == b.assumptions && a.flops_per_us == b.flops_per_us &&
         a.hbm_bytes_per_us == b.hbm_bytes_per_us && a.launch_us == b.launch_us &&
         a.hbm_bytes == b.hbm_bytes && a.ddr_bytes == b.ddr_bytes &&
         a.flash_bytes == b.flash_bytes &&
         std::equal(a.links.begin(), a.links.end(), b.links.begin(), b.links.end(), same_link);
}

TEST_CASE("presets come back from a file the same") {
  for (const std::string_view name : plan::MachinePresetNames()) {
    const plan::Machine machine = *plan::MachinePreset(name);
    const auto text = FormatMachine(machine);
    REQUIRE(text.ok());
    const auto back = ParseMachine(*text, "m.toml");
    if (!back.ok()) FAIL(back.status());
    CHECK(Same(machine, *back));
    CHECK(Same(machine, LoadMachine(std::string(name)).value()));
  }
}

TEST_CASE("random machines come back from a file the same") {
  std::mt19937_64 rng(1);
  const auto unit = [&rng] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
  for (int i = 0; i < 1000; ++i) {
    plan::Machine m;
    m.name = absl::StrCat("m\"\\\n\x01", i);
    m.assumptions = i % 2 == 0 ? "" : "é";
    m.flops_per_us = std::exp(40 * unit());
    m.hbm_bytes_per_us = std::exp(20 * unit());
    m.launch_us = i % 3 == 0 ? 0 : 100 * unit();
    m.hbm_bytes = 1 + rng() % (Bytes{1} << 40);
    m.ddr_bytes = 1 + rng() % (Bytes{1} << 40);
    m.flash_bytes = i % 4 == 0 ? 0 : 1 + rng() % (Bytes{1} << 50);
    for (const auto& [from, to] :
         {std::pair(TierKind::kHbm, TierKind::kDdr), std::pair(TierKind::kFlash, TierKind::kDdr)}) {
      if (from == TierKind::kFlash && m.flash_bytes == 0) continue;
      plan::Link link{from, to,         static_cast<std::uint32_t>(1 + rng() % 64), 50 * unit(),
                      {},   1 - unit(), static_cast<std::uint32_t>(rng() % 9)};
      Bytes at = 0;
      for (std::uint64_t points = 1 + rng() % 5; points > 0; --points) {
        at += 1 + rng() % 10'000'000;
        link.curve.push_back({at, std::exp(15 * unit())});
      }
      m.links.push_back(link);
    }
    const auto text = FormatMachine(m);
    if (!text.ok()) FAIL(text.status());
    if (!Same(m, ParseMachine(*text, "m.toml").value())) FAIL(*text);
  }
}

TEST_CASE("the example has every key, and is what it says") {
  const auto machine = LoadMachine(HMM_SOURCE_DIR "/config/machines/example.toml");
  if (!machine.ok()) FAIL(machine.status());
  plan::Machine preset = *plan::MachinePreset("ascend-supernode");
  preset.name = machine->name;
  preset.assumptions = machine->assumptions;
  CHECK(Same(preset, *machine));
}

constexpr char kGood[] = R"(name = "m"
flops = "100TFLOP/s"
hbm_bandwidth = "2TB/s"
launch = "5us"
hbm_capacity = "16GiB"
ddr_capacity = "64GiB"
[[link]]
from = "hbm"
to = "ddr"
engines = 2
latency = "10us"
bandwidth = "16GiB/s"
duplex_factor = 0.5
contention_group = 3
[[link]]
from = "ddr"
to = "hbm"
curve = [["64KiB", "4GiB/s"], ["2MiB", "16GiB/s"]]
)";

TEST_CASE("a machine file") {
  const auto m = ParseMachine(kGood, "m.toml");
  REQUIRE(m.ok());
  CHECK(m->flops_per_us == 100e6);
  CHECK(m->hbm_bytes_per_us == 2e6);
  CHECK(m->launch_us == 5);
  CHECK(m->hbm_bytes == 16 * kGiB);
  CHECK(m->flash_bytes == 0);
  REQUIRE(m->links.size() == 2);
  CHECK(m->links[0].engines == 2);
  CHECK(m->links[0].duplex_factor == 0.5);
  CHECK(m->links[0].contention_group == 3);
  CHECK(plan::BandwidthAt(m->links[0], 5) == Approx(16 * 1073.741824));
  CHECK(m->links[1].engines == 1);
  CHECK(m->links[1].duplex_factor == 1);
  CHECK(m->links[1].curve.size() == 2);
}

TEST_CASE("what is wrong with a machine file is said with file, line and key") {
  struct Row {
    const char* from;
    const char* to;
    const char* says;
  };
  const Row rows[] = {
      {"name = \"m\"", "name = m", "f.toml:1: syntax: "},
      {"name = \"m\"", "", "f.toml:1: name: is missing"},
      {"name = \"m\"", "name = 3", "f.toml:1: name: write a text"},
      {"name = \"m\"", "name = \"\"", "name: is empty"},
      {"launch", "lanch", "f.toml:4: lanch: unknown key; did you mean 'launch'?"},
      {"launch", "zzzzzzzzzzzzz", "unknown key; known are name, assumptions"},
      {"latency", "latenci", "f.toml:11: link[0].latenci: unknown key; did you mean 'latency'?"},
      {"launch = \"5us\"", "flops = \"1TFLOP/s\"", "f.toml:4: syntax: "},
      {"\"100TFLOP/s\"", "100e12",
       "f.toml:2: flops: write a rate in quotes such as \"140TFLOP/s\""},
      {"\"100TFLOP/s\"", "\"100TB/s\"", "f.toml:2: flops: \"100TB/s\": write"},
      {"\"100TFLOP/s\"", "\"nanTFLOP/s\"", "flops: \"nanTFLOP/s\": write"},
      {"\"100TFLOP/s\"", "\"0TFLOP/s\"", "flops: \"0TFLOP/s\": write"},
      {"\"2TB/s\"", "\"-2TB/s\"", "f.toml:3: hbm_bandwidth: \"-2TB/s\": write"},
      {"\"2TB/s\"", "\"2Tb/s\"", "hbm_bandwidth: \"2Tb/s\": write"},
      {"\"2TB/s\"", "\"1e999TB/s\"", "hbm_bandwidth"},
      {"\"5us\"", "\"5\"", "f.toml:4: launch: \"5\": write a time"},
      {"\"5us\"", "\"2000s\"", "launch: is beyond 1000s"},
      {"\"16GiB\"", "\"16GB\"", "f.toml:5: hbm_capacity: '16GB' is not a size"},
      {"\"16GiB\"", "16", "f.toml:5: hbm_capacity: write a size in quotes"},
      {"\"16GiB\"", "\"0B\"", "hbm_capacity: is 0"},
      {"\"16GiB\"", "\"4194304TiB\"", "hbm_capacity: is beyond 2^60"},
      {"ddr_capacity = \"64GiB\"", "",
       "f.toml:7: link[0].to: the machine has no ddr; give ddr_cap"},
      {"to = \"ddr\"", "to = \"flash\"", "link[0].to: links join neighbours"},
      {"to = \"ddr\"", "to = \"hbm\"", "link[0].to: links join neighbours"},
      {"to = \"ddr\"", "to = \"dram\"", "f.toml:9: link[0].to: \"dram\": write \"hbm\""},
      {"to = \"ddr\"", "", "link[0].to: is missing"},
      {"from = \"ddr\"\nto = \"hbm\"", "from = \"hbm\"\nto = \"ddr\"",
       "f.toml:15: link[1].from: this direction has a link already"},
      {"engines = 2", "engines = 0", "f.toml:10: link[0].engines: write a whole number from 1"},
      {"engines = 2", "engines = 2.5", "link[0].engines: write a whole number"},
      {"\"10us\"", "\"-1us\"", "f.toml:11: link[0].latency: \"-1us\": write a time"},
      {"bandwidth = \"16GiB/s\"\n", "", "link[0].bandwidth: give either this or a curve"},
      {"curve =", "bandwidth = \"1GB/s\"\ncurve =", "link[1].bandwidth: give either"},
      {"duplex_factor = 0.5", "duplex_factor = 0.0", "f.toml:13: link[0].duplex_factor: write a"},
      {"duplex_factor = 0.5", "duplex_factor = nan", "link[0].duplex_factor: write a ratio"},
      {"duplex_factor = 0.5", "duplex_factor = 1.5", "link[0].duplex_factor: write a ratio"},
      {"contention_group = 3", "contention_group = -1", "link[0].contention_group: write a whole"},
      {"\"64KiB\", \"4GiB/s\"", "\"4MiB\", \"4GiB/s\"", "f.toml:18: link[1].curve: sizes must be"},
      {"\"64KiB\", \"4GiB/s\"", "\"64KiB\"", "link[1].curve: write a list such as"},
      {"\"64KiB\", \"4GiB/s\"", "\"64KiB\", \"0GiB/s\"", "link[1].curve: \"0GiB/s\": write a rate"},
      {"\"64KiB\", \"4GiB/s\"", "\"0B\", \"4GiB/s\"", "link[1].curve: sizes must be above 0"},
      {"[[\"64KiB\", \"4GiB/s\"], [\"2MiB\", \"16GiB/s\"]]", "[]", "link[1].curve: write a list"},
      {"[[link]]\nfrom = \"ddr\"", "[link2]\nfrom = \"ddr\"", "link2: unknown key"},
  };
  for (const Row& row : rows) {
    const std::string text = absl::StrReplaceAll(kGood, {{row.from, row.to}});
    REQUIRE(text != kGood);
    const auto machine = ParseMachine(text, "f.toml");
    INFO(row.from << " -> " << row.to);
    REQUIRE_FALSE(machine.ok());
    CHECK(absl::IsInvalidArgument(machine.status()));
    CHECK(ReasonOf(machine.status()) == Reason::kBadConfig);
    CHECK_THAT(std::string(machine.status().message()), Contains(row.says));
  }
  CHECK_THAT(std::string(ParseMachine("link = 3\nname = \"m\"\nflops = \"1TFLOP/s\"\n"
                                      "hbm_bandwidth = \"1GB/s\"\nhbm_capacity = \"1GiB\"",
                                      "f.toml")
                             .status()
                             .message()),
             Contains("f.toml:1: link: write [[link]]"));
  CHECK(ReasonOf(ParseMachine(std::string(kMiB + 1, ' '), "f.toml").status()) == Reason::kTooLarge);
  CHECK_FALSE(ParseMachine(std::string(100'000, '['), "f.toml").ok());
  CHECK_FALSE(ParseMachine("a = " + std::string(100'000, '['), "f.toml").ok());
}

TEST_CASE("every prefix of a file is refused or a smaller machine") {
  const std::string text = kGood;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const auto machine = ParseMachine(text.substr(0, n), "cut.toml");
    if (!machine.ok()) CHECK(ReasonOf(machine.status()) == Reason::kBadConfig);
  }
}

TEST_CASE("a machine by name or path") {
  const TempDir dir;
  dir.Write("m.toml", kGood);
  CHECK(LoadMachine(dir.File("m.toml")).value().name == "m");
  const absl::Status none = LoadMachine("h10").status();
  CHECK(absl::IsNotFound(none));
  CHECK_THAT(std::string(none.message()), Contains("did you mean 'h100'?"));
  CHECK_THAT(std::string(LoadMachine(dir.File("none.toml")).status().message()),
             Contains("known are h100, gh200, ascend-supernode"));
  CHECK(ReasonOf(LoadMachine(dir.path()).status()) == Reason::kIo);
}

TEST_CASE("a machine that no file can describe is not written") {
  plan::Machine machine = *plan::MachinePreset("h100");
  machine.links[0].duplex_factor = 2;
  CHECK_FALSE(FormatMachine(machine).ok());
  machine = *plan::MachinePreset("h100");
  machine.flops_per_us = std::nan("");
  CHECK_FALSE(FormatMachine(machine).ok());
}

TEST_CASE("quantities") {
  CHECK(ParseRate("55GB/s") == 55e3);
  CHECK(ParseRate("16GiB/s") == 16 * 1073.741824);
  CHECK(ParseRate("1.5 TB/s") == 1.5e6);
  CHECK(ParseRate("250B/us") == 250);
  CHECK(ParseRate("1MB/s") == 1);
  CHECK(ParseRate("1e3MB/s") == 1000);
  for (const char* bad : {"", "GB/s", "1", "1GB", "1Gb/s", "infGB/s", "-1GB/s", "0GB/s", "1 2GB/s",
                          "0x1GB/s", "1e999GB/s", "GiB/s1"}) {
    INFO(bad);
    CHECK_FALSE(ParseRate(bad).has_value());
  }
  CHECK(ParseFlops("140TFLOP/s") == 140e6);
  CHECK(ParseFlops("1PFLOP/s") == 1e9);
  CHECK_FALSE(ParseFlops("140TFLOPS").has_value());
  CHECK(ParseMicroseconds("100ns") == 0.1);
  CHECK(ParseMicroseconds("0.5ms") == 500);
  CHECK(ParseMicroseconds("2s") == 2e6);
  CHECK(ParseMicroseconds("0us") == 0);
  CHECK_FALSE(ParseMicroseconds("5").has_value());
  CHECK(FormatRate(55e3) == "55GB/s");
  CHECK(FormatRate(16 * 1073.741824) == "16GiB/s");
  CHECK(FormatFlops(140e6) == "140TFLOP/s");
  CHECK(FormatMicroseconds(5) == "5us");
  std::mt19937_64 rng(2);
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::exp(60 * static_cast<double>(rng() >> 11) * 0x1p-53 - 20);
    if (ParseRate(FormatRate(value)) != value) FAIL(value);
    if (ParseFlops(FormatFlops(value)) != value) FAIL(value);
    if (ParseMicroseconds(FormatMicroseconds(value)) != value) FAIL(value);
  }
}

}  // namespace
}  // namespace hmm::graph
