// SPDX-License-Identifier: Apache-2.0
//
// The session socket: what is welcome, what is refused, and that garbage closes it.
#include <sys/socket.h>
#include <sys/stat.h>

#include <random>
#include <vector>

#include "rpc/fixture.h"
#include "share/layout.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

std::uint64_t SessionsOf(const InProcessDaemon& daemon) { return ReadBooks(daemon.dir()).sessions; }

// What the daemon answers to `bytes` as the first message.
RawSession::Received Answer(const InProcessDaemon& daemon, std::span<const std::byte> bytes) {
  RawSession session(daemon.dir());
  session.Send(bytes);
  return session.Receive();
}
template <typename Struct>
RawSession::Received AnswerTo(const InProcessDaemon& daemon, const Struct& message) {
  return Answer(daemon, std::as_bytes(std::span(&message, 1)));
}

std::string ReasonIn(const share::Refusal& refusal) { return refusal.reason.data(); }

}  // namespace

TEST_CASE("a Hello opens a session and hands over the mappings") {
  InProcessDaemon daemon;
  RawSession session(daemon.dir());
  session.SendStruct(RawSession::GoodHello());
  const RawSession::Received received = session.Receive();
  const auto welcome = received.As<share::Welcome>();
  REQUIRE(welcome.has_value());
  CHECK(welcome->header.magic == share::kWireMagic);
  CHECK(welcome->abi_version == share::kAbiVersion);
  CHECK(welcome->max_tensors == 4096);
  CHECK(welcome->tier_count == 3);
  CHECK(std::string(welcome->tier_names[0].data()) == "hbm0");
  CHECK(std::string(welcome->tier_names[2].data()) == "flash0");
  REQUIRE(received.descriptors.size() == 2);
  // The table is for reading, the page for writing too.
  struct stat status {};
  REQUIRE(fstat(received.descriptors[0].get(), &status) == 0);
  CHECK(static_cast<Bytes>(status.st_size) >= share::TableBytes(4096));
  CHECK(!share::Mapping::Map(received.descriptors[0].get(), 4096,
                             share::Mapping::Access::kReadWrite, false)
             .ok());
  CHECK(share::Mapping::Map(received.descriptors[1].get(), 4096, share::Mapping::Access::kReadWrite,
                            false)
            .ok());
  CHECK(SessionsOf(daemon) == 1);
}

TEST_CASE("segments are pulled by id, and only those of the tenant") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  const std::uint64_t handle = client.Allocate(64 * kKiB);
  v1::AcquireRequest acquire;
  client.Stamp(acquire.mutable_call());
  acquire.add_handles(handle);
  v1::AcquireResponse acquired;
  REQUIRE(client.stubs().memory->Acquire(client.Context().get(), acquire, &acquired).ok());
  REQUIRE(acquired.results_size() == 1);
  share::SegmentRequest request;
  request.segment = acquired.results(0).location().segment();
  client.session().SendStruct(request);
  const RawSession::Received received = client.session().Receive();
  const auto reply = received.As<share::SegmentReply>();
  REQUIRE(reply.has_value());
  CHECK(reply->status == 0);
  CHECK(reply->segment == request.segment);
  CHECK(reply->bytes >= 64 * kKiB);
  CHECK(received.descriptors.size() == 1);

  request.segment = 0x00ff00ff;
  client.session().SendStruct(request);
  const RawSession::Received unknown = client.session().Receive();
  REQUIRE(unknown.As<share::SegmentReply>().has_value());
  CHECK(unknown.As<share::SegmentReply>()->status ==
        static_cast<std::uint32_t>(absl::StatusCode::kNotFound));
  CHECK(unknown.descriptors.empty());
}

TEST_CASE("a Hello that cannot be served is refused with a reason") {
  InProcessDaemon daemon;
  share::Hello hello = RawSession::GoodHello();
  hello.abi_version += 1;
  const auto version = AnswerTo(daemon, hello).As<share::Refusal>();
  REQUIRE(version.has_value());
  CHECK(version->header.type == share::WireType::kRefusal);
  CHECK(version->code == static_cast<std::uint32_t>(absl::StatusCode::kFailedPrecondition));
  CHECK(ReasonIn(*version) == "PROTOCOL");
  CHECK(version->abi_version == share::kAbiVersion);
  CHECK(std::string(version->message.data()).find("ABI version") != std::string::npos);

  hello = RawSession::GoodHello();
  hello.device.fill('x');  // not terminated
  const auto unterminated = AnswerTo(daemon, hello).As<share::Refusal>();
  REQUIRE(unterminated.has_value());
  CHECK(ReasonIn(*unterminated) == "PROTOCOL");

  hello = RawSession::GoodHello();
  hello.device[0] = 'h';
  hello.device[1] = '7';
  const auto device = AnswerTo(daemon, hello).As<share::Refusal>();
  REQUIRE(device.has_value());
  CHECK(device->code == static_cast<std::uint32_t>(absl::StatusCode::kNotFound));
  CHECK(SessionsOf(daemon) == 0);
}

