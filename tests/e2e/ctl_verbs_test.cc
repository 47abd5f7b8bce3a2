// SPDX-License-Identifier: Apache-2.0
// Every verb of hmmctl: without a daemon, with each tier left out, on a terminal.
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/daemon_process.h"
#include "support/read_file.h"
#include "support/run_command.h"
#include "support/wait_until.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::json;
using testing::DaemonProcess;
using testing::Outcome;
using testing::ReadFile;
using testing::RunCommand;
using testing::TempDir;

// Bounded: a verb that hangs fails its test and leaves nothing behind.
Outcome Ctl(const std::string& arguments) {
  return RunCommand("timeout -k 1 60 " HMMCTL_BINARY " " + arguments);
}

// Every verb that asks a daemon, with what it needs; TIER is replaced.
struct Row {
  const char* words;
  bool names_tier;  // it must not succeed for a tier that is not there
  bool json;        // takes -o json
};
constexpr Row kVerbs[] = {
    {"status", false, true},
    {"tier list", false, true},
    {"tensor list", false, true},
    {"tensor list --tier TIER", true, true},
    {"tensor list --kind kv_cache --state resident --unpinned", false, true},
    {"tensor list --tenant nobody", false, true},
    {"tensor show 1", false, true},
    {"session list", false, true},
    {"stat", false, true},
    {"stat 0.01 2", false, true},
    {"events --count 1 --type occupancy --occupancy 10", false, true},
    {"events --tier TIER --count 1 --type occupancy --occupancy 10", true, true},
    {"explain 1", false, true},
    {"health", false, true},
    {"health TIER", true, true},
    {"evict TIER --timeout 5", true, true},
    {"swap --tenant nobody --to TIER --timeout 5", true, true},
    {"prefetch --tenant nobody --to TIER", true, true},
    {"resize TIER 16MiB --timeout 5", true, true},
    {"compact", false, true},
    {"compact TIER --timeout 5", true, true},
    {"watermark set TIER --high 0.9 --low 0.5", true, true},
    {"log-level info", false, true},
    {"topology", false, true},
    {"topology --calibrate --timeout 30", false, true},
    {"replay " HMM_TEST_DATA "/traces/small_agentic.jsonl --requests 3", false, true},
    {"drain", false, true},
    {"drain --off", false, true},
};

std::string With(std::string words, const std::string& tier) {
  for (std::size_t at; (at = words.find("TIER")) != std::string::npos;) words.replace(at, 4, tier);
  return words;
}

// A word on standard error and nothing else, or data and no word.
void CheckTyped(const Outcome& outcome) {
  INFO("code " << outcome.code << "\nout: " << outcome.out << "\nerr: " << outcome.err);
  if (outcome.code == 0) {
    CHECK(outcome.err.empty());
    return;
  }
  REQUIRE(outcome.code == 1);
  // Bad news can be data: a daemon that is not well, moves that failed.
  if (!outcome.out.empty()) return;
  CHECK_THAT(outcome.err, Catch::StartsWith("hmmctl: "));
  CHECK(outcome.err.size() > 20);
  CHECK_THAT(outcome.err, !Contains("INTERNAL") && !Contains("a verb without its code") &&
                              !Contains("update hmmd"));
}

std::string Tiers(const std::string& without) {
  std::string config = "[daemon]\ncommit_headroom = \"16MiB\"\n";
  const auto tier = [&](const std::string& name, const std::string& kind, const char* more) {
    if (name == without) return;
    config +=
        "[[tier]]\nname = \"" + name + "\"\nkind = \"" + kind + "\"\ncapacity = \"8MiB\"\n" + more;
  };
  tier("hbm0", "hbm", "emulated = true\npages = \"small\"\ncommit_chunk = \"64KiB\"\n");
  tier("ddr0", "ddr", "pages = \"small\"\ncommit_chunk = \"64KiB\"\n");
  tier("flash0", "flash", "");
  return config;
}

