// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_timeline.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hmm::ctl {
namespace {

std::string RowName(std::uint32_t channel) {
  switch (channel) {
    case 0:
      return "HBM to DDR";
    case 1:
      return "DDR to HBM";
    case 2:
      return "DDR to flash";
    case 3:
      return "flash to DDR";
    case plan::kLinkChannels:
      return "compute";
    default:
      return absl::StrCat("compute ", channel - plan::kLinkChannels);
  }
}

}  // namespace

PlanTimeline TimelineOf(const plan::Graph& graph, const plan::Machine& machine,
                        const plan::Plan& plan) {
  PlanTimeline out;
  if (plan.sequence.empty()) return out;
  plan::Simulation run =
      plan::Simulate(graph, machine, plan, plan::PredictedUs(graph, machine, plan));
  out.hbm = std::move(run.memory);
  out.step_us = run.step_us;
  std::vector<TimelineRow> by_channel(plan::ChannelCount(graph));
  for (plan::TaskIndex t = 0; t < plan.sequence.size(); ++t) {
    const plan::Task& task = plan.sequence[t];
    const std::uint32_t channel = plan::ChannelOf(graph, plan, task);
    if (channel == plan::kNone) continue;  // a drop takes no time
    by_channel[channel].spans.push_back({run.start[t], run.end[t], task.is_move, task.index});
  }
  const auto take = [&](std::uint32_t channel) {
    TimelineRow& row = by_channel[channel];
    if (row.spans.empty()) return;
    row.name = RowName(channel);
    row.is_link = channel < plan::kLinkChannels;
    out.rows.push_back(std::move(row));
  };
  for (std::uint32_t c = plan::kLinkChannels; c < by_channel.size(); ++c) take(c);
  for (std::uint32_t c = 0; c < plan::kLinkChannels; ++c) take(c);
  return out;
}

}  // namespace hmm::ctl
