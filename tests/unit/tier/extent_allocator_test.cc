// SPDX-License-Identifier: Apache-2.0
#include "tier/extent_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "support/catch.h"

namespace hmm::tier {
namespace {

constexpr Bytes kUnit = 64;

ExtentAllocator Full(Bytes units) {
  ExtentAllocator allocator(kUnit);
  REQUIRE(allocator.AddFree({0, units * kUnit}));
  return allocator;
}

bool Valid(const ExtentAllocator& allocator) {
  const absl::Status status = allocator.Validate();
  INFO(status);
  CHECK(status.ok());
  return status.ok();
}

TEST_CASE("an allocator without room gives nothing") {
  ExtentAllocator allocator(kUnit);
  CHECK(allocator.Allocate(kUnit) == std::nullopt);
  CHECK(allocator.largest_free() == 0);
  CHECK(!allocator.Carve({0, kUnit}));
  Valid(allocator);
}

TEST_CASE("the tightest range is taken, the lowest among equals") {
  ExtentAllocator allocator(kUnit);
  allocator.AddFree({0, 8 * kUnit});
  allocator.AddFree({20 * kUnit, 3 * kUnit});
  allocator.AddFree({30 * kUnit, 3 * kUnit});
  CHECK(allocator.Allocate(2 * kUnit) == Range{20 * kUnit, 2 * kUnit});
  CHECK(allocator.Allocate(2 * kUnit) == Range{30 * kUnit, 2 * kUnit});
  CHECK(allocator.Allocate(2 * kUnit) == Range{0, 2 * kUnit});
  Valid(allocator);
}

TEST_CASE("a length no range holds is refused although the sum would do") {
  ExtentAllocator allocator(kUnit);
  allocator.AddFree({0, 4 * kUnit});
  allocator.AddFree({8 * kUnit, 4 * kUnit});
  CHECK(allocator.free_bytes() == 8 * kUnit);
  CHECK(allocator.Allocate(5 * kUnit) == std::nullopt);
  CHECK(allocator.Allocate(~Bytes{0} / kUnit * kUnit) == std::nullopt);
  CHECK(allocator.free_bytes() == 8 * kUnit);
}

TEST_CASE("freeing coalesces with both neighbours, in any order") {
  std::vector<int> order = {0, 1, 2};
  do {
    ExtentAllocator allocator = Full(3);
    std::vector<Range> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(*allocator.Allocate(kUnit));
    CHECK(allocator.free_ranges() == 0);
    for (const int i : order) {
      CHECK(allocator.AddFree(taken[static_cast<std::size_t>(i)]));
      Valid(allocator);
    }
    CHECK(allocator.free_ranges() == 1);
    CHECK(allocator.largest_free() == 3 * kUnit);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("carving takes exactly what it names, or nothing") {
  ExtentAllocator allocator = Full(10);
  CHECK(allocator.Carve({4 * kUnit, 2 * kUnit}));
  CHECK(allocator.FreeRangeAt(0) == Range{0, 4 * kUnit});
  CHECK(allocator.FreeRangeAt(4 * kUnit) == std::nullopt);
  CHECK(allocator.FreeRangeAt(6 * kUnit + 1) == Range{6 * kUnit, 4 * kUnit});
  CHECK(allocator.FreeRangeAt(10 * kUnit) == std::nullopt);
  CHECK(!allocator.Carve({3 * kUnit, 2 * kUnit}));
  CHECK(!allocator.Carve({9 * kUnit, 2 * kUnit}));
  CHECK(!allocator.Carve({kUnit, ~Bytes{0} / kUnit * kUnit}));
  CHECK(!allocator.Carve({1, kUnit}));
  CHECK(!allocator.Carve({0, 0}));
  CHECK(allocator.free_bytes() == 8 * kUnit);
  Valid(allocator);
}

TEST_CASE("the first fit takes as few of those that leave as it can, with what is free beside") {
  ExtentAllocator allocator(kUnit);
  allocator.AddFree({2 * kUnit, kUnit});
  allocator.AddFree({6 * kUnit, kUnit});
  const auto at = [](Bytes unit, Bytes units = 1) { return Range{unit * kUnit, units * kUnit}; };
  CHECK(allocator.FirstFit(2 * kUnit, {}) == std::nullopt);
  CHECK(allocator.FirstFit(2 * kUnit, {at(9)}) == std::nullopt);
  // Beside a free one, on either side; with another; over a free one that lies between two.
  CHECK(allocator.FirstFit(2 * kUnit, {at(9), at(1)}) == at(1, 2));
  CHECK(allocator.FirstFit(2 * kUnit, {at(3)}) == at(2, 2));
  CHECK(allocator.FirstFit(2 * kUnit, {at(9), at(4), at(8)}) == at(8, 2));
  CHECK(allocator.FirstFit(3 * kUnit, {at(1), at(3)}) == at(1, 3));
  CHECK(allocator.FirstFit(5 * kUnit, {at(3), at(5), at(0), at(4)}) == at(2, 5));
  // The last of them lies in it, and no more of the others than must.
  CHECK(allocator.FirstFit(2 * kUnit, {at(8, 4)}) == at(10, 2));
  CHECK(allocator.FirstFit(7 * kUnit, {at(3, 3), at(0, 2)}) == at(0, 7));
  Valid(allocator);
}

TEST_CASE("VisitFits goes from the tightest up, and stops when told") {
  ExtentAllocator allocator(kUnit);
  allocator.AddFree({0, 5 * kUnit});
  allocator.AddFree({10 * kUnit, 2 * kUnit});
  allocator.AddFree({20 * kUnit, 3 * kUnit});
  std::vector<Bytes> seen;
  allocator.VisitFits(3 * kUnit, [&](Range range) {
    seen.push_back(range.offset / kUnit);
    return true;
  });
  CHECK(seen == std::vector<Bytes>{20, 0});
  seen.clear();
  allocator.VisitFits(kUnit, [&](Range range) {
    seen.push_back(range.offset / kUnit);
    return false;
  });
  CHECK(seen == std::vector<Bytes>{10});
}

TEST_CASE("a double free changes nothing and Validate reports it for good") {
  const std::vector<Range> twice = {{0, kUnit},               // the extent itself
                                    {0, 2 * kUnit},           // one that reaches into a live one
                                    {6 * kUnit, 4 * kUnit}};  // one inside a larger free range
  for (const Range& range : twice) {
    ExtentAllocator allocator = Full(16);
    const Range first = *allocator.Allocate(kUnit);
    REQUIRE(allocator.Allocate(kUnit).has_value());
    REQUIRE(first == Range{0, kUnit});
    REQUIRE(allocator.AddFree(first));
    REQUIRE(Valid(allocator));
    const Bytes before = allocator.free_bytes();
    CHECK(!allocator.AddFree(range));
    CHECK(allocator.free_bytes() == before);
    CHECK(ReasonOf(allocator.Validate()) == Reason::kInternal);
    REQUIRE(allocator.Allocate(kUnit).has_value());
    CHECK(!allocator.Validate().ok());
  }
}

// Against a map of bytes (one flag a unit) that knows nothing of trees: what is handed out was
// free, best fit is best, and "no room" is true.
class ByteMap {
 public:
  explicit ByteMap(std::size_t units) : free_(units, false) {}

  bool Set(Range range, bool to) {
    for (Bytes unit = range.offset / kUnit; unit < range.end() / kUnit; ++unit) {
      if (free_[unit] == to) return false;
    }
    std::fill_n(free_.begin() + static_cast<std::ptrdiff_t>(range.offset / kUnit),
                range.length / kUnit, to);
    return true;
  }
  bool AllFree(Range range) const {
    return range.end() / kUnit <= free_.size() &&
           std::all_of(free_.begin() + static_cast<std::ptrdiff_t>(range.offset / kUnit),
                       free_.begin() + static_cast<std::ptrdiff_t>(range.end() / kUnit),
                       [](bool free) { return free; });
  }
  std::optional<Range> BestFit(Bytes length) const {
    std::optional<Range> best;
    VisitRuns([&](Range run) {
      if (run.length >= length && (!best.has_value() || run.length < best->length)) best = run;
    });
    if (best.has_value()) best->length = length;
    return best;
  }
  Bytes Largest() const {
    Bytes largest = 0;
    VisitRuns([&](Range run) { largest = std::max(largest, run.length); });
    return largest;
  }
  std::size_t Runs() const {
    std::size_t runs = 0;
    VisitRuns([&](Range) { ++runs; });
    return runs;
  }

 private:
  template <typename Visit>
  void VisitRuns(Visit visit) const {
    for (std::size_t at = 0; at < free_.size();) {
      std::size_t end = at;
      while (end < free_.size() && free_[end]) ++end;
      if (end > at) visit(Range{at * kUnit, (end - at) * kUnit});
      at = end + 1;
    }
  }
  std::vector<bool> free_;
};

std::uint64_t Seed() {
  const char* text = std::getenv("TEST_SEED");
  std::uint64_t seed = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  if (seed == 0) seed = std::random_device()();
  return seed;
}

TEST_CASE("random steps agree with a byte map") {
  constexpr Bytes kUnits = 512;
  constexpr int kSteps = 60'000;
  const std::uint64_t seed = Seed();
  INFO("TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  auto below = [&](Bytes bound) { return random() % bound; };

  ExtentAllocator allocator(kUnit);
  ByteMap map(kUnits);
  std::vector<Range> live;
  REQUIRE(allocator.AddFree({0, kUnits * kUnit}));
  REQUIRE(map.Set({0, kUnits * kUnit}, true));
  std::size_t refused = 0;
  for (int step = 0; step < kSteps; ++step) {
    // Long waves of growth and decay, so that both full and nearly empty maps are visited.
    const Bytes growth = (step / 2000) % 2 == 0 ? 65 : 35;
    const Bytes dice = below(100);
    if (dice < 5) {
      const Range range{below(kUnits) * kUnit, (1 + below(8)) * kUnit};
      const bool carved = allocator.Carve(range);
      REQUIRE(carved == map.AllFree(range));
      if (carved) {
        REQUIRE(map.Set(range, false));
        live.push_back(range);
      }
    } else if (dice < growth || live.empty()) {
      const Bytes length = (1 + (below(10) == 0 ? below(100) : below(12))) * kUnit;
      const std::optional<Range> expected = map.BestFit(length);
      const std::optional<Range> got = allocator.Allocate(length);
      REQUIRE(got == expected);
      if (got.has_value()) {
        REQUIRE(map.Set(*got, false));
        live.push_back(*got);
      } else {
        ++refused;
      }
    } else {
      std::swap(live[below(live.size())], live.back());
      REQUIRE(allocator.AddFree(live.back()));
      REQUIRE(map.Set(live.back(), true));
      live.pop_back();
    }
    REQUIRE(allocator.Validate().ok());
    REQUIRE(allocator.largest_free() == map.Largest());
    REQUIRE(allocator.free_ranges() == map.Runs());
  }
  CHECK(refused > 100);  // else the map never filled, and "no room" was not tested
  for (const Range& range : live) REQUIRE(allocator.AddFree(range));
  CHECK(allocator.FreeRangeAt(0) == Range{0, kUnits * kUnit});
}

TEST_CASE("outside of what is avoided an extent takes either end of a free range") {
  ExtentAllocator extents(4096);
  REQUIRE(extents.AddFree({0, 16 * 4096}));
  const std::vector<Range> avoid = {{0, 4096}, {14 * 4096 + 100, 50}};
  std::vector<Range> offered;
  CHECK(!extents.AllocateOutside(2 * 4096, 16 * 4096, avoid, [&](Range range) {
    offered.push_back(range);
    return false;
  }));
  CHECK(offered == std::vector<Range>{{4096, 2 * 4096}, {12 * 4096, 2 * 4096}});
  CHECK(extents.free_bytes() == 16 * 4096);
  CHECK(extents.AllocateOutside(2 * 4096, 15 * 4096, {}, [](Range range) {
    return range.offset > 0;
  }) == Range{13 * 4096, 2 * 4096});
  CHECK(extents.AllocateOutside(2 * 4096, 16 * 4096, avoid) == Range{4096, 2 * 4096});
  CHECK(!extents.AllocateOutside(2 * 4096, 2 * 4096, avoid).has_value());
  CHECK(extents.Validate().ok());
}

}  // namespace
}  // namespace hmm::tier
