// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Plan, text and binary: read plans are held against small graphs. What Validate proves has
// to run, whatever the durations.
#include <hmm/v1/plan.pb.h>

#include <string_view>
#include <vector>

#include "fuzz/cases.h"
#include "fuzz/graph_laws.h"
#include "fuzz/message_mutator.h"
#include "fuzz/require.h"
#include "graph/plan_proto.h"
#include "plan/diff.h"
#include "plan/validate.h"
#include "unit/graph/same.h"

namespace {

using namespace hmm;

void HoldRoundTrip(const graph::PlanFile& file) {
  const auto binary = graph::FormatPlanBinary(file.plan, file.graph);
  const auto text = graph::FormatPlanText(file.plan, file.graph);
  fuzz::RequireOk(binary.status(), "what was read can be written, binary");
  fuzz::RequireOk(text.status(), "what was read can be written, text");
  const auto from_binary = graph::ParsePlanBinary(*binary, "own.pb");
  const auto from_text = graph::ParsePlanText(*text, "own.pbtxt");
  fuzz::RequireOk(from_binary.status(), "a plan is read back, binary");
  fuzz::RequireOk(from_text.status(), "a plan is read back, text");
  fuzz::Require(hmm::testing::Same(file.plan, from_binary->plan), "the same plan, binary");
  fuzz::Require(hmm::testing::Same(file.plan, from_text->plan), "the same plan, text");
}

void HoldAgainst(const hmm::testing::GenCase& known, const graph::PlanFile& file) {
  (void)graph::CheckIdentity(file.graph, known.graph);
  // The fingerprint alone would stop nearly every mutated plan; a wicked one has it right.
  graph::GraphIdentity identity = graph::IdentityOf(known.graph);
  if (identity.ops != file.graph.ops || identity.storages != file.graph.storages ||
      identity.groups != file.graph.groups) {
    fuzz::Require(!graph::CheckIdentity(file.graph, known.graph).ok(), "counts count");
    return;
  }
  if (!plan::Validate(known.graph, known.machine, file.plan).empty()) return;
  fuzz::HoldProvedPlan(known.graph, known.machine, file.plan, file.plan.peak_bytes);
  fuzz::Require(plan::DiffPlans(file.plan, file.plan).same(), "a plan differs from itself");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<hmm::testing::GenCase>& cases = *new auto(fuzz::SmallCases());
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto& file :
       {graph::ParsePlanBinary(bytes, "fuzz.pb"), graph::ParsePlanText(bytes, "fuzz.pbtxt")}) {
    if (!file.ok()) continue;
    HoldRoundTrip(*file);
    for (const hmm::testing::GenCase& known : cases) HoldAgainst(known, *file);
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  v1::Plan message;
  return fuzz::MutateAsMessage(message, /*text_too=*/true, data, size, size_max, seed);
}
