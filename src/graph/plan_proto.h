// SPDX-License-Identifier: Apache-2.0
//
// plan::Plan as hmm.v1.Plan (proto/hmm/v1/plan.proto), as bytes and as files, with the identity of
// the graph it is for. What is read is checked as far as a plan alone can tell: every index lies in
// its range, ops and moves stand in the sequence once, waits point backwards, numbers are numbers.
// That it is safe for its graph is for plan::Validate to say. Thread-compatible.
//
// Readers' errors: INVALID_ARGUMENT/BAD_GRAPH "<file>: moves[3]: storage: 77 is no storage ...";
// RESOURCE_EXHAUSTED/TOO_LARGE past the limits of message_file.h; what errno says of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::v1 {
class Plan;
}

namespace hmm::graph {

inline constexpr std::string_view kPlanFormat = "hmm.v1.Plan";

// The graph that a plan is for.
struct GraphIdentity {
  std::string name;
  std::uint32_t ops = 0;
  std::uint32_t storages = 0;
  std::uint32_t groups = 0;
  std::uint64_t fingerprint = 0;  // graph/fingerprint.h
};
GraphIdentity IdentityOf(const plan::Graph& graph);

// OK if plans for `identity` are plans for `graph`; else FAILED_PRECONDITION/BAD_GRAPH says in what
// the two differ. Names of graphs and durations may differ. Ask before indices of a plan from a
// file are used on a graph.
absl::Status CheckIdentity(const GraphIdentity& identity, const plan::Graph& graph);

struct PlanFile {
  plan::Plan plan;
  GraphIdentity graph;
};

v1::Plan PlanToProto(const plan::Plan& plan, const GraphIdentity& graph);
absl::StatusOr<PlanFile> PlanFromProto(const v1::Plan& message);

// `file` stands for the file in messages.
absl::StatusOr<PlanFile> ParsePlanText(std::string_view text, const std::string& file);
absl::StatusOr<PlanFile> ParsePlanBinary(std::string_view bytes, const std::string& file);

// INVALID_ARGUMENT/BAD_GRAPH if no reader would take it back; see FormatMessage* for the others.
absl::StatusOr<std::string> FormatPlanText(const plan::Plan& plan, const GraphIdentity& graph);
absl::StatusOr<std::string> FormatPlanBinary(const plan::Plan& plan, const GraphIdentity& graph);

// Form by the name's ending: .pbtxt, .txtpb, .textproto; .pb, .binpb.
absl::StatusOr<PlanFile> ReadPlanProto(const std::string& path);
absl::Status WritePlanProto(const plan::Plan& plan, const plan::Graph& graph,
                            const std::string& path);

}  // namespace hmm::graph
