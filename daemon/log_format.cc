// SPDX-License-Identifier: Apache-2.0
#include "daemon/log_format.h"

#include <google/protobuf/stubs/logging.h>
#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/rpc_status.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

struct Level {
  std::string_view name;
  spdlog::level::level_enum value;
  int priority;  // of syslog, as journald has it
};
constexpr std::array<Level, 7> kLevels = {{{"trace", spdlog::level::trace, 7},
                                           {"debug", spdlog::level::debug, 7},
                                           {"info", spdlog::level::info, 6},
                                           {"warn", spdlog::level::warn, 4},
                                           {"error", spdlog::level::err, 3},
                                           {"critical", spdlog::level::critical, 2},
                                           {"off", spdlog::level::off, 6}}};

const Level& LevelOf(spdlog::level::level_enum value) {
  for (const Level& level : kLevels) {
    if (level.value == value) return level;
  }
  return kLevels[2];
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Text of clients and names of files may be in a message: nothing in it may end the line or the
// string, and a reader of JSON takes nothing but UTF-8.
void AppendEscaped(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    const std::size_t length = Utf8Length(text);
    if (byte == '"' || byte == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out += length == 0 ? kReplacement : text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    const auto since = message.time.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
    const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since - seconds);
    const std::time_t when = seconds.count();
    std::tm utc{};
    gmtime_r(&when, &utc);
    const Level& level = LevelOf(message.level);
    std::string line = absl::StrFormat(
        "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\",\"level\":\"%s\",\"priority\":%d,"
        "\"pid\":%d,\"message\":\"",
        utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
        static_cast<int>(millis.count()), ToAbsl(level.name), level.priority,
        static_cast<int>(getpid()));
    AppendEscaped({message.payload.data(), message.payload.size()}, line);
    line += "\"}\n";
    to.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

}  // namespace

std::unique_ptr<spdlog::formatter> MakeLogFormatter(std::string_view format) {
  if (format == "json") return std::make_unique<JsonFormatter>();
  HMM_CHECK(format == "text");
  return std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%e %l %v");
}

void QuietProtobuf() {
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel level, const char* /*file*/,
                                     int /*line*/, const std::string& message) {
    // What is fatal aborts after this.
    spdlog::log(
        level == google::protobuf::LOGLEVEL_FATAL ? spdlog::level::critical : spdlog::level::debug,
        "protobuf: {}", PrintableMessage(message, kMessageBytesMax));
  });
}

std::string LogLevel() { return std::string(LevelOf(spdlog::get_level()).name); }

absl::Status SetLogLevel(std::string_view name) {
  std::string known;
  for (const Level& level : kLevels) {
    if (level.name == name) {
      spdlog::set_level(level.value);
      return absl::OkStatus();
    }
    Append(known, known.empty() ? "" : ", ", level.name);
  }
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               Cat("no log level '", name, "'; there are: ", known));
}

}  // namespace hmm::daemon
