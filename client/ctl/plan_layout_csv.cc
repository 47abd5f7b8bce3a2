// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_layout_csv.h"

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

using plan::Interval;
using plan::TimeSpan;

constexpr Bytes kFileBytesMax = 64 * kMiB;
constexpr std::size_t kLinesMax = 1'000'000;

enum Column : std::size_t { kId, kLower, kUpper, kSize, kAlignment, kGaps, kColumns };
constexpr std::array<std::string_view, kColumns> kNames = {"id",   "lower",     "upper",
                                                           "size", "alignment", "gaps"};
// Where each column stands in a line.
using Header = std::array<std::optional<std::size_t>, kColumns>;

using Fields = std::vector<absl::string_view>;

Fields Split(absl::string_view line) {
  Fields fields = absl::StrSplit(line, ',');
  for (absl::string_view& field : fields) field = absl::StripAsciiWhitespace(field);
  return fields;
}

std::string Quoted(absl::string_view text) {
  return graph::Shown(std::string_view(text.data(), text.size()));
}

absl::StatusOr<Header> ParseHeader(absl::string_view line, const std::string& where) {
  Header header;
  const Fields fields = Split(line);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::size_t column = 0;
    while (column < kColumns && kNames[column] != std::string(fields[i])) ++column;
    if (column == kColumns) continue;  // other tools' columns, such as an offset
    if (header[column]) return graph::BadGraph(where, Quoted(fields[i]) + ": twice in the header");
    header[column] = i;
  }
  for (const Column column : {kId, kLower, kUpper, kSize}) {
    if (header[column]) continue;
    return graph::BadGraph(where, absl::StrCat("no column '", std::string(kNames[column]),
                                               "' in the header; write id,lower,upper,size"));
  }
  return header;
}

// "4-6 7-8"; false: not that.
bool ParseGaps(absl::string_view text, std::vector<TimeSpan>& gaps) {
  for (const absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    // A time may be negative: the dash between the two stands behind a digit.
    const std::size_t dash = part.find('-', 1);
    TimeSpan gap;
    if (dash == part.npos || !absl::SimpleAtoi(part.substr(0, dash), &gap.begin) ||
        !absl::SimpleAtoi(part.substr(dash + 1), &gap.end)) {
      return false;
    }
    gaps.push_back(gap);
  }
  return true;
}

absl::StatusOr<Interval> ParseLine(const Fields& fields, const Header& header,
                                   const std::string& where) {
  for (std::size_t column = 0; column < kColumns; ++column) {
    if (header[column].value_or(0) < fields.size()) continue;
    return graph::BadGraph(where, absl::StrCat("only ", fields.size(), " fields; '",
                                               std::string(kNames[column]), "' is missing"));
  }
  const auto refuse = [&](Column column, absl::string_view what) {
    return graph::BadGraph(where, absl::StrCat(std::string(kNames[column]), ": ",
                                               Quoted(fields[*header[column]]), " ", what));
  };
  Interval interval;
  if (!absl::SimpleAtoi(fields[*header[kLower]], &interval.begin)) {
    return refuse(kLower, "is not a whole number");
  }
  if (!absl::SimpleAtoi(fields[*header[kUpper]], &interval.end)) {
    return refuse(kUpper, "is not a whole number");
  }
  if (!absl::SimpleAtoi(fields[*header[kSize]], &interval.bytes)) {
    return refuse(kSize, "is not a whole number of bytes");
  }
  if (header[kAlignment] && !fields[*header[kAlignment]].empty() &&
      !absl::SimpleAtoi(fields[*header[kAlignment]], &interval.alignment)) {
    return refuse(kAlignment, "is not a whole number of bytes");
  }
  if (header[kGaps] && !ParseGaps(fields[*header[kGaps]], interval.gaps)) {
    return refuse(kGaps, "is not a list of spans such as 4-6 7-8");
  }
  // The solver's own checks, one interval at a time, so that the message has its line.
  plan::LayoutProblem alone;
  alone.intervals = {interval};
  if (const absl::Status ok = plan::CheckLayoutProblem(alone); !ok.ok()) {
    const std::string message(ok.message());  // "interval 0: what"
    return graph::BadGraph(where, message.substr(message.find(": ") + 2));
  }
  return interval;
}

}  // namespace

absl::StatusOr<LayoutCsv> ParseLayoutCsv(std::string_view text, const std::string& file) {
  LayoutCsv csv;
  std::unordered_set<std::string> seen;
  std::optional<Header> header;
  std::size_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::string where = absl::StrCat(file, ":", ++number);
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (!header) {
      HMM_ASSIGN_OR_RETURN(header, ParseHeader(line, where));
      continue;
    }
    if (csv.ids.size() >= kLinesMax) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                   absl::StrCat(where, ": more than ", kLinesMax, " intervals"));
    }
    const Fields fields = Split(line);
    absl::StatusOr<Interval> interval = ParseLine(fields, *header, where);
    if (!interval.ok()) return interval.status();
    csv.intervals.push_back(*std::move(interval));
    csv.ids.emplace_back(fields[*(*header)[kId]]);
    if (!seen.insert(csv.ids.back()).second) {
      return graph::BadGraph(where,
                             absl::StrCat("id: ", Quoted(csv.ids.back()), " is there twice"));
    }
  }
  if (!header) return graph::BadGraph(file, "empty; the first line is id,lower,upper,size");
  return csv;
}

absl::StatusOr<LayoutCsv> ReadLayoutCsv(const std::string& path) {
  const absl::StatusOr<std::string> text = graph::ReadFileBytes(path, kFileBytesMax);
  if (!text.ok()) return text.status();
  return ParseLayoutCsv(*text, path);
}

std::string FormatLayoutCsv(const LayoutCsv& csv, const std::vector<Bytes>& offsets) {
  HMM_CHECK(offsets.size() == csv.ids.size());
  bool aligned = false, gaps = false;
  for (const Interval& interval : csv.intervals) {
    aligned |= interval.alignment != 1;
    gaps |= !interval.gaps.empty();
  }
  std::string out = absl::StrCat("id,lower,upper,size", aligned ? ",alignment" : "",
                                 gaps ? ",gaps" : "", ",offset\n");
  for (std::size_t i = 0; i < csv.ids.size(); ++i) {
    const Interval& interval = csv.intervals[i];
    absl::StrAppend(&out, csv.ids[i], ",", interval.begin, ",", interval.end, ",", interval.bytes);
    if (aligned) absl::StrAppend(&out, ",", interval.alignment);
    if (gaps) {
      const auto span = [](std::string* to, const TimeSpan& gap) {
        absl::StrAppend(to, gap.begin, "-", gap.end);
      };
      absl::StrAppend(&out, ",", absl::StrJoin(interval.gaps, " ", span));
    }
    absl::StrAppend(&out, ",", offsets[i], "\n");
  }
  return out;
}

}  // namespace hmm::ctl
