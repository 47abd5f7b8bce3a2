// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_proto.h"

#include <hmm/v1/graph.pb.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/fingerprint.h"
#include "graph/message_file.h"
#include "support/catch.h"
#include "support/gen_graph.h"
#include "support/temp_dir.h"
#include "unit/graph/same.h"

namespace hmm::graph {
namespace {

using Catch::Contains;
using hmm::testing::GraphGenerator;
using hmm::testing::Same;
using hmm::testing::TempDir;

// Random ops and storages with what the generator leaves plain.
plan::Graph RandomGraph(std::uint64_t seed) {
  GraphGenerator gen(seed);
  plan::Graph graph = gen.Next().graph;
  graph.name = seed % 3 == 0 ? "" : absl::StrCat("graph \"", seed, "\"\n\xc3\xa9");
  for (plan::Storage& storage : graph.storages) {
    storage.kind = static_cast<TensorKind>(1 + gen.Pick(5));
    if (gen.Chance(0.3)) storage.bytes = 1 + gen.Pick(std::uint64_t{1} << (gen.Pick(52) + 1));
    for (std::uint64_t a = gen.Pick(3); a > 0 && gen.Chance(0.3); --a) {
      storage.aliases.push_back(absl::StrCat(storage.name, "/view:", a));
    }
  }
  for (plan::Op& op : graph.ops) {
    op.type = gen.Chance(0.5) ? "MatMul" : "";
    op.flops = gen.Chance(0.5) ? gen.Unit() * 1e15 : 0;
    op.microseconds *= gen.Chance(0.1) ? 1e-9 : 1;
  }
  for (std::uint64_t u = gen.Pick(3); u > 0; --u) graph.unknown.push_back(absl::StrCat("u", u));
  return graph;
}

TEST_CASE("random graphs come back from both forms the same") {
  std::size_t groups = 0, aliases = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    const plan::Graph graph = RandomGraph(seed);
    groups += graph.groups.size();
    for (const plan::Storage& storage : graph.storages) aliases += storage.aliases.size();
    const auto text = FormatGraphText(graph);
    REQUIRE(text.ok());
    const auto from_text = ParseGraphText(*text, "g.pbtxt");
    if (!from_text.ok()) FAIL("seed " << seed << ": " << from_text.status());
    if (!Same(graph, *from_text)) FAIL("seed " << seed << ": text");
    const auto binary = FormatGraphBinary(graph);
    REQUIRE(binary.ok());
    CHECK(BeginsAs(*binary, kGraphFormat));
    const auto from_binary = ParseGraphBinary(*binary, "g.pb");
    if (!from_binary.ok()) FAIL("seed " << seed << ": " << from_binary.status());
    if (!Same(graph, *from_binary)) FAIL("seed " << seed << ": binary");
    CHECK(FormatGraphBinary(*from_binary).value() == *binary);
  }
  CHECK(groups > 50);
  CHECK(aliases > 500);
}

// No prefix of a file is taken for less, nor crashes; no bit flipped crashes.
TEST_CASE("binary files that are cut short or damaged are refused or whole") {
  const std::string bytes = FormatGraphBinary(RandomGraph(7)).value();
  std::size_t refused = 0;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto cut = ParseGraphBinary(std::string_view(bytes).substr(0, n), "cut.pb");
    if (cut.ok()) continue;  // between two records; what they name may all be there
    ++refused;
    CHECK(ReasonOf(cut.status()) == Reason::kBadGraph);
    CHECK_THAT(std::string(cut.status().message()), Catch::StartsWith("cut.pb: "));
  }
  CHECK(refused > bytes.size() * 3 / 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    const auto read = ParseGraphBinary(damaged, "bad.pb");
    if (!read.ok()) CHECK(ReasonOf(read.status()).has_value());
  }
}

constexpr char kGood[] = R"(
name: "g"
ops { name: "a" type: "MatMul" reads: [0, 1] writes: [2] microseconds: 2.5 flops: 1e9 }
ops { name: "b" reads: [2] writes: [3] after: [0] group: 0 workspace_bytes: 64 stream: 1 }
storages { name: "x" bytes: 16 kind: TENSOR_KIND_ACTIVATION input: true }
storages { name: "w" aliases: "w.T" bytes: 32 kind: TENSOR_KIND_WEIGHT persistent: true }
storages { name: "y" bytes: 8 kind: TENSOR_KIND_ACTIVATION recomputable: true }
storages { name: "z" bytes: 4 kind: TENSOR_KIND_OTHER output: true }
storages { name: "e0" bytes: 4 kind: TENSOR_KIND_WEIGHT persistent: true }
storages { name: "e1" bytes: 4 kind: TENSOR_KIND_WEIGHT persistent: true pinned: true }
groups { name: "experts" members: [4, 5] k: 1 }
unknown: "shape"
)";

