// SPDX-License-Identifier: Apache-2.0
#include "base/edit_distance.h"

#include <algorithm>
#include <string>
#include <vector>

#include "support/catch.h"

namespace hmm {
namespace {

// By the definition, without a table; for short words.
std::size_t Slow(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::size_t changed = Slow(a.substr(1), b.substr(1)) + (a[0] == b[0] ? 0 : 1);
  return std::min({changed, Slow(a.substr(1), b) + 1, Slow(a, b.substr(1)) + 1});
}

TEST_CASE("one slip of each kind, and words with nothing in common") {
  CHECK(EditDistance("capacity", "capacity") == 0);
  CHECK(EditDistance("capcity", "capacity") == 1);
  CHECK(EditDistance("cappacity", "capacity") == 1);
  CHECK(EditDistance("capasity", "capacity") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
  CHECK(EditDistance("abc", "xyz") == 3);
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "tier") == 4);
  CHECK(EditDistance("tier", "") == 4);
}

TEST_CASE("all pairs of short words of two letters, against the definition") {
  std::vector<std::string> words = {""};
  for (std::size_t i = 0; words[i].size() < 4; ++i) {
    for (const char c : {'a', 'b'}) words.push_back(words[i] + c);
  }
  REQUIRE(words.size() == 31);
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      INFO("'" << a << "' '" << b << "'");
      REQUIRE(EditDistance(a, b) == Slow(a, b));
    }
  }
}

}  // namespace
}  // namespace hmm
