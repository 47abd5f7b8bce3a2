// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "support/catch.h"

namespace hmm::testing {

// This thread for the kernel, until the end: what it connects is that uid's. (The C library's own
// call would change all threads.) REQUIRES: root; one at a time.
class AsUid {
 public:
  explicit AsUid(uid_t uid) { Set(uid); }
  ~AsUid() { Set(0); }
  AsUid(const AsUid&) = delete;
  AsUid& operator=(const AsUid&) = delete;

 private:
  static void Set(uid_t uid) { REQUIRE(syscall(SYS_setresuid, -1, uid, -1) == 0); }
};

}  // namespace hmm::testing
