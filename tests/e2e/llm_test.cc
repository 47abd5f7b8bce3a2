// SPDX-License-Identifier: Apache-2.0
//
// A real model decodes with its KV cache and weights in hmmd: the same bytes with and without
// tiering, and prefixes shared between processes of a tenant alone. What it refuses:
// llm_input_test.cc.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/llm_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("a0: greedy output is the reference implementation's, to the byte") {
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  for (const int n : {1, 2, 3}) {
    INFO("golden " << n);
    CHECK(Run(Stories(GoldenPrompt(n)) + kLocal).text == Golden(n));
    const LlmRun run = Run(Stories(GoldenPrompt(n)) + In(daemon));
    CHECK(run.text == Golden(n));
    CHECK(run.figures["hits"]["ddr"] == 0);
    CHECK(run.figures["hits"]["flash"] == 0);
  }
}

TEST_CASE("a: the same tokens with HBM for a tenth of the KV cache, the rest in DDR") {
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "64KiB", .ddr = "8MiB"}));
  SECTION("blocks are read where they are") {
    const LlmRun run = Run(Stories(GoldenPrompt(3)) + In(daemon));
    CHECK(run.text == Golden(3));
    CHECK(run.figures["hits"]["ddr"] > run.figures["hits"]["hbm"]);
  }
  SECTION("blocks are brought to HBM to be read") {
    const std::string plain =
        Run(Stories(GoldenPrompt(3)) + kLocal + std::vector<std::string>{"-n", "256"}).text;
    const LlmRun run = Run(Stories(GoldenPrompt(3)) + In(daemon) +
                           std::vector<std::string>{"-n", "256", "--kv-tier", "hbm0"});
    CHECK(run.text == plain);
    CHECK(run.figures["hits"]["ddr"] > 0);
    CHECK(run.figures["moved_bytes"] > 0);
    CHECK(run.figures["moved_bytes"] <= MovedTo(daemon.dir(), "hbm0"));
  }
}

TEST_CASE("a: the same tokens with a tenth in HBM and a tenth in DDR, the rest on flash") {
  const std::vector<std::string> steps = {"-n", "192"};
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "64KiB", .ddr = "64KiB"}));
  const LlmRun run = Run(Stories(GoldenPrompt(1)) + In(daemon) + steps);
  CHECK(run.text == Run(Stories(GoldenPrompt(1)) + kLocal + steps).text);
  CHECK(run.figures["hits"]["flash"] > 0);
  INFO(run.figures);
  CHECK(run.figures["exposed_wait_ms"] > 0);
}

// Without this the cases with generated models, and the fleet's, would pass with any KV.
TEST_CASE("a generated model's text depends on all of its context, and does not end by itself") {
  const char* shape = GENERATE("4,256,4,2,300,1024", "6,384,8,4,300,1024", "4,128,4,2,300,2048");
  INFO(shape);
  const MadeModel model(shape);
  constexpr std::size_t kBytes = 480;
  // Tokens as numbers, what was written behind the prompt.
  const auto written = [&](const std::string& prompt) {
    std::stringstream text(
        Run(std::vector<std::string>{model.path(), "-p", prompt, "-n", "540"} + kLocal).text);
    const std::vector<std::string> tokens{std::istream_iterator<std::string>(text), {}};
    CHECK(tokens.size() == 540);
    return std::vector<std::string>(tokens.begin() + kBytes, tokens.end());
  };
  const std::string prompt = LongPrompt(kBytes);
  const std::vector<std::string> text = written(prompt);
  CHECK(std::set<std::string>(text.begin(), text.end()).size() > 20);
  // Each ends as the prompt does.
  std::string other(prompt.rbegin() + 2, prompt.rend());
  CHECK(written(other + prompt.substr(kBytes - 2)) != text);
  for (const std::size_t changed : {std::size_t{0}, kBytes / 2, kBytes - 32}) {
    INFO("changed at " << changed);
    other = prompt;
    std::reverse(other.begin() + static_cast<std::ptrdiff_t>(changed),
                 other.begin() + static_cast<std::ptrdiff_t>(changed) + 16);
    CHECK(written(other) != text);
  }
}

TEST_CASE("a and b: a larger model whose context is longer than HBM and DDR can hold") {
  // 4 layers of 1,024 bytes a token, 640 tokens: 2.5 MiB of KV, a tenth of it in each.
  const MadeModel model("4,256,4,2,300,1024");
  const std::vector<std::string> args = {model.path(), "-p", LongPrompt(600), "-n", "640",
                                         "--chunk",    "32"};
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "256KiB", .ddr = "256KiB"}));
  const LlmRun run = Run(args + In(daemon));
  CHECK(run.text == Run(args + kLocal).text);
  CHECK(run.figures["hits"]["flash"] > 0);
}

