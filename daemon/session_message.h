// SPDX-License-Identifier: Apache-2.0
//
// Datagrams of the session socket: checked reading, and sending with descriptors. Never blocks. Any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/stray_fd.h"
#include "hmm/types.h"
#include "share/session_wire.h"

namespace hmm::daemon {

struct NothingYet {};
struct EndOfFile {};
struct Attach {
  share::AttachRequest request;
  share::UniqueFd file;  // invalid: none came, or no descriptor was free
};
using SessionMessage = std::variant<NothingYet, EndOfFile, share::Hello, share::SegmentRequest,
                                    Attach, share::EventsRequest, share::Goodbye>;

// INVALID_ARGUMENT/PROTOCOL for anything that is no message a client may send: wrong size, magic or
// type. Descriptors that come along are closed, but for the one of an Attach.
absl::StatusOr<SessionMessage> ReceiveMessage(int socket, StrayFds& strays);

// Errors: errno's words; a peer that does not read is UNAVAILABLE.
absl::Status SendMessage(int socket, std::span<const std::byte> message,
                         std::span<const int> descriptors);
template <typename Struct>
absl::Status SendMessage(int socket, const Struct& message, std::span<const int> descriptors = {}) {
  return SendMessage(socket, std::as_bytes(std::span(&message, 1)), descriptors);
}

// The HBM tier that a Hello names. INVALID_ARGUMENT/PROTOCOL when it is no name,
// FAILED_PRECONDITION/ PROTOCOL for another ABI version.
absl::StatusOr<std::string> CheckHello(const share::Hello& hello);

share::AttachReply MakeAttachReply(std::uint64_t region, const absl::Status& status);
share::Refusal MakeRefusal(const absl::Status& status);
share::Welcome MakeWelcome(const core::SessionGrant& grant, std::uint64_t boot_epoch);

}  // namespace hmm::daemon
