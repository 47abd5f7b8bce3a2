// SPDX-License-Identifier: Apache-2.0
//
// Topology, calibration and several tiers of a kind in a whole daemon.
#include <sys/syscall.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/status.h"
#include "daemon/authenticate.h"
#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/refuse_syscall.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<grpc::ClientContext> Context() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + seconds(30));
  return context;
}

v1::GetTopologyResponse Topology(const std::string& dir) {
  v1::GetTopologyResponse response;
  const grpc::Status status =
      Stubs(dir, "admin.sock").inspection->GetTopology(Context().get(), {}, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return response;
}

grpc::Status Calibrate(const std::string& dir, v1::CalibrateResponse& response) {
  return Stubs(dir, "admin.sock").admin->Calibrate(Context().get(), {}, &response);
}

std::string Shown(const v1::GetTopologyResponse& topology) {
  std::string out;
  for (const v1::TierPlace& tier : topology.tiers()) {
    out += tier.name() + std::to_string(tier.rank()) + ">" + tier.demote_to() + " ";
  }
  return out;
}

std::string Text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

daemon::TierConfig Like(const daemon::TierConfig& tier, const std::string& name) {
  daemon::TierConfig copy = tier;
  copy.name = name;
  return copy;
}

// hbm0, hbm1 -> ddr0 -> ddr_remote (a link of 32 MiB/s) -> flash0
void ManyTiers(daemon::Config& config) {
  daemon::TierConfig remote = Like(config.tiers[1], "ddr_remote");
  remote.emulated = true;
  remote.link_bandwidth = 32 * kMiB;
  config.tiers.insert(config.tiers.begin() + 1, Like(config.tiers[0], "hbm1"));
  config.tiers.insert(config.tiers.begin() + 2, remote);  // before ddr0: it is put behind it
}

// A daemon on a directory that outlives it.
std::unique_ptr<daemon::Daemon> StartOn(const std::string& dir, unsigned copy_threads = 2) {
  daemon::Config config = SmallConfig(dir);
  config.calibrate = "cached";
  config.copy_threads = copy_threads;
  config.limits.calibration.budget = seconds(2);  // enough on a busy machine
  const auto resources = daemon::DetectResources();
  REQUIRE(resources.ok());
  REQUIRE(daemon::CheckConfig(config, *resources).ok());
  auto started = daemon::Daemon::Start(config);
  INFO(started.status().ToString());
  REQUIRE(started.ok());
  return *std::move(started);
}

TEST_CASE("GetTopology shows nodes, tiers and the way down; nothing is measured unasked") {
  const InProcessDaemon daemon;
  const v1::GetTopologyResponse topology = Topology(daemon.dir());
  CHECK(topology.epoch() != 0);
  CHECK(topology.nodes_size() >= 1);
  CHECK(Shown(topology) == "hbm00>ddr0 ddr01>flash0 flash02> ");
  CHECK(topology.tiers(0).emulated());
  CHECK(topology.tiers(0).numa_node() == -1);
  CHECK(topology.tiers(1).capacity_bytes() == 4 * kMiB);
  CHECK(topology.links_size() == 0);
  CHECK(topology.measured_unix_ms() == 0);
}

TEST_CASE("a tenant sees it with its token only, and cannot calibrate") {
  const InProcessDaemon daemon;
  RawClient client(daemon.dir());
  v1::GetTopologyResponse topology;
  CHECK(client.stubs().inspection->GetTopology(client.Context().get(), {}, &topology).ok());
  CHECK(topology.tiers_size() == 3);
  CHECK(CodeAndReason(client.stubs().inspection->GetTopology(Context().get(), {}, &topology)) ==
        "UNAUTHENTICATED/MISSING_TOKEN");
  v1::CalibrateResponse none;
  CHECK(client.stubs().admin->Calibrate(client.Context().get(), {}, &none).error_code() ==
        grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("what was measured is kept, and measured anew when it cannot be believed") {
  const TempDir dir;
  const std::string file = dir.File("state/calibration.json");
  const auto written = [&] { return WaitUntil([&] { return !Text(file).empty(); }); };
  v1::GetTopologyResponse first;
  {
    const auto daemon = StartOn(dir.path());
    first = Topology(dir.path());
    REQUIRE(first.links_size() == 4);
    for (const v1::LinkModel& link : first.links()) {
      INFO(link.ShortDebugString());
      CHECK(link.curve_size() >= 1);
      CHECK(link.contention_group() >= 1);
    }
    CHECK_FALSE(first.from_file());
    CHECK(first.measured_unix_ms() > 0);
    CHECK(ReadBooks(dir.path()).used == 0);
    REQUIRE(written());
  }
  {
    const auto daemon = StartOn(dir.path());
    const v1::GetTopologyResponse again = Topology(dir.path());
    CHECK(again.from_file());
    CHECK(again.measured_unix_ms() == first.measured_unix_ms());
    REQUIRE(again.links_size() == 4);
    for (int i = 0; i < 4; ++i) {
      CHECK(again.links(i).SerializeAsString() == first.links(i).SerializeAsString());
    }
  }
  const std::string good = Text(file);
  SECTION("another configuration") {
    const auto daemon = StartOn(dir.path(), 1);
    CHECK_FALSE(Topology(dir.path()).from_file());
    CHECK(WaitUntil([&] { return Text(file) != good; }));
    CHECK_THAT(Text(file), Contains("memory copier: 1 threads"));
  }
  SECTION("a byte of it changed") {
    std::string bad = good;
    bad[bad.find("bytes_per_s") + 16] ^= 1;
    dir.Write("state/calibration.json", bad);
    const auto daemon = StartOn(dir.path());
    CHECK_FALSE(Topology(dir.path()).from_file());
    CHECK(WaitUntil([&] { return Text(file) != bad; }));
  }
  SECTION("half of it") {
    dir.Write("state/calibration.json", good.substr(0, good.size() / 2));
    const auto daemon = StartOn(dir.path());
    CHECK_FALSE(Topology(dir.path()).from_file());
  }
  SECTION("not ours at all") {
    dir.Write("state/calibration.json", std::string("\0\xFF{}", 4));
    const auto daemon = StartOn(dir.path());
    CHECK_FALSE(Topology(dir.path()).from_file());
  }
}

TEST_CASE("several devices, and a remote pool with a link of its own") {
  InProcessDaemon daemon([](daemon::Config& config) {
    ManyTiers(config);
    config.limits.calibration.budget = seconds(2);
  });
  CHECK(Shown(Topology(daemon.dir())) ==
        "hbm00>ddr0 hbm10>ddr0 ddr01>ddr_remote ddr_remote2>flash0 flash03> ");
  v1::CalibrateResponse measured;
  const grpc::Status status = Calibrate(daemon.dir(), measured);
  INFO(status.error_message());
  REQUIRE(status.ok());
  REQUIRE(measured.links_size() == 8);
  for (const v1::LinkModel& link : measured.links()) {
    INFO(link.ShortDebugString());
    if (link.from() != "ddr_remote" && link.to() != "ddr_remote") continue;
    CHECK(link.contention_group() > 1);
    REQUIRE(link.curve_size() > 0);
    for (const v1::RatePoint& point : link.curve()) CHECK(point.bytes_per_s() <= 32 * kMiB);
  }
  const v1::GetTopologyResponse after = Topology(daemon.dir());
  CHECK(after.links_size() == 8);
  CHECK_FALSE(after.from_file());
}

TEST_CASE("a session's device decides where its tensors go") {
  const InProcessDaemon daemon(ManyTiers);
  RawSession session(daemon.dir());
  const share::Welcome welcome = session.Attach("hbm1");
  const Stubs stubs(daemon.dir(), "hmm.sock");
  const auto context = Context();
  context->AddMetadata(
      std::string(daemon::kTokenKey),
      std::string(reinterpret_cast<const char*>(welcome.token.data()), welcome.token.size()));
  v1::AllocateRequest request;
  request.mutable_call()->set_call_id(1);
  request.add_tensors()->set_bytes(4096);
  v1::AllocateResponse response;
  REQUIRE(stubs.memory->Allocate(context.get(), request, &response).ok());
  REQUIRE_FALSE(response.results(0).has_error());
  CHECK(response.results(0).location().tier() == 1);
  CHECK(Topology(daemon.dir()).tiers(1).name() == "hbm1");
}

TEST_CASE("calibrating: one at a time, and a caller that hangs up stops it") {
  InProcessDaemon daemon(
      [](daemon::Config& config) { config.limits.calibration.budget = seconds(20); });
  const Stubs stubs(daemon.dir(), "admin.sock");
  auto hasty = std::make_unique<grpc::ClientContext>();
  hasty->set_deadline(std::chrono::system_clock::now() + milliseconds(1500));
  grpc::Status first;
  std::thread caller([&] {
    v1::CalibrateResponse none;
    first = stubs.admin->Calibrate(hasty.get(), {}, &none);
  });
  const bool began = WaitUntil([&] { return ReadBooks(daemon.dir()).used > 0; });
  v1::CalibrateResponse none;
  const grpc::Status other = Calibrate(daemon.dir(), none);
  caller.join();
  REQUIRE(began);
  CHECK_FALSE(first.ok());
  CHECK(CodeAndReason(other) == "UNAVAILABLE/QUEUE_FULL");
  CHECK(RetryMsOf(other) > 0);
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()).used == 0; }));
}

