// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/trace_reader.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/status.h"
#include "support/catch.h"
#include "support/read_file.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using testing::ReadFile;

const std::string kTraces = HMM_TEST_DATA "/traces/";

std::string Refusal(std::string_view text, const TraceLimits& limits = {}) {
  const absl::StatusOr<Trace> trace = ParseTrace(text, "t.jsonl", limits);
  if (trace.ok()) return "accepted";
  CHECK(ReasonOf(trace.status()) == Reason::kBadTrace);
  CHECK(absl::IsInvalidArgument(trace.status()));
  return std::string(trace.status().message());
}

std::string RefusalOfFile(const std::string& path) {
  const absl::StatusOr<Trace> trace = ReadTrace(path);
  return trace.ok() ? "accepted" : std::string(trace.status().message());
}

// A file of its own for one test, gone at its end.
class TempFile {
 public:
  explicit TempFile(const std::string& content) {
    path_ = (std::filesystem::temp_directory_path() / "hmm_trace_XXXXXX").string();
    const int fd = mkstemp(path_.data());
    REQUIRE(fd >= 0);
    close(fd);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST_CASE("a mooncake trace") {
  const absl::StatusOr<Trace> trace = ReadTrace(kTraces + "small_mooncake.jsonl");
  REQUIRE(trace.ok());
  CHECK(trace->format == "mooncake");
  REQUIRE(trace->requests.size() == 3);
  CHECK(trace->requests[0].runs.size() == 1);
  CHECK(trace->requests[1].Blocks() == std::vector<std::uint64_t>{0, 1, 2, 4, 5});
  CHECK(trace->requests[1].runs.size() == 2);
  CHECK(trace->requests[2].time_us == 1'000'000);
}

TEST_CASE("an agentic trace: sessions interleaved by time, ids made unique") {
  const absl::StatusOr<Trace> trace = ReadTrace(kTraces + "small_agentic.jsonl");
  REQUIRE(trace.ok());
  CHECK(trace->format == "agentic");
  REQUIRE(trace->requests.size() == 3);
  CHECK(trace->requests[0].Blocks() == std::vector<std::uint64_t>{1, 2, 3, 4});
  const std::uint64_t session = std::uint64_t{1} << 36;
  CHECK(trace->requests[1].Blocks() == std::vector<std::uint64_t>{session + 1, session + 2});
  CHECK(trace->requests[1].time_us == 1'000'000);
  CHECK(trace->requests[2].Blocks() == std::vector<std::uint64_t>{1, 2, 3, 9, 10});
  CHECK(trace->requests[2].time_us == 2'500'000);
}

TEST_CASE("the real traces, whole") {
  const absl::StatusOr<Trace> chat = ReadTrace(kTraces + "mooncake_conversation.jsonl.gz");
  REQUIRE(chat.ok());
  CHECK(chat->requests.size() == 12031);
  std::size_t accesses = 0;
  for (const TraceRequest& request : chat->requests) accesses += request.BlockCount();
  CHECK(accesses == 288500);

  const absl::StatusOr<Trace> agents = ReadTrace(kTraces + "agentic_739_rle.jsonl.gz");
  REQUIRE(agents.ok());
  CHECK(agents->requests.size() == 49334);
  accesses = 0;
  for (const TraceRequest& request : agents->requests) accesses += request.BlockCount();
  CHECK(accesses == 94310647);
  CHECK(agents->requests[1].time_us >= agents->requests[0].time_us);
}

TEST_CASE("an azure trace is refused by name, and says what would do") {
  const std::string why = RefusalOfFile(kTraces + "azure_conv_2023.csv.gz");
  CHECK_THAT(why, Contains("azure") && Contains("no block ids") && Contains("mooncake") &&
                      Contains("agentic"));
}

TEST_CASE("broken lines are refused with file, line and what is wrong") {
  const std::string good = "{\"timestamp\": 0, \"hash_ids\": [1]}\n";
  CHECK_THAT(Refusal(good + "{\"timestamp\": 1, \"hash_ids\": [1,"),
             StartsWith("t.jsonl:2: is not JSON: "));
  CHECK_THAT(Refusal(good + "\n" + "[1]\n"), StartsWith("t.jsonl:3: is not a JSON object"));
  CHECK(Refusal(good + "{\"hash_ids\": []}") == "t.jsonl:2: \"timestamp\" is missing");
  CHECK(Refusal(good + "{\"timestamp\": 1}") == "t.jsonl:2: \"hash_ids\" is missing");
  CHECK(Refusal(good + "{\"timestamp\": \"x\", \"hash_ids\": []}") ==
        "t.jsonl:2: \"timestamp\" is not a number");
  CHECK(Refusal(good + "{\"timestamp\": -1, \"hash_ids\": []}") ==
        "t.jsonl:2: \"timestamp\" is out of range");
  CHECK(Refusal(good + "{\"timestamp\": 1, \"hash_ids\": 7}") ==
        "t.jsonl:2: \"hash_ids\" is not a list");
  CHECK_THAT(Refusal("{\"x\": 1}\n"), StartsWith("t.jsonl:1: has neither"));
  CHECK_THAT(Refusal("hello\nworld\n"), StartsWith("t.jsonl:1: not a trace: starts with 'hello'"));
}

TEST_CASE("block ids: up to 2^64-1, nothing else") {
  const auto with_id = [](const std::string& id) {
    return "{\"timestamp\": 0, \"hash_ids\": [5, " + id + "]}";
  };
  const absl::StatusOr<Trace> huge = ParseTrace(with_id("18446744073709551615"), "t");
  REQUIRE(huge.ok());
  CHECK(huge->requests[0].Blocks() == std::vector<std::uint64_t>{5, 18446744073709551615u});
  for (const char* id : {"18446744073709551616", "-1", "1.5", "\"1\"", "null", "[1]"}) {
    INFO(id);
    CHECK_THAT(Refusal(with_id(id)),
               StartsWith("t.jsonl:1: \"hash_ids\"[1] is not a whole number"));
  }
}

TEST_CASE("broken agentic sessions") {
  const auto session = [](const std::string& request) {
    return "{\"id\": \"a\", \"requests\": [[0.0, 1, 1, [[1, 2]], 0, 1.0], " + request + "]}";
  };
  CHECK(Refusal(session("5")) ==
        "t.jsonl:1: request 1 is not [start s, input tokens, output tokens, block runs, ...]");
  CHECK(Refusal(session("[1.0, 1, 1, 7]")) == "t.jsonl:1: request 1 has no list of block runs");
  CHECK(Refusal(session("[1.0, 1, 1, [[1]]]")) ==
        "t.jsonl:1: request 1 has a block run that is not [first, n]");
  CHECK(Refusal(session("[1.0, 1, 1, [[1, -2]]]")) ==
        "t.jsonl:1: request 1 has a block run that is not [first, n]");
  CHECK_THAT(Refusal(session("[1.0, 1, 1, [[99999999999999, 2]]]")),
             StartsWith("t.jsonl:1: request 1 has a block id beyond"));
  CHECK_THAT(Refusal(session("[1.0, 1, 1, [[1, 4000000000]]]")),
             StartsWith("t.jsonl:1: request 1 has more than 1000000 blocks"));
  CHECK(Refusal("{\"requests\": 1}") == "t.jsonl:1: \"requests\" is not a list");
  CHECK(Refusal("{\"requests\": []}") == "t.jsonl: has no requests");
}

TEST_CASE("empty files, and requests without blocks") {
  CHECK(Refusal("") == "t.jsonl: is empty");
  CHECK(Refusal("\n \n\r\n") == "t.jsonl: is empty");
  const absl::StatusOr<Trace> bare = ParseTrace("{\"timestamp\": 0, \"hash_ids\": []}\r\n", "t");
  REQUIRE(bare.ok());
  CHECK(bare->requests[0].Blocks().empty());
}

TEST_CASE("times out of order are sorted, equal ones keep their order") {
  const absl::StatusOr<Trace> trace = ParseTrace(
      "{\"timestamp\": 30, \"hash_ids\": [1]}\n{\"timestamp\": 10, \"hash_ids\": [2]}\n"
      "{\"timestamp\": 30, \"hash_ids\": [3]}\n",
      "t");
  REQUIRE(trace.ok());
  CHECK(trace->requests[0].Blocks() == std::vector<std::uint64_t>{2});
  CHECK(trace->requests[1].Blocks() == std::vector<std::uint64_t>{1});
  CHECK(trace->requests[2].Blocks() == std::vector<std::uint64_t>{3});
  CHECK(trace->requests[0].time_us == 0);
  CHECK(trace->requests[2].time_us == 20'000);
}

TEST_CASE("limits hold") {
  TraceLimits limits;
  limits.requests = 1;
  limits.blocks_per_request = 2;
  CHECK_THAT(Refusal("{\"timestamp\": 0, \"hash_ids\": [1, 2, 3]}", limits),
             StartsWith("t.jsonl:1: \"hash_ids\" has 3 blocks"));
  CHECK_THAT(
      Refusal("{\"timestamp\": 0, \"hash_ids\": []}\n{\"timestamp\": 0, \"hash_ids\": []}", limits),
      StartsWith("t.jsonl:2: more than 1 requests"));
  limits = {};
  limits.line_bytes = 100;
  const TempFile file(std::string(200, '{'));
  const absl::StatusOr<Trace> trace = ReadTrace(file.path(), limits);
  REQUIRE_FALSE(trace.ok());
  CHECK_THAT(std::string(trace.status().message()), Contains(":1: the line is longer than 100"));
  limits = {};
  limits.text_bytes = 1000;
  const absl::StatusOr<Trace> bomb = ReadTrace(kTraces + "agentic_739_rle.jsonl.gz", limits);
  REQUIRE_FALSE(bomb.ok());
  CHECK_THAT(std::string(bomb.status().message()), Contains("more than 1000 bytes of text"));
}

TEST_CASE("files: missing, a folder, cut short, corrupt") {
  CHECK_THAT(RefusalOfFile("/nonexistent/t.jsonl"),
             StartsWith("/nonexistent/t.jsonl: No such file"));
  CHECK_THAT(RefusalOfFile("/tmp"), Contains("Is a directory"));
  std::string whole = ReadFile(kTraces + "mooncake_conversation.jsonl.gz");
  REQUIRE(whole.size() > 10000);
  const TempFile cut(whole.substr(0, whole.size() / 2));
  CHECK_THAT(RefusalOfFile(cut.path()), Contains("the gzip data is cut short here"));
  whole[whole.size() / 2] = static_cast<char>(whole[whole.size() / 2] ^ 0x5A);
  whole[whole.size() / 2 + 1] = static_cast<char>(whole[whole.size() / 2 + 1] ^ 0x5A);
  const TempFile corrupt(whole);
  CHECK(RefusalOfFile(corrupt.path()) != "accepted");
}

}  // namespace
}  // namespace hmm::ctl
