// SPDX-License-Identifier: Apache-2.0
//
// A million tensors are listed, filtered and paged; what does a caller notice? One client Acquires
// resident tensors all the time; its p99 with a lister that never rests against that without, in
// pairs of the same run. Bar: at most 3.
//
//   bench_list            needs about 300 MiB; prints one row a lister
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rpc/fixture.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

using std::chrono::steady_clock;

constexpr int kTensors = 1'000'000;
constexpr int kBatch = 4000;
constexpr int kPairs = 7;
constexpr int kCalls = 1000;  // of each half of a pair
constexpr double kBar = 3.0;

void Fill(RawClient& client, std::vector<std::uint64_t>& handles) {
  for (int made = 0; made < kTensors; made += kBatch) {
    v1::AllocateRequest request;
    client.Stamp(request.mutable_call());
    for (int i = 0; i < kBatch; ++i) {
      v1::TensorSpec& spec = *request.add_tensors();
      spec.set_bytes(64);
      spec.set_key("model/layer" + std::to_string(made + i));
    }
    v1::AllocateResponse response;
    REQUIRE(client.Allocate(request, response).ok());
    v1::SealRequest seal;
    for (const auto& result : response.results()) {
      REQUIRE(!result.has_error());
      seal.add_items()->set_handle(result.handle());
      seal.mutable_items(seal.items_size() - 1)->set_unpin(true);
      handles.push_back(result.handle());
    }
    v1::SealResponse sealed;
    REQUIRE(client.stubs().memory->Seal(client.Context().get(), seal, &sealed).ok());
  }
}

// p50 and p99 of one-tensor Acquires, in microseconds.
struct Times {
  double p50 = 0;
  double p99 = 0;
};

Times Acquire(RawClient& client, const std::vector<std::uint64_t>& handles) {
  std::vector<double> took;
  for (int i = 0; i < kCalls; ++i) {
    v1::AcquireRequest request;
    client.Stamp(request.mutable_call());
    request.add_handles(handles[static_cast<std::size_t>(i) * 7919 % handles.size()]);
    v1::AcquireResponse response;
    const auto context = client.Context();
    const auto before = steady_clock::now();
    REQUIRE(client.stubs().memory->Acquire(context.get(), request, &response).ok());
    took.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - before).count());
    v1::ReleaseRequest release;
    release.set_call_id(request.call().call_id());
    release.set_oldest_live_call_id(request.call().call_id());
    v1::ReleaseResponse released;
    REQUIRE(client.stubs().memory->Release(client.Context().get(), release, &released).ok());
  }
  std::sort(took.begin(), took.end());
  return {took[took.size() / 2], took[took.size() * 99 / 100]};
}

using List = std::function<grpc::Status(const v1::ListTensorsRequest&, v1::ListTensorsResponse*)>;

// Lists over and over until told to stop. Returns tensors listed, pages and whole listings.
struct Listed {
  std::uint64_t tensors = 0;
  std::uint64_t pages = 0;
  std::uint64_t whole = 0;
};
Listed ListAll(const List& list, v1::ListTensorsRequest query, const std::atomic<bool>& stop) {
  Listed listed;
  v1::ListTensorsResponse page;
  while (!stop) {
    query.set_page_token(page.next_page_token());
    if (!list(query, &page).ok()) std::abort();
    listed.tensors += static_cast<std::uint64_t>(page.tensors_size());
    ++listed.pages;
    listed.whole += page.next_page_token().empty();
  }
  return listed;
}

bool Row(const char* name, RawClient& client, const std::vector<std::uint64_t>& handles,
         const List& list, const v1::ListTensorsRequest& query) {
  std::vector<double> ratios;
  Listed sum;
  double alone = 0;
  double beside = 0;
  const auto began = steady_clock::now();
  for (int pair = 0; pair < kPairs; ++pair) {
    const Times without = Acquire(client, handles);
    std::atomic<bool> stop = false;
    Listed listed;
    std::thread lister([&] { listed = ListAll(list, query, stop); });
    const Times with = Acquire(client, handles);
    stop = true;
    lister.join();
    ratios.push_back(with.p99 / without.p99);
    alone += without.p99 / kPairs;
    beside += with.p99 / kPairs;
    sum.tensors += listed.tensors;
    sum.pages += listed.pages;
    sum.whole += listed.whole;
  }
  std::sort(ratios.begin(), ratios.end());
  const double ratio = ratios[ratios.size() / 2];
  const double seconds = std::chrono::duration<double>(steady_clock::now() - began).count();
  std::printf(
      "%-28s p99 of Acquire %7.0f us alone, %7.0f us beside: ratio %.2f (bar %.1f) %s  "
      "[%llu tensors in %llu pages, %.0f s]\n",
      name, alone, beside, ratio, kBar, ratio <= kBar ? "ok" : "MISSED",
      static_cast<unsigned long long>(sum.tensors), static_cast<unsigned long long>(sum.pages),
      seconds);
  return ratio <= kBar && sum.pages > 0;
}

}  // namespace

TEST_CASE("listing a million tensors beside Acquire") {
  InProcessDaemon daemon([](daemon::Config& config) {
    config.limits.max_tensors = 1u << 20;
    config.tiers[0].capacity.bytes = 128 * kMiB;
    config.tiers[0].high = 1.0;
    config.tiers[0].low = 0.99;
    config.tiers[0].commit_chunk = 2 * kMiB;
  });
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RawClient client(daemon.dir());
  std::vector<std::uint64_t> handles;
  Fill(client, handles);
  Stubs admin(daemon.dir(), "admin.sock");
  const List operators = [&](const v1::ListTensorsRequest& query, v1::ListTensorsResponse* page) {
    grpc::ClientContext context;
    return admin.inspection->ListTensors(&context, query, page);
  };
  Stubs second(daemon.dir(), "hmm.sock");
  const List tenants = [&](const v1::ListTensorsRequest& query, v1::ListTensorsResponse* page) {
    return second.inspection->ListTensors(client.Context().get(), query, page);
  };
  v1::ListTensorsRequest all;
  v1::ListTensorsRequest large;
  large.set_page_size(10000);
  v1::ListTensorsRequest rare;  // one in a thousand: most of it is looking
  rare.set_key_prefix("model/layer123");
  rare.set_tier("hbm0");
  v1::ListTensorsRequest pinned;  // none
  pinned.set_pinned(true);
  bool ok = Row("admin, pages of 1000", client, handles, operators, all);
  ok = Row("admin, pages of 10000", client, handles, operators, large) && ok;
  ok = Row("admin, key prefix and tier", client, handles, operators, rare) && ok;
  ok = Row("admin, pinned", client, handles, operators, pinned) && ok;
  ok = Row("tenant, pages of 1000", client, handles, tenants, all) && ok;
  CHECK(ok);
}

}  // namespace hmm::testing
