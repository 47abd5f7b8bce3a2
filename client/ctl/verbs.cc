// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/verbs.h"

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/daemon_link.h"
#include "client/ctl/printer.h"
#include "client/ctl/stop_signal.h"
#include "client/ctl/table.h"

namespace hmm::ctl {
namespace {

// Calls `page(response, first, last)` for each page of the list until it answers false.
template <typename Page>
absl::Status ForEachPage(DaemonLink& link, const std::string& tier, Page page) {
  std::string token;
  for (bool first = true;; first = false) {
    const absl::StatusOr<v1::ListTensorsResponse> got = link.ListTensors(tier, token);
    if (!got.ok()) return got.status();
    const bool last = got->next_page_token().empty();
    if (!last && got->next_page_token() == token) {
      return Error(absl::StatusCode::kInternal, Reason::kProtocol,
                   "the daemon gave the same page of tensors twice");
    }
    absl::StatusOr<bool> more = page(*got, first, last);
    if (!more.ok()) return more.status();
    if (last || !*more) return absl::OkStatus();
    token = got->next_page_token();
  }
}

absl::StatusOr<int> TierList(DaemonLink& link, Printer& printer, bool ids_only) {
  const absl::StatusOr<v1::ListTiersResponse> tiers = link.ListTiers();
  if (!tiers.ok()) return tiers.status();
  if (!ids_only) {
    HMM_RETURN_IF_ERROR(WriteOut(printer.Tiers(*tiers)));
    return 0;
  }
  std::string out;
  for (const v1::TierInfo& tier : tiers->tiers()) absl::StrAppend(&out, tier.name(), "\n");
  HMM_RETURN_IF_ERROR(WriteOut(out));
  return 0;
}

absl::StatusOr<int> TensorList(DaemonLink& link, Printer& printer, const Command& command) {
  const auto print = [&](const v1::ListTensorsResponse& page, bool first,
                         bool last) -> absl::StatusOr<bool> {
    std::string out;
    if (command.ids_only) {
      for (const v1::TensorInfo& tensor : page.tensors()) {
        absl::StrAppend(&out, tensor.handle(), "\n");
      }
    } else {
      out = printer.Tensors(page, first, last);
    }
    HMM_RETURN_IF_ERROR(WriteOut(out));
    return true;
  };
  HMM_RETURN_IF_ERROR(ForEachPage(link, command.tier, print));
  return 0;
}

absl::StatusOr<int> TensorShow(DaemonLink& link, Printer& printer, const std::string& id) {
  std::uint64_t handle = 0;
  if (!absl::SimpleAtoi(id, &handle)) handle = 0;
  std::optional<std::pair<std::uint64_t, v1::TensorInfo>> found;
  const auto look = [&](const v1::ListTensorsResponse& page, bool, bool) -> absl::StatusOr<bool> {
    for (const v1::TensorInfo& tensor : page.tensors()) {
      const bool by_key =
          !tensor.key().empty() && (tensor.key() == id || EscapeKey(tensor.key()) == id);
      const bool by_handle = handle != 0 && tensor.handle() == handle;
      if (!by_handle && !(by_key && !found)) continue;
      found = {page.epoch(), tensor};
      if (by_handle) return false;  // a handle is unique; a key may be another tenant's too
    }
    return true;
  };
  HMM_RETURN_IF_ERROR(ForEachPage(link, "", look));
  if (!found) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("tensor ", id, ": not found"));
  }
  HMM_RETURN_IF_ERROR(WriteOut(printer.Tensor(found->first, found->second)));
  return 0;
}

absl::StatusOr<int> SessionList(DaemonLink& link, Printer& printer, bool ids_only) {
  const absl::StatusOr<v1::ListSessionsResponse> sessions = link.ListSessions();
  if (!sessions.ok()) return sessions.status();
  std::string out;
  if (!ids_only) {
    out = printer.Sessions(*sessions);
  } else {
    for (const v1::SessionInfo& session : sessions->sessions()) {
      absl::StrAppend(&out, session.session(), "\n");
    }
  }
  HMM_RETURN_IF_ERROR(WriteOut(out));
  return 0;
}

