// SPDX-License-Identifier: Apache-2.0
// A directory of a test's own, gone with all that is in it when the test ends.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.h"

namespace hmm::testing {

class TempDir {
 public:
  TempDir() {
    const char* parent = std::getenv("TMPDIR");
    path_ = std::string(parent != nullptr ? parent : "/tmp") + "/hmm_test.XXXXXX";
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() {
    std::error_code ignored;  // an error here must not hide the test's own
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file below the directory, making the folders it lies in.
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = File(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    REQUIRE(std::filesystem::exists(file));
  }

 private:
  std::string path_;
};

}  // namespace hmm::testing
