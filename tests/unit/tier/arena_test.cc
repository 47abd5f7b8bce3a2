// SPDX-License-Identifier: Apache-2.0
#include "tier/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "support/catch.h"

namespace hmm::tier {
namespace {

constexpr Bytes kChunk = 64 * kKiB;

std::unique_ptr<Arena> Make(std::size_t chunks) {
  auto arena = Arena::Create({"hmm:test", chunks * kChunk, kChunk, ArenaPages::kSmall});
  INFO(arena.status());
  REQUIRE(arena.ok());
  return *std::move(arena);
}

void RequireValid(const Arena& arena) {
  const absl::Status status = arena.Validate();
  INFO(status);
  REQUIRE(status.ok());
}

// Commits whatever `length` needs, then takes it.
Range MustAllocate(Arena& arena, Bytes length) {
  std::optional<Range> range = arena.Allocate(length);
  if (!range.has_value()) {
    const auto growth = arena.PlanGrowth(length);
    REQUIRE(growth.has_value());
    REQUIRE(arena.Grow(*growth).ok());
    range = arena.Allocate(length);
  }
  REQUIRE(range.has_value());
  REQUIRE(range->length == length);
  RequireValid(arena);
  return *range;
}

Bytes Backed(const Arena& arena) { return *share::BackedBytes(arena.fd()); }

TEST_CASE("a new arena has space and no memory") {
  const auto arena = Make(4);
  CHECK(!arena->Allocate(kPageUnit).has_value());
  CHECK(!arena->Allocate(kSmallUnit).has_value());
  CHECK(arena->committed_bytes() == 0);
  CHECK(Backed(*arena) == 0);
  CHECK(!arena->PunchEmpty());
  CHECK(arena->PunchHoles() == 0);
  RequireValid(*arena);
}

TEST_CASE("memory is really there before an extent is handed out, and zero") {
  const auto arena = Make(8);
  const Range range = MustAllocate(*arena, 2 * kChunk + kPageUnit);
  CHECK(arena->committed_bytes() == 3 * kChunk);
  CHECK(Backed(*arena) == 3 * kChunk);
  CHECK(arena->used_bytes() == range.length);
  for (Bytes i = 0; i < range.length; i += 512) {
    REQUIRE(arena->data()[range.offset + i] == std::byte{0});
  }
}

TEST_CASE("growth uses the committed rest of a chunk before it asks for more") {
  const auto arena = Make(16);
  const Bytes length = kChunk + kChunk / 4;
  MustAllocate(*arena, length);
  CHECK(arena->committed_bytes() == 2 * kChunk);
  const auto growth = arena->PlanGrowth(length);
  REQUIRE(growth.has_value());
  CHECK(growth->missing == 1);
  MustAllocate(*arena, length);
  MustAllocate(*arena, length);
  CHECK(arena->committed_bytes() == 4 * kChunk);
}

TEST_CASE("growth takes the end of a hole when the rest there saves a chunk") {
  const auto arena = Make(4);
  MustAllocate(*arena, kChunk);
  const Range second = MustAllocate(*arena, kChunk);
  const Range third = MustAllocate(*arena, kChunk);
  MustAllocate(*arena, kChunk);
  // Chunk 1 goes back, chunk 2 keeps only its second half: [1: hole][2: free half | used half].
  REQUIRE(arena->Free(second));
  REQUIRE(arena->PunchEmpty());
  REQUIRE(arena->Free(third));
  REQUIRE(arena->Allocate(kChunk / 2) == Range{2 * kChunk, kChunk / 2});
  REQUIRE(arena->Allocate(kChunk / 2) == Range{2 * kChunk + kChunk / 2, kChunk / 2});
  REQUIRE(arena->Free({2 * kChunk, kChunk / 2}));
  const auto growth = arena->PlanGrowth(kChunk + kChunk / 4);
  REQUIRE(growth.has_value());
  CHECK(growth->first == 1);
  CHECK(growth->end == 3);
  CHECK(growth->missing == 1);
  MustAllocate(*arena, kChunk + kChunk / 4);
  CHECK(!arena->PlanGrowth(kChunk).has_value());  // no address space for it any more
}

TEST_CASE("extents go to the fullest chunk, so that others can drain") {
  const auto arena = Make(2);
  const Range a = MustAllocate(*arena, kChunk);
  const Range b = MustAllocate(*arena, kChunk);
  REQUIRE(arena->Free(a));
  REQUIRE(arena->Free(b));
  // Chunk 0 holds one page, chunk 1 seven, both have a gap of one page between used ones.
  std::vector<Range> pages;
  for (int i = 0; i < 32; ++i) pages.push_back(*arena->Allocate(kPageUnit));
  REQUIRE(arena->Free(pages[1]));
  for (int i = 3; i < 16; ++i) REQUIRE(arena->Free(pages[static_cast<std::size_t>(i)]));
  REQUIRE(arena->Free(pages[20]));
  CHECK(arena->Allocate(kPageUnit) == Range{20 * kPageUnit, kPageUnit});
  CHECK(arena->Allocate(kPageUnit) == Range{1 * kPageUnit, kPageUnit});
  RequireValid(*arena);
}

TEST_CASE("small extents share slabs, which go back when they are empty") {
  const auto arena = Make(2);
  std::vector<Range> extents;
  for (int i = 0; i < 200; ++i) extents.push_back(MustAllocate(*arena, 3 * kSmallUnit));
  CHECK(arena->committed_bytes() == kChunk);
  CHECK(arena->used_bytes() == 200 * 3 * kSmallUnit);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      REQUIRE((extents[i].offset >= extents[j].end() || extents[j].offset >= extents[i].end()));
    }
  }
  for (const Range& extent : extents) {
    REQUIRE(arena->Free(extent));
    RequireValid(*arena);
  }
  CHECK(arena->used_bytes() == 0);
  CHECK(arena->empty_chunks() == 1);
}

