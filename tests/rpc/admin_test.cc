// SPDX-License-Identifier: Apache-2.0
//
// What operators ask of a daemon that serves: other sizes, compaction, moves, hints, log levels;
// explanations, health, pages; and errors as the wire carries them.
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <set>

#include "base/status.h"
#include "daemon/log_format.h"
#include "daemon/page_token.h"
#include "daemon/rpc_status.h"
#include "google/rpc/errors.pb.h"
#include "rpc/fixture.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

constexpr std::uint64_t kChunk = 64 * kKiB;

struct Scene {
  // Watermarks out of the way: nothing leaves a tier but for what is asked.
  InProcessDaemon daemon{[](daemon::Config& config) {
    for (daemon::TierConfig& tier : config.tiers) {
      tier.high = 1.0;
      tier.low = 0.99;
    }
  }};
  RawClient client{daemon.dir()};
  Stubs admin{daemon.dir(), "admin.sock"};
  std::string tenant = "uid:" + std::to_string(getuid());

  std::uint64_t Sealed(std::uint64_t bytes, const std::string& key = "") {
    const std::uint64_t handle = client.Allocate(bytes, key);
    client.SealAndUnpin(handle);
    return handle;
  }
  v1::TierInfo Tier(int which) {
    grpc::ClientContext context;
    v1::ListTiersResponse tiers;
    REQUIRE(admin.inspection->ListTiers(&context, {}, &tiers).ok());
    return tiers.tiers(which);
  }
  std::string Resize(const std::string& tier, std::uint64_t bytes, v1::ResizeTierResponse& out) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::ResizeTierRequest request;
    request.set_tier(tier);
    request.set_bytes(bytes);
    return CodeAndReason(admin.admin->ResizeTier(&context, request, &out));
  }
  v1::TensorInfo Describe(std::uint64_t handle) {
    v1::DescribeRequest request;
    request.add_handles(handle);
    v1::DescribeResponse response;
    REQUIRE(client.stubs().memory->Describe(client.Context().get(), request, &response).ok());
    REQUIRE(!response.results(0).has_error());
    return response.results(0).tensor();
  }
};

}  // namespace

TEST_CASE("tiers of memory and of flash grow and shrink while they serve") {
  Scene s;
  std::vector<std::uint64_t> made;
  for (int i = 0; i < 24; ++i) made.push_back(s.Sealed(kChunk));
  v1::ResizeTierResponse out;
  CHECK(s.Resize("hbm0", kMiB, out) == "OK");
  CHECK(out.old_bytes() == 2 * kMiB);
  CHECK(out.new_bytes() == kMiB);
  // And perhaps some that the watermark sent on meanwhile.
  CHECK(out.freed_bytes() >= 8 * kChunk);
  CHECK(out.freed_bytes() <= 14 * kChunk);
  CHECK(out.tensors() >= 8);
  CHECK(s.Tier(0).capacity_bytes() == kMiB);
  CHECK(s.Tier(0).used_bytes() == kMiB);
  CHECK(s.Tier(0).free_bytes() == 0);
  CHECK(s.Describe(made[0]).tier_name() == "ddr0");
  CHECK(s.Describe(made[23]).tier_name() == "hbm0");

  CHECK(s.Resize("hbm0", 3 * kMiB, out) == "OK");
  for (int i = 0; i < 24; ++i) s.Sealed(kChunk);
  CHECK(s.Tier(0).used_bytes() >= 2 * kMiB);
  // Clients have mapped what there is of address space.
  CHECK(s.Resize("hbm0", 64 * kMiB, out) == "FAILED_PRECONDITION/TOO_LARGE");

  CHECK(s.Resize("flash0", 12 * kMiB + 1, out) == "OK");
  CHECK(out.new_bytes() == 12 * kMiB + 4096);
  CHECK(s.Resize("flash0", kMiB, out) == "OK");
  CHECK(s.Tier(2).capacity_bytes() == kMiB);
  CHECK(std::filesystem::file_size(s.daemon.dir() + "/state/flash0.tier") == kMiB + 4096);
  // Its end is still its own: the next start takes it for a tier's file.
  CHECK(s.Resize("flash0", 2 * kMiB, out) == "OK");
}

