// SPDX-License-Identifier: Apache-2.0
//
// hmmctl topology: memory nodes, tiers, ways down, and what was measured of the links.
#include <chrono>
#include <memory>

#include "base/status.h"
#include "client/ctl/daemon_link.h"
#include "client/ctl/plan_this_machine.h"
#include "client/ctl/topology_text.h"
#include "client/ctl/verbs.h"
#include "graph/machine_file.h"

namespace hmm::ctl {

absl::StatusOr<int> RunTopology(const Command& command) {
  HMM_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonLink> link, DaemonLink::Connect(command.dir));
  const TopologyArgs& args = command.topology;
  if (args.calibrate) {
    const std::chrono::milliseconds timeout(static_cast<std::int64_t>(command.timeout_s * 1e3));
    HMM_RETURN_IF_ERROR(link->Calibrate(timeout).status());
  }
  HMM_ASSIGN_OR_RETURN(const v1::GetTopologyResponse topology, link->GetTopology());
  if (!args.machine_toml) {
    HMM_RETURN_IF_ERROR(WriteOut(command.format == Format::kJson ? TopologyJson(topology)
                                                                 : TopologyTable(topology)));
    return 0;
  }
  HMM_ASSIGN_OR_RETURN(plan::Machine base, MeasureCompute());
  HMM_ASSIGN_OR_RETURN(const plan::Machine machine,
                       MachineOf(topology, args.device, std::move(base)));
  HMM_ASSIGN_OR_RETURN(const std::string text, graph::FormatMachine(machine));
  HMM_RETURN_IF_ERROR(WriteOut(text));
  return 0;
}

}  // namespace hmm::ctl
