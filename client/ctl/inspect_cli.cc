// SPDX-License-Identifier: Apache-2.0
//
// The verbs that look: status, lists, stat, events, explain, health.
#include "client/ctl/cli_parts.h"

namespace hmm::ctl {
namespace {

const char kKinds[] = "weight|kv_cache|activation|optimizer_state|other";
const char kStates[] = "creating|resident|moving|absent|doomed";
const char kEvents[] = "tensor|move|watermark|session|tier_health|admin|occupancy";

void AddIdsOnly(CLI::App* app, Command* command) {
  app->add_flag("-q,--quiet", command->ids_only, "Print ids only, one a line");
}

// One tensor.
void AddNamed(CLI::App* app, Command* command) {
  app->add_option("id", command->tensor, "Its handle, or its key as `tensor list` prints it")
      ->check(NotBlank)
      ->required();
  app->add_option("--tenant", command->select.tenant,
                  "Whose (default: the one tenant that has such a tensor)")
      ->check(NotBlank)
      ->type_name("TENANT");
}

void AddTensors(CLI::App* app, Command* command) {
  SelectArgs* select = &command->select;
  CLI::App* tensor = AddNoun(app, "tensor", "Tensors: what clients allocated");
  CLI::App* list = AddVerb(tensor, "list", "List all tensors, or those that pass every filter",
                           Verb::kTensorList, command);
  list->add_option("--tier", select->tier, "Only those in this tier")
      ->check(NotBlank)
      ->type_name("TIER");
  OneOf(list->add_option("--kind", select->kind, "Only of this kind"), kKinds);
  OneOf(list->add_option("--state", select->state, "Only in this state"), kStates);
  list->add_option("--tenant", select->tenant, "Only this tenant's")
      ->check(NotBlank)
      ->type_name("TENANT");
  list->add_option("--key-prefix", select->key_prefix,
                   "Only those whose key begins so, as `tensor list` prints keys")
      ->check(NotBlank)
      ->type_name("PREFIX");
  CLI::Option* pinned = list->add_flag_callback(
      "--pinned", [select] { select->pinned = true; }, "Only those that somebody pins");
  list->add_flag_callback(
          "--unpinned", [select] { select->pinned = false; }, "Only those that nobody pins")
      ->excludes(pinned);
  AddIdsOnly(list, command);
  AddScripting(list, command);
  AddNamed(AddVerb(tensor, "show", "Show one tensor", Verb::kTensorShow, command), command);
}

void AddStat(CLI::App* app, Command* command) {
  CLI::App* stat = AddVerb(app, "stat",
                           "Use and traffic of each tier. One report is since the start of the "
                           "daemon; with an interval, a live view on a terminal, and elsewhere one "
                           "report after the other",
                           Verb::kStat, command);
  stat->add_option("interval", command->interval_s, "Seconds between reports; without: one report")
      ->check(CLI::Range(0.01, 1e6));
  stat->add_option("count", command->count, "Reports to print; without: until stopped")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  stat->add_flag("--scroll", command->scroll, "One report after the other on a terminal too");
  AddScripting(stat, command);
}

void AddEvents(CLI::App* app, Command* command) {
  EventArgs* args = &command->events;
  CLI::App* events =
      AddVerb(app, "events", "What happens, as it happens, until stopped", Verb::kEvents, command);
  OneOf(InOneWord(events->add_option("--type", args->types, "Only of these types")), kEvents);
  events->add_option("--tier", args->tier, "Only of this tier")->check(NotBlank)->type_name("TIER");
  events->add_option("--tenant", args->tenant, "Only of this tenant")
      ->check(NotBlank)
      ->type_name("TENANT");
  events
      ->add_option("--occupancy", args->occupancy_ms,
                   "Also a sample of every tier each so many milliseconds")
      ->check(CLI::Range(10u, 3'600'000u))
      ->type_name("MS");
  events->add_option("--after", args->after, "First those kept since this number; 0: all")
      ->type_name("SEQUENCE");
  events->add_option("--count", args->count, "End after so many events")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  AddScripting(events, command);
}

}  // namespace

void AddInspection(CLI::App* app, Command* command) {
  AddVerb(app, "status", "The daemon at a glance: tiers, links, counters", Verb::kStatus, command);
  CLI::App* tier = AddNoun(app, "tier", "Tiers: pools of one medium");
  CLI::App* tiers = AddVerb(tier, "list", "List the tiers", Verb::kTierList, command);
  AddIdsOnly(tiers, command);
  AddScripting(tiers, command);
  AddTensors(app, command);
  CLI::App* session = AddNoun(app, "session", "Sessions: attached client processes");
  CLI::App* sessions = AddVerb(session, "list", "List the sessions", Verb::kSessionList, command);
  AddIdsOnly(sessions, command);
  AddScripting(sessions, command);
  AddStat(app, command);
  AddEvents(app, command);
  AddNamed(AddVerb(app, "explain",
                   "Why a tensor is where it is: what evicting it would cost, its last moves and "
                   "their causes",
                   Verb::kExplain, command),
           command);
  CLI::App* health =
      AddVerb(app, "health", "Whether the daemon serves and each tier is well; exit code 1: not",
              Verb::kHealth, command);
  health->add_option("tier", command->tier, "Only this tier")->check(NotBlank)->type_name("TIER");
  AddScripting(health, command);
}

std::string InspectContradiction(const Command& command) {
  const bool json = command.format == Format::kJson;
  if (json && (command.style.tabs || command.style.exact)) {
    return "-H and -p are for tables; JSON is exact already";
  }
  if (command.ids_only && (command.style.tabs || command.style.exact)) {
    return "-q prints ids alone; -H and -p have nothing to do there";
  }
  return "";
}

}  // namespace hmm::ctl
