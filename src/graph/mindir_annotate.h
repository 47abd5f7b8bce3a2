// SPDX-License-Identifier: Apache-2.0
//
// Internal: the moves of a plan in a MindIR model, and out of it again (export.h).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/mindir_model.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::graph {

// Calls of graphs are replaced by what they call, as MindSpore does before it plans itself.
// REQUIRES: `graph` was imported from `model`, or the model made of it by MindIrOfGraph.
absl::Status AnnotateMindIr(const plan::Graph& graph, const plan::Plan& plan,
                            const MindIrOptions& options, MindIrModel& model);

bool IsAnnotatedMindIr(const mind_ir::ModelProto& model);

// The model as it was, but for calls. INVALID_ARGUMENT/BAD_GRAPH if the metadata does not fit the
// nodes.
absl::Status UnannotateMindIr(MindIrModel& model);

}  // namespace hmm::graph
