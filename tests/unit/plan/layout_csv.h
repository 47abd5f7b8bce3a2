// SPDX-License-Identifier: Apache-2.0
//
// Reads the intervals of a file in tests/data/alloc: a header, then "id,lower,upper,size" a line.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plan/layout.h"

namespace hmm::plan {

// Empty if the file cannot be read as that.
inline std::vector<Interval> ReadIntervals(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<Interval> intervals;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string id;
    std::getline(fields, id, ',');
    Interval interval;
    char comma = 0;
    if (!(fields >> interval.begin >> comma >> interval.end >> comma >> interval.bytes)) return {};
    intervals.push_back(interval);
  }
  return intervals;
}

}  // namespace hmm::plan
