// SPDX-License-Identifier: Apache-2.0
#include "tier/file_tier.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "share/memory_file.h"
#include "tier/extent_allocator.h"
#include "tier/flash_file.h"

namespace hmm::tier {
namespace {

constexpr Bytes kPage = kFilePage;  // whole pages for extents from here on
constexpr Bytes kCapacityMax = Bytes{1} << 60;
constexpr std::uint32_t kOrdinal = 1;  // the file is the tier's only segment

class FileTier final : public Tier {
 public:
  FileTier(const FileTierOptions& options, Bytes capacity, Bytes alignment, share::UniqueFd fd,
           std::string buffered_why)
      : Tier(options.tier, capacity),
        segment_((static_cast<SegmentId>(options.id) << 16) | kOrdinal),
        alignment_(alignment),
        page_(std::max(alignment, kPage)),
        fd_(std::move(fd)),
        path_(options.path),
        buffered_why_(std::move(buffered_why)),
        engine_(options.engine),
        engine_degraded_(options.engine_degraded),
        pages_(page_),
        small_(alignment) {
    pages_.AddFree({0, capacity});
    // All blocks were preallocated: nothing here is ever uncommitted.
    mutable_ledger().Transfer(ByteState::kFree, ByteState::kCommittedFree, capacity);
  }

  bool mappable() const override { return false; }
  std::string_view backend() const override { return "file"; }
  std::string note() const override {
    const std::string how = buffered_why_.empty()
                                ? "O_DIRECT"
                                : absl::StrCat("degraded: buffered I/O (", buffered_why_, ")");
    return engine_.empty() ? how : absl::StrCat(how, ", ", engine_);
  }
  bool degraded() const override { return !buffered_why_.empty() || engine_degraded_; }
  Bytes LengthFor(Bytes bytes) const override {
    return RoundUpSaturated(bytes, bytes < kPage ? alignment_ : page_);
  }
  std::byte* Address(const Extent&) const override { return nullptr; }
  int fd() const override { return fd_.get(); }
  absl::StatusOr<SegmentInfo> Segment(SegmentId segment) const override {
    // Nobody maps flash, so there is nothing to hand out, for no id.
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("tier ", name(), " has no segment ", segment, " to map"));
  }
  Bytes Trim(Bytes) override { return 0; }
  std::optional<Window> EmptiestWindow(Bytes bytes, const std::vector<Window>& skip) const override;
  std::optional<Window> FirstWindow(Bytes bytes, const std::vector<Extent>& leaving) const override;
  absl::StatusOr<Bytes> SizeFor(Bytes bytes) const override;
  std::vector<Window> Obstacles(std::size_t max, const std::vector<Window>& skip) const override;
  // Its blocks were allocated with the file: emptying some gives nothing back.
  std::vector<Window> SparseRanges(std::size_t, const std::vector<Window>&) const override {
    return {};
  }
  Bytes LongestFree(TenantId) const override {
    return std::min(pages_.largest_free(), available());
  }
  std::vector<Excess> Audit() override { return {}; }
  void ForgetTenant(TenantId tenant) override { HMM_CHECK(TenantBytes(tenant) == 0); }
  absl::Status Validate() const override;

 protected:
  absl::StatusOr<Extent> DoAllocate(TenantId tenant, Bytes length) override;
  void DoFree(TenantId tenant, const Extent& extent) override;
  absl::StatusOr<Extent> DoAllocateOutside(TenantId tenant, const Extent& from,
                                           const std::vector<Window>& avoid) override;
  absl::Status DoResize(Bytes capacity) override;

 private:
  std::optional<Range> AllocateRange(Bytes length, const std::vector<Range>& avoid);
  std::optional<Range> AllocateSmall(Bytes length, const std::vector<Range>& avoid);
  std::vector<Range> RangesOf(const std::vector<Window>& windows) const;
  void FreeSmall(Range extent);

