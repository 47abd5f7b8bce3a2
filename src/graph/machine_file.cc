// SPDX-License-Identifier: Apache-2.0
#include "graph/machine_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/quantity.h"

namespace hmm::graph {
namespace {

constexpr Bytes kFileMax = kMiB;
constexpr std::size_t kCurveMax = 256;
constexpr std::int64_t kEnginesMax = 64;
constexpr double kLatencyMaxUs = 1e9;
constexpr Bytes kCapacityMax = Bytes{1} << 60;
constexpr Bytes kFlatAt = kMiB;  // the one point of a curve that is written as a bandwidth

constexpr std::string_view kMachineKeys[] = {"name",         "assumptions",    "flops",
                                             "launch",       "hbm_bandwidth",  "hbm_capacity",
                                             "ddr_capacity", "flash_capacity", "link"};
constexpr std::string_view kLinkKeys[] = {
    "from", "to", "engines", "latency", "bandwidth", "curve", "duplex_factor", "contention_group"};

// One table of the file, read key by key; the first error stays.
class Table {
 public:
  Table(const std::string& file, std::string shown, const toml::table& table)
      : file_(file), shown_(std::move(shown)), table_(table) {}

  void Known(std::span<const std::string_view> keys) {
    for (const auto& [key, node] : table_) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      Refuse(key.source().begin.line, key.str(),
             absl::StrCat("unknown key",
                          Suggestion(key.str(), std::vector(keys.begin(), keys.end()))));
    }
  }

  const toml::node* Find(std::string_view key) const { return table_.get(key); }
  const toml::node* Require(std::string_view key) {
    const toml::node* node = Find(key);
    if (node == nullptr) Refuse(table_.source().begin.line, key, "is missing");
    return node;
  }

  void Refuse(const toml::node& node, std::string_view key, const std::string& what) {
    Refuse(node.source().begin.line, key, what);
  }
  void Refuse(std::size_t line, std::string_view key, const std::string& what) {
    if (!status_.ok()) return;
    status_ = Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                    absl::StrCat(file_, ":", std::max<std::size_t>(line, 1), ": ", shown_,
                                 std::string(key), ": ", what));
  }

  std::string Text(std::string_view key, bool required) {
    const toml::node* node = required ? Require(key) : Find(key);
    if (node == nullptr) return "";
    if (!node->is_string()) Refuse(*node, key, "write a text in quotes");
    return node->value<std::string>().value_or("");
  }

  Bytes Size(std::string_view key, bool required) {
    const toml::node* node = required ? Require(key) : Find(key);
    return node == nullptr ? 0 : SizeOf(*node, key);
  }
  Bytes SizeOf(const toml::node& node, std::string_view key) {
    if (!node.is_string()) {
      Refuse(node, key, "write a size in quotes such as \"64GiB\"");
      return 0;
    }
    const absl::StatusOr<Bytes> bytes = ParseBytes(*node.value<std::string>());
    if (!bytes.ok()) {
      Refuse(node, key, std::string(bytes.status().message()));
    } else if (*bytes > kCapacityMax) {
      Refuse(node, key, "is beyond 2^60 bytes");
    }
    return bytes.value_or(0);
  }

  // A number with a unit; 0 if it is not there.
  double Quantity(std::string_view key, bool required,
                  std::optional<double> (*parse)(std::string_view), std::string_view example) {
    const toml::node* node = required ? Require(key) : Find(key);
    return node == nullptr ? 0 : QuantityOf(*node, key, parse, example);
  }
  double QuantityOf(const toml::node& node, std::string_view key,
                    std::optional<double> (*parse)(std::string_view), std::string_view example) {
    const auto text = node.is_string() ? node.value<std::string>() : std::nullopt;
    const auto value = text.has_value() ? parse(*text) : std::nullopt;
    if (!value.has_value()) {
      Refuse(node, key,
             absl::StrCat(text.has_value() ? Shown(*text) + ": " : "", "write ",
                          std::string(example)));
    }
    return value.value_or(0);
  }

  std::uint32_t Whole(std::string_view key, std::int64_t least, std::int64_t most,
                      std::uint32_t otherwise) {
    const toml::node* node = Find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->is_integer() ? node->value<std::int64_t>() : std::nullopt;
    if (!value.has_value() || *value < least || *value > most) {
      Refuse(*node, key, absl::StrCat("write a whole number from ", least, " to ", most));
      return otherwise;
    }
    return static_cast<std::uint32_t>(*value);
  }

  std::size_t line() const { return table_.source().begin.line; }
  absl::Status& status() { return status_; }

 private:
  const std::string& file_;
  std::string shown_;
  const toml::table& table_;
  absl::Status status_;
};

