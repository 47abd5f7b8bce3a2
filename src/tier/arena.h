// SPDX-License-Identifier: Apache-2.0
//
// One tenant's piece of a host tier: a sparse memfd sealed against shrink and grow, the daemon's
// mapping of it, and what is known of its chunks. Address space is plentiful here and memory is
// not: the arena says where memory would be needed, its tier decides whether there is any.
//
//   chunk      0            1            2            3
//              [AAAA..BB..] [..........] [   hole   ] [   hole   ] ...
//   committed_      ~~  ~~   ~~~~~~~~~~                              free, memory behind it
//   space_          ~~  ~~   ~~~~~~~~~~   ~~~~~~~~~~   ~~~~~~~~~~    free, memory or not
//
// Extents below a page are cut from *slabs*: extents of a few pages that live in a third allocator.
// A slab without extents goes back at once. All else is a multiple of 4096 and aligned to it, so
// that O_DIRECT can reach it without a bounce buffer.
//
// One thread (the executor's); the bytes themselves may be touched from any.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"
#include "share/memory_file.h"
#include "tier/extent_allocator.h"

namespace hmm::tier {

inline constexpr Bytes kPageUnit = 4096;   // of extents from this size on; not the system's page
inline constexpr Bytes kSmallUnit = 64;    // of extents below it: a cache line
inline constexpr Bytes kSlab = 16 * kKiB;  // what small extents are cut from, if there is room

// What backs an arena; the first is tried first, the last always works.
enum class ArenaPages : std::uint8_t { kHugetlb, kTransparent, kSmall };

struct ArenaOptions {
  std::string name;  // of the memfd, as /proc shows it
  Bytes bytes = 0;   // address space; a multiple of `chunk`
  Bytes chunk = 0;   // power of two, a multiple of kSlab
  ArenaPages pages = ArenaPages::kSmall;
};

class Arena {
 public:
  static absl::StatusOr<std::unique_ptr<Arena>> Create(const ArenaOptions& options);

  // Binds what will be committed from now on to a NUMA node.
  absl::Status Bind(int numa_node);

  // Takes `length` (as HostTier rounds it) out of committed memory. The fullest chunk wins among
  // the ranges of about the tightest length, so that emptier ones can drain.
  std::optional<Range> Allocate(Bytes length);
  // Another place for the extent `from`, outside of `avoid`, such that the move leaves no more
  // chunks in use than before, and fewer if it puts anything in an empty one: who empties chunks
  // only to fill others never ends.
  std::optional<Range> AllocateOutside(Range from, const std::vector<Range>& avoid);
  // False, and nothing changes, unless all of it is handed out; Validate reports it from then on.
  bool Free(Range extent);

  // The chunks [first, end) that would make room for `length`, `missing` of them without memory: as
  // few as possible. nullopt when the address space has no room either.
  struct Growth {
    std::size_t first = 0;
    std::size_t end = 0;
    std::size_t missing = 0;
  };
  std::optional<Growth> PlanGrowth(Bytes length) const;
  // Puts memory behind all chunks of the plan; none on an error. Afterwards Allocate(length)
  // succeeds.
  absl::Status Grow(const Growth& growth);

  // Gives the last chunk without extents back to the system, not one of [first, end). False: none.
  bool PunchEmpty(std::size_t first = 0, std::size_t end = 0);
  // Gives back memory that a reader of holes committed. Returns how much there was.
  Bytes PunchHoles();

  // The `chunks` adjacent chunks with the least used bytes (> 0) that lie outside `skip`. Emptying
  // them, together with `spare` chunks that are to be had anyway, should yield `chunks` of memory:
  // a window for which that is not true loses to any for which it is.
  struct Window {
    std::size_t first = 0;
    std::size_t chunks = 0;
    Bytes used = 0;
    bool enough = false;
    // Whether this one is the better choice.
    bool Beats(const Window& other) const {
      return enough != other.enough ? enough : used < other.used;
    }
  };
  std::optional<Window> EmptiestWindow(std::size_t chunks, std::size_t spare,
                                       const std::vector<Range>& skip) const;

