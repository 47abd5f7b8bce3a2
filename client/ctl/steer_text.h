// SPDX-License-Identifier: Apache-2.0
//
// What the verbs that steer write: one line, or JSON. Pure.
#pragma once

#include <string>

#include "hmm/v1/admin.pb.h"

namespace hmm::ctl {

std::string SwapLine(const std::string& tier, const v1::AdminSwapResponse& done);
std::string SwapJson(const std::string& tier, const v1::AdminSwapResponse& done);
std::string PrefetchLine(const std::string& tier, const v1::AdminPrefetchResponse& done);
std::string PrefetchJson(const std::string& tier, const v1::AdminPrefetchResponse& done);
std::string ResizeLine(const std::string& tier, const v1::ResizeTierResponse& done);
std::string ResizeJson(const std::string& tier, const v1::ResizeTierResponse& done);
std::string CompactLine(const v1::CompactResponse& done);
std::string CompactJson(const v1::CompactResponse& done);
std::string LogLevelLine(const std::string& level, const v1::SetLogLevelResponse& done);
std::string LogLevelJson(const std::string& level, const v1::SetLogLevelResponse& done);

}  // namespace hmm::ctl
