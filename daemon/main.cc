// SPDX-License-Identifier: Apache-2.0
//
// hmmd. Reads its configuration, starts the daemon object (daemon.h has the object graph), tells
// systemd, waits for a signal, stops. Exit status: 0 ok, 1 failed, 2 usage.
#include <malloc.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "base/man_page.h"
#include "base/status.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/listen.h"
#include "daemon/log_format.h"
#include "daemon/notify.h"
#include "daemon/stop_guard.h"
#include "daemon/text.h"
#include "daemon/version.h"

namespace hmm::daemon {
namespace {

struct Arguments {
  std::string config;
  std::string dir;
  bool check = false;
  bool print = false;
  std::string docs;
  bool print_default = false;
};

// Settings of the process, before any thread exists.
void PrepareProcess() {
  // gRPC is not safe to fork; without this it would install handlers that pretend.
  setenv("GRPC_ENABLE_FORK_SUPPORT", "0", 1);
  // The tables of a million tensors double as they grow. What they leave must go back to the
  // system: glibc else raises this threshold to 32 MiB with every array that is freed
  // (bench_memory).
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  std::signal(SIGPIPE, SIG_IGN);
  umask(0077);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  auto logger = spdlog::stderr_logger_mt("hmmd");
  logger->set_formatter(MakeLogFormatter("text"));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  QuietProtobuf();
}

absl::StatusOr<Config> Configure(const Arguments& arguments, const Resources& resources) {
  Config config;
  if (!arguments.config.empty()) {
    HMM_ASSIGN_OR_RETURN(config, LoadConfig(arguments.config));
  }
  const char* const environment = std::getenv("HMM_DIR");
  const bool given = environment != nullptr && *environment != '\0';
  if (const std::string dir = !arguments.dir.empty() ? arguments.dir
                              : given                ? environment
                                                     : "";
      !dir.empty()) {
    const char* const source = arguments.dir.empty() ? "environment HMM_DIR" : "flag --dir";
    config.dir = dir;
    config.state_dir = dir + "/state";
    config.sources["daemon.dir"] = config.sources["daemon.state_dir"] = source;
  }
  if (ChooseTiers(config, resources)) {
    spdlog::info("no [[tier]] is configured: sizes chosen for this machine; HBM is emulated");
  }
  HMM_RETURN_IF_ERROR(CheckConfig(config, resources));
  return config;
}

// Made before the daemon starts: from the moment that clients can connect, a signal must find a
// handler.
class Signals {
 public:
  Signals() {
    stop_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      spdlog::info("signal {}: stopping", signal);
      io_.stop();
    });
    IgnoreHangup();
  }
  // Runs until SIGTERM or SIGINT; returns at once if one came before.
  void Await() { io_.run(); }

 private:
  void IgnoreHangup() {
    hangup_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      spdlog::info("SIGHUP ignored: the configuration is read at start; restart to apply it");
      IgnoreHangup();
    });
  }

  boost::asio::io_context io_{1};
  boost::asio::signal_set stop_{io_, SIGTERM, SIGINT};
  boost::asio::signal_set hangup_{io_, SIGHUP};
};

// 1 when standard output took not all (a full disk).
int Printed() {
  if (std::cout.flush()) return 0;
  std::cerr << "hmmd: cannot write to standard output\n";
  return 1;
}

// hmmd(8).
std::string ManText(const CLI::App& app) {
  ManPage page("hmmd", 8, kVersion, "the hierarchical memory manager of a node");
  page.Section("SYNOPSIS");
  page.Paragraph("hmmd [OPTION]...");
  page.Section("DESCRIPTION");
  page.Paragraph(
      "Owns the HBM, DDR and flash pools of this node and lends tensors out of them to inference "
      "processes over unix sockets. Serves until SIGTERM or SIGINT, then drains. Logs to standard "
      "error. SIGHUP is ignored: restart to apply a changed file.");
  page.Section("OPTIONS");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const std::string type = option->get_items_expected_max() > 0 ? option->get_type_name() : "";
    page.Term(Cat(option->get_name(false, true), type.empty() ? "" : " ", type),
              option->get_description());
  }
  page.Section("FILES");
  page.Term("/etc/hmm/hmmd.toml", "The configuration of the service; hmmd.toml(5).");
  page.Term("/run/hmm", "hmm.sock and session.sock of clients, admin.sock of hmmctl.");
  page.Term("/var/lib/hmm", "Flash tiers without a path of their own. Overwritten at start.");
  page.Section("ENVIRONMENT");
  page.Term("HMM_DIR", "As --dir, which goes first. Clients and hmmctl look there too.");
  page.Section("EXIT STATUS");
  page.Paragraph(
      "0: stopped as asked, also where a drive hung and its copies were left; the log says so. 1: "
      "failed, with a word on standard error. 2: wrong usage.");
  page.Section("SEE ALSO");
  page.Paragraph("hmmctl(1), hmmd.toml(5)");
  return page.text();
}

std::string DocsText(const std::string& page, const CLI::App& app) {
  if (page == "config.md") return ConfigReferenceText();
  return page == "hmmd.8" ? ManText(app) : ConfigManPage(kVersion);
}

