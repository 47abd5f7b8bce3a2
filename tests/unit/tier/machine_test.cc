// SPDX-License-Identifier: Apache-2.0
#include "tier/machine.h"

#include <unistd.h>

#include "base/status.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::tier {
namespace {

using testing::TempDir;

constexpr const char* kMeminfo =
    "MemTotal:       16777216 kB\n"
    "MemFree:         1048576 kB\n"
    "MemAvailable:    8388608 kB\n"
    "HugePages_Total:      10\n"
    "HugePages_Free:        8\n"
    "HugePages_Rsvd:        3\n"
    "HugePages_Surp:        0\n"
    "Hugepagesize:       2048 kB\n";

// A machine of 16 GiB, 8 available, and no cgroup.
void WriteMachine(const TempDir& root) {
  root.Write("proc/meminfo", kMeminfo);
  root.Write("sys/kernel/mm/transparent_hugepage/shmem_enabled",
             "always within_size [advise] never deny force\n");
  root.Write("sys/devices/system/node/online", "0-2,5\n");
}

Machine Detect(const TempDir& root) {
  const absl::StatusOr<Machine> machine = DetectMachine(root.path());
  INFO(machine.status());
  REQUIRE(machine.ok());
  return *machine;
}

TEST_CASE("memory, huge pages and nodes are read from proc and sys") {
  const TempDir root;
  WriteMachine(root);
  const Machine machine = Detect(root);
  CHECK(machine.memory_total == 16 * kGiB);
  CHECK(machine.memory_available == 8 * kGiB);
  CHECK(machine.cgroup_limit == 0);
  CHECK(machine.huge_page_size == 2 * kMiB);
  CHECK(machine.huge_pages_free == 10 * kMiB);  // 8 free less 3 promised
  CHECK(machine.shmem_thp);
  CHECK(machine.numa_nodes == 4);
  CHECK(machine.page_size == static_cast<Bytes>(sysconf(_SC_PAGESIZE)));
  CHECK(machine.cpus >= 1);
}

TEST_CASE("what the kernel does not offer is absent, not an error") {
  const TempDir root;
  root.Write("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n");
  const Machine machine = Detect(root);
  CHECK(machine.memory_available == 512 * kKiB);
  CHECK(machine.huge_page_size == 0);
  CHECK(machine.huge_pages_free == 0);
  CHECK(!machine.shmem_thp);
  CHECK(machine.numa_nodes == 1);
}

TEST_CASE("no meminfo, or one without MemAvailable, is an error that names the file") {
  const TempDir root;
  absl::Status status = DetectMachine(root.path()).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(status.message().find("meminfo") != std::string::npos);
  root.Write("proc/meminfo", "MemTotal: 1024 kB\n");
  status = DetectMachine(root.path()).status();
  CHECK(status.message().find("MemAvailable") != std::string::npos);
  CHECK(!MayCommit(1, 0, root.path()).ok());
}

TEST_CASE("shmem huge pages are off where the kernel says never or deny") {
  const TempDir root;
  WriteMachine(root);
  const std::string file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  root.Write(file, "always within_size advise [never] deny force\n");
  CHECK(!Detect(root).shmem_thp);
  root.Write(file, "always within_size advise never [deny] force\n");
  CHECK(!Detect(root).shmem_thp);
  root.Write(file, "always [within_size] advise never deny force\n");
  CHECK(Detect(root).shmem_thp);
}

TEST_CASE("cgroup v2: the tightest of our group and its ancestors counts") {
  const TempDir root;
  WriteMachine(root);
  root.Write("proc/self/cgroup", "0::/pod/hmmd\n");
  const std::string base = "sys/fs/cgroup";
  root.Write(base + "/pod/hmmd/memory.max", "max\n");
  root.Write(base + "/pod/hmmd/memory.current", "1073741824\n");
  CHECK(Detect(root).cgroup_limit == 0);
  CHECK(Detect(root).memory_available == 8 * kGiB);
  root.Write(base + "/pod/memory.max", "4294967296\n");
  root.Write(base + "/pod/memory.current", "3221225472\n");
  CHECK(Detect(root).cgroup_limit == 4 * kGiB);
  CHECK(Detect(root).memory_available == 1 * kGiB);
  // File cache the kernel would drop first is room.
  root.Write(base + "/pod/memory.stat", "anon 5\nfile 1073741824\ninactive_file 536870912\n");
  CHECK(Detect(root).memory_available == 1536 * kMiB);
  // A limit below ours, already exceeded: no room, and no wrap.
  root.Write(base + "/pod/hmmd/memory.high", "536870912\n");
  CHECK(Detect(root).memory_available == 0);
  CHECK(Detect(root).cgroup_limit == 512 * kMiB);
}

TEST_CASE("cgroup v1, next to a v2 hierarchy without memory") {
  const TempDir root;
  WriteMachine(root);
  root.Write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n3:cpuset:/\n0::/\n");
  const std::string base = "sys/fs/cgroup/memory";
  // Unlimited as v1 writes it.
  root.Write(base + "/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write(base + "/docker/abc/memory.usage_in_bytes", "4096\n");
  CHECK(Detect(root).cgroup_limit == 0);
  root.Write(base + "/docker/abc/memory.limit_in_bytes", "2147483648\n");
  root.Write(base + "/docker/abc/memory.usage_in_bytes", "1073741824\n");
  root.Write(base + "/docker/abc/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n");
  CHECK(Detect(root).cgroup_limit == 2 * kGiB);
  CHECK(Detect(root).memory_available == 1025 * kMiB);
}

TEST_CASE("in a container the group's path is the host's: the mount itself is ours") {
  const TempDir root;
  WriteMachine(root);
  root.Write("proc/self/cgroup", "4:memory:/docker/not/here\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  root.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
  CHECK(Detect(root).memory_available == 1 * kGiB);
  root.Write("proc/self/cgroup", "4:memory:/../../../etc\n");
  CHECK(Detect(root).memory_available == 1 * kGiB);
  root.Write("proc/self/cgroup", "nonsense\n4:memory\n::\n\n4:memory:relative\n");
  CHECK(Detect(root).memory_available == 8 * kGiB);
}

TEST_CASE("MayCommit keeps the headroom") {
  const TempDir root;
  WriteMachine(root);
  CHECK(MayCommit(8 * kGiB, 0, root.path()).ok());
  CHECK(MayCommit(7 * kGiB, 1 * kGiB, root.path()).ok());
  for (const auto& [bytes, headroom] :
       {std::pair{8 * kGiB + 1, Bytes{0}}, std::pair{7 * kGiB + 1, 1 * kGiB},
        std::pair{~Bytes{0}, Bytes{1}}, std::pair{Bytes{1}, ~Bytes{0}}}) {
    const absl::Status status = MayCommit(bytes, headroom, root.path());
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(ReasonOf(status) == Reason::kNoMemory);
  }
}

TEST_CASE("the machine the test runs on can be read") {
  const absl::StatusOr<Machine> machine = DetectMachine();
  REQUIRE(machine.ok());
  CHECK(machine->memory_available > 0);
  CHECK(machine->memory_available <= machine->memory_total);
  CHECK(MayCommit(4096, 0).ok());
}

TEST_CASE("free disk space is that of the file system, or errno's words") {
  const TempDir dir;
  const absl::StatusOr<Bytes> free = DiskFree(dir.path());
  REQUIRE(free.ok());
  CHECK(*free > 0);
  CHECK(DiskFree(dir.File("missing")).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hmm::tier
