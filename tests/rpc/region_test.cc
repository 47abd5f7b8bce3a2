// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Regions and the region messages of the session socket, raw.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "rpc/fixture.h"
#include "share/bell.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

struct RegionClient : RawClient {
  explicit RegionClient(const std::string& dir) : RawClient(dir), regions(stubs().regions.get()) {}

  std::string Lease(std::uint64_t region, std::uint64_t bytes) {
    v1::LeaseRegionRequest request;
    v1::LeaseRegionResponse response;
    request.set_region(region);
    request.set_bytes(bytes);
    request.set_tier("ddr0");
    return CodeAndReason(regions->LeaseRegion(Context().get(), request, &response));
  }
  std::string Store(const v1::StoreRequest& request) {
    v1::StoreResponse response;
    return CodeAndReason(regions->Store(Context().get(), request, &response));
  }
  v1::PollJobsResponse Poll(std::uint64_t job) {
    v1::PollJobsRequest request;
    v1::PollJobsResponse response;
    request.add_jobs(job);
    request.set_wait(true);
    const grpc::Status status = regions->PollJobs(Context().get(), request, &response);
    INFO(CodeAndReason(status));
    REQUIRE(status.ok());
    REQUIRE(response.jobs_size() == 1);
    return response;
  }
  // A request with descriptors along; what it answers.
  share::AttachReply Attach(std::uint64_t region, std::uint64_t bytes,
                            const std::vector<int>& descriptors) {
    SendAttach(region, bytes, descriptors);
    const auto reply = session().Receive().As<share::AttachReply>();
    REQUIRE(reply.has_value());
    REQUIRE(reply->header.type == share::WireType::kAttachReply);
    REQUIRE(reply->region == region);
    return *reply;
  }
  void SendAttach(std::uint64_t region, std::uint64_t bytes, const std::vector<int>& descriptors) {
    share::AttachRequest request;
    request.region = region;
    request.bytes = bytes;
    iovec data{&request, sizeof request};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> control{};
    if (!descriptors.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
    }
    REQUIRE(sendmsg(session().fd(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof request));
  }

  v1::Regions::Stub* regions;
};

share::UniqueFd Sealed(std::uint64_t bytes) {
  auto fd = share::CreateMemoryFile("mine", bytes);
  REQUIRE(fd.ok());
  return *std::move(fd);
}

v1::StoreRequest StoreOf(std::uint64_t job, const std::string& key, std::uint64_t region,
                         std::uint64_t offset, std::uint64_t bytes) {
  v1::StoreRequest request;
  request.set_job(job);
  v1::StoreRequest::Key& to = *request.add_keys();
  to.set_key(key);
  v1::Fragment& fragment = *to.add_fragments();
  fragment.set_region(region);
  fragment.set_offset(offset);
  fragment.set_bytes(bytes);
  return request;
}

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1U : 0U;
  return count;
}

TEST_CASE("a memory file over the socket becomes a region, and its descriptor is not kept") {
  InProcessDaemon daemon;
  RegionClient client(daemon.dir());
  const share::UniqueFd file = Sealed(65536);
  REQUIRE(client.Attach(1, 65536, {file.get()}).status == 0);
  const std::size_t open = OpenDescriptors();
  for (std::uint64_t region = 2; region < 20; ++region) {
    REQUIRE(client.Attach(region, 4096, {file.get()}).status == 0);
  }
  CHECK(OpenDescriptors() == open);
  CHECK(client.Attach(1, 65536, {file.get()}).status ==
        static_cast<std::uint32_t>(absl::StatusCode::kAlreadyExists));
  CHECK(client.Store(StoreOf(1, "k", 1, 0, 65536)) == "OK");
  CHECK(client.Poll(1).jobs(0).ended());
  CHECK(client.Poll(1).jobs(0).failed_size() == 0);
}

