// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <utility>

#include "client/ctl/cli_parts.h"
#include "client/ctl/completion.h"
#include "client/ctl/daemon_link.h"
#include "client/ctl/plan_cli.h"
#include "client/ctl/terminal.h"
#include "client/ctl/topology_cli.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {

CLI::App* AddVerb(CLI::App* parent, const std::string& name, const std::string& text, Verb verb,
                  Command* command) {
  CLI::App* app = parent->add_subcommand(name, text);
  app->fallthrough();  // so that --dir and -o work behind the verb too
  app->callback([verb, command] { command->verb = verb; });
  return app;
}

CLI::App* AddNoun(CLI::App* parent, const std::string& name, const std::string& text) {
  CLI::App* app = parent->add_subcommand(name, text);
  app->fallthrough();
  app->require_subcommand(1);
  return app;
}

CLI::Option* AddSize(CLI::App* app, const std::string& name, const std::string& text,
                     Bytes* bytes) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, bytes](const std::string& value) {
            const absl::StatusOr<Bytes> size = ParseBytes(value);
            if (!size.ok()) throw CLI::ValidationError(name, std::string(size.status().message()));
            *bytes = *size;
          },
          text)
      ->type_name("SIZE");
}

CLI::Option* OneOf(CLI::Option* option, const std::string& choices, const std::string& hidden) {
  std::vector<std::string> words = CLI::detail::split(choices, '|');
  if (!hidden.empty()) words.push_back(hidden);
  option->check([words, choices](const std::string& value) {
    const bool known = std::find(words.begin(), words.end(), value) != words.end();
    return known ? std::string() : "'" + value + "' is none of " + choices;
  });
  return option->type_name(choices);
}

std::string NotBlank(const std::string& value) {
  return value.empty() ? "is empty; leave it out instead" : "";
}

std::string NotEmpty(const std::string& name) {
  return name.empty() ? "the name of the file is empty" : "";
}

CLI::Option* InOneWord(CLI::Option* option) {
  return option->delimiter(',')->allow_extra_args(false);
}

void AddScripting(CLI::App* app, Command* command) {
  app->add_flag("-H", command->style.tabs, "No header, one tab between cells: for scripts");
  app->add_flag("-p", command->style.exact, "Exact numbers: bytes, milliseconds, ratios");
}

void AddTimeout(CLI::App* app, Command* command) {
  app->add_option("--timeout", command->timeout_s, "Give up after so many seconds")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
}

namespace {

constexpr int kUsage = 2;
constexpr std::size_t kThreadsMax = 256;

void AddReplay(CLI::App* app, Command* command) {
  ReplayArgs& args = command->replay;
  CLI::App* replay = AddVerb(app, "replay",
                             "Act as an inference server that a trace's requests arrive at, and "
                             "check every byte that is found again",
                             Verb::kReplay, command);
  replay->add_option("trace", args.trace, "mooncake or agentic trace, plain or gzipped")
      ->required()
      ->type_name("FILE");
  AddSize(replay, "--block-bytes", "Size of a block (default 64KiB)", &args.block_bytes);
  replay->add_option("--requests", args.requests, "Only the first N requests")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 40));
  replay->add_option("--speed", args.speed, "Times as fast as they arrived; 0: as fast as it goes")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  replay->add_option("--concurrency", args.threads, "Requests served at once by a process")
      ->check(CLI::Range(std::size_t{1}, kThreadsMax))
      ->capture_default_str();
  replay->add_option("--tenant-processes", args.processes, "Processes that share the blocks")
      ->check(CLI::Range(std::size_t{1}, kThreadsMax))
      ->capture_default_str();
  replay->add_option("--seed", args.seed, "Of the bytes written; other seeds share no blocks")
      ->capture_default_str();
  replay->add_option("--key-prefix", args.key_prefix, "Of the blocks' keys (default: the format)")
      ->check([](const std::string& value) {
        return value.size() <= 128 ? std::string() : std::string("at most 128 bytes");
      });
  replay->add_option("--report", args.report, "Write the report as JSON to this file too")
      ->check(NotEmpty);
  replay->add_option("--tier", args.tier, "Where blocks are wanted (default: the first HBM tier)")
      ->type_name("TIER");
  AddSize(replay, "--window-bytes",
          "Pinned at once by each thread (default: by the size of the tier, at most 16MiB)",
          &args.window_bytes);
  InOneWord(replay->add_option("--forecast", args.forecast,
                               "Without a daemon: hits of an exact LRU over tiers of so many "
                               "blocks, as in 1000,4000,16000"))
      ->type_name("BLOCKS");
  replay->add_option("--worker", args.worker)->group("");
}

