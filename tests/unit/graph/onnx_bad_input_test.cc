// SPDX-License-Identifier: Apache-2.0
//
// Everything that can be wrong with a model is refused by name, or survived; nothing crashes.
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "base/status.h"
#include "onnx_model_builder.h"
#include "plan/lifetimes.h"
#include "support/temp_dir.h"

namespace hmm {
namespace {

using graph::OnnxOptions;
using testing::ModelBuilder;

std::string ReadFile(const std::string& name) {
  std::ifstream in(std::string(HMM_GRAPH_DATA) + "/onnx/" + name + ".onnx", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  REQUIRE_FALSE(bytes.empty());
  return bytes;
}

void CheckRefused(const absl::Status& status, absl::StatusCode code,
                  const std::vector<std::string>& words) {
  INFO(status.ToString());
  CHECK(status.code() == code);
  CHECK(ReasonOf(status) == Reason::kBadGraph);
  for (const std::string& word : words) {
    INFO("expected: " << word);
    CHECK(status.message().find(word) != absl::string_view::npos);
  }
}
void CheckInvalid(const absl::Status& status, const std::vector<std::string>& words) {
  CheckRefused(status, absl::StatusCode::kInvalidArgument, words);
}

void SetInts(onnx::NodeProto* node, const std::string& name,
             const std::vector<std::int64_t>& values) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INTS);
  for (const std::int64_t value : values) attribute->add_ints(value);
}

// x -> Relu -> y, sound.
ModelBuilder Small() {
  ModelBuilder m;
  m.Input("x", {std::int64_t{4}, std::int64_t{6}});
  m.Node("Relu", {"x"}, {"y"});
  m.Output("y");
  return m;
}

}  // namespace

TEST_CASE("files that are no model") {
  const auto bytes = [](std::string_view text) {
    return graph::ImportOnnxBytes(text, "f.onnx", "", {}).status();
  };
  CheckInvalid(bytes(""), {"f.onnx", "file", "empty"});
  CheckInvalid(bytes("This is a text about models.\n"), {"f.onnx", "file", "no ONNX model"});
  CheckInvalid(bytes(std::string(1000, '\0')), {"f.onnx", "no ONNX model"});
  const testing::TempDir dir;
  CHECK(graph::ImportOnnx(dir.File("none.onnx"), {}).status().code() ==
        absl::StatusCode::kNotFound);
  CheckInvalid(graph::ImportOnnx(dir.path(), {}).status(), {dir.path(), "no regular file"});
}

TEST_CASE("a model cut short anywhere is refused") {
  const std::string whole = ReadFile("gpt2_megatron");
  for (std::size_t size = 1; size < whole.size(); size += 97) {
    INFO(size);
    const auto cut = graph::ImportOnnxBytes(whole.substr(0, size), "f.onnx", "", {});
    CHECK_FALSE(cut.ok());
  }
  CheckInvalid(graph::ImportOnnxBytes(whole.substr(0, whole.size() / 2), "f.onnx", "", {}).status(),
               {"f.onnx", "file", "cut short"});
  onnx::ModelProto model = Small().model;
  model.clear_opset_import();
  CheckInvalid(graph::ImportOnnxBytes(model.SerializeAsString(), "f.onnx", "", {}).status(),
               {"opset_import", "missing"});
  model.clear_graph();
  CheckInvalid(graph::ImportOnnxBytes(model.SerializeAsString(), "f.onnx", "", {}).status(),
               {"graph", "missing"});
}

TEST_CASE("a file beyond the limit is not read") {
  const testing::TempDir dir;
  const std::string path = dir.File("big.onnx");
  std::ofstream(path) << "x";
  std::filesystem::resize_file(path, std::uintmax_t{3} << 30);  // sparse
  CheckRefused(graph::ImportOnnx(path, {}).status(), absl::StatusCode::kResourceExhausted,
               {path, "3221225472 bytes", "external data"});
  OnnxOptions options;
  options.nodes_max = 0;
  CheckRefused(Small().Try(options).status(), absl::StatusCode::kResourceExhausted,
               {"m.onnx", "nodes"});
}

