// SPDX-License-Identifier: Apache-2.0
//
// An input read as a script: every byte means something, and what is missing at the end reads as
// zero, so that any input is a script and a shorter one does less.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hmm::fuzz {

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  bool done() const { return left_ == 0; }
  std::uint8_t Byte() { return Number<std::uint8_t>(); }
  // One byte is enough for a choice of up to 256.
  std::size_t Pick(std::size_t n) { return n <= 1 ? 0 : Byte() % n; }
  bool Chance(unsigned of_256) { return Byte() < of_256; }
  template <typename T>
  T Number() {
    T value{};
    const std::size_t n = std::min(sizeof value, left_);
    std::memcpy(&value, data_, n);
    Skip(n);
    return value;
  }
  // At most `n` bytes; fewer at the end.
  std::string_view Bytes(std::size_t n) {
    n = std::min(n, left_);
    const std::string_view bytes(reinterpret_cast<const char*>(data_), n);
    Skip(n);
    return bytes;
  }

 private:
  void Skip(std::size_t n) {
    data_ += n;
    left_ -= n;
  }
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace hmm::fuzz
