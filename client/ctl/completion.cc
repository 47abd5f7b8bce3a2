// SPDX-License-Identifier: Apache-2.0
//
// Every script does the same: walk the words before the cursor down the tree to the verb they name,
// then offer the verbs and options that may follow, or the values of the option before.
#include "client/ctl/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace hmm::ctl {
namespace {

CommandNode::Option OptionOf(const CLI::Option& option) {
  CommandNode::Option out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.text = option.get_description();
  out.required = option.get_required();
  if (option.get_items_expected_max() > 0) {
    // Behind a colon stand the parser's own checks.
    out.value = option.get_type_name();
    out.value.erase(std::min(out.value.find(':'), out.value.size()));
    if (out.value.find('|') != std::string::npos) out.choices = absl::StrSplit(out.value, '|');
  }
  return out;
}

void Walk(const CLI::App& app, const std::string& path, std::vector<CommandNode>& out) {
  const std::size_t at = out.size();
  out.push_back({.path = path, .text = app.get_description()});
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    CommandNode::Option found = OptionOf(*option);
    if (found.names.empty()) {
      found.names.push_back(option->get_name(true));
      out[at].arguments.push_back(std::move(found));
    } else {
      out[at].options.push_back(std::move(found));
    }
  }
  const auto all = [](const CLI::App* sub) { return !sub->get_name().empty(); };
  for (const CLI::App* verb : app.get_subcommands(all)) {
    out[at].verbs.push_back(verb->get_name());
    Walk(*verb, path.empty() ? verb->get_name() : absl::StrCat(path, " ", verb->get_name()), out);
  }
}

