// SPDX-License-Identifier: Apache-2.0
#include "tier/machine.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace hmm::tier {
namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();
// cgroup v1 writes "no limit" as the largest multiple of a page that fits 63 bits.
constexpr Bytes kNoLimit = Bytes{1} << 60;

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<Bytes> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadText(path);
  Bytes value = 0;
  if (!text.has_value() || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return value;
}

// "Name:  123 kB" or "name 123" by line; numbers as they stand.
std::map<std::string, Bytes> ReadFields(const std::string& text) {
  std::map<std::string, Bytes> fields;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    Bytes value = 0;
    if (!(words >> name >> value)) continue;
    if (name.back() == ':') name.pop_back();
    fields[name] = value;
  }
  return fields;
}

struct Room {
  Bytes limit = kUnlimited;  // the tightest
  Bytes left = kUnlimited;   // the least room below any limit
};

// One cgroup directory. Pages of the file cache that the kernel drops first count as room, as they
// do in MemAvailable; shared memory does not.
void Narrow(const std::string& directory, bool v2, Room& room) {
  Bytes limit = kUnlimited;
  // memory.high counts too: beyond it the kernel throttles whoever commits.
  for (const char* file : v2 ? std::vector<const char*>{"memory.max", "memory.high"}
                             : std::vector<const char*>{"memory.limit_in_bytes"}) {
    limit = std::min(limit, ReadNumber(absl::StrCat(directory, "/", file)).value_or(kUnlimited));
  }
  if (limit >= kNoLimit) return;
  const char* usage_file = v2 ? "memory.current" : "memory.usage_in_bytes";
  Bytes usage = ReadNumber(absl::StrCat(directory, "/", usage_file)).value_or(0);
  if (const auto stat = ReadText(absl::StrCat(directory, "/memory.stat")); stat.has_value()) {
    auto fields = ReadFields(*stat);
    usage -= std::min(usage, fields[v2 ? "inactive_file" : "total_inactive_file"]);
  }
  room.limit = std::min(room.limit, limit);
  room.left = std::min(room.left, limit - std::min(limit, usage));
}

// `path` as /proc/self/cgroup gives it, below `mount`, and all its ancestors. In a container the
// path may be the host's and not exist here: its ancestors then end at the mount, which is our own
// group.
void NarrowUpwards(const std::string& mount, std::string path, bool v2, Room& room) {
  if (absl::StrContains(path, "..")) path = "/";
  while (true) {
    Narrow(absl::StrCat(mount, path), v2, room);
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.size() <= 1) return;
    path.resize(std::max<std::size_t>(slash, 1));
  }
}

// Lines are "number:controllers:path"; v2 has number 0 and no controllers.
Room CgroupRoom(const std::string& root) {
  Room room;
  std::istringstream lines(ReadText(absl::StrCat(root, "/proc/self/cgroup")).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] == "0" && parts[1].empty()) {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        NarrowUpwards(absl::StrCat(root, mount), parts[2], true, room);
      }
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      NarrowUpwards(absl::StrCat(root, "/sys/fs/cgroup/memory"), parts[2], false, room);
    }
  }
  return room;
}

struct Memory {
  std::map<std::string, Bytes> fields;  // of /proc/meminfo
  Bytes available = 0;
  Bytes cgroup_limit = 0;
};

absl::StatusOr<Memory> ReadMemory(const std::string& root) {
  const std::string path = absl::StrCat(root, "/proc/meminfo");
  const std::optional<std::string> text = ReadText(path);
  if (!text.has_value()) return PosixError(absl::StrCat("reading ", path), errno);
  Memory memory{ReadFields(*text), 0, 0};
  const auto available = memory.fields.find("MemAvailable");
  if (available == memory.fields.end()) {
    return Error(absl::StatusCode::kInternal, Reason::kIo,
                 absl::StrCat(path, " has no line MemAvailable"));
  }
  const Room room = CgroupRoom(root);
  memory.available = std::min(available->second * kKiB, room.left);
  memory.cgroup_limit = room.limit == kUnlimited ? 0 : room.limit;
  return memory;
}

// "always within_size advise [never] deny force"
bool ShmemHuge(const std::string& root) {
  const std::string text =
      ReadText(absl::StrCat(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
          .value_or("");
  for (const char* word : {"[always]", "[within_size]", "[advise]", "[force]"}) {
    if (absl::StrContains(text, word)) return true;
  }
  return false;
}

// A list as "0-1,4"; 1 where the kernel knows no nodes.
int CountNodes(const std::string& root) {
  const std::string text =
      ReadText(absl::StrCat(root, "/sys/devices/system/node/online")).value_or("0");
  int count = 0;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) continue;
    count += std::max(0, last - first + 1);
  }
  return std::max(1, count);
}

// The mask grows until the kernel's fits: a fixed one fails on machines of more than 1024 CPUs.
unsigned CountCpus() {
  constexpr int kCpusMax = 1 << 16;
  for (int cpus = 1024; cpus <= kCpusMax; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<unsigned>(count);
  }
  return 1;
}

}  // namespace

absl::StatusOr<Machine> DetectMachine(const std::string& root) {
  HMM_ASSIGN_OR_RETURN(Memory memory, ReadMemory(root));
  auto& fields = memory.fields;
  Machine machine;
  machine.memory_total = fields["MemTotal"] * kKiB;
  machine.memory_available = memory.available;
  machine.cgroup_limit = memory.cgroup_limit;
  machine.page_size = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  if (fields["HugePages_Total"] > 0) {
    machine.huge_page_size = fields["Hugepagesize"] * kKiB;
    // Reserved ones are promised to mappings that exist already.
    machine.huge_pages_free =
        (fields["HugePages_Free"] - std::min(fields["HugePages_Free"], fields["HugePages_Rsvd"])) *
        machine.huge_page_size;
  }
  machine.shmem_thp = ShmemHuge(root);
  machine.numa_nodes = CountNodes(root);
  machine.cpus = CountCpus();
  return machine;
}

absl::StatusOr<Bytes> DiskFree(const std::string& directory) {
  struct statvfs info {};
  if (statvfs(directory.c_str(), &info) != 0) {
    return PosixError(absl::StrCat("statvfs ", directory), errno);
  }
  return static_cast<Bytes>(info.f_bavail) * static_cast<Bytes>(info.f_frsize);
}

absl::Status MayCommit(Bytes bytes, Bytes headroom, const std::string& root) {
  HMM_ASSIGN_OR_RETURN(const Memory memory, ReadMemory(root));
  if (bytes > memory.available || memory.available - bytes < headroom) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kNoMemory,
                 absl::StrCat("committing ", FormatBytes(bytes), " of the ",
                              FormatBytes(memory.available), " available would leave less than ",
                              FormatBytes(headroom), "; shrink a tier or the headroom"));
  }
  return absl::OkStatus();
}

}  // namespace hmm::tier
