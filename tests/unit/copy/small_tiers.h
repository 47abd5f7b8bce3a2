// SPDX-License-Identifier: Apache-2.0
//
// The least a copier needs of a tier: memory at a fixed place, a file, or bytes behind ByteStore.
// They hand out no extents; tests make extents themselves.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "support/byte_store.h"
#include "tier/tier.h"

namespace hmm::testing {

class BareTier : public tier::Tier {
 public:
  BareTier(std::string name, TierKind kind, Bytes capacity)
      : Tier({.name = std::move(name), .kind = kind, .capacity = capacity}, capacity) {}

  bool mappable() const override { return false; }
  std::string_view backend() const override { return "bare"; }
  Bytes LengthFor(Bytes bytes) const override { return bytes; }
  Bytes LongestFree(TenantId) const override { return 0; }
  std::byte* Address(const tier::Extent&) const override { return nullptr; }
  absl::StatusOr<tier::SegmentInfo> Segment(SegmentId) const override { return None(); }
  Bytes Trim(Bytes) override { return 0; }
  std::optional<Window> EmptiestWindow(Bytes, const std::vector<Window>&) const override {
    return std::nullopt;
  }
  std::vector<Excess> Audit() override { return {}; }
  void ForgetTenant(TenantId) override {}
  absl::Status Validate() const override { return absl::OkStatus(); }

 protected:
  absl::StatusOr<tier::Extent> DoAllocate(TenantId, Bytes) override { return None(); }
  void DoFree(TenantId, const tier::Extent&) override {}

 private:
  static absl::Status None() {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound, "a bare tier has none");
  }
};

// Page-aligned bytes of the heap, so that a sanitizer sees every access beyond them.
class PageBytes {
 public:
  explicit PageBytes(Bytes bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096}))) {}
  ~PageBytes() { ::operator delete (data_, std::align_val_t{4096}); }
  PageBytes(const PageBytes&) = delete;
  PageBytes& operator=(const PageBytes&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

class MemoryTier final : public BareTier {
 public:
  explicit MemoryTier(std::string name, Bytes capacity)
      : BareTier(std::move(name), TierKind::kDdr, capacity), bytes_(capacity) {}
  bool mappable() const override { return true; }
  std::byte* Address(const tier::Extent& extent) const override {
    return bytes_.data() + extent.offset;
  }

 private:
  PageBytes bytes_;
};

// `fd` is the test's.
class DiskTier final : public BareTier {
 public:
  DiskTier(std::string name, Bytes capacity, int fd)
      : BareTier(std::move(name), TierKind::kFlash, capacity), fd_(fd) {}
  int fd() const override { return fd_; }

 private:
  int fd_;
};

class StoreTier final : public BareTier, public ByteStore {
 public:
  StoreTier(std::string name, hmm::Bytes capacity)
      : BareTier(std::move(name), TierKind::kFlash, capacity), bytes_(capacity) {}
  std::byte* BytesAt(const tier::Extent& extent) override { return bytes_.data() + extent.offset; }

 private:
  PageBytes bytes_;
};

}  // namespace hmm::testing
