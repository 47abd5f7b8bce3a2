// SPDX-License-Identifier: Apache-2.0
// A whole file as text; empty where there is none. Any thread.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace hmm::testing {

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace hmm::testing
