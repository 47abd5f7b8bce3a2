// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/trace_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/line_source.h"

namespace hmm::ctl {
namespace {

using nlohmann::json;

enum class Format { kMooncake, kAgentic };

// Session-local ids get the session's number above these bits.
constexpr int kSessionShift = 36;
constexpr std::uint64_t kLocalIdMax = (std::uint64_t{1} << kSessionShift) - 1;
constexpr double kTimeMaxUs = 1e15;  // 31 years

absl::Status Bad(const std::string& name, const std::string& why) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadTrace,
               absl::StrCat(name, ": ", why));
}

// What is wrong with one line; the caller puts file and line in front.
using Fault = std::optional<std::string>;

Fault ReadTime(const json& value, double to_us, const char* what, std::uint64_t* time_us) {
  if (!value.is_number()) return absl::StrCat(what, " is not a number");
  const double us = value.get<double>() * to_us;
  if (!std::isfinite(us) || us < 0 || us > kTimeMaxUs)
    return absl::StrCat(what, " is out of range");
  *time_us = static_cast<std::uint64_t>(std::llround(us));
  return std::nullopt;
}

// Appends one block, growing the last run where it goes on from there.
void AppendBlock(std::uint64_t id, std::vector<BlockRun>* runs) {
  if (!runs->empty()) {
    BlockRun& last = runs->back();
    if (last.first + last.count == id && last.count < std::numeric_limits<std::uint32_t>::max()) {
      ++last.count;
      return;
    }
  }
  runs->push_back({id, 1});
}

Fault AddMooncake(const json& line, const TraceLimits& limits, Trace* trace) {
  const auto time = line.find("timestamp");
  const auto ids = line.find("hash_ids");
  if (time == line.end()) return "\"timestamp\" is missing";
  if (ids == line.end()) return "\"hash_ids\" is missing";
  TraceRequest request;
  if (Fault fault = ReadTime(*time, 1e3, "\"timestamp\"", &request.time_us)) return fault;
  if (!ids->is_array()) return "\"hash_ids\" is not a list";
  if (ids->size() > limits.blocks_per_request) {
    return absl::StrCat("\"hash_ids\" has ", ids->size(), " blocks; at most ",
                        limits.blocks_per_request, " are read");
  }
  for (std::size_t i = 0; i < ids->size(); ++i) {
    const json& id = (*ids)[i];
    if (!id.is_number_unsigned()) {
      return absl::StrCat("\"hash_ids\"[", i, "] is not a whole number from 0 to 2^64-1");
    }
    AppendBlock(id.get<std::uint64_t>(), &request.runs);
  }
  trace->requests.push_back(std::move(request));
  return std::nullopt;
}

Fault AddAgenticRequest(const json& fields, std::uint64_t session, const TraceLimits& limits,
                        TraceRequest* request) {
  if (!fields.is_array() || fields.size() < 4) {
    return "is not [start s, input tokens, output tokens, block runs, ...]";
  }
  if (Fault fault = ReadTime(fields[0], 1e6, "its start", &request->time_us)) return fault;
  if (!fields[3].is_array()) return "has no list of block runs";
  std::size_t blocks = 0;
  for (const json& run : fields[3]) {
    if (!run.is_array() || run.size() != 2 || !run[0].is_number_unsigned() ||
        !run[1].is_number_unsigned()) {
      return "has a block run that is not [first, n]";
    }
    const auto first = run[0].get<std::uint64_t>();
    const auto count = run[1].get<std::uint64_t>();
    if (count > limits.blocks_per_request || (blocks += count) > limits.blocks_per_request) {
      return absl::StrCat("has more than ", limits.blocks_per_request, " blocks");
    }
    if (first > kLocalIdMax - count) return absl::StrCat("has a block id beyond ", kLocalIdMax);
    if (count == 0) continue;
    request->runs.push_back(
        {(session << kSessionShift) | first, static_cast<std::uint32_t>(count)});
  }
  return std::nullopt;
}

Fault AddAgentic(const json& line, std::uint64_t session, const TraceLimits& limits, Trace* trace) {
  if (session > std::numeric_limits<std::uint64_t>::max() >> kSessionShift) {
    return "too many sessions";
  }
  const auto requests = line.find("requests");
  if (requests == line.end()) return "\"requests\" is missing";
  if (!requests->is_array()) return "\"requests\" is not a list";
  for (std::size_t i = 0; i < requests->size(); ++i) {
    TraceRequest request;
    if (Fault fault = AddAgenticRequest((*requests)[i], session, limits, &request)) {
      return absl::StrCat("request ", i, " ", *fault);
    }
    if (trace->requests.size() >= limits.requests) return "too many requests";
    trace->requests.push_back(std::move(request));
  }
  return std::nullopt;
}