TierKind Tier(Table& table, std::string_view key) {
  const std::string text = table.Text(key, true);
  for (const TierKind kind : {TierKind::kHbm, TierKind::kDdr, TierKind::kFlash}) {
    if (text == TierKindName(kind)) return kind;
  }
  if (const toml::node* node = table.Find(key)) {
    table.Refuse(*node, key, absl::StrCat(Shown(text), ": write \"hbm\", \"ddr\" or \"flash\""));
  }
  return TierKind::kHbm;
}

void ReadCurve(Table& table, plan::Link& link) {
  const toml::node* flat = table.Find("bandwidth");
  const toml::node* node = table.Find("curve");
  if ((flat != nullptr) == (node != nullptr)) {
    table.Refuse(node != nullptr ? node->source().begin.line : table.line(), "bandwidth",
                 "give either this or a curve");
    return;
  }
  if (flat != nullptr) {
    link.curve = {{kFlatAt, table.QuantityOf(*flat, "bandwidth", &ParseRate, kRateExample)}};
    return;
  }
  constexpr std::string_view kWants =
      "write a list such as [[\"64KiB\", \"4GiB/s\"], [\"2MiB\", "
      "\"16GiB/s\"]], sizes ascending";
  const toml::array* points = node->as_array();
  if (points == nullptr || points->empty() || points->size() > kCurveMax) {
    table.Refuse(*node, "curve", std::string(kWants));
    return;
  }
  for (const toml::node& element : *points) {
    const toml::array* pair = element.as_array();
    if (pair == nullptr || pair->size() != 2) {
      table.Refuse(element, "curve", std::string(kWants));
      return;
    }
    const Bytes bytes = table.SizeOf((*pair)[0], "curve");
    const double rate = table.QuantityOf((*pair)[1], "curve", &ParseRate, kRateExample);
    if (bytes == 0 || (!link.curve.empty() && bytes <= link.curve.back().bytes)) {
      table.Refuse(element, "curve", "sizes must be above 0 and ascend");
    }
    link.curve.push_back({bytes, rate});
  }
}

void ReadLink(Table& table, const plan::Machine& machine, plan::Link& link) {
  table.Known(kLinkKeys);
  link.from = Tier(table, "from");
  link.to = Tier(table, "to");
  const int apart = static_cast<int>(link.to) - static_cast<int>(link.from);
  if (apart != 1 && apart != -1) {
    table.Refuse(table.line(), "to", "links join neighbours: hbm and ddr, or ddr and flash");
  }
  const auto there = [&machine](TierKind kind) {
    return kind == TierKind::kHbm
               ? machine.hbm_bytes > 0
               : (kind == TierKind::kDdr ? machine.ddr_bytes : machine.flash_bytes) > 0;
  };
  for (const TierKind kind : {link.from, link.to}) {
    if (there(kind)) continue;
    table.Refuse(table.line(), kind == link.from ? "from" : "to",
                 absl::StrCat("the machine has no ", std::string(TierKindName(kind)), "; give ",
                              std::string(TierKindName(kind)), "_capacity"));
  }
  if (plan::FindLink(machine, link.from, link.to) != nullptr) {
    table.Refuse(table.line(), "from", "this direction has a link already; engines make one wider");
  }
  link.engines = table.Whole("engines", 1, kEnginesMax, 1);
  link.latency_us = table.Quantity("latency", false, &ParseMicroseconds, kTimeExample);
  if (link.latency_us > kLatencyMaxUs) table.Refuse(table.line(), "latency", "is beyond 1000s");
  link.contention_group = table.Whole("contention_group", 0, 1'000'000, 0);
  ReadCurve(table, link);
  if (const toml::node* node = table.Find("duplex_factor")) {
    link.duplex_factor = node->is_number() ? node->value<double>().value_or(0) : 0;
    if (!(link.duplex_factor > 0 && link.duplex_factor <= 1)) {
      table.Refuse(*node, "duplex_factor", "write a ratio above 0, at most 1, such as 0.9");
    }
  }
}

