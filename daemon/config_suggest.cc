// SPDX-License-Identifier: Apache-2.0
//
// The nearest known name to one that is not.
#include <algorithm>
#include <limits>

#include "absl/strings/str_join.h"
#include "base/edit_distance.h"
#include "daemon/config_keys.h"
#include "daemon/text.h"

namespace hmm::daemon {

std::string Suggest(std::string_view given, const std::vector<std::string_view>& known) {
  std::string_view nearest;
  std::size_t best = std::numeric_limits<std::size_t>::max();
  for (const std::string_view name : known) {
    const std::size_t distance = EditDistance(given, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  const std::size_t near = std::max<std::size_t>(2, given.size() / 2);
  if (best <= near) return Cat("; did you mean '", nearest, "'?");
  return Cat("; nearest is '", nearest, "', known are ",
             absl::StrJoin(known, ", ",
                           [](std::string* out, std::string_view name) { out->append(name); }));
}

}  // namespace hmm::daemon
