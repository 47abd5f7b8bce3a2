// SPDX-License-Identifier: Apache-2.0
//
// What one tenant may take of the sockets that all share: never all of it.
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <vector>

#include "rpc/as_uid.h"
#include "rpc/fixture.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

// A peer that is refused may have closed its end already.
void TrySend(const RawSession& session, const share::Hello& hello) {
  (void)send(session.fd(), &hello, sizeof hello, MSG_NOSIGNAL);
}

TEST_CASE("one tenant's silent connections leave room for another's to attach") {
  InProcessDaemon daemon([](daemon::Config& config) { config.handshakes_max = 8; });
  REQUIRE(chmod(daemon.dir().c_str(), 0755) == 0);
  std::vector<RawSession> silent;
  {
    const AsUid other(61234);
    for (int i = 0; i < 6; ++i) silent.emplace_back(daemon.dir());
    // Told why, also one that has spoken already.
    for (const bool speaks : {false, true}) {
      RawSession refused(daemon.dir());
      if (speaks) TrySend(refused, RawSession::GoodHello());
      const auto refusal = refused.Receive().As<share::Refusal>();
      REQUIRE(refusal.has_value());
      CHECK(refusal->code == static_cast<std::uint32_t>(absl::StatusCode::kResourceExhausted));
    }
  }
  RawClient mine(daemon.dir());
  CHECK(mine.Status().epoch() != 0);
}

TEST_CASE("one uid's connections to hmm.sock leave room for another's") {
  InProcessDaemon daemon([](daemon::Config& config) { config.connections_max = 8; });
  REQUIRE(chmod(daemon.dir().c_str(), 0755) == 0);
  std::vector<share::UniqueFd> held;
  {
    const AsUid other(61234);
    for (int i = 0; i < 6; ++i) {
      held.emplace_back(ConnectUnix(daemon.dir() + "/hmm.sock", SOCK_STREAM));
      REQUIRE(held.back().valid());
    }
    const share::UniqueFd turned(ConnectUnix(daemon.dir() + "/hmm.sock", SOCK_STREAM));
    REQUIRE(turned.valid());
    char byte = 0;
    CHECK(recv(turned.get(), &byte, 1, 0) <= 0);  // closed without a byte
  }
  const Stubs mine(daemon.dir(), "hmm.sock");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::GetStatusResponse response;
  const grpc::Status status = mine.inspection->GetStatus(&context, {}, &response);
  INFO(status.error_message());
  CHECK(status.error_code() != grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace hmm::testing
