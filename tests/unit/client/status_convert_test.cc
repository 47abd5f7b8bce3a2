// SPDX-License-Identifier: Apache-2.0
#include "client/lib/status_convert.h"

#include <grpcpp/support/status.h>

#include <chrono>

#include "base/status.h"
#include "google/rpc/errors.pb.h"
#include "hmm/v1/common.pb.h"
#include "support/catch.h"

namespace hmm::client_internal {
namespace {

using std::chrono::milliseconds;

grpc::Status WithDetails(grpc::StatusCode code, const std::string& reason, milliseconds retry) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message("words");
  if (!reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain("hmm");
    (*info.mutable_metadata())["tier"] = "hbm0";
    details.add_details()->PackFrom(info);
  }
  if (retry.count() > 0) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(retry.count() / 1000);
    info.mutable_retry_delay()->set_nanos(static_cast<int>(retry.count() % 1000) * 1'000'000);
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(code, "words", details.SerializeAsString());
}

TEST_CASE("reason and retry delay are read from the details") {
  const absl::Status status =
      DecodeGrpc(WithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED, "FULL", milliseconds(1250)));
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(status.message() == "words");
  CHECK(ReasonOf(status) == Reason::kFull);
  CHECK(RetryAfter(status) == milliseconds(1250));
  CHECK_FALSE(IsTransportError(status));
}

TEST_CASE("without a retry delay there is none") {
  const absl::Status status =
      DecodeGrpc(WithDetails(grpc::StatusCode::ABORTED, "LOST", milliseconds(0)));
  CHECK(ReasonOf(status) == Reason::kLost);
  CHECK_FALSE(RetryAfter(status).has_value());
}

TEST_CASE("a reason we do not know still says that the daemon spoke") {
  const absl::Status status =
      DecodeGrpc(WithDetails(grpc::StatusCode::UNAVAILABLE, "OF_TOMORROW", milliseconds(0)));
  CHECK_FALSE(IsTransportError(status));
}

TEST_CASE("a status without details came from the transport") {
  const absl::Status raw = DecodeGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no connection"));
  CHECK(IsTransportError(raw));
  CHECK(ReasonOf(WithTransportReason(raw)) == Reason::kNoDaemon);
  CHECK(ReasonOf(FromGrpc(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "late"))) ==
        Reason::kDeadline);
  // Nobody here cancels: a server that went away did.
  const absl::Status dropped = FromGrpc(grpc::Status(grpc::StatusCode::CANCELLED, ""));
  CHECK(absl::IsUnavailable(dropped));
  CHECK(ReasonOf(dropped) == Reason::kNoDaemon);
  CHECK(ReasonOf(FromGrpc(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "big"))) ==
        Reason::kProtocol);
}

TEST_CASE("OK stays OK") {
  CHECK(DecodeGrpc(grpc::Status::OK).ok());
  CHECK_FALSE(IsTransportError(absl::OkStatus()));
  CHECK(WithTransportReason(absl::OkStatus()).ok());
}

TEST_CASE("malformed details are as none") {
  const std::string good =
      WithDetails(grpc::StatusCode::UNAVAILABLE, "DRAINING", milliseconds(7)).error_details();
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    for (const std::string& bytes : {good.substr(0, cut), good.substr(cut + 1)}) {
      const absl::Status status =
          DecodeGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "words", bytes));
      CHECK(status.code() == absl::StatusCode::kUnavailable);
    }
  }
  const absl::Status absurd = DecodeGrpc(
      WithDetails(grpc::StatusCode::UNAVAILABLE, "DRAINING", std::chrono::hours(24) * 10'000));
  CHECK_FALSE(RetryAfter(absurd).has_value());
}

TEST_CASE("an element's error carries what a call's would") {
  v1::ElementError error;
  CHECK(FromElement(error).ok());
  error.set_code(8);
  error.set_reason("QUOTA");
  error.set_message("over");
  error.set_retry_ms(20);
  const absl::Status status = FromElement(error);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReasonOf(status) == Reason::kQuota);
  CHECK(status.message() == "over");
  CHECK(RetryAfter(status) == milliseconds(20));
  error.set_code(4711);
  CHECK(FromElement(error).code() == absl::StatusCode::kUnknown);
}

TEST_CASE("the runtime directory: given, from the environment, the default") {
  REQUIRE(unsetenv("HMM_DIR") == 0);
  CHECK(RuntimeDir("") == "/run/hmm");
  REQUIRE(setenv("HMM_DIR", "/tmp/there", 1) == 0);
  CHECK(RuntimeDir("") == "/tmp/there");
  CHECK(RuntimeDir("/tmp/here") == "/tmp/here");
  REQUIRE(unsetenv("HMM_DIR") == 0);
}

}  // namespace
}  // namespace hmm::client_internal
