// SPDX-License-Identifier: Apache-2.0
#include "torture/ledger.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <ostream>

#include "client/lib/status_convert.h"
#include "e2e/client_fixture.h"
#include "hmm/v1/admin.grpc.pb.h"
#include "hmm/v1/inspection.grpc.pb.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

void EvictAll(const std::string& dir, const std::string& tier) {
  const auto stub = v1::Admin::NewStub(client_internal::UnixChannel(dir + "/admin.sock"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::EvictRequest request;
  request.set_tier(tier);
  v1::EvictResponse response;
  const grpc::Status status = stub->Evict(&context, request, &response);
  INFO(tier << ": " << status.error_message());
  REQUIRE(status.ok());
}

// Calls `visit` with the path and the target of each open descriptor of the daemon.
template <typename Visit>
void VisitDescriptors(pid_t daemon, Visit visit) {
  std::error_code error;
  const std::string folder = "/proc/" + std::to_string(daemon) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::error_code gone;  // closed since
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone) visit(entry.path().string(), target.string());
  }
  REQUIRE_FALSE(error);
}

bool IsMemoryFile(const std::string& target) { return target.rfind("/memfd:", 0) == 0; }

}  // namespace

std::ostream& operator<<(std::ostream& out, const Ledger& ledger) {
  out << "sessions " << ledger.sessions << ", pins " << ledger.pins << ", tensors "
      << ledger.tensors << ", descriptors " << ledger.descriptors << ", memory files "
      << ledger.memory_files;
  for (const Ledger::Tier& tier : ledger.tiers) {
    out << "\n  " << tier.name << ": free " << tier.free << ", creating " << tier.creating
        << ", resident " << tier.resident << ", moving " << tier.moving << ", reserved "
        << tier.reserved << ", pinned " << tier.pinned << ", tensors " << tier.tensors;
  }
  return out;
}

Ledger Settle(const std::string& dir, pid_t daemon) {
  const v1::GetStatusResponse before = StatusOf(dir);
  for (int i = 0; i + 1 < before.tiers_size(); ++i) EvictAll(dir, before.tiers(i).name());
  const v1::GetStatusResponse status = StatusOf(dir);
  Ledger ledger{status.sessions(), status.pins(), status.tensors(), {}, 0, 0};
  for (const v1::TierInfo& tier : status.tiers()) {
    ledger.tiers.push_back({tier.name(), tier.free_bytes() + tier.committed_free_bytes(),
                            tier.creating_bytes(), tier.resident_bytes(), tier.moving_bytes(),
                            tier.reserved_bytes(), tier.pinned_bytes(), tier.tensors()});
  }
  VisitDescriptors(daemon, [&](const std::string&, const std::string& target) {
    ++ledger.descriptors;
    ledger.memory_files += IsMemoryFile(target);
  });
  return ledger;
}

std::uint64_t MemoryFileBytes(pid_t daemon) {
  std::uint64_t bytes = 0;
  VisitDescriptors(daemon, [&](const std::string& path, const std::string& target) {
    struct stat info {};
    if (IsMemoryFile(target) && ::stat(path.c_str(), &info) == 0) {
      bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  });
  return bytes;
}

std::uint64_t MemoryCapacity(const std::string& dir) {
  std::uint64_t bytes = 0;
  const v1::GetStatusResponse status = StatusOf(dir);
  for (const v1::TierInfo& tier : status.tiers()) {
    if (tier.backend() == "host") bytes += tier.capacity_bytes();
  }
  return bytes;
}

}  // namespace hmm::testing
