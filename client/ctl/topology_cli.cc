// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/topology_cli.h"

namespace hmm::ctl {

void AddTopology(CLI::App* app, Command* command) {
  CLI::App* topology = app->add_subcommand(
      "topology", "Memory nodes, tiers, where each demotes to, and the links as measured");
  topology->fallthrough();  // so that --dir and -o work behind the verb too
  topology->callback([command] { command->verb = Verb::kTopology; });
  TopologyArgs& args = command->topology;
  topology->add_flag("--calibrate", args.calibrate,
                     "Measure the links first; best while the daemon is idle");
  topology->add_option("--timeout", command->timeout_s, "Give up measuring after so many seconds")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  CLI::Option* toml =
      topology->add_flag("--machine-toml", args.machine_toml,
                         "Print a machine file for `hmmctl plan --machine`: the links as measured");
  topology->add_option("--device", args.device, "Its HBM (default: the first tier)")
      ->type_name("TIER")
      ->needs(toml);
}

}  // namespace hmm::ctl
