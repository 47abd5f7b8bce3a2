// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "daemon/config_keys.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

struct Place {
  const std::string& file;
  std::size_t line;
  std::string key;
};

absl::Status Refuse(const Place& at, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
               Cat(at.file, ":", at.line, ": ", at.key, ": ", what));
}

// --- values
// ---------------------------------------------------------------------------------------

std::size_t LineOf(const toml::node& node) { return node.source().begin.line; }

// "0.02" and the like: a ratio that was put into quotes. Zero is none: nothing is a size too.
std::optional<double> QuotedRatio(std::string_view text) {
  double number = 0;
  if (!absl::SimpleAtod(ToAbsl(text), &number) || !(number > 0 && number <= 1)) return std::nullopt;
  return number;
}

absl::StatusOr<Bytes> SizeOf(const Place& at, std::string_view text) {
  if (const auto ratio = QuotedRatio(text); ratio.has_value() && *ratio < 1) {
    return Refuse(at, Cat("'", text,
                          "' has no unit, and a ratio is no size here (where one is "
                          "meant it is written without quotes); write ",
                          Expected(KeyType::kSize, "")));
  }
  absl::StatusOr<Bytes> bytes = ParseBytes(text);
  if (bytes.ok()) {
    // "64" would be bytes where its writer meant MiB, as likely as not. None is none in any unit.
    if (*bytes == 0 || text.find('B') != std::string_view::npos) return bytes;
    return Refuse(at,
                  Cat("'", text, "' has no unit; write \"", *bytes, "B\", or KiB, MiB, GiB, TiB"));
  }
  // "64MB": the decimal unit is the usual mistake, so say exactly what to write.
  constexpr std::string_view kDecimal = "KMGT";
  const std::string_view digits = ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
  if (digits.size() > 2 && digits.ends_with('B') &&
      kDecimal.find(digits[digits.size() - 2]) != std::string_view::npos) {
    return Refuse(at, Cat("'", text, "': sizes are base 1024; write \"",
                          digits.substr(0, digits.size() - 1), "iB\""));
  }
  return Refuse(at, MessageOf(bytes.status()));
}

absl::StatusOr<Share> ShareOf(const Place& at, const toml::node& node) {
  const std::string wants = Expected(KeyType::kShare, "");
  if (const auto number = node.value<double>(); number.has_value() && node.is_number()) {
    if (node.is_floating_point() && *number > 0 && *number <= 1) {
      return Refuse(at, Cat(*number, " is a ratio; write \"", *number * 100, "%\""));
    }
    return Refuse(at, Cat(node.is_integer() ? Cat(*node.value<std::int64_t>()) : Cat(*number),
                          " has no unit; write ", wants));
  }
  const auto text = node.value<std::string>();
  if (!text.has_value()) return Refuse(at, Cat("write ", wants));
  if (!text->ends_with('%')) {
    if (const auto ratio = QuotedRatio(*text); ratio.has_value() && *ratio < 1) {
      return Refuse(at, Cat("'", *text, "' has no unit; if it is a ratio, write \"", *ratio * 100,
                            "%\", else ", wants));
    }
    HMM_ASSIGN_OR_RETURN(const Bytes bytes, SizeOf(at, *text));
    return Share{.bytes = bytes};
  }
  double percent = 0;
  if (!absl::SimpleAtod(text->substr(0, text->size() - 1), &percent) || !(percent > 0) ||
      percent > 100) {
    return Refuse(at, Cat("'", *text, "' is no percentage above 0, at most 100; write ", wants));
  }
  return Share{.ratio = percent / 100};
}

absl::StatusOr<TierShares> SharesOf(const Place& at, const toml::node& node) {
  TierShares shares;
  const toml::table* const table = node.as_table();
  if (table == nullptr) {
    if (!node.is_string() && !node.is_number()) {
      return Refuse(at, Cat("write ", Expected(KeyType::kShares, "")));
    }
    HMM_ASSIGN_OR_RETURN(shares.all, ShareOf(at, node));
    if (shares.all.bytes == 0 && shares.all.ratio == 0) return Refuse(at, "0 is no share here");
    return shares;
  }
  for (const auto& [tier, share] : *table) {
    const std::string name(tier.str());
    const Place here{at.file, tier.source().begin.line, Cat(at.key, ".", name)};
    HMM_ASSIGN_OR_RETURN(shares.by_tier[name], ShareOf(here, share));
    if (shares.by_tier[name].bytes == 0 && shares.by_tier[name].ratio == 0) {
      return Refuse(here, "0 is no share here");
    }
  }
  if (shares.by_tier.empty()) {
    return Refuse(at, Cat("names no tier; write ", Expected(KeyType::kShares, "")));
  }
  return shares;
}