// hmmctl on a terminal of its own, until it wrote `until` and was interrupted, or ended by itself;
// all that it wrote.
enum class Ends { kInterrupted, kByItself };
std::string OnTerminal(const std::string& arguments, const std::string& until, int* code,
                       const char* kind = "xterm", Ends ends = Ends::kInterrupted) {
  int terminal = -1;
  winsize size{.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    setenv("TERM", kind, 1);
    const std::string command = "exec " HMMCTL_BINARY " " + arguments;
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  fcntl(terminal, F_SETFL, O_NONBLOCK);
  std::string out;
  const auto read_on = [&] {
    char buffer[4096];
    for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;) {
      out.append(buffer, static_cast<std::size_t>(n));
    }
  };
  const bool seen = testing::WaitUntil([&] {
    read_on();
    return out.find(until) != std::string::npos;
  });
  if (ends == Ends::kInterrupted) kill(pid, SIGINT);
  int status = 0;
  bool ended = false;
  CHECK(testing::WaitUntil([&] {
    read_on();
    ended = ended || waitpid(pid, &status, WNOHANG) == pid;
    return ended;
  }));
  if (!ended) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  close(terminal);
  INFO(out);
  CHECK(seen);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace

TEST_CASE("no daemon: every verb says where it looked, and fails") {
  const TempDir dir;
  for (const Row& row : kVerbs) {
    const std::string words = With(row.words, "hbm0");
    INFO(words);
    for (const char* format : {"", " -o json"}) {
      const Outcome outcome = Ctl("--dir " + dir.path() + " " + words + format);
      CHECK(outcome.code == 1);
      CHECK(outcome.out.empty());
      CHECK_THAT(outcome.err, Catch::StartsWith("hmmctl: no daemon answers on " + dir.path()) &&
                                  Contains("systemctl start hmmd"));
    }
  }
}

TEST_CASE("each tier left out: every verb answers, and one that names it says NOT_FOUND's words",
          "[case 16]") {
  for (const std::string missing : {"hbm0", "ddr0", "flash0"}) {
    const DaemonProcess daemon(HMMD_BINARY, Tiers(missing));
    const std::string on = "--dir " + daemon.dir() + " ";
    for (const Row& row : kVerbs) {
      for (const std::string tier : {"hbm0", "ddr0", "flash0"}) {
        const std::string words = With(row.words, tier);
        if (!row.names_tier && tier != missing) continue;  // once is enough
        INFO("without " << missing << ": " << words);
        const Outcome outcome = Ctl(on + words);
        CheckTyped(outcome);
        if (!row.names_tier) continue;
        if (tier == missing) {
          CHECK(outcome.code == 1);
          CHECK(outcome.out.empty());
          // Of an unknown tenant that may be said first.
          CHECK_THAT(outcome.err, Contains(tier) || Contains("nobody"));
        }
      }
      if (row.json) {
        const Outcome outcome =
            Ctl(on + With(row.words, missing == "ddr0" ? "hbm0" : "ddr0") + " -o json");
        INFO(row.words << "\n" << outcome.out << outcome.err);
        CheckTyped(outcome);
        std::istringstream lines(outcome.out);
        const bool many = std::string(row.words).rfind("events", 0) == 0 ||
                          std::string(row.words).rfind("stat ", 0) == 0;
        for (std::string line; many && std::getline(lines, line);) {
          CHECK_FALSE(json::parse(line, nullptr, false).is_discarded());
        }
        if (!many && !outcome.out.empty()) {
          CHECK_FALSE(json::parse(outcome.out, nullptr, false).is_discarded());
        }
      }
    }
    CHECK(Ctl(on + "status").code == 0);
  }
}

TEST_CASE("-H and -p: one line a row, tabs, numbers; no colour in a pipe") {
  const DaemonProcess daemon(HMMD_BINARY);
  const std::string on = "--dir " + daemon.dir() + " ";
  const Outcome tiers = Ctl(on + "tier list -H -p");
  CHECK(std::count(tiers.out.begin(), tiers.out.end(), '\n') == 3);
  CHECK_THAT(tiers.out, Contains("hbm0\thbm(emulated)\thost\tonline\t8388608\t0\t0\t"));
  CHECK(Ctl(on + "tensor list -H").out.empty());
  CHECK(Ctl(on + "session list -H").out.empty());
  const std::string stat = Ctl(on + "stat 0.01 2 -H -p").out;
  CHECK(std::count(stat.begin(), stat.end(), '\n') == 6);
  CHECK_THAT(Ctl(on + "tier list").out, !Contains("\x1b"));
  CHECK_THAT(Ctl(on + "tier list --color always").out, Contains("\x1b[32monline\x1b[0m"));
}

TEST_CASE("on a terminal stat is a live view that leaves the terminal as it was") {
  DaemonProcess daemon(HMMD_BINARY);
  const std::string on = "--dir " + daemon.dir() + " ";
  int code = -1;
  std::string out = OnTerminal(on + "stat 0.05", "flash0", &code);
  CHECK(code == 0);
  CHECK_THAT(out, Catch::StartsWith("\x1b[?1049h") && Contains("Ctrl-C ends") &&
                      Contains("hbm(emulated)") && Catch::EndsWith("\x1b[?25h\x1b[?1049l"));
  out = OnTerminal(on + "stat 0.05 --scroll", "over 0.", &code);
  CHECK(code == 0);
  CHECK_THAT(out, !Contains("\x1b[?1049h") && Contains("over 0."));
  // One that knows no escapes gets none.
  for (const char* kind : {"dumb", ""}) {
    out = OnTerminal(on + "stat 0.05", "over 0.", &code, kind);
    CHECK(code == 0);
    CHECK_THAT(out, !Contains("\x1b"));
  }
  // Colours are the terminal's, and NO_COLOR's to refuse.
  out = OnTerminal(on + "stat 0.05 --color always --scroll -H", "hbm0\t", &code);
  CHECK(code == 0);
  const std::string tiers = OnTerminal(on + "tier list", "flash0", &code);
  CHECK_THAT(tiers, Contains("\x1b[32monline"));
  setenv("NO_COLOR", "1", 1);
  CHECK_THAT(OnTerminal(on + "tier list", "flash0", &code), !Contains("\x1b[32m"));
  unsetenv("NO_COLOR");
  // A daemon that goes: the terminal first, then the word.
  daemon.Kill();
  out = OnTerminal(on + "stat 0.05", "no daemon answers", &code, "xterm", Ends::kByItself);
  CHECK(code == 1);
}

TEST_CASE("doctor needs no daemon, and asks one that runs") {
  const TempDir nowhere;
  const Outcome alone = Ctl("--dir " + nowhere.path() + " doctor --json --flash " + nowhere.path());
  CHECK((alone.code == 0 || alone.code == 1));
  const json checks = json::parse(alone.out, nullptr, false);
  REQUIRE_FALSE(checks.is_discarded());
  CHECK(checks["checks"].size() == 7);
  CHECK((alone.code == 1) == (checks["worst"] == "bad"));
  DaemonProcess daemon(HMMD_BINARY);
  CHECK_THAT(Ctl("--dir " + daemon.dir() + " doctor").out,
             Contains("pid " + std::to_string(daemon.pid())));
  // One that stands still is not taken for none.
  daemon.Stop();
  const auto asked = std::chrono::steady_clock::now();
  const Outcome stopped = Ctl("--dir " + daemon.dir() + " doctor");
  CHECK(std::chrono::steady_clock::now() - asked < std::chrono::seconds(8));
  CHECK(stopped.code == 1);
  CHECK_THAT(stopped.out, Contains("BAD   daemon: a daemon is there") &&
                              Contains("kill -CONT " + std::to_string(daemon.pid())) &&
                              !Contains("started from here"));
  daemon.Continue();
  // A made-up root, and one that is not there.
  nowhere.Write("proc/sys/kernel/io_uring_disabled", "2\n");
  CHECK_THAT(Ctl("--dir " + nowhere.path() + " doctor --root " + nowhere.path()).out,
             Contains("kernel.io_uring_disabled is 2") && Contains("mend:"));
}

TEST_CASE("the daemon's manual pages render without a warning") {
  if (std::system("command -v groff >/dev/null 2>&1") != 0) {
    WARN("groff is not installed");
    return;
  }
  const TempDir dir;
  for (const std::string page : {"hmmd.8", "hmmd.toml.5"}) {
    const std::string file = dir.File(page);
    const std::string command = HMMD_BINARY " --docs " + page + " >" + file +
                                " && groff -man -ww " + "-Tutf8 " + file + " >" + dir.File("out") +
                                " 2>" + dir.File("warnings");
    CHECK(std::system(command.c_str()) == 0);
    CHECK(ReadFile(dir.File("warnings")).empty());
    CHECK(ReadFile(dir.File("out")).size() > 1000);
  }
}

}  // namespace hmm::ctl
