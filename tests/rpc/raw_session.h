// SPDX-License-Identifier: Apache-2.0
//
// The session socket as a client without a library sees it: bytes in, bytes out. Blocking, bounded
// by the test's own time-out. One thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "share/memory_file.h"
#include "share/session_wire.h"

namespace hmm::testing {

class RawSession {
 public:
  // Connects; says nothing yet.
  explicit RawSession(const std::string& dir);

  int fd() const { return socket_.get(); }
  void Send(std::span<const std::byte> bytes);
  template <typename Struct>
  void SendStruct(const Struct& message) {
    Send(std::as_bytes(std::span(&message, 1)));
  }

  struct Received {
    std::vector<std::byte> bytes;  // empty: the daemon closed
    std::vector<share::UniqueFd> descriptors;
    template <typename Struct>
    std::optional<Struct> As() const {
      if (bytes.size() != sizeof(Struct)) return std::nullopt;
      Struct out;
      std::memcpy(&out, bytes.data(), sizeof out);
      return out;
    }
  };
  Received Receive();

  // Hello, then the welcome. REQUIREs that it is welcome with its two descriptors.
  share::Welcome Attach(const std::string& device = "");
  // A Hello that fits this daemon.
  static share::Hello GoodHello();

  void Close() { socket_.Reset(); }

 private:
  share::UniqueFd socket_;
  std::vector<share::UniqueFd> mapped_;
};

// As RawSession's constructor; -1 with errno when it is refused.
int ConnectUnix(const std::string& path, int type);

}  // namespace hmm::testing
