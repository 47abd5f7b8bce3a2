// SPDX-License-Identifier: Apache-2.0
//
// What an earlier start measured of the links: <state_dir>/calibration.json, JSON of
// CalibrationRecord and a line with its checksum. It is believed only while the fingerprint of
// machine and configuration is the same; one that is damaged is as good as none.
//
// Any thread, one at a time.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config.h"
#include "hmm/types.h"

namespace hmm::daemon {

class CalibrationFile {
 public:
  // `fingerprint`: lines of "what: value" (FingerprintOf). `names`: of the tiers, by id.
  CalibrationFile(std::string path, std::string fingerprint, std::vector<std::string> names);

  const std::string& path() const { return path_; }

  // NOT_FOUND: there is none. FAILED_PRECONDITION: of another machine or configuration, the message
  // names the first difference. DATA_LOSS: damaged, or of values that nobody can have measured.
  absl::StatusOr<core::LinkMeasurement> Load() const;
  // Replaces the file as a whole. Makes its directory.
  absl::Status Save(const std::vector<copy::LinkModel>& links, std::int64_t unix_ms) const;

 private:
  const std::string path_;
  const std::string fingerprint_;
  const std::vector<std::string> names_;
};

// Kernel, CPUs, copiers, and of each tier what its links depend on: not its capacity.
// `engine`: FlashEngine::note; `notes`: Tier::note by tier.
std::string FingerprintOf(const Config& config, const std::string& engine,
                          const std::vector<std::string>& notes);

}  // namespace hmm::daemon
