// SPDX-License-Identifier: Apache-2.0
//
// What one tenant can learn of another: nothing. A matrix of verbs over handles, keys, segments and
// regions that are another's, the time an answer takes, and the bytes that a tier hands over.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "rpc/as_uid.h"
#include "rpc/fixture.h"
#include "share/memory_file.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

daemon::TenantConfig Pod(const std::string& dir, const std::string& name) {
  daemon::TenantConfig tenant;
  tenant.name = name;
  tenant.dir = dir + "/" + name;
  return tenant;
}

// One daemon and two tenants, "a" and "b": pods with sockets of their own and one uid, or two uids
// on the socket of all.
enum class Told { kBySocket, kByUid };
class TwoTenants {
 public:
  explicit TwoTenants(Told told)
      : daemon([told](daemon::Config& config) {
          if (told == Told::kBySocket) {
            config.tenants = {Pod(config.dir, "a"), Pod(config.dir, "b")};
          }
          config.limits.session_pinned_max = 1.0;
        }),
        told_(told) {
    REQUIRE(chmod(daemon.dir().c_str(), 0755) == 0);
  }
  RawClient Connect(const std::string& tenant) {
    if (told_ == Told::kBySocket) return RawClient(daemon.dir() + "/" + tenant);
    if (tenant == "a") return RawClient(daemon.dir());
    const AsUid other(61234);
    return RawClient(daemon.dir());
  }

  std::string NameOfB() const { return told_ == Told::kBySocket ? "b" : "uid:61234"; }

  InProcessDaemon daemon;

 private:
  const Told told_;
};

// What each verb answers to `handle`, in the words of its element.
std::vector<std::string> AskEverything(RawClient& client, std::uint64_t handle) {
  std::vector<std::string> answers;
  v1::Memory::Stub& memory = *client.stubs().memory;
  const auto add = [&](const char* verb, const grpc::Status& status, const auto& response) {
    answers.push_back(
        std::string(verb) + ": " +
        (status.ok() ? CodeAndReason(response.results(0).error()) : CodeAndReason(status)));
  };
  {
    v1::AcquireRequest request;
    client.Stamp(request.mutable_call());
    request.add_handles(handle);
    v1::AcquireResponse response;
    add("Acquire", memory.Acquire(client.Context().get(), request, &response), response);
  }
  {
    v1::SealRequest request;
    request.add_items()->set_handle(handle);
    v1::SealResponse response;
    add("Seal", memory.Seal(client.Context().get(), request, &response), response);
  }
  {
    v1::PrefetchRequest request;
    request.add_handles(handle);
    v1::PrefetchResponse response;
    add("Prefetch", memory.Prefetch(client.Context().get(), request, &response), response);
  }
  {
    v1::SwapRequest request;
    request.add_handles(handle);
    request.set_tier("ddr0");
    v1::SwapResponse response;
    add("Swap", memory.Swap(client.Context().get(), request, &response), response);
  }
  {
    v1::DescribeRequest request;
    request.add_handles(handle);
    v1::DescribeResponse response;
    add("Describe", memory.Describe(client.Context().get(), request, &response), response);
  }
  {
    v1::FreeRequest request;
    request.add_handles(handle);
    v1::FreeResponse response;
    add("Free", memory.Free(client.Context().get(), request, &response), response);
  }
  {
    v1::ExplainRequest request;
    request.set_handle(handle);
    v1::ExplainResponse response;
    answers.push_back("Explain: " + CodeAndReason(client.stubs().inspection->Explain(
                                        client.Context().get(), request, &response)));
  }
  return answers;
}

std::string Lease(RawClient& client, std::uint64_t region, std::uint64_t bytes,
                  v1::Location* location = nullptr) {
  v1::LeaseRegionRequest request;
  request.set_region(region);
  request.set_bytes(bytes);
  request.set_tier("ddr0");
  v1::LeaseRegionResponse response;
  const grpc::Status status =
      client.stubs().regions->LeaseRegion(client.Context().get(), request, &response);
  if (location != nullptr) *location = response.location();
  return CodeAndReason(status);
}

// The verdict of a job of one key, once it has ended; or why there is none.
std::string VerdictOf(RawClient& client, std::uint64_t job) {
  v1::PollJobsRequest request;
  request.add_jobs(job);
  request.set_wait(true);
  v1::PollJobsResponse response;
  const grpc::Status status =
      client.stubs().regions->PollJobs(client.Context().get(), request, &response);
  if (!status.ok()) return CodeAndReason(status);
  const v1::JobState& state = response.jobs(0);
  return CodeAndReason(state.failed_size() > 0 ? state.failed(0).error() : state.error());
}

