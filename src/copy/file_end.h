// SPDX-License-Identifier: Apache-2.0
//
// What the copiers that read and write a flash file have in common, so that they agree on padding,
// on bounce buffers and on the words of an error.
//
//   memory  |.........piece.........|pad|      padded to the file's unit, because O_DIRECT wants
//   file          |.........piece.........|pad|      whole units at aligned addresses
//
// Internal to copy/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.h"
#include "tier/tier.h"

namespace hmm::copy {

inline constexpr Bytes kFilePage = 4096;  // about no file system asks O_DIRECT for more

// One end of a copy, as a thread other than the executor's may use it.
struct End {
  std::string tier;              // its name, for messages
  std::byte* address = nullptr;  // memory; else a file
  int fd = -1;
  Bytes offset = 0;  // in the file
  Bytes length = 0;
  Bytes unit = 1;  // of offsets and lengths, where the file is open for direct I/O

  bool file() const { return address == nullptr; }
};

// The executor's thread.
End EndOf(const tier::Tier& tier, const tier::Extent& extent);

// The tier that a copy waits for if any: its file's, else its target's.
inline const std::string& SlowTier(const End& from, const End& to) {
  return from.file() ? from.tier : to.tier;
}

// The memory at `at` if the file's I/O can use it for `bytes` as it is: aligned, and the extent
// covers the padding. nullptr: it takes a bounce buffer.
std::byte* Straight(const End& memory, const End& file, Bytes at, Bytes bytes);

absl::Status ReadError(const End& from, Bytes offset, const std::string& what);
absl::Status WriteError(const End& to, Bytes offset, int error);
absl::Status NoBounceBuffer(Bytes bytes);
absl::Status Mismatch(const End& from, std::uint64_t expected, std::uint64_t found);

struct AlignedDelete {
  void operator()(std::byte* buffer) const {
    ::operator delete (buffer, std::align_val_t{kFilePage});
  }
};
using Buffer = std::unique_ptr<std::byte, AlignedDelete>;

// Bounce buffers of one size that are kept; never more than were out at once. Any thread.
class BufferPool {
 public:
  explicit BufferPool(Bytes bytes) : bytes_(bytes) {}
  Buffer Take();  // nullptr when the machine has no memory
  void GiveBack(Buffer buffer);

 private:
  const Bytes bytes_;
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
};

}  // namespace hmm::copy
