// SPDX-License-Identifier: Apache-2.0
//
// The checks of pages, limits and io_uring.
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/open_files.h"
#include "client/ctl/doctor.h"

namespace hmm::ctl {
namespace {

constexpr const char kThreadsCost[] =
    "worker threads read and write flash tiers: slower where the drive is fast";

// "HugePages_Total:      12" -> 12.
std::uint64_t MeminfoOf(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word && word == name + ":" && words >> value) return value;
  }
  return 0;
}

// The soft limit of "Max open files  1024  524288  files"; nullopt: unlimited or unknown.
struct Limit {
  bool known = false;
  std::optional<std::uint64_t> soft{};
};
Limit LimitOf(const DoctorQuestion& question, const std::string& name) {
  std::istringstream lines(WholeFile(question, ProcessDir(question) + "/limits"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name, 0) != 0) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft;
    words >> soft;
    std::uint64_t value = 0;
    if (soft == "unlimited") return {.known = true, .soft = std::nullopt};
    if (absl::SimpleAtoi(soft, &value)) return {.known = true, .soft = value};
  }
  return {};
}

std::string Whose(const DoctorQuestion& question) {
  return question.daemon_pid ? absl::StrCat("hmmd (pid ", *question.daemon_pid, ")")
                             : "a daemon started from here";
}

// What a running daemon got, as its tiers' notes say: its unit may be filtered where this process
// is not, and it may be allowed what this process is not. nullopt: none uses or wanted io_uring.
std::optional<Finding> IoUringOfDaemon(const DoctorQuestion& question) {
  std::optional<Finding> got;
  for (const DoctorTier& tier : question.tiers) {
    if (tier.note.find("io_uring") == std::string::npos) continue;
    const std::size_t refused = tier.note.find("io_uring refused");
    if (refused == std::string::npos) {
      got = {.check = "io_uring",
             .found = absl::StrCat(Whose(question), " uses it for ", tier.name)};
      continue;
    }
    const std::string why = tier.note.substr(refused);
    Finding finding{.check = "io_uring",
                    .severity = Severity::kWarn,
                    .found = absl::StrCat(Whose(question), ", ", tier.name, ": ", why),
                    .costs = kThreadsCost};
    if (why.find("kernel.io_uring_disabled") != std::string::npos) {
      finding.mend = "sysctl kernel.io_uring_disabled=0   # then restart hmmd";
    } else if (why.find("locked memory") != std::string::npos) {
      finding.mend = "systemctl edit hmmd   # [Service] LimitMEMLOCK=infinity; then restart it";
    } else {
      finding.mend =
          "allow io_uring_setup, io_uring_enter and io_uring_register in the system call filter of "
          "the unit (SystemCallFilter=) or of the container (seccomp); then restart hmmd";
    }
    return finding;
  }
  return got;
}

}  // namespace

Finding CheckHugePages(const DoctorQuestion& question) {
  const std::string text = WholeFile(question, "proc/meminfo");
  const std::uint64_t total = MeminfoOf(text, "HugePages_Total");
  const std::uint64_t free = MeminfoOf(text, "HugePages_Free");
  const std::uint64_t kib = MeminfoOf(text, "Hugepagesize");
  Finding finding{.check = "huge_pages"};
  if (text.empty()) {
    return {"huge_pages", Severity::kWarn, "/proc/meminfo cannot be read",
            "not known whether there are huge pages", "mount -t proc proc /proc"};
  }
  finding.found = absl::StrCat(total, " reserved, ", free, " free, of ", SizeCell(kib * 1024));
  const std::string shmem = FirstLine(question, "sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const bool transparent = !shmem.empty() && shmem.find("[never]") == std::string::npos &&
                           shmem.find("[deny]") == std::string::npos;
  if (total > 0 || transparent) return finding;
  finding.severity = Severity::kWarn;
  finding.found += "; transparent ones are off for shared memory";
  finding.costs =
      "memory tiers get small pages: copies between them are slower, and mapping a "
      "large tier takes longer";
  finding.mend =
      "sysctl vm.nr_hugepages=N   # N x the page size >= all memory tiers; or see thp_shmem";
  return finding;
}

Finding CheckSharedHugePages(const DoctorQuestion& question) {
  const std::string path = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string text = FirstLine(question, path);
  Finding finding{.check = "thp_shmem", .found = text};
  if (text.empty()) {
    finding.severity = Severity::kWarn;
    finding.found = absl::StrCat("/", path, " is not there");
    finding.costs =
        "this kernel has no transparent huge pages: memory tiers get small pages "
        "unless huge pages are reserved";
    finding.mend = "sysctl vm.nr_hugepages=N";
    return finding;
  }
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    finding.found = text.substr(open + 1, close - open - 1);
  }
  if (finding.found != "never" && finding.found != "deny") return finding;
  finding.severity = Severity::kWarn;
  finding.costs =
      "pages = \"auto\" and \"transparent\" fall back to small pages: copies between "
      "memory tiers are slower";
  finding.mend = absl::StrCat("echo advise >/", path, "   # then restart hmmd");
  return finding;
}

