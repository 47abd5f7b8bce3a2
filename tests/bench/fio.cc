// SPDX-License-Identifier: Apache-2.0
#include "bench/fio.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::bench {

absl::StatusOr<double> RunFio(const FioJob& job) {
  const std::string command = absl::StrCat(
      "fio --name=limit --thread --ioengine=io_uring --direct=1 --mem=mmapshared --filename='",
      job.file, "' --rw=", job.write ? "write" : "read", " --bs=", job.block,
      " --iodepth=", job.depth, " --size=", job.bytes,
      " --overwrite=1 --output-format=json 2>/dev/null");
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return PosixError("popen", errno);
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 "no fio here: apt-get install fio");
  }
  const auto json = nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())),
                                          nullptr, /*allow_exceptions=*/false);
  const auto rate = nlohmann::json::json_pointer(
      absl::StrCat("/jobs/0/", job.write ? "write" : "read", "/bw_bytes"));
  if (status != 0 || json.is_discarded() || !json.contains(rate)) {
    return Error(absl::StatusCode::kInternal, Reason::kIo, absl::StrCat("failed: ", command));
  }
  return json.at(rate).get<double>();
}

}  // namespace hmm::bench