TEST_CASE("a graph written by hand") {
  const auto graph = ParseGraphText(kGood, "good.pbtxt");
  REQUIRE(graph.ok());
  CHECK(graph->name == "g");
  REQUIRE(graph->ops.size() == 2);
  CHECK(graph->ops[0].microseconds == 2.5);
  CHECK(graph->ops[1].group == 0U);
  CHECK(graph->ops[1].workspace == 64);
  CHECK(graph->ops[1].after == std::vector<plan::OpIndex>{0});
  CHECK(graph->storages[1].aliases == std::vector<std::string>{"w.T"});
  CHECK(graph->storages[3].kind == TensorKind::kOther);
  CHECK(graph->groups[0].members == std::vector<plan::StorageIndex>{4, 5});
  CHECK(graph->unknown == std::vector<std::string>{"shape"});
}

std::string Refusal(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kGood, {{from, to}});
  REQUIRE(text != kGood);
  const auto graph = ParseGraphText(text, "f.pbtxt");
  if (graph.ok()) return "accepted";
  CHECK(absl::IsInvalidArgument(graph.status()));
  CHECK(ReasonOf(graph.status()) == Reason::kBadGraph);
  return std::string(graph.status().message());
}

TEST_CASE("what is wrong with a graph is said with file, node and field") {
  struct Row {
    const char* from;
    const char* to;
    const char* says;
  };
  const Row rows[] = {
      {"name: \"g\"", "nam: \"g\"", "f.pbtxt:2:"},
      {"bytes: 16", "bytes: -16", "f.pbtxt:5:"},
      {"bytes: 16", "bytes: 99999999999999999999", "f.pbtxt:5:"},
      {"bytes: 16", "bytes: 0", "f.pbtxt: storages[0] \"x\": bytes: is 0"},
      {"bytes: 16", "bytes: 18446744073709551600", "storages[0] \"x\": bytes: 184467440737095516"},
      {"bytes: 4 ", "bytes: 2305843009213693952 ", "the sizes add up beyond 2^62"},
      {"kind: TENSOR_KIND_OTHER", "", "storages[3] \"z\": kind: 0 is none"},
      {"kind: TENSOR_KIND_OTHER", "kind: TENSOR_KIND_FLOAT", "f.pbtxt:8:"},
      {"kind: TENSOR_KIND_OTHER", "kind: 77", "storages[3] \"z\": kind: 77"},
      {"reads: [0, 1]", "reads: [0, 77]", "ops[0] \"a\": reads[1]: 77 is no storage"},
      {"reads: [0, 1]", "reads: [1, 0]", "ops[0] \"a\": reads[1]: 0 follows a greater one"},
      {"reads: [0, 1]", "reads: [1, 1]", "ops[0] \"a\": reads[1]: 1 stands twice"},
      {"writes: [2]", "writes: [6]", "ops[0] \"a\": writes[0]: 6 is no storage"},
      {"writes: [3]", "writes: [3, 3]", "ops[1] \"b\": writes[1]: 3 stands twice"},
      {"reads: [0, 1]", "reads: [2]", "op a: reads y before anything writes it"},
      {"after: [0]", "after: [1]", "ops[1] \"b\": after[0]: 1 is the op itself"},
      {"after: [0]", "after: [2]", "ops[1] \"b\": after[0]: 2 is a later op"},
      {"group: 0", "group: 1", "ops[1] \"b\": group: 1 is no group"},
      {"workspace_bytes: 64", "workspace_bytes: 18446744073709551552", "ops[1] \"b\": workspace"},
      {"microseconds: 2.5", "microseconds: -1", "ops[0] \"a\": microseconds: -1"},
      {"microseconds: 2.5", "microseconds: nan", "ops[0] \"a\": microseconds: nan"},
      {"microseconds: 2.5", "microseconds: inf", "ops[0] \"a\": microseconds: inf"},
      {"flops: 1e9", "flops: nan", "ops[0] \"a\": flops: nan"},
      {"flops: 1e9", "flops: -5", "ops[0] \"a\": flops: -5"},
      {"stream: 1", "stream: 64", "ops[1] \"b\": stream: 64"},
      {"name: \"b\"", "name: \"a\"", "ops[1]: name: \"a\" is taken by number 0"},
      {"name: \"b\"", "name: \"\"", "ops[1]: name: is empty"},
      {"name: \"z\"", "name: \"w.T\"", "storages[3]: name: \"w.T\" is taken by number 1"},
      {"aliases: \"w.T\"", "aliases: \"w\"", "storages[1] \"w\": aliases[0]: name: \"w\" is taken"},
      {"name: \"z\"", "name: \"\\377\"", "storages[3]: name: is not UTF-8"},
      {"members: [4, 5]", "members: [4, 9]", "groups[0] \"experts\": members[1]: 9"},
      {"members: [4, 5]", "members: [5, 4]", "groups[0] \"experts\": members[1]: 4 follows"},
      {"members: [4, 5]", "members: [2, 4]", "group experts: y is not persistent"},
      {"k: 1", "k: 3", "groups[0] \"experts\": k: 3"},
      {"k: 1", "k: 0", "groups[0] \"experts\": k: 0"},
      {"unknown: \"shape\"", "unknown: \"s\" unknown: \"s\"", "unknown[1]: name: \"s\" is taken"},
      {"name: \"g\"", "format: \"hmm.v1.Plan\"", "f.pbtxt: format: \"hmm.v1.Plan\" is no graph"},
  };
  for (const Row& row : rows) {
    INFO(row.from << " -> " << row.to);
    CHECK_THAT(Refusal(row.from, row.to), Contains(row.says));
  }
}

