// SPDX-License-Identifier: Apache-2.0
//
// Every bad input over the wire: the right code and reason, and the books as they were.
#include <limits>

#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

constexpr std::uint64_t kKiB64 = 64 * kKiB;

v1::AllocateRequest OneTensor(RawClient& client, std::uint64_t bytes) {
  v1::AllocateRequest request;
  client.Stamp(request.mutable_call());
  request.add_tensors()->set_bytes(bytes);
  return request;
}

// The error of the only element.
std::string AllocateOne(RawClient& client, const v1::AllocateRequest& request) {
  v1::AllocateResponse response;
  const grpc::Status status = client.Allocate(request, response);
  if (!status.ok()) return "call " + CodeAndReason(status);
  REQUIRE(response.results_size() == 1);
  CHECK(response.epoch() == client.welcome().boot_epoch);
  return CodeAndReason(response.results(0).error());
}

// A client, and at its end the proof that nothing was left behind.
struct Scene {
  InProcessDaemon daemon;
  Books before = ReadBooks(daemon.dir());
  std::unique_ptr<RawClient> client = std::make_unique<RawClient>(daemon.dir());

  ~Scene() {
    // Sessions end with their process, which is this one: what they own is freed by hand.
    Books after = ReadBooks(daemon.dir());
    after.sessions = before.sessions;
    CHECK(after == before);
  }
};

}  // namespace

TEST_CASE("sizes that cannot be served") {
  Scene scene;
  RawClient& client = *scene.client;
  CHECK(AllocateOne(client, OneTensor(client, 0)) == "INVALID_ARGUMENT/BAD_SIZE");
  CHECK(AllocateOne(client, OneTensor(client, 1ull << 40)) == "FAILED_PRECONDITION/TOO_LARGE");
  CHECK(AllocateOne(client, OneTensor(client, std::numeric_limits<std::uint64_t>::max())) ==
        "FAILED_PRECONDITION/TOO_LARGE");
  v1::AllocateRequest priority = OneTensor(client, kKiB64);
  priority.mutable_tensors(0)->set_priority(8);
  CHECK(AllocateOne(client, priority) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  v1::AllocateRequest key = OneTensor(client, kKiB64);
  key.mutable_tensors(0)->set_key(std::string(257, 'k'));
  CHECK(AllocateOne(client, key) == "INVALID_ARGUMENT/BAD_ARGUMENT");
}

TEST_CASE("names that do not exist") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::AllocateRequest tier = OneTensor(client, kKiB64);
  tier.set_tier("hbm7");
  CHECK(AllocateOne(client, tier) == "call NOT_FOUND/NOT_FOUND");
  v1::AllocateRequest flash = OneTensor(client, kKiB64);
  flash.set_tier("flash0");
  CHECK(AllocateOne(client, flash) == "call INVALID_ARGUMENT/BAD_ARGUMENT");
}

TEST_CASE("duplicate keys, in one batch and over two") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::AllocateRequest request = OneTensor(client, kKiB64);
  request.mutable_tensors(0)->set_key("same");
  *request.add_tensors() = request.tensors(0);
  v1::AllocateResponse response;
  REQUIRE(client.Allocate(request, response).ok());
  REQUIRE(response.results_size() == 2);
  CHECK(CodeAndReason(response.results(0).error()) == "OK");
  CHECK(CodeAndReason(response.results(1).error()) == "ALREADY_EXISTS/ALREADY_EXISTS");

  v1::AllocateRequest again = OneTensor(client, kKiB64);
  again.mutable_tensors(0)->set_key("same");
  CHECK(AllocateOne(client, again) == "ALREADY_EXISTS/ALREADY_EXISTS");

  CHECK(client.Free(response.results(0).handle()) == "OK deferred");
  v1::ReleaseRequest release;
  release.set_call_id(request.call().call_id());
  v1::ReleaseResponse released;
  REQUIRE(client.stubs().memory->Release(client.Context().get(), release, &released).ok());
  CHECK(released.undone() == 1);
  // Idempotent.
  REQUIRE(client.stubs().memory->Release(client.Context().get(), release, &released).ok());
  CHECK(released.undone() == 0);
  CHECK(WaitUntil([&] { return ReadBooks(scene.daemon.dir()).used == scene.before.used; }));
}