TEST_CASE("garbage on the session socket closes it, and nobody else suffers") {
  InProcessDaemon daemon;
  RawClient witness(daemon.dir());
  const auto closes = [&](const RawSession::Received& received) { return received.bytes.empty(); };

  share::Hello hello = RawSession::GoodHello();
  hello.header.magic ^= 1;
  CHECK(closes(AnswerTo(daemon, hello)));
  hello = RawSession::GoodHello();
  hello.header.type = static_cast<share::WireType>(99);
  CHECK(closes(AnswerTo(daemon, hello)));
  hello.header.type = share::WireType::kWelcome;
  CHECK(closes(AnswerTo(daemon, hello)));
  CHECK(closes(AnswerTo(daemon, share::SegmentRequest{})));  // before Hello

  hello = RawSession::GoodHello();
  std::vector<std::byte> bytes(sizeof hello);
  std::memcpy(bytes.data(), &hello, sizeof hello);
  for (std::size_t length = 1; length < sizeof hello; ++length) {
    CHECK(closes(Answer(daemon, std::span(bytes).first(length))));
  }
  bytes.resize(sizeof hello + 1);
  CHECK(closes(Answer(daemon, bytes)));
  bytes.resize(5000);
  CHECK(closes(Answer(daemon, bytes)));

  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> noise(1 + random() % 600);
    for (std::byte& b : noise) b = static_cast<std::byte>(random());
    CHECK(closes(Answer(daemon, noise)));
  }

  RawSession twice(daemon.dir());
  twice.Attach();
  twice.SendStruct(RawSession::GoodHello());
  CHECK(closes(twice.Receive()));

  CHECK(witness.Status().epoch() == witness.welcome().boot_epoch);
}

TEST_CASE("who says no Hello loses its place in time") {
  InProcessDaemon daemon([](daemon::Config& config) {
    config.handshake_timeout = std::chrono::milliseconds(500);
    config.handshakes_max = 2;
  });
  RawSession silent(daemon.dir());
  RawSession also(daemon.dir());
  CHECK(silent.Receive().bytes.empty());
  CHECK(also.Receive().bytes.empty());
  RawSession(daemon.dir()).Attach();
}

TEST_CASE("connections that have not said Hello are bounded") {
  InProcessDaemon daemon([](daemon::Config& config) { config.handshakes_max = 2; });
  RawSession one(daemon.dir());
  RawSession two(daemon.dir());
  // Taken in order: the third is looked at after the two.
  RawSession three(daemon.dir());
  const auto refusal = three.Receive().As<share::Refusal>();
  REQUIRE(refusal.has_value());
  CHECK(refusal->code == static_cast<std::uint32_t>(absl::StatusCode::kResourceExhausted));
  CHECK(ReasonIn(*refusal) == "REFUSED");
  one.Attach();
  RawSession(daemon.dir()).Attach();
}

TEST_CASE("sessions past the limit are refused") {
  InProcessDaemon daemon([](daemon::Config& config) { config.limits.sessions_max = 2; });
  RawClient one(daemon.dir());
  RawClient two(daemon.dir());
  const auto refusal = AnswerTo(daemon, RawSession::GoodHello()).As<share::Refusal>();
  REQUIRE(refusal.has_value());
  CHECK(refusal->code == static_cast<std::uint32_t>(absl::StatusCode::kResourceExhausted));
  CHECK(ReasonIn(*refusal) == "REFUSED");
}

TEST_CASE("a closed socket makes the session closing while its process lives") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  client.Allocate(64 * kKiB);
  client.session().Close();
  const Stubs admin(daemon.dir(), "admin.sock");
  CHECK(WaitUntil([&] {
    grpc::ClientContext context;
    v1::ListSessionsResponse sessions;
    REQUIRE(admin.inspection->ListSessions(&context, {}, &sessions).ok());
    REQUIRE(sessions.sessions_size() == 1);
    CHECK(sessions.sessions(0).pid() == static_cast<std::uint32_t>(getpid()));
    return sessions.sessions(0).state() == "closing";
  }));
  // Its pin stays with its page.
  CHECK(ReadBooks(daemon.dir()).pins == 1);
}

TEST_CASE("a Goodbye ends the session while its process lives") {
  InProcessDaemon daemon;
  const auto before = ReadBooks(daemon.dir());
  RawClient client(daemon.dir());
  client.Allocate(64 * kKiB);
  CHECK(ReadBooks(daemon.dir()).pins == 1);
  client.session().SendStruct(share::Goodbye());
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }));
  CHECK(client.session().Receive().bytes.empty());

  SECTION("but not before a Hello") {
    RawSession stranger(daemon.dir());
    stranger.SendStruct(share::Goodbye());
    CHECK(stranger.Receive().bytes.empty());
    CHECK(ReadBooks(daemon.dir()) == before);
  }
}

}  // namespace hmm::testing
