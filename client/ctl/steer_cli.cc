// SPDX-License-Identifier: Apache-2.0
//
// The verbs that steer: evict, swap, prefetch, resize, compact, watermark, log-level, drain.
#include <utility>

#include "client/ctl/cli_parts.h"

namespace hmm::ctl {
namespace {

void AddSelection(CLI::App* app, Command* command) {
  SelectArgs* select = &command->select;
  app->add_option("--tenant", select->tenant, "Whose tensors")
      ->required()
      ->check(NotBlank)
      ->type_name("TENANT");
  app->add_option("ids", select->ids,
                  "Their handles, or their keys as `tensor list` prints them (default: all of the "
                  "tenant's that --key-prefix and --kind allow)")
      ->check(NotBlank);
  app->add_option("--key-prefix", select->key_prefix, "Without ids: only keys that begin so")
      ->check(NotBlank)
      ->type_name("PREFIX");
  OneOf(app->add_option("--kind", select->kind, "Without ids: only of this kind"),
        "weight|kv_cache|activation|optimizer_state|other");
}

void AddMoves(CLI::App* app, Command* command) {
  CLI::App* evict = AddVerb(app, "evict", "Move tensors out of a tier", Verb::kEvict, command);
  evict->add_option("tier", command->tier, "Which tier")
      ->required()
      ->check(NotBlank)
      ->type_name("TIER");
  AddSize(evict, "--to", "Until it holds at most this much (default 0: all that is not pinned)",
          &command->evict_to);
  AddTimeout(evict, command);
  CLI::App* swap = AddVerb(
      app, "swap",
      "Move a tenant's tensors to a tier, and wait for it; with no ids, no --key-prefix and no "
      "--kind: all of them",
      Verb::kSwap, command);
  swap->add_option("--to", command->tier, "Which tier")
      ->required()
      ->check(NotBlank)
      ->type_name("TIER");
  AddSelection(swap, command);
  AddTimeout(swap, command);
  CLI::App* prefetch =
      AddVerb(app, "prefetch",
              "Start to bring a tenant's tensors to a tier, and do not wait; with no ids, no "
              "--key-prefix and no --kind: all of them",
              Verb::kPrefetch, command);
  prefetch->add_option("--to", command->tier, "Which tier (default: the fastest)")
      ->check(NotBlank)
      ->type_name("TIER");
  AddSelection(prefetch, command);
}

void AddSizes(CLI::App* app, Command* command) {
  CLI::App* resize = AddVerb(app, "resize",
                             "Give a tier another capacity until the daemon restarts; what no "
                             "longer fits moves down first",
                             Verb::kResize, command);
  resize->add_option("tier", command->tier, "Which tier")
      ->required()
      ->check(NotBlank)
      ->type_name("TIER");
  AddSize(resize, "capacity", "Its new capacity", &command->resize_to)->required();
  AddTimeout(resize, command);
  CLI::App* compact =
      AddVerb(app, "compact", "Empty sparse chunks of a tier and give their memory back",
              Verb::kCompact, command);
  compact->add_option("tier", command->tier, "Which tier (default: all)")
      ->check(NotBlank)
      ->type_name("TIER");
  AddTimeout(compact, command);
}

void AddWatermark(CLI::App* app, Command* command) {
  CLI::App* watermark = AddNoun(app, "watermark", "Watermarks: when a tier starts to demote");
  CLI::App* set = AddVerb(watermark, "set", "Set a tier's watermarks until the daemon restarts",
                          Verb::kWatermarkSet, command);
  set->add_option("tier", command->tier, "Which tier")
      ->required()
      ->check(NotBlank)
      ->type_name("TIER");
  set->add_option("--high", command->high, "Share of the capacity at which demotion starts")
      ->required()
      ->check(CLI::Range(0.0, 1.0));
  set->add_option("--low", command->low, "Share of the capacity at which it stops")
      ->required()
      ->check(CLI::Range(0.0, 1.0));
  set->add_option_function<std::string>(
         "--reserve",
         [command](const std::string& value) {
           const absl::StatusOr<Bytes> size = ParseBytes(value);
           if (!size.ok()) {
             throw CLI::ValidationError("--reserve", std::string(size.status().message()));
           }
           command->reserve = *size;
         },
         "Room kept for what is brought back on demand (default: unchanged)")
      ->type_name("SIZE");
}

}  // namespace

void AddSteering(CLI::App* app, Command* command) {
  AddMoves(app, command);
  AddSizes(app, command);
  AddWatermark(app, command);
  CLI::App* level = AddVerb(app, "log-level", "Set the daemon's log level until it restarts",
                            Verb::kLogLevel, command);
  OneOf(level->add_option("level", command->log_level, "The least severity that is logged"),
        "trace|debug|info|warn|error|critical|off")
      ->required();
  AddVerb(app, "drain", "Take no new sessions and allocations", Verb::kDrain, command)
      ->add_flag("--off", command->drain_off, "Take them again");
}

std::string SteerContradiction(const Command& command) {
  const SelectArgs& select = command.select;
  switch (command.verb) {
    case Verb::kWatermarkSet:
      return command.low > 0 && command.low < command.high && command.high <= 1
                 ? ""
                 : "watermark set: need 0 < low < high <= 1";
    case Verb::kResize:
      return command.resize_to > 0 ? "" : "resize: capacity must not be 0";
    case Verb::kSwap:
    case Verb::kPrefetch:
      return !select.ids.empty() && (!select.key_prefix.empty() || !select.kind.empty())
                 ? "give ids, or --key-prefix and --kind, not both"
                 : "";
    default:
      return "";
  }
}

}  // namespace hmm::ctl