TEST_CASE("handles that are stale, foreign, freed twice or pinned") {
  Scene scene;
  RawClient& client = *scene.client;
  const std::uint64_t handle = client.Allocate(kKiB64);
  const Handle known = Handle::Unpack(handle);
  CHECK(client.Free(0) == "NOT_FOUND/NOT_FOUND");
  CHECK(client.Free(Handle{known.slot, known.generation + 1}.Pack()) == "NOT_FOUND/NOT_FOUND");
  CHECK(client.Free(Handle{known.slot + 1, known.generation}.Pack()) == "NOT_FOUND/NOT_FOUND");
  CHECK(client.Free(std::numeric_limits<std::uint64_t>::max()) == "NOT_FOUND/NOT_FOUND");

  // Pinned: dead at once, the bytes later.
  CHECK(client.Free(handle) == "OK deferred");
  CHECK(client.Free(handle) == "NOT_FOUND/NOT_FOUND");
  v1::AcquireRequest acquire;
  client.Stamp(acquire.mutable_call());
  acquire.add_handles(handle);
  v1::AcquireResponse acquired;
  REQUIRE(client.stubs().memory->Acquire(client.Context().get(), acquire, &acquired).ok());
  CHECK(CodeAndReason(acquired.results(0).error()) == "NOT_FOUND/NOT_FOUND");
  v1::ReleaseRequest release;
  release.set_call_id(1);
  v1::ReleaseResponse released;
  REQUIRE(client.stubs().memory->Release(client.Context().get(), release, &released).ok());
  CHECK(released.undone() == 1);
  CHECK(WaitUntil([&] { return ReadBooks(scene.daemon.dir()).used == scene.before.used; }));
}

TEST_CASE("a batch with one bad element, with and without all") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::AllocateRequest request = OneTensor(client, kKiB64);
  request.add_tensors();  // 0 bytes
  v1::AllocateResponse response;
  REQUIRE(client.Allocate(request, response).ok());
  REQUIRE(response.results_size() == 2);
  CHECK(CodeAndReason(response.results(0).error()) == "OK");
  CHECK(CodeAndReason(response.results(1).error()) == "INVALID_ARGUMENT/BAD_SIZE");
  client.SealAndUnpin(response.results(0).handle());
  CHECK(client.Free(response.results(0).handle()) == "OK");

  v1::AllocateRequest all = request;
  client.Stamp(all.mutable_call());
  all.set_all(true);
  const grpc::Status failed = client.Allocate(all, response);
  CHECK(CodeAndReason(failed) == "INVALID_ARGUMENT/BAD_SIZE");
  CHECK(failed.error_message().find("1") != std::string::npos);  // names the index

  v1::FreeRequest free;
  free.add_handles(0);
  v1::FreeResponse freed;
  REQUIRE(client.stubs().memory->Free(client.Context().get(), free, &freed).ok());
  CHECK(CodeAndReason(freed.results(0).error()) == "NOT_FOUND/NOT_FOUND");
}

TEST_CASE("an allocation whose reply was lost is undone by its call") {
  Scene scene;
  RawClient& client = *scene.client;
  const std::uint64_t handle = client.Allocate(kKiB64, "lost");
  client.ReleaseLast();
  CHECK(client.Free(handle) == "NOT_FOUND/NOT_FOUND");
  // And its key is free again.
  const std::uint64_t again = client.Allocate(kKiB64, "lost");
  client.SealAndUnpin(again);
  CHECK(client.Free(again) == "OK");
}

TEST_CASE("an unknown enum value is refused by name and number") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::AllocateRequest request = OneTensor(client, kKiB64);
  request.add_tensors()->set_bytes(kKiB64);
  request.mutable_tensors(1)->set_kind(static_cast<v1::TensorKind>(42));
  v1::AllocateResponse response;
  const grpc::Status status = client.Allocate(request, response);
  CHECK(CodeAndReason(status) == "INVALID_ARGUMENT/BAD_ENUM");
  CHECK(status.error_message().find("tensors[1].kind") != std::string::npos);
  CHECK(status.error_message().find("42") != std::string::npos);
}

TEST_CASE("calls without a session") {
  Scene scene;
  RawClient& client = *scene.client;
  const auto with = [&](const std::string& token) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("hmm-token-bin", token);
    v1::AllocateRequest request = OneTensor(client, kKiB64);
    v1::AllocateResponse response;
    const grpc::Status status = client.stubs().memory->Allocate(&context, request, &response);
    CHECK(EpochOf(status) == client.welcome().boot_epoch);
    return CodeAndReason(status);
  };
  CHECK(with("") == "UNAUTHENTICATED/MISSING_TOKEN");
  CHECK(with("short") == "UNAUTHENTICATED/MISSING_TOKEN");
  CHECK(with(client.token() + "x") == "UNAUTHENTICATED/MISSING_TOKEN");
  CHECK(with(std::string(16, '\0')) == "UNAUTHENTICATED/UNKNOWN_SESSION");

  grpc::ClientContext context;
  v1::GetStatusResponse status;
  CHECK(CodeAndReason(client.stubs().inspection->GetStatus(&context, {}, &status)) ==
        "UNAUTHENTICATED/MISSING_TOKEN");
  // Admin is not on this socket at all.
  v1::DrainResponse drained;
  CHECK(client.stubs().admin->Drain(client.Context().get(), {}, &drained).error_code() ==
        grpc::StatusCode::UNIMPLEMENTED);

  // A session whose socket is closed is no session.
  RawClient gone(scene.daemon.dir());
  gone.session().Close();
  CHECK(WaitUntil([&] {
    v1::GetStatusResponse out;
    return CodeAndReason(gone.stubs().inspection->GetStatus(gone.Context().get(), {}, &out)) ==
           "UNAUTHENTICATED/UNKNOWN_SESSION";
  }));
}