std::string BinaryRefusal(const std::string& bytes) {
  const auto graph = ParseGraphBinary(bytes, "f.pb");
  if (graph.ok()) return "accepted";
  CHECK(ReasonOf(graph.status()) == Reason::kBadGraph);
  return std::string(graph.status().message());
}

TEST_CASE("binary files say where they are wrong") {
  CHECK_THAT(BinaryRefusal(""), Contains("empty"));
  CHECK_THAT(BinaryRefusal("ops { }"), Contains("f.pb: Graph"));
  v1::Graph message;
  message.add_ops()->set_name("a");
  std::string bytes = message.SerializeAsString();
  CHECK_THAT(BinaryRefusal(bytes + "\xa2\x06\x01x"), Contains("field 100 is unknown"));
  CHECK_THAT(BinaryRefusal(bytes + std::string("\0\0", 2)), Contains("no field begins like this"));
  // A field of a newer version inside an op: field 15, varint 1.
  CHECK_THAT(BinaryRefusal(std::string("\x1a\x05\x0a\x01") + "a\x78\x01"),
             Contains("Graph.ops[0] (byte 6): field 15 is unknown"));
  CHECK_THAT(BinaryRefusal(std::string("\x1a\x03\x0a\x01\xff", 5)),
             Contains("Graph.ops[0].name (byte 4): is not UTF-8"));
  CHECK_THAT(BinaryRefusal(std::string("\x1a\x02\x08\x01", 4)),
             Contains("Graph.ops[0].name (byte 3): is not encoded"));
  CHECK_THAT(BinaryRefusal(std::string("\x1a\x7f\x0a", 3)), Contains("cut short"));
  // A varint that does not end.
  CHECK_THAT(BinaryRefusal(std::string("\x1a\x0c\x38") + std::string(11, '\xff')),
             Contains("cut short"));
}

TEST_CASE("memory for a hostile file is bounded before it is spent") {
  std::string many;
  many.reserve(2 * (kRecordsMax + 1));
  for (std::size_t i = 0; i <= kRecordsMax; ++i) many.append("\x32\x00", 2);  // unknown: ""
  const auto graph = ParseGraphBinary(many, "many.pb");
  REQUIRE_FALSE(graph.ok());
  CHECK(ReasonOf(graph.status()) == Reason::kTooLarge);
  CHECK_THAT(std::string(graph.status().message()), Contains("records"));

  const auto text = ParseGraphText(std::string(kTextBytesMax + 1, ' '), "large.pbtxt");
  CHECK(ReasonOf(text.status()) == Reason::kTooLarge);
  CHECK_THAT(std::string(text.status().message()), Contains("binary form"));
}

