// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/verbs.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/ctl/daemon_link.h"
#include "client/ctl/printer.h"
#include "client/ctl/select.h"
#include "client/ctl/table.h"

namespace hmm::ctl {
namespace {

// Calls `page(response, first, last)` for each page of the list until it answers false.
template <typename Page>
absl::Status ForEachPage(DaemonLink& link, v1::ListTensorsRequest query, Page page) {
  for (bool first = true;; first = false) {
    const absl::StatusOr<v1::ListTensorsResponse> got = link.ListTensors(query);
    if (!got.ok()) return got.status();
    const bool last = got->next_page_token().empty();
    if (!last && got->next_page_token() == query.page_token()) {
      return Error(absl::StatusCode::kInternal, Reason::kProtocol,
                   "the daemon gave the same page of tensors twice");
    }
    absl::StatusOr<bool> more = page(*got, first, last);
    if (!more.ok()) return more.status();
    if (last || !*more) return absl::OkStatus();
    query.set_page_token(got->next_page_token());
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
  HMM_RETURN_IF_ERROR(ForEachPage(link, QueryOf(command.select), print));
  return 0;
}

absl::StatusOr<int> TensorShow(DaemonLink& link, Printer& printer, const Command& command) {
  const absl::StatusOr<v1::ExplainResponse> why =
      ExplainNamed(link, command.tensor, command.select.tenant);
  if (!why.ok()) return why.status();
  HMM_RETURN_IF_ERROR(WriteOut(printer.Tensor(why->epoch(), why->tensor())));
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
  const absl::StatusOr<v1::EvictResponse> done = link.Evict(request, TimeoutOf(command));
  if (!done.ok()) return done.status();
  HMM_RETURN_IF_ERROR(WriteOut(printer.Evict(command.tier, *done)));
  return 0;
}

}  // namespace

absl::StatusOr<v1::ExplainResponse> ExplainNamed(DaemonLink& link, const std::string& id,
                                                 const std::string& tenant) {
  v1::ExplainRequest request;
  request.set_tenant(tenant);
  absl::StatusOr<v1::ExplainResponse> why = absl::NotFoundError("");
  if (std::uint64_t handle = 0; absl::SimpleAtoi(id, &handle) && handle != 0) {
    request.set_handle(handle);
    why = link.Explain(request);
    request.clear_handle();
  }
  if (absl::IsNotFound(why.status())) {
    request.set_key(UnescapeKey(id));
    why = link.Explain(request);
  }
  const bool ambiguous = absl::IsInvalidArgument(why.status()) && !id.empty();
  if (!ambiguous && !absl::IsNotFound(why.status())) return why;
  return Error(why.status().code(), ReasonOf(why.status()).value_or(Reason::kNotFound),
               absl::StrCat("tensor ", id, ": ", std::string(why.status().message()),
                            ambiguous ? " (--tenant)" : ""));
}

absl::Status WriteOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    // Whoever read us has seen enough (`| head`): nothing to complain about.
    if (errno == EPIPE) return absl::CancelledError("");
    return PosixError("standard output", errno);
  }
  return absl::OkStatus();
}

// Control bytes of names in files, which a terminal would obey, as \xNN.
std::string WithoutControls(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are controls too: C2 80 to C2 9F.
    const bool second =
        i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xc2 && byte >= 0x80 && byte < 0xa0;
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f || second) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

int Report(const absl::Status& failed) {
  // Whoever read us had enough (`| head`): nothing failed.
  if (absl::IsCancelled(failed) && failed.message().empty()) return 0;
  const std::string message(failed.message());
  std::fprintf(stderr, "hmmctl: %s\n",
               WithoutControls(message.empty() ? failed.ToString() : message).c_str());
  return 1;
}

absl::StatusOr<int> RunVerb(const Command& command) {
  const std::unique_ptr<Printer> printer = MakePrinter(command.format, command.style);
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
      return TensorShow(link, *printer, command);
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
    case Verb::kTopology:
      return RunTopology(command);
    case Verb::kStat:
      return RunStat(command);
    case Verb::kEvents:
      return RunEvents(command);
    case Verb::kExplain:
      return RunExplain(command);
    case Verb::kHealth:
      return RunHealth(command);
    case Verb::kSwap:
    case Verb::kPrefetch:
      return RunSwap(command);
    case Verb::kResize:
    case Verb::kCompact:
    case Verb::kLogLevel:
      return RunSizes(command);
    case Verb::kDoctor:
      return RunDoctor(command);
    case Verb::kCompletion:
      HMM_RETURN_IF_ERROR(WriteOut(command.completion));
      return 0;
    default:
      return RunVerb(command);
  }
}

}  // namespace hmm::ctl
