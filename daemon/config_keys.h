// SPDX-License-Identifier: Apache-2.0
//
// The one table of configuration keys. Internal to config*.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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
  kShares,
  kRate,
  kTime
};

// Where a key's value lives.
using Slot = std::variant<std::string*, bool*, std::uint64_t*, std::uint32_t*, std::int64_t*,
                          double*, Duration*, Share*, TierShares*>;

template <typename Owner>
struct Key {
  std::string_view section;  // "daemon"; "tier" for [[tier]], "tenant" for [[tenant]]
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
std::span<const Key<TenantConfig>> TenantKeys();
// "daemon.dir": how Sources names a key.
template <typename Owner>
std::string FullName(const Key<Owner>& key) {
  return std::string(key.section) + "." + std::string(key.name);
}
// One for each section, in the order of the table: what stands above its keys.
struct Section {
  std::string_view name;
  bool repeated;  // [[name]]
  std::string_view doc;
};
std::span<const Section> Sections();

// "; did you mean 'high'?" names the nearest; with nothing near, all of them.
std::string Suggest(std::string_view given, const std::vector<std::string_view>& known);
// What a value of this type looks like, for messages: "a size such as \"64MiB\"".
std::string Expected(KeyType type, std::string_view accepts);
// TOML literal of a value.
std::string Literal(KeyType type, const Slot& slot);

}  // namespace hmm::daemon
