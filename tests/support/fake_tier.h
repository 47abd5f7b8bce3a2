// SPDX-License-Identifier: Apache-2.0
//
// A tier whose bytes lie on the heap: mappable (then Address gives them) or not (then only
// ByteStore does, as FakeCopier expects). Any Allocate can be told to fail. All is committed from
// the start, and all tenants share one segment.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "support/byte_store.h"
#include "tier/extent_allocator.h"
#include "tier/tier.h"

namespace hmm::testing {

struct FakeTierOptions {
  tier::TierOptions tier;
  TierId id = 0;
  bool mappable = true;
  Bytes unit = 64;     // of lengths and offsets; a power of two
  Bytes chunk = 1024;  // of what SparseRanges names; a multiple of unit
};

class FakeTier final : public tier::Tier, public ByteStore {
 public:
  explicit FakeTier(FakeTierOptions options)
      : Tier(options.tier, RoundDown(options.tier.capacity, options.unit)),
        segment_((static_cast<SegmentId>(options.id) << 16) | 1),
        mappable_(options.mappable),
        unit_(options.unit),
        chunk_(options.chunk),
        bytes_max_(2 * capacity()),
        extents_(options.unit),
        bytes_(static_cast<std::byte*>(std::aligned_alloc(4096, RoundUp(bytes_max_, 4096)))) {
    HMM_CHECK(capacity() > 0 && bytes_ != nullptr);
    extents_.AddFree({0, capacity()});
    mutable_ledger().Transfer(tier::ByteState::kFree, tier::ByteState::kCommittedFree, capacity());
  }

  // The nth Allocate from now (1: the next) that gets as far as the medium fails with `status`.
  void FailAllocate(std::size_t nth, absl::Status status) {
    fail_in_ = nth;
    failure_ = std::move(status);
  }

  // Something is in the way of a smaller size from now on, whatever moves out of it: what is used.
  void KeepObstacles() { keep_obstacles_ = true; }

  // What the next Audit finds.
  void ReportExcess(TenantId tenant, Bytes bytes) { excess_.push_back({tenant, bytes}); }

  // How often somebody worked out what an extent would take: once for each try to get room.
  std::size_t asked() const { return asked_; }

