// SPDX-License-Identifier: Apache-2.0
#include "graph/profile.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"

namespace hmm::graph {
namespace {

constexpr Bytes kFileMax = 256 * kMiB;
constexpr double kMicrosecondsMax = 1e15;
constexpr std::string_view kHeader = "op,microseconds";
constexpr std::size_t kSuggestFromMax =
    20'000;  // ops; a longer list is not searched for the nearest
constexpr std::size_t kNamedMax = 3;

std::string_view Strip(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The name at the line's start, and in `rest` what follows the comma; nullopt: there is none.
std::optional<std::string> TakeName(std::string_view line, std::string_view& rest) {
  if (!line.starts_with('"')) {
    const std::size_t comma = line.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    rest = line.substr(comma + 1);
    return std::string(Strip(line.substr(0, comma)));
  }
  std::string name;
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (line[i] != '"') {
      name.push_back(line[i]);
    } else if (i + 1 < line.size() && line[i + 1] == '"') {
      name.push_back(line[++i]);
    } else {
      const std::string_view after = Strip(line.substr(i + 1));
      if (!after.starts_with(',')) return std::nullopt;
      rest = after.substr(1);
      return name;
    }
  }
  return std::nullopt;
}

// Length of the record that `csv` begins with, without its line break; a name in quotes may hold
// one.
std::size_t RecordLength(std::string_view csv) {
  bool quoted = false;
  const bool may_quote = Strip(csv.substr(0, csv.find('\n'))).starts_with('"');
  for (std::size_t i = 0; i < csv.size(); ++i) {
    if (csv[i] == '"' && may_quote) quoted = !quoted;
    if (csv[i] == '\n' && !quoted) return i;
  }
  return csv.size();
}

std::optional<double> Duration(std::string_view text) {
  text = Strip(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value >= 0 && value <= kMicrosecondsMax ? std::optional(value) : std::nullopt;
}

absl::StatusOr<ProfileRow> ParseRow(std::string_view line, const std::string& where) {
  std::string_view rest;
  std::optional<std::string> name = TakeName(line, rest);
  if (!name.has_value()) {
    return BadGraph(where, absl::StrCat("not two columns, ", std::string(kHeader)));
  }
  if (name->empty()) return BadGraph(where, "op: is empty");
  if (name->size() > kNameBytesMax) {
    return BadGraph(where, absl::StrCat("op: longer than ", kNameBytesMax, " bytes"));
  }
  const std::optional<double> us = Duration(rest);
  if (!us.has_value()) {
    return BadGraph(where, absl::StrCat("microseconds: ", Shown(Strip(rest)), " of op ",
                                        Shown(*name), " is no number from 0 to 1e15"));
  }
  return ProfileRow{*std::move(name), *us, 0};
}

// Where in the graph each row's op is; `matched` of them are anywhere.
std::vector<std::optional<plan::OpIndex>> Match(const Profile& profile, const plan::Graph& graph,
                                                std::size_t& matched) {
  std::unordered_map<std::string_view, plan::OpIndex> index;
  index.reserve(graph.ops.size());
  for (plan::OpIndex op = 0; op < graph.ops.size(); ++op) index.emplace(graph.ops[op].name, op);
  std::vector<std::optional<plan::OpIndex>> found;
  found.reserve(profile.rows.size());
  for (const ProfileRow& row : profile.rows) {
    const auto it = index.find(row.op);
    found.push_back(it == index.end() ? std::nullopt : std::optional(it->second));
    matched += found.back().has_value() ? 1U : 0U;
  }
  return found;
}

absl::Status UnknownOp(const Profile& profile, const ProfileRow& row, const plan::Graph& graph,
                       std::size_t matched) {
  std::vector<std::string_view> names;
  if (graph.ops.size() <= kSuggestFromMax) {
    for (const plan::Op& op : graph.ops) names.push_back(op.name);
  }
  std::string hint = Suggestion(row.op, names);
  if (!hint.starts_with("; did you")) hint.clear();  // no list of all ops
  return BadGraph(absl::StrCat(profile.file, ":", row.line),
                  absl::StrCat("op: ", Shown(row.op), " is no op of graph ", Shown(graph.name),
                               " (", matched, " of the ", profile.rows.size(), " rows are)", hint));
}

}  // namespace

absl::StatusOr<Profile> ParseProfile(std::string_view csv, const std::string& file) {
  if (csv.size() > kFileMax) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                 absl::StrCat(file, ": larger than ", FormatBytes(kFileMax)));
  }
  Profile profile;
  profile.file = file;
  std::unordered_map<std::string, std::size_t> lines;
  bool header = false;
  std::size_t next = 1;
  while (!csv.empty()) {
    const std::size_t number = next, end = RecordLength(csv);
    std::string_view line = csv.substr(0, end);
    next += 1 + static_cast<std::size_t>(std::count(line.begin(), line.end(), '\n'));
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    line = Strip(line);
    if (line.empty()) continue;
    const std::string where = absl::StrCat(file, ":", number);
    if (!header) {
      if (line != kHeader) {
        return BadGraph(where, absl::StrCat("the first line must be ", std::string(kHeader)));
      }
      header = true;
      continue;
    }
    HMM_ASSIGN_OR_RETURN(ProfileRow row, ParseRow(line, where));
    row.line = number;
    const auto [it, added] = lines.emplace(row.op, number);
    if (!added) {
      return BadGraph(where,
                      absl::StrCat("op: ", Shown(row.op), " has line ", it->second, " already"));
    }
    profile.rows.push_back(std::move(row));
  }
  if (!header) {
    return BadGraph(file, absl::StrCat("is empty; the first line must be ", std::string(kHeader)));
  }
  return profile;
}

