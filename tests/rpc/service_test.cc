// SPDX-License-Identifier: Apache-2.0
//
// The services over the wire: what they answer, who waits, who is told to go.
#include <future>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

using grpc::health::v1::HealthCheckResponse;

std::string Health(Stubs& stubs, const std::string& service) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const grpc::Status status = stubs.health->Check(&context, request, &response);
  if (!status.ok()) return CodeAndReason(status);
  return HealthCheckResponse::ServingStatus_Name(response.status());
}

std::string Drain(Stubs& admin, bool off) {
  grpc::ClientContext context;
  v1::DrainRequest request;
  request.set_off(off);
  v1::DrainResponse response;
  return CodeAndReason(admin.admin->Drain(&context, request, &response));
}

// Fills hbm0 with pinned tensors, so that an allocation with wait has to wait.
void FillHbm(RawClient& client) {
  v1::AllocateRequest request;
  for (int i = 0; i < 64; ++i) {
    client.Stamp(request.mutable_call());
    request.clear_tensors();
    request.add_tensors()->set_bytes(64 * kKiB);
    v1::AllocateResponse response;
    REQUIRE(client.Allocate(request, response).ok());
    if (response.results(0).has_error()) return;
  }
  FAIL("hbm0 never filled");
}

v1::AllocateRequest Waiting(RawClient& client) {
  v1::AllocateRequest request;
  client.Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(64 * kKiB);
  request.set_wait(true);
  request.set_all(true);
  return request;
}

daemon::Config& AllPinnable(daemon::Config& config) {
  config.limits.session_pinned_max = 1.0;
  return config;
}

}  // namespace

TEST_CASE("health of the daemon, its services and its tiers") {
  InProcessDaemon daemon;
  for (const char* socket : {"hmm.sock", "admin.sock"}) {
    Stubs stubs(daemon.dir(), socket);
    CHECK(Health(stubs, "") == "SERVING");
    CHECK(Health(stubs, "hmm.v1.Memory") == "SERVING");
    CHECK(Health(stubs, "hmm.tier.hbm0") == "SERVING");
    CHECK(Health(stubs, "hmm.tier.hbm9") == "NOT_FOUND/NOT_FOUND");
    CHECK(Health(stubs, "nonsense") == "NOT_FOUND/NOT_FOUND");
  }
}

TEST_CASE("draining takes nothing new, and is taken back") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  Stubs admin(daemon.dir(), "admin.sock");
  CHECK(Drain(admin, false) == "OK");
  CHECK(Health(admin, "hmm.v1.Memory") == "NOT_SERVING");
  CHECK(Health(admin, "") == "SERVING");
  v1::AllocateRequest request;
  client.Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(64);
  v1::AllocateResponse response;
  const grpc::Status refused = client.Allocate(request, response);
  CHECK(CodeAndReason(refused) == "UNAVAILABLE/DRAINING");
  CHECK(RetryMsOf(refused) > 0);
  CHECK(EpochOf(refused) == client.welcome().boot_epoch);
  CHECK(client.Status().draining());

  CHECK(Drain(admin, true) == "OK");
  CHECK(Health(admin, "hmm.v1.Memory") == "SERVING");
  client.Allocate(64);
}

TEST_CASE("a full tier says so, with a time to come back") {
  InProcessDaemon daemon([](daemon::Config& config) { AllPinnable(config); });
  RawClient client(daemon.dir());
  FillHbm(client);
  v1::AllocateRequest request = Waiting(client);
  request.set_wait(false);
  v1::AllocateResponse response;
  const grpc::Status full = client.Allocate(request, response);
  CHECK(full.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(RetryMsOf(full) > 0);
}

TEST_CASE("a waiting call ends at its deadline and leaves nothing behind") {
  InProcessDaemon daemon([](daemon::Config& config) { AllPinnable(config); });
  RawClient client(daemon.dir());
  FillHbm(client);
  const Books before = ReadBooks(daemon.dir());
  const auto context = client.Context();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::AllocateResponse response;
  const grpc::Status late =
      client.stubs().memory->Allocate(context.get(), Waiting(client), &response);
  // Either the client's clock or the daemon's last word, which says why.
  CHECK((late.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         late.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED));
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }));
}

