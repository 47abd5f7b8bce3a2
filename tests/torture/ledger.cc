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

// An operator's call, which must be answered well.
template <typename Method, typename Request, typename Response>
void CallAdmin(const std::string& dir, Method method, const Request& request, Response* response) {
  const auto stub = v1::Admin::NewStub(client_internal::UnixChannel(dir + "/admin.sock"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Status status = (stub.get()->*method)(&context, request, response);
  INFO(request.ShortDebugString() << ": " << status.error_message());
  REQUIRE(status.ok());
}

void EvictAll(const std::string& dir, const std::string& tier) {
  v1::EvictRequest request;
  request.set_tier(tier);
  v1::EvictResponse response;
  CallAdmin(dir, &v1::Admin::Stub::Evict, request, &response);
}

void CompactAll(const std::string& dir) {
  v1::CompactResponse response;
  CallAdmin(dir, &v1::Admin::Stub::Compact, v1::CompactRequest(), &response);
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
      << ledger.memory_files << " of " << ledger.memory_bytes << " bytes";
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
  CompactAll(dir);
  const v1::GetStatusResponse status = StatusOf(dir);
  Ledger ledger{status.sessions(), status.pins(), status.tensors(), {}, 0, 0, 0};
  for (const v1::TierInfo& tier : status.tiers()) {
    ledger.tiers.push_back({tier.name(), tier.free_bytes() + tier.committed_free_bytes(),
                            tier.creating_bytes(), tier.resident_bytes(), tier.moving_bytes(),
                            tier.reserved_bytes(), tier.pinned_bytes(), tier.tensors()});
  }
  VisitDescriptors(daemon, [&](const std::string& path, const std::string& target) {
    ++ledger.descriptors;
    struct stat info {};
    if (!IsMemoryFile(target) || ::stat(path.c_str(), &info) != 0) return;
    ++ledger.memory_files;
    ledger.memory_bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
  });
  return ledger;
}

}  // namespace hmm::testing
