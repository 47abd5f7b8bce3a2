// SPDX-License-Identifier: Apache-2.0
//
// Text tables: columns two spaces apart, numbers to the right, "-" for what is empty, so that awk
// can read them; for scripts also as zpool(8) does it: tabs, no header, exact numbers. A value; one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hmm::ctl {

// How tables are written.
struct TableStyle {
  bool header = true;
  bool tabs = false;    // one between cells, nothing for the eye
  bool exact = false;   // bytes, milliseconds and ratios instead of 1.5GiB, 3m02s and 85%
  bool colour = false;  // for a terminal
  static TableStyle Headed(bool header) { return {.header = header}; }
};

// What a cell's colour says. Never the only thing that says it.
enum class Tint { kNone, kGood, kWarn, kBad };

struct Cell {
  std::string text;
  std::string exact;  // empty: as `text`
  Tint tint = Tint::kNone;

  Cell(std::string shown) : text(std::move(shown)) {}
  Cell(const char* shown) : text(shown) {}
  Cell(std::string shown, std::string number, Tint t = Tint::kNone)
      : text(std::move(shown)), exact(std::move(number)), tint(t) {}
};

class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
    std::size_t width_min = 0;  // so that the pages of a long list line up
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: one cell a column.
  void AddRow(std::vector<Cell> cells);
  std::string ToString(const TableStyle& style) const;
  std::string ToString(bool header = true) const { return ToString(TableStyle::Headed(header)); }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// "1.5GiB": one word a cell.
std::string SizeCell(std::uint64_t bytes);
// "85%"; one decimal where it is not whole.
std::string PercentCell(double ratio);
// "1h02m", "12.3s", "45ms".
std::string TimeCell(std::uint64_t ms);
// The same with their exact numbers: bytes, a ratio, milliseconds, bytes a second.
Cell Size(std::uint64_t bytes);
Cell Percent(double ratio, Tint tint = Tint::kNone);
Cell Time(std::uint64_t ms);
Cell Rate(double bytes_per_second);
// "online" is good, "degraded" and "draining" are not, "offline" is bad.
Cell StateCell(const std::string& state);
// The text in its colour, by the terminal's own palette.
std::string Tinted(const std::string& text, Tint tint);
// Keys are bytes: printable ASCII as it is, the rest (and the backslash) as \xNN.
std::string EscapeKey(const std::string& key);

}  // namespace hmm::ctl
