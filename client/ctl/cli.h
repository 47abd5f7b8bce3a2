// SPDX-License-Identifier: Apache-2.0
//
// hmmctl's command line as plain values. Only cli.cc and plan_cli.cc know the parser. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "client/ctl/graph_model.h"
#include "client/ctl/plan_args.h"
#include "client/ctl/printer.h"

namespace hmm::ctl {

enum class Verb {
  kStatus,
  kTierList,
  kTensorList,
  kTensorShow,
  kSessionList,
  kStat,
  kEvict,
  kWatermarkSet,
  kDrain,
  kReplay,
  kPlan,
  kPlanExplain,
  kPlanDiff,
  kPlanCheck,
  kPlanLayout,
  kGraphModel,
  kGraphShow,
};

struct ReplayArgs {
  std::string trace;
  Bytes block_bytes = 64 * kKiB;
  std::size_t requests = 0;
  double speed = 0;
  std::size_t threads = 1;
  std::size_t processes = 1;
  std::uint64_t seed = 1;
  std::string key_prefix;             // empty: the trace's format
  std::string tier;                   // empty: the daemon's first HBM tier
  Bytes window_bytes = 0;             // 0: by the size of the tier
  std::string report;                 // the JSON report goes to this file too; empty: nowhere
  std::vector<std::size_t> forecast;  // capacities in blocks; empty: replay for real
  std::optional<std::size_t> worker;  // hidden: this process is number n of `processes`
};

struct Command {
  Verb verb = Verb::kStatus;
  std::string dir;
  Format format = Format::kTable;
  bool ids_only = false;
  std::string tier;         // tensor list: filter; evict, watermark set: which
  std::string tensor;       // tensor show: handle or key
  double interval_s = 0;    // stat; 0: one report
  std::uint64_t count = 0;  // stat; 0: until stopped
  Bytes evict_to = 0;
  double timeout_s = 60;  // evict
  double high = 0;
  double low = 0;
  std::optional<Bytes> reserve;
  bool drain_off = false;
  ReplayArgs replay;
  PlanArgs plan;    // graph show too
  ModelArgs model;  // graph llama, graph moe
};

// The command, or the exit code when there is nothing to run (help, version: 0; wrong usage: 2,
// with a word on stderr).
struct ParsedCommand {
  std::optional<Command> command;
  int exit_code = 0;
};
ParsedCommand ParseCommandLine(int argc, const char* const* argv);

}  // namespace hmm::ctl
