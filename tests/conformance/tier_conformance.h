// SPDX-License-Identifier: Apache-2.0
//
// What every Tier does, whatever its medium. One short file per implementation calls
// RunTierConformance inside a TEST_CASE.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "support/byte_store.h"
#include "support/catch.h"
#include "tier/tier.h"

namespace hmm::testing {

// Gives a fresh tier of exactly this capacity (a multiple of 64 KiB).
using MakeTier = std::function<std::unique_ptr<tier::Tier>(Bytes capacity)>;

namespace conformance {

using tier::ByteState;
using tier::Extent;
using tier::Tier;

inline constexpr TenantId kAlice = 7;
inline constexpr TenantId kBob = 9;
inline constexpr Bytes kCapacity = 1 * kMiB;
inline constexpr Bytes kPiece = 16 * kKiB;

// A page-aligned copy of the extent's bytes, by whichever way the tier has.
inline std::vector<std::byte> Pattern(const Extent& extent, unsigned seed) {
  std::vector<std::byte> bytes(extent.length);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(seed * 31 + i * 7 + i / 256);
  }
  return bytes;
}

inline std::byte* Memory(Tier& tier, const Extent& extent) {
  if (auto* store = dynamic_cast<ByteStore*>(&tier)) return store->BytesAt(extent);
  return tier.Address(extent);
}

// O_DIRECT wants aligned memory.
struct Aligned {
  explicit Aligned(Bytes bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(4096, RoundUp(bytes, 4096)))) {}
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
};

inline void Fill(Tier& tier, const Extent& extent, unsigned seed) {
  const std::vector<std::byte> bytes = Pattern(extent, seed);
  if (std::byte* memory = Memory(tier, extent); memory != nullptr) {
    std::memcpy(memory, bytes.data(), bytes.size());
    return;
  }
  const Aligned buffer(extent.length);
  std::memcpy(buffer.data, bytes.data(), bytes.size());
  REQUIRE(pwrite(tier.fd(), buffer.data, extent.length, static_cast<off_t>(extent.offset)) ==
          static_cast<ssize_t>(extent.length));
}

inline bool Holds(Tier& tier, const Extent& extent, unsigned seed) {
  const std::vector<std::byte> bytes = Pattern(extent, seed);
  if (std::byte* memory = Memory(tier, extent); memory != nullptr) {
    return std::memcmp(memory, bytes.data(), bytes.size()) == 0;
  }
  const Aligned buffer(extent.length);
  REQUIRE(pread(tier.fd(), buffer.data, extent.length, static_cast<off_t>(extent.offset)) ==
          static_cast<ssize_t>(extent.length));
  return std::memcmp(buffer.data, bytes.data(), bytes.size()) == 0;
}

inline void RequireValid(const Tier& tier) {
  const absl::Status status = tier.Validate();
  INFO(status);
  REQUIRE(status.ok());
  REQUIRE(tier.ledger().Sums());
}

inline Extent MustAllocate(Tier& tier, TenantId tenant, Bytes bytes,
                           ByteState state = ByteState::kCreating) {
  absl::StatusOr<Extent> extent = tier.Allocate(tenant, bytes, state);
  INFO(extent.status());
  REQUIRE(extent.ok());
  return *extent;
}

inline void RequireRefused(Tier& tier, Bytes bytes, absl::StatusCode code, Reason reason) {
  const Bytes used = tier.ledger().used();
  const absl::StatusOr<Extent> extent = tier.Allocate(kAlice, bytes, ByteState::kCreating);
  INFO(bytes << " bytes: " << extent.status());
  REQUIRE(extent.status().code() == code);
  REQUIRE(ReasonOf(extent.status()) == reason);
  REQUIRE(tier.ledger().used() == used);
  RequireValid(tier);
}

// Allocates pieces until the tier is full.
inline std::vector<Extent> FillUp(Tier& tier, TenantId tenant, Bytes piece) {
  std::vector<Extent> extents;
  while (true) {
    const absl::StatusOr<Extent> extent = tier.Allocate(tenant, piece, ByteState::kCreating);
    if (!extent.ok()) {
      REQUIRE(extent.status().code() == absl::StatusCode::kResourceExhausted);
      REQUIRE(ReasonOf(extent.status()) == Reason::kFull);
      return extents;
    }
    extents.push_back(*extent);
    REQUIRE(extents.size() <= tier.capacity() / piece);
  }
}

