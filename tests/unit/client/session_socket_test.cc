// SPDX-License-Identifier: Apache-2.0
#include "client/lib/session_socket.h"

#include <chrono>

#include "base/status.h"
#include "support/catch.h"
#include "support/fake_session_server.h"

namespace hmm::client_internal {
namespace {

using testing::FakeSessionServer;
using Greeting = FakeSessionServer::Greeting;

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

SessionSocket Connect(const FakeSessionServer& server) {
  absl::StatusOr<SessionSocket> socket = SessionSocket::Connect(server.dir() + "/session.sock");
  REQUIRE(socket.ok());
  return *std::move(socket);
}

absl::Status GreetStatus(Greeting greeting) {
  FakeSessionServer server(greeting);
  SessionSocket socket = Connect(server);
  return socket.Greet("", Soon()).status();
}

TEST_CASE("nobody there is UNAVAILABLE/NO_DAEMON and names the path") {
  const absl::Status status = SessionSocket::Connect("/nonexistent/session.sock").status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(ReasonOf(status) == Reason::kNoDaemon);
  CHECK(std::string(status.message()).find("/nonexistent/session.sock") != std::string::npos);
}

TEST_CASE("a path that no socket can have is the caller's error") {
  CHECK(SessionSocket::Connect("/" + std::string(200, 'x')).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a welcome brings two descriptors") {
  FakeSessionServer server;
  SessionSocket socket = Connect(server);
  const auto greeting = socket.Greet("hbm0", Soon());
  REQUIRE(greeting.ok());
  CHECK(greeting->welcome.boot_epoch == 7);
  CHECK(greeting->welcome.max_tensors == FakeSessionServer::kTensors);
  CHECK(greeting->table.valid());
  CHECK(greeting->page.valid());
}

TEST_CASE("a refusal is answered as it says") {
  const absl::Status status = GreetStatus(Greeting::kRefuse);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReasonOf(status) == Reason::kRefused);
  CHECK(status.message() == "too many sessions");
}

TEST_CASE("what is no greeting is PROTOCOL") {
  for (const Greeting greeting :
       {Greeting::kGarbage, Greeting::kNoDescriptors, Greeting::kOtherAbi}) {
    CHECK(ReasonOf(GreetStatus(greeting)) == Reason::kProtocol);
  }
}

TEST_CASE("a daemon that hangs up or is silent is no daemon") {
  CHECK(ReasonOf(GreetStatus(Greeting::kHangUp)) == Reason::kNoDaemon);
  FakeSessionServer server(Greeting::kSilence);
  SessionSocket socket = Connect(server);
  const absl::Status status =
      socket.Greet("", std::chrono::steady_clock::now() + std::chrono::milliseconds(20)).status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(ReasonOf(status) == Reason::kNoDaemon);
}

TEST_CASE("a device name longer than any tier's is refused here") {
  FakeSessionServer server;
  SessionSocket socket = Connect(server);
  CHECK(socket.Greet("a_name_of_16_chr", Soon()).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("segments are pulled by id, past replies that nobody waits for any more") {
  FakeSessionServer server;
  server.AddSegment(0x10001);
  SessionSocket socket = Connect(server);
  REQUIRE(socket.Greet("", Soon()).ok());
  const auto grant = socket.PullSegment(0x10001, Soon());
  REQUIRE(grant.ok());
  CHECK(grant->bytes == FakeSessionServer::kSegmentBytes);
  CHECK(grant->fd.valid());
  CHECK(socket.PullSegment(0x10005, Soon()).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a hang-up is seen") {
  FakeSessionServer server;
  SessionSocket socket = Connect(server);
  REQUIRE(socket.Greet("", Soon()).ok());
  CHECK_FALSE(socket.HungUp(Duration(0)));
  server.HangUp();
  CHECK(socket.HungUp(std::chrono::seconds(30)));
  CHECK(ReasonOf(socket.PullSegment(1, Soon()).status()) == Reason::kNoDaemon);
}

}  // namespace
}  // namespace hmm::client_internal
