// SPDX-License-Identifier: Apache-2.0
//
// One printer a format for what `hmmctl plan` and `hmmctl graph` find out. Each method returns the
// text to write to standard output. JSON keys are a contract: they are only ever added to. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/ctl/plan_layout_csv.h"
#include "client/ctl/plan_sweep.h"
#include "client/ctl/printer.h"
#include "plan/diff.h"
#include "plan/explain.h"
#include "plan/graph.h"
#include "plan/layout.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "plan/validate.h"

namespace hmm::ctl {

// What every report on plans refers to. Borrowed.
struct PlanContext {
  const plan::Graph& graph;
  const plan::Machine& machine;
  std::size_t roofline_ops = 0;  // ops whose duration nobody gave
};

struct CheckReport {
  std::string plan_file;
  std::string graph_file;
  const plan::Plan& plan;
  std::vector<plan::PlanFault> faults;
};

struct LayoutReport {
  const LayoutCsv& csv;
  const plan::LayoutProblem& problem;
  const plan::LayoutResult& result;
};

struct ExplainReport {
  const plan::Plan& plan;
  plan::StorageReport storage;
};

struct DiffReport {
  std::string file_a;
  std::string file_b;
  const plan::Plan& a;
  const plan::Plan& b;
  plan::PlanDiff diff;
  const plan::Graph* graph;  // nullptr: not given; indices instead of names
};

class PlanPrinter {
 public:
  virtual ~PlanPrinter() = default;
  virtual std::string Plan(const PlanContext& context, const plan::Plan& plan) = 0;
  // Plans of one graph and budget, one a planner.
  virtual std::string Compare(const PlanContext& context, const std::vector<plan::Plan>& plans) = 0;
  virtual std::string Sweep(const PlanContext& context, const SweepReport& report) = 0;
  virtual std::string Explain(const PlanContext& context, const ExplainReport& report) = 0;
  virtual std::string Diff(const DiffReport& report) = 0;
  virtual std::string Check(const PlanContext& context, const CheckReport& report) = 0;
  virtual std::string Layout(const LayoutReport& report) = 0;
};

std::unique_ptr<PlanPrinter> MakePlanPrinter(Format format);
std::unique_ptr<PlanPrinter> MakePlanTablePrinter();
std::unique_ptr<PlanPrinter> MakePlanJsonPrinter();

}  // namespace hmm::ctl
