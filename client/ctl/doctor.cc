// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/doctor.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/ctl/json_text.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;

int ProbeIoUring() {
  io_uring_params params{};
  const long fd = syscall(SYS_io_uring_setup, 1, &params);
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

int ProbeDirect(const std::string& dir) {
  // Never has a name, so that nothing can be left behind.
  int fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EOPNOTSUPP) {  // O_TMPFILE is what is missing
    std::string path = absl::StrCat(dir, "/.hmm-doctor.", getpid());
    fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    const int error = errno;
    if (fd >= 0) unlink(path.c_str());
    errno = error;
  }
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

std::string NearestDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error).lexically_normal();
  while (!std::filesystem::is_directory(at, error) && at.has_relative_path()) {
    at = at.parent_path();
  }
  if (!at.has_filename() && at.has_relative_path()) at = at.parent_path();  // "a/" is "a"
  const std::filesystem::path real = std::filesystem::canonical(at, error);
  return error ? at.string() : real.string();
}

std::filesystem::file_type TypeOf(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type();
}

const char* Word(Severity severity) {
  return severity == Severity::kOk ? "ok" : severity == Severity::kWarn ? "warn" : "BAD";
}

}  // namespace

DoctorProbes SystemProbes() {
  return {.io_uring = ProbeIoUring,
          .direct = ProbeDirect,
          .type = TypeOf,
          .existing = NearestDirectory};
}

std::string WholeFile(const DoctorQuestion& question, const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(question.root + "/" + path).rdbuf();
  return text.str();
}

std::string FirstLine(const DoctorQuestion& question, const std::string& path) {
  const std::string text = WholeFile(question, path);
  return text.substr(0, text.find('\n'));
}

std::string ProcessDir(const DoctorQuestion& question) {
  return question.daemon_pid ? absl::StrCat("proc/", *question.daemon_pid) : "proc/self";
}

Finding CheckDaemon(const DoctorQuestion& question) {
  const std::string pid =
      question.daemon_pid ? absl::StrCat(" (pid ", *question.daemon_pid, ")") : "";
  return {.check = "daemon",
          .severity = Severity::kBad,
          .found = absl::StrCat("a daemon is there", pid, ", but: ", question.no_answer),
          .costs = "hmmctl can neither look at it nor steer it, and clients most likely wait too",
          .mend = question.daemon_pid
                      ? absl::StrCat("kill -CONT ", *question.daemon_pid,
                                     "   # if it was stopped; else systemctl restart hmmd")
                      : "systemctl restart hmmd"};
}

std::vector<Finding> Examine(const DoctorQuestion& question, const DoctorProbes& probes) {
  std::vector<Finding> findings;
  if (!question.no_answer.empty()) findings.push_back(CheckDaemon(question));
  for (Finding& finding : std::vector<Finding>{
           CheckHugePages(question), CheckSharedHugePages(question), CheckMemlock(question),
           CheckFiles(question), CheckIoUring(question, probes), CheckCgroup(question),
           CheckFlash(question, probes)}) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::string DoctorTable(const std::vector<Finding>& findings, const TableStyle& style) {
  std::string out;
  for (const Finding& finding : findings) {
    std::string word = Word(finding.severity);
    const std::string padding(6 - word.size(), ' ');
    const Tint tint = finding.severity == Severity::kOk     ? Tint::kGood
                      : finding.severity == Severity::kWarn ? Tint::kWarn
                                                            : Tint::kBad;
    if (style.colour) word = Tinted(word, tint);
    absl::StrAppend(&out, word, padding, finding.check, ": ", finding.found, "\n");
    if (!finding.costs.empty()) absl::StrAppend(&out, "      costs: ", finding.costs, "\n");
    if (!finding.mend.empty()) absl::StrAppend(&out, "      mend:  ", finding.mend, "\n");
  }
  return out;
}

std::string DoctorJson(const std::vector<Finding>& findings) {
  ordered_json out;
  Severity worst = Severity::kOk;
  out["worst"] = "";
  out["checks"] = ordered_json::array();
  const auto word = [](Severity severity) {
    return severity == Severity::kBad ? "bad" : Word(severity);
  };
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.severity);
    ordered_json one;
    one["check"] = finding.check;
    one["severity"] = word(finding.severity);
    one["found"] = finding.found;
    one["costs"] = finding.costs;
    one["mend"] = finding.mend;
    out["checks"].push_back(std::move(one));
  }
  out["worst"] = word(worst);
  return Document(out);
}

}  // namespace hmm::ctl