inline bool Overlap(const Extent& a, const Tier::Window& b) {
  return a.segment == b.segment && a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

inline void CheckSizes(const MakeTier& make) {
  const std::unique_ptr<Tier> tier = make(kCapacity);
  REQUIRE(tier->capacity() == kCapacity);
  CHECK(tier->ledger().used() == 0);
  RequireValid(*tier);
  RequireRefused(*tier, 0, absl::StatusCode::kInvalidArgument, Reason::kBadSize);
  for (const Bytes bytes : {kCapacity + 1, Bytes{1} << 62, ~Bytes{0} - 62, ~Bytes{0} - 4094,
                            ~Bytes{0} - 1, ~Bytes{0}}) {
    RequireRefused(*tier, bytes, absl::StatusCode::kFailedPrecondition, Reason::kTooLarge);
    CHECK(tier->LengthFor(bytes) > kCapacity);
  }
  Bytes last = 0;
  for (Bytes bytes : {1U, 63U, 64U, 65U, 511U, 4032U, 4033U, 4095U, 4096U, 4097U, 70000U}) {
    const Bytes length = tier->LengthFor(bytes);
    CHECK(length >= std::max(bytes, last));
    CHECK(tier->LengthFor(length) == length);
    last = length;
    const Extent extent = MustAllocate(*tier, kAlice, bytes);
    CHECK(extent.length == length);
    if (bytes >= 4096) CHECK(extent.offset % 4096 == 0);
    CHECK(extent.offset % 64 == 0);
    RequireValid(*tier);
    tier->Free(kAlice, extent, ByteState::kCreating);
    RequireValid(*tier);
  }
  CHECK(tier->ledger().used() == 0);
}

inline void CheckAccounting(const MakeTier& make) {
  const std::unique_ptr<Tier> tier = make(kCapacity);
  const Extent creating = MustAllocate(*tier, kAlice, kPiece, ByteState::kCreating);
  const Extent moving = MustAllocate(*tier, kAlice, 2 * kPiece, ByteState::kMoving);
  const Extent reserved = MustAllocate(*tier, kBob, 3 * kPiece, ByteState::kReserved);
  CHECK(tier->ledger()[ByteState::kCreating] == kPiece);
  CHECK(tier->ledger()[ByteState::kMoving] == 2 * kPiece);
  CHECK(tier->ledger()[ByteState::kReserved] == 3 * kPiece);
  CHECK(tier->ledger().used() == 6 * kPiece);
  CHECK(tier->TenantBytes(kAlice) == 3 * kPiece);
  CHECK(tier->TenantBytes(kBob) == 3 * kPiece);
  CHECK(tier->TenantBytes(1000) == 0);
  tier->Account(creating, ByteState::kCreating, ByteState::kResident);
  CHECK(tier->ledger()[ByteState::kResident] == kPiece);
  CHECK(tier->ledger()[ByteState::kCreating] == 0);
  RequireValid(*tier);
  tier->Free(kAlice, creating, ByteState::kResident);
  tier->Free(kAlice, moving, ByteState::kMoving);
  CHECK(tier->TenantBytes(kAlice) == 0);
  tier->ForgetTenant(kAlice);
  RequireValid(*tier);
  tier->Free(kBob, reserved, ByteState::kReserved);
  tier->ForgetTenant(kBob);
  tier->ForgetTenant(1000);
  RequireValid(*tier);
  CHECK(tier->ledger().used() == 0);
  MustAllocate(*tier, kAlice, kPiece);  // a forgotten tenant may come again
  RequireValid(*tier);
}

inline void CheckFull(const MakeTier& make) {
  const std::unique_ptr<Tier> tier = make(kCapacity);
  std::vector<Extent> extents = FillUp(*tier, kAlice, kPiece);
  CHECK(extents.size() == kCapacity / kPiece);  // every byte can be used
  CHECK(tier->ledger().used() == kCapacity);
  RequireValid(*tier);
  RequireRefused(*tier, 1, absl::StatusCode::kResourceExhausted, Reason::kFull);
  tier->Free(kAlice, extents.back(), ByteState::kCreating);
  MustAllocate(*tier, kAlice, kPiece);
  RequireValid(*tier);
}

inline void CheckWindows(const MakeTier& make) {
  const std::unique_ptr<Tier> tier = make(kCapacity);
  CHECK(!tier->EmptiestWindow(kPiece, {}).has_value());  // nothing to empty
  CHECK(tier->LongestFree(kAlice) == kCapacity);
  std::vector<Extent> extents = FillUp(*tier, kAlice, kPiece);
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<Extent> kept;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (i % 2 == 0) {
      tier->Free(kAlice, extents[i], ByteState::kCreating);
    } else {
      kept.push_back(extents[i]);
    }
  }
  const Bytes wanted = 8 * kPiece;
  RequireRefused(*tier, wanted, absl::StatusCode::kResourceExhausted, Reason::kFull);
  CHECK(tier->LongestFree(kAlice) == kPiece);

  std::vector<Tier::Window> skip;
  for (const Extent& extent : kept) skip.push_back({extent.segment, extent.offset, extent.length});
  CHECK(!tier->EmptiestWindow(wanted, skip).has_value());
  CHECK(!tier->EmptiestWindow(kCapacity + 1, {}).has_value());
  CHECK(!tier->EmptiestWindow(~Bytes{0}, {}).has_value());
  CHECK(!tier->EmptiestWindow(0, {}).has_value());

  const std::optional<Tier::Window> first = tier->EmptiestWindow(wanted, {});
  REQUIRE(first.has_value());
  CHECK(first->length >= wanted);
  const std::optional<Tier::Window> second = tier->EmptiestWindow(wanted, {*first});
  REQUIRE(second.has_value());
  CHECK((second->offset >= first->offset + first->length ||
         first->offset >= second->offset + second->length));
  for (const Extent& extent : kept) {
    if (Overlap(extent, *second)) tier->Free(kAlice, extent, ByteState::kCreating);
  }
  MustAllocate(*tier, kBob, wanted);  // its emptying makes room for anybody
  RequireValid(*tier);
}

