// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/units.h"

namespace hmm::ctl {

void Table::AddRow(std::vector<Cell> cells) {
  HMM_CHECK(cells.size() == columns_.size());
  for (Cell& cell : cells) {
    if (cell.text.empty()) cell.text = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(const TableStyle& style) const {
  const auto shown = [&](const Cell& cell) -> const std::string& {
    return style.exact && !cell.exact.empty() ? cell.exact : cell.text;
  };
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = std::max(columns_[i].title.size(), columns_[i].width_min);
    for (const auto& row : rows_) width = std::max(width, shown(row[i]).size());
    widths.push_back(width);
  }
  std::string out;
  const auto add_line = [&](auto text_of, auto tint_of) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& text = text_of(i);
      if (style.tabs) {
        absl::StrAppend(&line, i > 0 ? "\t" : "", text);
        continue;
      }
      const std::string padding(widths[i] - text.size(), ' ');
      const std::string tinted = style.colour ? Tinted(text, tint_of(i)) : text;
      if (i > 0) line += "  ";
      line += columns_[i].right ? padding + tinted : tinted + padding;
    }
    if (!style.tabs) line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  if (style.header && !style.tabs) {
    add_line([&](std::size_t i) -> const std::string& { return columns_[i].title; },
             [](std::size_t) { return Tint::kNone; });
  }
  for (const auto& row : rows_) {
    add_line([&](std::size_t i) -> const std::string& { return shown(row[i]); },
             [&](std::size_t i) { return row[i].tint; });
  }
  return out;
}

std::string Tinted(const std::string& text, Tint tint) {
  switch (tint) {
    case Tint::kNone:
      return text;
    case Tint::kGood:
      return absl::StrCat("\x1b[32m", text, "\x1b[0m");
    case Tint::kWarn:
      return absl::StrCat("\x1b[33m", text, "\x1b[0m");
    case Tint::kBad:
      return absl::StrCat("\x1b[31m", text, "\x1b[0m");
  }
  return text;
}

Cell Size(std::uint64_t bytes) { return {SizeCell(bytes), absl::StrCat(bytes)}; }
Cell Percent(double ratio, Tint tint) {
  return {PercentCell(ratio), absl::StrFormat("%.6g", ratio), tint};
}
Cell Time(std::uint64_t ms) { return {TimeCell(ms), absl::StrCat(ms)}; }
Cell Rate(double bytes_per_second) {
  const auto whole = static_cast<std::uint64_t>(bytes_per_second);
  return {SizeCell(whole) + "/s", absl::StrCat(whole)};
}
Cell StateCell(const std::string& state) {
  const Tint tint = state == "online" ? Tint::kGood : state == "offline" ? Tint::kBad : Tint::kWarn;
  return {state, "", tint};
}

std::string SizeCell(std::uint64_t bytes) {
  std::string text = FormatBytes(bytes);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

std::string PercentCell(double ratio) {
  const double percent = std::round(ratio * 1000) / 10;
  if (percent == std::floor(percent)) return absl::StrFormat("%.0f%%", percent);
  return absl::StrFormat("%.1f%%", percent);
}

std::string TimeCell(std::uint64_t ms) {
  if (ms < 1000) return absl::StrCat(ms, "ms");
  const std::uint64_t seconds = ms / 1000;
  if (seconds < 60) return absl::StrFormat("%d.%ds", seconds, ms % 1000 / 100);
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds % 3600 / 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds % 86400 / 3600);
}

std::string EscapeKey(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c > ' ' && c < 0x7f && c != '\\') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

}  // namespace hmm::ctl