TEST_CASE("files: by their ending, and what may be wrong with one") {
  const TempDir dir;
  const plan::Graph graph = RandomGraph(11);
  for (const char* name : {"g.pb", "g.binpb", "g.pbtxt", "g.txtpb", "g.textproto"}) {
    const std::string path = dir.path() + "/" + name;
    REQUIRE(WriteGraphProto(graph, path).ok());
    REQUIRE(WriteGraphProto(graph, path).ok());  // over the one that is there
    const auto read = ReadGraphProto(path);
    REQUIRE(read.ok());
    CHECK(Same(graph, *read));
  }
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    ++files;
  }
  CHECK(files == 5);  // nothing half written is left
  const auto refused = [](const std::string& path) { return ReadGraphProto(path).status(); };
  CHECK(absl::IsNotFound(refused(dir.path() + "/none.pb")));
  CHECK_THAT(std::string(refused(dir.path() + "/g.xyz").message()), Contains(".pbtxt"));
  REQUIRE(std::filesystem::create_directory(dir.path() + "/d.pb"));
  CHECK(ReasonOf(refused(dir.path() + "/d.pb")) == Reason::kIo);
  const std::string nowhere = dir.path() + "/no/such/g.pb";
  CHECK(std::string(WriteGraphProto(graph, nowhere).message()) ==
        nowhere + ": No such file or directory");
  CHECK(ReasonOf(ReadFileBytes(dir.path() + "/g.pb", 10).status()) == Reason::kTooLarge);
  CHECK(ReasonOf(ReadFileBytes("/dev/zero", 1 << 22).status()) == Reason::kTooLarge);
}

TEST_CASE("a name that is not UTF-8 cannot be written") {
  plan::Graph graph = RandomGraph(3);
  graph.storages[0].name = "\xff";
  CHECK_THAT(std::string(FormatGraphBinary(graph).status().message()),
             Contains("storages[0]: name: is not UTF-8"));
  CHECK_FALSE(FormatGraphText(graph).ok());
}

TEST_CASE("what could not be read back is not written") {
  const plan::Graph good = ParseGraphText(kGood, "g").value();
  const std::vector<std::pair<std::function<void(plan::Graph&)>, const char*>> changes = {
      {[](auto& g) { g.groups[0].k = 0; }, "k: 0"},
      {[](auto& g) { g.ops[0].flops = std::nan(""); }, "ops[0] \"a\": flops: nan"},
      {[](auto& g) { g.storages[0].bytes = 0; }, "storages[0] \"x\": bytes"},
      {[](auto& g) { g.ops[1].name = "a"; }, "ops[1]: name"},
      {[](auto& g) { g.ops[0].reads = {3}; }, "before anything writes it"},
  };
  for (const auto& [change, says] : changes) {
    plan::Graph graph = good;
    change(graph);
    CHECK_THAT(std::string(FormatGraphText(graph).status().message()), Contains(says));
    CHECK_THAT(std::string(FormatGraphBinary(graph).status().message()), Contains(says));
  }
}

TEST_CASE("the fingerprint sees what a plan rests on, and nothing else") {
  const plan::Graph graph = ParseGraphText(kGood, "g").value();
  const std::uint64_t own = Fingerprint(graph);
  const auto with = [&graph](const std::function<void(plan::Graph&)>& change) {
    plan::Graph other = graph;
    change(other);
    return Fingerprint(other);
  };
  CHECK(with([](auto& g) { g.ops[0].microseconds = 9; }) == own);
  CHECK(with([](auto& g) { g.ops[0].flops = 9; }) == own);
  CHECK(with([](auto& g) { g.name = "other"; }) == own);
  std::set<std::uint64_t> seen = {own};
  const std::vector<std::function<void(plan::Graph&)>> changes = {
      [](auto& g) { g.ops[0].name = "q"; },
      [](auto& g) { g.ops[0].reads = {0}; },
      [](auto& g) { g.ops[0].writes = {0}; },
      [](auto& g) { g.ops[1].after = {}; },
      [](auto& g) { g.ops[1].group.reset(); },
      [](auto& g) { g.ops[1].workspace = 0; },
      [](auto& g) { g.ops[1].stream = 0; },
      [](auto& g) { g.storages[0].name = "q"; },
      [](auto& g) { g.storages[0].bytes = 17; },
      [](auto& g) { g.storages[0].kind = TensorKind::kOther; },
      [](auto& g) { g.storages[0].persistent = true; },
      [](auto& g) { g.storages[0].input = false; },
      [](auto& g) { g.storages[0].output = true; },
      [](auto& g) { g.storages[0].pinned = true; },
      [](auto& g) { g.storages[0].recomputable = true; },
      [](auto& g) { g.storages[1].aliases = {}; },
      [](auto& g) { g.groups[0].k = 2; },
      [](auto& g) { g.groups[0].members = {4}; },
      [](auto& g) { std::swap(g.ops[0], g.ops[1]); },
  };
  for (const auto& change : changes) seen.insert(with(change));
  CHECK(seen.size() == changes.size() + 1);
}

}  // namespace
}  // namespace hmm::graph