TEST_CASE("a client that gives up cancels its waiting call") {
  InProcessDaemon daemon([](daemon::Config& config) {
    AllPinnable(config);
    config.limits.waiting_max = 1;
  });
  RawClient client(daemon.dir());
  FillHbm(client);
  // A second one that gives up soon; refused at once where the only place is taken.
  const auto second = [&] {
    const auto brief = client.Context();
    brief->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    v1::AllocateResponse response;
    return client.stubs().memory->Allocate(brief.get(), Waiting(client), &response);
  };
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  grpc::Status refused;
  const auto cancelled = [&] {
    const auto context = client.Context();
    v1::AllocateResponse response;
    grpc::Status ended;
    const auto call = client.stubs().memory->AsyncAllocate(context.get(), Waiting(client), &queue);
    call->Finish(&response, &ended, &tag);
    refused = second();
    context->TryCancel();
    REQUIRE(queue.Next(&tag, &ok));
    return ended.error_code() == grpc::StatusCode::CANCELLED &&
           refused.error_code() == grpc::StatusCode::UNAVAILABLE;
  };
  // Should the second overtake the first on its way, again.
  CHECK(WaitUntil(cancelled));
  CHECK(CodeAndReason(refused) == "UNAVAILABLE/QUEUE_FULL");
  // And is free again: not refused any more, but left to wait.
  CHECK(WaitUntil([&] { return second().error_code() != grpc::StatusCode::UNAVAILABLE; }));
}

TEST_CASE("a waiting call gets the room that another call frees") {
  InProcessDaemon daemon([](daemon::Config& config) { AllPinnable(config); });
  RawClient client(daemon.dir());
  const std::uint64_t first = client.Allocate(64 * kKiB);
  FillHbm(client);
  auto waiting = std::async(std::launch::async, [&, request = Waiting(client)] {
    v1::AllocateResponse response;
    return client.Allocate(request, response).error_code();
  });
  CHECK(client.Free(first) == "OK deferred");
  v1::ReleaseRequest release;
  release.set_call_id(1);
  v1::ReleaseResponse released;
  REQUIRE(client.stubs().memory->Release(client.Context().get(), release, &released).ok());
  CHECK(waiting.get() == grpc::StatusCode::OK);
}

TEST_CASE("stopping ends waiting calls and removes the sockets") {
  InProcessDaemon daemon([](daemon::Config& config) {
    AllPinnable(config);
    config.limits.waiting_max = 1;
  });
  RawClient client(daemon.dir());
  FillHbm(client);
  std::future<std::string> waiting;
  // It waits, and not only is on its way, once another one finds the only place taken.
  const auto waits = [&] {
    const auto over = [&] {
      return !waiting.valid() ||
             waiting.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    if (over()) {
      waiting = std::async(std::launch::async, [&client, request = Waiting(client)] {
        v1::AllocateResponse response;
        return CodeAndReason(client.Allocate(request, response));
      });
      // A head start: else the other comes first and takes the place, time and again.
      waiting.wait_for(std::chrono::milliseconds(5));
    }
    const auto brief = client.Context();
    brief->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(20));
    v1::AllocateResponse response;
    const std::string second =
        CodeAndReason(client.stubs().memory->Allocate(brief.get(), Waiting(client), &response));
    return second == "UNAVAILABLE/QUEUE_FULL" && !over();
  };
  REQUIRE(WaitUntil(waits));
  daemon.daemon().Stop();
  CHECK(waiting.get() == "UNAVAILABLE/DRAINING");
  CHECK(!std::filesystem::exists(daemon.dir() + "/hmm.sock"));
  CHECK(!std::filesystem::exists(daemon.dir() + "/session.sock"));
  CHECK(!std::filesystem::exists(daemon.dir() + "/admin.sock"));
  CHECK(client.session().Receive().bytes.empty());
}

