// SPDX-License-Identifier: Apache-2.0
//
// Intervals as CSV, and the layouts that small sets of them get.
#include <string_view>
#include <vector>

#include "client/ctl/plan_layout_csv.h"
#include "fuzz/require.h"
#include "plan/layout.h"
#include "plan/layout_validate.h"

namespace {

using namespace hmm;

bool Same(const plan::Interval& a, const plan::Interval& b) {
  if (a.begin != b.begin || a.end != b.end || a.bytes != b.bytes || a.alignment != b.alignment ||
      a.gaps.size() != b.gaps.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.gaps.size(); ++i) {
    if (a.gaps[i].begin != b.gaps[i].begin || a.gaps[i].end != b.gaps[i].end) return false;
  }
  return true;
}

void HoldRoundTrip(const ctl::LayoutCsv& csv, const std::vector<Bytes>& offsets) {
  const auto back = ctl::ParseLayoutCsv(ctl::FormatLayoutCsv(csv, offsets), "own.csv");
  fuzz::RequireOk(back.status(), "intervals are read back");
  fuzz::Require(back->ids == csv.ids, "names come back the same");
  fuzz::Require(back->intervals.size() == csv.intervals.size(), "all intervals come back");
  for (std::size_t i = 0; i < csv.intervals.size(); ++i) {
    fuzz::Require(Same(csv.intervals[i], back->intervals[i]), "an interval comes back the same");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kIntervalsMax = 64;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto csv = ctl::ParseLayoutCsv(text, "fuzz.csv");
  if (!csv.ok()) return 0;
  plan::LayoutProblem problem{.intervals = csv->intervals, .capacity = 0, .alignment = 1};
  if (!plan::CheckLayoutProblem(problem).ok() || problem.intervals.size() > kIntervalsMax) return 0;
  const plan::LayoutResult least = plan::MinimizeLayout(problem, {.steps_max = 2000});
  for (const Bytes capacity : {least.high_water, least.lower_bound, least.lower_bound / 2}) {
    problem.capacity = capacity;
    const plan::LayoutResult result = plan::SolveLayout(problem, {.steps_max = 2000});
    (void)plan::ExplainLayout(problem, result);
    if (result.offsets.empty()) continue;
    const plan::LayoutFault fault = plan::ValidateLayout(problem, result);
    fuzz::Require(fault.ok(), plan::DescribeFault(problem, result, fault));
    HoldRoundTrip(*csv, result.offsets);
  }
  return 0;
}