constexpr std::size_t kForecastMax = std::size_t{1} << 40;

// What the parser cannot say; empty when all is well.
std::string Contradiction(const Command& command) {
  if (command.dir.empty()) return "--dir is empty";
  // NaN passes every range check of the parser.
  for (const double number : {command.interval_s, command.timeout_s, command.replay.speed}) {
    if (std::isnan(number)) return "'nan' is not a number to work with";
  }
  for (const auto& contradiction : {InspectContradiction(command), SteerContradiction(command)}) {
    if (!contradiction.empty()) return contradiction;
  }
  if (command.verb == Verb::kReplay) {
    if (command.replay.block_bytes == 0) return "--block-bytes: must not be 0";
    if (command.replay.speed > 0 && command.replay.speed < 1e-3) {
      return "--speed: from 0.001 on, or 0 for as fast as it goes";
    }
    for (const std::size_t blocks : command.replay.forecast) {
      if (blocks == 0 || blocks > kForecastMax) {
        return "--forecast: a tier holds from 1 to 1099511627776 blocks";
      }
    }
    if (command.replay.worker && *command.replay.worker >= command.replay.processes) {
      return "--worker: beyond --tenant-processes";
    }
  }
  if (command.verb == Verb::kTopology && command.topology.machine_toml &&
      command.format == Format::kJson) {
    return "--machine-toml writes TOML; -o json does not go with it";
  }
  return PlanContradiction(command);
}

// CLI11 only says that a subcommand is missing.
std::string UnknownVerb(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  std::string nouns;  // so far, "tier "
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--dir" || word == "-o" || word == "--output" || word == "--color") {
      ++i;  // and its value
    } else if (word.rfind("-", 0) != 0) {
      const std::vector<const CLI::App*> verbs =
          at->get_subcommands([&word](const CLI::App* verb) { return verb->get_name() == word; });
      if (verbs.empty()) return "'" + nouns + word + "' is no verb";
      at = verbs.front();
      if (at->get_require_subcommand_min() == 0) return "";
      nouns += word + " ";
    }
  }
  return "";
}

}  // namespace

ParsedCommand ParseCommandLine(int argc, const char* const* argv) {
  Command command;
  command.dir = DefaultDir();
  CLI::App app("Shows and steers hmmd, the memory daemon of this node.", "hmmctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("hmmctl ") + HMM_VERSION);
  app.add_option("--dir", command.dir, "The daemon's directory ($HMM_DIR, else /run/hmm)")
      ->type_name("DIR");
  app.add_option_function<std::string>(
         "-o,--output",
         [&command](const std::string& format) {
           if (format != "table" && format != "json") {
             throw CLI::ValidationError("--output", "'" + format + "' is not table or json");
           }
           command.format = format == "json" ? Format::kJson : Format::kTable;
         },
         "How results are written (default table)")
      ->type_name("table|json");
  std::string colour = "auto";
  OneOf(app.add_option("--color", colour, "Colours: auto is on a terminal, without NO_COLOR"),
        "auto|always|never");
  AddInspection(&app, &command);
  AddSteering(&app, &command);
  AddTools(&app, &command);
  AddReplay(&app, &command);
  AddPlan(&app, &command);
  AddGraph(&app, &command);
  AddTopology(&app, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text, text);
    const absl::Status written = WriteOut(text.str());
    return {std::nullopt, written.ok() ? 0 : Report(written)};
  } catch (const CLI::ParseError& e) {
    const std::string unknown = UnknownVerb(app, argc, argv);
    std::fprintf(stderr, "hmmctl: %s\nTry 'hmmctl --help' or 'hmmctl VERB --help'.\n",
                 unknown.empty() ? e.what() : unknown.c_str());
    return {std::nullopt, kUsage};
  }
  if (const std::string why = Contradiction(command); !why.empty()) {
    std::fprintf(stderr, "hmmctl: %s\n", why.c_str());
    return {std::nullopt, kUsage};
  }
  command.style.colour = WantsColour(colour);
  if (command.verb == Verb::kCompletion) command.completion = CompletionText(app, command.shell);
  return {std::move(command), 0};
}

}  // namespace hmm::ctl
