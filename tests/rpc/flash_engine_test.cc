// SPDX-License-Identifier: Apache-2.0
//
// Which engine serves flash, what the tier says of it, and that bytes come back either way. The
// system's refusal is a real one: a system call filter.
#include "daemon/flash_engine.h"

#include <sys/syscall.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "copy/uring_copier.h"
#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/refuse_syscall.h"

namespace hmm::testing {
namespace {

v1::TierInfo FlashOf(RawClient& client) {
  const v1::GetStatusResponse status = client.Status();
  for (const v1::TierInfo& tier : status.tiers()) {
    if (tier.name() == "flash0") return tier;
  }
  FAIL("no flash0");
  return {};
}

std::string SwapTo(RawClient& client, std::uint64_t handle, const std::string& tier) {
  v1::SwapRequest request;
  request.add_handles(handle);
  request.set_tier(tier);
  v1::SwapResponse response;
  const grpc::Status status =
      client.stubs().memory->Swap(client.Context().get(), request, &response);
  return status.ok() ? CodeAndReason(response.results(0).error()) : CodeAndReason(status);
}

// To flash and back, where the bytes are checked.
void RoundTrip(RawClient& client) {
  for (const std::uint64_t bytes : {100U, 5000U, 300'000U}) {
    const std::uint64_t handle = client.Allocate(bytes, "t" + std::to_string(bytes));
    client.SealAndUnpin(handle);
    INFO(bytes << " bytes");
    CHECK(SwapTo(client, handle, "flash0") == "OK");
    CHECK(SwapTo(client, handle, "hbm0") == "OK");
    CHECK(client.Free(handle) == "OK");
  }
}

// What a daemon says of its flash tier that was started where io_uring_setup ends with `error`.
v1::TierInfo FlashWhereRefused(const std::string& engine, int error) {
  std::unique_ptr<InProcessDaemon> daemon;
  bool filtered = false;
  // Threads that this one starts inherit the filter; the test's own do not.
  std::thread([&] {
    filtered = RefuseSyscall(SYS_io_uring_setup, static_cast<unsigned>(error));
    if (!filtered) return;
    daemon = std::make_unique<InProcessDaemon>(
        [&](daemon::Config& config) { config.flash_engine = engine; });
  }).join();
  if (!filtered) {
    WARN("this system takes no system call filter");
    return {};
  }
  RawClient client(daemon->dir());
  RoundTrip(client);
  return FlashOf(client);
}

bool Says(const v1::TierInfo& tier, const std::string& words) {
  return tier.note().find(words) != std::string::npos;
}

TEST_CASE("io_uring serves flash where the system allows it") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  const bool allowed = copy::CreateUringCopier(daemon.daemon().executor(), {}).ok();
  INFO(FlashOf(client).note());
  CHECK(Says(FlashOf(client), allowed ? ", io_uring" : "io_uring refused: "));
  if (allowed) CHECK(!Says(FlashOf(client), "refused"));
  RoundTrip(client);
}

TEST_CASE("worker threads serve it when they are asked for") {
  InProcessDaemon daemon([](daemon::Config& config) { config.flash_engine = "workers"; });
  RawClient client(daemon.dir());
  CHECK(Says(FlashOf(client), ", worker threads"));
  CHECK(!Says(FlashOf(client), "io_uring"));
  RoundTrip(client);
}

TEST_CASE("a refused io_uring is announced, and worker threads serve") {
  const int error = GENERATE(EPERM, ENOSYS, ENOMEM);
  const v1::TierInfo flash = FlashWhereRefused("auto", error);
  if (flash.name().empty()) return;
  INFO(flash.note());
  CHECK(Says(flash, std::string("io_uring refused: ") + std::strerror(error)));
  CHECK(Says(flash, ", worker threads"));
  CHECK(flash.state() == (Says(flash, "O_DIRECT,") ? "online" : "degraded"));
}

TEST_CASE("one that was asked for by name and is refused degrades the tier") {
  const v1::TierInfo flash = FlashWhereRefused("io_uring", EPERM);
  if (flash.name().empty()) return;
  INFO(flash.note());
  CHECK(Says(flash, "io_uring refused: "));
  CHECK(flash.state() == "degraded");
}

}  // namespace
}  // namespace hmm::testing
