// SPDX-License-Identifier: Apache-2.0
// `hmmctl plan` and `hmmctl graph` as a user runs them, without a daemon: exit codes, both formats,
// files that one verb writes and another reads.
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/temp_dir.h"

namespace {

using Catch::Contains;
using hmm::testing::TempDir;
using nlohmann::json;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Runs hmmctl in a shell; `arguments` are words without quotes.
Outcome Ctl(const std::string& arguments) {
  const TempDir dir;
  const std::string command = HMMCTL_BINARY " --dir /nonexistent " + arguments + " >" +
                              dir.File("out") + " 2>" + dir.File("err") + " </dev/null";
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), ReadFile(dir.File("out")), ReadFile(dir.File("err"))};
}

std::string Text(const std::string& arguments, int code = 0) {
  const Outcome outcome = Ctl(arguments);
  INFO(arguments << "\n" << outcome.out << outcome.err);
  CHECK(outcome.code == code);
  return outcome.out;
}

json Json(const std::string& arguments, int code = 0) {
  json value = json::parse(Text(arguments + " -o json", code), nullptr, false);
  REQUIRE_FALSE(value.is_discarded());
  return value;
}

void Fails(const std::string& arguments, int code, const std::string& word) {
  const Outcome outcome = Ctl(arguments);
  INFO(arguments);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, Catch::StartsWith("hmmctl: ") && Contains(word));
}

// A small model with a peak of its own, written once.
std::string SmallModel(const TempDir& dir) {
  const std::string path = dir.File("small.pb");
  const json summary = Json(
      "graph llama --layers 6 --hidden 256 --heads 4 --kv-heads 2 --ffn 1024 --vocab 2000 "
      "--tokens 512 --phase train --out " +
      path);
  CHECK(summary["ops"] > 0);
  CHECK(summary["parameters"] > 1'000'000);
  return path;
}

TEST_CASE("a model, its plan, the proof of it") {
  const TempDir dir;
  const std::string graph = SmallModel(dir);
  const json shown = Json("graph show " + graph);
  const json plan = Json("plan " + graph + " --hbm 75% --out " + dir.File("a.pb"));
  CHECK(plan["verdict"] == "planned");
  CHECK(plan["unplanned_peak_bytes"] == shown["unplanned_peak_bytes"]);
  CHECK(plan["peak_bytes"] <= plan["budget_bytes"]);
  CHECK(plan["moved_bytes"] > 0);
  CHECK(plan["step_us"] >= plan["compute_us"]);
  CHECK(Json("plan check " + dir.File("a.pb") + " " + graph)["good"] == true);
  CHECK_THAT(Text("plan " + graph + " --hbm 75%"), Catch::StartsWith("planned: "));
  // Under another budget it is another plan, of the same graph.
  Text("plan " + graph + " --hbm 60% --out " + dir.File("b.pbtxt"));
  CHECK(Json("plan diff " + dir.File("a.pb") + " " + dir.File("a.pb"))["same"] == true);
  const json diff = Json("plan diff " + dir.File("a.pb") + " " + dir.File("b.pbtxt") + " " + graph);
  CHECK(diff["same"] == false);
  CHECK(diff["b"]["budget_bytes"] < diff["a"]["budget_bytes"]);
}

TEST_CASE("the verdicts and their exit codes") {
  const TempDir dir;
  const std::string graph = SmallModel(dir);
  CHECK(Json("plan " + graph + " --hbm 100%")["verdict"] == "fits");
  const json infeasible = Json("plan " + graph + " --hbm 1MiB", 1);
  CHECK(infeasible["verdict"] == "infeasible");
  CHECK(infeasible["short_bytes"] > 0);
  CHECK(infeasible["short_bytes"].get<std::uint64_t>() + (1U << 20) ==
        infeasible["smallest_budget_bytes"].get<std::uint64_t>());
  CHECK_FALSE(infeasible["short_op"].is_null());
  const std::string enough = infeasible["smallest_budget_bytes"].dump();
  CHECK(Json("plan " + graph + " --hbm " + enough)["verdict"] == "planned");
  CHECK_THAT(Text("plan " + graph + " --hbm 1MiB", 1), Catch::StartsWith("infeasible: op "));
}