inline void CheckRandom(const MakeTier& make) {
  const char* text = std::getenv("TEST_SEED");
  std::uint64_t seed = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  if (seed == 0) seed = std::random_device()();
  INFO("TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  struct Live {
    TenantId tenant;
    Extent extent;
    ByteState state;
    unsigned pattern;
  };
  const std::unique_ptr<Tier> tier = make(kCapacity);
  std::vector<Live> live;
  std::size_t full = 0;
  constexpr ByteState kStates[] = {ByteState::kCreating, ByteState::kMoving, ByteState::kReserved};
  for (unsigned step = 0; step < 1500; ++step) {
    const bool grow = random() % 100 < ((step / 250) % 2 == 0 ? 70U : 30U);
    if (grow || live.empty()) {
      const TenantId tenant = random() % 2 == 0 ? kAlice : kBob;
      const Bytes bytes = 1 + random() % (random() % 8 == 0   ? 200'000U
                                          : random() % 2 == 0 ? 3000U
                                                              : 40'000U);
      const ByteState state = kStates[random() % 3];
      const absl::StatusOr<Extent> extent = tier->Allocate(tenant, bytes, state);
      if (extent.ok()) {
        Fill(*tier, *extent, step);
        live.push_back({tenant, *extent, state, step});
      } else {
        REQUIRE(ReasonOf(extent.status()) == Reason::kFull);
        ++full;
      }
    } else {
      std::swap(live[random() % live.size()], live.back());
      REQUIRE(Holds(*tier, live.back().extent, live.back().pattern));
      tier->Free(live.back().tenant, live.back().extent, live.back().state);
      live.pop_back();
    }
    if (step % 50 == 0) tier->Trim(kCapacity / 4);
    RequireValid(*tier);
    Bytes sum = 0;
    for (const Live& one : live) sum += one.extent.length;
    REQUIRE(tier->ledger().used() == sum);
  }
  CHECK(full > 10);  // else the steps never reached the tier's limits
  for (const Live& one : live) {
    REQUIRE(Holds(*tier, one.extent, one.pattern));
    tier->Free(one.tenant, one.extent, one.state);
  }
  CHECK(tier->ledger().used() == 0);
  CHECK(tier->Audit().empty());
  RequireValid(*tier);
}

inline void CheckReach(const MakeTier& make) {
  const std::unique_ptr<Tier> tier = make(kCapacity);
  const Extent extent = MustAllocate(*tier, kAlice, 100);
  Fill(*tier, extent, 3);
  CHECK((tier->Address(extent) != nullptr) == tier->mappable());
  CHECK(tier->Segment(extent.segment).ok() == tier->mappable());
  if (tier->mappable()) {
    CHECK(tier->fd() == -1);
    CHECK(tier->Segment(extent.segment)->bytes >= extent.offset + extent.length);
  }
  for (const SegmentId segment : {SegmentId{0}, extent.segment + 1, ~SegmentId{0}}) {
    CHECK(ReasonOf(tier->Segment(segment).status()) == Reason::kNotFound);
  }
  CHECK(!tier->backend().empty());
  const Bytes before = tier->ledger()[ByteState::kFree];
  const Bytes given = tier->Trim(0);
  CHECK(tier->ledger()[ByteState::kFree] == before + given);
  CHECK(Holds(*tier, extent, 3));  // Trim takes nothing that is in use
  RequireValid(*tier);
}

// Two extents of each size: after the first is freed twice, the ledger alone would not notice.
// Empties `windows` as the core does: what lies there goes to another place of the tier.
inline void Relocate(Tier& tier, std::vector<Extent>& extents,
                     const std::vector<Tier::Window>& windows) {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (std::none_of(windows.begin(), windows.end(),
                     [&](const Tier::Window& window) { return Overlap(extents[i], window); })) {
      continue;
    }
    auto place = tier.AllocateOutside(kAlice, extents[i], ByteState::kCreating, windows);
    REQUIRE(place.ok());
    for (const Tier::Window& window : windows) CHECK(!Overlap(*place, window));
    Fill(tier, *place, static_cast<unsigned>(i));
    tier.Free(kAlice, extents[i], ByteState::kCreating);
    extents[i] = *place;
  }
}

