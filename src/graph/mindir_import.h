// SPDX-License-Identifier: Apache-2.0
//
// A model in MindIR to the planner's Graph: files of MindSpore 1.1 to 2.x, in both dialects that
// those have. Sizes are those that the file states for each result; nothing is inferred. What it
// makes of a model:
//
//   Parameter                  weight, kv_cache or optimizer_state by its name: persistent
//   Constant with tensors      weight; scalars and tuples of them live on the host
//   Load, Depend, MakeTuple,   no op: names of what they pass on; order that only monads show
//   TupleGetItem, ...          stands in Op::after
//   Reshape, ExpandDims, ...   likewise, where the bytes are as many
//   Assign, optimizers, ...    write their parameter in place
//   several results            one storage each, "name[0]", "name[1]", ...
//   a call of a graph          its nodes, in the place of the call; a second call's end in "#2"
//   a call of a closure        that one graph, if it can be but one (Partial); else (Switch,
//                              SwitchLayer) one op whose workspace is the peak of the largest
//   a graph that calls itself  counted once: the inner call is an op without workspace
//   a result without a size    named in Graph::unknown, counted nowhere
//
// Thread-safe; holds the parsed model while it runs, nothing after.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "plan/graph.h"

namespace hmm::graph {

struct MindIrOptions {
  // Refuse a model whose weights' own files are missing. Without, sizes are taken from the shapes.
  bool external_data_required = true;
  // After calls are replaced by what they call: in all, and those that the file itself does not
  // have. A file of some kilobytes can call for any number; what is beyond keeps half a GiB busy.
  std::size_t nodes_max = 4'000'000;
  std::size_t called_nodes_max = 500'000;
  // Messages, names and values of the file together: each takes some hundred bytes once read.
  std::size_t records_max = 32'000'000;
  Bytes file_bytes_max = (Bytes{2} << 30) - 1;  // protobuf's own limit: the most that can be inline
};

// Errors carry BAD_GRAPH, or what errno says of the file, and name file, graph, node and field:
// INVALID_ARGUMENT: no MindIR, encrypted, cut short, a name that nothing makes, sizes that
// contradict each other or the files of weights; RESOURCE_EXHAUSTED: past a bound above. The result
// passes plan::CheckGraph. `X_graph.mindir` takes the weights that lie in `X_variables` beside it.
absl::StatusOr<plan::Graph> ImportMindIr(const std::string& path, const MindIrOptions& options);

// The same of a model in memory. `name` stands for the file in messages, and for the files of
// weights `directory` is looked in.
absl::StatusOr<plan::Graph> ImportMindIrBytes(std::string_view bytes, const std::string& name,
                                              const std::string& directory,
                                              const MindIrOptions& options);

}  // namespace hmm::graph
