// SPDX-License-Identifier: Apache-2.0
//
// Text tables: columns two spaces apart, numbers to the right, "-" for what is empty, so that awk
// can read them. A value; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hmm::ctl {

class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
    std::size_t width_min = 0;  // so that the pages of a long list line up
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: one cell a column.
  void AddRow(std::vector<std::string> cells);
  std::string ToString(bool header = true) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "1.5GiB": one word a cell.
std::string SizeCell(std::uint64_t bytes);
// "85%"; one decimal where it is not whole.
std::string PercentCell(double ratio);
// "1h02m", "12.3s", "45ms".
std::string TimeCell(std::uint64_t ms);
// Keys are bytes: printable ASCII as it is, the rest (and the backslash) as \xNN.
std::string EscapeKey(const std::string& key);

}  // namespace hmm::ctl
