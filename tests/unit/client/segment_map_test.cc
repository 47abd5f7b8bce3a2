// SPDX-License-Identifier: Apache-2.0
#include "client/lib/segment_map.h"

#include <limits>

#include "base/status.h"
#include "support/catch.h"

namespace hmm::client_internal {
namespace {

constexpr Bytes kSize = 4096;

share::Mapping MapNew() {
  absl::StatusOr<share::UniqueFd> fd = share::CreateMemoryFile("segment", kSize);
  REQUIRE(fd.ok());
  auto mapping =
      share::Mapping::Map(fd->get(), kSize, share::Mapping::Access::kReadWrite, /*dont_fork=*/true);
  REQUIRE(mapping.ok());
  return *std::move(mapping);
}

TEST_CASE("a segment is found by its id once it was added") {
  SegmentMap map;
  CHECK(map.Find(0x10001) == nullptr);
  const auto added = map.Add(0x10001, MapNew());
  REQUIRE(added.ok());
  CHECK(map.Find(0x10001) == *added);
  CHECK(map.Find(0x10002) == nullptr);
  CHECK(map.Find(0) == nullptr);
}

TEST_CASE("only what lies within the segment has an address") {
  SegmentMap map;
  const SegmentMap::Segment& segment = **map.Add(1, MapNew());
  std::byte* const base = segment.mapping.data();
  constexpr Bytes kMax = std::numeric_limits<Bytes>::max();
  CHECK(SegmentMap::Resolve(segment, 0, kSize) == base);
  CHECK(SegmentMap::Resolve(segment, kSize - 1, 1) == base + kSize - 1);
  CHECK(SegmentMap::Resolve(segment, 0, kSize + 1) == nullptr);
  CHECK(SegmentMap::Resolve(segment, kSize, 1) == nullptr);
  CHECK(SegmentMap::Resolve(segment, kSize - 1, 2) == nullptr);
  CHECK(SegmentMap::Resolve(segment, 0, 0) == nullptr);
  // Sums that wrap around.
  CHECK(SegmentMap::Resolve(segment, kMax, 2) == nullptr);
  CHECK(SegmentMap::Resolve(segment, 16, kMax) == nullptr);
  CHECK(SegmentMap::Resolve(segment, kMax - 15, 16) == nullptr);
}

TEST_CASE("the map is bounded") {
  SegmentMap map;
  for (SegmentId id = 1; id <= SegmentMap::kCapacity; ++id) REQUIRE(map.Add(id, MapNew()).ok());
  const absl::Status full = map.Add(9999, MapNew()).status();
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK(map.Find(9999) == nullptr);
  CHECK(map.Find(SegmentMap::kCapacity) != nullptr);
}

TEST_CASE("a cleared map finds nothing") {
  SegmentMap map;
  REQUIRE(map.Add(1, MapNew()).ok());
  map.Clear();
  CHECK(map.Find(1) == nullptr);
}

}  // namespace
}  // namespace hmm::client_internal
