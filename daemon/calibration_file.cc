// SPDX-License-Identifier: Apache-2.0
#include "daemon/calibration_file.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "copy/memory_copy.h"
#include "daemon/listen.h"
#include "daemon/text.h"
#include "daemon/topology_convert.h"
#include "hmm/v1/topology.pb.h"
#include "share/memory_file.h"

namespace hmm::daemon {
namespace {

constexpr std::streamsize kFileMax = 1 << 20;
constexpr std::string_view kVersion = "calibration 1";  // of how it is measured
constexpr std::string_view kChecksum = "\nxxh3 ";

std::string ChecksumLine(std::string_view text) {
  const std::uint64_t sum =
      copy::Checksum(reinterpret_cast<const std::byte*>(text.data()), text.size());
  return absl::StrFormat("%s%016x\n", ToAbsl(kChecksum), sum);
}

absl::Status Damaged(const std::string& path, std::string_view what) {
  return Error(absl::StatusCode::kDataLoss, Reason::kChecksum, Cat(path, " ", what));
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return PosixError(path, errno == 0 ? ENOENT : errno);
  std::string text(kFileMax + 1, '\0');
  file.read(text.data(), kFileMax + 1);
  if (file.bad() || file.gcount() > kFileMax) return Damaged(path, "cannot be a calibration");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// The first line of `a` that differs from `b`'s, for a person.
std::string FirstDifference(const std::string& then, const std::string& now) {
  const std::vector<std::string> a = absl::StrSplit(then, '\n');
  const std::vector<std::string> b = absl::StrSplit(now, '\n');
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string was = i < a.size() ? a[i] : "";
    const std::string is = i < b.size() ? b[i] : "";
    if (was != is) return Cat("then \"", was, "\", now \"", is, "\"");
  }
  return "nothing";
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 || line.rfind("CPU part", 0) == 0) return line;
  }
  return "unknown";
}

// What lies under a flash tier: the same for each start, another after the drive was changed.
std::string FileSystemOf(const std::string& path) {
  struct statfs info {};
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (statfs(directory.c_str(), &info) != 0) return "unknown";
  std::uint64_t id = 0;
  std::memcpy(&id, &info.f_fsid, std::min(sizeof(id), sizeof(info.f_fsid)));
  return absl::StrFormat("%x/%x", static_cast<std::uint64_t>(info.f_type), id);
}

}  // namespace

CalibrationFile::CalibrationFile(std::string path, std::string fingerprint,
                                 std::vector<std::string> names)
    : path_(std::move(path)), fingerprint_(std::move(fingerprint)), names_(std::move(names)) {}

absl::StatusOr<core::LinkMeasurement> CalibrationFile::Load() const {
  HMM_ASSIGN_OR_RETURN(const std::string text, ReadAll(path_));
  const std::size_t end = text.rfind(kChecksum);
  if (end == std::string::npos || text.substr(end) != ChecksumLine(text.substr(0, end))) {
    return Damaged(path_, "is not what was written");
  }
  v1::CalibrationRecord record;
  if (!google::protobuf::util::JsonStringToMessage(text.substr(0, end), &record).ok()) {
    return Damaged(path_, "is no calibration");
  }
  if (record.fingerprint() != fingerprint_) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                 Cat("the machine or the configuration has changed: ",
                     FirstDifference(record.fingerprint(), fingerprint_)));
  }
  core::LinkMeasurement measured;
  measured.from_file = true;
  measured.unix_ms = static_cast<std::int64_t>(record.measured_unix_ms());
  for (const v1::LinkModel& link : record.links()) {
    std::optional<copy::LinkModel> model = Decode(link, names_);
    if (!model.has_value()) {
      return Damaged(path_, Cat("has values of ", link.from(), "->", link.to(),
                                " that cannot have been measured"));
    }
    measured.links.push_back(*std::move(model));
  }
  return measured;
}

absl::Status CalibrationFile::Save(const std::vector<copy::LinkModel>& links,
                                   std::int64_t unix_ms) const {
  v1::CalibrationRecord record;
  record.set_fingerprint(fingerprint_);
  record.set_measured_unix_ms(static_cast<std::uint64_t>(unix_ms));
  for (const copy::LinkModel& link : links) Encode(link, names_, *record.add_links());
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(record, &text, options).ok()) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, "a calibration without its JSON");
  }
  text += ChecksumLine(text);
  HMM_RETURN_IF_ERROR(MakeDirectory(std::filesystem::path(path_).parent_path().string(), 0700));
  const std::string fresh = Cat(path_, ".new");
  const share::UniqueFd fd(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return PosixError(fresh, errno);
  const ssize_t written = write(fd.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    return PosixError(fresh, written < 0 ? errno : ENOSPC);
  }
  if (rename(fresh.c_str(), path_.c_str()) != 0) return PosixError(path_, errno);
  return absl::OkStatus();
}

std::string FingerprintOf(const Config& config, const std::string& engine,
                          const std::vector<std::string>& notes) {
  utsname system{};
  uname(&system);
  std::string out(kVersion);
  Append(out, "\nkernel: ", system.release, " ", system.version);
  Append(out, "\ncpus: ", sysconf(_SC_NPROCESSORS_ONLN), " of ", CpuModel());
  Append(out, "\nmemory copier: ", config.copy_threads, " threads");
  Append(out, "\nflash engine: ", engine, ", depth ", config.flash_depth, ", unit ",
         config.copy_io_unit);
  for (std::size_t i = 0; i < config.tiers.size(); ++i) {
    const TierConfig& tier = config.tiers[i];
    Append(out, "\ntier ", tier.name, ": ", tier.kind, tier.emulated ? " emulated" : "", ", node ",
           tier.numa_node, ", chunk ", tier.commit_chunk, ", link ", tier.link_bandwidth,
           ", demotes to ", tier.below.has_value() ? config.tiers[*tier.below].name : "nothing",
           ", ", notes[i]);
    if (tier.tier_kind == TierKind::kFlash) Append(out, ", file system ", FileSystemOf(tier.path));
  }
  return out;
}

}  // namespace hmm::daemon
