// SPDX-License-Identifier: Apache-2.0
//
// hmmd as a process: its command line, systemd's protocol, descriptors running out, processes that
// die.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <vector>

#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/daemon_process.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Runs hmmd to its end; its exit status, and what it wrote to standard error.
struct Ended {
  int status;
  std::string said;
};
Ended RunHmmd(const TempDir& dir, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HMMD_BINARY);
  const std::string log = dir.File("run.log");
  ChildProcess process(arguments, log);
  const int status = process.Wait();
  return {status, ReadFile(log)};
}

std::string Check(Stubs& stubs) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stubs.health->Check(&context, {}, &response);
  if (!status.ok()) return status.error_message();
  return grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
}

// A datagram socket that stands for systemd's.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path)
      : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof address.sun_path);
    path.copy(address.sun_path, path.size());
    REQUIRE(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  // Reads until a message has `line`; returns that message.
  std::string Await(const std::string& line) {
    for (;;) {
      std::array<char, 4096> buffer;
      const ssize_t n = recv(fd_.get(), buffer.data(), buffer.size(), 0);
      REQUIRE(n > 0);
      const std::string message(buffer.data(), static_cast<std::size_t>(n));
      if (("\n" + message + "\n").find("\n" + line + "\n") != std::string::npos) return message;
    }
  }

 private:
  share::UniqueFd fd_;
};

// An environment variable for the children, while it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("the command line") {
  TempDir dir;
  CHECK(RunHmmd(dir, {"--nonsense"}).status == 2);
  CHECK(RunHmmd(dir, {"--help"}).status == 0);
  CHECK(RunHmmd(dir, {"--version"}).status == 0);
  CHECK(RunHmmd(dir, {"--check-config", "--dir", dir.File("d")}).status == 0);
  CHECK(!std::filesystem::exists(dir.File("d")));  // looked, touched nothing

  dir.Write("bad.toml", "[daemon]\nlog_levle = \"info\"\n");
  for (const char* flag : {"--check-config", "--config"}) {
    const Ended ended = RunHmmd(
        dir, flag == std::string("--config")
                 ? std::vector<std::string>{"--config", dir.File("bad.toml")}
                 : std::vector<std::string>{"--check-config", "--config", dir.File("bad.toml")});
    CHECK(ended.status == 1);
    CHECK(ended.said.find("bad.toml:2: daemon.log_levle") != std::string::npos);
    CHECK(ended.said.find("log_level'") != std::string::npos);
  }
}

TEST_CASE("a second hmmd exits, says who runs, and leaves the first unaffected") {
  DaemonProcess first(HMMD_BINARY);
  TempDir scratch;
  const Ended second =
      RunHmmd(scratch, {"--config", first.dir() + "/hmmd.toml", "--dir", first.dir()});
  CHECK(second.status == 1);
  CHECK(second.said.find("pid " + std::to_string(first.pid())) != std::string::npos);
  Stubs stubs(first.dir(), "hmm.sock");
  CHECK(Check(stubs) == "SERVING");
  CHECK(RawSession(first.dir()).Attach().tier_count == 3);
  CHECK(first.Terminate() == 0);
}

TEST_CASE("a killed hmmd leaves sockets that its successor takes over") {
  DaemonProcess daemon(HMMD_BINARY);
  const std::uint64_t before = RawSession(daemon.dir()).Attach().boot_epoch;
  daemon.Kill();
  CHECK(std::filesystem::exists(daemon.dir() + "/hmm.sock"));
  daemon.Start();
  CHECK(RawSession(daemon.dir()).Attach().boot_epoch != before);
}

TEST_CASE("systemd hears of readiness, life and the end") {
  TempDir dir;
  NotifySocket systemd(dir.File("notify"));
  const Environment socket("NOTIFY_SOCKET", dir.File("notify"));
  const Environment watchdog("WATCHDOG_USEC", "20000");
  DaemonProcess daemon(HMMD_BINARY);
  CHECK(systemd.Await("READY=1").find("STATUS=hbm0 8 MiB (emulated)") != std::string::npos);
  systemd.Await("WATCHDOG=1");
  systemd.Await("WATCHDOG=1");
  CHECK(daemon.Terminate() == 0);
  systemd.Await("STOPPING=1");
}

