// SPDX-License-Identifier: Apache-2.0
//
// The one table of configuration keys. Internal to config*.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "base/units.h"
#include "daemon/config.h"

namespace hmm::daemon {

enum class KeyType {
  kText,
  kPath,
  kChoice,
  kFlag,
  kCount,
  kInteger,
  kMode,
  kRatio,
  kSize,
  kShare,
  kTime
};

// Where a key's value lives.
using Slot = std::variant<std::string*, bool*, std::uint64_t*, std::uint32_t*, std::int64_t*,
                          double*, Duration*, Share*>;

template <typename Owner>
struct Key {
  std::string_view section;  // "daemon"; "tier" for [[tier]]
  std::string_view name;
  KeyType type;
  Slot (*slot)(Owner&);
  // Of kChoice: the choices, separated by '|'. Of kCount: "<least>..<most>". Else empty.
  std::string_view accepts;
  // Shown in the default file in place of the default-constructed value; empty: that value.
  std::string_view example;
  std::string_view doc;
};

std::span<const Key<Config>> ConfigKeys();
std::span<const Key<TierConfig>> TierKeys();

// What a value of this type looks like, for messages: "a size such as \"64MiB\"".
std::string Expected(KeyType type, std::string_view accepts);
// TOML literal of a value.
std::string Literal(KeyType type, const Slot& slot);

}  // namespace hmm::daemon
