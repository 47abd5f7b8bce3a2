// SPDX-License-Identifier: Apache-2.0
//
// google.rpc.Status is read field by field instead of by its generated class: the class registers
// "google.rpc.Status" for the whole process, which aborts beside any other library that does too.
#include "client/lib/status_convert.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "hmm/v1/common.pb.h"

namespace hmm::client_internal {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr std::string_view kErrorInfo = "google.rpc.ErrorInfo";
constexpr std::string_view kRetryInfo = "google.rpc.RetryInfo";

// Calls on_bytes(field, text) and on_number(field, value) for the fields of a serialised message.
// False when it is malformed.
template <typename OnBytes, typename OnNumber>
bool ForEachField(const std::string& message, OnBytes on_bytes, OnNumber on_number) {
  if (message.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  while (const std::uint32_t tag = in.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT: {
        std::uint64_t value = 0;
        if (!in.ReadVarint64(&value)) return false;
        on_number(field, value);
        break;
      }
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        std::uint32_t size = 0;
        std::string text;
        if (!in.ReadVarint32(&size) || size > message.size()) return false;
        if (!in.ReadString(&text, static_cast<int>(size))) return false;
        on_bytes(field, text);
        break;
      }
      default:
        if (!WireFormatLite::SkipField(&in, tag)) return false;
    }
  }
  return in.ConsumedEntireMessage();
}

constexpr auto kNoBytes = [](int, const std::string&) {};
constexpr auto kNoNumber = [](int, std::uint64_t) {};

struct Details {
  std::optional<Reason> reason;
  std::chrono::milliseconds retry{0};
};

// google.protobuf.Duration {1 seconds, 2 nanos}.
std::chrono::milliseconds DurationOf(const std::string& message) {
  std::uint64_t seconds = 0;
  std::uint64_t nanos = 0;
  ForEachField(message, kNoBytes, [&](int field, std::uint64_t value) {
    if (field == 1) seconds = value;
    if (field == 2) nanos = value;
  });
  // More than a year, or negative, is nonsense.
  if (seconds > 366u * 86400u || nanos >= 1'000'000'000u) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(seconds * 1000 + nanos / 1'000'000);
}

// google.protobuf.Any {1 type_url, 2 value}.
void ReadDetail(const std::string& any, Details& out) {
  std::string url;
  std::string value;
  const auto take = [&](int field, const std::string& text) {
    if (field == 1) url = text;
    if (field == 2) value = text;
  };
  if (!ForEachField(any, take, kNoNumber)) return;
  const std::string_view type = std::string_view(url).substr(url.rfind('/') + 1);
  if (type == kErrorInfo) {
    ForEachField(
        value,
        [&](int field, const std::string& text) {
          if (field == 1) out.reason = ReasonFromName(text);
        },
        kNoNumber);
    // A reason of a newer daemon: it did come from there.
    if (!out.reason.has_value()) out.reason = Reason::kInternal;
  } else if (type == kRetryInfo) {
    ForEachField(
        value,
        [&](int field, const std::string& text) {
          if (field == 1) out.retry = DurationOf(text);
        },
        kNoNumber);
  }
}

Details ReadDetails(const std::string& status) {
  Details details;
  ForEachField(
      status,
      [&](int field, const std::string& text) {
        if (field == 3) ReadDetail(text, details);
      },
      kNoNumber);
  return details;
}

absl::StatusCode CodeOf(int code) {
  return code >= 1 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

}  // namespace

absl::Status DecodeGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = CodeOf(static_cast<int>(status.error_code()));
  const Details details = ReadDetails(status.error_details());
  if (!details.reason.has_value()) {
    // Cancelled, but by no word of the daemon and not by us: its server went away while the call
    // was on its way.
    if (code == absl::StatusCode::kCancelled) return absl::UnavailableError(status.error_message());
    return absl::Status(code, status.error_message());
  }
  absl::Status out = Error(code, *details.reason, status.error_message());
  return details.retry.count() > 0 ? WithRetry(std::move(out), details.retry) : out;
}

bool IsTransportError(const absl::Status& status) {
  return !status.ok() && !ReasonOf(status).has_value();
}

absl::Status WithTransportReason(absl::Status status) {
  if (!IsTransportError(status)) return status;
  Reason reason = Reason::kInternal;
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      reason = Reason::kDeadline;
      break;
    case absl::StatusCode::kUnavailable:
      reason = Reason::kNoDaemon;
      break;
    case absl::StatusCode::kResourceExhausted:  // gRPC's own: a message beyond its size limit
    case absl::StatusCode::kUnimplemented:
      reason = Reason::kProtocol;
      break;
    default:
      break;
  }
  return Error(status.code(), reason, std::string(status.message()));
}

absl::Status FromGrpc(const grpc::Status& status) {
  return WithTransportReason(DecodeGrpc(status));
}

absl::Status FromElement(const v1::ElementError& error) {
  if (error.code() == 0) return absl::OkStatus();
  absl::Status out =
      Error(CodeOf(error.code()), ReasonFromName(error.reason()).value_or(Reason::kInternal),
            error.message());
  return error.retry_ms() > 0
             ? WithRetry(std::move(out), std::chrono::milliseconds(error.retry_ms()))
             : out;
}

std::shared_ptr<grpc::Channel> UnixChannel(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Retries are ours: only we know which calls may be repeated.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel("unix:" + socket_path, grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::string RuntimeDir(const std::string& dir) {
  if (!dir.empty()) return dir;
  const char* from_environment = std::getenv("HMM_DIR");
  if (from_environment != nullptr && *from_environment != '\0') return from_environment;
  return "/run/hmm";
}

}  // namespace hmm::client_internal