  // Chunks in use, those with least in them first: at most `max`, none that `skip` touches. With
  // `absorbed`, only as long as the rest could take in what lies in them.
  struct Sparse {
    std::size_t chunk = 0;
    Bytes used = 0;
  };
  std::vector<Sparse> SparseChunks(std::size_t max, bool absorbed,
                                   const std::vector<Range>& skip) const;

  int fd() const { return fd_.get(); }
  std::byte* data() const { return mapping_.data(); }
  Bytes bytes() const { return bytes_; }
  Bytes committed_bytes() const { return committed_chunks_ * chunk_; }
  std::size_t empty_chunks() const { return empty_.size(); }
  std::size_t EmptyWithin(std::size_t first, std::size_t end) const {
    return static_cast<std::size_t>(
        std::distance(empty_.lower_bound(first), empty_.lower_bound(end)));
  }
  // The longest free range that memory is behind, and of the address space.
  Bytes longest_committed() const { return committed_.largest_free(); }
  Bytes longest_space() const { return space_.largest_free(); }
  // Sum of the extents handed out.
  Bytes used_bytes() const {
    return committed_bytes() - committed_.free_bytes() - small_.free_bytes();
  }

  // Recomputes every count from the allocators. Says which differs.
  absl::Status Validate() const;

 private:
  struct Chunk {
    Bytes used = 0;  // by extents and slabs
    bool committed = false;
  };

  Arena(const ArenaOptions& options, share::UniqueFd fd, share::Mapping mapping);

  std::optional<Range> AllocatePages(Bytes length);
  std::optional<Range> AllocatePagesOutside(Bytes length, std::size_t empty_max,
                                            const std::vector<Range>& avoid);
  bool FreePages(Range range);
  std::optional<Range> AllocateSmall(Bytes length);
  void CountSmall(Range extent);
  bool FreeSmall(Range extent);
  bool RefuseFree(Range extent);
  void ChangeUsed(Range range, bool taken);

  std::size_t chunk_count() const { return bytes_ / chunk_; }
  Chunk At(std::size_t index) const { return index < chunks_.size() ? chunks_[index] : Chunk{}; }
  Range ChunkRange(std::size_t first, std::size_t end) const {
    return {first * chunk_, (end - first) * chunk_};
  }
  // Chunks of `range` of which `counts(chunk, part)` holds, `part` being its bytes in the range.
  template <typename Counts>
  std::size_t CountChunks(Range range, Counts counts) const {
    std::size_t count = 0;
    for (Bytes at = range.offset; at < range.end();) {
      const std::size_t index = at / chunk_;
      const Bytes part = std::min(range.end(), (index + 1) * chunk_) - at;
      count += counts(At(index), part);
      at += part;
    }
    return count;
  }
  Growth GrowthOf(Range range) const;
  absl::Status Populate(Range range);
  absl::Status Punch(Range range);
  void ReleaseChunks(std::size_t first, std::size_t end);

  Bytes bytes_;
  Bytes chunk_;
  share::UniqueFd fd_;
  share::Mapping mapping_;
  bool populate_write_ = true;  // until the kernel says it has no MADV_POPULATE_WRITE

  std::vector<Chunk> chunks_;  // up to the last one ever committed; beyond it all are holes
  std::size_t committed_chunks_ = 0;
  absl::btree_set<std::size_t> empty_;  // committed, nothing in them

  ExtentAllocator committed_{kPageUnit};
  ExtentAllocator space_{kPageUnit};
  ExtentAllocator small_{kSmallUnit};
  struct Slab {
    Bytes length = 0;
    Bytes used = 0;
  };
  absl::btree_map<Bytes, Slab> slabs_;  // by offset
  std::optional<Range> freed_wrongly_;  // the first one that lay in no slab or outside the arena
};

// Whether memory can be bound to this node, by binding a page to it. As Arena::Bind.
absl::Status ProbeBind(int numa_node);

}  // namespace hmm::tier
