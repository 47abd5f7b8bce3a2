// SPDX-License-Identifier: Apache-2.0
//
// Cases that want the daemon in the test's process, so that the sanitizers see both sides. Numbers
// as in docs/guarantees.md.
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "rpc/fixture.h"
#include "share/layout.h"
#include "share/memory_file.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

// What a call was told. The words are made on the test's thread: Catch knows only one.
struct Told {
  grpc::Status status;
  v1::AcquireResponse response;
  std::string Words() const {
    return status.ok() ? CodeAndReason(response.results(0).error()) : CodeAndReason(status);
  }
};

// One verb after another on a handle, until one is refused as a whole.
void AskOn(RawClient& client, std::uint64_t handle, bool moves, Told& told) {
  v1::Memory::Stub& memory = *client.stubs().memory;
  for (int i = 0; i < 100'000 && told.status.ok(); ++i) {
    if (moves && i % 2 == 0) {
      v1::SwapRequest request;
      request.add_handles(handle);
      request.set_tier(i % 4 == 0 ? "flash0" : "hbm0");
      v1::SwapResponse response;
      told.status = memory.Swap(client.Context().get(), request, &response);
    } else if (moves) {
      v1::PrefetchRequest request;
      request.add_handles(handle);
      v1::PrefetchResponse response;
      told.status = memory.Prefetch(client.Context().get(), request, &response);
    } else if (i % 2 == 0) {
      v1::SealRequest request;
      request.add_items()->set_handle(handle);
      v1::SealResponse response;
      told.status = memory.Seal(client.Context().get(), request, &response);
    } else {
      v1::DescribeRequest request;
      request.add_handles(handle);
      v1::DescribeResponse response;
      told.status = memory.Describe(client.Context().get(), request, &response);
    }
  }
}

// A waiting Acquire: of a tensor that is pinned in ddr0 and wanted in hbm0.
void AcquireWaiting(RawClient& client, std::uint64_t handle, std::uint64_t call, Told& told) {
  v1::AcquireRequest request;
  request.mutable_call()->set_call_id(call);
  request.add_handles(handle);
  request.set_tier("hbm0");
  const auto context = client.Context();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  told.status = client.stubs().memory->Acquire(context.get(), request, &told.response);
}

TEST_CASE("case 7: a session closes while calls on its handle are under way", "[case 7]") {
  InProcessDaemon daemon;
  const Books before = ReadBooks(daemon.dir());
  std::mt19937_64 rng(7);
  for (int round = 0; round < 40; ++round) {
    RawClient client(daemon.dir());
    v1::AllocateRequest request;
    client.Stamp(request.mutable_call());
    request.add_tensors()->set_bytes(32 * kKiB);
    request.set_tier("ddr0");
    v1::AllocateResponse response;
    REQUIRE(client.Allocate(request, response).ok());
    const std::uint64_t handle = response.results(0).handle();  // pinned: the Acquires wait
    std::vector<std::thread> callers;
    std::array<Told, 4> told;
    for (std::uint64_t t = 0; t < 2; ++t) {
      callers.emplace_back([&, t] { AcquireWaiting(client, handle, 100 + t, told[t]); });
      callers.emplace_back([&, t] { AskOn(client, handle, t == 0, told[2 + t]); });
    }
    ::poll(nullptr, 0,
           static_cast<int>(rng() % 5));  // somewhere between their start and their wait
    v1::FreeRequest free;
    free.add_handles(handle);
    v1::FreeResponse freed;
    if (round % 2 == 0) {
      (void)client.stubs().memory->Free(client.Context().get(), free, &freed);
    }
    client.session().Close();
    for (std::thread& caller : callers) caller.join();
    for (std::size_t t = 0; t < 2; ++t) CHECK(told[t].Words() != "OK");
    for (std::size_t t = 2; t < 4; ++t) CHECK_FALSE(told[t].status.ok());
  }
  // This process lives on, so its sessions are quarantined, not reaped: they wait for no one.
  CHECK(ReadBooks(daemon.dir()).sessions >= before.sessions);
  RawClient after(daemon.dir());
  CHECK(after.Allocate(64 * kKiB) != 0);
}

// Pins of a tenant's sessions, as itself is told.
std::uint64_t PinsOf(RawClient& client) {
  v1::ListSessionsResponse shown;
  REQUIRE(client.stubs().inspection->ListSessions(client.Context().get(), {}, &shown).ok());
  std::uint64_t pins = 0;
  for (const v1::SessionInfo& session : shown.sessions()) pins += session.pins();
  return pins;
}

