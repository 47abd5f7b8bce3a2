// SPDX-License-Identifier: Apache-2.0
//
// The checks of the cgroup and of the file system of flash tiers.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/doctor.h"

namespace hmm::ctl {
namespace {

// The process's own cgroup of version 2: "/system.slice/hmmd.service"; empty: none.
std::string CgroupOf(const DoctorQuestion& question) {
  std::istringstream lines(WholeFile(question, ProcessDir(question) + "/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return "";
}

// The least of memory.max from the cgroup up to the root, and which one sets it.
struct MemoryLimit {
  std::optional<std::uint64_t> bytes{};
  std::string group{};
};
MemoryLimit LimitAbove(const DoctorQuestion& question, std::string group) {
  MemoryLimit least;
  constexpr int kDepthMax = 64;
  for (int i = 0; i < kDepthMax && !group.empty(); ++i) {
    std::uint64_t bytes = 0;
    const std::string at = absl::StrCat("sys/fs/cgroup", group == "/" ? "" : group, "/memory.max");
    if (absl::SimpleAtoi(FirstLine(question, at), &bytes) && bytes < least.bytes.value_or(~0ull)) {
      least = {.bytes = bytes, .group = group};
    }
    if (group == "/") break;
    group.erase(group.rfind('/'));
    if (group.empty()) group = "/";
  }
  return least;
}

std::uint64_t MemoryOf(const std::vector<DoctorTier>& tiers) {
  std::uint64_t sum = 0;
  for (const DoctorTier& tier : tiers) {
    if (tier.kind != "flash") sum += tier.capacity_bytes;
  }
  return sum;
}

struct Mount {
  std::string point{};
  std::string device{};  // "259:2"
  std::string type{};
};
// Of /proc/self/mountinfo, the mount that the path lies on.
Mount MountOf(const DoctorQuestion& question, const std::string& path) {
  Mount best;
  std::istringstream lines(WholeFile(question, "proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, point, word;
    words >> id >> parent >> device >> root >> point;
    while (words >> word && word != "-") {
    }
    std::string type;
    words >> type;
    const bool on = point == "/" || path == point || path.rfind(point + "/", 0) == 0;
    // The last of equal ones hides the others.
    if (on && point.size() >= best.point.size()) best = {point, device, type};
  }
  return best;
}

bool Rotates(const DoctorQuestion& question, const std::string& device) {
  for (const char* queue : {"/queue/rotational", "/../queue/rotational"}) {  // disk, partition
    const std::string text = FirstLine(question, absl::StrCat("sys/dev/block/", device, queue));
    if (!text.empty()) return text == "1";
  }
  return false;
}

}  // namespace

Finding CheckCgroup(const DoctorQuestion& question) {
  Finding finding{.check = "cgroup"};
  const std::string group = CgroupOf(question);
  if (group.empty()) {
    finding.severity = Severity::kWarn;
    finding.found = "no cgroup of version 2";
    finding.costs = "hmmd sees no memory limit of its own there is; past one the kernel kills it";
    finding.mend = "boot with systemd.unified_cgroup_hierarchy=1";
    return finding;
  }
  const MemoryLimit limit = LimitAbove(question, group);
  if (!limit.bytes) {
    finding.found = absl::StrCat(group, ", no memory limit");
    return finding;
  }
  finding.found = absl::StrCat(SizeCell(*limit.bytes), " by memory.max of ", limit.group);
  const std::uint64_t wanted = MemoryOf(question.tiers);
  if (wanted <= *limit.bytes) return finding;
  finding.severity = Severity::kBad;
  absl::StrAppend(&finding.found, "; the memory tiers are ", SizeCell(wanted));
  finding.costs = "allocations get NO_MEMORY before the tiers are full";
  finding.mend = absl::StrCat("systemctl set-property hmmd MemoryMax=", wanted / 10 * 11,
                              "   # or smaller tiers in hmmd.toml");
  return finding;
}

Finding CheckFlash(const DoctorQuestion& question, const DoctorProbes& probes) {
  Finding finding{.check = "flash"};
  const std::filesystem::file_type type = probes.type(question.flash);
  const bool seen = std::filesystem::exists(std::filesystem::file_status(type)) &&
                    type != std::filesystem::file_type::unknown;
  if (seen && type != std::filesystem::file_type::directory) {
    finding.severity = Severity::kBad;
    finding.found = absl::StrCat(question.flash, " is no directory");
    finding.costs = "no flash tier can have its file in it";
    finding.mend = "hmmctl doctor --flash DIR: the directory where the file is to be";
    return finding;
  }
  const std::string dir = probes.existing(question.flash);
  const Mount mount = MountOf(question, dir);
  // The daemon makes it where it may, so that this alone is no finding.
  const bool missing = type == std::filesystem::file_type::not_found;
  finding.found = absl::StrCat(
      question.flash, missing ? absl::StrCat(" is missing; ", dir, " is") : "", " on ",
      mount.type.empty() ? "-" : mount.type, " (", mount.point.empty() ? "-" : mount.point, ")");
  const char* const elsewhere =
      "path = \"/mnt/nvme0/hmm.tier\" of the tier in hmmd.toml: a local "
      "ext4 or xfs on the drive";
  if (mount.type == "tmpfs" || mount.type == "ramfs") {
    finding.severity = Severity::kBad;
    finding.costs = "the flash tier takes the memory that it is to relieve";
    finding.mend = elsewhere;
    return finding;
  }
  if (const int error = probes.direct(dir); error != 0) {
    finding.severity = Severity::kWarn;
    absl::StrAppend(&finding.found, "; O_DIRECT: ", std::strerror(error));
    finding.costs = error == EACCES || error == EPERM || error == EROFS
                        ? "not known whether O_DIRECT works: no file may be made there"
                        : "buffered I/O: slower, and every byte is in memory twice";
    finding.mend = error == EACCES || error == EPERM || error == EROFS
                       ? "run hmmctl doctor as root, or as the daemon's user"
                       : elsewhere;
    return finding;
  }
  const bool remote = mount.type.rfind("nfs", 0) == 0 || mount.type == "cifs" ||
                      mount.type.rfind("fuse", 0) == 0 || mount.type == "9p";
  const bool layered = mount.type == "overlay";
  const bool rotates = Rotates(question, mount.device);
  if (!remote && !layered && !rotates) return finding;
  finding.severity = Severity::kWarn;
  finding.costs = remote ? "every miss of memory goes over the network"
                  : layered
                      ? "the container's own layer: it goes with the container, and is often "
                        "small and slow"
                      : "a drive that says that it rotates (virtual ones may say so in vain): each "
                        "small read waits for the arm";
  finding.mend = elsewhere;
  return finding;
}

}  // namespace hmm::ctl
