// SPDX-License-Identifier: Apache-2.0
//
// A graph from a file of any form there is, told by its content and then by the name's ending:
//
//   .pbtxt .txtpb .textproto   hmm.v1.Graph, text       (graph_proto.h)
//   .pb .binpb                 hmm.v1.Graph, binary     (graph_proto.h)
//   .json                      a costed training graph  (costed_graph.h)
//   .onnx                      an ONNX model            (onnx_import.h)
//   .mindir                    a MindIR model           (mindir_import.h)
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "graph/costed_graph.h"
#include "graph/mindir_import.h"
#include "graph/onnx_import.h"
#include "plan/graph.h"

namespace hmm::graph {

struct ReadOptions {
  CostedOptions costed = {};
  OnnxOptions onnx = {};
  MindIrOptions mindir = {};
};

// The errors of the form's own reader; INVALID_ARGUMENT/BAD_GRAPH if the file is of no form, or a
// plan; INVALID_ARGUMENT/BAD_ARGUMENT if values of symbolic dimensions are given for a form without
// such.
absl::StatusOr<plan::Graph> ReadGraph(const std::string& path, const ReadOptions& options = {});

// The same of bytes; `name` stands for the file: in messages, for its ending, and for the directory
// that external data of an ONNX model lies in.
absl::StatusOr<plan::Graph> ReadGraphBytes(std::string_view bytes, const std::string& name,
                                           const ReadOptions& options = {});

}  // namespace hmm::graph
