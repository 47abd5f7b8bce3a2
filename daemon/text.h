// SPDX-License-Identifier: Apache-2.0
//
// Debian builds absl with a string_view of its own, which std's does not convert to: the few
// bridges that this folder needs. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hmm::daemon {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }
inline std::string_view MessageOf(const absl::Status& status) { return ToStd(status.message()); }

template <typename T>
decltype(auto) CatPart(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(part);
  } else {
    return (part);
  }
}
// absl::StrCat that also takes std::string_view.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  return absl::StrCat(CatPart(parts)...);
}
template <typename... Parts>
void Append(std::string& out, const Parts&... parts) {
  absl::StrAppend(&out, CatPart(parts)...);
}

}  // namespace hmm::daemon