// A Store, or a Load, of one key and one fragment: 4 KiB at the start of `region`.
template <typename Request>
Request JobOf(std::uint64_t job, const std::string& key, std::uint64_t region) {
  Request request;
  request.set_job(job);
  auto& one = *request.add_keys();
  one.set_key(key);
  v1::Fragment& fragment = *one.add_fragments();
  fragment.set_region(region);
  fragment.set_bytes(4 * kKiB);
  return request;
}
std::string Store(RawClient& client, std::uint64_t job, const std::string& key,
                  std::uint64_t region) {
  v1::StoreResponse response;
  const grpc::Status status = client.stubs().regions->Store(
      client.Context().get(), JobOf<v1::StoreRequest>(job, key, region), &response);
  return status.ok() ? VerdictOf(client, job) : CodeAndReason(status);
}
std::string Load(RawClient& client, std::uint64_t job, const std::string& key,
                 std::uint64_t region) {
  v1::LoadResponse response;
  const grpc::Status status = client.stubs().regions->Load(
      client.Context().get(), JobOf<v1::LoadRequest>(job, key, region), &response);
  return status.ok() ? VerdictOf(client, job) : CodeAndReason(status);
}

// What each verb of Regions answers to the ids of a region and of a job.
std::vector<std::string> AskRegions(RawClient& client, std::uint64_t region, std::uint64_t job) {
  v1::Regions::Stub& regions = *client.stubs().regions;
  std::vector<std::string> answers;
  v1::DrainRegionRequest drain;
  drain.set_region(region);
  v1::DrainRegionResponse drained;
  answers.push_back(CodeAndReason(regions.DrainRegion(client.Context().get(), drain, &drained)));
  v1::ReleaseRegionRequest release;
  release.set_region(region);
  v1::ReleaseRegionResponse released;
  answers.push_back(
      CodeAndReason(regions.ReleaseRegion(client.Context().get(), release, &released)));
  answers.push_back(Store(client, 1000 + region, "new", region));
  answers.push_back(Load(client, 2000 + region, "own", region));
  answers.push_back(VerdictOf(client, job));
  v1::CancelJobsRequest cancel;
  cancel.add_jobs(job);
  v1::CancelJobsResponse cancelled;
  REQUIRE(regions.CancelJobs(client.Context().get(), cancel, &cancelled).ok());
  answers.push_back(CodeAndReason(cancelled.results(0).error()));
  return answers;
}

TEST_CASE("another tenant's handle is as one that never was, to every verb") {
  TwoTenants pods(GENERATE(Told::kBySocket, Told::kByUid));
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  const std::uint64_t sealed = a.Allocate(64 * kKiB, "mine");
  a.SealAndUnpin(sealed);
  const std::uint64_t writing = a.Allocate(64 * kKiB, "not yet");
  constexpr std::uint64_t kNever = (std::uint64_t{77} << 32) | 3000;
  const std::vector<std::string> never = AskEverything(b, kNever);
  for (const std::string& answer : never) {
    INFO(answer);
    CHECK(answer.find("NOT_FOUND") != std::string::npos);
  }
  CHECK(AskEverything(b, sealed) == never);
  CHECK(AskEverything(b, writing) == never);
  // And nothing of it has changed for its owner.
  v1::DescribeRequest request;
  request.add_handles(sealed);
  v1::DescribeResponse response;
  REQUIRE(a.stubs().memory->Describe(a.Context().get(), request, &response).ok());
  CHECK(response.results(0).tensor().tier_name() == "hbm0");
}

TEST_CASE("another tenant's keys are misses, free to be taken, and not shown") {
  TwoTenants pods(GENERATE(Told::kBySocket, Told::kByUid));
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  a.SealAndUnpin(a.Allocate(64 * kKiB, "prefix"));
  v1::LookupRequest lookup;
  b.Stamp(lookup.mutable_call());
  lookup.add_keys("prefix");
  v1::LookupResponse found;
  REQUIRE(b.stubs().memory->Lookup(b.Context().get(), lookup, &found).ok());
  CHECK(found.run_size() == 0);
  CHECK(found.miss_reason() == "NOT_FOUND");
  b.SealAndUnpin(b.Allocate(32 * kKiB, "prefix"));
  v1::ListTensorsRequest list;
  v1::ListTensorsResponse listed;
  REQUIRE(b.stubs().inspection->ListTensors(b.Context().get(), list, &listed).ok());
  REQUIRE(listed.tensors_size() == 1);
  CHECK(listed.tensors(0).bytes() == 32 * kKiB);
  v1::ListSessionsRequest sessions;
  v1::ListSessionsResponse shown;
  REQUIRE(b.stubs().inspection->ListSessions(b.Context().get(), sessions, &shown).ok());
  CHECK(shown.sessions_size() == 1);
}

