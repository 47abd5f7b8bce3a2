// SPDX-License-Identifier: Apache-2.0
//
// What replay reads out of the daemon's status: which tiers there are, and what moved between two
// looks. Pure.
#pragma once

#include <optional>

#include "client/ctl/cli.h"
#include "client/ctl/replay_report.h"
#include "client/ctl/worker_processes.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

// Moves between kinds of tiers: hbm->flash passes ddr and is not counted as either when it does
// not. A daemon restarted in between counts from its start.
ReplayTraffic TrafficBetween(const v1::GetStatusResponse& before,
                             const v1::GetStatusResponse& after);

bool HasEmulatedHbm(const v1::GetStatusResponse& status);

// Tier and window for the run: as asked for, else the first HBM tier, and a window so small that
// all threads together hold at most a quarter of that tier pinned. Without status: names as usual.
WorkerSetup MakeSetup(const ReplayArgs& args, const std::optional<v1::GetStatusResponse>& status);

}  // namespace hmm::ctl
