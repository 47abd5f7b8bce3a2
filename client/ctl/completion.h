// SPDX-License-Identifier: Apache-2.0
//
// Completion scripts and hmmctl(1), written from the tree of the command line, so that they know
// every verb and option. Pure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace hmm::ctl {

// One verb or noun, or the program itself.
struct CommandNode {
  struct Option {
    std::vector<std::string> names{};  // "-o", "--output"
    std::string text{};
    std::string value{};                 // "FILE"; empty: a flag
    std::vector<std::string> choices{};  // of the value
    bool required = false;
  };
  std::string path{};  // "tier list"; empty: the program
  std::string text{};
  std::vector<std::string> verbs{};  // that may follow
  std::vector<Option> options{};
  std::vector<Option> arguments{};  // without names
};
// Depth first, the program first; what is hidden is left out.
std::vector<CommandNode> CommandTree(const CLI::App& app);

// `shell`: bash, zsh, fish; man for the manual page.
std::string CompletionText(const CLI::App& app, const std::string& shell);
std::string BashCompletion(const std::vector<CommandNode>& tree);
std::string ZshCompletion(const std::vector<CommandNode>& tree);
std::string FishCompletion(const std::vector<CommandNode>& tree);
std::string CtlManPage(const std::vector<CommandNode>& tree);

}  // namespace hmm::ctl
