// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/units.h"

namespace hmm::ctl {

void Table::AddRow(std::vector<std::string> cells) {
  HMM_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) {
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(bool header) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = std::max(columns_[i].title.size(), columns_[i].width_min);
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string out;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& text = cell(i);
      const std::string padding(widths[i] - text.size(), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].right ? padding + text : text + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  if (header) add_line([&](std::size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) {
    add_line([&](std::size_t i) -> const std::string& { return row[i]; });
  }
  return out;
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