TEST_CASE("graphs whose nodes do not hang together") {
  ModelBuilder cyclic = Small();
  cyclic.Node("Add", {"x", "c"}, {"b"});
  cyclic.Node("Neg", {"b"}, {"c"});
  CheckInvalid(cyclic.Try().status(), {"m.onnx", "node \"make_", "inputs", "depends on itself"});

  ModelBuilder self = Small();
  self.Node("Add", {"x", "b"}, {"b"});
  CheckInvalid(self.Try().status(), {"node \"make_b\" (Add, #1)", "input 1 \"b\"", "own output"});

  ModelBuilder twice = Small();
  twice.Node("Neg", {"x"}, {"y"});
  CheckInvalid(twice.Try().status(), {"node \"make_y\" (Neg, #1)", "output \"y\"", "name"});

  ModelBuilder over_input = Small();
  over_input.Node("Neg", {"y"}, {"x"});
  CheckInvalid(over_input.Try().status(), {"(Neg, #1)", "output \"x\"", "name"});

  ModelBuilder dangling = Small();
  dangling.Node("Neg", {"nowhere"}, {"z"});
  CheckInvalid(dangling.Try().status(), {"node \"make_z\"", "input 0 \"nowhere\"", "nothing"});

  ModelBuilder no_output = Small();
  no_output.Output("nowhere");
  CheckInvalid(no_output.Try().status(), {"output \"nowhere\"", "no node makes it"});

  ModelBuilder no_type = Small();
  no_type.Node("", {"x"}, {"z"});
  CheckInvalid(no_type.Try().status(), {"node \"make_z\"", "op_type", "missing"});

  ModelBuilder inputs = Small();
  inputs.Input("x", {});
  CheckInvalid(inputs.Try().status(), {"input \"x\"", "name", "twice"});

  ModelBuilder weights = Small();
  weights.Floats("w", {1});
  weights.Floats("w", {1});
  CheckInvalid(weights.Try().status(), {"initializer \"w\"", "name", "twice"});
}

TEST_CASE("a body that reads its own result is a cycle") {
  ModelBuilder m = Small();
  m.Input("c", {}, onnx::TensorProto::BOOL);
  onnx::NodeProto* node = m.Node("If", {"c"}, {"z"});
  for (const char* name : {"then_branch", "else_branch"}) {
    onnx::GraphProto* branch = ModelBuilder::SetGraph(node, name);
    ModelBuilder::AddNode(*branch, "Neg", {"z"}, {"r"});
    branch->add_output()->set_name("r");
  }
  CheckInvalid(m.Try().status(), {"node \"make_z\"", "depends on itself"});
}

TEST_CASE("graphs nested without end are refused") {
  ModelBuilder m = Small();
  m.Input("c", {}, onnx::TensorProto::BOOL);
  onnx::GraphProto* at = &m.graph();
  for (int depth = 0; depth < 20; ++depth) {
    onnx::NodeProto* node = ModelBuilder::AddNode(*at, "If", {"c"}, {});
    at = ModelBuilder::SetGraph(node, "then_branch");
  }
  CheckInvalid(m.Try().status(), {"m.onnx", "nested too deep"});
  for (int depth = 0; depth < 200; ++depth) {
    at = ModelBuilder::SetGraph(ModelBuilder::AddNode(*at, "If", {"c"}, {}), "then_branch");
  }
  CHECK_FALSE(m.Try().ok());  // protobuf's own bound
}

TEST_CASE("tensors of no type, no shape, or no sense") {
  ModelBuilder type = Small();
  type.Floats("w", {2})->set_data_type(99);
  CheckInvalid(type.Try().status(), {"initializer \"w\"", "data type 99"});
  type.graph().mutable_initializer(0)->set_data_type(0);
  CheckInvalid(type.Try().status(), {"initializer \"w\"", "data type 0"});

  ModelBuilder input = Small();
  input.Input("z", {std::int64_t{2}}, 77);
  CheckInvalid(input.Try().status(), {"input \"z\"", "data type 77"});

  ModelBuilder negative = Small();
  negative.Input("z", {std::int64_t{2}, std::int64_t{-3}});
  CheckInvalid(negative.Try().status(), {"input \"z\"", "dims[1] is -3"});

  ModelBuilder initializer = Small();
  initializer.Floats("w", {})->add_dims(-1);
  CheckInvalid(initializer.Try().status(), {"initializer \"w\"", "dims[0] is -1"});

  ModelBuilder huge = Small();
  for (int i = 0; i < 3; ++i) huge.Floats("w", {})->add_dims(std::int64_t{1} << 62);
  CheckInvalid(huge.Try().status(), {"initializer \"w\"", "dims", "too large"});

  ModelBuilder product = Small();
  product.Input("z", {std::int64_t{1} << 40, std::int64_t{1} << 40});
  CheckInvalid(product.Try().status(), {"input \"z\"", "dims", "too large"});

  ModelBuilder many = Small();  // each of them fits, their sum does not
  for (int i = 0; i < 40; ++i) {
    many.Input("z" + std::to_string(i), {std::int64_t{1} << 40, std::int64_t{1} << 16});
  }
  CheckInvalid(many.Try().status(), {"m.onnx", "graph", "2^62"});

  ModelBuilder data = Small();
  data.Floats("w", {3})->set_raw_data("short");
  CheckInvalid(data.Try().status(), {"initializer \"w\"", "raw_data", "5 bytes", "12"});

  ModelBuilder entries = Small();
  entries.Ints("i", {1, 2, 3})->set_dims(0, 4);
  CheckInvalid(entries.Try().status(), {"initializer \"i\"", "3 entries", "4"});

  ModelBuilder attribute = Small();
  onnx::AttributeProto* value = attribute.Node("Constant", {}, {"k"})->add_attribute();
  value->set_name("value");
  value->mutable_t()->set_data_type(55);
  CheckInvalid(attribute.Try().status(), {"node \"make_k\"", "attribute \"value\"", "type 55"});
}

