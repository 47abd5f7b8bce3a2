// SPDX-License-Identifier: Apache-2.0
//
// torture_victims as a child: commands go in, answers come back. Dead when the object goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace hmm::testing {

class VictimHost {
 public:
  VictimHost(const std::string& binary, const std::string& dir);
  ~VictimHost();
  VictimHost(const VictimHost&) = delete;
  VictimHost& operator=(const VictimHost&) = delete;

  // The answer to one command, or that the host is gone. One thread at a time; asserts nothing.
  std::string Ask(const std::string& command);

 private:
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

}  // namespace hmm::testing