  const SegmentId segment_;
  const Bytes alignment_;
  const Bytes page_;
  share::UniqueFd fd_;
  const std::string path_;
  const std::string buffered_why_;
  const std::string engine_;
  const bool engine_degraded_;
  ExtentAllocator pages_;
  // Pages cut up for extents shorter than a page: what is free of them, and the bytes used of each,
  // never 0. Adjacent ones are one range to small_, so an extent may lie across two.
  ExtentAllocator small_;
  absl::btree_map<Bytes, Bytes> slabs_;
  std::optional<Range> freed_wrongly_;  // the first small one
};

std::vector<Range> FileTier::RangesOf(const std::vector<Window>& windows) const {
  std::vector<Range> ranges;
  for (const Window& window : windows) {
    if (window.segment == segment_) ranges.push_back({window.offset, window.length});
  }
  return ranges;
}

std::optional<Range> FileTier::AllocateRange(Bytes length, const std::vector<Range>& avoid) {
  if (length < page_) return AllocateSmall(length, avoid);
  if (avoid.empty() && limit() == capacity()) return pages_.Allocate(length);
  return pages_.AllocateOutside(length, limit(), avoid);
}

std::optional<Range> FileTier::AllocateSmall(Bytes length, const std::vector<Range>& avoid) {
  const auto take = [&] {
    return avoid.empty() && limit() == capacity() ? small_.Allocate(length)
                                                  : small_.AllocateOutside(length, limit(), avoid);
  };
  std::optional<Range> extent = take();
  if (!extent.has_value()) {
    const std::optional<Range> slab = AllocateRange(page_, avoid);
    if (!slab.has_value()) return std::nullopt;
    slabs_.emplace(slab->offset, 0);
    HMM_CHECK(small_.AddFree(*slab));
    extent = take();
    HMM_CHECK(extent.has_value());
  }
  for (Bytes at = extent->offset; at < extent->end();) {
    const Bytes slab = RoundDown(at, page_);
    const Bytes end = std::min(extent->end(), slab + page_);
    slabs_.find(slab)->second += end - at;
    at = end;
  }
  return extent;
}

void FileTier::FreeSmall(Range extent) {
  const bool held = slabs_.contains(RoundDown(extent.offset, page_)) &&
                    slabs_.contains(RoundDown(extent.end() - 1, page_));
  if (!held || !small_.AddFree(extent)) {
    if (!freed_wrongly_.has_value()) freed_wrongly_ = extent;
    return;
  }
  for (Bytes at = extent.offset; at < extent.end();) {
    const auto slab = slabs_.find(RoundDown(at, page_));
    const Bytes end = std::min(extent.end(), slab->first + page_);
    slab->second -= end - at;
    at = end;
    if (slab->second > 0) continue;
    const Range page{slab->first, page_};
    HMM_CHECK(small_.Carve(page));
    slabs_.erase(slab);
    HMM_CHECK(pages_.AddFree(page));
  }
}

// A second free changes nothing; Validate reports it.
void FileTier::DoFree(TenantId, const Extent& extent) {
  const Range range{extent.offset, extent.length};
  if (extent.length < page_) {
    FreeSmall(range);
  } else {
    (void)pages_.AddFree(range);
  }
}

absl::StatusOr<Extent> FileTier::DoAllocate(TenantId tenant, Bytes length) {
  return DoAllocateOutside(tenant, {0, 0, length}, {});
}

absl::StatusOr<Extent> FileTier::DoAllocateOutside(TenantId, const Extent& from,
                                                   const std::vector<Window>& avoid) {
  const Bytes length = from.length;
  const std::optional<Range> range = AllocateRange(length, RangesOf(avoid));
  if (!range.has_value()) return NoRoom(length);
  return Extent{segment_, range->offset, range->length};
}

absl::StatusOr<Bytes> FileTier::SizeFor(Bytes bytes) const {
  const Bytes rounded = RoundUpSaturated(bytes, page_);
  if (bytes == 0 || rounded > kCapacityMax) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("tier ", name(), " cannot have ", FormatBytes(bytes),
                              "; ask for 1 B to ", FormatBytes(kCapacityMax)));
  }
  return rounded;
}

// What lies beyond the new end of the file.
std::vector<Tier::Window> FileTier::Obstacles(std::size_t max,
                                              const std::vector<Window>& skip) const {
  const Range tail{limit(), capacity() - limit()};
  if (max == 0 || tail.length == 0 || !skip.empty()) return {};
  const std::optional<Range> free = pages_.FreeRangeAt(tail.offset);
  if (free.has_value() && free->end() >= tail.end()) return {};
  return {Window{segment_, tail.offset, tail.length}};
}

std::optional<Tier::Window> FileTier::EmptiestWindow(Bytes bytes,
                                                     const std::vector<Window>& skip) const {
  if (bytes == 0 || bytes > capacity()) return std::nullopt;
  std::vector<Range> skipped;
  for (const Window& window : skip) {
    if (window.segment == segment_) skipped.push_back({window.offset, window.length});
  }
  // Whole pages: a page that is cut up is in use as a whole here, and free once it is emptied.
  const std::optional<Range> range =
      pages_.EmptiestWindow(RoundUp(LengthFor(bytes), page_), capacity(), skipped);
  if (!range.has_value()) return std::nullopt;
  return Window{segment_, range->offset, range->length};
}

std::optional<Tier::Window> FileTier::FirstWindow(Bytes bytes,
                                                  const std::vector<Extent>& leaving) const {
  if (bytes == 0 || bytes > capacity()) return std::nullopt;
  // Pages in the order in which they come free: one that is cut up with its last extent.
  std::vector<Range> pages;
  absl::btree_map<Bytes, Bytes> used;  // of the pages that are cut up
  for (const Extent& extent : leaving) {
    const Range range{extent.offset, extent.length};
    if (range.length >= page_) {
      pages.push_back(range);
      continue;
    }
    for (Bytes at = range.offset; at < range.end();) {
      const auto slab = slabs_.find(RoundDown(at, page_));
      if (slab == slabs_.end()) return std::nullopt;
      const Bytes end = std::min(range.end(), slab->first + page_);
      Bytes& left = used.emplace(slab->first, slab->second).first->second;
      left -= std::min(left, end - at);
      if (left == 0) pages.push_back({slab->first, page_});
      at = end;
    }
  }
  const std::optional<Range> range = pages_.FirstFit(RoundUp(LengthFor(bytes), page_), pages);
  if (!range.has_value()) return std::nullopt;
  return Window{segment_, range->offset, range->length};
}

