// SPDX-License-Identifier: Apache-2.0
//
// Internal to the MindIR importer: a parsed model whose tensors are sound, and how errors name
// places in it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "graph/mindir_import.h"
#include "mindir.pb.h"

namespace hmm::graph {

// Types of attributes (AttributeProto::type) that say what a result is.
inline constexpr int kMindIrInt64 = 7;
inline constexpr int kMindIrString = 8;
inline constexpr int kMindIrBool = 9;
inline constexpr int kMindIrTensor = 17;
inline constexpr int kMindIrTensors = 19;
inline constexpr int kMindIrTuple = 20;
inline constexpr int kMindIrList = 21;
inline constexpr int kMindIrUMonad = 23;
inline constexpr int kMindIrUint8 = 2;  // of TensorProto::data_type

// Elements of a tensor, and so its bytes if they are bytes.
inline constexpr Bytes kMindIrBytesMax = Bytes{1} << 56;

struct MindIrModel {
  std::unique_ptr<mind_ir::ModelProto> proto;
  std::string name;             // of the file, in messages
  std::string directory;        // of files of weights
  bool took_variables = false;  // parameters came from files of a graph each, without their data
};

// "model.mindir: WHERE: WHAT", BAD_GRAPH, INVALID_ARGUMENT.
absl::Status BadMindIr(const std::string& file, std::string_view where, std::string_view what);

// `node "name" (Conv2D, #12 of graph "g")`, for messages.
std::string MindIrNodePlace(const mind_ir::NodeProto& node, int index,
                            const mind_ir::GraphProto& graph);

// Bits an element takes in memory; 0: none can be told (strings), nullopt: no such type.
std::optional<int> MindIrElementBits(int data_type);

// Bytes of a dense tensor; nullopt: a dimension or the type is not known, or it is beyond any
// memory.
std::optional<Bytes> MindIrTensorBytes(const mind_ir::TensorProto& tensor);

// Reads, parses, takes in the weights of an X_variables folder of old form, and checks: bounds
// hold; every tensor's dimensions and type are possible; inline data has the length that they need;
// other data lies inside its file, inside the directory.
absl::StatusOr<MindIrModel> LoadMindIrFile(const std::string& path, const MindIrOptions& options);
absl::StatusOr<MindIrModel> LoadMindIrBytes(std::string_view bytes, const std::string& name,
                                            const std::string& directory,
                                            const MindIrOptions& options);

}  // namespace hmm::graph