TEST_CASE("shapes that come out negative or too large are refused where they do") {
  ModelBuilder m = Small();
  m.Ints("shape", {1 << 20, 1 << 20, 1 << 20});
  m.Node("ConstantOfShape", {"shape"}, {"big"});
  CheckInvalid(m.Try().status(), {"node \"make_big\"", "output 0 \"big\"", "too large"});

  ModelBuilder negative = Small();
  negative.Ints("shape", {-2});
  negative.Node("ConstantOfShape", {"shape"}, {"z"});
  const auto imported = negative.Try();
  if (imported.ok()) {
    CHECK(imported->unknown == std::vector<std::string>{"z"});
  } else {
    CheckInvalid(imported.status(), {"node \"make_z\"", "negative"});
  }
}

// The library divides by them: a signal, which nothing catches.
TEST_CASE("strides and block sizes that nothing can be divided by leave the size unknown") {
  struct Bad {
    const char* type;
    const char* attribute;
    std::int64_t value;
  };
  for (const Bad& bad :
       {Bad{"Conv", "strides", 0}, Bad{"MaxPool", "strides", 0}, Bad{"LpPool", "strides", -1},
        Bad{"DepthToSpace", "blocksize", 0}, Bad{"SpaceToDepth", "blocksize", -2},
        Bad{"DepthToSpace", "blocksize", std::int64_t{1} << 32}}) {
    const bool conv = std::string(bad.type) == "Conv";
    const bool strides = std::string(bad.attribute) == "strides";
    ModelBuilder m;
    m.Input("x", {std::int64_t{1}, std::int64_t{4}, std::int64_t{8}, std::int64_t{8}});
    m.Floats("w", {4, 4, 2, 2});
    onnx::NodeProto* node =
        conv ? m.Node("Conv", {"x", "w"}, {"y"}) : m.Node(bad.type, {"x"}, {"y"});
    if (strides) {
      SetInts(node, "kernel_shape", {2, 2});
      SetInts(node, bad.attribute, {bad.value, bad.value});
    } else {
      ModelBuilder::SetInt(node, bad.attribute, bad.value);
    }
    m.Output("y");
    std::vector<std::string> notes;
    OnnxOptions options;
    options.notes = &notes;
    const plan::Graph imported = m.Import(options);
    CHECK(imported.unknown == std::vector<std::string>{"y"});
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find(std::string("attribute ") + bad.attribute) != std::string::npos);
  }
}

TEST_CASE("symbols without value, and values without symbol") {
  ModelBuilder m;
  m.Input("x", {"batch", "2*seq"});
  m.Node("Relu", {"x"}, {"y"});
  m.Output("y");
  CheckInvalid(m.Try().status(),
               {"m.onnx", "input \"x\"", "dims", "batch, seq", "--dim batch=N --dim seq=N"});
  OnnxOptions options;
  options.dims = {{"batch", 1}, {"seq", 3}, {"bacth", 1}};
  CheckInvalid(m.Try(options).status(), {"--dim bacth", "no such dimension", "batch, seq"});
  options.dims = {{"batch", 1}, {"seq", -3}};
  CheckInvalid(m.Try(options).status(), {"input \"x\"", "dims[1]", "-6, negative"});
  options.dims = {{"batch", std::int64_t{1} << 60}, {"seq", 3}};
  CheckInvalid(m.Try(options).status(), {"input \"x\"", "too large"});
  options.dims = {{"batch", 1}, {"seq", std::int64_t{1} << 62}};
  CheckInvalid(m.Try(options).status(), {"input \"x\"", "dims[1]", "64 bits"});
  for (const bool plain : {false, true}) {
    options.dims = {{"batch", 1}};
    options.plain = plain;
    CheckInvalid(m.Try(options).status(), {"seq", "--dim seq=N"});
  }

  ModelBuilder unnamed;
  unnamed.Input("x", {std::int64_t{2}});
  unnamed.graph()
      .mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->add_dim();
  CheckInvalid(unnamed.Try().status(), {"input \"x\"", "--dim x:1=N"});
  options = {};
  options.dims = {{"x:1", 5}};
  CHECK(unnamed.Import(options).ops.empty());
}

