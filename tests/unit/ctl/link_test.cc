// SPDX-License-Identifier: Apache-2.0
// hmmctl against a daemon's services played by the test, over a real unix socket.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "client/ctl/daemon_link.h"
#include "client/ctl/verbs.h"
#include "google/rpc/errors.pb.h"
#include "hmm/v1/admin.grpc.pb.h"
#include "hmm/v1/inspection.grpc.pb.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::json;

class TempDir {
 public:
  TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "hmmctl_XXXXXX").string();
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr int kPages = 3;
constexpr int kPerPage = 4;

grpc::Status WithReason(grpc::StatusCode code, const char* reason, const std::string& message) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("hmm");
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return {code, message, details.SerializeAsString()};
}

class FakeInspection final : public v1::Inspection::Service {
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_epoch(77);
    response->set_uptime_ms(1000);
    return grpc::Status::OK;
  }
  grpc::Status ListTiers(grpc::ServerContext*, const v1::ListTiersRequest*,
                         v1::ListTiersResponse* response) override {
    if (stopped) return {grpc::StatusCode::DEADLINE_EXCEEDED, ""};
    response->add_tiers()->set_name("hbm0");
    response->add_tiers()->set_name("ddr0");
    return grpc::Status::OK;
  }
  grpc::Status ListTensors(grpc::ServerContext*, const v1::ListTensorsRequest* request,
                           v1::ListTensorsResponse* response) override {
    if (request->tier() == "loop") {
      response->set_next_page_token("again");
      return grpc::Status::OK;
    }
    const int page = request->page_token().empty() ? 0 : std::stoi(request->page_token());
    for (int i = 0; i < kPerPage; ++i) {
      v1::TensorInfo* tensor = response->add_tensors();
      const int number = page * kPerPage + i;
      tensor->set_handle(100 + static_cast<std::uint64_t>(number));
      tensor->set_key("key " + std::to_string(number));
    }
    if (page + 1 < kPages) response->set_next_page_token(std::to_string(page + 1));
    return grpc::Status::OK;
  }
  // Handle 109 and key "k 109" are one tensor, key "88" another; handle 7 is two tenants'.
  grpc::Status Explain(grpc::ServerContext*, const v1::ExplainRequest* request,
                       v1::ExplainResponse* response) override {
    const bool named = request->handle() == 109 || request->key() == "k 109";
    if (request->handle() == 7 && request->tenant().empty()) {
      return WithReason(grpc::StatusCode::INVALID_ARGUMENT, "BAD_ARGUMENT", "a, b have one each");
    }
    if (!named && request->handle() != 7 && request->key() != "88") {
      return WithReason(grpc::StatusCode::NOT_FOUND, "NOT_FOUND", "no such tensor");
    }
    response->mutable_tensor()->set_handle(named ? 109 : request->handle());
    response->mutable_tensor()->set_key(request->key());
    response->mutable_tensor()->set_tenant(request->tenant());
    return grpc::Status::OK;
  }
  // Ends as the request's number says.
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    writer->Write({});
    switch (request->after_sequence()) {
      case 1:
        return WithReason(grpc::StatusCode::RESOURCE_EXHAUSTED, "SLOW_WATCHER", "too fast");
      case 2:
        return WithReason(grpc::StatusCode::OUT_OF_RANGE, "EVENTS_GONE", "not kept");
      default:
        context->TryCancel();
        return grpc::Status::CANCELLED;
    }
  }

 public:
  std::atomic<bool> stopped = false;
};

class FakeAdmin final : public v1::Admin::Service {
  grpc::Status Evict(grpc::ServerContext*, const v1::EvictRequest* request,
                     v1::EvictResponse*) override {
    return WithReason(grpc::StatusCode::NOT_FOUND, "NOT_FOUND",
                      "tier " + request->tier() + ": not found");
  }
};

class FakeDaemon {
 public:
  FakeDaemon() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + dir() + "/admin.sock", grpc::InsecureServerCredentials());
    builder.RegisterService(&inspection_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  const std::string& dir() const { return dir_.path(); }
  FakeInspection& inspection() { return inspection_; }

 private:
  TempDir dir_;
  FakeInspection inspection_;
  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
};

