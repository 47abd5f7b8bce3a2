// SPDX-License-Identifier: Apache-2.0
//
// Shares: what a session may hold pinned, what a tenant may hold in a tier.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

CoreOptions PinnedHalf() {
  CoreOptions options;
  options.core.session_pinned_max = 0.5;  // 4 KiB of hbm0
  return options;
}

TEST_CASE("pins past the session's share are QUOTA with a retry delay", "[quota]") {
  CoreFixture f(PinnedHalf());
  CoreClient client = f.Open();
  for (int i = 0; i < 4; ++i) f.Make(client, kKiB);
  const auto answer = f.Allocate(client, f.One(kKiB));
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(RetryAfter(answer->status()).has_value());
  CHECK(f.Used(f.kHbm) == 4 * kKiB);
  CoreClient other = f.Open();
  f.Make(other, kKiB);  // a share each
}

TEST_CASE("more than the whole share is never retried", "[quota]") {
  CoreFixture f(PinnedHalf());
  CoreClient client = f.Open();
  const auto answer = f.AllocateWaiting(client, 4 * kKiB + 64);
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(!RetryAfter(answer->status()).has_value());
}

TEST_CASE("what was unpinned silently does not count, between two audits either", "[quota]") {
  CoreFixture f(PinnedHalf());
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB);
  for (int i = 0; i < 50; ++i) {
    f.clock.Advance(milliseconds(3));
    INFO(i);
    REQUIRE(f.Acquire(client, handle)->get().tensors[0].ok());
    client.Unpin(handle);
  }
}

TEST_CASE("Acquire and Lookup past the share are QUOTA", "[quota]") {
  CoreFixture f(PinnedHalf());
  CoreClient client = f.Open();
  const Handle more = f.MakeSealed(client, kKiB, "hbm0", "k");
  for (int i = 0; i < 4; ++i) f.Make(client, kKiB);
  CHECK(
      Is(f.Acquire(client, more)->status(), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(f.Lookup(client, {"k"})->get().miss_reason == "QUOTA");
  CHECK(client.Pins(more) == 0);
}

TEST_CASE("the audit counts what the page holds", "[quota]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB);
  REQUIRE(client.TryPin(handle));
  REQUIRE(client.TryPin(handle));
  f.Pass(milliseconds(1000));
  CHECK(f.manager->ListTiers(std::nullopt)[f.kHbm].pinned == kKiB);
  const auto sessions = f.manager->ListSessions(std::nullopt);
  REQUIRE(sessions.size() == 1);
  CHECK(sessions[0].pins == 2);
  CHECK(sessions[0].pinned_bytes == kKiB);
  client.Unpin(handle);
  client.Unpin(handle);
  f.Pass(milliseconds(1000));
  CHECK(f.manager->ListTiers(std::nullopt)[f.kHbm].pinned == 0);
}

TEST_CASE("at the pin maximum of a word Acquire says PINNED", "[quota]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, 64);
  client.Word(handle).store(share::kPinMax);
  CHECK(!client.TryPin(handle));
  CHECK(Is(f.Acquire(client, handle)->status(), absl::StatusCode::kFailedPrecondition,
           Reason::kPinned));
  CHECK(client.Pins(handle) == share::kPinMax);
}

CoreOptions TenantHalf() {
  CoreOptions options;
  options.core.tenant_resident_max = 0.5;
  return options;
}

TEST_CASE("a tenant past its share makes room among its own", "[quota]") {
  CoreFixture f(TenantHalf());
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  std::vector<Handle> others, own;
  for (int i = 0; i < 2; ++i) others.push_back(f.MakeSealed(b, kKiB));
  for (int i = 0; i < 4; ++i) own.push_back(f.MakeSealed(a, kKiB));
  const auto waits = f.AllocateWaiting(a, kKiB);
  // However often it is looked at: one has to go, one goes.
  f.PassSlowly(milliseconds(20));
  CHECK(f.copier.size() == 1);
  f.Settle();
  CHECK(waits->get().tensors[0].ok());
  CHECK(a.State(own[0]).tier == f.kDdr);
  for (const Handle handle : others) CHECK(b.State(handle).tier == f.kHbm);
}

TEST_CASE("a tenant's clean copies give way before its share is used up", "[quota]") {
  CoreFixture f(TenantHalf());
  CoreClient client = f.Open();
  std::vector<Handle> twice;
  for (int i = 0; i < 2; ++i) {
    twice.push_back(f.MakeSealed(client, kKiB, "ddr0"));
    (void)f.Swap(client, {twice.back()}, "hbm0");
    f.Settle();
  }
  for (int i = 0; i < 6; ++i) f.Make(client, kKiB, "ddr0");
  f.Make(client, kKiB, "ddr0");  // with the two clean copies it would be nine
  CHECK(f.Counted().clean_drops == 1);
}

TEST_CASE("a tenant's own share, by tier, goes before that of all", "[quota]") {
  CoreOptions options = TenantHalf();
  options.core.tenant_limits["a"] = {{.ratio = 0.25}, {.bytes = 3 * kKiB}, {}};
  options.core.tenant_limits["b"] = {{.ratio = 1.0}, {}, {}};
  CoreFixture f(options);
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  CoreClient c = f.Open("c");
  const auto whole = [&](CoreClient& client, Bytes bytes, const std::string& tier) {
    return f.Allocate(client, CoreFixture::One(bytes, tier))->status();
  };
  const Bytes hbm = options.hbm;
  CHECK(Is(whole(a, hbm / 4 + 64, "hbm0"), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(Is(whole(a, 3 * kKiB + 64, "ddr0"), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(Is(whole(c, hbm / 2 + 64, "hbm0"), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  // Within its share it gets room, and one more makes room among its own.
  std::vector<Handle> own;
  for (Bytes held = 0; held < hbm / 4; held += kKiB) own.push_back(f.MakeSealed(a, kKiB));
  const auto waits = f.AllocateWaiting(a, kKiB);
  f.Settle();
  CHECK(waits->get().tensors[0].ok());
  CHECK(a.State(own[0]).tier == f.kDdr);
  // Whoever has all of it is bounded by the tier alone.
  f.Make(b, hbm / 2 + kKiB);
}

TEST_CASE("more than a tenant's whole share is QUOTA, never retried", "[quota]") {
  CoreFixture f(TenantHalf());
  CoreClient client = f.Open();
  const auto answer = f.AllocateWaiting(client, 4 * kKiB + 64);
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(!RetryAfter(answer->status()).has_value());
}

}  // namespace
}  // namespace hmm::testing