std::string FirstWords(const std::string& line) {
  constexpr std::size_t kShown = 40;
  std::string shown;
  for (const char c : line.substr(0, kShown)) {
    shown.push_back(c >= ' ' && c < 0x7f ? c : '?');
  }
  return line.size() > kShown ? shown + "..." : shown;
}

// Not JSON: a CSV of arrivals, or nothing we know.
absl::Status RefuseText(const std::string& name, const std::string& line) {
  if (line.rfind("TIMESTAMP", 0) == 0 || line.find("ContextTokens") != std::string::npos) {
    return Bad(
        name,
        "an azure trace (CSV of arrivals and token counts) has no block ids, so nothing could "
        "be found again; replay needs a mooncake trace (JSON lines with \"hash_ids\") or an "
        "agentic one (JSON lines with \"requests\")");
  }
  return Bad(absl::StrCat(name, ":1"),
             absl::StrCat("not a trace: starts with '", FirstWords(line),
                          "'; replay reads JSON lines with \"hash_ids\" (mooncake) or \"requests\" "
                          "(agentic), plain or gzipped"));
}

// nlohmann throws on malformed text; it is caught here and nowhere else.
absl::StatusOr<json> ParseLine(const std::string& line) {
  try {
    json value = json::parse(line);
    if (!value.is_object()) return absl::InvalidArgumentError("is not a JSON object");
    return value;
  } catch (const json::exception& e) {
    std::string why = e.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const auto end = why.find("] "); end != std::string::npos) why.erase(0, end + 2);
    return absl::InvalidArgumentError(absl::StrCat("is not JSON: ", why));
  }
}

class Reader {
 public:
  Reader(std::string name, const TraceLimits& limits) : name_(std::move(name)), limits_(limits) {}

  absl::Status Add(std::uint64_t number, const std::string& line) {
    const std::size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos) return absl::OkStatus();
    if (!format_ && line[start] != '{') return RefuseText(name_, line);
    const std::string where = absl::StrCat(name_, ":", number);
    absl::StatusOr<json> value = ParseLine(line);
    if (!value.ok()) return Bad(where, std::string(value.status().message()));
    if (!format_) {
      if (value->contains("hash_ids")) {
        format_ = Format::kMooncake;
      } else if (value->contains("requests")) {
        format_ = Format::kAgentic;
      } else {
        return Bad(where, "has neither \"hash_ids\" (mooncake) nor \"requests\" (agentic)");
      }
    }
    if (trace_.requests.size() >= limits_.requests) {
      return Bad(where, absl::StrCat("more than ", limits_.requests, " requests"));
    }
    const Fault fault = *format_ == Format::kMooncake
                            ? AddMooncake(*value, limits_, &trace_)
                            : AddAgentic(*value, sessions_++, limits_, &trace_);
    return fault ? Bad(where, *fault) : absl::OkStatus();
  }

  absl::StatusOr<Trace> Finish() && {
    if (!format_) return Bad(name_, "is empty");
    if (trace_.requests.empty()) return Bad(name_, "has no requests");
    std::stable_sort(
        trace_.requests.begin(), trace_.requests.end(),
        [](const TraceRequest& a, const TraceRequest& b) { return a.time_us < b.time_us; });
    const std::uint64_t start = trace_.requests.front().time_us;
    for (TraceRequest& request : trace_.requests) request.time_us -= start;
    trace_.format = *format_ == Format::kMooncake ? "mooncake" : "agentic";
    return std::move(trace_);
  }

 private:
  const std::string name_;
  const TraceLimits limits_;
  std::optional<Format> format_;
  std::uint64_t sessions_ = 0;
  Trace trace_;
};

absl::StatusOr<Trace> ReadAll(LineSource& source, const std::string& name,
                              const TraceLimits& limits) {
  Reader reader(name, limits);
  std::string line;
  for (std::uint64_t number = 1;; ++number) {
    absl::StatusOr<bool> more = source.Next(&line);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (number == 1 && line.rfind("\xEF\xBB\xBF", 0) == 0) line.erase(0, 3);  // byte order mark
    HMM_RETURN_IF_ERROR(reader.Add(number, line));
  }
  return std::move(reader).Finish();
}

}  // namespace

absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceLimits& limits) {
  absl::StatusOr<std::unique_ptr<LineSource>> source =
      OpenLines(path, limits.text_bytes, limits.line_bytes);
  if (!source.ok()) return source.status();
  return ReadAll(**source, path, limits);
}

absl::StatusOr<Trace> ParseTrace(std::string_view text, const std::string& name,
                                 const TraceLimits& limits) {
  const std::unique_ptr<LineSource> source = LinesOf(text);
  return ReadAll(*source, name, limits);
}

}  // namespace hmm::ctl