TEST_CASE("the admin socket steers, and sees everything") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  client.Allocate(64 * kKiB, "k");
  Stubs admin(daemon.dir(), "admin.sock");

  const auto set = [&](const std::string& tier, double high, double low) {
    grpc::ClientContext context;
    v1::SetWatermarksRequest request;
    request.set_tier(tier);
    request.set_high(high);
    request.set_low(low);
    v1::SetWatermarksResponse response;
    return CodeAndReason(admin.admin->SetWatermarks(&context, request, &response));
  };
  CHECK(set("hbm0", 0.7, 0.6) == "OK");
  CHECK(set("hbm0", 0.6, 0.7) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  CHECK(set("hbm0", 85, 75) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  CHECK(set("hbm9", 0.7, 0.6) == "NOT_FOUND/NOT_FOUND");

  grpc::ClientContext context;
  v1::ListTiersResponse tiers;
  REQUIRE(admin.inspection->ListTiers(&context, {}, &tiers).ok());
  REQUIRE(tiers.tiers_size() == 3);
  CHECK(tiers.tiers(0).high_watermark() == 0.7);
  CHECK(tiers.tiers(0).kind() == v1::TIER_KIND_HBM);
  CHECK(tiers.tiers(0).emulated());
  CHECK(!tiers.tiers(1).emulated());
  CHECK(tiers.tiers(2).kind() == v1::TIER_KIND_FLASH);

  grpc::ClientContext page;
  v1::ListTensorsRequest list;
  list.set_page_size(1);
  v1::ListTensorsResponse tensors;
  REQUIRE(admin.inspection->ListTensors(&page, list, &tensors).ok());
  REQUIRE(tensors.tensors_size() == 1);
  CHECK(tensors.tensors(0).key() == "k");
  CHECK(tensors.tensors(0).tier_name() == "hbm0");
  CHECK(tensors.tensors(0).state() == v1::TENSOR_STATE_CREATING);
  CHECK(tensors.tensors(0).pins_size() == 1);

  grpc::ClientContext evict;
  v1::EvictRequest everything;
  everything.set_tier("hbm0");
  v1::EvictResponse evicted;
  REQUIRE(admin.admin->Evict(&evict, everything, &evicted).ok());
  CHECK(evicted.pinned_tensors() == 1);
  CHECK(evicted.epoch() == client.welcome().boot_epoch);
}

TEST_CASE("reflection answers on the admin socket, and only there") {
  namespace reflection = grpc::reflection::v1alpha;
  InProcessDaemon daemon;
  const auto ask = [&](const std::string& socket, const reflection::ServerReflectionRequest& what) {
    const auto stub = reflection::ServerReflection::NewStub(grpc::CreateChannel(
        "unix:" + daemon.dir() + "/" + socket, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    const auto stream = stub->ServerReflectionInfo(&context);
    reflection::ServerReflectionResponse response;
    if (stream->Write(what)) stream->Read(&response);
    stream->WritesDone();
    CHECK(stream->Finish().ok() == (socket == "admin.sock"));
    return response;
  };
  reflection::ServerReflectionRequest request;
  request.set_list_services("*");
  CHECK(ask("admin.sock", request).list_services_response().service_size() == 4);
  CHECK(ask("hmm.sock", request).list_services_response().service_size() == 0);
  request.set_file_containing_symbol("hmm.v1.Inspection");
  // The file itself and what it imports.
  CHECK(ask("admin.sock", request).file_descriptor_response().file_descriptor_proto_size() == 4);
  request.set_file_by_filename("no/such.proto");
  CHECK(ask("admin.sock", request).error_response().error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("many connections to the admin socket, one after another, are all served") {
  // Its thread sleeps in between; each must wake it.
  InProcessDaemon daemon;
  for (int i = 0; i < 50; ++i) {
    Stubs admin(daemon.dir(), "admin.sock");
    CHECK(Health(admin, "") == "SERVING");
  }
}

}  // namespace hmm::testing