TEST_CASE("c: many texts in turns, four times more KV than HBM, suspended and resumed") {
  // 8 texts of 128 positions of 1,280 bytes: 1.25 MiB.
  const std::vector<std::string> args =
      Stories("Once upon a time") +
      std::vector<std::string>{"-n",     "128", "--sequences",   "8",
                               "--turn", "16",  "--temperature", "0.9"};
  const std::string plain = Run(args + kLocal).text;
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "320KiB", .ddr = "8MiB"}));
  const std::string suspend_to = GENERATE("", "ddr0", "flash0");
  INFO("suspended to " << suspend_to);
  const LlmRun run = Run(args + In(daemon) +
                         std::vector<std::string>{"--kv-tier", "hbm0", "--suspend-to", suspend_to});
  CHECK(run.text == plain);
  CHECK(run.figures["hits"][suspend_to == "flash0" ? "flash" : "ddr"] > 0);
}

TEST_CASE("d and e: a prefix is shared by the processes of a tenant, and not by others") {
  const MadeModel model("4,256,4,2,300,1024");
  const std::vector<std::string> args = {model.path(), "-p", LongPrompt(700), "-n", "720"};
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "16MiB", .ddr = "16MiB"}));
  const LlmRun first = Run(args + In(daemon));
  const LlmRun second = Run(args + In(daemon));
  WARN("time to first token: " << first.figures["ttft_ms"] << " ms computed, "
                               << second.figures["ttft_ms"] << " ms with the prefix found");
  CHECK(first.figures["prefill_tokens_skipped"] == 0);
  CHECK(second.figures["prefill_tokens_skipped"] == 688);  // 43 blocks of 16 of 701 tokens
  CHECK(second.figures["ttft_ms"] < first.figures["ttft_ms"]);
  CHECK(second.text == first.text);

  // Another salt is another cache.
  CHECK(Run(args + In(daemon) + std::vector<std::string>{"--salt", "other"})
            .figures["prefill_tokens_skipped"] == 0);
  REQUIRE(::chmod(daemon.dir().c_str(), 0755) == 0);  // so that others may come
  if (::geteuid() != 0) {
    WARN("not root: another uid was not tried");
    return;
  }
  const LlmRun stranger =
      Run(args + In(daemon), {"setpriv", "--reuid=4711", "--regid=4711", "--clear-groups"});
  CHECK(stranger.figures["prefill_tokens_skipped"] == 0);
  CHECK(stranger.text == first.text);
}

TEST_CASE("e: another model under the name of one that was cached is another model") {
  // The older first: the file's time alone does not tell.
  const MadeModel other("2,64,4,2,300,256", "2");
  const MadeModel model("2,64,4,2,300,256", "1");
  const std::vector<std::string> args = {model.path(), "-p", LongPrompt(100), "-n", "140"};
  const std::vector<std::string> weights = {"--offload-weights"};
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  const std::string first = Run(args + In(daemon) + weights).text;
  const std::string record = ReadFile(model.path() + ".sha256");

  REQUIRE(::rename(other.path().c_str(), model.path().c_str()) == 0);
  const std::string plain = Run(args + kLocal).text;
  REQUIRE(plain != first);
  const LlmRun run = Run(args + In(daemon) + weights);
  CHECK(run.text == plain);
  CHECK(run.figures["prefill_tokens_skipped"] == 0);
  CHECK(run.figures["loaded_bytes"] > 0);
  // The record was that of the file before, and is this one's now.
  const std::string fresh = ReadFile(model.path() + ".sha256");
  CHECK(fresh != record);
  Run(args + In(daemon));
  CHECK(ReadFile(model.path() + ".sha256") == fresh);

  // What sha256sum wrote does not say for which file: right, it is completed; wrong, ignored.
  const auto write = [&](const std::string& line) {
    std::ofstream(model.path() + ".sha256", std::ios::trunc) << line << "  model.bin\n";
  };
  write(record.substr(0, 64));
  CHECK(Run(args + In(daemon) + weights).text == plain);
  CHECK(ReadFile(model.path() + ".sha256") == record.substr(0, 64) + "  model.bin\n");
  write(fresh.substr(0, 64));
  CHECK(Run(args + In(daemon) + weights).text == plain);
  CHECK(ReadFile(model.path() + ".sha256") == fresh);
}

