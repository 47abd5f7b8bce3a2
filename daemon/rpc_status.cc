// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc_status.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "daemon/text.h"
#include "google/rpc/errors.pb.h"

namespace hmm::daemon {
namespace {

template <typename Message>
void AddDetail(const Message& message, google::rpc::Status& status) {
  google::protobuf::Any& any = *status.add_details();
  any.set_type_url(Cat("type.googleapis.com/", Message::descriptor()->full_name()));
  message.SerializeToString(any.mutable_value());
}

}  // namespace

std::string PrintableMessage(std::string_view text, std::size_t max) {
  std::string out;
  for (const char c : text) {
    const bool printable = c >= 0x20 && c < 0x7f;
    if (out.size() + (printable ? 1 : 4) + 3 > max) return out + "...";
    if (printable) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return out;
}

grpc::Status ToGrpcStatus(const absl::Status& status, std::uint64_t epoch) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(status.code()));
  rich.set_message(PrintableMessage(MessageOf(status), kMessageBytesMax));

  google::rpc::ErrorInfo info;
  info.set_reason(std::string(ReasonName(ReasonOf(status).value_or(Reason::kInternal))));
  info.set_domain("hmm");
  // Tells a client whose session is unknown that the daemon was restarted.
  (*info.mutable_metadata())["epoch"] = Cat(epoch);
  // Bounded: beside a message of kMessageBytesMax all details must stay below 4 KiB.
  constexpr std::size_t kDetailsMax = 8;
  constexpr std::size_t kDetailBytesMax = 128;
  std::size_t left = kDetailsMax;
  for (const auto& [key, value] : DetailsOf(status)) {
    if (left-- == 0) break;
    (*info.mutable_metadata())[PrintableMessage(key, kDetailBytesMax)] =
        PrintableMessage(value, kDetailBytesMax);
  }
  AddDetail(info, rich);
  if (const auto delay = RetryAfter(status)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(delay->count() / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int>(delay->count() % 1000) * 1'000'000);
    AddDetail(retry, rich);
  }
  return {static_cast<grpc::StatusCode>(status.code()), rich.message(), rich.SerializeAsString()};
}

}  // namespace hmm::daemon
