// SPDX-License-Identifier: Apache-2.0
//
// What of this machine stands in hmmd's way. Each check reads the kernel's own files below `root`
// (another one in tests) and asks the probes; none changes anything. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/ctl/table.h"

namespace hmm::ctl {

enum class Severity {
  kOk,
  kWarn,  // works, slower or less
  kBad,   // must be mended
};

struct Finding {
  std::string check{};  // "io_uring"
  Severity severity = Severity::kOk;
  std::string found{};  // what is so
  std::string costs{};  // what that means; empty: nothing
  std::string mend{};   // a command, or what to do
};

// What cannot be read from a file.
struct DoctorProbes {
  // 0: io_uring_setup works; else its errno.
  std::function<int()> io_uring;
  // In a directory: 0: a file can be opened with O_DIRECT; else the errno.
  std::function<int(const std::string& dir)> direct;
  std::function<std::filesystem::file_type(const std::string& path)> type;
  // The nearest directory at or above the path that exists.
  std::function<std::string(const std::string& path)> existing;
};
DoctorProbes SystemProbes();

struct DoctorTier {
  std::string name{};
  std::string kind{};
  std::uint64_t capacity_bytes = 0;
  std::string note{};  // what the daemon says it is backed by
};

struct DoctorQuestion {
  std::string root = "/";
  std::string flash = "/var/lib/hmm";
  // The daemon's; nullopt: none runs, and this process stands for it.
  std::optional<std::uint32_t> daemon_pid{};
  std::vector<DoctorTier> tiers{};  // of the daemon that runs
  std::string no_answer{};          // of a daemon that is there: why it says nothing; else empty
};

std::vector<Finding> Examine(const DoctorQuestion& question, const DoctorProbes& probes);

// Internal to doctor*.cc: one check each.
Finding CheckDaemon(const DoctorQuestion& question);
Finding CheckHugePages(const DoctorQuestion& question);
Finding CheckSharedHugePages(const DoctorQuestion& question);
Finding CheckMemlock(const DoctorQuestion& question);
Finding CheckFiles(const DoctorQuestion& question);
Finding CheckIoUring(const DoctorQuestion& question, const DoctorProbes& probes);
Finding CheckCgroup(const DoctorQuestion& question);
Finding CheckFlash(const DoctorQuestion& question, const DoctorProbes& probes);
// The first line of <root>/<path>; empty if it cannot be read.
std::string FirstLine(const DoctorQuestion& question, const std::string& path);
std::string WholeFile(const DoctorQuestion& question, const std::string& path);
std::string ProcessDir(const DoctorQuestion& question);  // "proc/self", "proc/123"

std::string DoctorTable(const std::vector<Finding>& findings, const TableStyle& style);
std::string DoctorJson(const std::vector<Finding>& findings);

}  // namespace hmm::ctl