TEST_CASE("h: weights in hmmd, HBM for two layers or four: the same tokens") {
  const MadeModel model("6,256,4,2,300,256");  // layers of 2.75 MiB
  const std::vector<std::string> args = {model.path(), "-p", "Say", "-n", "24"};
  const std::string plain = Run(args + kLocal).text;
  // Two: a hint finds no room. Four: it brings the next one, or is waited for.
  const std::string hbm = GENERATE("5632KiB", "12MiB");
  INFO("HBM of " << hbm);
  const DaemonProcess daemon(
      HMMD_BINARY, TiersOf({.hbm = hbm, .ddr = "32MiB", .hbm_extra = "high = 1.0\nlow = 0.95\n"}));
  const std::vector<std::string> offload = {"--offload-weights", "--weight-tier", "hbm0"};
  const LlmRun run = Run(args + kLocal + offload + In(daemon));
  CHECK(run.text == plain);
  CHECK(run.figures["moved_bytes"] > 0);
  CHECK(run.figures["moved_bytes"] <= MovedTo(daemon.dir(), "hbm0"));
  // Hinted at and then waited for, a layer has come up once.
  std::uint64_t used = 0;
  for (const auto& count : run.figures["hits"]) used += count.get<std::uint64_t>();
  CHECK(run.figures["moved_bytes"] <= used * 737'792 * sizeof(float));
  CHECK(run.figures["loaded_bytes"] > 6 * 2 * kMiB);
  // The second process attaches to what the first loaded, and its KV cache joins in.
  const LlmRun second = Run(args + offload + In(daemon));
  CHECK(second.text == plain);
  CHECK(second.figures["loaded_bytes"] == 0);
}

TEST_CASE("the picture: Watch's samples of a run show all tiers filling up") {
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "128KiB", .ddr = "192KiB"}));
  const TempDir dir;
  const std::string samples = dir.File("occupancy.jsonl");
  const auto shell = [&](const std::string& command) {
    return std::make_unique<ChildProcess>(
        std::vector<std::string>{"sh", "-c", "exec " + command, "sh", samples}, dir.File("log"));
  };
  auto watch = shell(std::string(HMMCTL_BINARY) + " --dir " + daemon.dir() +
                     " events --occupancy 10 -o json > \"$1\"");
  REQUIRE(WaitUntil([&] { return ReadFile(samples).find("\"occupancy\"") != std::string::npos; }));
  Run(Stories("Once") + In(daemon) + std::vector<std::string>{"-n", "300"});
  const std::size_t seen = ReadFile(samples).size();
  REQUIRE(WaitUntil([&] { return ReadFile(samples).size() > seen; }));
  watch->Signal(SIGTERM);
  CHECK(watch->Wait() == 0);

  const std::string picture = dir.File("occupancy.svg");
  auto draw =
      shell("python3 -B " LLM_SOURCE_DIR "/occupancy.py \"$1\" " + picture + " > \"$1.txt\"");
  const int drawn = draw->Wait();
  INFO(ReadFile(dir.File("log")));
  REQUIRE(drawn == 0);
  const std::string svg = ReadFile(picture);
  const std::string text = ReadFile(samples + ".txt");
  INFO(text);
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  CHECK(lines == 3);
  for (const char* tier : {"hbm0, of 128 KiB", "ddr0, of 192 KiB", "flash0, of 64 MiB"}) {
    CHECK(svg.find(tier) != std::string::npos);
  }
  // 5 layers of 18 full blocks, of 4 KiB each: more than HBM and DDR hold, so flash has some.
  for (const char* tier : {"hbm0 ", "ddr0 ", "flash0 "}) {
    const std::size_t line = text.find(tier);
    REQUIRE(line != std::string::npos);
    CHECK(text.substr(line, text.find('\n', line) - line).find(" 0 B of") == std::string::npos);
  }

  // What is no such file is refused with its line.
  dir.Write("occupancy.jsonl", "{\"type\": \"occupancy\"}\n");
  CHECK(shell("python3 -B " LLM_SOURCE_DIR "/occupancy.py \"$1\"")->Wait() == 1);
  CHECK(ReadFile(dir.File("log")).find(":1: not a line of") != std::string::npos);

  // So is what is no text, no file, or not there; and a picture that can not be written is named.
  const auto refused = [&](const std::string& words, const std::string& error) {
    CHECK(shell("python3 -B " LLM_SOURCE_DIR "/occupancy.py " + words)->Wait() == 1);
    const std::string said = ReadFile(dir.File("log"));
    INFO(said);
    CHECK(said.find(error) != std::string::npos);
    CHECK(said.find("Traceback") == std::string::npos);
  };
  refused(dir.File("none"), "none: No such file or directory");
  refused(dir.path(), dir.path() + ": Is a directory");
  dir.Write("binary", "\xff\xfe\n");
  refused(dir.File("binary"), "binary:1: not a line of");
  dir.Write("few",
            "{\"type\": \"occupancy\", \"time_us\": 1, \"tiers\": "
            "[{\"tier\": \"hbm0\", \"used_bytes\": 1, \"capacity_bytes\": 2}]}\n");
  refused(dir.File("few") + " " + dir.File("none/out.svg"), "out.svg: No such file or directory");
  refused(dir.File("few") + " /dev/full", "/dev/full: No space left on device");
}

}  // namespace
}  // namespace hmm::testing
