// SPDX-License-Identifier: Apache-2.0
//
// What the files that declare the command line share. Internal to cli*.cc and *_cli.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/ctl/cli.h"

namespace hmm::ctl {

CLI::App* AddVerb(CLI::App* parent, const std::string& name, const std::string& text, Verb verb,
                  Command* command);
// A noun with verbs of its own.
CLI::App* AddNoun(CLI::App* parent, const std::string& name, const std::string& text);
// "64KiB" into bytes; a refusal is a usage error like any other.
CLI::Option* AddSize(CLI::App* app, const std::string& name, const std::string& text, Bytes* bytes);
// Takes one of these words ("hbm|ddr|flash"), which help and completion show, or the hidden one.
CLI::Option* OneOf(CLI::Option* option, const std::string& choices, const std::string& hidden = "");
// A check for names and filters: "" is what `--tier "$UNSET"` gives, and is not "any".
std::string NotBlank(const std::string& value);
// A check for names of files: "" is what `--out "$UNSET"` gives.
std::string NotEmpty(const std::string& name);
// Of an option that takes a list: "1,2,3" in one word, so that the next word is not taken for it.
CLI::Option* InOneWord(CLI::Option* option);
// -H and -p, as zpool(8): for verbs that write one table.
void AddScripting(CLI::App* app, Command* command);
void AddTimeout(CLI::App* app, Command* command);

// Each adds its verbs.
void AddInspection(CLI::App* app, Command* command);  // inspect_cli.cc
void AddSteering(CLI::App* app, Command* command);    // steer_cli.cc
void AddTools(CLI::App* app, Command* command);       // tools_cli.cc
// What the parser cannot say; empty when all is well.
std::string InspectContradiction(const Command& command);
std::string SteerContradiction(const Command& command);

}  // namespace hmm::ctl
