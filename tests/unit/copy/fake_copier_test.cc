// SPDX-License-Identifier: Apache-2.0
//
// The fake keeps the promises of copy/copier.h, so that what is tested with it holds with a real
// one.
#include "support/fake_copier.h"

#include <cstring>

#include "support/catch.h"
#include "support/manual_clock.h"
#include "support/manual_executor.h"
#include "unit/copy/small_tiers.h"

namespace hmm::testing {
namespace {

using copy::Checksum;
using copy::CopyResult;

struct Rig {
  void Submit(const copy::CopyJob& job) {
    copier.Submit(job, [this](CopyResult r) {
      result = std::move(r);
      ++calls;
    });
  }
  CopyResult Ended() {
    const int before = calls;
    executor.RunReady();
    REQUIRE(calls == before + 1);
    return result;
  }

  ManualClock clock;
  ManualExecutor executor{clock};
  FakeCopier copier{executor};
  MemoryTier ddr{"ddr0", 4096};
  StoreTier flash{"flash0", 4096};
  CopyResult result;
  int calls = 0;
};

constexpr tier::Extent kA{.offset = 0, .length = 128};
constexpr tier::Extent kB{.offset = 128, .length = 128};

TEST_CASE("the fake copies to and from a tier that is not mappable, with checksums") {
  Rig rig;
  std::memset(rig.ddr.Address({}), 0, 4096);
  std::memset(rig.ddr.Address(kA), 7, 100);
  rig.Submit({&rig.ddr, kA, &rig.flash, kB, 100, {}});
  REQUIRE(rig.copier.size() == 1);
  REQUIRE(rig.copier.job(0).bytes == 100);
  rig.copier.Complete(0);
  REQUIRE(rig.calls == 0);  // never inline
  const CopyResult out = rig.Ended();
  REQUIRE(out.status.ok());
  REQUIRE(out.checksum == Checksum(rig.ddr.Address(kA), 100));

  rig.Submit({&rig.flash, kB, &rig.ddr, kB, 100, out.checksum});
  rig.copier.Complete(0);
  const CopyResult in = rig.Ended();
  REQUIRE(in.status.ok());
  REQUIRE(std::memcmp(rig.ddr.Address(kA), rig.ddr.Address(kB), 128) == 0);
}

TEST_CASE("corruption into the medium shows when it is read, on the way back at once") {
  Rig rig;
  std::memset(rig.ddr.Address({}), 3, 4096);
  rig.Submit({&rig.ddr, kA, &rig.flash, kA, 100, {}});
  rig.copier.Corrupt(0, 99);
  const CopyResult out = rig.Ended();
  REQUIRE(out.status.ok());
  rig.Submit({&rig.flash, kA, &rig.ddr, kA, 100, out.checksum});
  rig.copier.Complete(0);
  REQUIRE(ReasonOf(rig.Ended().status) == Reason::kChecksum);

  rig.Submit({&rig.ddr, kB, &rig.flash, kB, 100, {}});
  rig.copier.Complete(0);
  const CopyResult good = rig.Ended();
  rig.Submit({&rig.flash, kB, &rig.ddr, kB, 100, good.checksum});
  rig.copier.Corrupt(0);
  REQUIRE(rig.Ended().status.code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("a failed job gives its status and leaves no good bytes; any held job can end first") {
  Rig rig;
  std::memset(rig.ddr.Address({}), 3, 4096);
  rig.Submit({&rig.ddr, kA, &rig.flash, kA, 100, {}});
  rig.Submit({&rig.ddr, kB, &rig.flash, kB, 100, {}});
  rig.copier.Fail(1, Error(absl::StatusCode::kDataLoss, Reason::kIo, "failed"));
  REQUIRE(ReasonOf(rig.Ended().status) == Reason::kIo);
  REQUIRE(rig.copier.job(0).source == kA);
  REQUIRE(*rig.flash.BytesAt(kB) == std::byte{0xDE});
}

}  // namespace
}  // namespace hmm::testing