  bool mappable() const override { return mappable_; }
  std::string_view backend() const override { return "fake"; }
  Bytes LengthFor(Bytes bytes) const override {
    ++asked_;
    return RoundUpSaturated(bytes, unit_);
  }
  std::byte* Address(const tier::Extent& extent) const override {
    return mappable_ ? At(extent) : nullptr;
  }
  std::byte* BytesAt(const tier::Extent& extent) override { return At(extent); }
  absl::StatusOr<tier::SegmentInfo> Segment(SegmentId segment) const override {
    if (!mappable_ || segment != segment_) {
      return Error(absl::StatusCode::kNotFound, Reason::kNotFound, "no such segment");
    }
    return tier::SegmentInfo{0, -1, capacity()};
  }
  Bytes LongestFree(TenantId) const override {
    return std::min(extents_.largest_free(), available());
  }
  Bytes Trim(Bytes) override { return 0; }
  std::optional<Window> EmptiestWindow(Bytes bytes,
                                       const std::vector<Window>& skip) const override {
    if (bytes == 0 || bytes > capacity()) return std::nullopt;
    std::vector<tier::Range> skipped;
    for (const Window& window : skip) {
      if (window.segment == segment_) skipped.push_back({window.offset, window.length});
    }
    const auto range = extents_.EmptiestWindow(LengthFor(bytes), capacity(), skipped);
    if (!range.has_value()) return std::nullopt;
    return Window{segment_, range->offset, range->length};
  }
  std::optional<Window> FirstWindow(Bytes bytes,
                                    const std::vector<tier::Extent>& leaving) const override {
    std::vector<tier::Range> ranges;
    for (const tier::Extent& extent : leaving) ranges.push_back({extent.offset, extent.length});
    const auto range = extents_.FirstFit(LengthFor(bytes), ranges);
    if (!range.has_value()) return std::nullopt;
    return Window{segment_, range->offset, range->length};
  }
  // Up to twice what it began with.
  absl::StatusOr<Bytes> SizeFor(Bytes bytes) const override {
    const Bytes rounded = RoundUpSaturated(bytes, unit_);
    if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize, "0 bytes");
    if (rounded > bytes_max_) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kTooLarge, "too large");
    }
    return rounded;
  }
  std::vector<Window> Obstacles(std::size_t max, const std::vector<Window>& skip) const override {
    const Bytes tail = capacity() - limit();
    if (keep_obstacles_ && skip.empty()) {
      const auto used = extents_.EmptiestWindow(unit_, capacity(), {});
      if (used.has_value()) return {Window{segment_, used->offset, used->length}};
    }
    if (max == 0 || tail == 0 || !skip.empty()) return {};
    const auto free = extents_.FreeRangeAt(limit());
    if (free.has_value() && free->end() >= capacity()) return {};
    return {Window{segment_, limit(), tail}};
  }
  std::vector<Window> SparseRanges(std::size_t max,
                                   const std::vector<Window>& skip) const override {
    std::vector<Window> found = skip;
    while (found.size() < skip.size() + max) {
      const auto window = EmptiestWindow(chunk_, found);
      if (!window.has_value()) break;
      found.push_back(*window);
    }
    return {found.begin() + static_cast<std::ptrdiff_t>(skip.size()), found.end()};
  }
  std::vector<Excess> Audit() override { return std::exchange(excess_, {}); }
  void ForgetTenant(TenantId tenant) override { HMM_CHECK(TenantBytes(tenant) == 0); }
  absl::Status Validate() const override {
    HMM_RETURN_IF_ERROR(extents_.Validate());
    if (extents_.free_bytes() != ledger()[tier::ByteState::kCommittedFree] || !ledger().Sums()) {
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   "the allocator and the ledger differ");
    }
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<tier::Extent> DoAllocate(TenantId tenant, Bytes length) override {
    if (fail_in_ > 0 && --fail_in_ == 0) return failure_;
    if (limit() < capacity()) return DoAllocateOutside(tenant, {0, 0, length}, {});
    return Found(extents_.Allocate(length));
  }
  absl::StatusOr<tier::Extent> DoAllocateOutside(TenantId, const tier::Extent& from,
                                                 const std::vector<Window>& avoid) override {
    std::vector<tier::Range> ranges;
    for (const Window& window : avoid) ranges.push_back({window.offset, window.length});
    return Found(extents_.AllocateOutside(from.length, limit(), ranges));
  }
  absl::Status DoResize(Bytes capacity) override {
    const Bytes now = this->capacity();
    if (capacity >= now) {
      mutable_ledger().Resize(capacity);
      mutable_ledger().Transfer(tier::ByteState::kFree, tier::ByteState::kCommittedFree,
                                capacity - now);
      if (capacity > now) HMM_CHECK(extents_.AddFree({now, capacity - now}));
      return absl::OkStatus();
    }
    HMM_CHECK(extents_.Carve({capacity, now - capacity}));
    mutable_ledger().Transfer(tier::ByteState::kCommittedFree, tier::ByteState::kFree,
                              now - capacity);
    mutable_ledger().Resize(capacity);
    return absl::OkStatus();
  }
  absl::StatusOr<tier::Extent> Found(const std::optional<tier::Range>& range) {
    if (!range.has_value()) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kFull, "no room now");
    }
    return tier::Extent{segment_, range->offset, range->length};
  }
  void DoFree(TenantId, const tier::Extent& extent) override {
    (void)extents_.AddFree({extent.offset, extent.length});  // Validate reports a second free
  }

 private:
  struct FreeDeleter {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::byte* At(const tier::Extent& extent) const {
    HMM_CHECK(extent.segment == segment_ && extent.length <= capacity() &&
              extent.offset <= capacity() - extent.length);
    return bytes_.get() + extent.offset;
  }

  const SegmentId segment_;
  const bool mappable_;
  const Bytes unit_;
  const Bytes chunk_;
  const Bytes bytes_max_;
  tier::ExtentAllocator extents_;
  std::unique_ptr<std::byte[], FreeDeleter> bytes_;
  bool keep_obstacles_ = false;
  std::size_t fail_in_ = 0;  // 0: none
  absl::Status failure_;
  std::vector<Excess> excess_;
  mutable std::size_t asked_ = 0;
};

}  // namespace hmm::testing
