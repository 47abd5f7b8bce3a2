// SPDX-License-Identifier: Apache-2.0
//
// The version of this build; set by CMake from the project's.
#pragma once

namespace hmm::daemon {
inline constexpr char kVersion[] = HMM_VERSION;
}  // namespace hmm::daemon
