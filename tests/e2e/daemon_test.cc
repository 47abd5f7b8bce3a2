// SPDX-License-Identifier: Apache-2.0
//
// hmmd as a process: its command line, systemd's protocol, descriptors running out, processes that
// die.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/daemon_process.h"
#include "support/read_file.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

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
  // An empty name is no name: it must not become the default.
  for (const std::string flag : {"--dir", "--config", "--docs"}) {
    const Ended ended = RunHmmd(dir, {"--check-config", flag, ""});
    CHECK(ended.status == 2);
    CHECK_THAT(ended.said, Catch::Contains("hmmd: " + flag + ": an empty name"));
  }
  CHECK(RunHmmd(dir, {"--check-config", "--dir="}).status == 2);
  const Ended docs = RunHmmd(dir, {"--docs", "nope"});
  CHECK(docs.status == 2);
  CHECK_THAT(docs.said, Catch::Contains("hmmd: --docs: nope"));
  CHECK(RunHmmd(dir, {"--help"}).status == 0);
  CHECK(RunHmmd(dir, {"--version"}).status == 0);
  CHECK(RunHmmd(dir, {"--check-config", "--dir", dir.File("d")}).status == 0);
  CHECK(!std::filesystem::exists(dir.File("d")));  // looked, touched nothing
  dir.Write("file", "");
  for (const std::string& nowhere : {std::string("/proc/nowhere"), dir.File("file/d")}) {
    const Ended ended = RunHmmd(dir, {"--dir", nowhere});
    CHECK(ended.status == 1);
    CHECK_THAT(ended.said, Catch::Contains("daemon.dir: " + nowhere) &&
                               Catch::Contains("with --dir, $HMM_DIR") &&
                               !Catch::Contains("tier flash0"));
  }

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

TEST_CASE("log lines in JSON: each is one object of the documented fields") {
  const TempDir dir;
  dir.Write("hmmd.toml", "[daemon]\nlog_format = \"json\"\n" +
                             std::string(kSmallTiers).substr(std::string("\n[daemon]\n").size()));
  // A directory's name that could end a string or a line, and that is no UTF-8.
  const std::string text = "a\"b\\c\n\t\x01\x7f\u00e9";
  const std::string odd = dir.File(text + "\xff\xc3");
  ChildProcess hmmd({HMMD_BINARY, "--config", dir.File("hmmd.toml"), "--dir", odd},
                    dir.File("log"));
  REQUIRE(
      WaitUntil([&] { return ReadFile(dir.File("log")).find(" serves ") != std::string::npos; }));
  RawSession stranger(odd);
  stranger.SendStruct(share::Welcome{});  // no Hello
  CHECK(stranger.Receive().descriptors.empty());
  hmmd.Signal(SIGTERM);
  REQUIRE(hmmd.Wait() == 0);

  std::istringstream lines(ReadFile(dir.File("log")));
  std::size_t count = 0;
  std::string messages;
  for (std::string line; std::getline(lines, line); ++count) {
    INFO(line);
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    REQUIRE_FALSE(entry.is_discarded());
    REQUIRE(entry.is_object());
    CHECK(entry.size() == 5);
    CHECK_THAT(entry.at("time").get<std::string>(),
               Catch::Matches("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z"));
    CHECK(entry.at("pid") == hmmd.pid());
    const std::map<std::string, int> priorities = {
        {"debug", 7}, {"info", 6}, {"warn", 4}, {"error", 3}};
    REQUIRE(priorities.contains(entry.at("level").get<std::string>()));
    CHECK(entry.at("priority") == priorities.at(entry.at("level").get<std::string>()));
    messages += entry.at("message").get<std::string>() + "\n";
  }
  INFO(messages);
  CHECK(count >= 4);
  CHECK_THAT(messages, Catch::Contains(" in " + dir.File(text) + "\uFFFD\uFFFD") &&
                           Catch::Contains(" closed: a message of ") &&
                           Catch::Contains("signal 15") && Catch::EndsWith("stopped\n"));
}

TEST_CASE("a second hmmd exits, says who runs, and leaves the first unaffected", "[case 17]") {
  DaemonProcess first(HMMD_BINARY);
  RawClient before(first.dir());
  const std::uint64_t handle = before.Allocate(4 * kKiB);
  TempDir scratch;
  const Ended second =
      RunHmmd(scratch, {"--config", first.dir() + "/hmmd.toml", "--dir", first.dir()});
  CHECK(second.status == 1);
  CHECK(second.said.find("pid " + std::to_string(first.pid())) != std::string::npos);
  Stubs stubs(first.dir(), "hmm.sock");
  CHECK(Check(stubs) == "SERVING");
  CHECK(RawSession(first.dir()).Attach().tier_count == 3);
  before.SealAndUnpin(handle);
  CHECK(before.Free(handle) == "OK");
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

TEST_CASE("a machine of odd nodes: it starts, warns and serves", "[case 21]") {
  struct Machine {
    const char* file;
    int node;  // without CPUs; forbidden by the cpuset
    const char* warning;
  };
  for (const Machine& machine : {Machine{"cpuless_node.xml", 2, ""},
                                 Machine{"cpuset_one_node.xml", 1, "forbids NUMA node 1"}}) {
    INFO(machine.file);
    const Environment description("HWLOC_XMLFILE",
                                  HMM_TOPOLOGY_DATA "/" + std::string(machine.file));
    std::string config = kSmallTiers;
    const std::string name = "name = \"ddr0\"\n";
    config.insert(config.find(name), "numa_node = " + std::to_string(machine.node) + "\n");
    DaemonProcess daemon(HMMD_BINARY, config);
    CHECK(daemon.Log().find(machine.warning) != std::string::npos);
    v1::GetTopologyResponse topology;
    grpc::ClientContext context;
    Stubs admin(daemon.dir(), "admin.sock");
    REQUIRE(admin.inspection->GetTopology(&context, {}, &topology).ok());
    REQUIRE(topology.nodes_size() > machine.node);
    const v1::MemoryNode& node = topology.nodes(machine.node);
    CHECK((node.cpuless() || node.forbidden()));
    RawClient client(daemon.dir());
    v1::AllocateRequest request;
    client.Stamp(request.mutable_call());
    request.add_tensors()->set_bytes(64 * kKiB);
    request.set_tier("ddr0");
    v1::AllocateResponse response;
    REQUIRE(client.Allocate(request, response).ok());
    CHECK(CodeAndReason(response.results(0).error()) == "OK");
    CHECK(daemon.Terminate() == 0);
  }
}

TEST_CASE("SIGHUP is survived") {
  DaemonProcess daemon(HMMD_BINARY);
  REQUIRE(kill(daemon.pid(), SIGHUP) == 0);
  CHECK(WaitUntil([&] { return daemon.Log().find("SIGHUP ignored") != std::string::npos; }));
  Stubs stubs(daemon.dir(), "hmm.sock");
  CHECK(Check(stubs) == "SERVING");
}

TEST_CASE("SIGTERM with a waiting call ends it, and the daemon, and removes the sockets",
          "[case 19]") {
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

TEST_CASE("a killed process is reaped though a child of it holds its socket", "[case 35]") {
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

TEST_CASE("running out of descriptors is survived", "[case 18]") {
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
    // New ones are served within a second of the flood's end, on every socket.
    const auto ended = std::chrono::steady_clock::now();
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
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - ended);
    std::printf("300 connections to %s at a limit of 64 files: served again after %lld ms\n",
                socket, static_cast<long long>(took.count()));
    CHECK(took < std::chrono::seconds(1));
  }
  CHECK(hmmd.Running());
}

}  // namespace hmm::testing
