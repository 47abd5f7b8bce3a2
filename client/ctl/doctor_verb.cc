// SPDX-License-Identifier: Apache-2.0
//
// hmmctl doctor.
#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/status.h"
#include "client/ctl/doctor.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {
namespace {

// A daemon that works answers at once; who asks a doctor suspects that it does not.
constexpr std::chrono::milliseconds kPatience{2000};

// What the daemon says of itself, if one runs. Without it the doctor works on.
void AskDaemon(const std::string& dir, DoctorQuestion& question) {
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(dir);
  if (!link.ok()) return;
  std::uint32_t pid = 0;
  if (std::ifstream(dir + "/hmmd.lock") >> pid && pid > 0) question.daemon_pid = pid;
  const absl::StatusOr<v1::ListTiersResponse> tiers = (*link)->ListTiers(kPatience);
  if (!tiers.ok()) {
    question.no_answer = std::string(tiers.status().message());
    return;
  }
  for (const v1::TierInfo& tier : tiers->tiers()) {
    question.tiers.push_back(
        {tier.name(), KindWord(tier.kind()), tier.capacity_bytes(), tier.note()});
  }
}

}  // namespace

absl::StatusOr<int> RunDoctor(const Command& command) {
  DoctorQuestion question;
  question.root = command.doctor.root;
  if (!command.doctor.flash.empty()) question.flash = command.doctor.flash;
  AskDaemon(command.dir, question);
  const std::vector<Finding> findings = Examine(question, SystemProbes());
  HMM_RETURN_IF_ERROR(WriteOut(command.format == Format::kJson
                                   ? DoctorJson(findings)
                                   : DoctorTable(findings, command.style)));
  const bool bad = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::kBad;
  });
  return bad ? 1 : 0;
}

}  // namespace hmm::ctl
