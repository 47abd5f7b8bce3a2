// SPDX-License-Identifier: Apache-2.0
//
// Machines as TOML files, and presets by name. config/machines/ has an example with every key.
//
//   name = "mine"
//   flops = "140TFLOP/s"          sustained
//   hbm_bandwidth = "1.6TB/s"     B, kB, MB, GB, TB are powers of 1000; KiB .. TiB of 1024
//   launch = "5us"                fixed cost of an op; ns, us, ms, s
//   hbm_capacity = "64GiB"        base 1024 only, as sizes are everywhere
//   [[link]]
//   from = "hbm"
//   to = "ddr"
//   bandwidth = "16GiB/s"         or curve = [["64KiB", "4GiB/s"], ["2MiB", "16GiB/s"]]
//
// Pure but for reading the file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/machine.h"

namespace hmm::graph {

// INVALID_ARGUMENT/BAD_CONFIG "<file>:<line>: link[0].from: ...": no TOML, a key that is unknown
// (the nearest known one is named), missing, given twice or without its unit, a value out of its
// range, a link between tiers that are no neighbours or not there, two links of one direction.
absl::StatusOr<plan::Machine> ParseMachine(std::string_view text, const std::string& file);

// A preset's name ("h100") or else the path of a file. NOT_FOUND/NOT_FOUND if it is neither, naming
// the presets.
absl::StatusOr<plan::Machine> LoadMachine(const std::string& name_or_path);

// What ParseMachine reads back as the same machine. INVALID_ARGUMENT/BAD_CONFIG if it would not,
// because a value is out of its range.
absl::StatusOr<std::string> FormatMachine(const plan::Machine& machine);

}  // namespace hmm::graph