TEST_CASE("a small extent takes a page where no slab fits") {
  const auto arena = Make(1);
  std::vector<Range> pages;
  for (Bytes i = 0; i < kChunk / kPageUnit; ++i) pages.push_back(MustAllocate(*arena, kPageUnit));
  CHECK(!arena->Allocate(kSmallUnit).has_value());
  REQUIRE(arena->Free(pages[5]));
  const auto extent = arena->Allocate(kSmallUnit);
  REQUIRE(extent.has_value());
  CHECK(extent->offset == pages[5].offset);
  RequireValid(*arena);
}

TEST_CASE("an empty chunk is punched, comes back as zeros, and one in use never is") {
  const auto arena = Make(4);
  const Range kept = MustAllocate(*arena, kChunk);
  const Range freed = MustAllocate(*arena, kChunk);
  std::memset(arena->data() + kept.offset, 1, kept.length);
  std::memset(arena->data() + freed.offset, 2, freed.length);
  REQUIRE(arena->Free(freed));
  CHECK(arena->EmptyWithin(0, 4) == 1);
  CHECK(arena->EmptyWithin(0, 1) == 0);
  CHECK(!arena->PunchEmpty(freed.offset / kChunk, freed.offset / kChunk + 1));  // told to spare it
  CHECK(arena->PunchEmpty());
  CHECK(!arena->PunchEmpty());
  RequireValid(*arena);
  CHECK(Backed(*arena) == kChunk);
  CHECK(arena->data()[kept.offset] == std::byte{1});
  const Range again = MustAllocate(*arena, kChunk);
  CHECK(again == freed);
  CHECK(arena->data()[again.offset] == std::byte{0});
}

TEST_CASE("memory that a reader of holes committed is found and given back") {
  const auto arena = Make(8);
  const Range extent = MustAllocate(*arena, kChunk);
  std::memset(arena->data() + extent.offset, 1, extent.length);
  const auto reader =
      share::Mapping::Map(arena->fd(), arena->bytes(), share::Mapping::Access::kReadWrite, false);
  REQUIRE(reader.ok());
  reader->data()[3 * kChunk] = std::byte{9};
  reader->data()[7 * kChunk + 5] = std::byte{9};
  CHECK(Backed(*arena) > arena->committed_bytes());
  const Bytes found = arena->PunchHoles();
  CHECK(found >= 2 * 4096);
  CHECK(Backed(*arena) == arena->committed_bytes());
  CHECK(reader->data()[extent.offset] == std::byte{1});
  CHECK(arena->PunchHoles() == 0);
}

TEST_CASE("a client can neither resize nor seal the file, nor does it appear in a core dump") {
  const auto arena = Make(2);
  CHECK(ftruncate(arena->fd(), 0) == -1);
  CHECK(fcntl(arena->fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == -1);
  CHECK(errno == EPERM);
  std::ostringstream start;
  start << std::hex << reinterpret_cast<std::uintptr_t>(arena->data()) << "-";
  std::ifstream smaps("/proc/self/smaps");
  std::string flags;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.rfind(start.str(), 0) == 0) inside = true;
    if (inside && line.rfind("VmFlags:", 0) == 0) {
      flags = line;
      break;
    }
  }
  CHECK(flags.find(" dd") != std::string::npos);
  CHECK(flags.find(" dc") != std::string::npos);  // nor in a child
}

TEST_CASE("what was never handed out is refused, and Validate says so") {
  const std::vector<Range> wrong = {{0, kSmallUnit},              // no slab there
                                    {kChunk, kPageUnit},          // a hole
                                    {~Bytes{0} - 4095, 4096},     // beyond the arena
                                    {8 * kPageUnit, kPageUnit}};  // free, with memory
  for (const Range& range : wrong) {
    const auto arena = Make(2);
    MustAllocate(*arena, kPageUnit);
    const Bytes used = arena->used_bytes();
    CHECK(!arena->Free(range));
    CHECK(arena->used_bytes() == used);
    CHECK(ReasonOf(arena->Validate()) == Reason::kInternal);
  }
}

