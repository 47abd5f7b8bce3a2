// SPDX-License-Identifier: Apache-2.0
//
// Inputs of fuzz_rpc: a list of calls. The methods are those of the services' own descriptors, so
// that a new one is called without a word here.
//
//   [method u8][flags u8][bytes u16, little-endian][message] ...
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hmm::fuzz {

struct RpcRecord {
  std::uint8_t method = 0;  // modulo the number of methods
  std::uint8_t flags = 0;
  std::string message;
};
inline constexpr std::uint8_t kFlagWhoMask =
    3;                                         // 0, 1: a session; 2: one of another tenant; 3: none
inline constexpr std::uint8_t kFlagRaw = 4;    // the bytes as they are
inline constexpr std::uint8_t kFlagAdmin = 8;  // where both servers have the service
inline constexpr std::uint8_t kFlagPass = 16;  // copies end and time passes after it
inline constexpr std::uint8_t kFlagGiveUp = 32;  // the client cancels it at once
inline constexpr std::uint8_t kFlagDie = 64;     // the session's process dies after it

std::vector<RpcRecord> ParseRpcScript(std::string_view bytes);
std::string FormatRpcScript(const std::vector<RpcRecord>& records);

// All methods of all files that declare services, in a fixed order.
const std::vector<const google::protobuf::MethodDescriptor*>& RpcMethods();
const google::protobuf::MethodDescriptor& MethodOf(const RpcRecord& record);
// An empty message of a generated type.
std::unique_ptr<google::protobuf::Message> NewMessage(const google::protobuf::Descriptor& type);

// Scripts that call every method with something in every field.
std::vector<std::string> RpcSeeds();

}  // namespace hmm::fuzz
