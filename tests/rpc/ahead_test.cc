// SPDX-License-Identifier: Apache-2.0
//
// AllocateRequest.ahead and .taken over the wire: what comes back, what Describe says of it, and
// what is refused.
#include "rpc/fixture.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

v1::TensorInfo Describe(RawClient& client, std::uint64_t handle) {
  v1::DescribeRequest request;
  request.add_handles(handle);
  v1::DescribeResponse response;
  const auto context = client.Context();
  REQUIRE(client.stubs().memory->Describe(context.get(), request, &response).ok());
  REQUIRE(response.results(0).error().code() == 0);
  return response.results(0).tensor();
}

TEST_CASE("tensors ahead are listed as reserved, and told by `taken`") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  v1::AllocateRequest request;
  client.Stamp(request.mutable_call());
  v1::TensorSpec& spec = *request.add_tensors();
  spec.set_bytes(4096);
  spec.set_kind(v1::TENSOR_KIND_KV_CACHE);
  spec.set_priority(2);
  request.set_ahead(3);
  v1::AllocateResponse response;
  REQUIRE(client.Allocate(request, response).ok());
  REQUIRE(response.results_size() == 1);
  REQUIRE(response.ahead_size() == 3);
  for (const auto& ahead : response.ahead()) {
    CHECK(ahead.error().code() == 0);
    CHECK(ahead.location().bytes() == 4096);
    const v1::TensorInfo info = Describe(client, ahead.handle());
    CHECK(info.reserved());
    CHECK(info.state() == v1::TENSOR_STATE_RESIDENT);
    CHECK(info.kind() == v1::TENSOR_KIND_KV_CACHE);
    CHECK(info.priority() == 2);
    CHECK(info.pins_size() == 0);
  }
  CHECK_FALSE(Describe(client, response.results(0).handle()).reserved());
  v1::ExplainRequest why;
  why.set_handle(response.ahead(2).handle());
  v1::ExplainResponse explained;
  const auto context = client.Context();
  REQUIRE(client.stubs().inspection->Explain(context.get(), why, &explained).ok());
  CHECK(explained.tensor().reserved());
  CHECK(explained.next().find("allocated ahead") != std::string::npos);

  v1::AllocateRequest tell;
  client.Stamp(tell.mutable_call());
  tell.add_taken(response.ahead(1).handle());
  v1::AllocateResponse told;
  REQUIRE(client.Allocate(tell, told).ok());
  CHECK(told.results_size() == 0);
  CHECK(told.epoch() != 0);
  CHECK(Describe(client, response.ahead(0).handle()).reserved());
  CHECK_FALSE(Describe(client, response.ahead(1).handle()).reserved());

  // Nobody else of the tenant can say so for this session.
  RawClient other(daemon.dir());
  v1::AllocateRequest lie;
  other.Stamp(lie.mutable_call());
  lie.add_taken(response.ahead(0).handle());
  v1::AllocateResponse ignored;
  REQUIRE(other.Allocate(lie, ignored).ok());
  CHECK(Describe(client, response.ahead(0).handle()).reserved());
}

TEST_CASE("bad requests for tensors ahead") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  v1::AllocateRequest request;
  client.Stamp(request.mutable_call());
  request.set_ahead(1);
  v1::AllocateResponse response;
  CHECK(CodeAndReason(client.Allocate(request, response)) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  client.Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(64);
  request.mutable_tensors(0)->set_key("k");
  CHECK(CodeAndReason(client.Allocate(request, response)) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  request.Clear();
  client.Stamp(request.mutable_call());
  for (std::uint64_t i = 0; i < 5000; ++i) request.add_taken(i);
  CHECK(CodeAndReason(client.Allocate(request, response)) == "INVALID_ARGUMENT/BATCH_TOO_LARGE");
  // Ahead alone, and like what cannot be.
  request.Clear();
  client.Stamp(request.mutable_call());
  request.set_ahead(2);
  request.mutable_ahead_like()->set_bytes(4096);
  request.mutable_ahead_like()->set_kind(static_cast<v1::TensorKind>(77));
  CHECK(CodeAndReason(client.Allocate(request, response)) == "INVALID_ARGUMENT/BAD_ENUM");
  client.Stamp(request.mutable_call());
  request.mutable_ahead_like()->set_kind(v1::TENSOR_KIND_WEIGHT);
  REQUIRE(client.Allocate(request, response).ok());
  CHECK(response.results_size() == 0);
  REQUIRE(response.ahead_size() == 2);
  CHECK(Describe(client, response.ahead(1).handle()).kind() == v1::TENSOR_KIND_WEIGHT);
  // As many as there may be, more than there is room for: what there is.
  request.Clear();
  client.Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(64 * 1024);
  request.set_ahead(4'000'000'000u);
  REQUIRE(client.Allocate(request, response).ok());
  CHECK(response.ahead_size() > 0);
  CHECK(response.ahead_size() < 32);
}

}  // namespace
}  // namespace hmm::testing
