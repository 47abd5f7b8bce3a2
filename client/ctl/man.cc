// SPDX-License-Identifier: Apache-2.0
//
// hmmctl(1).
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/man_page.h"
#include "client/ctl/completion.h"

namespace hmm::ctl {
namespace {

void AppendOption(ManPage& page, const CommandNode::Option& option) {
  page.Term(absl::StrCat(absl::StrJoin(option.names, ", "), option.value.empty() ? "" : " ",
                         option.value),
            option.text);
}

std::string Synopsis(const CommandNode& node) {
  std::string line = absl::StrCat("hmmctl ", node.path);
  for (const CommandNode::Option& argument : node.arguments) {
    const bool must = argument.required;
    absl::StrAppend(&line, must ? " " : " [", argument.names.front(), must ? "" : "]");
  }
  if (!node.options.empty()) line += " [OPTION]...";
  return line;
}

}  // namespace

std::string CtlManPage(const std::vector<CommandNode>& tree) {
  ManPage page("hmmctl", 1, HMM_VERSION, "shows and steers hmmd, the memory daemon of a node");
  page.Section("SYNOPSIS");
  page.Paragraph("hmmctl [OPTION]... VERB [ARGUMENT]...");
  page.Section("DESCRIPTION");
  page.Paragraph(
      "Talks to the daemon's admin socket, as root or as the daemon's own user. Data goes to "
      "standard output, errors go to standard error as \"hmmctl: ...\". Sizes are base 1024. \"-\" "
      "is empty.");
  page.Section("OPTIONS");
  page.Paragraph("These go with every verb, before it or behind it.");
  for (const CommandNode::Option& option : tree.front().options) AppendOption(page, option);
  page.Section("VERBS");
  for (const CommandNode& node : tree) {
    const bool noun = !node.verbs.empty() && node.arguments.empty();
    if (node.path.empty() || noun) continue;
    page.Subsection(Synopsis(node));
    page.Paragraph(node.text);
    for (const CommandNode::Option& argument : node.arguments) AppendOption(page, argument);
    for (const CommandNode::Option& option : node.options) {
      if (option.names.front() != "-h") AppendOption(page, option);
    }
  }
  page.Section("EXIT STATUS");
  page.Paragraph(
      "0: done. 1: failed; also a plan that cannot be, a daemon that is not well (health), a "
      "machine that must be mended (doctor). 2: wrong usage.");
  page.Section("ENVIRONMENT");
  page.Term("HMM_DIR", "The daemon's directory where --dir is not given; else /run/hmm.");
  page.Term("NO_COLOR", "No colours, unless --color=always.");
  page.Section("EXAMPLES");
  page.Example(
      "hmmctl stat 1\n"
      "hmmctl tensor list --tier hbm0 --pinned -H -p | sort -k5 -n\n"
      "hmmctl evict ddr0 --to 4GiB\n"
      "hmmctl doctor");
  page.Section("SEE ALSO");
  page.Paragraph("hmmd(8), hmmd.toml(5)");
  return page.text();
}

}  // namespace hmm::ctl
