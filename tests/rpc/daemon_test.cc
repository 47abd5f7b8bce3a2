// SPDX-License-Identifier: Apache-2.0
//
// The daemon's hold on its directory, and who may connect.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/status.h"
#include "daemon/listen.h"
#include "daemon/peer.h"
#include "daemon/text.h"
#include "rpc/fixture.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

unsigned ModeOf(const std::string& path) {
  struct stat status {};
  REQUIRE(lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

daemon::Config Checked(daemon::Config config) {
  const auto resources = daemon::DetectResources();
  REQUIRE(resources.ok());
  REQUIRE(daemon::CheckConfig(config, *resources).ok());
  return config;
}

}  // namespace

TEST_CASE("a second daemon on the directory fails and leaves the first alone") {
  InProcessDaemon first;
  const auto second = daemon::Daemon::Start(Checked(SmallConfig(first.dir())));
  REQUIRE(!second.ok());
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ReasonOf(second.status()) == Reason::kExists);
  const std::string message(daemon::MessageOf(second.status()));
  CHECK(message.find("pid " + std::to_string(getpid())) != std::string::npos);
  CHECK(message.find(first.dir()) != std::string::npos);
  RawClient client(first.dir());
  CHECK(client.Status().epoch() == client.welcome().boot_epoch);
}

TEST_CASE("a daemon takes over the sockets of a dead one, and removes only its own") {
  TempDir dir;
  {
    // A socket that nobody serves any more.
    auto dead = daemon::Listener::Bind(dir.File("hmm.sock"), SOCK_STREAM, 0600);
    REQUIRE(dead.ok());
    std::filesystem::rename(dir.File("hmm.sock"), dir.File("session.sock"));
    dir.Write("hmm.sock", "not the socket it bound");
  }
  CHECK(std::filesystem::exists(dir.File("hmm.sock")));  // another inode: not removed
  std::uint64_t first_epoch = 0;
  {
    const auto one = daemon::Daemon::Start(Checked(SmallConfig(dir.path())));
    REQUIRE(one.ok());
    first_epoch = RawClient(dir.path()).welcome().boot_epoch;
    CHECK(ModeOf(dir.File("hmm.sock")) == 0666);
    CHECK(ModeOf(dir.File("session.sock")) == 0666);
    CHECK(ModeOf(dir.File("admin.sock")) == 0600);
    CHECK(ModeOf(dir.File("hmmd.lock")) == 0600);
    CHECK(ModeOf(dir.File("state")) == 0700);
  }
  CHECK(!std::filesystem::exists(dir.File("hmm.sock")));
  // At once again, with another epoch.
  const auto two = daemon::Daemon::Start(Checked(SmallConfig(dir.path())));
  REQUIRE(two.ok());
  CHECK(RawClient(dir.path()).welcome().boot_epoch != first_epoch);
}

TEST_CASE("socket_mode is what the tenant sockets get") {
  InProcessDaemon daemon([](daemon::Config& config) { config.socket_mode = 0660; });
  CHECK(ModeOf(daemon.dir() + "/hmm.sock") == 0660);
  CHECK(ModeOf(daemon.dir() + "/session.sock") == 0660);
  CHECK(ModeOf(daemon.dir() + "/admin.sock") == 0600);
}

TEST_CASE("a path too long for a socket is refused before anything is made") {
  TempDir dir;
  daemon::Config config = SmallConfig(dir.File(std::string(100, 'd')));
  config.state_dir = dir.File("state");
  const auto resources = daemon::DetectResources();
  REQUIRE(resources.ok());
  const absl::Status status = daemon::CheckConfig(config, *resources);
  CHECK(ReasonOf(status) == Reason::kBadConfig);
  CHECK(daemon::MessageOf(status).find("too long for its sockets: at most") !=
        std::string_view::npos);
  CHECK(!std::filesystem::exists(config.state_dir));
}

TEST_CASE("who may use which socket") {
  using daemon::Role;
  const auto allowed = [](std::uint32_t uid, Role role) {
    const absl::Status status = daemon::Authorize({.uid = uid, .pid = 1}, role, 65534);
    if (!status.ok()) CHECK(ReasonOf(status) == Reason::kRefused);
    return status.ok();
  };
  CHECK(allowed(0, Role::kAdmin));
  CHECK(allowed(geteuid(), Role::kAdmin));
  CHECK(!allowed(geteuid() + 1234, Role::kAdmin));
  CHECK(allowed(1234, Role::kTenant));
  CHECK(!allowed(65534, Role::kTenant));
  CHECK(!allowed(65534, Role::kAdmin));
}

TEST_CASE("the peer of a socket and its pidfd") {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const share::UniqueFd one(pair[0]);
  const share::UniqueFd two(pair[1]);
  const auto peer = daemon::GetPeer(one.get());
  REQUIRE(peer.ok());
  CHECK(peer->pid == static_cast<std::uint32_t>(getpid()));
  CHECK(peer->uid == geteuid());
  const auto pidfd = daemon::OpenPeerPidfd(one.get(), *peer);
  REQUIRE(pidfd.ok());
  CHECK(pidfd->valid());
  CHECK(!daemon::CommandOf(peer->pid).empty());
}

TEST_CASE("connections beyond the cap are closed, and those within it go on") {
  InProcessDaemon daemon([](daemon::Config& config) { config.connections_max = 2; });
  RawClient client(daemon.dir());
  CHECK(client.Status().epoch() != 0);
  RawClient second(daemon.dir());
  CHECK(second.Status().epoch() != 0);
  const share::UniqueFd third(ConnectUnix(daemon.dir() + "/hmm.sock", SOCK_STREAM));
  REQUIRE(third.valid());
  char byte = 0;
  CHECK(recv(third.get(), &byte, 1, 0) <= 0);  // closed without a byte
  CHECK(client.Status().epoch() != 0);
}

TEST_CASE("a tenant's own bound turns its next connection away, and nobody else's") {
  InProcessDaemon daemon([](daemon::Config& config) {
    daemon::TenantConfig pod;
    pod.name = "pod";
    pod.dir = config.dir + "/pod";
    pod.connections_max = 1;
    config.tenants.push_back(pod);
  });
  const auto closed = [&] {
    const share::UniqueFd next(ConnectUnix(daemon.dir() + "/pod/hmm.sock", SOCK_STREAM));
    REQUIRE(next.valid());
    char byte = 0;
    return recv(next.get(), &byte, 1, 0) <= 0;
  };
  for (int i = 0; i < 5; ++i) {  // and each that ends gives its place back
    RawClient client(daemon.dir() + "/pod");
    const auto context = client.Context();
    context->set_wait_for_ready(true);
    v1::GetStatusResponse status;
    CHECK(client.stubs().inspection->GetStatus(context.get(), {}, &status).ok());
    CHECK(closed());
    RawClient other(daemon.dir());
    CHECK(other.Status().epoch() != 0);
  }
}

TEST_CASE("a connection that ends gives its place back") {
  InProcessDaemon daemon([](daemon::Config& config) { config.connections_max = 1; });
  for (int i = 0; i < 20; ++i) {
    RawClient client(daemon.dir());
    const auto context = client.Context();
    context->set_wait_for_ready(true);
    v1::GetStatusResponse status;
    CHECK(client.stubs().inspection->GetStatus(context.get(), {}, &status).ok());
  }
}

}  // namespace hmm::testing