TEST_CASE("another tenant's segments cannot be pulled") {
  TwoTenants pods(GENERATE(Told::kBySocket, Told::kByUid));
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  std::vector<std::uint64_t> segments;
  for (const char* tier : {"hbm0", "ddr0"}) {
    v1::AllocateRequest request;
    a.Stamp(request.mutable_call());
    request.add_tensors()->set_bytes(64 * kKiB);
    request.set_tier(tier);
    v1::AllocateResponse response;
    REQUIRE(a.Allocate(request, response).ok());
    segments.push_back(response.results(0).location().segment());
  }
  // Its own, and whatever lies near: an id tells nothing and opens nothing.
  for (const std::uint64_t segment : segments) {
    for (std::uint64_t near = segment < 4 ? 0 : segment - 4; near < segment + 4; ++near) {
      share::SegmentRequest request;
      request.segment = static_cast<SegmentId>(near);
      b.session().SendStruct(request);
      const RawSession::Received received = b.session().Receive();
      const auto reply = received.As<share::SegmentReply>();
      REQUIRE(reply.has_value());
      CHECK(reply->status == static_cast<std::uint32_t>(absl::StatusCode::kNotFound));
      CHECK(received.descriptors.empty());
    }
  }
}

TEST_CASE("another tenant's regions and jobs are as some that never were, to every verb") {
  TwoTenants pods(GENERATE(Told::kBySocket, Told::kByUid));
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  REQUIRE(Lease(a, 1, 64 * kKiB) == "OK");
  REQUIRE(Store(a, 7, "mine", 1) == "OK");
  REQUIRE(Lease(b, 2, 64 * kKiB) == "OK");
  REQUIRE(Store(b, 8, "own", 2) == "OK");
  const std::vector<std::string> never = AskRegions(b, 99, 77);
  for (const std::string& answer : never) CHECK(answer != "OK");
  CHECK(AskRegions(b, 1, 7) == never);
  // Its bytes do not come by their key either, not even where there is a region for them.
  CHECK(Load(b, 9, "mine", 2) == "NOT_FOUND/NOT_FOUND");
  CHECK(VerdictOf(a, 7) == "OK");
  CHECK(Load(a, 10, "mine", 1) == "OK");
}

TEST_CASE("another tenant's calls cannot be undone, nor its tensors watched") {
  TwoTenants pods(GENERATE(Told::kBySocket, Told::kByUid));
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  const auto context = b.Context();
  const auto watch = b.stubs().inspection->Watch(context.get(), {});
  v1::WatchResponse seen;
  REQUIRE(watch->Read(&seen));  // it has begun
  a.Allocate(64 * kKiB);
  const std::uint64_t pinned = a.Allocate(64 * kKiB, "mine");
  v1::ReleaseRequest release;
  release.set_call_id(2);  // a's last; b has made none
  v1::ReleaseResponse released;
  REQUIRE(b.stubs().memory->Release(b.Context().get(), release, &released).ok());
  CHECK(released.undone() == 0);
  CHECK(a.Free(pinned) == "OK deferred");  // its pin holds it
  a.ReleaseLast();
  const std::uint64_t own = b.Allocate(4 * kKiB, "own");
  for (bool found = false; !found;) {
    REQUIRE(watch->Read(&seen));
    for (const v1::Event& event : seen.events()) {
      INFO(event.ShortDebugString());
      CHECK(event.has_tensor());
      CHECK(event.tensor().tenant() == pods.NameOfB());
      found = found || event.tensor().handle() == own;
    }
  }
  context->TryCancel();
}

TEST_CASE("a token is its own tenant's on whatever socket it is shown") {
  TwoTenants pods(Told::kBySocket);
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  const std::uint64_t mine = a.Allocate(64 * kKiB, "mine");
  const std::uint64_t others = b.Allocate(32 * kKiB, "other");
  Stubs through_b(pods.daemon.dir() + "/b", "hmm.sock");
  v1::DescribeRequest request;
  request.add_keys("mine");
  request.add_keys("other");
  v1::DescribeResponse response;
  REQUIRE(through_b.memory->Describe(a.Context().get(), request, &response).ok());
  CHECK(response.results(0).tensor().handle() == mine);
  CHECK(CodeAndReason(response.results(1).error()) == "NOT_FOUND/NOT_FOUND");
  CHECK(others != 0);
}