// What a verb writes to standard output.
std::string Output(const Command& command, absl::StatusOr<int>* result = nullptr) {
  const TempDir dir;
  const std::string path = dir.path() + "/out";
  std::fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  REQUIRE(std::freopen(path.c_str(), "w", stdout) != nullptr);
  const absl::StatusOr<int> done = Run(command);
  std::fflush(stdout);
  REQUIRE(dup2(saved, STDOUT_FILENO) >= 0);
  close(saved);
  if (result != nullptr) *result = done;
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

Command Make(const FakeDaemon& daemon, Verb verb, Format format = Format::kJson) {
  Command command;
  command.verb = verb;
  command.dir = daemon.dir();
  command.format = format;
  return command;
}

TEST_CASE("nobody there: where it looked, and how to start one") {
  const TempDir dir;
  const absl::Status status = DaemonLink::Connect(dir.path()).status();
  CHECK(ReasonOf(status) == Reason::kNoDaemon);
  CHECK(absl::IsUnavailable(status));
  const std::string message(status.message());
  CHECK_THAT(message, Contains(dir.path() + "/admin.sock") &&
                          Contains("'hmmd --dir " + dir.path() + "'") &&
                          Contains("systemctl start hmmd"));
}

TEST_CASE("a socket that nobody listens on, and a path too long for one") {
  const TempDir dir;
  std::ofstream(dir.path() + "/admin.sock") << "";
  CHECK(ReasonOf(DaemonLink::Connect(dir.path()).status()) == Reason::kNoDaemon);
  const absl::Status status = DaemonLink::Connect(std::string(200, 'x')).status();
  CHECK(ReasonOf(status) == Reason::kBadArgument);
}

TEST_CASE("a tenant's directory: hmmctl needs the daemon's own") {
  const TempDir dir;
  std::ofstream(dir.path() + "/session.sock") << "";
  const absl::Status status = DaemonLink::Connect(dir.path()).status();
  CHECK(ReasonOf(status) == Reason::kRefused);
  CHECK_THAT(std::string(status.message()),
             Contains("tenant's directory") && Contains("--dir") && !Contains("start one"));
}

TEST_CASE("a watch that the daemon ends: by which name, and what to do") {
  FakeDaemon daemon;
  const auto ended = [&](std::uint64_t how) {
    Command command = Make(daemon, Verb::kEvents, Format::kTable);
    command.events.after = how;
    absl::StatusOr<int> result = 0;
    Output(command, &result);
    return result.status();
  };
  CHECK(ended(1).message() == "SLOW_WATCHER: too fast (--type, --tier, --tenant)");
  CHECK(ended(2).message() == "EVENTS_GONE: not kept; list anew, then watch without --after");
  // Broken off: the status of one that reads nothing is lost.
  CHECK(ReasonOf(ended(3)) == Reason::kSlowWatcher);
  CHECK_THAT(std::string(ended(3).message()), Catch::StartsWith("SLOW_WATCHER: "));
  daemon.inspection().stopped = true;
  CHECK_THAT(std::string(ended(3).message()), Contains("did not answer within"));
}

TEST_CASE("lists go through all pages") {
  const FakeDaemon daemon;
  const json all = json::parse(Output(Make(daemon, Verb::kTensorList)));
  REQUIRE(all["tensors"].size() == kPages * kPerPage);
  CHECK(all["tensors"].back()["handle"] == 100 + kPages * kPerPage - 1);

  Command ids = Make(daemon, Verb::kTensorList);
  ids.ids_only = true;
  const std::string lines = Output(ids);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == kPages * kPerPage);
  CHECK(lines.rfind("100\n101\n", 0) == 0);

  Command tiers = Make(daemon, Verb::kTierList);
  tiers.ids_only = true;
  CHECK(Output(tiers) == "hbm0\nddr0\n");
}

TEST_CASE("a list whose pages never end is cut") {
  const FakeDaemon daemon;
  Command command = Make(daemon, Verb::kTensorList);
  command.select.tier = "loop";
  absl::StatusOr<int> result = 0;
  Output(command, &result);
  CHECK(ReasonOf(result.status()) == Reason::kProtocol);
}

TEST_CASE("one tensor by handle or by key, and whose where several have it") {
  const FakeDaemon daemon;
  for (const Verb verb : {Verb::kTensorShow, Verb::kExplain}) {
    Command command = Make(daemon, verb);
    for (const char* id : {"109", "k 109", "k\\x20109"}) {
      command.tensor = id;
      CHECK(json::parse(Output(command))["tensor"]["handle"] == 109);
    }
    command.tensor = "88";  // no handle, so it may be a key
    CHECK(json::parse(Output(command))["tensor"]["key"] == "88");
    absl::StatusOr<int> result = 0;
    command.tensor = "nothing";
    CHECK(Output(command, &result).empty());
    CHECK(absl::IsNotFound(result.status()));
    CHECK(result.status().message() == "tensor nothing: no such tensor");
    command.tensor = "7";
    CHECK(Output(command, &result).empty());
    CHECK(ReasonOf(result.status()) == Reason::kBadArgument);
    CHECK(result.status().message() == "tensor 7: a, b have one each (--tenant)");
    command.select.tenant = "b";
    CHECK(json::parse(Output(command))["tensor"]["tenant"] == "b");
  }
}

TEST_CASE("the daemon's errors keep code, reason and words") {
  const FakeDaemon daemon;
  Command command = Make(daemon, Verb::kEvict);
  command.tier = "x0";
  absl::StatusOr<int> result = 0;
  CHECK(Output(command, &result).empty());
  CHECK(absl::IsNotFound(result.status()));
  CHECK(ReasonOf(result.status()) == Reason::kNotFound);
  CHECK(result.status().message() == "tier x0: not found");
  Output(Make(daemon, Verb::kDrain), &result);
  CHECK(absl::IsUnimplemented(result.status()));
}

TEST_CASE("stat prints count reports") {
  const FakeDaemon daemon;
  Command command = Make(daemon, Verb::kStat);
  command.interval_s = 0.01;
  command.count = 3;
  const std::string lines = Output(command);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  command.interval_s = 0;
  const std::string one = Output(command);
  CHECK(json::parse(one)["seconds"] == 1.0);
}

TEST_CASE("status in both formats") {
  const FakeDaemon daemon;
  CHECK(json::parse(Output(Make(daemon, Verb::kStatus)))["epoch"] == 77);
  CHECK_THAT(Output(Make(daemon, Verb::kStatus, Format::kTable)), Contains("epoch 77"));
}

}  // namespace
}  // namespace hmm::ctl
