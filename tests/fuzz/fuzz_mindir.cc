// SPDX-License-Identifier: Apache-2.0
//
// The MindIR importer, and what is written again of what it read with a plan's moves in it.
#include <string>
#include <string_view>

#include "fuzz/graph_laws.h"
#include "fuzz/message_mutator.h"
#include "fuzz/require.h"
#include "graph/fingerprint.h"
#include "graph/mindir_annotate.h"
#include "graph/mindir_import.h"
#include "graph/mindir_structure.h"
#include "mindir.pb.h"
#include "plan/lifetimes.h"
#include "plan/planner.h"

namespace {

using namespace hmm;

graph::MindIrOptions Options() {
  graph::MindIrOptions options;
  options.external_data_required = false;
  options.nodes_max = 5'000;  // calls of calls multiply
  options.records_max = 20'000;
  return options;
}

// A plan can be written into the model, or that is refused; what was written is read back the same,
// unless the model calls graphs.
void HoldAnnotated(std::string_view bytes, const plan::Graph& imported) {
  if (!fuzz::IsSmall(imported)) return;
  plan::Plan totals;
  plan::FillGraphTotals(imported, totals);
  plan::PlanOptions options;
  options.steps = 100;
  options.layout = false;
  const plan::Machine machine = *plan::MachinePreset("h100");
  const Bytes budget = (totals.floor_bytes + totals.unplanned_peak_bytes) / 2;
  const auto plan = plan::MakePlan(imported, machine, budget, options);
  if (!plan.ok() || plan->verdict == plan::Verdict::kInfeasible) return;
  auto model = graph::LoadMindIrBytes(bytes, "fuzz.mindir", "/nonexistent", Options());
  fuzz::RequireOk(model.status(), "what was read can be read");
  if (graph::IsAnnotatedMindIr(*model->proto)) return;
  if (!graph::AnnotateMindIr(imported, *plan, Options(), *model).ok()) return;
  const auto back = graph::ImportMindIrBytes(model->proto->SerializeAsString(), "fuzz.mindir",
                                             "/nonexistent", Options());
  const bool same = back.ok() && graph::Fingerprint(*back) == graph::Fingerprint(imported);
  // Of called graphs names may be lost that others take from them; WriteAnnotatedGraph compares
  // as we do, and refuses.
  if (!same && model->proto->functions_size() > 0) return;
  fuzz::RequireOk(back.status(), "what was written with moves is read");
  fuzz::Require(same, "with moves in it the graph is the same");
  fuzz::HoldGraph(*back, /*writable=*/false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<plan::Graph> graph =
      graph::ImportMindIrBytes(bytes, "fuzz.mindir", "/nonexistent", Options());
  if (!graph.ok()) {
    fuzz::Require(!graph.status().message().empty(), "an error says what it is");
    return 0;
  }
  fuzz::HoldGraph(*graph, /*writable=*/false);
  fuzz::HoldPlans(*graph);
  HoldAnnotated(bytes, *graph);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  mind_ir::ModelProto model;
  return fuzz::MutateAsMessage(model, /*text_too=*/false, data, size, size_max, seed);
}
