// SPDX-License-Identifier: Apache-2.0
//
// Tenants with sockets of their own, as pods have them: one uid, two directories, a real daemon.
#include <sys/stat.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "e2e/client_fixture.h"
#include "support/run_command.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;

// hbm0 is 8 MiB: pod-a may hold a quarter of it, pod-b all.
std::string TwoPods() {
  return std::string(kSmallTiers) +
         "[[tenant]]\nname = \"pod-a\"\nresident_max = { hbm0 = \"25%\" }\n"
         "[[tenant]]\nname = \"pod-b\"\nsocket_mode = \"0600\"\n";
}

std::vector<std::string> TenantsOf(const std::string& dir) {
  const auto stub = v1::Inspection::NewStub(client_internal::UnixChannel(dir + "/admin.sock"));
  grpc::ClientContext context;
  v1::ListSessionsResponse response;
  REQUIRE(stub->ListSessions(&context, {}, &response).ok());
  std::vector<std::string> tenants;
  for (const v1::SessionInfo& session : response.sessions()) tenants.push_back(session.tenant());
  return tenants;
}

unsigned ModeOf(const std::string& path) {
  struct stat status {};
  REQUIRE(lstat(path.c_str(), &status) == 0);
  REQUIRE(S_ISSOCK(status.st_mode));
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("two sockets, one uid, two tenants: no key, no handle, no memory in common") {
  DaemonProcess daemon(HMMD_BINARY, TwoPods());
  const std::string a_dir = daemon.dir() + "/pod-a";
  const std::string b_dir = daemon.dir() + "/pod-b";
  CHECK(ModeOf(a_dir + "/hmm.sock") == 0666);
  CHECK(ModeOf(b_dir + "/session.sock") == 0600);
  CHECK_FALSE(std::filesystem::exists(a_dir + "/admin.sock"));

  const auto a = ConnectTo(a_dir);
  const auto again = ConnectTo(a_dir);
  const auto b = ConnectTo(b_dir);
  const auto common = ConnectTo(daemon.dir());
  const std::string uid = "uid:" + std::to_string(geteuid());
  CHECK(TenantsOf(daemon.dir()) == std::vector<std::string>{"pod-a", "pod-a", "pod-b", uid});

  // One key, three tensors: each tenant has its own, and finds its own.
  const std::vector<std::string> keys = {"prefix"};
  Put(*a, 64 * kKiB, 1, "prefix");
  CHECK(b->Lookup(keys)->empty());
  CHECK(common->Lookup(keys)->empty());
  Put(*b, 64 * kKiB, 2, "prefix");
  Put(*common, 64 * kKiB, 3, "prefix");
  CHECK(HasPattern(a->Lookup(keys)->at(0).pin, 1));
  CHECK(HasPattern(again->Lookup(keys)->at(0).pin, 1));
  CHECK(HasPattern(b->Lookup(keys)->at(0).pin, 2));
  CHECK(HasPattern(common->Lookup(keys)->at(0).pin, 3));
}

TEST_CASE("hmmctl shows a tensor of the tenant that is meant, or asks which") {
  const DaemonProcess daemon(HMMD_BINARY, TwoPods());
  const auto a = ConnectTo(daemon.dir() + "/pod-a");
  const auto b = ConnectTo(daemon.dir() + "/pod-b");
  // The first tensor of each: one number, and one key. The second of pod-b is alone.
  Put(*a, 4 * kKiB, 1, "both ways");
  Put(*b, 8 * kKiB, 2, "both ways");
  Put(*b, 8 * kKiB, 3, "alone");
  const auto ctl = [&](const std::string& words) {
    return RunCommand("timeout -k 1 60 " HMMCTL_BINARY " --dir " + daemon.dir() + " " + words);
  };
  std::istringstream listed(ctl("tensor list -q --tenant pod-a").out);
  std::string handle;
  REQUIRE(std::getline(listed, handle));
  CHECK(ctl("tensor list -q --tenant pod-b").out.starts_with(handle + "\n"));
  for (const std::string verb : {"tensor show ", "explain "}) {
    for (const std::string& id : {handle, std::string("'both\\x20ways'")}) {
      INFO(verb << id);
      const Outcome which = ctl(verb + id);
      CHECK(which.code == 1);
      CHECK(which.out.empty());
      CHECK_THAT(which.err, Catch::Contains("pod-a, pod-b") && Catch::Contains("--tenant"));
      const std::string of_a = ctl(verb + id + " --tenant pod-a").out;
      CHECK_THAT(of_a, Catch::Contains("pod-a") && Catch::Contains("4KiB"));
      const std::string of_b = ctl(verb + id + " --tenant pod-b").out;
      CHECK_THAT(of_b, Catch::Contains("pod-b") && Catch::Contains("8KiB"));
    }
    CHECK_THAT(ctl(verb + "alone").out, Catch::Contains("pod-b"));
    CHECK_THAT(ctl(verb + "alone --tenant pod-a").err,
               Catch::Contains("tensor alone: no such tensor"));
    CHECK_THAT(ctl(verb + "alone --tenant pod-c").err, Catch::Contains("no tenant 'pod-c'"));
  }
}

TEST_CASE("a tenant's share holds it alone") {
  DaemonProcess daemon(HMMD_BINARY, TwoPods());
  const auto a = ConnectTo(daemon.dir() + "/pod-a");
  const auto b = ConnectTo(daemon.dir() + "/pod-b");
  const absl::Status over = a->Allocate({.bytes = 4 * kMiB}).status();
  CHECK(over.code() == StatusCode::kResourceExhausted);
  CHECK(ReasonOfStatus(over) == "QUOTA");
  CHECK(b->Allocate({.bytes = 4 * kMiB}).ok());
  // What is past its share goes down, and none of the other's does.
  std::vector<Tensor> own;
  for (std::uint64_t i = 0; i < 8; ++i) own.push_back(Put(*a, 512 * kKiB, i, std::to_string(i)));
  std::uint64_t in_hbm = 0;
  for (const Tensor& tensor : own) in_hbm += a->Describe(tensor)->tier == "hbm0" ? 512 * kKiB : 0;
  CHECK(in_hbm <= 2 * kMiB);
  CHECK(in_hbm >= 1 * kMiB);
}

TEST_CASE("a restarted daemon serves the same sockets; two daemons never share them") {
  const TempDir pods;
  const std::string config =
      std::string(kSmallTiers) + "[[tenant]]\nname = \"p\"\ndir = \"" + pods.path() + "/p\"\n";
  DaemonProcess daemon(HMMD_BINARY, config);
  CHECK(ConnectTo(pods.path() + "/p") != nullptr);
  TempDir other;
  other.Write("hmmd.toml", config);
  ChildProcess second({HMMD_BINARY, "--config", other.File("hmmd.toml"), "--dir", other.path()},
                      other.File("log"));
  CHECK(second.Wait() == 1);
  std::string said;
  std::getline(std::ifstream(other.File("log")), said, '\0');
  CHECK_THAT(said, Catch::Contains("tenant p") && Catch::Contains(std::to_string(daemon.pid())));
  CHECK(ConnectTo(pods.path() + "/p") != nullptr);
  daemon.Kill();
  daemon.Start();
  CHECK(ConnectTo(pods.path() + "/p") != nullptr);
  CHECK(daemon.Terminate() == 0);
  CHECK_FALSE(std::filesystem::exists(pods.path() + "/p/hmm.sock"));
  CHECK_FALSE(std::filesystem::exists(pods.path() + "/p/session.sock"));
}

}  // namespace hmm::testing