// What the parser lets pass. An empty name is most often a variable that was not set: what it names
// must not be taken from elsewhere. Empty: all is well.
std::string WrongArgument(const CLI::App& app, const Arguments& arguments) {
  const std::pair<const char*, const std::string&> named[] = {
      {"--config", arguments.config}, {"--dir", arguments.dir}, {"--docs", arguments.docs}};
  for (const auto& [option, value] : named) {
    if (app.count(option) > 0 && value.empty()) {
      return Cat(option, ": an empty name; give one, or leave the option out");
    }
  }
  // Not a check of the parser's own, which does not name an option that --help does not show.
  constexpr std::array<std::string_view, 3> kPages = {"hmmd.8", "hmmd.toml.5", "config.md"};
  if (!arguments.docs.empty() &&
      std::find(kPages.begin(), kPages.end(), arguments.docs) == kPages.end()) {
    return Cat("--docs: ", arguments.docs, " is none of hmmd.8, hmmd.toml.5, config.md");
  }
  return "";
}

// Below it not even the daemon's own event loops come up, and they would not say why.
constexpr rlim_t kDescriptorsMin = 64;
absl::Status CheckDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptorsMin) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kResourceExhausted, Reason::kBadConfig,
               Cat("the limit of open files is ", limit.rlim_cur, ", below ", kDescriptorsMin,
                   "; raise it (ulimit -n, LimitNOFILE=)"));
}

// Beyond stop_timeout: calls that were cancelled end, sessions too, memory is given back.
constexpr Duration kStopGrace = std::chrono::seconds(1);

absl::Status Run(const Arguments& arguments) {
  HMM_RETURN_IF_ERROR(CheckDescriptors());
  HMM_ASSIGN_OR_RETURN(Resources resources, DetectResources());
  if (!arguments.check && !arguments.print) {
    resources.directory = [](const std::string& directory) {
      return DirectoryError(MakeDirectory(directory, 0755));
    };
  }
  HMM_ASSIGN_OR_RETURN(const Config config, Configure(arguments, resources));
  for (const std::string& warning : config.warnings) spdlog::warn("{}", warning);
  if (arguments.check) {
    std::cout << (config.file.empty() ? "built-in configuration" : config.file) << ": ok, "
              << Summary(config) << "\n";
    if (!std::cout.flush()) return PosixError("standard output", EIO);
    return absl::OkStatus();
  }
  if (arguments.print) {
    std::cout << EffectiveConfigText(config);
    if (!std::cout.flush()) return PosixError("standard output", EIO);
    return absl::OkStatus();
  }
  spdlog::set_formatter(MakeLogFormatter(config.log_format));
  HMM_RETURN_IF_ERROR(SetLogLevel(config.log_level));
  Signals signals;
  HMM_ASSIGN_OR_RETURN(const std::unique_ptr<Daemon> daemon, Daemon::Start(config));
  spdlog::info("hmmd {} serves {} in {}", kVersion, Summary(config), config.dir);
  NotifyReady(Summary(config));
  StartWatchdog(daemon->executor());
  signals.Await();
  NotifyStopping("draining");
  {
    const StopGuard guard(config.stop_timeout + kStopGrace, daemon->under_way());
    daemon->Stop();
  }
  spdlog::info("stopped");
  return absl::OkStatus();
}

}  // namespace
}  // namespace hmm::daemon

int main(int argc, char** argv) {
  namespace hd = hmm::daemon;
  hd::Arguments arguments;
  CLI::App app{"hmmd, the hierarchical memory manager of a node", "hmmd"};
  app.set_version_flag("--version", hd::Cat("hmmd ", hd::kVersion));
  app.add_option("--config", arguments.config,
                 "configuration file (TOML); without it, sizes are chosen for this machine")
      ->type_name("FILE");
  app.add_option("--dir", arguments.dir,
                 "keep sockets and state under this directory, whatever the file says (a private "
                 "daemon); without it, $HMM_DIR")
      ->type_name("DIR");
  app.add_flag("--check-config", arguments.check, "check the configuration and exit");
  app.add_flag("--print-config", arguments.print,
               "check the configuration, print what it comes to with the source of each value, and "
               "exit");
  app.add_flag("--default-config", arguments.print_default,
               "print a configuration file with every key at its default and exit");
  app.add_option("--docs", arguments.docs)->group("");  // for our own build
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return hd::Printed();
    }
    std::fprintf(stderr, "hmmd: %s\nTry 'hmmd --help'.\n", error.what());
    return 2;
  }
  if (const std::string wrong = hd::WrongArgument(app, arguments); !wrong.empty()) {
    std::fprintf(stderr, "hmmd: %s\nTry 'hmmd --help'.\n", wrong.c_str());
    return 2;
  }
  if (arguments.print_default) {
    std::cout << hd::DefaultConfigText();
    return hd::Printed();
  }
  if (!arguments.docs.empty()) {
    std::cout << hd::DocsText(arguments.docs, app);
    return hd::Printed();
  }
  hd::PrepareProcess();
  if (const absl::Status status = hd::Run(arguments); !status.ok()) {
    std::cerr << "hmmd: " << hd::MessageOf(status) << "\n";
    return 1;
  }
  return 0;
}
