// SPDX-License-Identifier: Apache-2.0
// What is a host tier's own; what every tier does is in tests/conformance.
#include "tier/host_tier.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "share/memory_file.h"
#include "support/catch.h"

namespace hmm::tier {
namespace {

constexpr Bytes kChunk = 64 * kKiB;
constexpr TenantId kAlice = 1;
constexpr TenantId kBob = 2;

HostTierOptions Options(std::size_t chunks) {
  HostTierOptions options;
  options.tier.name = "ddr0";
  options.tier.capacity = chunks * kChunk;
  options.id = 5;
  options.commit_chunk = kChunk;
  options.pages = PageMode::kSmall;
  return options;
}

std::unique_ptr<Tier> Make(HostTierOptions options) {
  auto tier = CreateHostTier(std::move(options));
  INFO(tier.status());
  REQUIRE(tier.ok());
  return *std::move(tier);
}

void RequireValid(const Tier& tier) {
  const absl::Status status = tier.Validate();
  INFO(status);
  REQUIRE(status.ok());
}

Extent MustAllocate(Tier& tier, TenantId tenant, Bytes bytes) {
  const absl::StatusOr<Extent> extent = tier.Allocate(tenant, bytes, ByteState::kCreating);
  INFO(extent.status());
  REQUIRE(extent.ok());
  RequireValid(tier);
  return *extent;
}

void Free(Tier& tier, TenantId tenant, const Extent& extent) {
  tier.Free(tenant, extent, ByteState::kCreating);
  RequireValid(tier);
}

std::optional<Reason> RefusalOf(Tier& tier, TenantId tenant, Bytes bytes) {
  const absl::StatusOr<Extent> extent = tier.Allocate(tenant, bytes, ByteState::kCreating);
  CHECK(extent.status().code() == absl::StatusCode::kResourceExhausted);
  RequireValid(tier);
  return ReasonOf(extent.status());
}

Bytes Backed(const Tier& tier, SegmentId segment) {
  return *share::BackedBytes(tier.Segment(segment)->fd);
}

bool AllBytes(const std::byte* data, Bytes bytes, std::byte value) {
  return std::all_of(data, data + bytes, [&](std::byte byte) { return byte == value; });
}

TEST_CASE("each tenant has a segment of its own, which its processes can map") {
  const auto tier = Make(Options(4));
  const Extent a = MustAllocate(*tier, kAlice, 100);
  const Extent b = MustAllocate(*tier, kBob, 100);
  CHECK(a.segment == ((5U << 16) | 1U));
  CHECK(b.segment == ((5U << 16) | 2U));
  CHECK(TierOfSegment(b.segment) == 5);
  const absl::StatusOr<SegmentInfo> info = tier->Segment(b.segment);
  REQUIRE(info.ok());
  CHECK(info->tenant == kBob);
  CHECK(info->bytes == 16 * kChunk);  // four times the capacity
  const auto client =
      share::Mapping::Map(info->fd, info->bytes, share::Mapping::Access::kReadWrite, true);
  REQUIRE(client.ok());
  client->data()[b.offset] = std::byte{77};
  CHECK(tier->Address(b)[0] == std::byte{77});
  CHECK(tier->Address(a)[0] == std::byte{0});
}

TEST_CASE("extents are aligned for O_DIRECT from a page on, to a cache line below") {
  const auto tier = Make(Options(8));
  for (const Bytes bytes : {1U, 64U, 65U, 4000U, 4095U}) {
    const Extent extent = MustAllocate(*tier, kAlice, bytes);
    CHECK(extent.length == RoundUp(bytes, 64));
    CHECK(reinterpret_cast<std::uintptr_t>(tier->Address(extent)) % 64 == 0);
  }
  for (const Bytes bytes : {4096U, 4097U, 70'000U}) {
    const Extent extent = MustAllocate(*tier, kAlice, bytes);
    CHECK(extent.length == RoundUp(bytes, 4096));
    CHECK(reinterpret_cast<std::uintptr_t>(tier->Address(extent)) % 4096 == 0);
  }
}

TEST_CASE("what is handed out is backed, and the capacity is shared by all arenas") {
  const auto tier = Make(Options(4));
  const Extent a = MustAllocate(*tier, kAlice, 3 * kChunk);
  CHECK(Backed(*tier, a.segment) == 3 * kChunk);
  CHECK(tier->ledger()[ByteState::kFree] == kChunk);
  CHECK(RefusalOf(*tier, kBob, 2 * kChunk) == Reason::kFull);
  MustAllocate(*tier, kBob, kChunk);
  CHECK(tier->ledger()[ByteState::kFree] == 0);
  CHECK(RefusalOf(*tier, kBob, 1) == Reason::kFull);
  CHECK(RefusalOf(*tier, kAlice, 1) == Reason::kFull);
}

TEST_CASE("extents that do not fill their chunks leave the rest to the next ones") {
  const auto tier = Make(Options(5));
  // 4 x 1.25 chunks are 5: with whole chunks for each, the third would not fit.
  for (int i = 0; i < 4; ++i) MustAllocate(*tier, kAlice, kChunk + kChunk / 4);
  CHECK(tier->ledger().used() == 5 * kChunk);
}

TEST_CASE("arena hand-over: a chunk freed by one tenant is committed for another, as zeros") {
  const auto tier = Make(Options(4));
  std::vector<Extent> extents;
  for (int i = 0; i < 4; ++i) {
    extents.push_back(MustAllocate(*tier, kAlice, kChunk));
    std::memset(tier->Address(extents.back()), 0xAB, kChunk);
  }
  const SegmentId segment = extents[0].segment;
  const auto alice = share::Mapping::Map(tier->Segment(segment)->fd, tier->Segment(segment)->bytes,
                                         share::Mapping::Access::kReadOnly, true);
  REQUIRE(alice.ok());
  CHECK(RefusalOf(*tier, kBob, kChunk) == Reason::kFull);
  Free(*tier, kAlice, extents[1]);
  Free(*tier, kAlice, extents[2]);
  const Extent bobs = MustAllocate(*tier, kBob, 2 * kChunk);
  CHECK(AllBytes(tier->Address(bobs), bobs.length, std::byte{0}));
  CHECK(Backed(*tier, segment) == 2 * kChunk);
  CHECK(Backed(*tier, bobs.segment) == 2 * kChunk);
  std::memset(tier->Address(bobs), 0xCD, bobs.length);
  CHECK(AllBytes(alice->data() + extents[0].offset, kChunk, std::byte{0xAB}));
  CHECK(AllBytes(alice->data() + extents[3].offset, kChunk, std::byte{0xAB}));
  CHECK(AllBytes(alice->data() + extents[1].offset, kChunk, std::byte{0}));  // a hole now
  // Which she read: that is seen, taken back and not counted twice.
  const std::vector<Tier::Excess> excess = tier->Audit();
  REQUIRE(excess.size() == 1);
  CHECK(excess[0].tenant == kAlice);
  CHECK(tier->Audit().empty());
  RequireValid(*tier);
}

TEST_CASE("a tenant's own empty chunks serve where they lie, without a punch") {
  const auto tier = Make(Options(2));
  const Extent first = MustAllocate(*tier, kAlice, kChunk);
  MustAllocate(*tier, kAlice, kChunk);
  std::memset(tier->Address(first), 0xAB, kChunk);
  Free(*tier, kAlice, first);
  const Extent again = MustAllocate(*tier, kAlice, kChunk);
  CHECK(again == first);
  CHECK(AllBytes(tier->Address(again), kChunk, std::byte{0xAB}));  // its own bytes: nobody else's
}

TEST_CASE("own empty chunks that lie apart are punched for an extent longer than each") {
  const auto tier = Make(Options(4));
  std::vector<Extent> extents;
  for (int i = 0; i < 4; ++i) extents.push_back(MustAllocate(*tier, kAlice, kChunk));
  Free(*tier, kAlice, extents[0]);
  Free(*tier, kAlice, extents[2]);
  MustAllocate(*tier, kAlice, 2 * kChunk);
  CHECK(tier->ledger().used() == 4 * kChunk);
  CHECK(Backed(*tier, extents[0].segment) == 4 * kChunk);
}

TEST_CASE("an allocation that cannot be had punches nothing") {
  const auto tier = Make(Options(4));
  const Extent a = MustAllocate(*tier, kAlice, kChunk);
  MustAllocate(*tier, kAlice, 3 * kChunk);
  Free(*tier, kAlice, a);
  CHECK(RefusalOf(*tier, kBob, 2 * kChunk) == Reason::kFull);
  CHECK(tier->ledger()[ByteState::kCommittedFree] == kChunk);
  CHECK(Backed(*tier, a.segment) == 4 * kChunk);
}

TEST_CASE("a commit that may_commit refuses is NO_MEMORY and leaks nothing") {
  bool allow = false;
  std::vector<Bytes> asked;
  HostTierOptions options = Options(4);
  options.may_commit = [&](Bytes bytes) {
    asked.push_back(bytes);
    return allow ? absl::OkStatus()
                 : Error(absl::StatusCode::kInternal, Reason::kIo, "the cgroup is full");
  };
  const auto tier = Make(std::move(options));
  for (int i = 0; i < 3; ++i) {
    CHECK(RefusalOf(*tier, kAlice, 2 * kChunk) == Reason::kNoMemory);
    CHECK(RefusalOf(*tier, kAlice, 1) == Reason::kNoMemory);
  }
  CHECK(std::string(tier->Allocate(kAlice, kChunk, ByteState::kCreating).status().message())
            .find(" cannot commit " + FormatBytes(kChunk) + ": the cgroup") != std::string::npos);
  asked.pop_back();
  CHECK(asked == std::vector<Bytes>{2 * kChunk, kChunk, 2 * kChunk, kChunk, 2 * kChunk, kChunk});
  CHECK(tier->ledger()[ByteState::kFree] == 4 * kChunk);
  CHECK(tier->ledger().used() == 0);
  CHECK(tier->TenantBytes(kAlice) == 0);
  CHECK(Backed(*tier, (5U << 16) | 1U) == 0);
  allow = true;
  asked.clear();
  const Extent extent = MustAllocate(*tier, kAlice, 2 * kChunk);
  CHECK(asked == std::vector<Bytes>{2 * kChunk});

  // Memory that is committed already and empty needs no leave, whoever has it.
  allow = false;
  Free(*tier, kAlice, extent);
  MustAllocate(*tier, kAlice, kChunk);
  MustAllocate(*tier, kBob, kChunk);
  CHECK(RefusalOf(*tier, kBob, kChunk) == Reason::kNoMemory);
  CHECK(tier->ledger()[ByteState::kFree] == 2 * kChunk);
}

TEST_CASE("a reader of a hole is found by Audit and its memory given back") {
  const auto tier = Make(Options(4));
  const Extent a = MustAllocate(*tier, kAlice, kChunk);
  const Extent b = MustAllocate(*tier, kBob, kChunk);
  std::memset(tier->Address(b), 1, kChunk);
  CHECK(tier->Audit().empty());
  const absl::StatusOr<SegmentInfo> info = tier->Segment(b.segment);
  const auto client =
      share::Mapping::Map(info->fd, info->bytes, share::Mapping::Access::kReadOnly, true);
  REQUIRE(client.ok());
  const volatile std::byte* hole = client->data() + info->bytes - 1;
  CHECK(*hole == std::byte{0});  // the read alone commits a page
  const std::vector<Tier::Excess> excess = tier->Audit();
  REQUIRE(excess.size() == 1);
  CHECK(excess[0].tenant == kBob);
  CHECK(excess[0].bytes >= 4096);
  CHECK(Backed(*tier, b.segment) == kChunk);
  CHECK(Backed(*tier, a.segment) == kChunk);
  CHECK(AllBytes(tier->Address(b), kChunk, std::byte{1}));
  CHECK(tier->Audit().empty());
}

TEST_CASE("a tenant that comes while a tier is small leaves it room to grow back") {
  const auto tier = Make(Options(8));
  REQUIRE(tier->Resize(kChunk).ok());
  const Extent extent = MustAllocate(*tier, kAlice, 100);
  CHECK(tier->Segment(extent.segment)->bytes == 32 * kChunk);
  CHECK(tier->SizeFor(8 * kChunk).ok());
  CHECK(tier->SizeFor(32 * kChunk).ok());
  REQUIRE(tier->Resize(8 * kChunk).ok());
  MustAllocate(*tier, kAlice, 7 * kChunk);
}

TEST_CASE("emptying what keeps a tier from being small comes to an end") {
  const auto tier = Make(Options(8));
  std::vector<std::pair<TenantId, Extent>> held;
  // Little is in use, but each of two tenants has chunks of its own.
  for (const TenantId tenant : {kAlice, kBob}) {
    for (int i = 0; i < 3; ++i) held.emplace_back(tenant, MustAllocate(*tier, tenant, kChunk));
  }
  for (auto& [tenant, extent] : held) {
    Free(*tier, tenant, extent);
    extent = MustAllocate(*tier, tenant, kChunk / 16);
  }
  tier->SetLimit(kChunk);
  // Whatever finds no place would be demoted: it is freed here.
  int rounds = 0;
  for (auto windows = tier->Obstacles(4, {}); !windows.empty(); windows = tier->Obstacles(4, {})) {
    REQUIRE(++rounds < 10);
    for (auto it = held.begin(); it != held.end();) {
      auto& [tenant, extent] = *it;
      const bool inside = std::any_of(windows.begin(), windows.end(), [&](const auto& window) {
        return window.segment == extent.segment && window.offset <= extent.offset &&
               extent.offset < window.offset + window.length;
      });
      if (!inside) {
        ++it;
        continue;
      }
      const auto place = tier->AllocateOutside(tenant, extent, ByteState::kCreating, windows);
      Free(*tier, tenant, extent);
      if (place.ok()) extent = *place;
      it = place.ok() ? std::next(it) : held.erase(it);
    }
  }
  CHECK(held.size() == 3);
  (void)tier->Trim(0);
  CHECK(tier->Resize(kChunk).ok());
  RequireValid(*tier);
}

TEST_CASE("Trim gives empty chunks back until so much is kept") {
  const auto tier = Make(Options(8));
  std::vector<Extent> extents;
  for (int i = 0; i < 6; ++i) extents.push_back(MustAllocate(*tier, kAlice, kChunk));
  for (int i = 0; i < 5; ++i) Free(*tier, kAlice, extents[static_cast<std::size_t>(i)]);
  CHECK(tier->Trim(100 * kChunk) == 0);
  CHECK(tier->Trim(3 * kChunk) == 2 * kChunk);
  CHECK(tier->ledger()[ByteState::kCommittedFree] == 3 * kChunk);
  CHECK(tier->ledger()[ByteState::kFree] == 4 * kChunk);
  CHECK(Backed(*tier, extents[0].segment) == 4 * kChunk);
  CHECK(tier->Trim(kChunk / 2) == 3 * kChunk);
  CHECK(tier->Trim(0) == 0);
  RequireValid(*tier);
}

TEST_CASE("a forgotten tenant's memory and segment are gone, and its id is not given again soon") {
  const auto tier = Make(Options(4));
  const Extent a = MustAllocate(*tier, kAlice, kChunk);
  const Extent b = MustAllocate(*tier, kAlice, kChunk);
  Free(*tier, kAlice, a);
  Free(*tier, kAlice, b);
  CHECK(tier->ledger()[ByteState::kCommittedFree] == 2 * kChunk);
  // A client that outlives its session keeps the file: it must find nothing in it.
  const share::UniqueFd held(dup(tier->Segment(a.segment)->fd));
  tier->ForgetTenant(kAlice);
  RequireValid(*tier);
  CHECK(*share::BackedBytes(held.get()) == 0);
  CHECK(tier->ledger()[ByteState::kFree] == 4 * kChunk);
  CHECK(ReasonOf(tier->Segment(a.segment).status()) == Reason::kNotFound);
  CHECK(MustAllocate(*tier, kAlice, kChunk).segment != a.segment);
}

TEST_CASE("the emptiest window is looked for in every arena") {
  const auto tier = Make(Options(4));
  const Extent a = MustAllocate(*tier, kAlice, kChunk);
  const Extent a2 = MustAllocate(*tier, kAlice, kChunk);
  const Extent b = MustAllocate(*tier, kBob, kChunk);
  const Extent b2 = MustAllocate(*tier, kBob, kChunk);
  Free(*tier, kBob, b);
  const Extent small = MustAllocate(*tier, kBob, 8 * kKiB);
  auto window = tier->EmptiestWindow(kChunk, {});
  REQUIRE(window.has_value());
  CHECK(window->segment == b.segment);
  CHECK(window->offset == RoundDown(small.offset, kChunk));
  CHECK(window->length == kChunk);
  window = tier->EmptiestWindow(kChunk, {{small.segment, small.offset, small.length},
                                         {a.segment, a.offset, a.length},
                                         {b2.segment, b2.offset, 1}});
  REQUIRE(window.has_value());
  CHECK(window->segment == a2.segment);
  CHECK(window->offset == a2.offset);
}

TEST_CASE("a refused NUMA binding is noted at once, and the tier works", "[case 21]") {
  HostTierOptions options = Options(4);
  options.numa_node = 900;  // no machine has it
  const auto tier = Make(std::move(options));
  const std::string note = tier->note();
  CHECK(note.find("not bound to its NUMA node") != std::string::npos);
  CHECK(tier->degraded());
  MustAllocate(*tier, kAlice, kChunk);
  MustAllocate(*tier, kBob, kChunk);
  CHECK(tier->note() == note);
}

TEST_CASE("the pages that were got are in the note") {
  CHECK(Make(Options(4))->note().find("KiB pages") != std::string::npos);
  for (const PageMode mode : {PageMode::kHugetlb, PageMode::kTransparent, PageMode::kAuto}) {
    HostTierOptions options = Options(1);
    options.commit_chunk = 2 * kMiB;
    options.tier.capacity = 8 * kMiB;
    options.pages = mode;
    const auto tier = Make(std::move(options));
    // Whatever this machine offers, what was asked is either got or said to be missing.
    if (mode == PageMode::kHugetlb) CHECK(tier->note().find("hugetlb") != std::string::npos);
    if (mode == PageMode::kTransparent)
      CHECK(tier->note().find("transparent") != std::string::npos);
    if (mode == PageMode::kAuto) CHECK(!tier->degraded());
    const Extent extent = MustAllocate(*tier, kAlice, 5 * kMiB);
    CHECK(Backed(*tier, extent.segment) == 6 * kMiB);
    CHECK(AllBytes(tier->Address(extent), extent.length, std::byte{0}));
    std::memset(tier->Address(extent), 1, extent.length);
    CHECK(tier->Audit().empty());
    Free(*tier, kAlice, extent);
    CHECK(tier->Trim(0) == 6 * kMiB);
    CHECK(Backed(*tier, extent.segment) == 0);
  }
}

TEST_CASE("options that contradict themselves are refused") {
  auto refused = [](auto change) {
    HostTierOptions options = Options(4);
    change(options);
    const auto tier = CreateHostTier(std::move(options));
    return tier.status().code() == absl::StatusCode::kInvalidArgument &&
           ReasonOf(tier.status()) == Reason::kBadConfig;
  };
  CHECK(!refused([](HostTierOptions&) {}));
  CHECK(refused([](HostTierOptions& o) { o.tier.name = ""; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.name = "a_name_of_16_chr"; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.name = "DDR0"; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.low = o.tier.high; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.high = 1.01; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.low = 0; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.high = std::nan(""); }));
  CHECK(refused([](HostTierOptions& o) { o.tier.capacity = kChunk - 1; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.capacity = ~Bytes{0}; }));
  CHECK(refused([](HostTierOptions& o) { o.tier.reserve = o.tier.capacity; }));
  CHECK(refused([](HostTierOptions& o) { o.commit_chunk = 32 * kKiB; }));
  CHECK(refused([](HostTierOptions& o) { o.commit_chunk = 96 * kKiB; }));
  CHECK(refused([](HostTierOptions& o) { o.commit_chunk = 0; }));
  CHECK(refused([](HostTierOptions& o) { o.address_factor = 0.5; }));
  CHECK(refused([](HostTierOptions& o) { o.address_factor = 1e9; }));
  CHECK(refused([](HostTierOptions& o) { o.address_factor = std::nan(""); }));
  HostTierOptions odd = Options(4);
  odd.tier.capacity += 1;
  CHECK(Make(std::move(odd))->capacity() == 4 * kChunk);
}

}  // namespace
}  // namespace hmm::tier