TEST_CASE("a bound size that the ops contradict is refused") {
  ModelBuilder m;
  m.Input("x", {"n"});
  m.Input("y", {"m"});
  ModelBuilder::SetInt(m.Node("Concat", {"x", "y"}, {"z"}), "axis", 0);
  ModelBuilder::SetType(m.graph().add_output(), "z", {"total"}, onnx::TensorProto::FLOAT);
  OnnxOptions options;
  options.dims = {{"n", 3}, {"m", 4}, {"total", 8}};
  CheckInvalid(m.Try(options).status(),
               {"node \"make_z\"", "output 0 \"z\"", "\"total\" is 8", "comes to 7"});
  options.dims["total"] = 7;
  CHECK(m.Try(options).ok());
  options.dims.erase("total");
  CHECK(m.Try(options).ok());
}

TEST_CASE("external data outside its file or its directory") {
  const testing::TempDir dir;
  dir.Write("model/weights", std::string(1000, 'x'));
  dir.Write("secret", std::string(1000, 'x'));
  std::filesystem::create_symlink("../secret", dir.File("model/link"));
  const auto refused = [&](const std::string& location, const std::string& offset,
                           const std::string& length, const std::vector<std::string>& words) {
    ModelBuilder m = Small();
    m.External("w", {10, 10}, location, offset, length);
    CheckInvalid(m.Try({}, dir.File("model")).status(), words);
  };
  refused("../secret", "0", "400", {"initializer \"w\"", "location", "\"..\""});
  refused("a/../../secret", "0", "400", {"location", "\"..\""});
  refused(dir.File("secret"), "0", "400", {"location", "absolute"});
  refused("link", "0", "400", {"location", "link out of the directory"});
  refused("", "0", "400", {"location", "names no file"});
  refused("none", "0", "400", {"location", "is not there"});
  refused("weights", "0", "401", {"external_data.length", "401 bytes", "needs 400"});
  refused("weights", "601", "400", {"beyond the end", "1000 bytes"});
  refused("weights", "18446744073709551615", "400", {"beyond the end"});
  refused("weights", "-1", "400", {"external_data.offset", "no number"});
  ModelBuilder m = Small();
  m.External("w", {10, 10}, "weights", "600", "400");
  CHECK(m.Try({}, dir.File("model")).ok());
}

// Changes a model as a hostile or broken exporter might, and imports it: any answer will do but a
// crash, a hang, or a graph that does not pass the planner's check.
class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  void Mutate(onnx::GraphProto& graph) {
    if (graph.node_size() == 0) return;
    onnx::NodeProto& node = *graph.mutable_node(Below(graph.node_size()));
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g() && Below(4) != 0) return Mutate(*attribute.mutable_g());
    }
    const std::vector<std::function<void()>> changes = {
        [&] { node.set_op_type(graph.node(Below(graph.node_size())).op_type()); },
        [&] { SetNumber(node); },
        [&] { SwapInput(node, graph); },
        [&] { node.add_input(node.input_size() > 0 ? node.input(0) : ""); },
        [&] {
          if (node.input_size() > 0) node.mutable_input()->RemoveLast();
        },
        [&] {
          if (node.attribute_size() > 0) node.mutable_attribute()->RemoveLast();
        },
        [&] { node.add_output("extra" + std::to_string(Below(1000))); },
        [&] {
          if (node.output_size() > 1) node.mutable_output()->RemoveLast();
        },
        [&] { SetElement(graph); },
        [&] { SetDim(graph); },
        [&] { graph.mutable_node()->SwapElements(Below(graph.node_size()), 0); },
        [&] { node.set_domain(Below(2) == 0 ? "" : "com.microsoft"); },
    };
    changes[static_cast<std::size_t>(Below(static_cast<int>(changes.size())))]();
  }

  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

 private:
  std::int64_t Odd() {
    const std::int64_t values[] = {
        0, -1, 1, 2, 3, -2, 7, 64, 1 << 20, std::int64_t{1} << 40, -5, 17, INT64_MAX, INT64_MIN};
    return values[Below(static_cast<int>(std::size(values)))];
  }
  void SetNumber(onnx::NodeProto& node) {
    if (node.attribute_size() == 0) return;
    onnx::AttributeProto& attribute = *node.mutable_attribute(Below(node.attribute_size()));
    if (attribute.ints_size() > 0 && Below(3) != 0) {
      attribute.set_ints(Below(attribute.ints_size()), Odd());
    } else if (attribute.ints_size() > 0) {
      attribute.add_ints(Odd());
    } else {
      attribute.set_i(Odd());
    }
  }
  void SwapInput(onnx::NodeProto& node, const onnx::GraphProto& graph) {
    if (node.input_size() == 0) return;
    const onnx::NodeProto& other = graph.node(Below(graph.node_size()));
    const bool input = Below(2) == 0 && other.input_size() > 0;
    if (!input && other.output_size() == 0) return;
    node.set_input(Below(node.input_size()), input ? other.input(0) : other.output(0));
  }
  void SetElement(onnx::GraphProto& graph) {
    if (graph.initializer_size() == 0) return;
    onnx::TensorProto& tensor = *graph.mutable_initializer(Below(graph.initializer_size()));
    if (tensor.int64_data_size() > 0) {
      tensor.set_int64_data(Below(tensor.int64_data_size()), Odd());
    } else if (tensor.raw_data().size() >= 8) {
      const std::int64_t value = Odd();
      tensor.mutable_raw_data()->replace(0, 8, reinterpret_cast<const char*>(&value), 8);
    }
  }
  void SetDim(onnx::GraphProto& graph) {
    if (graph.input_size() == 0) return;
    onnx::ValueInfoProto& input = *graph.mutable_input(Below(graph.input_size()));
    auto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape.dim_size() == 0 || Below(4) == 0) shape.add_dim();
    shape.mutable_dim(Below(shape.dim_size()))->set_dim_value(Odd());
  }

  std::mt19937 random_;
};