absl::StatusOr<double> RatioOf(const Place& at, const toml::node& node) {
  const auto number = node.value<double>();
  if (!number.has_value() || !node.is_number()) {
    double percent = 0;
    std::string text = node.value<std::string>().value_or("");
    if (text.ends_with('%') && absl::SimpleAtod(text.substr(0, text.size() - 1), &percent)) {
      return Refuse(at, Cat("'", text, "' is a percentage; write ", percent / 100));
    }
    if (const auto ratio = QuotedRatio(text); ratio.has_value()) {
      return Refuse(at, Cat("'", text, "': a ratio is written without quotes; write ", *ratio));
    }
    return Refuse(at, Cat("write ", Expected(KeyType::kRatio, "")));
  }
  if (*number > 1 && *number <= 100) {
    return Refuse(at, Cat(*number, " looks like a percentage; write ", *number / 100));
  }
  if (!(*number > 0 && *number <= 1)) {
    return Refuse(at, Cat(*number, " is not ", Expected(KeyType::kRatio, "")));
  }
  return *number;
}

absl::StatusOr<Duration> TimeOf(const Place& at, const toml::node& node) {
  struct Unit {
    std::string_view suffix;
    Duration unit;
  };
  using namespace std::chrono;
  constexpr Unit kUnits[] = {{"us", microseconds(1)}, {"ms", milliseconds(1)}, {"s", seconds(1)}};
  const std::string text = node.value<std::string>().value_or("");
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    std::uint32_t count = 0;
    std::string_view digits(text);
    digits.remove_suffix(unit.suffix.size());
    if (absl::SimpleAtoi(ToAbsl(digits), &count) && count > 0) return count * unit.unit;
  }
  return Refuse(at, Cat("write ", Expected(KeyType::kTime, ""), ", above 0"));
}

absl::StatusOr<std::int64_t> WholeOf(const Place& at, const toml::node& node,
                                     std::string_view accepts) {
  const std::vector<std::string> range = absl::StrSplit(ToAbsl(accepts), "..");
  HMM_CHECK(range.size() == 2);
  // The largest bound is beyond int64: then TOML's own range is the bound.
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  HMM_CHECK(absl::SimpleAtoi(range[0], &least));
  if (std::int64_t bound = 0; absl::SimpleAtoi(range[1], &bound)) most = bound;
  const auto number = node.is_integer() ? node.value<std::int64_t>() : std::nullopt;
  if (!number.has_value() || *number < least || *number > most) {
    return Refuse(at, Cat("write ", Expected(KeyType::kCount, accepts)));
  }
  return *number;
}

absl::StatusOr<std::string> TextOf(const Place& at, KeyType type, std::string_view accepts,
                                   const toml::node& node) {
  const auto text = node.value<std::string>();
  const std::string wants = Cat("write ", Expected(type, accepts));
  if (!text.has_value() || !node.is_string() || text->empty()) return Refuse(at, wants);
  if (type == KeyType::kChoice) {
    const std::vector<std::string> choices = absl::StrSplit(ToAbsl(accepts), '|');
    if (std::find(choices.begin(), choices.end(), *text) == choices.end()) {
      return Refuse(at, Cat("'", *text, "' is none of them; ", wants));
    }
  }
  return *text;
}

