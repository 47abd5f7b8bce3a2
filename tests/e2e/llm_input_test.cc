// SPDX-License-Identifier: Apache-2.0
//
// What hmm-llm refuses, and in which words; the form of its figures and of its answers as a server.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "e2e/llm_fixture.h"

namespace hmm::testing {
namespace {

const std::string kModel = HMM_TEST_DATA "/llm/stories260K.bin";

void Has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("bad input: a checkpoint's error names the field and the value") {
  const std::string model = ReadFile(kModel);
  const TempDir dir;
  const auto failed = [&](const std::string& bytes) {
    dir.Write("model.bin", bytes);
    const std::string error = FailedRun({dir.File("model.bin"), "--kv", "local"});
    Has(error, "hmm-llm: INVALID_ARGUMENT: model " + dir.File("model.bin"));
    return error;
  };
  const auto with_fields = [&](std::vector<std::pair<std::size_t, std::int32_t>> fields) {
    std::string bytes = model;
    for (const auto& [field, value] : fields) std::memcpy(bytes.data() + field * 4, &value, 4);
    return failed(bytes);
  };
  const auto with_field = [&](std::size_t field, std::int32_t value) {
    return with_fields({{field, value}});
  };
  Has(FailedRun({dir.File("none.bin"), "--kv", "local"}), "NOT_FOUND: model " + dir.path());
  Has(failed(""), "is empty");
  Has(failed(model.substr(0, 20)), "20 bytes, less than a header");
  Has(failed(model.substr(0, 100'000)), "100000 bytes, its header makes 1056540: truncated");
  Has(failed(model + "more"), "1056544 bytes");
  Has(failed("GGUF" + model), "GGUF");
  Has(failed("24ka" + model), "ak42");
  Has(failed("PK\x03\x04" + model), "zip archive");
  const std::string json = "{\"a\": {}}";
  Has(failed(std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') + json + model),
      "safetensors");
  Has(with_field(0, 0), "dim is 0, not 1 to");
  Has(with_field(0, -5), "dim is -5");
  Has(with_field(1, 0), "hidden_dim is 0");
  Has(with_field(2, 2'000'000'000), "n_layers is 2000000000");
  Has(with_field(3, 7), "dim is 64, no multiple of n_heads, 7");
  Has(with_field(4, 3), "n_heads is 8, no multiple of n_kv_heads, 3");
  Has(with_field(5, -2147483647 - 1), "vocab_size is 2147483648");
  Has(with_field(6, 0), "seq_len is 0");
  Has(with_fields({{0, 10}, {3, 2}, {4, 1}}), "dim / n_heads is 5: odd");
  // The largest fields there may be: 68.7 billion times more than 32 bits count, and no wrapping.
  Has(with_fields({{0, 1 << 20}, {1, 1 << 20}, {2, 1 << 12}, {5, 1 << 24}, {6, 1 << 24}}),
      "1056540 bytes, its header makes ");
  Has(with_fields({{0, 1 << 20}, {1, 1 << 20}, {2, 1 << 12}, {5, 1 << 24}, {6, 1 << 24}}),
      ": truncated");
}

TEST_CASE("bad input: weights that are no numbers are named before anything is computed") {
  const std::string model = ReadFile(kModel);
  const TempDir dir;
  const auto with = [&](std::size_t at, float value) {
    std::string bytes = model;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    dir.Write("model.bin", bytes);
  };
  const auto failed = [&](const std::vector<std::string>& where) {
    const std::string error =
        FailedRun(std::vector<std::string>{dir.File("model.bin"), "-n", "8"} + where);
    Has(error, "hmm-llm: INVALID_ARGUMENT: model " + dir.File("model.bin") + ": ");
    return error;
  };
  constexpr std::size_t kArrays = 7 * sizeof(std::int32_t), kWidth = 64, kVocab = 512, kLayers = 5;
  const float infinity = std::numeric_limits<float>::infinity();
  with(kArrays, std::nanf(""));
  Has(failed(kLocal), "token_embedding, element 0, is nan");
  with(kArrays + 4 * (kVocab * kWidth + kWidth + 3), -infinity);
  Has(failed(kLocal), "rms_att of layer 1, element 3, is -inf; weights must be finite");
  const std::size_t wq = kArrays + 4 * (kVocab * kWidth + kLayers * kWidth);
  with(wq + 4 * (2 * kWidth * kWidth + 4000), infinity);
  Has(failed(kLocal), "wq of layer 2, element 4000, is inf");
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  Has(failed(In(daemon) + std::vector<std::string>{"--offload-weights"}), "wq of layer 2");
  with(wq, std::numeric_limits<float>::max());  // what is finite is the model's affair
  Run({dir.File("model.bin"), "-n", "8", "--kv", "local"});
}

TEST_CASE("bad input: what is no file is said to be none, and is not waited for") {
  const TempDir dir;
  const std::string pipe = dir.File("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {pipe, "is a pipe or device, not a file"}, {dir.path(), "is a directory"}};
  for (const auto& [path, what] : cases) {
    Has(FailedRun({path, "--kv", "local"}), "INVALID_ARGUMENT: model " + path + ": " + what);
    Has(FailedRun({kModel, "-t", path, "--kv", "local"}),
        "INVALID_ARGUMENT: tokenizer " + path + ": " + what);
  }
}

TEST_CASE("bad input: numbers that are none") {
  const auto refused = [](const std::string& option, const std::string& value) {
    LlmProcess process({kModel, "--kv", "local", option, value});
    const int code = process.process().Wait();
    INFO(option << " " << value);
    CHECK(code == 2);
    Has(process.err(), option);
    Has(process.err(), "'" + value + "' is not ");
  };
  for (const char* option : {"--steps", "--seed", "--window", "--kv-budget"}) refused(option, "-1");
  for (const char* option : {"--steps", "--seed", "--window", "--kv-budget"}) {
    refused(option, "18446744073709551616");
  }
  refused("--window", "99999999999999999999b");
  refused("--window", "-1k");
  for (const char* value : {"nan", "-0.5", "101", "inf"}) refused("--temperature", value);
  Run({kModel, "-n", "2", "--kv", "local", "--seed", "18446744073709551615", "--window", "16MiB",
       "--kv-budget", "64 kb"});
}

TEST_CASE("help shows what holds without an option") {
  const TempDir dir;
  ChildProcess help({"sh", "-c", std::string("exec ") + LLM_BINARY + " --help >" + dir.File("out")},
                    dir.File("log"));
  REQUIRE(help.Wait() == 0);
  std::stringstream lines(ReadFile(dir.File("out")));
  const std::vector<std::pair<std::string, std::string>> defaults = {
      {"--temperature", "=0"}, {"--seed", "=1"},          {"--sequences", "=1"},
      {"--turn", "=16"},       {"--kv ", "=hmm"},         {"--kv-budget", "=0"},
      {"--chunk", "=64"},      {"--block-tokens", "=16"}, {"--window", "=16MiB"},
      {"--stats", "=text"}};
  std::size_t shown = 0;
  for (std::string line; std::getline(lines, line);) {
    for (const auto& [option, value] : defaults) {
      if (line.find("  " + option) == std::string::npos) continue;
      INFO(line);
      CHECK(line.find(value) != std::string::npos);
      ++shown;
    }
  }
  CHECK(shown == defaults.size());
}

TEST_CASE("bad input: kinds are named, not the numbers behind them") {
  const auto refused = [](const std::string& option, const std::string& value) {
    LlmProcess process({kModel, option, value});
    CHECK(process.process().Wait() == 2);
    return process.err();
  };
  Has(refused("--kv", "foo"), "--kv: 'foo' is not hmm|local\n");
  Has(refused("--kv", "1"), "'1' is not hmm|local\n");
  Has(refused("--kv-budget", "x"), "'x' is not a size");
}

TEST_CASE("bad input: a tokenizer that does not fit, a prompt that is too long") {
  const TempDir dir;
  const std::string words = ReadFile(HMM_TEST_DATA "/llm/tok512.bin");
  const auto tokenizer = [&](const std::string& bytes) {
    dir.Write("tok.bin", bytes);
    return FailedRun({kModel, "-t", dir.File("tok.bin"), "--kv", "local"});
  };
  Has(tokenizer(words.substr(0, 3000)), "vocab_size is 512");
  Has(tokenizer(words + words), "more tokens than the model's vocab_size, 512");
  std::string broken = words;
  broken[8] = '\x7f';  // the length of token 0
  broken[9] = '\x7f';
  Has(tokenizer(broken), "token 0: length is ");
  Has(tokenizer(""), "is empty");
  for (const std::size_t bytes : {1u, 3u}) {
    Has(tokenizer(words.substr(0, bytes)), "truncated: less than the 4 bytes of max_token_length");
  }
  broken = words;
  const float nan = std::nanf("");
  std::memcpy(broken.data() + 4, &nan, sizeof(nan));
  Has(tokenizer(broken), "token 0: score is nan");
  Has(tokenizer("GGUF" + words), "max_token_length is 1179993927, not 1 to 65536");
  const MadeModel few("2,64,4,2,100,64");
  Has(FailedRun({few.path(), "-t", HMM_TEST_DATA "/llm/tok512.bin", "--kv", "local"}),
      "vocab_size is 100, too few for a token of each byte");
  const std::string long_prompt = FailedRun(Stories(LongPrompt(4000)) + kLocal);
  CHECK(long_prompt.rfind("hmm-llm: INVALID_ARGUMENT: the prompt has ", 0) == 0);  // no figures
  Has(FailedRun(Stories(LongPrompt(4000)) + kLocal), "context (seq_len) is 512");
}

// fleet.py, with "out" and "log" in `dir`.
std::unique_ptr<ChildProcess> Fleet(const TempDir& dir, const std::string& options) {
  return std::make_unique<ChildProcess>(
      std::vector<std::string>{"sh", "-c",
                               "TMPDIR=" + dir.path() +
                                   " exec python3 -B " LLM_SOURCE_DIR
                                   "/../fleet/fleet.py --build " HMM_BINARY_DIR " " +
                                   options + " >" + dir.File("out")},
      dir.File("log"));
}

TEST_CASE(
    "bad input: the fleet says what is wrong in a line, and leaves nothing when it is ended") {
  const TempDir dir;
  const auto fleet = [&](const std::string& options) { return Fleet(dir, options); };
  for (const char* options : {"--model 4,128", "--model a,b", "--stride 0", "--engines 0",
                              "--sessions 0", "--build /nonexistent", "--trace /nonexistent",
                              "--model 4,129,4,2,300,2048", "--kv-share 0", "--kv-share nan"}) {
    INFO(options);
    CHECK(fleet(options)->Wait() == 2);
    Has(ReadFile(dir.File("log")), "fleet.py: ");
    CHECK(ReadFile(dir.File("log")).find("Traceback") == std::string::npos);
  }
  // Ended when its daemon serves, of tiers that a small model would make too small.
  const auto left = [&] {
    std::vector<std::filesystem::path> found;
    for (const auto& file : std::filesystem::directory_iterator(dir.path())) {
      if (file.is_directory()) found.push_back(file.path());
    }
    return found;
  };
  const auto running = fleet("--model 1,64,4,1,300,2048 --sessions 2 --requests 4 --engines 1");
  REQUIRE(WaitUntil([&] {
    const auto found = left();
    return !found.empty() && std::filesystem::exists(found[0] / "run/hmm.sock");
  }));
  running->Signal(SIGTERM);
  CHECK(running->Wait() == 1);
  CHECK(left().empty());
}

TEST_CASE(
    "a fleet with hardly a request: nothing is forecast, and who was killed has no more to do") {
  const TempDir dir;
  const auto fleet = Fleet(dir, "--model 2,64,4,2,300,2048 --sessions 1 --requests 1");
  const int code = fleet->Wait();
  INFO(ReadFile(dir.File("log")));
  CHECK(code == 0);
  const std::string out = ReadFile(dir.File("out"));
  Has(out, "ok         forecast of no blocks found off by 0%: 0.0% were");
  Has(out, "no sleep: engine 2 of model 1 served no request since it was started");
  // Found all the same, it would be missed by as much as can be.
  ChildProcess words({"sh", "-c",
                      "cd " LLM_SOURCE_DIR "/../fleet; exec python3 -B -c 'import fleet; "
                      "assert fleet.forecast_verdict(0, 0.2) == (\"forecast of no blocks found off "
                      "by 100%: 20.0% were\", False)'"},
                     dir.File("log"));
  const int same = words.Wait();
  INFO(ReadFile(dir.File("log")));
  CHECK(same == 0);
}

TEST_CASE("bad input: a shape to make that is none") {
  const TempDir dir;
  Has(FailedRun({dir.File("m.bin"), "--make-model", "4,64,8,3,512"}), "n_heads is 8");
  Has(FailedRun({dir.File("m.bin"), "--make-model", "4,64,x,3,512"}), "heads is \"x\"");
  Has(FailedRun({dir.File("m.bin"), "--make-model", "4,64,99999999999999999999,3,512"}),
      "heads is ");
  Has(FailedRun({dir.File("m.bin"), "--make-model", "4,64"}), "layers,dim,heads");
}

TEST_CASE("a model of 123 layers, whose header has a '{' where safetensors has one, is a model") {
  const MadeModel model("123,8,2,2,300,64");
  const LlmRun run = Run({model.path(), "-n", "8", "--kv", "local"});
  CHECK(run.figures["tokens"] == 8);
}

TEST_CASE("figures have the names that programs read") {
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  const LlmRun run = Run(Stories("Tom") + In(daemon) + std::vector<std::string>{"-n", "40"});
  std::set<std::string> names;
  for (const auto& [name, value] : run.figures.items()) names.insert(name);
  for (const char* name : {"tokens", "tokens_per_s", "ttft_ms", "prefill_tokens_skipped", "hits",
                           "exposed_wait_ms", "moved_bytes"}) {
    INFO(name);
    CHECK(names.contains(name));
    CHECK((name == std::string("hits") || run.figures[name].is_number()));
  }
  for (const char* tier : {"hbm", "ddr", "flash"}) CHECK(run.figures["hits"][tier].is_number());
  CHECK(run.figures["hits"].size() == 3);
  CHECK(run.figures["hits"]["hbm"] > 0);
  CHECK(run.figures["tokens"] > 1);
  CHECK(run.figures["tokens_per_s"] > 0);
  CHECK(run.figures["ttft_ms"] > 0);
}

TEST_CASE("figures go by what tiers are, not by what they are called") {
  std::string config = TiersOf({.hbm = "64KiB", .ddr = "8MiB"});
  config.replace(config.find("hbm0"), 4, "gpu0");
  config.replace(config.find("ddr0"), 4, "ram0");
  const DaemonProcess daemon(HMMD_BINARY, config);
  const LlmRun run = Run(Stories("Tom") + In(daemon) + std::vector<std::string>{"-n", "100"});
  INFO(run.figures);
  CHECK(run.figures["hits"]["hbm"] > 0);
  CHECK(run.figures["hits"]["ddr"] > 0);
  CHECK(run.figures["hits"]["flash"] == 0);
  CHECK(run.figures["hits"].size() == 3);
}

TEST_CASE("a text that could not be written is no success") {
  const TempDir dir;
  ChildProcess full({"sh", "-c", std::string("exec ") + LLM_BINARY + " \"$@\" >/dev/full", "sh",
                     kModel, "-n", "8", "--kv", "local", "--stats", "none"},
                    dir.File("log"));
  CHECK(full.Wait() == 1);
  Has(ReadFile(dir.File("log")), "standard output: No space left on device");
}

TEST_CASE("a model is made beside the one that is there, which stays if it can not be written") {
  const MadeModel model("2,64,4,2,300,64");
  const TempDir dir;  // a second name, as an engine that runs has the file
  REQUIRE(::link(model.path().c_str(), dir.File("mapped").c_str()) == 0);
  const std::string old = ReadFile(model.path());
  const std::vector<std::string> make = {model.path(), "--make-model", "3,64,4,2,300,64"};

  LlmProcess cut(make, {"sh", "-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "sh"});
  CHECK(cut.process().Wait() == 1);
  Has(cut.err(), "cannot write the model to " + model.path() + ": File too large");
  CHECK(ReadFile(model.path()) == old);
  std::size_t files = 0;
  const auto parent = std::filesystem::path(model.path()).parent_path();
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(parent)) ++files;
  CHECK(files == 2);  // the model and its digest

  LlmProcess process(make);
  CHECK(process.process().Wait() == 0);
  CHECK(ReadFile(model.path()) != old);
  CHECK(ReadFile(dir.File("mapped")) == old);
  Has(FailedRun({"/dev/full", "--make-model", "2,64,4,2,300"}), "/dev/full: is there, and no file");
}

TEST_CASE("a model for which there is no room is refused before it is begun") {
  const TempDir dir;
  const std::string error = FailedRun({dir.File("m.bin"), "--make-model", "100,100000,8,4,32000"});
  // 42 TB: a layer is 100,000 wide and 266,688 within.
  Has(error, "hmm-llm: RESOURCE_EXHAUSTED: cannot write the model to " + dir.File("m.bin") +
                 ": it takes 41976492.7");
  Has(error, " MiB, and " + dir.path() + " has ");
  Has(error, " MiB free\n");
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("a model whose making a signal ends leaves nothing behind") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TempDir dir;
    LlmProcess made({dir.File("m.bin"), "--make-model", "12,512,8,4,32000"});
    REQUIRE(WaitUntil([&] { return !std::filesystem::is_empty(dir.path()); }));
    made.process().Signal(signal);
    INFO("signal " << signal << " " << made.err());
    CHECK(made.process().Wait() == 128 + signal);
    CHECK(std::filesystem::is_empty(dir.path()));
  }
}

TEST_CASE("as a server: texts go on after sleep, and bad lines get typed answers") {
  const MadeModel model("2,64,4,2,300,64");
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  const TempDir dir;
  dir.Write("in",
            "suspend\n"
            "generate a 4 5 6 7\n"
            "suspend\nresume\ncontinue 5\n"
            "generate b 9 5 6 7\n"
            "generate c 1\n"
            "generate d 1 300\n"
            "generate \"e\\\" x 5\n"
            "generate f 60 5 6 7 8 9\n"
            "continue 60\n"
            "jump\n");
  const std::string command =
      std::string("exec ") + LLM_BINARY + " \"$@\" <" + dir.File("in") + " >" + dir.File("out");
  ChildProcess server({"sh", "-c", command, "sh", model.path(), "--serve", "--stats", "none",
                       "--suspend-to", "flash0", "--dir", daemon.dir()},
                      dir.File("log"));
  const int code = server.Wait();
  INFO(ReadFile(dir.File("log")));
  REQUIRE(code == 0);
  std::vector<nlohmann::json> answers;
  std::stringstream lines(ReadFile(dir.File("out")));
  for (std::string line; std::getline(lines, line);) answers.push_back(nlohmann::json::parse(line));
  INFO(ReadFile(dir.File("out")));
  REQUIRE(answers.size() == 13);
  CHECK(answers[0]["ready"] == true);
  Has(answers[1]["error"], "INVALID_ARGUMENT: wants generate");
  CHECK(answers[3]["length"] == 6);  // three of the prompt, and three behind it
  CHECK(answers[4]["length"] == 6);
  nlohmann::json together = answers[2]["tokens"];
  for (const auto& token : answers[5]["tokens"]) together.push_back(token);
  CHECK(together == answers[6]["tokens"]);
  CHECK(together.size() == 9);
  Has(answers[7]["error"], "generate wants ID COUNT TOKEN");
  Has(answers[8]["error"], "\"300\" is no number below 300");
  CHECK(answers[9]["id"] == "\"e\\\"");  // whatever is in it, the answer is JSON
  Has(answers[9]["error"], "\"x\" is no number below 64");
  Has(answers[10]["error"], "the prompt's 5 tokens and the 60 asked for are more than");
  Has(answers[11]["error"], "wants generate");  // the one that failed left no text open
  Has(answers[12]["error"], "wants generate");
}

TEST_CASE("bad input: tiers that are none, or none to read in, before anything is computed") {
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  const auto failed = [&](const std::vector<std::string>& options) {
    LlmProcess process(Stories("Tom") + In(daemon) + options);
    CHECK(process.process().Wait() == 1);
    CHECK(process.out().empty());
    return process.err();
  };
  for (const char* option : {"--kv-tier", "--suspend-to", "--weight-tier"}) {
    Has(failed({"--offload-weights", option, "nope"}),
        std::string("NOT_FOUND: ") + option + ": no tier 'nope'; there are: hbm0, ddr0, flash0");
  }
  Has(failed({"--kv-tier", "flash0"}), "INVALID_ARGUMENT: --kv-tier: tier flash0 is not one");
  Run(Stories("Tom") + In(daemon) + std::vector<std::string>{"-n", "20", "--suspend-to", "flash0"});
}

TEST_CASE("a cache too small for its text says what to do, and what was done in vain") {
  const MadeModel model("1,128,4,4,300,512");  // 16 KiB a block, for 12 there is room
  const DaemonProcess daemon(HMMD_BINARY,
                             TiersOf({.hbm = "64KiB", .ddr = "64KiB", .flash = "64KiB"}));
  LlmProcess process(std::vector<std::string>{model.path(), "-n", "500"} + In(daemon));
  CHECK(process.process().Wait() == 1);
  const std::string said = process.err();
  Has(said, "hmm-llm: RESOURCE_EXHAUSTED: the KV cache lost blocks 257 times in one token");
  Has(said, " times in one token: there is too little room for ");
  Has(said,
      "; look with `hmmctl status` for a tier that is offline or full of pins, give the tiers "
      "more capacity, or write fewer (-n, --sequences)");
  CHECK(said.find("; tier ") == std::string::npos);  // all of them are online
  CHECK(nlohmann::json::parse(said.substr(0, said.find('\n')))["recomputed_tokens"] > 0);
}

TEST_CASE("bad input: a block size that is not the one of the prefixes stored") {
  const DaemonProcess daemon(HMMD_BINARY, TiersOf({.hbm = "8MiB", .ddr = "8MiB"}));
  Run(Stories("Tom") + In(daemon) + std::vector<std::string>{"-n", "40"});
  const std::string error =
      FailedRun(Stories("Tom") + In(daemon) + std::vector<std::string>{"--block-tokens", "8"});
  INFO(error);
  CHECK(error.find("block_tokens is 8, but the prefixes stored for this model have 16") !=
        std::string::npos);
}

}  // namespace
}  // namespace hmm::testing