TEST_CASE("what lies at the end of a flash file moves to its front, with its bytes") {
  Scene s;
  // Fill flash from the front, then free the front.
  std::vector<std::uint64_t> made;
  for (int i = 0; i < 20; ++i) made.push_back(s.Sealed(kChunk));
  v1::SwapRequest swap;
  for (const std::uint64_t handle : made) swap.add_handles(handle);
  swap.set_tier("flash0");
  v1::SwapResponse swapped;
  REQUIRE(s.client.stubs().memory->Swap(s.client.Context().get(), swap, &swapped).ok());
  for (int i = 0; i < 16; ++i) CHECK(s.client.Free(made[static_cast<std::size_t>(i)]) == "OK");
  v1::ResizeTierResponse out;
  CHECK(s.Resize("flash0", 8 * kChunk, out) == "OK");
  CHECK(out.tensors() == 0);
  for (std::size_t i = 16; i < 20; ++i) {
    CHECK(s.Describe(made[i]).tier_name() == "flash0");
    // Read back with its checksum.
    v1::AcquireRequest acquire;
    s.client.Stamp(acquire.mutable_call());
    acquire.add_handles(made[i]);
    v1::AcquireResponse acquired;
    REQUIRE(s.client.stubs().memory->Acquire(s.client.Context().get(), acquire, &acquired).ok());
    CHECK(!acquired.results(0).has_error());
  }
}

TEST_CASE("a tier does not shrink below what is pinned") {
  Scene s;
  for (int i = 0; i < 10; ++i) s.client.Allocate(kChunk);
  grpc::ClientContext context;
  v1::ResizeTierRequest request;
  request.set_tier("hbm0");
  request.set_bytes(8 * kChunk);
  v1::ResizeTierResponse out;
  const grpc::Status status = s.admin.admin->ResizeTier(&context, request, &out);
  CHECK(CodeAndReason(status) == "FAILED_PRECONDITION/PINNED");
  CHECK(status.error_message().find(std::to_string(10 * kChunk)) != std::string::npos);
  google::rpc::Status rich;
  REQUIRE(rich.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  REQUIRE(rich.details(0).UnpackTo(&info));
  CHECK(info.metadata().at("pinned_bytes") == std::to_string(10 * kChunk));
  CHECK(info.metadata().at("smallest_bytes") == std::to_string(10 * kChunk));
  CHECK(s.Tier(0).capacity_bytes() == 2 * kMiB);
  CHECK(s.Resize("hbm0", 10 * kChunk, out) == "OK");
  CHECK(s.Resize("hbm9", kChunk, out) == "NOT_FOUND/NOT_FOUND");
  CHECK(s.Resize("hbm0", 0, out) == "INVALID_ARGUMENT/BAD_SIZE");
  CHECK(s.Resize("hbm0", ~std::uint64_t{0}, out) == "INVALID_ARGUMENT/BAD_SIZE");
}

TEST_CASE("compaction gives sparse chunks back to the machine") {
  Scene s;
  // Four to a chunk; one of four stays.
  std::vector<std::uint64_t> made;
  for (int i = 0; i < 64; ++i) made.push_back(s.Sealed(kChunk / 4));
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (i % 4 != 0) CHECK(s.client.Free(made[i]) == "OK");
  }
  CHECK(s.Tier(0).used_bytes() == 4 * kChunk);
  CHECK(s.Tier(0).committed_free_bytes() == 12 * kChunk);
  const auto compact = [&](const std::string& tier, v1::CompactResponse& out) {
    grpc::ClientContext context;
    v1::CompactRequest request;
    request.set_tier(tier);
    return CodeAndReason(s.admin.admin->Compact(&context, request, &out));
  };
  v1::CompactResponse out;
  CHECK(compact("hbm0", out) == "OK");
  CHECK(out.tensors() == 12);
  CHECK(out.moved_bytes() == 3 * kChunk);
  CHECK(out.returned_bytes() == 12 * kChunk);
  CHECK(out.pinned_chunks() == 0);
  CHECK(s.Tier(0).committed_free_bytes() == 0);
  CHECK(s.Tier(0).used_bytes() == 4 * kChunk);
  CHECK(compact("", out) == "OK");
  CHECK(out.returned_bytes() == 0);
  CHECK(compact("tape0", out) == "NOT_FOUND/NOT_FOUND");
}

