// SPDX-License-Identifier: Apache-2.0
#include "tier/file_tier.h"

#include "conformance/tier_conformance.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::testing {
namespace {

std::unique_ptr<tier::Tier> Make(const TempDir& dir, Bytes capacity, bool direct, Bytes alignment) {
  tier::FileTierOptions options;
  options.tier.name = "flash0";
  options.tier.kind = TierKind::kFlash;
  options.tier.capacity = capacity;
  options.id = 4;
  options.path = dir.File("flash0");
  options.alignment = alignment;
  if (!direct) {
    options.probe = [](int, Bytes) {
      return Error(absl::StatusCode::kInternal, Reason::kIo, "as told");
    };
  }
  auto tier = tier::CreateFileTier(std::move(options));
  INFO(tier.status());
  REQUIRE(tier.ok());
  return *std::move(tier);
}

TEST_CASE("file tier") {
  const TempDir dir;
  const Bytes alignment = GENERATE(Bytes{0}, Bytes{512}, Bytes{4096}, Bytes{16384});
  INFO("alignment " << alignment);
  RunTierConformance([&](Bytes capacity) { return Make(dir, capacity, true, alignment); });
}

TEST_CASE("file tier, buffered") {
  const TempDir dir;
  RunTierConformance([&](Bytes capacity) { return Make(dir, capacity, false, 512); });
}

}  // namespace
}  // namespace hmm::testing