inline void CheckResize(const MakeTier& make) {
  const std::unique_ptr<Tier> tier = make(kCapacity);
  CHECK(ReasonOf(tier->SizeFor(0).status()) == Reason::kBadSize);
  CHECK(!tier->SizeFor(~Bytes{0}).ok());
  // Grow: the new bytes hold what is put there.
  const auto larger = tier->SizeFor(kCapacity + kPiece + 1);
  REQUIRE(larger.ok());
  CHECK(*larger >= kCapacity + kPiece + 1);
  REQUIRE(tier->Resize(*larger).ok());
  CHECK(tier->capacity() == *larger);
  RequireValid(*tier);
  std::vector<Extent> extents = FillUp(*tier, kAlice, kPiece);
  CHECK(extents.size() >= kCapacity / kPiece + 1);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Fill(*tier, extents[i], static_cast<unsigned>(i));
  }
  // Shrink: every fourth stays, spread over all of it.
  std::vector<Extent> kept;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (i % 4 == 0) {
      kept.push_back(extents[i]);
      Fill(*tier, kept.back(), static_cast<unsigned>(kept.size() - 1));
    } else {
      tier->Free(kAlice, extents[i], ByteState::kCreating);
    }
  }
  const auto smaller = tier->SizeFor(kCapacity / 2);
  REQUIRE(smaller.ok());
  tier->SetLimit(*smaller);
  CHECK(tier->available() == *smaller - tier->ledger().used());
  for (int round = 0; round < 100; ++round) {
    const auto windows = tier->Obstacles(4, {});
    if (windows.empty()) break;
    Relocate(*tier, kept, windows);
    RequireValid(*tier);
  }
  REQUIRE(tier->Obstacles(4, {}).empty());
  absl::Status shrunk = tier->Resize(*smaller);
  for (int round = 0; ReasonOf(shrunk) == Reason::kFull && round < 100; ++round) {
    (void)tier->Trim(0);
    shrunk = tier->Resize(*smaller);
  }
  REQUIRE(shrunk.ok());
  tier->SetLimit(std::nullopt);
  CHECK(tier->capacity() == *smaller);
  RequireValid(*tier);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(Holds(*tier, kept[i], static_cast<unsigned>(i)));
  }
  // And it is full where it says so.
  for (const Extent& extent : FillUp(*tier, kBob, kPiece)) {
    tier->Free(kBob, extent, ByteState::kCreating);
  }
  for (const Extent& extent : kept) tier->Free(kAlice, extent, ByteState::kCreating);
  RequireValid(*tier);
  REQUIRE(tier->Resize(kCapacity).ok());
  RequireValid(*tier);
}

inline void CheckDoubleFree(const MakeTier& make) {
  for (const Bytes bytes : {Bytes{100}, kPiece}) {
    const std::unique_ptr<Tier> tier = make(kCapacity);
    const Extent extent = MustAllocate(*tier, kAlice, bytes);
    MustAllocate(*tier, kAlice, bytes);
    tier->Free(kAlice, extent, ByteState::kCreating);
    RequireValid(*tier);
    tier->Free(kAlice, extent, ByteState::kCreating);
    CHECK(ReasonOf(tier->Validate()) == Reason::kInternal);
  }
}

}  // namespace conformance

inline void RunTierConformance(const MakeTier& make) {
  SECTION("sizes: what is refused, what is set aside") { conformance::CheckSizes(make); }
  SECTION("bytes by state and by tenant") { conformance::CheckAccounting(make); }
  SECTION("a full tier says so, and every byte can be used") { conformance::CheckFull(make); }
  SECTION("windows: where to make room") { conformance::CheckWindows(make); }
  SECTION("random steps keep bytes, bounds and books") { conformance::CheckRandom(make); }
  SECTION("another size, while it holds something") { conformance::CheckResize(make); }
  SECTION("how its bytes are reached") { conformance::CheckReach(make); }
  SECTION("a double free is found by Validate") { conformance::CheckDoubleFree(make); }
}

}  // namespace hmm::testing
