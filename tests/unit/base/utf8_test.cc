// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include "support/catch.h"

namespace hmm {
namespace {

TEST_CASE("UTF-8 as the standard has it") {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x7f"}) {
    CHECK(IsUtf8(good));
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80",
                          "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\xe2\x82", "a\xff"}) {
    CHECK_FALSE(IsUtf8(bad));
  }
}

TEST_CASE("the length of the first character") {
  CHECK(Utf8Length("") == 0);
  CHECK(Utf8Length("ab") == 1);
  CHECK(Utf8Length("\xe2\x82\xacx") == 3);
  CHECK(Utf8Length("\xffx") == 0);
}

}  // namespace
}  // namespace hmm