TEST_CASE("stopping a daemon that calibrates takes no longer than any other") {
  InProcessDaemon daemon(
      [](daemon::Config& config) { config.limits.calibration.budget = seconds(60); });
  grpc::Status status;
  std::thread caller([&] {
    v1::CalibrateResponse none;
    status = Calibrate(daemon.dir(), none);
  });
  REQUIRE(WaitUntil([&] { return ReadBooks(daemon.dir()).used > 0; }));
  daemon.daemon().Stop();
  caller.join();
  CHECK_FALSE(status.ok());
}

TEST_CASE("a node that mbind refuses is announced, and the daemon serves", "[case 21]") {
  std::unique_ptr<InProcessDaemon> daemon;
  bool filtered = false;
  std::thread([&] {
    filtered = RefuseSyscall(SYS_mbind, EPERM);
    if (!filtered) return;
    daemon = std::make_unique<InProcessDaemon>(
        [](daemon::Config& config) { config.tiers[1].numa_node = 0; });
  }).join();
  if (!filtered) {
    WARN("this system takes no system call filter");
    return;
  }
  RawClient client(daemon->dir());
  CHECK(client.Allocate(4096) != 0);
  const v1::TierInfo ddr = client.Status().tiers(1);
  CHECK(ddr.state() == "degraded");
  CHECK_THAT(ddr.note(), Contains("not bound to its NUMA node: mbind to node 0"));
}

}  // namespace
}  // namespace hmm::testing
