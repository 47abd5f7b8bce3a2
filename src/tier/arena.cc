// SPDX-License-Identifier: Apache-2.0
#include "tier/arena.h"

#include <fcntl.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hmm::tier {
namespace {

constexpr int kFullestOf = 8;   // ranges compared for the fullest chunk
constexpr int kGrowthsOf = 64;  // ranges compared for the growth that needs least

// Ranges within an eighth of the tightest one are as good as it.
bool SameClass(Bytes tightest, Bytes length) { return length - tightest <= tightest / 8; }

absl::Status BindMemory(void* data, std::size_t bytes, int numa_node) {
  if (numa_available() < 0) return PosixError("NUMA policy", ENOSYS);
  bitmask* nodes = numa_allocate_nodemask();
  numa_bitmask_setbit(nodes, static_cast<unsigned>(numa_node));
  const long result = mbind(data, bytes, MPOL_BIND, nodes->maskp, nodes->size + 1, 0);
  const int error = errno;
  numa_free_nodemask(nodes);
  if (result != 0) return PosixError(absl::StrCat("mbind to node ", numa_node), error);
  return absl::OkStatus();
}

absl::Status Broken(const std::string& what, Bytes counted, Bytes kept) {
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat("arena: ", what, ": counted ", counted, ", kept ", kept));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(const ArenaOptions& options) {
  HMM_CHECK(options.chunk > 0 && options.chunk % kSlab == 0);
  HMM_CHECK(options.bytes > 0 && options.bytes % options.chunk == 0);
  const auto file_pages = options.pages == ArenaPages::kHugetlb ? share::FilePages::kHugetlb
                                                                : share::FilePages::kNormal;
  HMM_ASSIGN_OR_RETURN(share::UniqueFd fd,
                       share::CreateMemoryFile(options.name, options.bytes, file_pages));
  // A peer's F_SEAL_FUTURE_WRITE would forbid us to punch.
  HMM_RETURN_IF_ERROR(share::SealSeals(fd.get()));
  HMM_ASSIGN_OR_RETURN(
      share::Mapping mapping,
      share::Mapping::Map(fd.get(), options.bytes, share::Mapping::Access::kReadWrite, true));
  // Tensors have no place in a core dump; a kernel that cannot leave them out is no reason to fail.
  (void)madvise(mapping.data(), mapping.size(), MADV_DONTDUMP);
  // NOHUGEPAGE where we did not choose them: a huge page behind a smaller chunk would look as if a
  // reader had committed the rest.
  if (options.pages != ArenaPages::kHugetlb) {
    (void)madvise(mapping.data(), mapping.size(),
                  options.pages == ArenaPages::kTransparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  return std::unique_ptr<Arena>(new Arena(options, std::move(fd), std::move(mapping)));
}

Arena::Arena(const ArenaOptions& options, share::UniqueFd fd, share::Mapping mapping)
    : bytes_(options.bytes),
      chunk_(options.chunk),
      fd_(std::move(fd)),
      mapping_(std::move(mapping)) {
  space_.AddFree({0, bytes_});
}

absl::Status Arena::Bind(int numa_node) {
  return BindMemory(mapping_.data(), mapping_.size(), numa_node);
}

absl::Status ProbeBind(int numa_node) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const data =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return PosixError("probing mbind", errno);
  const absl::Status status = BindMemory(data, page, numa_node);
  munmap(data, page);
  return status;
}

std::optional<Range> Arena::Allocate(Bytes length) {
  return length < kPageUnit ? AllocateSmall(length) : AllocatePages(length);
}

bool Arena::Free(Range extent) {
  if (extent.length > bytes_ || extent.offset > bytes_ - extent.length) return RefuseFree(extent);
  return extent.length < kPageUnit ? FreeSmall(extent) : FreePages(extent);
}

std::optional<Range> Arena::AllocatePages(Bytes length) {
  std::optional<Range> best;
  Bytes best_used = 0;
  Bytes tightest = 0;
  int left = kFullestOf;
  committed_.VisitFits(length, [&](Range range) {
    if (!best.has_value()) tightest = range.length;
    if (!SameClass(tightest, range.length)) return false;
    const Bytes used = At(range.offset / chunk_).used;
    if (!best.has_value() || used > best_used) {
      best = Range{range.offset, length};
      best_used = used;
    }
    return --left > 0;
  });
  if (!best.has_value()) return std::nullopt;
  HMM_CHECK(committed_.Carve(*best) && space_.Carve(*best));
  ChangeUsed(*best, true);
  return best;
}

std::optional<Range> Arena::AllocateOutside(Range from, const std::vector<Range>& avoid) {
  const Bytes length = from.length;
  if (length >= kPageUnit) {
    const std::size_t emptied =
        CountChunks(from, [](const Chunk& chunk, Bytes part) { return chunk.used == part; });
    return AllocatePagesOutside(length, emptied - std::min<std::size_t>(emptied, 1), avoid);
  }
  std::optional<Range> extent = small_.AllocateOutside(length, bytes_, avoid);
  for (const Bytes bytes : {kSlab, kPageUnit}) {
    if (extent.has_value()) break;
    const std::optional<Range> slab = AllocatePagesOutside(bytes, 0, avoid);
    if (!slab.has_value()) continue;
    slabs_.emplace(slab->offset, Slab{slab->length, 0});
    HMM_CHECK(small_.AddFree(*slab));
    extent = small_.AllocateOutside(length, bytes_, avoid);
    HMM_CHECK(extent.has_value());
  }
  if (extent.has_value()) CountSmall(*extent);
  return extent;
}

std::optional<Range> Arena::AllocatePagesOutside(Bytes length, std::size_t empty_max,
                                                 const std::vector<Range>& avoid) {
  // The ends of a free range may lie in chunks in use; all between them is empty.
  auto accept = [&](Range range) {
    return CountChunks(range, [](const Chunk& chunk, Bytes) { return chunk.used == 0; }) <=
           empty_max;
  };
  const std::optional<Range> range = committed_.AllocateOutside(length, bytes_, avoid, accept);
  if (!range.has_value()) return std::nullopt;
  HMM_CHECK(space_.Carve(*range));
  ChangeUsed(*range, true);
  return range;
}

bool Arena::FreePages(Range range) {
  // space_ first: it also holds the holes, where a chunk may have been since a first free.
  if (!space_.AddFree(range)) return false;
  HMM_CHECK(committed_.AddFree(range));
  ChangeUsed(range, false);
  return true;
}

std::optional<Range> Arena::AllocateSmall(Bytes length) {
  std::optional<Range> extent = small_.Allocate(length);
  for (const Bytes bytes : {kSlab, kPageUnit}) {
    if (extent.has_value()) break;
    const std::optional<Range> slab = AllocatePages(bytes);
    if (!slab.has_value()) continue;
    slabs_.emplace(slab->offset, Slab{slab->length, 0});
    HMM_CHECK(small_.AddFree(*slab));
    extent = small_.Allocate(length);
  }
  if (extent.has_value()) CountSmall(*extent);
  return extent;
}

void Arena::CountSmall(Range extent) {
  // Adjacent slabs coalesce, so an extent may lie across two.
  for (auto it = std::prev(slabs_.upper_bound(extent.offset));
       it != slabs_.end() && it->first < extent.end(); ++it) {
    it->second.used +=
        std::min(extent.end(), it->first + it->second.length) - std::max(extent.offset, it->first);
  }
}

bool Arena::FreeSmall(Range extent) {
  auto it = slabs_.upper_bound(extent.offset);
  if (it == slabs_.begin()) return RefuseFree(extent);
  --it;
  if (extent.offset >= it->first + it->second.length) return RefuseFree(extent);
  if (!small_.AddFree(extent)) return false;
  while (it != slabs_.end() && it->first < extent.end()) {
    const Range slab{it->first, it->second.length};
    it->second.used -= std::min(extent.end(), slab.end()) - std::max(extent.offset, slab.offset);
    if (it->second.used > 0) {
      ++it;
      continue;
    }
    HMM_CHECK(small_.Carve(slab));
    it = slabs_.erase(it);
    HMM_CHECK(FreePages(slab));
  }
  return true;
}

bool Arena::RefuseFree(Range extent) {
  if (!freed_wrongly_.has_value()) freed_wrongly_ = extent;
  return false;
}

void Arena::ChangeUsed(Range range, bool taken) {
  for (Bytes at = range.offset; at < range.end();) {
    const std::size_t index = at / chunk_;
    const Bytes part = std::min(range.end(), (index + 1) * chunk_) - at;
    Chunk& chunk = chunks_[index];
    if (taken) {
      if (chunk.used == 0) empty_.erase(index);
      chunk.used += part;
    } else {
      chunk.used -= part;
      if (chunk.used == 0) empty_.insert(index);
    }
    at += part;
  }
}

Arena::Growth Arena::GrowthOf(Range range) const {
  Growth growth{range.offset / chunk_, (range.end() + chunk_ - 1) / chunk_, 0};
  for (std::size_t i = growth.first; i < growth.end; ++i) growth.missing += !At(i).committed;
  return growth;
}

std::optional<Arena::Growth> Arena::PlanGrowth(Bytes length) const {
  if (length < kPageUnit) length = kSlab;
  std::optional<Growth> best;
  int left = kGrowthsOf;
  // What lies at either end of a free range may be the committed rest of a chunk in use; chunks in
  // the middle are holes, or empty and could be punched just as well.
  auto consider = [&](Range range) {
    for (const Bytes offset : {range.offset, range.end() - length}) {
      const Growth growth = GrowthOf({offset, length});
      if (!best.has_value() || growth.missing < best->missing) best = growth;
    }
    return --left > 0;
  };
  space_.VisitFits(length, consider);
  const Bytes largest = space_.largest_free();
  if (left <= 0) space_.VisitFits(largest, consider);
  return best;
}

absl::Status Arena::Grow(const Growth& growth) {
  if (chunks_.size() < growth.end) chunks_.resize(growth.end);
  std::size_t done = growth.first;
  std::vector<std::pair<std::size_t, std::size_t>> added;
  while (done < growth.end) {
    if (chunks_[done].committed) {
      ++done;
      continue;
    }
    std::size_t end = done;
    while (end < growth.end && !chunks_[end].committed) ++end;
    absl::Status status = Populate(ChunkRange(done, end));
    if (!status.ok()) {
      (void)Punch(ChunkRange(done, end));  // what it got before it failed
      for (const auto& [first, last] : added) ReleaseChunks(first, last);
      return status;
    }
    for (std::size_t i = done; i < end; ++i) {
      chunks_[i].committed = true;
      empty_.insert(i);
    }
    committed_chunks_ += end - done;
    HMM_CHECK(committed_.AddFree(ChunkRange(done, end)));
    added.emplace_back(done, end);
    done = end;
  }
  return absl::OkStatus();
}

void Arena::ReleaseChunks(std::size_t first, std::size_t end) {
  HMM_CHECK(committed_.Carve(ChunkRange(first, end)));
  for (std::size_t i = first; i < end; ++i) {
    chunks_[i].committed = false;
    empty_.erase(i);
  }
  committed_chunks_ -= end - first;
  // It failed only if it is still backed, which the next audit finds and punches again.
  (void)Punch(ChunkRange(first, end));
}

bool Arena::PunchEmpty(std::size_t first, std::size_t end) {
  auto it = empty_.rbegin();
  while (it != empty_.rend() && *it >= first && *it < end) ++it;
  if (it == empty_.rend()) return false;
  ReleaseChunks(*it, *it + 1);
  return true;
}

Bytes Arena::PunchHoles() {
  const absl::StatusOr<Bytes> backed = share::BackedBytes(fd_.get());
  if (!backed.ok() || *backed <= committed_bytes()) return 0;
  for (std::size_t first = 0; first < chunk_count();) {
    std::size_t end = first;
    while (end < chunks_.size() && !chunks_[end].committed) ++end;
    if (end >= chunks_.size()) end = chunk_count();
    if (end > first) (void)Punch(ChunkRange(first, end));
    first = end + 1;
  }
  return *backed - committed_bytes();
}

std::optional<Arena::Window> Arena::EmptiestWindow(std::size_t chunks, std::size_t spare,
                                                   const std::vector<Range>& skip) const {
  if (chunks == 0 || chunks > chunk_count()) return std::nullopt;
  std::vector<bool> blocked;
  for (const Range& range : skip) {
    if (range.length == 0 || range.offset >= bytes_) continue;
    blocked.resize(chunks_.size() + chunks);
    const Bytes last = std::min(range.length - 1, bytes_ - 1 - range.offset) + range.offset;
    for (std::size_t i = range.offset / chunk_; i <= last / chunk_ && i < blocked.size(); ++i) {
      blocked[i] = true;
    }
  }
  std::optional<Window> best;
  Bytes used = 0;
  std::size_t in_use = 0;
  std::size_t kept_out = 0;
  auto add = [&](std::size_t i) {
    used += At(i).used;
    in_use += At(i).used > 0;
    kept_out += i < blocked.size() && blocked[i];
  };
  auto drop = [&](std::size_t i) {
    used -= At(i).used;
    in_use -= At(i).used > 0;
    kept_out -= i < blocked.size() && blocked[i];
  };
  // Every window that begins in a chunk ever committed; past the last one there is nothing to
  // empty.
  for (std::size_t end = 0; end < chunk_count() && end < chunks_.size() + chunks - 1; ++end) {
    add(end);
    if (end + 1 < chunks) continue;
    const std::size_t first = end + 1 - chunks;
    const Window window{first, chunks, used, in_use + spare >= chunks};
    if (used > 0 && kept_out == 0 && (!best.has_value() || window.Beats(*best))) best = window;
    drop(first);
  }
  return best;
}

std::vector<Arena::Sparse> Arena::SparseChunks(std::size_t max, bool absorbed,
                                               const std::vector<Range>& skip) const {
  std::vector<bool> skipped(chunks_.size(), false);
  for (const Range& range : skip) {
    const std::size_t end = std::min(chunks_.size(), (range.end() + chunk_ - 1) / chunk_);
    for (std::size_t i = range.offset / chunk_; i < end; ++i) skipped[i] = true;
  }
  std::vector<Sparse> found;
  Bytes room = 0;  // free in what is in use and not skipped
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].used == 0 || skipped[i]) continue;
    found.push_back({i, chunks_[i].used});
    room += chunk_ - chunks_[i].used;
  }
  const std::size_t count = std::min(max, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    [](const Sparse& a, const Sparse& b) {
                      return a.used != b.used ? a.used < b.used : a.chunk > b.chunk;
                    });
  std::size_t taken = 0;
  Bytes moved = 0;
  for (; taken < count; ++taken) {
    // Without it the rest has so much less room, and so much more to take in.
    const Sparse& next = found[taken];
    const Bytes left = room - (chunk_ - next.used);
    if (absorbed && left < moved + next.used) break;
    room = left;
    moved += next.used;
  }
  found.resize(taken);
  return found;
}

