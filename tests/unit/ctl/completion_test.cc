// SPDX-License-Identifier: Apache-2.0
// Completion scripts, run by their shells where those are installed; hmmctl(1).
#include "client/ctl/completion.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "client/ctl/cli.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;

std::string Script(const char* shell) {
  const char* words[] = {"hmmctl", "completion", shell};
  const ParsedCommand parsed = ParseCommandLine(3, words);
  REQUIRE(parsed.command);
  return parsed.command->completion;
}

bool Installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

// Standard output and error of a shell that runs this.
std::string RunIn(const std::string& shell, const std::string& text) {
  const testing::TempDir dir;
  dir.Write("script", text);
  const std::string command =
      shell + " " + dir.File("script") + " >" + dir.File("out") + " 2>&1" + " </dev/null";
  INFO(command);
  CHECK(std::system(command.c_str()) == 0);
  std::ostringstream out;
  out << std::ifstream(dir.File("out")).rdbuf();
  return out.str();
}

// What bash offers behind these words, one a line; a fake hmmctl lists two tiers.
std::string BashOffers(const std::vector<std::string>& words) {
  std::string text = Script("bash") + "\nhmmctl() { printf 'hbm0\\nddr0\\n'; }\nCOMP_WORDS=(";
  for (const std::string& word : words) text += " '" + word + "'";
  text += ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) +
          "\n_hmmctl\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  return "\n" + RunIn("bash", text);
}

TEST_CASE("every verb and option is in every script and in the manual page") {
  const std::string bash = Script("bash");
  const std::string zsh = Script("zsh");
  const std::string fish = Script("fish");
  const std::string man = Script("man");
  for (const char* word :
       {"status", "tier", "evict", "watermark", "replay", "plan", "doctor", "events", "completion",
        "swap", "prefetch", "resize", "compact", "health", "explain", "log-level"}) {
    INFO(word);
    for (const std::string* text : {&bash, &zsh, &fish}) CHECK_THAT(*text, Contains(word));
    std::string shown;
    for (const char* c = word; *c != '\0'; ++c) shown += *c == '-' ? "\\-" : std::string(1, *c);
    CHECK_THAT(man, Contains(".SS \"hmmctl " + shown));
  }
  for (const std::string* text : {&bash, &zsh}) CHECK_THAT(*text, Contains("--key-prefix"));
  CHECK_THAT(fish, Contains("-l key-prefix"));
  CHECK_THAT(man, Contains("key\\-prefix"));
  // Brackets are for what may be left out.
  CHECK_THAT(man, Contains("\"hmmctl tensor show id [OPTION]...\"") &&
                      Contains("\"hmmctl stat [interval] [count] [OPTION]...\""));
  // What is hidden stays hidden.
  for (const std::string* text : {&bash, &zsh, &fish, &man}) {
    CHECK_THAT(*text, !Contains("--worker") && !Contains("-l worker") && !Contains("--root") &&
                          !Contains("-l root"));
  }
}

TEST_CASE("bash offers what may follow") {
  if (!Installed("bash")) {
    WARN("bash is not installed");
    return;
  }
  CHECK_THAT(BashOffers({"hmmctl", "s"}), Contains("\nstatus\n") && Contains("\nstat\n") &&
                                              Contains("\nsession\n") && !Contains("\ntier\n"));
  CHECK(BashOffers({"hmmctl", "tier", ""}).find("\nlist\n") != std::string::npos);
  CHECK_THAT(BashOffers({"hmmctl", "tensor", "list", "--"}),
             Contains("\n--tier\n") && Contains("\n--unpinned\n") && Contains("\n--dir\n") &&
                 !Contains("\n--forecast\n"));
  CHECK(BashOffers({"hmmctl", "-o", ""}) == "\ntable\njson\n");
  CHECK(BashOffers({"hmmctl", "tensor", "list", "-o", "j"}) == "\njson\n");
  CHECK(BashOffers({"hmmctl", "tensor", "list", "--kind", "w"}) == "\nweight\n");
  CHECK(BashOffers({"hmmctl", "tensor", "list", "--tier", ""}) == "\nhbm0\nddr0\n");
  CHECK_THAT(BashOffers({"hmmctl", "evict", "d"}), Contains("\nddr0\n") && !Contains("\nhbm0\n"));
  CHECK_THAT(BashOffers({"hmmctl", "log-level", ""}), Contains("\ncritical\n"));
  CHECK_THAT(BashOffers({"hmmctl", "completion", ""}),
             Contains("\nfish\n") && !Contains("\nman\n"));
  // A value is no verb, wherever it stands.
  CHECK_THAT(BashOffers({"hmmctl", "--dir", "tier", "st"}), Contains("\nstatus\n"));
  CHECK_THAT(BashOffers({"hmmctl", "plan", "diff", "--"}), Contains("\n--dim\n"));
  CHECK_THAT(BashOffers({"hmmctl", "plan", "/etc/host"}), Contains("\n/etc/hosts\n"));
}

TEST_CASE("zsh and fish take their scripts") {
  if (Installed("zsh")) {
    const testing::TempDir dir;
    dir.Write("_hmmctl", Script("zsh"));
    CHECK(std::system(("zsh -n " + dir.File("_hmmctl")).c_str()) == 0);
  } else {
    WARN("zsh is not installed");
  }
  if (Installed("fish")) {
    const std::string offers =
        RunIn("fish", Script("fish") + "\ncomplete -C 'hmmctl tier '\ncomplete -C 'hmmctl -o '\n");
    CHECK_THAT(offers, Contains("list") && Contains("json"));
  } else {
    WARN("fish is not installed");
  }
}

TEST_CASE("the manual page renders without a warning") {
  if (!Installed("groff")) {
    WARN("groff is not installed");
    return;
  }
  const testing::TempDir dir;
  dir.Write("hmmctl.1", Script("man"));
  const std::string command = "groff -man -ww -Tutf8 " + dir.File("hmmctl.1") + " >" +
                              dir.File("out") + " 2>" + dir.File("warnings");
  CHECK(std::system(command.c_str()) == 0);
  std::ostringstream warnings;
  warnings << std::ifstream(dir.File("warnings")).rdbuf();
  CHECK(warnings.str().empty());
}

}  // namespace
}  // namespace hmm::ctl