TEST_CASE("explain, sweep and compare") {
  const TempDir dir;
  const std::string graph = SmallModel(dir);
  Text("plan " + graph + " --hbm 60% --out " + dir.File("p.pb"));
  const json explain =
      Json("plan explain layers.0.attn.q.weight " + graph + " --plan " + dir.File("p.pb"));
  CHECK_FALSE(explain["why"].get<std::string>().empty());
  CHECK(explain["uses_per_step"] > 0);
  Fails("plan explain nothing " + graph + " --plan " + dir.File("p.pb"), 1, "nothing");
  const json sweep =
      Json("plan " + graph + " --sweep --at 50%,75%,100% --svg " + dir.File("s.svg"));
  REQUIRE(sweep["points"].size() == 3);
  CHECK(sweep["points"][2]["verdict"] == "fits");
  CHECK(sweep["points"][0]["stall_us"] >= sweep["points"][1]["stall_us"]);
  CHECK_THAT(ReadFile(dir.File("s.svg")),
             Catch::StartsWith("<svg ") && Catch::EndsWith("</svg>\n"));
  const json compare = Json("plan " + graph + " --hbm 75% --compare");
  REQUIRE(compare.size() == 7);
  CHECK(compare[0]["planner"] == "hmm");
  for (const json& other : compare) {
    if (other["verdict"] != "planned") continue;
    INFO(other["planner"]);
    CHECK(compare[0]["stall_us"].get<double>() <= other["stall_us"].get<double>() * 1.000001);
  }
}

TEST_CASE("layouts of minimalloc's form") {
  const TempDir dir;
  const std::string csv = HMM_TEST_DATA "/alloc/input.12.csv";
  CHECK(Json("plan layout " + csv + " --capacity 12 --out " + dir.File("o.csv"))["verdict"] ==
        "fits");
  CHECK_THAT(ReadFile(dir.File("o.csv")), Catch::StartsWith("id,lower,upper,size,offset\n"));
  CHECK_THAT(Text("plan layout " + csv + " --capacity 11", 1), Contains("1 more than"));
}

TEST_CASE("durations of a profile") {
  const TempDir dir;
  const std::string graph = dir.File("g.pbtxt");
  std::ofstream(graph) << "ops { name: \"a\" writes: [0] } ops { name: \"b\" reads: [0] }\n"
                          "storages { name: \"x\" bytes: 4096 kind: TENSOR_KIND_ACTIVATION }\n";
  std::ofstream(dir.File("p.csv")) << "op,microseconds\na,1000\nb,500\n";
  std::ofstream(dir.File("other.csv")) << "op,microseconds\nc,1\nd,1\n";
  const json timed = Json("plan " + graph + " --hbm 1MiB --profile " + dir.File("p.csv"));
  CHECK(timed["compute_us"] == 1500.0);
  CHECK(timed["roofline_ops"] == 0);
  CHECK(Json("plan " + graph + " --hbm 1MiB")["roofline_ops"] == 2);
  Fails("plan " + graph + " --hbm 1MiB --profile " + dir.File("other.csv"), 1, "other.csv");
}

TEST_CASE("what is wrong is said on one line: flag, file, and the nearest known") {
  const TempDir dir;
  const std::string graph = SmallModel(dir);
  const std::string cut = dir.File("cut.pb");
  const std::string whole = ReadFile(graph);
  std::ofstream(cut, std::ios::binary) << whole.substr(0, whole.size() / 2);
  Fails("plan " + graph + " --hbm 0", 2, "--hbm");
  Fails("plan " + graph + " --hbm 7GB", 2, "GiB");
  Fails("plan " + graph + " --dim a=b", 2, "--dim");
  Fails("plan " + graph + " --dim a=1", 1, "--dim");
  Fails("plan " + graph + " --planner lry", 1, "'lru'");
  Fails("plan " + graph + " --machine h10", 1, "h100");
  Fails("plan " + graph + " --hbm 75% --out " + dir.File("none/p.pb"), 1, "none/p.pb");
  Fails("plan " + graph + " --hbm 75% --out " + dir.File("p.txt"), 1, "p.txt");
  Fails("plan " + cut, 1, "cut.pb");
  Fails("plan " + dir.File("none.pb"), 1, "none.pb");
  Fails("plan llama-9b", 1, "llama-8b");
  Fails("plan check " + graph + " " + graph, 1, "small.pb");
  Text("plan llama-8b --hbm 100% --out " + dir.File("other.pb"));
  Fails("plan check " + dir.File("other.pb") + " " + graph, 1, "other.pb");
  Fails("plan diff " + dir.File("other.pb") + " " + dir.File("none.pb"), 1, "none.pb");
  Fails("graph llama --preset llama-8b --phase x", 1, "phase");
  Fails("graph llama --layers 2", 1, "--hidden");
}

}  // namespace
