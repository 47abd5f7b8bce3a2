// SPDX-License-Identifier: Apache-2.0
//
// hmmctl resize, compact, log-level.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/json_text.h"
#include "client/ctl/steer_text.h"
#include "client/ctl/table.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {

using nlohmann::ordered_json;

std::string ResizeLine(const std::string& tier, const v1::ResizeTierResponse& done) {
  std::string out =
      absl::StrCat(tier, ": ", SizeCell(done.old_bytes()), " -> ", SizeCell(done.new_bytes()));
  if (done.tensors() > 0) {
    const std::uint64_t dropped = std::min(done.tensors(), done.dropped_tensors());
    const std::uint64_t moved = done.tensors() - dropped;
    absl::StrAppend(&out, ", ", done.tensors(), " tensors (", SizeCell(done.freed_bytes()), ") ");
    if (dropped == 0) {
      out += "moved out";
    } else if (moved == 0) {
      out += "dropped";
    } else {
      absl::StrAppend(&out, "left it: ", moved, " moved out, ", dropped, " dropped");
    }
  }
  return out + "\n";
}

std::string ResizeJson(const std::string& tier, const v1::ResizeTierResponse& done) {
  ordered_json out;
  out["epoch"] = done.epoch();
  out["tier"] = tier;
  out["old_bytes"] = done.old_bytes();
  out["new_bytes"] = done.new_bytes();
  out["freed_bytes"] = done.freed_bytes();
  out["tensors"] = done.tensors();
  out["dropped_tensors"] = done.dropped_tensors();
  return Document(out);
}

std::string CompactLine(const v1::CompactResponse& done) {
  std::string out = absl::StrCat(SizeCell(done.returned_bytes()), " given back, ", done.tensors(),
                                 " tensors (", SizeCell(done.moved_bytes()), ") moved for it");
  if (done.pinned_chunks() > 0) {
    absl::StrAppend(&out, ", ", done.pinned_chunks(), " sparse chunks are held by pins");
  }
  return out + "\n";
}

std::string CompactJson(const v1::CompactResponse& done) {
  ordered_json out;
  out["epoch"] = done.epoch();
  out["returned_bytes"] = done.returned_bytes();
  out["moved_bytes"] = done.moved_bytes();
  out["tensors"] = done.tensors();
  out["pinned_chunks"] = done.pinned_chunks();
  return Document(out);
}

std::string LogLevelLine(const std::string& level, const v1::SetLogLevelResponse& done) {
  return absl::StrCat("log level ", level, ", it was ", done.previous(), "\n");
}

std::string LogLevelJson(const std::string& level, const v1::SetLogLevelResponse& done) {
  ordered_json out;
  out["epoch"] = done.epoch();
  out["level"] = level;
  out["previous"] = done.previous();
  return Document(out);
}

absl::StatusOr<int> RunSizes(const Command& command) {
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  const bool json = command.format == Format::kJson;
  std::string out;
  if (command.verb == Verb::kResize) {
    v1::ResizeTierRequest request;
    request.set_tier(command.tier);
    request.set_bytes(command.resize_to);
    const absl::StatusOr<v1::ResizeTierResponse> done =
        (*link)->ResizeTier(request, TimeoutOf(command));
    if (!done.ok()) return done.status();
    out = json ? ResizeJson(command.tier, *done) : ResizeLine(command.tier, *done);
  } else if (command.verb == Verb::kCompact) {
    const absl::StatusOr<v1::CompactResponse> done =
        (*link)->Compact(command.tier, TimeoutOf(command));
    if (!done.ok()) return done.status();
    out = json ? CompactJson(*done) : CompactLine(*done);
  } else {
    const absl::StatusOr<v1::SetLogLevelResponse> done = (*link)->SetLogLevel(command.log_level);
    if (!done.ok()) return done.status();
    out = json ? LogLevelJson(command.log_level, *done) : LogLevelLine(command.log_level, *done);
  }
  HMM_RETURN_IF_ERROR(WriteOut(out));
  return 0;
}

}  // namespace hmm::ctl