TEST_CASE("the time of an answer does not tell a foreign handle from none") {
  TwoTenants pods(GENERATE(Told::kBySocket, Told::kByUid));
  RawClient a = pods.Connect("a");
  RawClient b = pods.Connect("b");
  const std::uint64_t foreign = a.Allocate(64 * kKiB);
  constexpr std::uint64_t kNever = (std::uint64_t{77} << 32) | 3000;
  std::vector<double> took[2];
  for (int i = 0; i < 3000; ++i) {
    for (const int which : {i % 2, 1 - i % 2}) {  // in pairs, in turn first
      v1::DescribeRequest request;
      request.add_handles(which == 0 ? foreign : kNever);
      v1::DescribeResponse response;
      const auto context = b.Context();
      const auto start = std::chrono::steady_clock::now();
      REQUIRE(b.stubs().memory->Describe(context.get(), request, &response).ok());
      took[which].push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
    }
  }
  double medians[2];
  for (int which : {0, 1}) {
    auto middle = took[which].begin() + static_cast<std::ptrdiff_t>(took[which].size() / 2);
    std::nth_element(took[which].begin(), middle, took[which].end());
    medians[which] = *middle;
  }
  std::printf("Describe: foreign %.1f us, never was %.1f us (medians of 3000)\n", medians[0],
              medians[1]);
  // One lookup in the caller's own table answers both; what differs is noise.
  CHECK(medians[0] / medians[1] < 1.25);
  CHECK(medians[0] / medians[1] > 0.8);
}

// Maps a pinned tensor's bytes as a client does.
class Mapped {
 public:
  Mapped(RawClient& client, const v1::Location& location) {
    share::SegmentRequest request;
    request.segment = static_cast<SegmentId>(location.segment());
    client.session().SendStruct(request);
    RawSession::Received received = client.session().Receive();
    const auto reply = received.As<share::SegmentReply>();
    REQUIRE(reply.has_value());
    REQUIRE(received.descriptors.size() == 1);
    auto mapping = share::Mapping::Map(received.descriptors[0].get(), reply->bytes,
                                       share::Mapping::Access::kReadWrite, false);
    REQUIRE(mapping.ok());
    mapping_ = *std::move(mapping);
    begin_ = mapping_.data() + location.offset();
    size_ = location.bytes();
  }
  std::byte* begin() { return begin_; }
  std::byte* end() { return begin_ + size_; }

 private:
  share::Mapping mapping_;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

// As much of `tier` as there is, in blocks; pinned.
std::vector<v1::Location> Fill(RawClient& client, const std::string& tier,
                               std::vector<std::uint64_t>& handles) {
  std::vector<v1::Location> places;
  for (int i = 0; i < 4096; ++i) {
    v1::AllocateRequest request;
    client.Stamp(request.mutable_call());
    request.add_tensors()->set_bytes(60'000);
    request.set_tier(tier);
    v1::AllocateResponse response;
    REQUIRE(client.Allocate(request, response).ok());
    if (response.results(0).error().code() != 0) break;
    handles.push_back(response.results(0).handle());
    places.push_back(response.results(0).location());
  }
  return places;
}

TEST_CASE("no byte of one tenant is left in what another is given") {
  constexpr std::byte kSecret{0xA7};
  TwoTenants tenants(GENERATE(Told::kBySocket, Told::kByUid));
  for (const std::string tier : {"hbm0", "ddr0"}) {
    std::vector<std::uint64_t> handles;
    RawClient a = tenants.Connect("a");
    for (const v1::Location& place : Fill(a, tier, handles)) {
      Mapped bytes(a, place);
      std::fill(bytes.begin(), bytes.end(), kSecret);
    }
    REQUIRE(handles.size() >= 20);
    for (const std::uint64_t handle : handles) {
      a.SealAndUnpin(handle);
      CHECK(a.Free(handle) == "OK");
    }
    std::vector<std::uint64_t> taken;
    RawClient b = tenants.Connect("b");
    v1::Location region;  // not zeroed, says its contract: of one's own, that is
    if (tier == "ddr0") REQUIRE(Lease(b, 1, 512 * kKiB, &region) == "OK");
    std::size_t scanned = 0;
    std::size_t secret = 0;
    for (const v1::Location& place : Fill(b, tier, taken)) {
      Mapped bytes(b, place);
      scanned += place.bytes();
      secret += static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), kSecret));
    }
    if (region.bytes() > 0) {
      Mapped bytes(b, region);
      secret += static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), kSecret));
    }
    INFO(tier << ": " << scanned << " bytes scanned");
    CHECK(scanned > 1'000'000);
    CHECK(secret == 0);
    for (const std::uint64_t handle : taken) {
      b.SealAndUnpin(handle);
      CHECK(b.Free(handle) == "OK");
    }
  }
}

}  // namespace
}  // namespace hmm::testing
