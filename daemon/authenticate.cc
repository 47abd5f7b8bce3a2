// SPDX-License-Identifier: Apache-2.0
#include "daemon/authenticate.h"

#include <algorithm>

#include "base/status.h"
#include "daemon/text.h"
#include "share/session_wire.h"

namespace hmm::daemon {

absl::StatusOr<SessionId> Authenticate(const core::Manager& manager,
                                       std::optional<std::string_view> token) {
  if (!token.has_value()) {
    return Error(absl::StatusCode::kUnauthenticated, Reason::kMissingToken,
                 Cat("metadata ", kTokenKey, " is missing; open a session first"));
  }
  if (token->size() != share::kTokenBytes) {
    return Error(absl::StatusCode::kUnauthenticated, Reason::kMissingToken,
                 Cat("metadata ", kTokenKey, " has ", token->size(), " bytes; a token has ",
                     share::kTokenBytes));
  }
  share::Token value;
  std::copy(token->begin(), token->end(), value.begin());
  const std::optional<SessionId> session = manager.FindSession(value);
  if (!session.has_value()) {
    return Error(absl::StatusCode::kUnauthenticated, Reason::kUnknownSession,
                 "the token names no live session; attach again");
  }
  return *session;
}

absl::Status CheckBatch(std::string_view field, int elements, std::size_t max) {
  if (static_cast<std::size_t>(elements) <= max) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
               Cat(field, " has ", elements, " elements; one call carries at most ", max));
}

}  // namespace hmm::daemon
