// SPDX-License-Identifier: Apache-2.0
//
// hmm-llm as a process: runs, their text and their figures; daemons with tiers of a few KiB;
// models. Test thread.
#pragma once

#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/client_fixture.h"
#include "support/read_file.h"

namespace hmm::testing {

inline std::string Golden(int n) {
  return ReadFile(HMM_TEST_DATA "/llm/golden/p" + std::to_string(n) + ".out");
}
inline std::string GoldenPrompt(int n) {
  return ReadFile(HMM_TEST_DATA "/llm/golden/p" + std::to_string(n) + ".prompt");
}

// Three tiers; sizes as in hmmd.toml.
struct Sizes {
  std::string hbm, ddr, flash = "64MiB";
  std::string hbm_extra{};  // further lines of hbm0's block
};
inline std::string TiersOf(const Sizes& sizes) {
  const auto memory = [](const std::string& name, const std::string& kind, const std::string& size,
                         const std::string& extra) {
    return "[[tier]]\nname = \"" + name + "\"\nkind = \"" + kind + "\"\ncapacity = \"" + size +
           "\"\ncommit_chunk = \"64KiB\"\npages = \"small\"\n" + extra + "\n";
  };
  return "[daemon]\ncommit_headroom = \"16MiB\"\n" +
         memory("hbm0", "hbm", sizes.hbm, "emulated = true\n" + sizes.hbm_extra) +
         memory("ddr0", "ddr", sizes.ddr, "") +
         "[[tier]]\nname = \"flash0\"\nkind = \"flash\"\ncapacity = \"" + sizes.flash + "\"\n";
}

// A run of hmm-llm that has been started; killed when it goes.
class LlmProcess {
 public:
  // `before`: words to put before the command.
  explicit LlmProcess(std::vector<std::string> args, std::vector<std::string> before = {}) {
    // Standard output to a file, whose directory any user may write to.
    REQUIRE(::chmod(dir_.path().c_str(), 0777) == 0);
    std::vector<std::string> command = std::move(before);
    command.insert(command.end(), {"sh", "-c", "out=$1; shift; exec \"$@\" >\"$out\"", "sh",
                                   dir_.File("out"), LLM_BINARY, "--stats", "json"});
    command.insert(command.end(), args.begin(), args.end());
    child_ = std::make_unique<ChildProcess>(command, dir_.File("err"));
  }
  std::string out() const { return ReadFile(dir_.File("out")); }
  std::string err() const { return ReadFile(dir_.File("err")); }
  ChildProcess& process() { return *child_; }

  // Waits for its end, which must be a good one.
  void Finish() {
    const int code = child_->Wait();
    INFO(err());
    REQUIRE(code == 0);
  }
  nlohmann::json figures() const {
    const std::string text = err();
    return nlohmann::json::parse(text.substr(text.find('{')));
  }

 private:
  TempDir dir_;
  std::unique_ptr<ChildProcess> child_;
};

struct LlmRun {
  std::string text;
  nlohmann::json figures;
};
inline LlmRun Run(std::vector<std::string> args, std::vector<std::string> before = {}) {
  LlmProcess process(std::move(args), std::move(before));
  process.Finish();
  return {process.out(), process.figures()};
}
// The message of a run that must fail.
inline std::string FailedRun(std::vector<std::string> args) {
  LlmProcess process(std::move(args));
  const int code = process.process().Wait();
  INFO(process.err());
  CHECK(code == 1);
  return process.err();
}

inline std::vector<std::string> operator+(std::vector<std::string> a,
                                          const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The 260K-parameter story teller.
inline std::vector<std::string> Stories(const std::string& prompt) {
  return {HMM_TEST_DATA "/llm/stories260K.bin", "-t", HMM_TEST_DATA "/llm/tok512.bin", "-p",
          prompt};
}
inline const std::vector<std::string> kLocal = {"--kv", "local"};
inline std::vector<std::string> In(const DaemonProcess& daemon) { return {"--dir", daemon.dir()}; }

// A model with random weights, in a directory that every user may read.
class MadeModel {
 public:
  explicit MadeModel(const std::string& shape, const std::string& seed = "1") {
    REQUIRE(::chmod(dir_.path().c_str(), 0755) == 0);
    LlmProcess process({path(), "--make-model", shape, "--seed", seed});
    const int code = process.process().Wait();
    INFO(process.err());
    REQUIRE(code == 0);
  }
  std::string path() const { return dir_.File("model.bin"); }

 private:
  TempDir dir_;
};

// Text of which a generated model makes a token a byte.
inline std::string LongPrompt(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "block " + std::to_string(text.size()) + ", ";
  return text.substr(0, bytes);
}

}  // namespace hmm::testing