TEST_CASE("case 20: random words in a session page hurt nobody else", "[case 20]") {
  InProcessDaemon daemon([](daemon::Config& config) {
    daemon::TenantConfig pod;
    pod.name = "pod";
    pod.dir = config.dir + "/pod";
    config.tenants = {pod};
    // What the scribbled pins hold of their tenant stays in place, up to the tenant's share.
    config.limits.tenant_resident_max = 0.75;
  });
  const Books before = ReadBooks(daemon.dir());
  RawClient other(daemon.dir());
  // Of another tenant: nothing at all changes for it.
  RawClient stranger(daemon.dir() + "/pod");
  const std::uint64_t strange = stranger.Allocate(64 * kKiB, "strange");
  stranger.SealAndUnpin(strange);
  std::vector<std::uint64_t> kept;
  for (int i = 0; i < 8; ++i) {
    kept.push_back(other.Allocate(64 * kKiB, "kept:" + std::to_string(i)));
    other.SealAndUnpin(kept.back());
  }
  {
    RawSession hostile(daemon.dir());
    hostile.SendStruct(RawSession::GoodHello());
    const RawSession::Received received = hostile.Receive();
    const auto welcome = received.As<share::Welcome>();
    REQUIRE(welcome.has_value());
    auto page =
        share::Mapping::Map(received.descriptors[1].get(), share::PageBytes(welcome->max_tensors),
                            share::Mapping::Access::kReadWrite, false);
    REQUIRE(page.ok());
    // Every word of the page, its header too, at random, for as long as the others work.
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> written{0};
    std::thread scribbler([&] {
      std::mt19937_64 rng(20);
      auto* words = reinterpret_cast<std::atomic<std::uint32_t>*>(page->data());
      const std::size_t count = share::PageBytes(welcome->max_tensors) / sizeof(std::uint32_t);
      while (!over) {
        // Often the few slots that are used, where it can do something.
        const std::size_t at = rng() % 2 == 0 ? rng() % count : rng() % 1200;
        words[at].store(static_cast<std::uint32_t>(rng()), std::memory_order_relaxed);
        ++written;
      }
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    std::uint64_t served = 0;
    while (std::chrono::steady_clock::now() < end) {
      v1::AllocateRequest request;
      other.Stamp(request.mutable_call());
      request.add_tensors()->set_bytes(96 * kKiB);
      request.set_allow_lower(true);
      v1::AllocateResponse response;
      const grpc::Status status = other.Allocate(request, response);
      REQUIRE(status.ok());
      if (response.results(0).error().code() == 0) {
        CHECK(other.Free(response.results(0).handle()).starts_with("OK"));
        other.ReleaseLast();
        ++served;
      }
      const std::uint64_t held = stranger.Allocate(32 * kKiB);
      CHECK(PinsOf(stranger) == 1);
      stranger.ReleaseLast();
      CHECK(PinsOf(stranger) == 0);
      CHECK(stranger.Free(held).starts_with("NOT_FOUND"));
      for (const char* tier : {"ddr0", "hbm0"}) {  // its tensors move as if nobody else were there
        v1::SwapRequest swap;
        swap.add_handles(strange);
        swap.set_tier(tier);
        v1::SwapResponse swapped;
        REQUIRE(stranger.stubs().memory->Swap(stranger.Context().get(), swap, &swapped).ok());
        CHECK(CodeAndReason(swapped.results(0).error()) == "OK");
      }
      for (const std::uint64_t handle : kept) {
        v1::DescribeRequest describe;
        describe.add_handles(handle);
        v1::DescribeResponse described;
        REQUIRE(other.stubs().memory->Describe(other.Context().get(), describe, &described).ok());
        REQUIRE(described.results(0).error().code() == 0);
        CHECK(described.results(0).tensor().bytes() == 64 * kKiB);
      }
    }
    over = true;
    scribbler.join();
    CHECK(written > 10'000);
    CHECK(served > 0);
    share::Goodbye goodbye;
    hostile.SendStruct(goodbye);
    CHECK(hostile.Receive().bytes.empty());
  }
  // Its page is gone and with it whatever it claimed: all can move and be freed again.
  for (const std::uint64_t handle : kept) CHECK(other.Free(handle) == "OK");
  CHECK(stranger.Free(strange) == "OK");
  CHECK(WaitUntil([&] {
    const Books now = ReadBooks(daemon.dir());
    return now.pins == before.pins && now.tensors == before.tensors && now.used == before.used;
  }));
}

}  // namespace
}  // namespace hmm::testing