TEST_CASE("the emptiest window has the least used bytes outside what is skipped") {
  const auto arena = Make(8);
  std::vector<Range> pages;
  for (Bytes i = 0; i < 4 * kChunk / kPageUnit; ++i) {
    pages.push_back(MustAllocate(*arena, kPageUnit));
  }
  // Pages used: chunk 0 16, chunk 1 3, chunk 2 5, chunk 3 16; behind them holes.
  auto keep = [&](std::size_t chunk, std::size_t count) {
    for (std::size_t i = chunk * 16 + count; i < (chunk + 1) * 16; ++i) {
      REQUIRE(arena->Free({i * kPageUnit, kPageUnit}));
    }
  };
  keep(1, 3);
  keep(2, 5);
  auto window = arena->EmptiestWindow(1, 0, {});
  REQUIRE(window.has_value());
  CHECK(window->first == 1);
  CHECK(window->used == 3 * kPageUnit);
  CHECK(window->enough);
  window = arena->EmptiestWindow(2, 0, {});
  REQUIRE(window.has_value());
  CHECK(window->first == 1);
  CHECK(window->used == 8 * kPageUnit);
  window = arena->EmptiestWindow(1, 0, {{kChunk + 100, 1}});
  REQUIRE(window.has_value());
  CHECK(window->first == 2);
  window = arena->EmptiestWindow(1, 0, {{0, 3 * kChunk}});
  REQUIRE(window.has_value());
  CHECK(window->first == 3);
  CHECK(!arena->EmptiestWindow(1, 0, {{0, ~Bytes{0}}}).has_value());
  CHECK(!arena->EmptiestWindow(9, 0, {}).has_value());
  CHECK(!arena->EmptiestWindow(0, 0, {}).has_value());
  // Emptying chunk 3 frees one chunk and the two holes behind it none, unless memory is to be had.
  REQUIRE(arena->Free({3 * kChunk, kPageUnit}));
  window = arena->EmptiestWindow(3, 0, {});
  REQUIRE(window.has_value());
  CHECK(window->first == 1);
  CHECK(window->enough);
  window = arena->EmptiestWindow(3, 2, {});
  REQUIRE(window.has_value());
  CHECK(window->first == 3);
  CHECK(window->enough);
}

TEST_CASE("what moves out of a chunk opens no empty one for it") {
  const auto arena = Make(8);
  // Three chunks of which a quarter is free or held alone, and an empty one between them.
  std::vector<Range> wide, quarter;
  for (int i = 0; i < 3; ++i) {
    wide.push_back(MustAllocate(*arena, kChunk * 3 / 4));
    quarter.push_back(MustAllocate(*arena, kChunk / 4));
    if (i == 0) wide.push_back(MustAllocate(*arena, kChunk));
  }
  const std::vector<Range> last{{3 * kChunk, kChunk}};
  REQUIRE(quarter[2].offset / kChunk == 3);
  REQUIRE(arena->Free(wide[1]));
  REQUIRE(arena->Free(quarter[1]));
  REQUIRE(arena->empty_chunks() == 1);
  // Only the empty chunk could hold it.
  CHECK(!arena->AllocateOutside(wide[3], last).has_value());
  // It goes where it stays.
  REQUIRE(arena->Free(quarter[0]));
  for (int i = 0; i < 2; ++i) {
    const auto place = arena->AllocateOutside(quarter[2], last);
    REQUIRE(place.has_value());
    CHECK(place->offset % kChunk == kChunk * 3 / 4);
  }
  CHECK(!arena->AllocateOutside(quarter[2], last).has_value());
  CHECK(arena->empty_chunks() == 1);
  REQUIRE(arena->Free(quarter[2]));
  // A small one needs a slab there.
  const Range small = MustAllocate(*arena, kSmallUnit);
  REQUIRE(small.offset / kChunk == 3);
  CHECK(!arena->AllocateOutside(small, last).has_value());
  CHECK(arena->empty_chunks() == 1);
  RequireValid(*arena);
}

TEST_CASE("what moves opens empty chunks when it leaves more behind") {
  const auto arena = Make(8);
  const Range head = MustAllocate(*arena, kChunk / 2);
  const Range wide = MustAllocate(*arena, 2 * kChunk);  // the rest of the first, one, half a one
  const Range spare = MustAllocate(*arena, 2 * kChunk);
  const Range tail = MustAllocate(*arena, kChunk / 2);
  REQUIRE(arena->Free(head));
  REQUIRE(arena->Free(spare));
  REQUIRE(arena->Free(tail));
  REQUIRE(wide.offset % kChunk == kChunk / 2);
  // All of three chunks is its own; where it goes it takes two.
  const std::size_t before = arena->empty_chunks();
  const Range window{0, kChunk};
  const auto place = arena->AllocateOutside(wide, {window, {kChunk, 2 * kChunk}});
  REQUIRE(place.has_value());
  CHECK(arena->empty_chunks() == before - 2);
  REQUIRE(arena->Free(wide));
  CHECK(arena->empty_chunks() == before + 1);
  // It fills its chunks now: no place is better.
  CHECK(!arena->AllocateOutside(*place, {{place->offset, place->length}}).has_value());
  RequireValid(*arena);
}

}  // namespace
}  // namespace hmm::tier
