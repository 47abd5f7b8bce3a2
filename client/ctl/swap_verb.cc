// SPDX-License-Identifier: Apache-2.0
//
// hmmctl swap, hmmctl prefetch.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/json_text.h"
#include "client/ctl/select.h"
#include "client/ctl/steer_text.h"
#include "client/ctl/table.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;

ordered_json ErrorToJson(const v1::ElementError& error) {
  ordered_json out;
  out["code"] = error.code();
  out["reason"] = error.reason();
  out["message"] = error.message();
  return out;
}

std::string First(const v1::ElementError& error) {
  return absl::StrCat("; the first: ", error.reason(), ": ", error.message());
}

}  // namespace

std::string SwapLine(const std::string& tier, const v1::AdminSwapResponse& done) {
  std::string out = absl::StrCat(
      tier, ": ", done.tensors(), " tensors moved here (", SizeCell(done.moved_bytes()), "), ",
      done.there_tensors(), " were here already, ", done.pinned_tensors(), " pinned were skipped");
  if (done.left_tensors() > 0) {
    absl::StrAppend(&out, ", ", done.left_tensors(),
                    " more came or were here and left: the tier does not hold all of them");
  }
  if (done.failed_tensors() > 0) {
    absl::StrAppend(&out, ", ", done.failed_tensors(), " failed", First(done.first_error()));
  }
  return out + "\n";
}

std::string SwapJson(const std::string& tier, const v1::AdminSwapResponse& done) {
  ordered_json out;
  out["epoch"] = done.epoch();
  out["tier"] = tier;
  out["tensors"] = done.tensors();
  out["moved_bytes"] = done.moved_bytes();
  out["there_tensors"] = done.there_tensors();
  out["left_tensors"] = done.left_tensors();
  out["pinned_tensors"] = done.pinned_tensors();
  out["failed_tensors"] = done.failed_tensors();
  out["first_error"] =
      done.has_first_error() ? ErrorToJson(done.first_error()) : ordered_json(nullptr);
  return Document(out);
}

std::string PrefetchLine(const std::string& tier, const v1::AdminPrefetchResponse& done) {
  std::string out = absl::StrCat(tier.empty() ? "the fastest tier" : tier, ": ", done.tensors(),
                                 " tensors are on their way or there");
  if (done.dropped_tensors() > 0) {
    absl::StrAppend(&out, ", ", done.dropped_tensors(), " hints were not taken",
                    First(done.first_error()));
  }
  return out + "\n";
}

std::string PrefetchJson(const std::string& tier, const v1::AdminPrefetchResponse& done) {
  ordered_json out;
  out["epoch"] = done.epoch();
  out["tier"] = tier;
  out["tensors"] = done.tensors();
  out["dropped_tensors"] = done.dropped_tensors();
  out["first_error"] =
      done.has_first_error() ? ErrorToJson(done.first_error()) : ordered_json(nullptr);
  return Document(out);
}

absl::StatusOr<int> RunSwap(const Command& command) {
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  const auto find = [&link](const v1::ExplainRequest& named) -> absl::StatusOr<std::uint64_t> {
    const absl::StatusOr<v1::ExplainResponse> why = (*link)->Explain(named);
    if (!why.ok()) return why.status();
    return why->tensor().handle();
  };
  absl::StatusOr<v1::TensorSelector> selector = SelectorOf(command.select, find);
  if (!selector.ok()) return selector.status();
  const bool json = command.format == Format::kJson;
  if (command.verb == Verb::kSwap) {
    v1::AdminSwapRequest request;
    *request.mutable_tensors() = *std::move(selector);
    request.set_tier(command.tier);
    const absl::StatusOr<v1::AdminSwapResponse> done = (*link)->Swap(request, TimeoutOf(command));
    if (!done.ok()) return done.status();
    HMM_RETURN_IF_ERROR(
        WriteOut(json ? SwapJson(command.tier, *done) : SwapLine(command.tier, *done)));
    return done->failed_tensors() == 0 ? 0 : 1;
  }
  v1::AdminPrefetchRequest request;
  *request.mutable_tensors() = *std::move(selector);
  request.set_tier(command.tier);
  const absl::StatusOr<v1::AdminPrefetchResponse> done = (*link)->Prefetch(request);
  if (!done.ok()) return done.status();
  HMM_RETURN_IF_ERROR(
      WriteOut(json ? PrefetchJson(command.tier, *done) : PrefetchLine(command.tier, *done)));
  return done->dropped_tensors() == 0 ? 0 : 1;
}

}  // namespace hmm::ctl