// Stores the value of one key.
absl::Status Store(const Place& at, KeyType type, std::string_view accepts, const Slot& slot,
                   const toml::node& node) {
  switch (type) {
    case KeyType::kText:
    case KeyType::kPath:
    case KeyType::kChoice: {
      HMM_ASSIGN_OR_RETURN(*std::get<std::string*>(slot), TextOf(at, type, accepts, node));
      return absl::OkStatus();
    }
    case KeyType::kFlag: {
      if (!node.is_boolean()) return Refuse(at, "write true or false");
      *std::get<bool*>(slot) = *node.value<bool>();
      return absl::OkStatus();
    }
    case KeyType::kCount:
    case KeyType::kInteger: {
      HMM_ASSIGN_OR_RETURN(const std::int64_t value, WholeOf(at, node, accepts));
      if (auto* const* narrow = std::get_if<std::uint32_t*>(&slot)) {
        **narrow = static_cast<std::uint32_t>(value);
      } else if (auto* const* wide = std::get_if<std::uint64_t*>(&slot)) {
        **wide = static_cast<std::uint64_t>(value);
      } else {
        *std::get<std::int64_t*>(slot) = value;
      }
      return absl::OkStatus();
    }
    case KeyType::kMode: {
      const std::string text = node.value<std::string>().value_or("");
      const bool octal = node.is_string() && text.size() == 4 && text[0] == '0' &&
                         text.find_first_not_of("01234567") == std::string::npos;
      if (!octal) return Refuse(at, Cat("write ", Expected(type, "")));
      *std::get<std::uint64_t*>(slot) = std::stoul(text, nullptr, 8);
      return absl::OkStatus();
    }
    case KeyType::kRatio: {
      HMM_ASSIGN_OR_RETURN(*std::get<double*>(slot), RatioOf(at, node));
      return absl::OkStatus();
    }
    case KeyType::kSize: {
      if (!node.is_string()) return Refuse(at, Cat("write ", Expected(type, "")));
      HMM_ASSIGN_OR_RETURN(const Bytes bytes, SizeOf(at, *node.value<std::string>()));
      if (bytes == 0) return Refuse(at, "0 is no size here");
      *std::get<std::uint64_t*>(slot) = bytes;
      return absl::OkStatus();
    }
    case KeyType::kRate: {
      constexpr std::string_view kPerSecond = "/s";
      std::string text = node.value<std::string>().value_or("");
      if (!text.ends_with(kPerSecond)) return Refuse(at, Cat("write ", Expected(type, "")));
      text.resize(text.size() - kPerSecond.size());
      HMM_ASSIGN_OR_RETURN(const Bytes bytes, SizeOf(at, text));
      if (bytes == 0) return Refuse(at, "0 is no bandwidth");
      *std::get<std::uint64_t*>(slot) = bytes;
      return absl::OkStatus();
    }
    case KeyType::kShare: {
      HMM_ASSIGN_OR_RETURN(*std::get<Share*>(slot), ShareOf(at, node));
      return absl::OkStatus();
    }
    case KeyType::kShares: {
      HMM_ASSIGN_OR_RETURN(*std::get<TierShares*>(slot), SharesOf(at, node));
      return absl::OkStatus();
    }
    case KeyType::kTime: {
      HMM_ASSIGN_OR_RETURN(*std::get<Duration*>(slot), TimeOf(at, node));
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

// --- sections
// -------------------------------------------------------------------------------------

template <typename Owner>
absl::Status ReadSection(const std::string& file, std::string_view section, std::string_view shown,
                         std::span<const Key<Owner>> keys, const toml::table& table, Owner& owner) {
  for (const auto& [given, node] : table) {
    const Key<Owner>* found = nullptr;
    std::vector<std::string_view> known;
    for (const Key<Owner>& key : keys) {
      if (key.section != section) continue;
      known.push_back(key.name);
      if (key.name == given.str()) found = &key;
    }
    const Place at{file, given.source().begin.line, Cat(shown, ".", given.str())};
    if (found == nullptr) {
      return Refuse(at, Cat("unknown key", Suggest(given.str(), known)));
    }
    HMM_RETURN_IF_ERROR(Store(at, found->type, found->accepts, found->slot(owner), node));
    owner.sources[FullName(*found)] = Cat(file, ":", at.line);
  }
  return absl::OkStatus();
}

// [[name]] blocks.
template <typename Owner>
absl::Status ReadBlocks(const std::string& file, std::string_view name, const toml::node& node,
                        std::span<const Key<Owner>> keys, std::vector<Owner>& blocks) {
  const Place at{file, LineOf(node), std::string(name)};
  const auto refuse = [&] {
    return Refuse(at, Cat("write [[", name, "]], with two brackets, once for each ", name));
  };
  const toml::array* const array = node.as_array();
  if (array == nullptr) return refuse();
  for (const toml::node& element : *array) {
    const toml::table* const table = element.as_table();
    if (table == nullptr) return refuse();
    Owner block;
    block.line = LineOf(element);
    const std::string shown = Cat(name, "[", blocks.size(), "]");
    HMM_RETURN_IF_ERROR(ReadSection(file, name, shown, keys, *table, block));
    blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Config> ParseConfig(std::string_view text, const std::string& file) {
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Refuse({file, error.source().begin.line, "syntax"}, error.description());
  }
  Config config;
  config.file = file;
  std::vector<std::string_view> sections;
  for (const Section& section : Sections()) sections.push_back(section.name);
  for (const auto& [name, node] : root) {
    if (name.str() == "tier") {
      HMM_RETURN_IF_ERROR(ReadBlocks(file, "tier", node, TierKeys(), config.tiers));
      continue;
    }
    if (name.str() == "tenant") {
      HMM_RETURN_IF_ERROR(ReadBlocks(file, "tenant", node, TenantKeys(), config.tenants));
      continue;
    }
    const Place at{file, name.source().begin.line, std::string(name.str())};
    if (std::find(sections.begin(), sections.end(), name.str()) == sections.end()) {
      return Refuse(at, Cat("unknown section", Suggest(name.str(), sections)));
    }
    if (!node.is_table()) return Refuse(at, Cat("write [", name.str(), "]"));
    HMM_RETURN_IF_ERROR(
        ReadSection(file, name.str(), name.str(), ConfigKeys(), *node.as_table(), config));
  }
  return config;
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  constexpr std::streamsize kFileBytesMax = 1 << 20;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return PosixError(path, EISDIR);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return PosixError(path, errno == 0 ? ENOENT : errno);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), kFileBytesMax + 1);
  if (file.bad()) return PosixError(path, errno == 0 ? EIO : errno);
  if (file.gcount() > kFileBytesMax) {
    return Refuse({path, 1, "size"}, "a configuration of more than 1MiB; is this the right file?");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return ParseConfig(text, path);
}

}  // namespace hmm::daemon