Finding CheckMemlock(const DoctorQuestion& question) {
  const Limit limit = LimitOf(question, "Max locked memory");
  Finding finding{.check = "memlock"};
  if (!limit.known) {
    return {"memlock", Severity::kWarn,
            absl::StrCat("/", ProcessDir(question), "/limits cannot be read"),
            "not known how much memory may be locked", "run hmmctl doctor as root"};
  }
  if (!limit.soft) {
    finding.found = absl::StrCat("unlimited for ", Whose(question));
    return finding;
  }
  finding.severity = Severity::kWarn;
  finding.found = absl::StrCat(SizeCell(*limit.soft), " for ", Whose(question));
  finding.costs =
      "accelerator drivers, and io_uring before Linux 5.12, lock the pages they copy "
      "from: past the limit their calls fail, and flash falls back to worker threads";
  finding.mend =
      "systemctl edit hmmd   # [Service] LimitMEMLOCK=infinity; by hand: ulimit -l "
      "unlimited";
  return finding;
}

Finding CheckFiles(const DoctorQuestion& question) {
  constexpr std::uint64_t kLeast = 64;
  constexpr std::uint64_t kEnough = 8192;
  constexpr std::uint64_t kOwn = OpenFilesOfDaemon(/*open=*/4, /*tiers=*/3, /*tenants=*/0);
  const Limit limit = LimitOf(question, "Max open files");
  Finding finding{.check = "open_files"};
  if (!limit.known) {
    return {"open_files", Severity::kWarn,
            absl::StrCat("/", ProcessDir(question), "/limits cannot be read"),
            "not known how many clients have room", "run hmmctl doctor as root"};
  }
  const std::uint64_t soft = limit.soft.value_or(kEnough);
  finding.found =
      absl::StrCat(limit.soft ? absl::StrCat(soft) : "unlimited", " for ", Whose(question));
  if (soft >= kEnough) return finding;
  finding.severity = soft < kLeast ? Severity::kBad : Severity::kWarn;
  finding.costs = soft < kLeast ? "hmmd refuses to start"
                                : absl::StrCat("room for about ", SessionsWithin(soft, kOwn),
                                               " sessions; those beyond are turned away");
  finding.mend = "systemctl edit hmmd   # [Service] LimitNOFILE=65536; by hand: ulimit -n 65536";
  return finding;
}

Finding CheckIoUring(const DoctorQuestion& question, const DoctorProbes& probes) {
  if (std::optional<Finding> got = IoUringOfDaemon(question)) return *std::move(got);
  const std::string disabled = FirstLine(question, "proc/sys/kernel/io_uring_disabled");
  Finding finding{.check = "io_uring"};
  if (disabled == "1" || disabled == "2") {
    finding.severity = Severity::kWarn;
    finding.found = absl::StrCat("kernel.io_uring_disabled is ", disabled);
    finding.costs = kThreadsCost;
    finding.mend = "sysctl kernel.io_uring_disabled=0";
    return finding;
  }
  const int error = probes.io_uring();
  if (error == 0) {
    finding.found = "allowed";
    return finding;
  }
  finding.severity = Severity::kWarn;
  finding.found = absl::StrCat("refused: ", std::strerror(error));
  finding.costs = kThreadsCost;
  finding.mend = error == ENOSYS
                     ? "a kernel from 5.6 on, with CONFIG_IO_URING"
                     : "allow io_uring_setup, io_uring_enter and io_uring_register in the "
                       "container's system call filter (seccomp)";
  return finding;
}

}  // namespace hmm::ctl
