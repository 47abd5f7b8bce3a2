// SPDX-License-Identifier: Apache-2.0
#include "rpc/fixture.h"

#include <chrono>

#include "absl/status/status.h"
#include "base/status.h"
#include "daemon/authenticate.h"
#include "google/rpc/errors.pb.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

using std::chrono::seconds;

std::string Join(int code, const std::string& reason) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) + "/" + reason;
}

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  REQUIRE(details.ParseFromString(status.error_details()));
  return details;
}

template <typename Message>
Message DetailOf(const grpc::Status& status) {
  Message message;
  const google::rpc::Status details = DetailsOf(status);
  for (const auto& any : details.details()) {
    if (any.Is<Message>()) any.UnpackTo(&message);
  }
  return message;
}

daemon::TierConfig Tier(const std::string& name, const std::string& kind, Bytes capacity) {
  daemon::TierConfig tier;
  tier.name = name;
  tier.kind = kind;
  tier.emulated = kind == "hbm";
  tier.capacity.bytes = capacity;
  tier.reserve = {};
  tier.commit_chunk = 64 * kKiB;
  tier.pages = "small";
  return tier;
}

}  // namespace

daemon::Config SmallConfig(const std::string& dir) {
  daemon::Config config;
  config.dir = dir;
  config.state_dir = dir + "/state";
  config.commit_headroom = 16 * kMiB;
  config.calibrate = "never";  // a second less for each of many daemons
  config.limits.max_tensors = 4096;
  config.tiers = {Tier("hbm0", "hbm", 2 * kMiB), Tier("ddr0", "ddr", 4 * kMiB),
                  Tier("flash0", "flash", 8 * kMiB)};
  return config;
}

InProcessDaemon::InProcessDaemon(const std::function<void(daemon::Config&)>& change) {
  daemon::Config config = SmallConfig(dir_.path());
  change(config);
  const auto resources = daemon::DetectResources();
  REQUIRE(resources.ok());
  const absl::Status checked = daemon::CheckConfig(config, *resources);
  INFO(checked.ToString());
  REQUIRE(checked.ok());
  auto started = daemon::Daemon::Start(config);
  INFO(started.status().ToString());
  REQUIRE(started.ok());
  daemon_ = *std::move(started);
}

std::string CodeAndReason(const grpc::Status& status) {
  if (status.ok()) return "OK";
  if (status.error_details().empty()) return Join(status.error_code(), "");
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  CHECK(info.domain() == "hmm");
  CHECK(DetailsOf(status).code() == status.error_code());
  CHECK(DetailsOf(status).message() == status.error_message());
  return Join(status.error_code(), info.reason());
}

std::string CodeAndReason(const v1::ElementError& error) {
  return error.code() == 0 ? "OK" : Join(error.code(), error.reason());
}

std::uint64_t EpochOf(const grpc::Status& status) {
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  const auto found = info.metadata().find("epoch");
  return found == info.metadata().end() ? 0 : std::stoull(found->second);
}

std::uint64_t RetryMsOf(const grpc::Status& status) {
  const auto retry = DetailOf<google::rpc::RetryInfo>(status);
  return static_cast<std::uint64_t>(retry.retry_delay().seconds() * 1000 +
                                    retry.retry_delay().nanos() / 1'000'000);
}

Stubs::Stubs(const std::string& dir, const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel = grpc::CreateCustomChannel("unix:" + dir + "/" + socket,
                                                 grpc::InsecureChannelCredentials(), arguments);
  memory = v1::Memory::NewStub(channel);
  regions = v1::Regions::NewStub(channel);
  inspection = v1::Inspection::NewStub(channel);
  admin = v1::Admin::NewStub(channel);
  health = grpc::health::v1::Health::NewStub(channel);
}

RawClient::RawClient(const std::string& dir)
    : session_(dir), welcome_(session_.Attach()), stubs_(dir, "hmm.sock") {}

std::string RawClient::token() const {
  return {reinterpret_cast<const char*>(welcome_.token.data()), welcome_.token.size()};
}

std::unique_ptr<grpc::ClientContext> RawClient::Context() const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->AddMetadata(std::string(daemon::kTokenKey), token());
  context->set_deadline(std::chrono::system_clock::now() + seconds(20));
  return context;
}

std::uint64_t RawClient::Allocate(std::uint64_t bytes, const std::string& key) {
  v1::AllocateRequest request;
  Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(bytes);
  request.mutable_tensors(0)->set_key(key);
  v1::AllocateResponse response;
  const grpc::Status status = Allocate(request, response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  REQUIRE(response.results_size() == 1);
  INFO(response.results(0).ShortDebugString());
  REQUIRE(!response.results(0).has_error());
  return response.results(0).handle();
}

grpc::Status RawClient::Allocate(const v1::AllocateRequest& request,
                                 v1::AllocateResponse& response) {
  return stubs_.memory->Allocate(Context().get(), request, &response);
}

std::string RawClient::Free(std::uint64_t handle) {
  v1::FreeRequest request;
  request.add_handles(handle);
  v1::FreeResponse response;
  const grpc::Status status = stubs_.memory->Free(Context().get(), request, &response);
  if (!status.ok()) return CodeAndReason(status);
  REQUIRE(response.results_size() == 1);
  return response.results(0).deferred() ? "OK deferred"
                                        : CodeAndReason(response.results(0).error());
}

void RawClient::SealAndUnpin(std::uint64_t handle) {
  v1::SealRequest request;
  request.add_items()->set_handle(handle);
  request.mutable_items(0)->set_unpin(true);
  v1::SealResponse response;
  REQUIRE(stubs_.memory->Seal(Context().get(), request, &response).ok());
  REQUIRE(response.results_size() == 1);
  REQUIRE(!response.results(0).has_error());
}

void RawClient::ReleaseLast() {
  v1::ReleaseRequest request;
  request.set_call_id(last_call_);
  v1::ReleaseResponse response;
  REQUIRE(stubs_.memory->Release(Context().get(), request, &response).ok());
  REQUIRE(response.undone() == 1);
}

v1::GetStatusResponse RawClient::Status() const {
  v1::GetStatusResponse response;
  REQUIRE(stubs_.inspection->GetStatus(Context().get(), {}, &response).ok());
  return response;
}

Books ReadBooks(const std::string& dir) {
  const Stubs stubs(dir, "admin.sock");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  v1::GetStatusResponse status;
  const grpc::Status read = stubs.inspection->GetStatus(&context, {}, &status);
  INFO(read.error_message());
  REQUIRE(read.ok());
  Books books{.pins = status.pins(), .tensors = status.tensors(), .sessions = status.sessions()};
  for (const v1::TierInfo& tier : status.tiers()) {
    books.used += tier.used_bytes();
    CHECK(tier.free_bytes() + tier.committed_free_bytes() + tier.creating_bytes() +
              tier.resident_bytes() + tier.moving_bytes() + tier.reserved_bytes() ==
          tier.capacity_bytes());
  }
  return books;
}

}  // namespace hmm::testing