absl::Status FileTier::Validate() const {
  HMM_RETURN_IF_ERROR(pages_.Validate());
  HMM_RETURN_IF_ERROR(small_.Validate());
  auto broken = [&](const std::string& what) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("tier ", name(), ": ", what));
  };
  if (freed_wrongly_.has_value()) {
    return broken(absl::StrCat("freed though not handed out: {", freed_wrongly_->offset, ", ",
                               freed_wrongly_->length, "}"));
  }
  Bytes cut = 0;
  for (const auto& [offset, used] : slabs_) {
    if (used == 0 || used > page_) return broken(absl::StrCat(used, " used of a page"));
    cut += page_ - used;
  }
  if (small_.free_bytes() != cut) {
    return broken(absl::StrCat(small_.free_bytes(), " bytes of cut pages are free, counted ", cut));
  }
  const Bytes free = ledger()[ByteState::kCommittedFree];
  const Bytes found = pages_.free_bytes() + cut;
  if (found != free || ledger()[ByteState::kFree] != 0 || !ledger().Sums()) {
    return broken(absl::StrCat(found, " bytes are free, ", free, " by the ledger"));
  }
  return absl::OkStatus();
}

absl::Status FileTier::DoResize(Bytes capacity) {
  const Bytes now = this->capacity();
  if (capacity == now) return absl::OkStatus();
  if (capacity > now) {
    HMM_RETURN_IF_ERROR(ExtendFile(fd_.get(), path_, now, capacity));
    mutable_ledger().Resize(capacity);
    mutable_ledger().Transfer(ByteState::kFree, ByteState::kCommittedFree, capacity - now);
    HMM_CHECK(pages_.AddFree({now, capacity - now}));
    return absl::OkStatus();
  }
  HMM_RETURN_IF_ERROR(ShortenFile(fd_.get(), path_, capacity));
  HMM_CHECK(pages_.Carve({capacity, now - capacity}));
  mutable_ledger().Transfer(ByteState::kCommittedFree, ByteState::kFree, now - capacity);
  mutable_ledger().Resize(capacity);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tier>> CreateFileTier(FileTierOptions options) {
  auto refuse = [&](const std::string& why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat("tier ", options.tier.name, ": ", why));
  };
  HMM_RETURN_IF_ERROR(CheckTierOptions(options.tier));
  const bool asked = options.alignment != 0;
  if (asked && (!std::has_single_bit(options.alignment) || options.alignment < kAlignmentMin ||
                options.alignment > kAlignmentMax)) {
    return refuse(
        absl::StrCat("alignment ", options.alignment, " is no power of two from 512 to 1MiB"));
  }
  // Before the file is touched; again when its alignment is known.
  Bytes capacity = RoundDown(options.tier.capacity, std::max(options.alignment, kPage));
  if (capacity == 0 || capacity > kCapacityMax) {
    return refuse(absl::StrCat("capacity ", options.tier.capacity,
                               " is less than one page or beyond any file"));
  }
  if (options.tier.reserve >= capacity) return refuse("the reserve takes all of the capacity");
  HMM_ASSIGN_OR_RETURN(share::UniqueFd fd, OpenEmptyFile(options.path));
  Bytes alignment = asked ? options.alignment : ReportedAlignment(fd.get());
  capacity = RoundDown(capacity, std::max(alignment, kPage));
  if (options.tier.reserve >= capacity) {
    return refuse(absl::StrCat("capacity ", options.tier.capacity,
                               " leaves nothing above the reserve in units of ", alignment));
  }
  HMM_RETURN_IF_ERROR(PreallocateFile(fd.get(), options.path, capacity));
  // Where the file system does not take the flag, the probe says so.
  (void)fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_DIRECT);
  auto probe = [&] {
    return options.probe ? options.probe(fd.get(), alignment) : ProbeDirectIo(fd.get(), alignment);
  };
  absl::Status probed = probe();
  if (!probed.ok() && !asked && alignment < kPage) {
    alignment = kPage;
    probed = probe();
  }
  if (!probed.ok()) {
    const int flags = fcntl(fd.get(), F_GETFL);
    if (flags < 0 || fcntl(fd.get(), F_SETFL, flags & ~O_DIRECT) != 0) {
      return PosixError(absl::StrCat("leaving O_DIRECT on ", options.path), errno);
    }
  }
  return std::make_unique<FileTier>(options, capacity, alignment, std::move(fd),
                                    probed.ok() ? "" : std::string(probed.message()));
}

}  // namespace hmm::tier
