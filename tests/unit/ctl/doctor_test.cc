// SPDX-License-Identifier: Apache-2.0
// The doctor on made-up machines.
#include "client/ctl/doctor.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;

// A machine where all is well; tests break one thing each.
class Machine {
 public:
  Machine() {
    Write("proc/meminfo",
          "MemTotal: 1 kB\nHugePages_Total: 8\nHugePages_Free: 4\n"
          "Hugepagesize: 2048 kB\n");
    Write("sys/kernel/mm/transparent_hugepage/shmem_enabled",
          "always within_size [advise] never deny force\n");
    Limits("unlimited", "65536");
    Write("proc/sys/kernel/io_uring_disabled", "0\n");
    Write("proc/self/cgroup", "0::/system.slice/hmmd.service\n");
    Write("proc/self/mountinfo",
          "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
          "21 20 259:2 / /mnt/nvme0 rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw\n"
          "22 20 0:30 / /mnt/ram rw - tmpfs tmpfs rw\n"
          "23 20 0:31 / /mnt/far rw - nfs4 server:/x rw\n");
    Write("sys/dev/block/8:1/queue/rotational", "0\n");
    question.root = dir_.path();
    question.flash = "/mnt/nvme0/hmm";
    probes = {.io_uring = [] { return 0; },
              .direct = [](const std::string&) { return 0; },
              .type = [](const std::string&) { return std::filesystem::file_type::directory; },
              .existing = [](const std::string& path) { return path; }};
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = dir_.File(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Limits(const std::string& memlock, const std::string& files,
              const std::string& process = "self") {
    Write("proc/" + process + "/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max open files            " +
              files +
              "     1048576    files     \n"
              "Max locked memory         " +
              memlock + "   unlimited  bytes     \n");
  }
  void Remove(const std::string& path) { std::filesystem::remove_all(dir_.File(path)); }
  Finding Of(const std::string& check) const {
    for (const Finding& finding : Examine(question, probes)) {
      if (finding.check == check) return finding;
    }
    FAIL("no such check");
    return {};
  }

  DoctorQuestion question;
  DoctorProbes probes;

 private:
  testing::TempDir dir_;
};

// Whatever is wrong says what it costs and how to mend it.
void CheckWhole(const Finding& finding, Severity severity) {
  INFO(finding.check << ": " << finding.found);
  CHECK(finding.severity == severity);
  CHECK(finding.costs.empty() == (severity == Severity::kOk));
  CHECK(finding.mend.empty() == (severity == Severity::kOk));
  CHECK_FALSE(finding.found.empty());
}

TEST_CASE("a machine where all is well") {
  const Machine machine;
  const auto findings = Examine(machine.question, machine.probes);
  CHECK(findings.size() == 7);
  for (const Finding& finding : findings) CheckWhole(finding, Severity::kOk);
  const auto json = nlohmann::json::parse(DoctorJson(findings));
  CHECK(json["worst"] == "ok");
  CHECK(json["checks"].size() == 7);
  CHECK_THAT(DoctorTable(findings, {}), Contains("ok    io_uring: allowed\n") && !Contains("mend"));
}

TEST_CASE("a daemon that is there and says nothing is the first finding") {
  Machine machine;
  machine.question.no_answer = "the daemon did not answer within 2000 ms";
  machine.question.daemon_pid = 77;
  machine.Limits("unlimited", "unlimited", "77");
  machine.Write("proc/77/cgroup", "0::/\n");
  const auto findings = Examine(machine.question, machine.probes);
  CHECK(findings.front().check == "daemon");
  CheckWhole(findings.front(), Severity::kBad);
  CHECK_THAT(findings.front().found, Contains("pid 77") && Contains("within 2000 ms"));
  CHECK_THAT(machine.Of("memlock").found, !Contains("started from here"));
}

TEST_CASE("a flash directory that is missing, or is none, is called so") {
  Machine machine;
  machine.question.flash = "/nonexistent";
  machine.probes.type = [](const std::string&) { return std::filesystem::file_type::not_found; };
  machine.probes.existing = [](const std::string&) { return "/"; };
  CheckWhole(machine.Of("flash"), Severity::kOk);
  CHECK(machine.Of("flash").found == "/nonexistent is missing; / is on ext4 (/)");
  machine.question.flash = "/etc/passwd";
  machine.probes.type = [](const std::string&) { return std::filesystem::file_type::regular; };
  CheckWhole(machine.Of("flash"), Severity::kBad);
  CHECK(machine.Of("flash").found == "/etc/passwd is no directory");
}

TEST_CASE("huge pages: reserved or transparent ones will do") {
  Machine machine;
  machine.Write("proc/meminfo", "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n");
  CheckWhole(machine.Of("huge_pages"), Severity::kOk);
  machine.Write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise [never]\n");
  CheckWhole(machine.Of("huge_pages"), Severity::kWarn);
  CheckWhole(machine.Of("thp_shmem"), Severity::kWarn);
  CHECK_THAT(machine.Of("thp_shmem").mend, Contains("echo advise >/sys/kernel/mm"));
  CHECK_THAT(machine.Of("huge_pages").mend, Contains("vm.nr_hugepages"));
  machine.Remove("sys/kernel");
  CheckWhole(machine.Of("thp_shmem"), Severity::kWarn);
  machine.Remove("proc/meminfo");
  CheckWhole(machine.Of("huge_pages"), Severity::kWarn);
}

TEST_CASE("limits are the daemon's where it runs, else one's own") {
  Machine machine;
  machine.Limits("8388608", "1024");
  CheckWhole(machine.Of("memlock"), Severity::kWarn);
  CHECK_THAT(machine.Of("memlock").found, Contains("8MiB") && Contains("started from here"));
  CheckWhole(machine.Of("open_files"), Severity::kWarn);
  CHECK_THAT(machine.Of("open_files").costs, Contains("about 97 sessions"));
  machine.Limits("8388608", "64");  // as hmmd reckons, which starts with that and takes two
  CHECK_THAT(machine.Of("open_files").costs, Contains("about 2 sessions"));
  machine.Limits("unlimited", "40");
  CheckWhole(machine.Of("open_files"), Severity::kBad);
  machine.Limits("unlimited", "unlimited", "77");
  machine.question.daemon_pid = 77;
  CheckWhole(machine.Of("open_files"), Severity::kOk);
  CHECK_THAT(machine.Of("memlock").found, Contains("pid 77"));
  machine.question.daemon_pid = 78;  // gone meanwhile, or not ours to read
  CheckWhole(machine.Of("open_files"), Severity::kWarn);
  CheckWhole(machine.Of("memlock"), Severity::kWarn);
}

TEST_CASE("io_uring: what the daemon got counts, not what this process would get") {
  Machine machine;
  machine.question.daemon_pid = 77;
  machine.question.tiers = {
      {"flash0", "flash", 1, "ext4, O_DIRECT, io_uring"},
      {"flash1", "flash", 1,
       "ext4, O_DIRECT, io_uring refused: Operation not permitted, worker threads"}};
  CheckWhole(machine.Of("io_uring"), Severity::kWarn);
  CHECK(machine.Of("io_uring").found ==
        "hmmd (pid 77), flash1: io_uring refused: Operation not permitted, worker threads");
  CHECK_THAT(machine.Of("io_uring").mend, Contains("SystemCallFilter") && Contains("restart"));
  machine.question.tiers[1].note =
      "ext4, io_uring refused: Operation not permitted (kernel.io_uring_disabled is 2), worker "
      "threads";
  CHECK_THAT(machine.Of("io_uring").mend, Contains("sysctl"));
  machine.question.tiers.pop_back();
  machine.probes.io_uring = [] { return EPERM; };
  CheckWhole(machine.Of("io_uring"), Severity::kOk);
  CHECK(machine.Of("io_uring").found == "hmmd (pid 77) uses it for flash0");
  machine.question.tiers[0].note = "ext4, O_DIRECT, worker threads";  // as it was told to
  CheckWhole(machine.Of("io_uring"), Severity::kWarn);
}

TEST_CASE("io_uring: the switch of the kernel, the filter of a container") {
  Machine machine;
  for (const char* value : {"1\n", "2\n"}) {
    machine.Write("proc/sys/kernel/io_uring_disabled", value);
    CheckWhole(machine.Of("io_uring"), Severity::kWarn);
    CHECK(machine.Of("io_uring").mend == "sysctl kernel.io_uring_disabled=0");
  }
  machine.Remove("proc/sys/kernel/io_uring_disabled");  // before Linux 6.6
  CheckWhole(machine.Of("io_uring"), Severity::kOk);
  machine.probes.io_uring = [] { return EPERM; };
  CheckWhole(machine.Of("io_uring"), Severity::kWarn);
  CHECK_THAT(machine.Of("io_uring").mend, Contains("seccomp"));
  machine.probes.io_uring = [] { return ENOSYS; };
  CHECK_THAT(machine.Of("io_uring").mend, Contains("kernel"));
}

TEST_CASE("the cgroup's limit, wherever above it is set, against the memory tiers") {
  Machine machine;
  machine.question.tiers = {{"hbm0", "hbm", 1 << 20},
                            {"ddr0", "ddr", 2 << 20},
                            {"flash0", "flash", std::uint64_t{1} << 40}};
  CheckWhole(machine.Of("cgroup"), Severity::kOk);
  machine.Write("sys/fs/cgroup/system.slice/hmmd.service/memory.max", "max\n");
  machine.Write("sys/fs/cgroup/system.slice/memory.max", "4194304\n");
  CheckWhole(machine.Of("cgroup"), Severity::kOk);
  CHECK_THAT(machine.Of("cgroup").found, Contains("4MiB by memory.max of /system.slice"));
  machine.Write("sys/fs/cgroup/system.slice/memory.max", "2097152\n");
  CheckWhole(machine.Of("cgroup"), Severity::kBad);
  CHECK_THAT(machine.Of("cgroup").mend, Contains("MemoryMax="));
  machine.Write("proc/self/cgroup", "0::/\n");
  machine.Write("sys/fs/cgroup/memory.max", "1024\n");  // inside a container
  CheckWhole(machine.Of("cgroup"), Severity::kBad);
  machine.Write("proc/self/cgroup", "4:memory:/x\n");
  CheckWhole(machine.Of("cgroup"), Severity::kWarn);
}

TEST_CASE("the file system of flash") {
  Machine machine;
  CHECK_THAT(machine.Of("flash").found, Contains("xfs") && Contains("/mnt/nvme0"));
  machine.Write("sys/dev/block/259:2/partition", "2\n");
  machine.Write("sys/dev/block/queue/rotational", "1\n");  // the whole drive's
  CheckWhole(machine.Of("flash"), Severity::kWarn);
  machine.question.flash = "/mnt/ram/x";
  CheckWhole(machine.Of("flash"), Severity::kBad);
  machine.question.flash = "/mnt/far";
  CheckWhole(machine.Of("flash"), Severity::kWarn);
  CHECK_THAT(machine.Of("flash").costs, Contains("network"));
  machine.question.flash = "/mnt/farther";  // not below /mnt/far
  CheckWhole(machine.Of("flash"), Severity::kOk);
  CHECK_THAT(machine.Of("flash").found, Contains("ext4"));
  machine.probes.direct = [](const std::string&) { return EINVAL; };
  CheckWhole(machine.Of("flash"), Severity::kWarn);
  CHECK_THAT(machine.Of("flash").costs, Contains("buffered"));
  machine.probes.direct = [](const std::string&) { return EACCES; };
  CHECK_THAT(machine.Of("flash").mend, Contains("as root"));
  machine.Write("proc/self/mountinfo", "");
  CHECK_FALSE(machine.Of("flash").found.empty());
}

TEST_CASE("nothing can be read: no check fails, each says so") {
  Machine machine;
  machine.Remove("proc");
  machine.Remove("sys");
  for (const Finding& finding : Examine(machine.question, machine.probes)) {
    CHECK_FALSE(finding.found.empty());
  }
}

TEST_CASE("the probes of the system that runs this") {
  const DoctorProbes probes = SystemProbes();
  const testing::TempDir dir;
  CHECK(probes.existing(dir.path() + "/not/there") == std::filesystem::canonical(dir.path()));
  CHECK(probes.existing("/") == "/");
  CHECK(probes.direct(dir.path() + "/not/there") == ENOENT);
  const int direct = probes.direct(dir.path());
  CHECK((direct == 0 || direct == EINVAL));
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK(probes.io_uring() >= 0);
}

}  // namespace
}  // namespace hmm::ctl
