// SPDX-License-Identifier: Apache-2.0
// `hmmctl plan` and `hmmctl graph` as a user runs them, without a daemon: exit codes, both formats,
// files that one verb writes and another reads.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/read_file.h"
#include "support/run_command.h"
#include "support/temp_dir.h"
#include "unit/graph/mindir_builder.h"

namespace {

using Catch::Contains;
using hmm::testing::MindIrBuilder;
using hmm::testing::Outcome;
using hmm::testing::ReadFile;
using hmm::testing::RunCommand;
using hmm::testing::TempDir;
using nlohmann::json;

// `arguments` are words without quotes.
Outcome Ctl(const std::string& arguments) {
  return RunCommand(HMMCTL_BINARY " --dir /nonexistent " + arguments);
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

TEST_CASE("a file that may not grow, and one that protobuf would complain of: one line each") {
  const TempDir dir;
  const std::string path = SmallModel(dir);
  const std::string copy = dir.File("copy.pb");
  const Outcome full = RunCommand("sh -c 'ulimit -f 1; exec " HMMCTL_BINARY " graph show " + path +
                                  " --out " + copy + "'");
  CHECK(full.code == 1);
  CHECK(full.err == "hmmctl: " + copy + ": File too large\n");
  CHECK(!std::filesystem::exists(copy));
  std::string bytes = ReadFile(path);
  const std::size_t at = bytes.find("layers.");
  REQUIRE(at != std::string::npos);
  bytes[at] = '\xFF';
  std::ofstream(copy, std::ios::binary) << bytes;
  const Outcome text = Ctl("plan " + copy);
  CHECK(text.code == 1);
  CHECK_THAT(text.err, Catch::StartsWith("hmmctl: " + copy) && Catch::EndsWith("is not UTF-8\n"));
  CHECK(std::count(text.err.begin(), text.err.end(), '\n') == 1);
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

TEST_CASE("graphs in every format, and with the moves of their plan") {
  const TempDir dir;
  const std::string model =
      "graph llama --layers 4 --hidden 256 --heads 4 --kv-heads 2 --ffn 1024 --vocab 2000 "
      "--tokens 512 --phase train --out ";
  for (const char* name : {"g.pb", "g.onnx", "g.mindir"}) Text(model + dir.File(name));
  for (const std::string format : {"pb", "onnx", "mindir"}) {
    Text(model + dir.File("named.bin") + " --format " + format);
    CHECK(ReadFile(dir.File("named.bin")) == ReadFile(dir.File("g." + format)));
  }
  for (const char* name : {"g.pb", "g.onnx", "g.mindir"}) {
    Text("plan " + dir.File(name) + " --hbm 60% --out " + dir.File(name) + ".plan.pb");
    CHECK(ReadFile(dir.File(name) + ".plan.pb") == ReadFile(dir.File("g.pb.plan.pb")));
  }
  // What is written with moves is the graph, and holds the plan.
  for (const char* name : {"m.onnx", "m.mindir"}) {
    const std::string moves = dir.File(name);
    Text("plan " + dir.File("g.pb") + " --hbm 60% --emit-graph " + moves);
    CHECK(Json("plan check " + moves + " " + dir.File("g.onnx"))["good"] == true);
    CHECK(Json("plan diff " + dir.File("g.pb.plan.pb") + " " + moves + " " + moves)["same"] ==
          true);
    Text("plan " + moves + " --hbm 60% --out " + dir.File("again.pb"));
    CHECK(ReadFile(dir.File("again.pb")) == ReadFile(dir.File("g.pb.plan.pb")));
  }
  // With one move less it is the same graph, and its metadata the same plan.
  mind_ir::ModelProto edited;
  REQUIRE(edited.ParseFromString(ReadFile(dir.File("m.mindir"))));
  std::string from, to;
  auto& nodes = *edited.mutable_graph()->mutable_node();
  for (auto node = nodes.begin(); node != nodes.end() && from.empty(); ++node) {
    if (!node->output(0).starts_with("hmm.in/")) continue;
    from = node->input(0);
    to = node->output(0);
    nodes.erase(node);
    break;
  }
  REQUIRE_FALSE(from.empty());
  for (auto& node : nodes)
    std::replace(node.mutable_input()->begin(), node.mutable_input()->end(), to, from);
  const std::string lost = dir.File("lost.mindir");
  dir.Write("lost.mindir", edited.SerializeAsString());
  CHECK(Json("graph show " + lost) == Json("graph show " + dir.File("m.mindir")));
  Fails("plan check " + lost + " " + lost, 1, "lost.mindir: the moves in it are not those of its");
  Fails("plan explain layers.0.ffn.act " + lost + " --plan " + lost, 1, "the moves in it are not");
  const std::string mindir = HMM_TEST_DATA "/graphs/mindir/";
  Text("plan " + mindir + "lenet_2_0.mindir --hbm 90% --emit-graph " + dir.File("lenet.mindir"));
  CHECK(Json("graph show " + dir.File("lenet.mindir")) ==
        Json("graph show " + mindir + "lenet_2_0.mindir"));
  Fails("graph show " + mindir + "add_encrypted.mindir", 1, "encrypted (AES-GCM)");
  Fails("plan " + dir.File("g.pb") + " --hbm 60% --emit-graph " + dir.File("m.pb"), 1,
        "--emit-graph: ");
  Fails(model + dir.File("x") + " --format onx", 2, "'onx' is none of pb|onnx|mindir");
  Fails("plan check " + dir.File("g.onnx") + " " + dir.File("g.onnx"), 1, "holds no plan");
  Fails("plan " + dir.File("g.pb") + " --compare --emit-graph m.onnx", 2, "--emit-graph");
  Fails("plan " + dir.File("g.mindir") + " --dim a=1 --hbm 60%", 1, "--dim: ");
}

TEST_CASE("help names every form of a graph") {
  for (const char* verb : {"plan", "plan check", "plan diff", "graph show"}) {
    CHECK_THAT(Text(std::string(verb) + " --help"), Contains(".onnx, .mindir, .pb"));
  }
  CHECK_THAT(Text("plan check --help"), Contains("`plan --out` or `--emit-graph`"));
}

TEST_CASE("a plan in a model whose weights are elsewhere") {
  const TempDir dir;
  MindIrBuilder b;
  b.Input(b.top(), "top:x", {16});
  mind_ir::ExternalDataProto& data = *b.Parameter("w", {16}).mutable_external_data();
  data.set_location("elsewhere");
  data.set_length(64);
  b.Is(b.Node(b.top(), "Mul", {"top:x", "top:w"}, "y"), {16});
  b.Output(b.top(), "y");
  const std::string model = dir.File("m.mindir"), moves = dir.File("moves.mindir");
  dir.Write("m.mindir", b.model.SerializeAsString());
  Text("plan " + model + " --without-data --hbm 1MiB --emit-graph " + moves);
  const std::string check = "plan check " + moves + " " + model;
  const std::string diff = "plan diff " + moves + " " + moves + " " + model;
  CHECK(Json(check + " --without-data")["good"] == true);
  CHECK(Json(diff + " --without-data")["same"] == true);
  Fails(check, 1, "elsewhere");
  Fails(diff, 1, "elsewhere");
}

TEST_CASE("a page and a trace beside the plan, and where they cannot be") {
  const TempDir dir;
  const std::string graph = SmallModel(dir);
  const std::string steps = " --steps 20000 ";
  Text("plan " + graph + steps + "--hbm 60% --report " + dir.File("r.html") + " --trace " +
       dir.File("t.json"));
  CHECK_THAT(ReadFile(dir.File("r.html")), Catch::StartsWith("<!doctype html>") &&
                                               Contains("<h1 class=\"planned\">planned: fits"));
  const json trace = json::parse(ReadFile(dir.File("t.json")), nullptr, false);
  REQUIRE_FALSE(trace.is_discarded());
  CHECK(trace["traceEvents"].size() > 100);
  // As readers compute it, in doubles: what follows in a lane begins when the one before has ended,
  // else they draw it inside that one.
  std::map<int, double> ended;
  std::size_t nested = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"];
    double& last = ended[event["tid"]];
    nested += start < last;
    last = start + event["dur"].get<double>();
  }
  CHECK(ended.size() >= 3);
  CHECK(nested == 0);
  Text("plan " + graph + steps + "--hbm 60% --compare --report " + dir.File("c.html"));
  CHECK_THAT(ReadFile(dir.File("c.html")), Contains("The planners side by side"));
  // Nothing to trace, something to look at.
  Text("plan " + graph + " --hbm 1MiB --report " + dir.File("i.html"), 1);
  CHECK_THAT(ReadFile(dir.File("i.html")), Contains("<h1 class=\"infeasible\">infeasible: op "));
  const Outcome none = Ctl("plan " + graph + " --hbm 1MiB --trace " + dir.File("none.json"));
  CHECK(none.code == 1);
  CHECK_THAT(none.out, Catch::StartsWith("infeasible: op "));
  CHECK_THAT(none.err, Contains("--trace") && Contains("no plan to trace"));
  CHECK(ReadFile(dir.File("none.json")).empty());
  const Outcome neither =
      Ctl("plan " + graph + " --hbm 1MiB --emit-graph none.onnx --trace none.json");
  CHECK(neither.code == 1);
  CHECK_THAT(neither.out, Catch::StartsWith("infeasible: op "));
  CHECK_THAT(neither.err, Contains("--emit-graph none.onnx, --trace none.json: not written, there "
                                   "is no plan; infeasible: op "));
  Fails("plan " + graph + " --sweep --report r.html", 2, "--svg");
  Fails("plan " + graph + " --sweep --trace t.json", 2, "--trace");
  Fails("plan " + graph + " --compare --trace t.json", 2, "--compare");
  Fails("plan " + graph + steps + "--hbm 60% --report " + dir.File("none/r.html"), 1,
        "none/r.html: No such file");
}

TEST_CASE("no output overwrites an input, or another output") {
  const TempDir dir;
  const std::string graph = SmallModel(dir), plan = "plan " + graph + " --hbm 75% ";
  const std::string whole = ReadFile(graph);
  std::filesystem::create_symlink(graph, dir.File("link"));
  Fails(plan + "--report " + graph, 1, "--report " + graph + ": would overwrite GRAPH " + graph);
  Fails(plan + "--trace " + dir.File("link"), 1, "would overwrite GRAPH");
  Fails(plan + "--out " + graph, 1, "would overwrite GRAPH");
  Fails("graph show " + graph + " --out " + graph, 1, "would overwrite GRAPH");
  CHECK(ReadFile(graph) == whole);
  const std::string out = dir.File("k.pb");
  Fails(plan + "--out " + out + " --report " + out, 1,
        "--report " + out + ": would overwrite --out");
  Fails(plan + "--out " + out + " --trace " + dir.File("./k.pb"), 1, "would overwrite --out");
  CHECK(ReadFile(out).empty());
  Text(plan + "--report /dev/null --trace /dev/null");
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
  Fails("plan " + graph + " --planner lry", 2, "'lru'");
  for (const char* option : {"--out", "--emit-graph", "--report", "--trace", "--sweep --svg"}) {
    Fails("plan " + graph + " --hbm 75% " + option + " ''", 2, "the name of the file is empty");
  }
  Fails("graph show " + graph + " --out x --format pbtxt", 2, "pb|onnx|mindir");
  Fails("plan " + graph + " --machine h10", 1, "h100");
  Fails("plan " + graph + " --hbm 75% --out " + dir.File("none/p.pb"), 1,
        "none/p.pb: No such file");
  Fails("plan " + graph + " --hbm 75% --out " + dir.File("p.txt"), 1, "p.txt");
  Fails("plan " + graph + " --hbm 75% --emit-graph " + dir.File("m.txt"), 1,
        "m.txt: the name must end in .onnx or .mindir\n");
  // Refused by its name before anything is read or planned.
  Fails("plan " + dir.File("none.pb") + " --out " + dir.File("p.txt"), 1, "p.txt: the name must");
  Fails("plan " + dir.File("none.pb") + " --emit-graph " + dir.File("m.pb"), 1,
        "hmm.v1.Graph has no place for moves");
  Fails("plan " + dir.File("none.pb") + " --report " + dir.File("r.txt"), 1,
        "r.txt: the name must end in .html or .htm\n");
  Fails("plan " + dir.File("none.pb") + " --trace " + dir.File("t"), 1, "must end in .json\n");
  Fails("plan " + dir.File("none.pb") + " --sweep --svg " + dir.File("s.png"), 1,
        "must end in .svg\n");
  Fails("plan " + dir.File("none.pb") + " --report " + dir.File("r.htm"), 1, "none.pb");
  for (const std::string& to : {"graph show " + graph + " --out ", std::string("plan check ")}) {
    Fails(to + dir.File("g.txt") + (to == "plan check " ? " " + graph : ""), 1,
          "or in .pb or .binpb (binary), in .onnx or in .mindir");
  }
  Fails("plan " + cut, 1, "cut.pb");
  Fails("plan " + dir.File("none.pb"), 1, "none.pb");
  Fails("plan llama-9b", 1, "llama-8b");
  // A terminal would obey it.
  Fails("plan $(printf 'a\\033]0;b\\007\\302\\233c').pb", 1, "a\\x1b]0;b\\x07\xc2\\x9bc.pb");
  Fails("plan check " + graph + " " + graph, 1, "small.pb");
  Text("plan llama-8b --hbm 100% --out " + dir.File("other.pb"));
  Fails("plan check " + dir.File("other.pb") + " " + graph, 1, "other.pb");
  Fails("plan diff " + dir.File("other.pb") + " " + dir.File("none.pb"), 1, "none.pb");
  Fails("graph llama --preset llama-8b --phase x", 1, "phase");
  Fails("graph llama --layers 2", 1, "--hidden");
}

}  // namespace