absl::Status ReadLinks(const std::string& file, const toml::node& node, plan::Machine& machine) {
  const toml::array* array = node.as_array();
  const bool tables = array != nullptr && std::all_of(array->begin(), array->end(),
                                                      [](const auto& e) { return e.is_table(); });
  if (!tables) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat(file, ":", node.source().begin.line,
                              ": link: write [[link]], with two brackets, once for each link"));
  }
  for (std::size_t i = 0; i < array->size(); ++i) {
    Table table(file, absl::StrCat("link[", i, "]."), *(*array)[i].as_table());
    plan::Link link;
    ReadLink(table, machine, link);
    HMM_RETURN_IF_ERROR(table.status());
    machine.links.push_back(std::move(link));
  }
  return absl::OkStatus();
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out.push_back('\\');
    if (code < 0x20 || code == 0x7F) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      absl::StrAppend(&out, "\\u00", std::string(1, kHex[code >> 4U]),
                      std::string(1, kHex[code & 0xFU]));
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// A TOML float that reads back the same.
std::string Decimal(double value) {
  std::string text = absl::StrFormat("%.6g", value);
  double back = 0;
  if (!absl::SimpleAtod(text, &back) || back != value) text = absl::StrFormat("%.17g", value);
  // TOML keeps whole numbers and floats apart.
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// As ParseBytes reads it: the largest unit that divides.
std::string SizeText(Bytes bytes) {
  constexpr std::pair<std::string_view, Bytes> kUnits[] = {
      {"TiB", 1024 * kGiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}};
  for (const auto& [suffix, unit] : kUnits) {
    if (bytes > 0 && bytes % unit == 0) return absl::StrCat(bytes / unit, std::string(suffix));
  }
  return absl::StrCat(bytes, "B");
}

std::string Text(const plan::Machine& m) {
  std::string out;
  const auto line = [&out](std::string_view key, const std::string& value) {
    absl::StrAppend(&out, std::string(key), " = ", value, "\n");
  };
  line("name", Quoted(m.name));
  if (!m.assumptions.empty()) line("assumptions", Quoted(m.assumptions));
  line("flops", Quoted(FormatFlops(m.flops_per_us)));
  line("hbm_bandwidth", Quoted(FormatRate(m.hbm_bytes_per_us)));
  line("launch", Quoted(FormatMicroseconds(m.launch_us)));
  line("hbm_capacity", Quoted(SizeText(m.hbm_bytes)));
  line("ddr_capacity", Quoted(SizeText(m.ddr_bytes)));
  line("flash_capacity", Quoted(SizeText(m.flash_bytes)));
  for (const plan::Link& link : m.links) {
    absl::StrAppend(&out, "\n[[link]]\n");
    line("from", Quoted(TierKindName(link.from)));
    line("to", Quoted(TierKindName(link.to)));
    line("engines", absl::StrCat(link.engines));
    line("latency", Quoted(FormatMicroseconds(link.latency_us)));
    if (link.curve.size() == 1 && link.curve[0].bytes == kFlatAt) {
      line("bandwidth", Quoted(FormatRate(link.curve[0].bytes_per_us)));
    } else {
      line("curve", absl::StrCat("[",
                                 absl::StrJoin(link.curve, ", ",
                                               [](std::string* to, const plan::BandwidthPoint& p) {
                                                 absl::StrAppend(
                                                     to, "[", Quoted(SizeText(p.bytes)), ", ",
                                                     Quoted(FormatRate(p.bytes_per_us)), "]");
                                               }),
                                 "]"));
    }
    line("duplex_factor", Decimal(link.duplex_factor));
    line("contention_group", absl::StrCat(link.contention_group));
  }
  return out;
}

}  // namespace

absl::StatusOr<plan::Machine> ParseMachine(std::string_view text, const std::string& file) {
  if (text.size() > kFileMax) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                 absl::StrCat(file, ": larger than ", FormatBytes(kFileMax)));
  }
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat(file, ":", error.source().begin.line,
                              ": syntax: ", std::string(error.description())));
  }
  Table table(file, "", root);
  table.Known(kMachineKeys);
  plan::Machine machine;
  machine.name = table.Text("name", true);
  machine.assumptions = table.Text("assumptions", false);
  machine.flops_per_us = table.Quantity("flops", true, &ParseFlops, kFlopsExample);
  machine.hbm_bytes_per_us = table.Quantity("hbm_bandwidth", true, &ParseRate, kRateExample);
  machine.launch_us = table.Quantity("launch", false, &ParseMicroseconds, kTimeExample);
  if (machine.launch_us > kLatencyMaxUs) table.Refuse(table.line(), "launch", "is beyond 1000s");
  machine.hbm_bytes = table.Size("hbm_capacity", true);
  machine.ddr_bytes = table.Size("ddr_capacity", false);
  machine.flash_bytes = table.Size("flash_capacity", false);
  if (machine.name.empty()) table.Refuse(table.line(), "name", "is empty");
  if (machine.hbm_bytes == 0) table.Refuse(table.line(), "hbm_capacity", "is 0");
  HMM_RETURN_IF_ERROR(table.status());
  if (const toml::node* links = table.Find("link")) {
    HMM_RETURN_IF_ERROR(ReadLinks(file, *links, machine));
  }
  return machine;
}

absl::StatusOr<plan::Machine> LoadMachine(const std::string& name_or_path) {
  if (auto preset = plan::MachinePreset(name_or_path)) return *std::move(preset);
  const absl::StatusOr<std::string> text = ReadFileBytes(name_or_path, kFileMax);
  if (text.ok()) return ParseMachine(*text, name_or_path);
  if (!absl::IsNotFound(text.status())) return text.status();
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat(name_or_path, ": neither a file nor a machine known by name",
                            Suggestion(name_or_path, plan::MachinePresetNames())));
}

absl::StatusOr<std::string> FormatMachine(const plan::Machine& machine) {
  const std::string text = Text(machine);
  HMM_RETURN_IF_ERROR(ParseMachine(text, machine.name).status());
  return text;
}

}  // namespace hmm::graph