absl::StatusOr<int> Stat(const Command& command, Printer& printer) {
  StopSignal stop;  // before gRPC starts its threads
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  std::optional<v1::GetStatusResponse> before;
  const std::uint64_t count = command.interval_s > 0 ? command.count : 1;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  auto next = std::chrono::steady_clock::now();
  for (std::uint64_t n = 1;; ++n) {
    absl::StatusOr<v1::GetStatusResponse> now = (*link)->GetStatus();
    if (!now.ok()) return now.status();
    HMM_RETURN_IF_ERROR(WriteOut(printer.Stat(MakeStatReport(before, *now))));
    if (n == count) return 0;
    before = *std::move(now);
    next += std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(command.interval_s));
    wake.wait_until(lock, stop.token(), next, [] { return false; });
    if (stop.token().stop_requested()) return 0;
  }
}

absl::StatusOr<int> WatermarkSet(DaemonLink& link, Printer& printer, const Command& command) {
  v1::SetWatermarksRequest request;
  request.set_tier(command.tier);
  request.set_high(command.high);
  request.set_low(command.low);
  if (command.reserve) request.set_reserve_bytes(*command.reserve);
  const absl::StatusOr<v1::SetWatermarksResponse> done = link.SetWatermarks(request);
  if (!done.ok()) return done.status();
  HMM_RETURN_IF_ERROR(WriteOut(printer.Watermarks(request, *done)));
  return 0;
}

absl::StatusOr<int> Evict(DaemonLink& link, Printer& printer, const Command& command) {
  v1::EvictRequest request;
  request.set_tier(command.tier);
  request.set_used_bytes_max(command.evict_to);
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(command.timeout_s * 1e3));
  const absl::StatusOr<v1::EvictResponse> done = link.Evict(request, timeout);
  if (!done.ok()) return done.status();
  HMM_RETURN_IF_ERROR(WriteOut(printer.Evict(command.tier, *done)));
  return 0;
}

}  // namespace

absl::Status WriteOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    // Whoever read us has seen enough (`| head`): nothing to complain about.
    if (errno == EPIPE) return absl::CancelledError("");
    return PosixError("standard output", errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunVerb(const Command& command) {
  const std::unique_ptr<Printer> printer = MakePrinter(command.format);
  if (command.verb == Verb::kStat) return Stat(command, *printer);
  absl::StatusOr<std::unique_ptr<DaemonLink>> connected = DaemonLink::Connect(command.dir);
  if (!connected.ok()) return connected.status();
  DaemonLink& link = **connected;
  switch (command.verb) {
    case Verb::kStatus: {
      const absl::StatusOr<v1::GetStatusResponse> status = link.GetStatus();
      if (!status.ok()) return status.status();
      HMM_RETURN_IF_ERROR(WriteOut(printer->Status(*status)));
      return 0;
    }
    case Verb::kTierList:
      return TierList(link, *printer, command.ids_only);
    case Verb::kTensorList:
      return TensorList(link, *printer, command);
    case Verb::kTensorShow:
      return TensorShow(link, *printer, command.tensor);
    case Verb::kSessionList:
      return SessionList(link, *printer, command.ids_only);
    case Verb::kEvict:
      return Evict(link, *printer, command);
    case Verb::kWatermarkSet:
      return WatermarkSet(link, *printer, command);
    case Verb::kDrain: {
      const absl::StatusOr<v1::DrainResponse> done = link.Drain(command.drain_off);
      if (!done.ok()) return done.status();
      HMM_RETURN_IF_ERROR(WriteOut(printer->Drain(command.drain_off, *done)));
      return 0;
    }
    default:
      break;
  }
  return Error(absl::StatusCode::kInternal, Reason::kInternal, "a verb without its code");
}

absl::StatusOr<int> Run(const Command& command) {
  switch (command.verb) {
    case Verb::kReplay:
      return RunReplay(command);
    case Verb::kPlan:
    case Verb::kPlanExplain:
    case Verb::kPlanDiff:
    case Verb::kPlanCheck:
    case Verb::kPlanLayout:
      return RunPlan(command);
    case Verb::kGraphModel:
    case Verb::kGraphShow:
      return RunGraph(command);
    default:
      return RunVerb(command);
  }
}

}  // namespace hmm::ctl