TEST_CASE("what protobuf says of requests that do not parse is no line of its own") {
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(8);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  daemon::QuietProtobuf();
  v1::EvictRequest request;
  const std::string no_utf8("\x0a\x01\xff", 3);  // tier
  CHECK_FALSE(request.ParseFromString(no_utf8));
  CHECK(lines->last_raw().empty());
  spdlog::default_logger()->set_level(spdlog::level::debug);
  CHECK_FALSE(request.ParseFromString(no_utf8));
  REQUIRE(lines->last_formatted().size() == 1);
  CHECK_THAT(lines->last_formatted()[0], Catch::Contains("EvictRequest.tier"));
  spdlog::set_default_logger(before);
}

TEST_CASE("operators move a tenant's tensors and hint at them") {
  Scene s;
  s.Sealed(kChunk, "a/1");
  s.Sealed(kChunk, "a/2");
  s.Sealed(kChunk, "b/1");
  const auto swap = [&](v1::AdminSwapRequest request, v1::AdminSwapResponse& out) {
    grpc::ClientContext context;
    return CodeAndReason(s.admin.admin->Swap(&context, request, &out));
  };
  v1::AdminSwapRequest request;
  request.mutable_tensors()->set_tenant(s.tenant);
  request.mutable_tensors()->set_key_prefix("a/");
  request.set_tier("flash0");
  v1::AdminSwapResponse out;
  CHECK(swap(request, out) == "OK");
  CHECK(out.tensors() == 2);
  CHECK(out.moved_bytes() == 2 * kChunk);
  CHECK(out.left_tensors() == 0);
  CHECK(!out.has_first_error());
  request.set_tier("tape0");
  CHECK(swap(request, out) == "NOT_FOUND/NOT_FOUND");
  request.mutable_tensors()->set_kind(static_cast<v1::TensorKind>(99));
  CHECK(swap(request, out) == "INVALID_ARGUMENT/BAD_ENUM");

  grpc::ClientContext context;
  v1::AdminPrefetchRequest hint;
  hint.mutable_tensors()->set_tenant(s.tenant);
  hint.mutable_tensors()->add_keys("a/1");
  hint.mutable_tensors()->add_keys("none");
  v1::AdminPrefetchResponse hinted;
  REQUIRE(s.admin.admin->Prefetch(&context, hint, &hinted).ok());
  CHECK(hinted.tensors() == 1);
  CHECK(hinted.dropped_tensors() == 1);
  CHECK(CodeAndReason(hinted.first_error()) == "NOT_FOUND/NOT_FOUND");
}

