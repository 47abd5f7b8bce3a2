// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace hmm {
namespace {

constexpr absl::string_view kReasonUrl = "hmm/reason";
constexpr absl::string_view kDetailUrl = "hmm/detail/";
constexpr absl::string_view kRetryUrl = "hmm/retry_ms";

// Debian builds absl with a string_view of its own, which std's does not convert to.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case ENOSPC:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EDQUOT:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    case ECONNREFUSED:
    case EPIPE:
    case ECONNRESET:
      return absl::StatusCode::kUnavailable;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::string_view ReasonName(Reason reason) {
  switch (reason) {
#define HMM_X(name, wire, text) \
  case Reason::k##name:         \
    return wire;
    HMM_REASONS(HMM_X)
#undef HMM_X
  }
  return "UNKNOWN";
}

std::optional<Reason> ReasonFromName(std::string_view name) {
#define HMM_X(enumerator, wire, text) \
  if (name == wire) return Reason::k##enumerator;
  HMM_REASONS(HMM_X)
#undef HMM_X
  return std::nullopt;
}

absl::Status Error(absl::StatusCode code, Reason reason, std::string_view message) {
  HMM_CHECK(code != absl::StatusCode::kOk);
  absl::Status status(code, View(message));
  status.SetPayload(kReasonUrl, absl::Cord(View(ReasonName(reason))));
  return status;
}

absl::Status WithRetry(absl::Status status, std::chrono::milliseconds delay) {
  if (!status.ok()) status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(delay.count())));
  return status;
}

absl::Status WithDetail(absl::Status status, std::string_view key, std::string_view value) {
  if (!status.ok()) status.SetPayload(absl::StrCat(kDetailUrl, View(key)), absl::Cord(View(value)));
  return status;
}

std::map<std::string, std::string> DetailsOf(const absl::Status& status) {
  std::map<std::string, std::string> details;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (url.substr(0, kDetailUrl.size()) != kDetailUrl) return;
    details.emplace(std::string(url.substr(kDetailUrl.size())), std::string(payload));
  });
  return details;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(View(context), ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return std::nullopt;
  return ReasonFromName(std::string(*payload));
}

std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryUrl);
  std::int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms)) return std::nullopt;
  return std::chrono::milliseconds(ms);
}

absl::Status PosixError(std::string_view context, int error) {
  return Error(CodeOf(error), Reason::kIo,
               absl::StrCat(View(context), ": ", std::generic_category().message(error)));
}

}  // namespace hmm
