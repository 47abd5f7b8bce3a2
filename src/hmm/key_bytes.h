// SPDX-License-Identifier: Apache-2.0
//
// A tensor's key, in as few bytes as a million of them allow: up to 16 (a hash) lie in the object,
// longer ones in a piece of their own. Owns its bytes; movable, and a view of it ends with the
// object or its move. One thread (the executor's).
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace hmm::core {

class KeyBytes {
 public:
  static constexpr std::size_t kInPlace = 16;
  static constexpr std::size_t kSizeMax = std::numeric_limits<std::uint16_t>::max();

  KeyBytes() = default;
  // REQUIRES: key.size() <= kSizeMax.
  explicit KeyBytes(std::string_view key) : size_(static_cast<std::uint16_t>(key.size())) {
    HMM_CHECK(key.size() <= kSizeMax);
    char* bytes = in_place_;
    if (!fits()) {
      bytes = new char[key.size()];
      std::memcpy(in_place_, &bytes, sizeof bytes);
    }
    if (!key.empty()) std::memcpy(bytes, key.data(), key.size());
  }
  KeyBytes(KeyBytes&& other) noexcept { swap(other); }
  KeyBytes& operator=(KeyBytes&& other) noexcept {
    KeyBytes(std::move(other)).swap(*this);
    return *this;
  }
  ~KeyBytes() {
    if (!fits()) delete[] elsewhere();
  }

  std::string_view view() const { return {fits() ? in_place_ : elsewhere(), size_}; }

 private:
  bool fits() const { return size_ <= kInPlace; }
  // The address lies where the bytes would: unaligned, so that the object needs no padding.
  const char* elsewhere() const {
    const char* bytes = nullptr;
    std::memcpy(&bytes, in_place_, sizeof bytes);
    return bytes;
  }
  void swap(KeyBytes& other) noexcept {
    std::swap(in_place_, other.in_place_);
    std::swap(size_, other.size_);
  }

  char in_place_[kInPlace] = {};
  std::uint16_t size_ = 0;
};
static_assert(sizeof(KeyBytes) == 18);

}  // namespace hmm::core
