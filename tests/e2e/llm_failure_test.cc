// SPDX-License-Identifier: Apache-2.0
//
// hmm-llm when processes die in the middle of a text.
#include <signal.h>

#include <string>
#include <vector>

#include "e2e/llm_fixture.h"

namespace hmm::testing {
namespace {

// Long enough in tokens to be met in the middle.
const std::vector<std::string> kSteps = {"-n", "600"};

TEST_CASE("f: an engine killed in mid-decode leaks nothing") {
  const MadeModel model("6,384,8,4,300,1024");
  const std::vector<std::string> args = {model.path(), "-p", "a"};
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "64MiB"}));
  const auto settled = [&] {
    const Books books = ReadBooks(daemon.dir());
    return books.pins == 0 && books.sessions == 0;
  };
  Run(args + In(daemon) + std::vector<std::string>{"-n", "64"});
  REQUIRE(WaitUntil(settled));
  const Books before = ReadBooks(daemon.dir());

  LlmProcess engine(args + In(daemon) + kSteps);
  REQUIRE(WaitUntil([&] { return engine.out().size() > 600; }));
  CHECK(ReadBooks(daemon.dir()).sessions == 1);
  engine.process().Signal(SIGKILL);
  engine.process().Wait();
  REQUIRE(WaitUntil(settled));
  // What is left is whole blocks under their keys, which the next run finds; and that one, as far
  // as the first, adds nothing.
  const Books after = ReadBooks(daemon.dir());
  CHECK((after.tensors - before.tensors) % 6 == 0);
  CHECK(after.tensors > before.tensors);
  const LlmRun again = Run(args + In(daemon) + std::vector<std::string>{"-n", "64"});
  CHECK(again.text == Run(args + kLocal + std::vector<std::string>{"-n", "64"}).text);
  REQUIRE(WaitUntil(settled));
  CHECK(ReadBooks(daemon.dir()).tensors == after.tensors);
}

TEST_CASE("g: the daemon restarts in mid-decode: the same text, by recomputation") {
  const MadeModel model("6,384,8,4,300,1024");
  const std::vector<std::string> args = {model.path(), "-p", "a", "-n", "250"};
  const std::string plain = Run(args + kLocal).text;
  DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "64MiB"}));
  const bool offload = GENERATE(false, true);
  LlmProcess engine(
      args + In(daemon) +
      (offload ? std::vector<std::string>{"--offload-weights"} : std::vector<std::string>{}));
  REQUIRE(WaitUntil([&] { return engine.out().size() > 200; }));
  daemon.Kill();
  daemon.Start();
  engine.Finish();
  CHECK(engine.out() == plain);
  CHECK(engine.figures()["recomputed_tokens"] > 0);
}

}  // namespace
}  // namespace hmm::testing