TEST_CASE("sockets that systemd passes are adopted, and left to it") {
  TempDir dir;
  dir.Write("hmmd.toml", kSmallTiers);
  dir.Write("systemd/holds", "the sockets");
  const std::string units = dir.File("systemd");
  const auto listen_on = [&](const std::string& name, int type) {
    const share::UniqueFd listening(socket(AF_UNIX, type, 0));  // the child inherits it
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = units + "/" + name;
    REQUIRE(path.size() < sizeof address.sun_path);
    path.copy(address.sun_path, path.size());
    REQUIRE(bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0);
    REQUIRE(listen(listening.get(), 16) == 0);
    return share::UniqueFd(dup(listening.get()));
  };
  const share::UniqueFd memory = listen_on("hmm.sock", SOCK_STREAM);
  const share::UniqueFd session = listen_on("session.sock", SOCK_SEQPACKET);
  // As systemd does: descriptors from 3 on, names in their order, for this pid. By way of numbers
  // that neither is likely to have: whoever runs the test may have left descriptors open.
  const std::string activate =
      "exec 198<&" + std::to_string(memory.get()) + " 199<&" + std::to_string(session.get()) +
      " && exec 3<&198 4<&199 198<&- 199<&- && export LISTEN_PID=$$ LISTEN_FDS=2"
      " LISTEN_FDNAMES=hmm.sock:session.sock && exec \"$@\"";
  ChildProcess hmmd({"bash", "-c", activate, "activate", HMMD_BINARY, "--config",
                     dir.File("hmmd.toml"), "--dir", dir.path()},
                    dir.File("log"));
  REQUIRE(WaitUntil(
      [&] { return std::filesystem::exists(dir.File("admin.sock")) || !hmmd.Running(); }));
  INFO(ReadFile(dir.File("log")));
  REQUIRE(hmmd.Running());
  CHECK(!std::filesystem::exists(dir.File("hmm.sock")));
  {
    RawClient client(units);
    CHECK(client.Status().sessions() == 1);
    Stubs admin(dir.path(), "admin.sock");
    CHECK(Check(admin) == "SERVING");
  }
  hmmd.Signal(SIGTERM);
  CHECK(hmmd.Wait() == 0);
  CHECK(std::filesystem::exists(units + "/hmm.sock"));
  CHECK(std::filesystem::exists(units + "/session.sock"));
  CHECK(!std::filesystem::exists(dir.File("admin.sock")));
}

TEST_CASE("SIGHUP is survived") {
  DaemonProcess daemon(HMMD_BINARY);
  REQUIRE(kill(daemon.pid(), SIGHUP) == 0);
  CHECK(WaitUntil([&] { return daemon.Log().find("SIGHUP ignored") != std::string::npos; }));
  Stubs stubs(daemon.dir(), "hmm.sock");
  CHECK(Check(stubs) == "SERVING");
}

TEST_CASE("SIGTERM with a waiting call ends it, and the daemon, and removes the sockets") {
  DaemonProcess daemon(HMMD_BINARY);
  RawClient client(daemon.dir());
  // Larger than one session may pin, so that the second waits.
  client.Allocate(6 * kMiB);
  v1::AllocateRequest request;
  client.Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(6 * kMiB);
  request.set_wait(true);
  request.set_all(true);
  auto waiting = std::async(std::launch::async, [&] {
    v1::AllocateResponse response;
    return client.Allocate(request, response).error_code();
  });
  CHECK(daemon.Terminate() == 0);
  CHECK(waiting.get() != grpc::StatusCode::OK);
  CHECK(!std::filesystem::exists(daemon.dir() + "/hmm.sock"));
  CHECK(!std::filesystem::exists(daemon.dir() + "/session.sock"));
  CHECK(!std::filesystem::exists(daemon.dir() + "/admin.sock"));
}

TEST_CASE("a killed process is reaped though a child of it holds its socket") {
  DaemonProcess daemon(HMMD_BINARY);
  TempDir dir;
  ChildProcess peer({PEER_BINARY, daemon.dir(), dir.File("ready")}, dir.File("log"));
  CHECK(WaitUntil([&] { return ReadFile(dir.File("ready")).ends_with('\n'); }));
  const pid_t child = std::stoi(ReadFile(dir.File("ready")));
  CHECK(ReadBooks(daemon.dir()).sessions == 1);
  peer.Signal(SIGKILL);
  peer.Wait();
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()).sessions == 0; }));
  CHECK(kill(child, 0) == 0);  // it lived all the while
  kill(child, SIGKILL);
}

TEST_CASE("running out of descriptors is survived") {
  TempDir dir;
  dir.Write("hmmd.toml", kSmallTiers);
  ChildProcess hmmd({"prlimit", "--nofile=64:64", HMMD_BINARY, "--config", dir.File("hmmd.toml"),
                     "--dir", dir.path()},
                    dir.File("log"));
  REQUIRE(WaitUntil(
      [&] { return std::filesystem::exists(dir.File("session.sock")) || !hmmd.Running(); }));
  REQUIRE(hmmd.Running());
  Stubs before(dir.path(), "hmm.sock");
  REQUIRE(WaitUntil([&] { return Check(before) == "SERVING"; }));
  for (const char* socket : {"hmm.sock", "session.sock", "admin.sock"}) {
    const int type = socket == std::string("session.sock") ? SOCK_SEQPACKET : SOCK_STREAM;
    std::vector<share::UniqueFd> flood;
    for (int i = 0; i < 300; ++i) {
      // The queue may be full for a moment: the daemon empties it.
      WaitUntil([&] {
        flood.emplace_back(ConnectUnix(dir.File(socket), type));
        return flood.back().valid();
      });
      // A connection that was there before is served throughout.
      if (i % 50 == 0) CHECK(Check(before) == "SERVING");
    }
    flood.clear();
    // A new one is served at once.
    CHECK(WaitUntil([&] {
      Stubs after(dir.path(), "hmm.sock");
      return Check(after) == "SERVING";
    }));
    CHECK(WaitUntil([&] {
      RawSession session(dir.path());
      session.SendStruct(RawSession::GoodHello());
      return session.Receive().As<share::Welcome>().has_value();
    }));
    CHECK(WaitUntil([&] {
      Stubs admin(dir.path(), "admin.sock");
      return Check(admin) == "SERVING";
    }));
  }
  CHECK(hmmd.Running());
}

}  // namespace hmm::testing