TEST_CASE("an operator is told why a tensor is where it is") {
  Scene s;
  const std::uint64_t handle = s.Sealed(kChunk, "k");
  v1::SwapRequest swap;
  swap.add_handles(handle);
  swap.set_tier("ddr0");
  v1::SwapResponse swapped;
  REQUIRE(s.client.stubs().memory->Swap(s.client.Context().get(), swap, &swapped).ok());
  const auto explain = [&](v1::ExplainRequest request, v1::ExplainResponse& out) {
    grpc::ClientContext context;
    return CodeAndReason(s.admin.inspection->Explain(&context, request, &out));
  };
  v1::ExplainRequest request;
  request.set_tenant(s.tenant);
  request.set_key("k");
  v1::ExplainResponse out;
  REQUIRE(explain(request, out) == "OK");
  CHECK(out.tensor().handle() == handle);
  CHECK(out.policy() == "lru");
  CHECK(out.cost().below() == "flash0");
  CHECK(out.cost().horizon_ms() == 10000);
  CHECK(out.cost().weight() == 1);
  REQUIRE(out.moves_size() == 1);
  CHECK(out.moves(0).cause() == v1::MOVE_CAUSE_SWAP);
  CHECK(out.moves(0).to() == "ddr0");
  CHECK(!out.next().empty());
  request.set_handle(handle);
  CHECK(explain(request, out) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  request.clear_key();
  request.clear_handle();
  CHECK(explain(request, out) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  request.set_key("none");
  CHECK(explain(request, out) == "NOT_FOUND/NOT_FOUND");
  request.set_tenant("nobody");
  CHECK(explain(request, out) == "NOT_FOUND/NOT_FOUND");
}

TEST_CASE("each tier's health, and sessions with who they are") {
  Scene s;
  s.client.Allocate(kChunk);
  grpc::ClientContext context;
  v1::GetHealthResponse health;
  REQUIRE(s.admin.inspection->GetHealth(&context, {}, &health).ok());
  CHECK(health.serving());
  REQUIRE(health.tiers_size() == 3);
  CHECK(health.tiers(0).state() == "online");
  CHECK(health.tiers(0).reason().empty());
  CHECK(health.tiers(2).tier() == "flash0");
  grpc::ClientContext second;
  v1::GetHealthRequest one;
  one.set_tier("tape0");
  CHECK(CodeAndReason(s.admin.inspection->GetHealth(&second, one, &health)) ==
        "NOT_FOUND/NOT_FOUND");
  grpc::ClientContext third;
  v1::ListSessionsResponse sessions;
  REQUIRE(s.admin.inspection->ListSessions(&third, {}, &sessions).ok());
  REQUIRE(sessions.sessions_size() == 1);
  CHECK(sessions.sessions(0).uid() == getuid());
  CHECK(sessions.sessions(0).pid() == static_cast<std::uint32_t>(getpid()));
  CHECK(!sessions.sessions(0).command().empty());
  CHECK(sessions.sessions(0).pinned_bytes() == kChunk);
}

TEST_CASE("pages of a listing are filtered, and belong to their query") {
  Scene s;
  for (int i = 0; i < 30; ++i) s.Sealed(4096, (i % 2 == 0 ? "even/" : "odd/") + std::to_string(i));
  const auto page = [&](v1::ListTensorsRequest request, v1::ListTensorsResponse& out) {
    grpc::ClientContext context;
    return CodeAndReason(s.admin.inspection->ListTensors(&context, request, &out));
  };
  v1::ListTensorsRequest query;
  query.set_key_prefix("even/");
  query.set_page_size(4);
  std::set<std::string> seen;
  v1::ListTensorsResponse out;
  std::string token;
  int pages = 0;
  do {
    query.set_page_token(out.next_page_token());
    REQUIRE(page(query, out) == "OK");
    for (const auto& tensor : out.tensors()) CHECK(seen.insert(tensor.key()).second);
    CHECK(out.tensors_size() <= 4);
    if (token.empty()) token = out.next_page_token();
  } while (!out.next_page_token().empty() && ++pages < 20);
  CHECK(seen.size() == 15);

  query.set_page_token(token);
  CHECK(page(query, out) == "OK");
  query.set_page_size(7);  // no part of the query
  CHECK(page(query, out) == "OK");
  v1::ListTensorsRequest other = query;
  other.set_key_prefix("odd/");
  CHECK(page(other, out) == "INVALID_ARGUMENT/PAGE_TOKEN");
  other = query;
  other.set_pinned(false);
  CHECK(page(other, out) == "INVALID_ARGUMENT/PAGE_TOKEN");
  other = query;
  other.mutable_page_token()->back() ^= 1;  // forged
  CHECK(page(other, out) == "INVALID_ARGUMENT/PAGE_TOKEN");
  // On the tenant socket the same query is another.
  CHECK(CodeAndReason(s.client.stubs().inspection->ListTensors(
            s.client.Context().get(), query, &out)) == "INVALID_ARGUMENT/PAGE_TOKEN");
  other = {};
  other.set_tier("tape0");
  CHECK(page(other, out) == "NOT_FOUND/NOT_FOUND");
  other = {};
  other.set_tenant("nobody");
  CHECK(page(other, out) == "NOT_FOUND/NOT_FOUND");
  other = {};
  other.set_kind(static_cast<v1::TensorKind>(42));
  CHECK(page(other, out) == "INVALID_ARGUMENT/BAD_ENUM");
  other = {};
  other.set_state(static_cast<v1::TensorState>(42));
  CHECK(page(other, out) == "INVALID_ARGUMENT/BAD_ENUM");
  other = {};
  other.set_key_prefix(std::string(300, 'k'));
  CHECK(page(other, out) == "INVALID_ARGUMENT/BAD_ARGUMENT");
}

TEST_CASE("page tokens of another start of the daemon are refused") {
  const std::string token = daemon::MakePageToken("query", 1, 77);
  CHECK(daemon::ReadPageToken(token, "query", 1).value() == 77);
  for (const auto& status : {daemon::ReadPageToken(token, "query", 2).status(),
                             daemon::ReadPageToken(token, "other", 1).status(),
                             daemon::ReadPageToken("", "query", 1).status(),
                             daemon::ReadPageToken(token + "0", "query", 1).status(),
                             daemon::ReadPageToken(std::string(32, '-'), "query", 1).status()}) {
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(ReasonOf(status) == Reason::kPageToken);
  }
}

TEST_CASE("the log level changes while the daemon runs") {
  Scene s;
  const auto before = spdlog::get_level();
  const auto set = [&](const std::string& level, v1::SetLogLevelResponse& out) {
    grpc::ClientContext context;
    v1::SetLogLevelRequest request;
    request.set_level(level);
    return CodeAndReason(s.admin.admin->SetLogLevel(&context, request, &out));
  };
  v1::SetLogLevelResponse out;
  CHECK(set("warn", out) == "OK");
  CHECK(set("debug", out) == "OK");
  CHECK(out.previous() == "warn");
  CHECK(spdlog::get_level() == spdlog::level::debug);
  CHECK(set("loud", out) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  CHECK(set("", out) == "INVALID_ARGUMENT/BAD_ARGUMENT");
  CHECK(spdlog::get_level() == spdlog::level::debug);
  spdlog::set_level(before);
}

TEST_CASE("every reason travels whole: domain, reason, retry, in less than 4 KiB") {
  const Reason reasons[] = {
#define HMM_X(name, wire, text) Reason::k##name,
      HMM_REASONS(HMM_X)
#undef HMM_X
  };
  for (const Reason reason : reasons) {
    const std::string name(ReasonName(reason));
    INFO(name);
    CHECK(name.size() <= 63);
    CHECK(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == std::string::npos);
    // The worst there can be: a message and facts beyond all measure, nothing of it printable.
    absl::Status status =
        WithRetry(Error(absl::StatusCode::kResourceExhausted, reason, std::string(100'000, '\xff')),
                  std::chrono::hours(24 * 365));
    for (int i = 0; i < 100; ++i) {
      status = WithDetail(status, std::string(500, '\x01') + std::to_string(i),
                          std::string(5000, '\xfe'));
    }
    const grpc::Status sent = daemon::ToGrpcStatus(status, ~std::uint64_t{0});
    // The message is sent percent-encoded beside the details; together below gRPC's 8 KiB.
    CHECK(sent.error_details().size() < 4096);
    CHECK(sent.error_message().size() <= daemon::kMessageBytesMax);
    google::rpc::Status rich;
    REQUIRE(rich.ParseFromString(sent.error_details()));
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    REQUIRE(rich.details_size() == 2);
    REQUIRE(rich.details(0).UnpackTo(&info));
    REQUIRE(rich.details(1).UnpackTo(&retry));
    CHECK(info.domain() == "hmm");
    CHECK(info.reason() == name);
    CHECK(info.metadata().at("epoch") == std::to_string(~std::uint64_t{0}));
    CHECK(retry.retry_delay().seconds() == 24 * 365 * 3600);
  }
  // Without a reason of ours it is a bug of ours, and says so.
  CHECK(CodeAndReason(daemon::ToGrpcStatus(absl::UnknownError("?"), 1)) == "UNKNOWN/INTERNAL");
}

}  // namespace hmm::testing
