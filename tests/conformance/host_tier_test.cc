// SPDX-License-Identifier: Apache-2.0
#include "tier/host_tier.h"

#include "conformance/tier_conformance.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

std::unique_ptr<tier::Tier> Make(Bytes capacity, Bytes chunk, tier::PageMode pages) {
  tier::HostTierOptions options;
  options.tier.name = "ddr0";
  options.tier.capacity = capacity;
  options.id = 2;
  options.commit_chunk = chunk;
  options.pages = pages;
  auto tier = tier::CreateHostTier(std::move(options));
  INFO(tier.status());
  REQUIRE(tier.ok());
  return *std::move(tier);
}

TEST_CASE("host tier, many small chunks") {
  RunTierConformance(
      [](Bytes capacity) { return Make(capacity, 64 * kKiB, tier::PageMode::kSmall); });
}

TEST_CASE("host tier, chunks longer than most extents") {
  RunTierConformance(
      [](Bytes capacity) { return Make(capacity, 256 * kKiB, tier::PageMode::kAuto); });
}

}  // namespace
}  // namespace hmm::testing