TEST_CASE("calls that pin need an id") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::AllocateRequest request;
  request.add_tensors()->set_bytes(kKiB64);
  CHECK(AllocateOne(client, request) == "call INVALID_ARGUMENT/BAD_ARGUMENT");
  v1::AcquireRequest acquire;
  v1::AcquireResponse acquired;
  CHECK(CodeAndReason(client.stubs().memory->Acquire(client.Context().get(), acquire, &acquired)) ==
        "INVALID_ARGUMENT/BAD_ARGUMENT");
  v1::ReleaseResponse released;
  CHECK(CodeAndReason(client.stubs().memory->Release(client.Context().get(), {}, &released)) ==
        "INVALID_ARGUMENT/BAD_ARGUMENT");
}

TEST_CASE("batches and messages that are too large") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::FreeRequest free;
  for (std::uint64_t i = 0; i < 4097; ++i) free.add_handles(i);
  v1::FreeResponse freed;
  CHECK(CodeAndReason(client.stubs().memory->Free(client.Context().get(), free, &freed)) ==
        "INVALID_ARGUMENT/BATCH_TOO_LARGE");
  v1::LookupRequest lookup;
  client.Stamp(lookup.mutable_call());
  for (int i = 0; i < 4097; ++i) lookup.add_keys("k");
  v1::LookupResponse found;
  CHECK(CodeAndReason(client.stubs().memory->Lookup(client.Context().get(), lookup, &found)) ==
        "INVALID_ARGUMENT/BATCH_TOO_LARGE");

  // Refused by gRPC itself, before it is decoded: no details.
  v1::LookupRequest huge;
  client.Stamp(huge.mutable_call());
  huge.add_keys(std::string(17 * kMiB, 'k'));
  CHECK(CodeAndReason(client.stubs().memory->Lookup(client.Context().get(), huge, &found)) ==
        "RESOURCE_EXHAUSTED/");
}

TEST_CASE("handles and keys at once, and page tokens of another's making") {
  Scene scene;
  RawClient& client = *scene.client;
  v1::PrefetchRequest prefetch;
  prefetch.add_handles(1);
  prefetch.add_keys("k");
  v1::PrefetchResponse prefetched;
  CHECK(CodeAndReason(client.stubs().memory->Prefetch(
            client.Context().get(), prefetch, &prefetched)) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  v1::DescribeRequest describe;
  describe.add_handles(1);
  describe.add_keys("k");
  v1::DescribeResponse described;
  CHECK(CodeAndReason(client.stubs().memory->Describe(
            client.Context().get(), describe, &described)) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  v1::ListTensorsRequest list;
  list.set_page_token("next please");
  v1::ListTensorsResponse listed;
  CHECK(CodeAndReason(client.stubs().inspection->ListTensors(
            client.Context().get(), list, &listed)) == "INVALID_ARGUMENT/PAGE_TOKEN");
  list.set_page_token("");
  list.set_tier("hbm7");
  CHECK(CodeAndReason(client.stubs().inspection->ListTensors(client.Context().get(), list,
                                                             &listed)) == "NOT_FOUND/NOT_FOUND");
}

TEST_CASE("keys are bytes, also in a message") {
  Scene scene;
  RawClient& client = *scene.client;
  const std::string key("\xff\x00key\n", 6);
  const std::uint64_t handle = client.Allocate(kKiB64, key);
  client.SealAndUnpin(handle);
  v1::DescribeRequest describe;
  describe.add_handles(handle);
  v1::DescribeResponse described;
  REQUIRE(client.stubs().memory->Describe(client.Context().get(), describe, &described).ok());
  CHECK(described.results(0).tensor().key() == key);
  v1::SwapRequest swap;
  swap.add_handles(handle);
  swap.set_tier("no tier \x01 at all");
  v1::SwapResponse swapped;
  CHECK(CodeAndReason(client.stubs().memory->Swap(client.Context().get(), swap, &swapped)) ==
        "NOT_FOUND/NOT_FOUND");
  CHECK(client.Free(handle) == "OK");
}

}  // namespace hmm::testing