TEST_CASE("what is no sealed memory file is refused, whatever it is, and leaves nothing open") {
  InProcessDaemon daemon;
  RegionClient client(daemon.dir());
  const share::UniqueFd good = Sealed(4096);
  REQUIRE(client.Attach(9, 4096, {good.get()}).status == 0);
  const std::size_t open = OpenDescriptors();
  {
    const share::UniqueFd unsealed(memfd_create("open", MFD_CLOEXEC));
    REQUIRE(ftruncate(unsealed.get(), 4096) == 0);
    const share::UniqueFd plain(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const auto only_read = share::ReopenReadOnly(good.get());
    REQUIRE(only_read.ok());
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const share::UniqueFd one(ends[0]);
    const share::UniqueFd other(ends[1]);
    for (const int fd : {unsealed.get(), plain.get(), one.get(), only_read->get()}) {
      const share::AttachReply reply = client.Attach(1, 4096, {fd});
      CHECK(reply.status == static_cast<std::uint32_t>(absl::StatusCode::kInvalidArgument));
      CHECK(std::string(reply.reason.data()) == "BAD_ARGUMENT");
      CHECK(std::strlen(reply.message.data()) > 20);
    }
    CHECK(client.Attach(1, 4096, {}).status ==
          static_cast<std::uint32_t>(absl::StatusCode::kInvalidArgument));
    CHECK(client.Attach(1, 4097, {good.get()}).status ==
          static_cast<std::uint32_t>(absl::StatusCode::kInvalidArgument));
    CHECK(client.Attach(0, 4096, {good.get()}).status ==
          static_cast<std::uint32_t>(absl::StatusCode::kInvalidArgument));
    CHECK(client.Attach(2, ~std::uint64_t{0}, {good.get()}).status ==
          static_cast<std::uint32_t>(absl::StatusCode::kInvalidArgument));
  }
  // The last are closed by a thread of their own.
  CHECK(WaitUntil([&] { return OpenDescriptors() == open; }));
  CHECK(client.Lease(1, 4096) == "OK");
}

TEST_CASE("several descriptors, or any with another message, end the session or are dropped") {
  InProcessDaemon daemon;
  RegionClient client(daemon.dir());
  const share::UniqueFd good = Sealed(4096);
  client.SendAttach(1, 4096, {good.get(), good.get()});
  CHECK(client.session().Receive().bytes.empty());
}

TEST_CASE("the bell comes over the socket and is rung when a job ends") {
  InProcessDaemon daemon;
  RegionClient client(daemon.dir());
  client.session().SendStruct(share::EventsRequest{});
  auto received = client.session().Receive();
  const auto reply = received.As<share::EventsReply>();
  REQUIRE(reply.has_value());
  CHECK(reply->status == 0);
  REQUIRE(received.descriptors.size() == 1);
  CHECK(client.Lease(1, 4096) == "OK");
  CHECK(client.Store(StoreOf(7, "k", 1, 0, 4096)) == "OK");
  CHECK(client.Poll(7).jobs(0).ended());
  CHECK(WaitUntil([&] { return share::TakeRings(received.descriptors[0].get()); }));
}

TEST_CASE("bad requests of Regions are refused by name") {
  InProcessDaemon daemon;
  RegionClient client(daemon.dir());
  CHECK(client.Lease(0, 4096) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  CHECK(client.Lease(1, 0) == "INVALID_ARGUMENT/BAD_SIZE");
  CHECK(client.Lease(1, ~std::uint64_t{0}) == "FAILED_PRECONDITION/TOO_LARGE");
  CHECK(client.Lease(1, 4096) == "OK");
  CHECK(client.Lease(1, 4096) == "ALREADY_EXISTS/ALREADY_EXISTS");
  v1::StoreRequest request = StoreOf(1, "k", 1, 0, 64);
  request.mutable_keys(0)->set_kind(static_cast<v1::TensorKind>(99));
  CHECK(client.Store(request) == "INVALID_ARGUMENT/BAD_ENUM");
  request = StoreOf(1, "k", 1, 0, 64);
  request.set_tier("flash0");
  CHECK(client.Store(request) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  request.set_tier("hbm7");
  CHECK(client.Store(request) == "NOT_FOUND/NOT_FOUND");
  CHECK(client.Store(StoreOf(0, "k", 1, 0, 64)) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  request = StoreOf(1, "k", 1, 0, 64);
  for (int i = 0; i < 4096; ++i) *request.add_keys() = request.keys(0);
  CHECK(client.Store(request) == "INVALID_ARGUMENT/BATCH_TOO_LARGE");
  request = StoreOf(1, "k", 1, 0, 64);
  for (int i = 0; i < 65536; ++i)
    *request.mutable_keys(0)->add_fragments() = request.keys(0).fragments(0);
  CHECK(client.Store(request) == "INVALID_ARGUMENT/BATCH_TOO_LARGE");
  // The largest times that there are.
  request = StoreOf(2, "k", 1, 0, 64);
  request.set_timeout_us(~std::uint64_t{0});
  CHECK(client.Store(request) == "OK");
  CHECK(client.Poll(2).jobs(0).failed_size() == 0);
  CHECK(CodeAndReason(client.Poll(3).jobs(0).error()) == "NOT_FOUND/NOT_FOUND");
  // A verdict by key.
  CHECK(client.Store(StoreOf(4, "l", 1, 4000, 97)) == "OK");
  const v1::PollJobsResponse polled = client.Poll(4);
  REQUIRE(polled.jobs(0).failed_size() == 1);
  CHECK(CodeAndReason(polled.jobs(0).failed(0).error()) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  // Other sessions have other regions and jobs.
  RegionClient other(daemon.dir());
  CHECK(CodeAndReason(other.Poll(4).jobs(0).error()) == "NOT_FOUND/NOT_FOUND");
  v1::ReleaseRegionRequest release;
  release.set_region(1);
  v1::ReleaseRegionResponse released;
  CHECK(CodeAndReason(other.regions->ReleaseRegion(other.Context().get(), release, &released)) ==
        "NOT_FOUND/NOT_FOUND");
  CHECK(CodeAndReason(client.regions->ReleaseRegion(client.Context().get(), release, &released)) ==
        "OK");
  // Nobody without a token.
  grpc::ClientContext bare;
  CHECK(CodeAndReason(client.regions->ReleaseRegion(&bare, release, &released)) ==
        "UNAUTHENTICATED/MISSING_TOKEN");
}

TEST_CASE("the bounds of regions and jobs are those of the config") {
  InProcessDaemon daemon([](daemon::Config& config) {
    config.limits.jobs.regions_per_session_max = 2;
    config.limits.jobs.attached_bytes_max = 64 * kKiB;
    config.limits.jobs.jobs_per_session_max = 1;
    config.limits.jobs.fragments_per_key_max = 3;
    config.limits.jobs.fragments_per_job_max = 4;
  });
  RegionClient client(daemon.dir());
  CHECK(client.Lease(1, 4096) == "OK");
  const share::UniqueFd file = Sealed(128 * kKiB);
  CHECK(std::string(client.Attach(2, 64 * kKiB + 1, {file.get()}).reason.data()) == "QUOTA");
  CHECK(client.Attach(2, 64 * kKiB, {file.get()}).status == 0);
  CHECK(client.Lease(3, 4096) == "RESOURCE_EXHAUSTED/QUOTA");
  v1::StoreRequest request = StoreOf(1, "k", 1, 0, 64);
  for (int i = 0; i < 4; ++i)
    *request.mutable_keys(0)->add_fragments() = request.keys(0).fragments(0);
  CHECK(client.Store(request) == "INVALID_ARGUMENT/BATCH_TOO_LARGE");  // 5 of 4 in the job
  request.mutable_keys(0)->mutable_fragments()->RemoveLast();
  CHECK(client.Store(request) == "OK");  // 4 of 3 in the key: its verdict
  const v1::PollJobsResponse polled = client.Poll(1);
  REQUIRE(polled.jobs(0).failed_size() == 1);
  CHECK(CodeAndReason(polled.jobs(0).failed(0).error()) == "INVALID_ARGUMENT/BATCH_TOO_LARGE");
  // The one place is taken until its verdict is not needed any more.
  request = StoreOf(2, "k", 1, 0, 64);
  CHECK(client.Store(request) == "RESOURCE_EXHAUSTED/QUEUE_FULL");
  request.add_forget(1);
  CHECK(client.Store(request) == "OK");
}

}  // namespace
}  // namespace hmm::testing
