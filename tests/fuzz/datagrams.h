// SPDX-License-Identifier: Apache-2.0
//
// Datagrams of the session socket made by a script, for the targets of both its ends: whole, cut,
// lengthened, changed or of random bytes, and with descriptors of every kind.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fuzz/script.h"
#include "share/memory_file.h"

namespace hmm::fuzz {

// Files to send along. Made once; `Number` picks one of them, which stays ours.
class Descriptors {
 public:
  Descriptors();
  int Number(std::size_t which) const { return fds_[which % fds_.size()].get(); }
  // Up to 5 of them, mostly none.
  std::vector<int> Some(Script& script) const;

 private:
  std::vector<share::UniqueFd> fds_;
};

// The bytes as they are, or spoilt.
std::string Spoil(std::string bytes, Script& script);

// Never blocks. False: the peer is gone, or does not read.
bool SendDatagram(int socket, const std::string& bytes, std::span<const int> descriptors);

// Takes all that waits and closes the descriptors that came along; false at the end of it all.
bool TakeDatagrams(int socket, std::string* last = nullptr);

// A name for sockets that no file stands for, of this process alone.
std::string AbstractName(const std::string& word);

// A listening SOCK_SEQPACKET, and a connection to it. Both do not block; failures end the program.
share::UniqueFd ListenAt(const std::string& path);
share::UniqueFd ConnectTo(const std::string& path);

// What this process has open: "7 -> socket:[1234]". But for pipes, which nobody sends here: the
// sanitizers talk through them to their symbolizer, which starts at some time.
std::vector<std::string> OpenDescriptors();

}  // namespace hmm::fuzz
