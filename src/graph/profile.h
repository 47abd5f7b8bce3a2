// SPDX-License-Identifier: Apache-2.0
//
// Measured durations for a graph's ops, as CSV: a header `op,microseconds`, then one op a line. A
// name with a comma or a quote in it stands in double quotes, quotes in it doubled. Pure but for
// reading the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/graph.h"

namespace hmm::graph {

struct ProfileRow {
  std::string op;
  double microseconds = 0;
  std::size_t line = 0;  // of the file, from 1
};

struct Profile {
  std::string file;  // for messages
  std::vector<ProfileRow> rows;
};

// INVALID_ARGUMENT/BAD_GRAPH "<file>:<line>: ...": no such header, not two columns, an empty name,
// a duration that is no number from 0 to 1e15, an op named twice (with the first line). At most 256
// MiB, else RESOURCE_EXHAUSTED/TOO_LARGE.
absl::StatusOr<Profile> ParseProfile(std::string_view csv, const std::string& file);
absl::StatusOr<Profile> ReadProfile(const std::string& path);

struct ProfileOptions {
  // Leave ops that the profile does not name as they are (the roofline gives them a duration).
  // False: they are an error.
  bool missing_ok = false;
};

struct ProfileUse {
  std::size_t ops = 0;      // that have a duration of the profile now
  std::size_t missing = 0;  // that the profile does not name
};

// Gives the graph's ops the profile's durations, all or (on an error) none.
// INVALID_ARGUMENT/BAD_GRAPH: a row that names no op of the graph (its line, and the nearest such
// op); fewer than half of the rows do (a profile for other ops: says how many match); ops that no
// row names (how many, and the first of them).
absl::StatusOr<ProfileUse> ApplyProfile(const Profile& profile, plan::Graph& graph,
                                        const ProfileOptions& options = {});

// The graph's durations as such a file.
std::string FormatProfile(const plan::Graph& graph);

}  // namespace hmm::graph
