// SPDX-License-Identifier: Apache-2.0
//
// Sessions: what outlives them, what dies with them, and when their pins go.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("keyed and sealed tensors outlive their session, all others die", "[session]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle kept = f.MakeSealed(client, 64, "hbm0", "kept");
  f.MakeSealed(client, 128, "hbm0");  // sealed, no key
  core::AllocateArgs args = f.One(256);
  args.tensors[0].key = "unsealed";
  REQUIRE(f.Allocate(client, args)->get().tensors[0].ok());
  f.Make(client, 512);
  f.manager->ReapSession(client.session);
  f.Run();
  CHECK(f.Used(f.kHbm) == 64);
  CoreClient next = f.Open();
  CHECK(f.Lookup(next, {"kept"})->get().run[0].handle == kept);
  CHECK(f.Lookup(next, {"unsealed"})->get().miss_reason == "NOT_FOUND");
  CHECK(f.Counted().reaped_sessions == 1);
}

TEST_CASE("what was bought with a key at Seal belongs to the tenant too", "[session]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.Make(client, 64);
  REQUIRE(f.Seal(client, handle, "late").ok());
  CHECK(f.Describe(client, handle)->owner == 0);
  f.manager->ReapSession(client.session);
  f.Run();
  CHECK(f.Used(f.kHbm) == 64);
}

TEST_CASE("a dead session's tensors die even where others pin them, when those pins go",
          "[session]") {
  CoreFixture f;
  CoreClient dies = f.Open();
  CoreClient other = f.Open();
  const Handle handle = f.MakeSealed(dies, kKiB);
  REQUIRE(other.TryPin(handle));
  f.manager->ReapSession(dies.session);
  f.Run();
  CHECK(!other.TryPin(handle));
  CHECK(f.Used(f.kHbm) == kKiB);
  other.Unpin(handle);
  f.Pass(milliseconds(2));
  CHECK(f.Used(f.kHbm) == 0);
}

TEST_CASE("CLOSING: no new calls, waiting ones end, pins stay until the process is dead",
          "[session]") {
  CoreFixture f;
  CoreClient client = f.Open();
  CoreClient other = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "hbm0", "k");
  REQUIRE(client.TryPin(handle));
  const Handle absent = f.MakeOnFlash(client, 64);
  const auto waits = f.Acquire(client, absent);
  REQUIRE(!waits->done());
  f.manager->CloseSession(client.session);
  CHECK(Is(waits->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
  CHECK(!f.manager->FindSession(client.token).has_value());
  for (const absl::Status& refused :
       {f.Acquire(client, handle)->status(), f.Allocate(client, f.One(64))->status(),
        f.Seal(client, handle), f.Free(client, handle).status(), f.Prefetch(client, handle),
        f.Describe(client, handle).status(), f.Lookup(client, {"k"})->status(),
        f.Swap(client, {handle}, "ddr0")->status(),
        f.manager->Release(client.session, 1, 0).status()}) {
    CHECK(Is(refused, absl::StatusCode::kUnauthenticated, Reason::kUnknownSession));
  }
  const auto swap = f.Swap(other, {handle}, "ddr0");
  CHECK(
      Is(swap->get().tensors[0].status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
  CHECK(f.Free(other, handle)->deferred);
  f.PassSlowly(milliseconds(50));
  CHECK(f.Used(f.kHbm) == kKiB);
  f.manager->ReapSession(client.session);
  f.Settle();
  CHECK(f.Used(f.kHbm) == 0);
  f.manager->ReapSession(client.session);  // again: nothing
}

TEST_CASE("the death of a session frees its waiting calls' rooms", "[session]") {
  CoreFixture f;
  CoreClient client = f.Open();
  CoreClient other = f.Open();
  for (int i = 0; i < 5; ++i) f.Make(other, kKiB);
  core::AllocateArgs args;
  for (int i = 0; i < 4; ++i) args.tensors.push_back(Spec(kKiB));
  args.wait = true;
  const auto waits = f.Allocate(client, std::move(args));
  REQUIRE(f.In(f.kHbm, tier::ByteState::kReserved) > 0);
  f.manager->ReapSession(client.session);
  CHECK(waits->status().code() == absl::StatusCode::kCancelled);
  CHECK(f.In(f.kHbm, tier::ByteState::kReserved) == 0);
}

TEST_CASE("a session with very many tensors is buried in parts", "[session]") {
  CoreOptions options;
  options.hbm = 2 * kMiB;
  options.core.max_tensors = 20000;
  options.core.batch_max = 20000;
  CoreFixture f(options);
  CoreClient client = f.Open();
  core::AllocateArgs args;
  for (int i = 0; i < 20000; ++i) args.tensors.push_back(Spec(64));
  REQUIRE(f.Allocate(client, std::move(args))->done());
  CHECK(f.manager->GetStatus(std::nullopt).tensors == 20000);
  f.manager->ReapSession(client.session);
  CHECK(f.manager->GetStatus(std::nullopt).tensors > 0);
  f.Run();
  CHECK(f.manager->GetStatus(std::nullopt).tensors == 0);
  CHECK(f.Used(f.kHbm) == 0);
}

TEST_CASE("bounds and names of sessions", "[session]") {
  CoreOptions options;
  options.core.sessions_max = 3;
  options.core.sessions_per_tenant_max = 2;
  CoreFixture f(options);
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("a");
  core::SessionInfo info;
  info.tenant = "a";
  CHECK(Is(f.manager->OpenSession(info).status(), absl::StatusCode::kResourceExhausted,
           Reason::kRefused));
  info.tenant = "b";
  info.device = "hbm7";
  CHECK(f.manager->OpenSession(info).status().code() == absl::StatusCode::kNotFound);
  info.device = "flash0";
  CHECK(f.manager->OpenSession(info).status().code() == absl::StatusCode::kInvalidArgument);
  info.device = "ddr0";
  REQUIRE(f.manager->OpenSession(info).ok());
  info.tenant = "c";
  CHECK(Is(f.manager->OpenSession(info).status(), absl::StatusCode::kResourceExhausted,
           Reason::kRefused));
  CHECK(f.manager->FindSession(a.token) == a.session);
  CHECK(a.token != b.token);
  f.manager->ReapSession(b.session);
  CHECK(f.manager->OpenSession(info).ok());
}

TEST_CASE("a tenant that commits memory behind our back is expelled", "[session]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient second = f.Open("a");
  CoreClient b = f.Open("b");
  std::vector<SessionId> expelled;
  f.manager->OnExpel([&](SessionId session, std::string_view why) {
    CHECK(why.find("hbm0") != std::string_view::npos);
    expelled.push_back(session);
    f.manager->ReapSession(session);
  });
  f.tier(f.kHbm).ReportExcess(0, 512);  // a sixteenth of the tier is let pass
  f.Pass(milliseconds(1000));
  CHECK(expelled.empty());
  f.tier(f.kHbm).ReportExcess(0, 513);
  f.Pass(milliseconds(1000));
  CHECK(expelled == std::vector<SessionId>{a.session, second.session});
  CHECK(f.Counted().expelled_sessions == 2);
  CHECK(f.manager->FindSession(b.token).has_value());
}

}  // namespace
}  // namespace hmm::testing
