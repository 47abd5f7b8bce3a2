// SPDX-License-Identifier: Apache-2.0
#include "copy/file_end.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::copy {

End EndOf(const tier::Tier& tier, const tier::Extent& extent) {
  End end{.tier = tier.name(), .offset = extent.offset, .length = extent.length};
  if (tier.mappable()) {
    end.address = tier.Address(extent);
    HMM_CHECK(end.address != nullptr);
    return end;
  }
  end.fd = tier.fd();
  const int flags = ::fcntl(end.fd, F_GETFL);
  if (flags >= 0 && (flags & O_DIRECT) != 0) {
    // The tier hands out multiples of what its file system asks for. The largest power of two that
    // divides offset and length is at least that, and padding to it stays inside the extent.
    end.unit = std::min(kFilePage, Bytes{1} << std::countr_zero(extent.offset | extent.length));
  }
  return end;
}

std::byte* Straight(const End& memory, const End& file, Bytes at, Bytes bytes) {
  std::byte* const address = memory.address + at;
  const bool aligned = reinterpret_cast<std::uintptr_t>(address) % file.unit == 0;
  return aligned && at + RoundUp(bytes, file.unit) <= memory.length ? address : nullptr;
}

absl::Status ReadError(const End& from, Bytes offset, const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, Reason::kIo,
               absl::StrCat("reading tier ", from.tier, " at offset ", offset, ": ", what));
}

absl::Status WriteError(const End& to, Bytes offset, int error) {
  return PosixError(absl::StrCat("writing tier ", to.tier, " at offset ", offset), error);
}

absl::Status NoBounceBuffer(Bytes bytes) {
  return Error(absl::StatusCode::kResourceExhausted, Reason::kNoMemory,
               absl::StrCat("no memory for a bounce buffer of ", bytes, " bytes"));
}

absl::Status Mismatch(const End& from, std::uint64_t expected, std::uint64_t found) {
  return Error(absl::StatusCode::kDataLoss, Reason::kChecksum,
               absl::StrCat("the bytes read from tier ", from.tier, " at offset ", from.offset,
                            " have checksum ", absl::Hex(found, absl::kZeroPad16),
                            ", written were ", absl::Hex(expected, absl::kZeroPad16)));
}

Buffer BufferPool::Take() {
  {
    const std::lock_guard lock(mutex_);
    if (!buffers_.empty()) {
      Buffer buffer = std::move(buffers_.back());
      buffers_.pop_back();
      return buffer;
    }
  }
  return Buffer(
      static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{kFilePage}, std::nothrow)));
}

void BufferPool::GiveBack(Buffer buffer) {
  if (buffer == nullptr) return;
  const std::lock_guard lock(mutex_);
  buffers_.push_back(std::move(buffer));
}

}  // namespace hmm::copy
