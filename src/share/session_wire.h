// SPDX-License-Identifier: Apache-2.0
//
// The session socket (SOCK_SEQPACKET, unix). One datagram is one message; all are fixed structs.
//
//   client -> daemon  Hello                       first, within the daemon's handshake time-out
//   daemon -> client  Welcome + 2 descriptors     [0] residency table (read only), [1] session page
//                     or Refusal, then EOF
//   client -> daemon  SegmentRequest              pulls one segment by id
//   daemon -> client  SegmentReply + 1 descriptor, or without one when `status` is not 0
//   client -> daemon  AttachRequest + 1 descriptor    a memory file of its own becomes a region
//   daemon -> client  AttachReply
//   client -> daemon  EventsRequest               asks for the bell that says: a job ended
//   daemon -> client  EventsReply + 1 descriptor, or without one when `status` is not 0
//   client -> daemon  Goodbye                     last: nothing of this session is touched any more
//
// Anything else (wrong magic, size, type) is answered by closing the socket. EOF makes the session
// CLOSING; only its Goodbye or the death of the process (pidfd) reaps it.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/ids.h"

namespace hmm::share {

inline constexpr std::uint32_t kWireMagic = 0x53444d48;  // "HMDS"
inline constexpr std::size_t kTokenBytes = 16;
using Token = std::array<std::uint8_t, kTokenBytes>;

enum class WireType : std::uint32_t {
  kHello = 1,
  kWelcome = 2,
  kRefusal = 3,
  kSegmentRequest = 4,
  kSegmentReply = 5,
  kGoodbye = 6,
  kAttachRequest = 7,
  kAttachReply = 8,
  kEventsRequest = 9,
  kEventsReply = 10,
};

struct WireHeader {
  std::uint32_t magic = kWireMagic;
  WireType type = WireType::kHello;
};

struct Hello {
  WireHeader header{kWireMagic, WireType::kHello};
  std::uint32_t abi_version = 0;
  std::array<char, 16> device{};  // name of the HBM tier this session works on; empty: the first
};

struct Welcome {
  WireHeader header{kWireMagic, WireType::kWelcome};
  std::uint32_t abi_version = 0;
  std::uint32_t max_tensors = 0;
  std::uint64_t boot_epoch = 0;
  SessionId session = 0;
  std::uint32_t tier_count = 0;
  Token token{};
  // Names of the tiers by TierId, so that Pin::tier() needs no call.
  std::array<std::array<char, 16>, 16> tier_names{};
};

struct Refusal {
  WireHeader header{kWireMagic, WireType::kRefusal};
  std::uint32_t code = 0;  // absl::StatusCode
  std::uint32_t abi_version = 0;
  std::array<char, 24> reason{};    // ReasonName
  std::array<char, 224> message{};  // for a person, NUL-terminated
};

struct SegmentRequest {
  WireHeader header{kWireMagic, WireType::kSegmentRequest};
  SegmentId segment = 0;
};

struct SegmentReply {
  WireHeader header{kWireMagic, WireType::kSegmentReply};
  SegmentId segment = 0;
  std::uint32_t status = 0;  // absl::StatusCode; a segment of another tenant is NOT_FOUND
  std::uint64_t bytes = 0;   // size to map
};

// Comes with the descriptor of a memfd sealed with F_SEAL_SHRINK | F_SEAL_GROW, of normal pages.
// The daemon maps it and closes the descriptor.
struct AttachRequest {
  WireHeader header{kWireMagic, WireType::kAttachRequest};
  std::uint64_t region = 0;  // chosen by the client; > 0, unique in the session
  std::uint64_t bytes = 0;   // of the region, from the file's start; > 0
};

struct AttachReply {
  WireHeader header{kWireMagic, WireType::kAttachReply};
  std::uint64_t region = 0;
  std::uint32_t status = 0;  // absl::StatusCode
  std::uint32_t reserved = 0;
  std::array<char, 24> reason{};    // ReasonName
  std::array<char, 224> message{};  // for a person, NUL-terminated
};

struct EventsRequest {
  WireHeader header{kWireMagic, WireType::kEventsRequest};
};

// Its descriptor polls readable when a job of the session ended (share/bell.h). A later request
// makes another one; the earlier hears nothing any more.
struct EventsReply {
  WireHeader header{kWireMagic, WireType::kEventsReply};
  std::uint32_t status = 0;  // absl::StatusCode
};

// The client has unmapped its segments and holds no pin: its session ends as if its process had. A
// client that lies hurts its own tenant, as with any word in its page.
struct Goodbye {
  WireHeader header{kWireMagic, WireType::kGoodbye};
};

static_assert(std::is_trivially_copyable_v<Hello> && std::is_trivially_copyable_v<Welcome> &&
              std::is_trivially_copyable_v<Refusal> && std::is_trivially_copyable_v<SegmentReply> &&
              std::is_trivially_copyable_v<AttachReply>);

inline constexpr std::size_t kMaxTiers = 16;
inline constexpr std::size_t kTierNameMax = 15;

}  // namespace hmm::share