absl::StatusOr<Profile> ReadProfile(const std::string& path) {
  HMM_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, kFileMax));
  return ParseProfile(text, path);
}

absl::StatusOr<ProfileUse> ApplyProfile(const Profile& profile, plan::Graph& graph,
                                        const ProfileOptions& options) {
  std::size_t matched = 0;
  const auto found = Match(profile, graph, matched);
  if (2 * matched < profile.rows.size()) {
    return BadGraph(profile.file,
                    absl::StrCat("is a profile for other ops: ", matched, " of its ",
                                 profile.rows.size(), " rows name ops of graph ", Shown(graph.name),
                                 ", which has ", graph.ops.size()));
  }
  std::vector<bool> named(graph.ops.size(), false);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].has_value()) return UnknownOp(profile, profile.rows[i], graph, matched);
    named[*found[i]] = true;
  }
  const std::size_t missing = graph.ops.size() - matched;
  if (missing > 0 && !options.missing_ok) {
    std::string first;
    std::size_t shown = 0;
    for (std::size_t op = 0; op < named.size() && shown < kNamedMax; ++op) {
      if (named[op]) continue;
      absl::StrAppend(&first, shown++ == 0 ? "" : ", ", Shown(graph.ops[op].name));
    }
    return BadGraph(profile.file, absl::StrCat("names ", matched, " of the ", graph.ops.size(),
                                               " ops of graph ", Shown(graph.name), "; missing: ",
                                               first, missing > shown ? ", ..." : ""));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    graph.ops[*found[i]].microseconds = profile.rows[i].microseconds;
  }
  return ProfileUse{matched, missing};
}

std::string FormatProfile(const plan::Graph& graph) {
  std::string out = absl::StrCat(std::string(kHeader), "\n");
  for (const plan::Op& op : graph.ops) {
    const bool plain = op.name.find_first_of(",\"\r\n") == std::string::npos &&
                       std::string_view(op.name) == Strip(op.name);
    absl::StrAppend(
        &out,
        plain ? op.name : absl::StrCat("\"", absl::StrReplaceAll(op.name, {{"\"", "\"\""}}), "\""),
        ",", absl::StrFormat("%.17g", op.microseconds), "\n");
  }
  return out;
}

}  // namespace hmm::graph