std::string LastWord(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

// "'a b'", for every shell alike.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Options that take a value: the word behind them is no verb.
std::string ValueOptions(const std::vector<CommandNode>& tree, const char* between) {
  std::vector<std::string> names;
  for (const CommandNode& node : tree) {
    for (const CommandNode::Option& option : node.options) {
      if (option.value.empty()) continue;
      for (const std::string& name : option.names) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return absl::StrJoin(names, between);
}

// "tier list" -> what may be typed there: verbs, choices of its arguments, options of its own and
// of the program.
std::vector<std::string> WordsAt(const std::vector<CommandNode>& tree, const CommandNode& node) {
  std::vector<std::string> words = node.verbs;
  for (const CommandNode::Option& argument : node.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  }
  for (const CommandNode* from : {&node, &tree.front()}) {
    for (const CommandNode::Option& option : from->options) {
      for (const std::string& name : option.names) {
        if (std::find(words.begin(), words.end(), name) == words.end()) words.push_back(name);
      }
    }
  }
  return words;
}

bool TakesTier(const CommandNode& node) {
  return std::any_of(node.arguments.begin(), node.arguments.end(),
                     [](const auto& argument) { return argument.value == "TIER"; });
}
bool TakesFile(const CommandNode& node) {
  return std::any_of(node.arguments.begin(), node.arguments.end(), [](const auto& argument) {
    return argument.value == "FILE" || argument.value == "GRAPH" || argument.value == "PLAN" ||
           argument.value == "A" || argument.value == "B";
  });
}

constexpr char kTiers[] = "$(hmmctl tier list -q 2>/dev/null)";

}  // namespace

std::vector<CommandNode> CommandTree(const CLI::App& app) {
  std::vector<CommandNode> out;
  Walk(app, "", out);
  return out;
}

std::string CompletionText(const CLI::App& app, const std::string& shell) {
  const std::vector<CommandNode> tree = CommandTree(app);
  if (shell == "bash") return BashCompletion(tree);
  if (shell == "zsh") return ZshCompletion(tree);
  if (shell == "fish") return FishCompletion(tree);
  return CtlManPage(tree);
}

namespace {

// "tier/list|tier/..." : steps down the tree that exist, as patterns of a shell's `case`.
std::string Steps(const std::vector<CommandNode>& tree) {
  std::vector<std::string> steps;
  for (const CommandNode& node : tree) {
    for (const std::string& verb : node.verbs) {
      steps.push_back(absl::StrCat("'", node.path, "/", verb, "'"));
    }
  }
  return absl::StrJoin(steps, "|");
}

// The values of the option before the cursor, by verb and option.
std::string Values(const std::vector<CommandNode>& tree, const char* offer) {
  std::string out;
  for (const CommandNode& node : tree) {
    for (const CommandNode::Option& option : node.options) {
      std::string words = Quoted(absl::StrJoin(option.choices, " "));
      if (option.value == "TIER") words = absl::StrCat("\"", kTiers, "\"");
      if (option.choices.empty() && option.value != "TIER") continue;
      for (const std::string& name : option.names) {
        const std::string at = node.path.empty() ? absl::StrCat("*'/", name, "'")
                                                 : absl::StrCat("'", node.path, "/", name, "'");
        absl::StrAppend(&out, "    ", at, ") ", offer, " ", words, "; return ;;\n");
      }
    }
  }
  return out;
}

}  // namespace

std::string BashCompletion(const std::vector<CommandNode>& tree) {
  std::string out = absl::StrCat(
      "# bash completion for hmmctl. Generated: hmmctl completion bash\n"
      "_hmmctl_offer() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
      "_hmmctl() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} at='' word value='' i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    if [[ $value ]]; then value=''; continue; fi\n"
      "    case $word in ",
      ValueOptions(tree, "|"),
      ") value=$word; continue ;; esac\n"
      "    case $at/$word in ",
      Steps(tree),
      ") at=${at:+$at }$word ;; esac\n"
      "  done\n"
      "  if [[ $value ]]; then\n"
      "    case $at/$value in\n",
      Values(tree, "_hmmctl_offer"),
      "    esac\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\")); compopt -o filenames 2>/dev/null\n"
      "    return\n"
      "  fi\n"
      "  case $at in\n");
  for (const CommandNode& node : tree) {
    std::string words = absl::StrJoin(WordsAt(tree, node), " ");
    if (TakesTier(node)) absl::StrAppend(&words, " ", kTiers);
    absl::StrAppend(&out, "    '", node.path, "') _hmmctl_offer \"", words, "\"");
    if (TakesFile(node)) {
      absl::StrAppend(&out, "; COMPREPLY+=($(compgen -f -- \"$cur\"))",
                      "; compopt -o filenames 2>/dev/null");
    }
    absl::StrAppend(&out, " ;;\n");
  }
  return absl::StrCat(out, "  esac\n}\ncomplete -F _hmmctl hmmctl\n");
}

std::string ZshCompletion(const std::vector<CommandNode>& tree) {
  std::string out = absl::StrCat(
      "#compdef hmmctl\n"
      "# zsh completion for hmmctl. Generated: hmmctl completion zsh\n"
      "_hmmctl_offer() { compadd -- ${(s: :)1} }\n"
      "_hmmctl() {\n"
      "  local at='' word value='' i\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    word=${words[i]}\n"
      "    if [[ -n $value ]]; then value=''; continue; fi\n"
      "    case $word in (",
      ValueOptions(tree, "|"),
      ") value=$word; continue ;; esac\n"
      "    case $at/$word in (",
      Steps(tree),
      ") at=${at:+$at }$word ;; esac\n"
      "  done\n"
      "  if [[ -n $value ]]; then\n"
      "    case $at/$value in\n",
      absl::StrReplaceAll(Values(tree, "_hmmctl_offer"), {{"\"$(", "\"${(f)$("}, {")\"", ")}\""}}),
      "    esac\n"
      "    _files; return\n"
      "  fi\n"
      "  local -a verbs\n"
      "  case $at in\n");
  for (const CommandNode& node : tree) {
    absl::StrAppend(&out, "    ('", node.path, "')\n");
    if (!node.verbs.empty()) {
      absl::StrAppend(&out, "      verbs=(");
      for (const CommandNode& verb : tree) {
        const bool below =
            absl::StrCat(node.path, node.path.empty() ? "" : " ", LastWord(verb.path)) == verb.path;
        if (verb.path.empty() || !below) continue;
        absl::StrAppend(&out,
                        Quoted(absl::StrCat(LastWord(verb.path), ":",
                                            absl::StrReplaceAll(verb.text, {{":", "\\:"}}))),
                        " ");
      }
      absl::StrAppend(&out, ")\n      _describe verb verbs\n");
    }
    std::string words;
    for (const std::string& word : WordsAt(tree, node)) {
      if (std::find(node.verbs.begin(), node.verbs.end(), word) == node.verbs.end()) {
        absl::StrAppend(&words, words.empty() ? "" : " ", word);
      }
    }
    absl::StrAppend(&out, "      _hmmctl_offer ", Quoted(words), "\n");
    if (TakesTier(node)) absl::StrAppend(&out, "      compadd -- ${(f)", kTiers, "}\n");
    if (TakesFile(node)) absl::StrAppend(&out, "      _files\n");
    absl::StrAppend(&out, "      ;;\n");
  }
  return absl::StrCat(out, "  esac\n}\n",
                      "if [[ $funcstack[1] = _hmmctl ]]; then _hmmctl \"$@\"; else compdef "
                      "_hmmctl hmmctl; fi\n");
}

std::string FishCompletion(const std::vector<CommandNode>& tree) {
  std::string out = absl::StrCat(
      "# fish completion for hmmctl. Generated: hmmctl completion fish\n"
      "function __hmmctl_at\n"
      "  set -l at ''\n"
      "  set -l value ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    if test -n \"$value\"; set value ''; continue; end\n"
      "    switch $word\n"
      "      case ",
      ValueOptions(tree, " "),
      "\n        set value $word; continue\n"
      "    end\n"
      "    switch \"$at/$word\"\n"
      "      case ",
      absl::StrReplaceAll(Steps(tree), {{"|", " "}}),
      "\n        set at (string trim \"$at $word\")\n"
      "    end\n"
      "  end\n"
      "  test \"$at\" = \"$argv[1]\"\n"
      "end\n"
      "complete -c hmmctl -f\n");
  for (const CommandNode& node : tree) {
    const std::string here = absl::StrCat("-n ", Quoted("__hmmctl_at \"" + node.path + "\""));
    if (!node.path.empty()) {
      const std::size_t cut = node.path.rfind(' ');
      const std::string above = cut == std::string::npos ? "" : node.path.substr(0, cut);
      absl::StrAppend(&out, "complete -c hmmctl -n ", Quoted("__hmmctl_at \"" + above + "\""),
                      " -a ", LastWord(node.path), " -d ", Quoted(node.text), "\n");
    }
    for (const CommandNode::Option& option : node.options) {
      absl::StrAppend(&out, "complete -c hmmctl ", node.path.empty() ? "" : here + " ");
      for (const std::string& name : option.names) {
        absl::StrAppend(
            &out, name.starts_with("--") ? "-l " + name.substr(2) : "-s " + name.substr(1), " ");
      }
      if (!option.choices.empty()) {
        absl::StrAppend(&out, "-x -a ", Quoted(absl::StrJoin(option.choices, " ")), " ");
      } else if (option.value == "TIER") {
        absl::StrAppend(&out, "-x -a '(hmmctl tier list -q 2>/dev/null)' ");
      } else if (!option.value.empty()) {
        absl::StrAppend(&out, "-r -F ");
      }
      absl::StrAppend(&out, "-d ", Quoted(option.text), "\n");
    }
    for (const CommandNode::Option& argument : node.arguments) {
      if (!argument.choices.empty()) {
        absl::StrAppend(&out, "complete -c hmmctl ", here, " -a ",
                        Quoted(absl::StrJoin(argument.choices, " ")), "\n");
      }
    }
    if (TakesTier(node)) {
      absl::StrAppend(&out, "complete -c hmmctl ", here,
                      " -a '(hmmctl tier list -q 2>/dev/null)'\n");
    }
    if (TakesFile(node)) absl::StrAppend(&out, "complete -c hmmctl ", here, " -F\n");
  }
  return out;
}

}  // namespace hmm::ctl