TEST_CASE("models changed at random are refused or imported, never worse") {
  struct Base {
    const char* name;
    std::map<std::string, std::int64_t> dims;
    int rounds;
  };
  const Base base =
      GENERATE(Base{"gpt2_megatron", {{"batch_size", 2}, {"seq_len", 4}, {"past_seq_len", 3}}, 400},
               Base{"paged_decoder",
                    {{"num_tokens", 8}, {"batch_plus_1", 3}, {"batch", 2}, {"max_blocks", 4}},
                    400},
               Base{"light_resnet50", {}, 60},
               Base{"bloom_3layer_training",
                    {{"inputs_input_ids_dim0", 2},
                     {"inputs_attention_mask_dim0", 2},
                     {"inputs_labels_dim0", 2},
                     {"inputs_attention_mask_dim1", 16},
                     {"inputs_labels_dim1", 16}},
                    60},
               Base{"tiny_gpt2_beamsearch_fp16",
                    {{"batch_size", 2},
                     {"sequence_length", 16},
                     {"num_return_sequences", 1},
                     {"max_length", 32},
                     {"seq_len", 1},
                     {"past_seq_len", 31},
                     {"total_seq_len", 32}},
                    60});
  onnx::ModelProto whole;
  REQUIRE(whole.ParseFromString(ReadFile(base.name)));
  OnnxOptions options;
  options.dims = base.dims;
  int imported = 0;
  for (int round = 0; round < base.rounds; ++round) {
    INFO(base.name << ", round " << round);
    onnx::ModelProto model = whole;
    Mutator mutator(static_cast<std::uint32_t>(round));
    for (int change = 0; change < 1 + round % 4; ++change) mutator.Mutate(*model.mutable_graph());
    options.plain = round % 5 == 4;
    const auto graph = graph::ImportOnnxBytes(model.SerializeAsString(), "m.onnx", "", options);
    if (graph.ok()) {
      ++imported;
      CHECK(plan::CheckGraph(*graph).ok());
    } else {
      CHECK(ReasonOf(graph.status()) == Reason::kBadGraph);
    }
  }
  CHECK(imported > base.rounds / 10);  // the changes are not all fatal, so that much is reached
}

TEST_CASE("bytes changed at random are refused or imported, never worse") {
  const std::string whole = ReadFile("paged_decoder");
  OnnxOptions options;
  options.dims = {{"num_tokens", 8}, {"batch_plus_1", 3}, {"batch", 2}, {"max_blocks", 4}};
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    for (int change = 0; change < 1 + round % 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto graph = graph::ImportOnnxBytes(bytes, "m.onnx", "", options);
    refused += graph.ok() ? 0 : 1;
    if (graph.ok()) CHECK(plan::CheckGraph(*graph).ok());
  }
  CHECK(refused > 100);
}

}  // namespace hmm
