// SPDX-License-Identifier: Apache-2.0
//
// HMM_CHECK: what only a programmer can fix. Prints file, line and the condition, then aborts; in
// every build. HMM_DCHECK is the same in debug builds and still compiles (unevaluated) in others.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace hmm::internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  std::abort();
}
}  // namespace hmm::internal

#define HMM_CHECK(cond) ((cond) ? (void)0 : ::hmm::internal::CheckFailed(__FILE__, __LINE__, #cond))

#ifdef NDEBUG
#define HMM_DCHECK(cond) ((void)sizeof(cond))
#else
#define HMM_DCHECK(cond) HMM_CHECK(cond)
#endif
