// SPDX-License-Identifier: Apache-2.0
//
// hmmctl's command line as plain values. Only *cli*.cc know the parser. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "client/ctl/graph_model.h"
#include "client/ctl/inspect_args.h"
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
  kTopology,
  kEvents,
  kExplain,
  kHealth,
  kSwap,
  kPrefetch,
  kResize,
  kCompact,
  kLogLevel,
  kDoctor,
  kCompletion,
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

struct TopologyArgs {
  bool calibrate = false;
  bool machine_toml = false;
  std::string device;  // of the machine file; empty: the first tier
};

struct Command {
  Verb verb = Verb::kStatus;
  std::string dir;
  Format format = Format::kTable;
  bool ids_only = false;
  std::string tier;         // health, swap and what steers one tier: which
  std::string tensor;       // tensor show, explain: handle or key
  double interval_s = 0;    // stat; 0: one report
  std::uint64_t count = 0;  // stat; 0: until stopped
  bool scroll = false;      // stat: no live view
  Bytes evict_to = 0;
  Bytes resize_to = 0;
  double timeout_s = 60;  // of what waits: evict, swap, resize, compact, topology --calibrate
  double high = 0;
  double low = 0;
  std::optional<Bytes> reserve;
  bool drain_off = false;
  std::string log_level;
  std::string shell;       // completion
  std::string completion;  // its script, written while the parser lives
  TableStyle style;        // -H, -p; colour is decided by --color and the terminal
  SelectArgs select;
  EventArgs events;
  DoctorArgs doctor;
  ReplayArgs replay;
  TopologyArgs topology;
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
