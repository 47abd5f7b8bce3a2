// SPDX-License-Identifier: Apache-2.0
//
// The verbs that need no daemon and no graph: doctor, completion.
#include "client/ctl/cli_parts.h"

namespace hmm::ctl {

void AddTools(CLI::App* app, Command* command) {
  CLI::App* doctor = AddVerb(app, "doctor",
                             "What of this machine stands in hmmd's way, what it costs, and the "
                             "command that mends it; exit code 1: something must be mended",
                             Verb::kDoctor, command);
  doctor->add_flag_callback(
      "--json", [command] { command->format = Format::kJson; }, "The same as -o json");
  doctor
      ->add_option("--flash", command->doctor.flash,
                   "Where the flash tier's file is, or will be (default /var/lib/hmm)")
      ->type_name("DIR");
  doctor->add_option("--root", command->doctor.root)->group("");  // of /proc and /sys, for tests
  CLI::App* completion =
      AddVerb(app, "completion",
              "The completion script of a shell, as in: source <(hmmctl completion bash)",
              Verb::kCompletion, command);
  // man: hmmctl(1), for our own build.
  OneOf(completion->add_option("shell", command->shell, "Which shell"), "bash|zsh|fish", "man")
      ->required();
}

}  // namespace hmm::ctl