absl::Status Arena::Populate(Range range) {
  while (populate_write_) {
    if (madvise(mapping_.data() + range.offset, range.length, MADV_POPULATE_WRITE) == 0) {
      return absl::OkStatus();
    }
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) {
      return PosixError(absl::StrCat("committing ", range.length, " bytes"), errno);
    }
    populate_write_ = false;
  }
  int result = 0;
  do {
    result =
        fallocate(fd_.get(), 0, static_cast<off_t>(range.offset), static_cast<off_t>(range.length));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return PosixError(absl::StrCat("committing ", range.length, " bytes"), errno);
  return absl::OkStatus();
}

absl::Status Arena::Punch(Range range) {
  int result = 0;
  do {
    result = fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(range.offset), static_cast<off_t>(range.length));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return PosixError(absl::StrCat("punching ", range.length, " bytes"), errno);
  return absl::OkStatus();
}

absl::Status Arena::Validate() const {
  if (freed_wrongly_.has_value()) {
    return Broken("an extent was given back that is not handed out, at", freed_wrongly_->offset,
                  freed_wrongly_->length);
  }
  HMM_RETURN_IF_ERROR(committed_.Validate());
  HMM_RETURN_IF_ERROR(space_.Validate());
  HMM_RETURN_IF_ERROR(small_.Validate());
  std::vector<Bytes> free(chunks_.size(), 0);
  Bytes outside = 0;
  committed_.VisitFree([&](Range range) {
    for (Bytes at = range.offset; at < range.end();) {
      const Bytes part = std::min(range.end(), (at / chunk_ + 1) * chunk_) - at;
      (at / chunk_ < free.size() ? free[at / chunk_] : outside) += part;
      at += part;
    }
  });
  if (outside != 0) return Broken("bytes free beyond the last chunk", outside, 0);
  std::size_t committed = 0;
  std::size_t empty = 0;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    const Bytes held = chunk.committed ? chunk_ : 0;
    if (free[i] + chunk.used != held) {
      return Broken(absl::StrCat("free bytes of chunk ", i), free[i], held - chunk.used);
    }
    committed += chunk.committed;
    if (chunk.committed && chunk.used == 0) {
      ++empty;
      if (!empty_.contains(i)) return Broken(absl::StrCat("emptiness of chunk ", i), 1, 0);
    }
  }
  if (committed != committed_chunks_) {
    return Broken("committed chunks", committed, committed_chunks_);
  }
  if (empty != empty_.size()) return Broken("empty chunks", empty, empty_.size());
  const Bytes holes = bytes_ - committed_bytes();
  if (space_.free_bytes() != committed_.free_bytes() + holes) {
    return Broken("free address space", committed_.free_bytes() + holes, space_.free_bytes());
  }
  Bytes slack = 0;
  for (const auto& [offset, slab] : slabs_) {
    if (slab.used == 0 || slab.used > slab.length)
      return Broken("use of a slab", offset, slab.used);
    slack += slab.length - slab.used;
  }
  if (slack != small_.free_bytes()) return Broken("slack of slabs", small_.free_bytes(), slack);
  return absl::OkStatus();
}

}  // namespace hmm::tier
