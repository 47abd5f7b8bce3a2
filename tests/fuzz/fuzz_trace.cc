// SPDX-License-Identifier: Apache-2.0
//
// Traces of inference servers; what begins like a gzip file is read as one.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "client/ctl/trace_reader.h"
#include "fuzz/require.h"

namespace {

using namespace hmm;

absl::StatusOr<ctl::Trace> ReadPacked(std::string_view bytes, const ctl::TraceLimits& limits) {
  const int file = memfd_create("fuzz", MFD_CLOEXEC);
  fuzz::Require(file >= 0, "a file in memory");
  const ssize_t written = write(file, bytes.data(), bytes.size());
  fuzz::Require(written == static_cast<ssize_t>(bytes.size()), "is written");
  auto trace = ctl::ReadTrace("/proc/self/fd/" + std::to_string(file), limits);
  close(file);
  return trace;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ctl::TraceLimits limits{
      .text_bytes = 1 << 20, .line_bytes = 1 << 16, .requests = 1000, .blocks_per_request = 10'000};
  const auto trace = bytes.starts_with("\x1f\x8b") ? ReadPacked(bytes, limits)
                                                   : ctl::ParseTrace(bytes, "fuzz.jsonl", limits);
  if (!trace.ok()) return 0;
  fuzz::Require(trace->requests.size() <= limits.requests, "requests are bounded");
  fuzz::Require(std::is_sorted(trace->requests.begin(), trace->requests.end(),
                               [](const ctl::TraceRequest& a, const ctl::TraceRequest& b) {
                                 return a.time_us < b.time_us;
                               }),
                "requests are in order of time");
  return 0;
}
