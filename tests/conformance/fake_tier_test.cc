// SPDX-License-Identifier: Apache-2.0
// The fake is held to the same contract as the real ones: tests of the core stand on it.
#include "support/fake_tier.h"

#include "conformance/tier_conformance.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

std::unique_ptr<tier::Tier> Make(Bytes capacity, bool mappable, Bytes unit) {
  FakeTierOptions options;
  options.tier.name = "fake0";
  options.tier.capacity = capacity;
  options.id = 3;
  options.mappable = mappable;
  options.unit = unit;
  return std::make_unique<FakeTier>(options);
}

TEST_CASE("fake tier, mappable") {
  RunTierConformance([](Bytes capacity) { return Make(capacity, true, 4096); });
}

TEST_CASE("fake tier, not mappable") {
  RunTierConformance([](Bytes capacity) { return Make(capacity, false, 4096); });
}

TEST_CASE("the nth Allocate fails as told, once, and takes nothing") {
  const std::unique_ptr<tier::Tier> tier = Make(1 * kMiB, true, 64);
  auto& fake = static_cast<FakeTier&>(*tier);
  fake.FailAllocate(2, Error(absl::StatusCode::kResourceExhausted, Reason::kNoMemory, "as told"));
  CHECK(tier->Allocate(1, 64, tier::ByteState::kCreating).ok());
  CHECK(ReasonOf(tier->Allocate(1, 64, tier::ByteState::kCreating).status()) == Reason::kNoMemory);
  CHECK(tier->Allocate(1, 64, tier::ByteState::kCreating).ok());
  CHECK(tier->ledger().used() == 128);
  CHECK(tier->Validate().ok());
}

}  // namespace
}  // namespace hmm::testing
