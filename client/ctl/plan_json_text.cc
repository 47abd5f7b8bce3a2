// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_json_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"

namespace hmm::ctl {

std::string JsonText(std::string_view text) {
  const std::string quoted = nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                                       nlohmann::json::error_handler_t::replace);
  return quoted.find('<') == std::string::npos ? quoted
                                               : absl::StrReplaceAll(quoted, {{"<", "\\u003c"}});
}

std::int64_t WholeNs(double us) {
  constexpr double kMost = 9007199254740992.0;  // 2^53
  const double ns = us * 1e3;
  if (!(ns > 0)) return 0;  // NaN too
  return std::llround(std::min(ns, kMost));
}

}  // namespace hmm::ctl
