// SPDX-License-Identifier: Apache-2.0
#include "graph/plan_proto.h"

#include <hmm/v1/plan.pb.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "graph/file_error.h"
#include "graph/fingerprint.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"

namespace hmm::graph {
namespace {

using plan::kNone;
using plan::Plan;

constexpr Bytes kBytesMax = Bytes{1} << 62;
constexpr Bytes kAlignmentMax = Bytes{1} << 40;

// The numbers of the two enums are one apart, so that 0 is "unspecified" on the wire.
v1::PlanVerdict ToProto(plan::Verdict verdict) {
  return static_cast<v1::PlanVerdict>(static_cast<int>(verdict) + 1);
}
v1::MoveKind ToProto(plan::MoveKind kind) {
  return static_cast<v1::MoveKind>(static_cast<int>(kind) + 1);
}
v1::TierKind ToProto(TierKind kind) { return static_cast<v1::TierKind>(kind); }
static_assert(static_cast<int>(v1::PLAN_VERDICT_INFEASIBLE) ==
              static_cast<int>(plan::Verdict::kInfeasible) + 1);
static_assert(static_cast<int>(v1::MOVE_KIND_RECOMPUTE) ==
              static_cast<int>(plan::MoveKind::kRecompute) + 1);
static_assert(static_cast<int>(v1::TIER_KIND_FLASH) == static_cast<int>(TierKind::kFlash));

// Checks one message of the file, named `where`, field by field; the first error stays.
class Fields {
 public:
  explicit Fields(std::string where) : where_(std::move(where)) {}

  void Bad(const char* field, const std::string& what) {
    if (!status_.ok()) return;
    status_ =
        where_.empty() ? BadGraph(field, what) : BadGraph(where_, absl::StrCat(field, ": ", what));
  }
  void Index(const char* field, std::uint32_t index, std::size_t limit, const char* what) {
    if (index < limit) return;
    Bad(field, absl::StrCat(index, " is no ", what, "; there are ", limit, ", counted from 0"));
  }
  // kNone where the field is unset.
  std::uint32_t Optional(const char* field, bool set, std::uint32_t index, std::size_t limit,
                         const char* what) {
    if (!set) return kNone;
    Index(field, index, limit, what);
    return index;
  }
  Bytes Size(const char* field, Bytes bytes) {
    if (bytes >= kBytesMax) Bad(field, absl::StrCat(bytes, " is not below 2^62 bytes"));
    return bytes;
  }
  double Number(const char* field, double value) {
    if (!std::isfinite(value) || value < 0) {
      Bad(field, absl::StrCat(value, " is no number from 0 on"));
    }
    return value;
  }
  TierKind Tier(const char* field, v1::TierKind kind) {
    if (!v1::TierKind_IsValid(kind) || kind == v1::TIER_KIND_UNSPECIFIED) {
      Bad(field, "is none of TIER_KIND_HBM, TIER_KIND_DDR, TIER_KIND_FLASH");
    }
    return static_cast<TierKind>(kind);
  }
  const absl::Status& status() const { return status_; }

 private:
  std::string where_;
  absl::Status status_;
};

absl::StatusOr<plan::Move> MoveFrom(const v1::Plan::Move& in, const GraphIdentity& graph,
                                    std::size_t index) {
  Fields f(absl::StrCat("moves[", index, "]"));
  plan::Move out;
  if (!v1::MoveKind_IsValid(in.kind()) || in.kind() == v1::MOVE_KIND_UNSPECIFIED) {
    f.Bad("kind", "is none of MOVE_KIND_SWAP_OUT, _SWAP_IN, _DROP, _RECOMPUTE");
  } else {
    out.kind = static_cast<plan::MoveKind>(static_cast<int>(in.kind()) - 1);
  }
  if (in.has_storage() == in.has_group()) f.Bad("storage", "set it or group, not both");
  out.storage = f.Optional("storage", in.has_storage(), in.storage(), graph.storages, "storage");
  out.group = f.Optional("group", in.has_group(), in.group(), graph.groups, "group");
  out.from = f.Tier("from", in.from());
  out.to = f.Tier("to", in.to());
  out.bytes = f.Size("bytes", in.bytes());
  if (out.bytes == 0) f.Bad("bytes", "is 0 or missing");
  out.producer = f.Optional("producer", in.has_producer(), in.producer(), graph.ops, "op");
  out.after_op = f.Optional("after_op", in.has_after_op(), in.after_op(), graph.ops, "op");
  out.before_op = f.Optional("before_op", in.has_before_op(), in.before_op(), graph.ops, "op");
  if (out.kind == plan::MoveKind::kRecompute && !in.has_producer()) {
    f.Bad("producer", "a recomputation needs one");
  }
  out.start_us = f.Number("start_us", in.start_us());
  out.end_us = f.Number("end_us", in.end_us());
  out.stall_us = f.Number("stall_us", in.stall_us());
  HMM_RETURN_IF_ERROR(f.status());
  return out;
}

absl::Status HomesFrom(const v1::Plan& in, const GraphIdentity& graph, Plan& out) {
  std::vector<bool> seen(graph.storages, false);
  for (int i = 0; i < in.homes_size(); ++i) {
    const v1::Plan::Home& home = in.homes(i);
    Fields f(absl::StrCat("homes[", i, "]"));
    f.Index("storage", home.storage(), graph.storages, "storage");
    const TierKind tier = f.Tier("tier", home.tier());
    if (tier == TierKind::kHbm) f.Bad("tier", "a lower copy lies in DDR or flash");
    HMM_RETURN_IF_ERROR(f.status());
    if (seen[home.storage()]) f.Bad("storage", absl::StrCat(home.storage(), " has one already"));
    HMM_RETURN_IF_ERROR(f.status());
    seen[home.storage()] = true;
    out.homes.push_back({home.storage(), tier, home.in_hbm_at_start(), home.valid_at_start()});
  }
  for (int i = 0; i < in.offloaded_groups_size(); ++i) {
    Fields f(absl::StrCat("offloaded_groups[", i, "]"));
    f.Index("value", in.offloaded_groups(i), graph.groups, "group");
    if (i > 0 && in.offloaded_groups(i) <= in.offloaded_groups(i - 1)) {
      f.Bad("value", "does not ascend");
    }
    HMM_RETURN_IF_ERROR(f.status());
    out.offloaded_groups.push_back(in.offloaded_groups(i));
  }
  return absl::OkStatus();
}

absl::Status SequenceFrom(const v1::Plan& in, const GraphIdentity& graph, Plan& out) {
  std::vector<bool> ops(graph.ops, false), moves(out.moves.size(), false);
  out.sequence.reserve(static_cast<std::size_t>(in.sequence_size()));
  out.wait_begin.reserve(static_cast<std::size_t>(in.sequence_size()) + 1);
  out.wait_begin.push_back(0);
  for (int t = 0; t < in.sequence_size(); ++t) {
    const v1::Plan::Task& task = in.sequence(t);
    Fields f(absl::StrCat("sequence[", t, "]"));
    const bool is_move = task.what_case() == v1::Plan::Task::kMove;
    if (!is_move && task.what_case() != v1::Plan::Task::kOp) f.Bad("op", "set it or move");
    const char* const field = is_move ? "move" : "op";
    const std::uint32_t index = is_move ? task.move() : task.op();
    std::vector<bool>& seen = is_move ? moves : ops;
    f.Index(field, index, seen.size(), field);
    for (const std::uint32_t wait : task.waits()) {
      if (wait < static_cast<std::uint32_t>(t)) continue;
      f.Bad("waits", absl::StrCat(wait, " is not before the task itself"));
    }
    HMM_RETURN_IF_ERROR(f.status());
    if (seen[index]) f.Bad(field, absl::StrCat(index, " stands in the sequence twice"));
    HMM_RETURN_IF_ERROR(f.status());
    seen[index] = true;
    out.sequence.push_back({is_move, index});
    out.waits.insert(out.waits.end(), task.waits().begin(), task.waits().end());
    if (out.waits.size() >= kNone)
      return BadGraph(absl::StrCat("sequence[", t, "]"),
                      "waits: "
                      "too many");
    out.wait_begin.push_back(static_cast<plan::TaskIndex>(out.waits.size()));
  }
  const bool whole = out.sequence.size() == ops.size() + moves.size();
  const bool none = out.sequence.empty() && out.verdict == plan::Verdict::kInfeasible;
  if (whole || none) return absl::OkStatus();
  return BadGraph("sequence", absl::StrCat("holds ", out.sequence.size(), " of the graph's ",
                                           ops.size(), " ops and the plan's ", moves.size(),
                                           " moves; each must stand there once"));
}

absl::StatusOr<plan::HbmPlace> PlaceFrom(const v1::Plan::Place& in, const GraphIdentity& graph,
                                         const Plan& plan, std::size_t index) {
  Fields f(absl::StrCat("places[", index, "]"));
  plan::HbmPlace out;
  out.storage = f.Optional("storage", in.has_storage(), in.storage(), graph.storages, "storage");
  out.bytes = f.Size("bytes", in.bytes());
  out.offset = f.Size("offset", in.offset());
  out.begin = f.Optional("begin", in.has_begin(), in.begin(), plan.sequence.size(), "task");
  out.kept = in.kept();
  if (out.bytes == 0) f.Bad("bytes", "is 0 or missing");
  if (out.offset % plan.alignment_bytes != 0) {
    f.Bad("offset",
          absl::StrCat(out.offset, " is no multiple of the alignment, ", plan.alignment_bytes));
  }
  if (out.offset + out.bytes > plan.high_water_bytes) {
    f.Bad("offset", absl::StrCat("ends at ", out.offset + out.bytes, ", above high_water_bytes, ",
                                 plan.high_water_bytes));
  }
  if (!in.has_storage() && !in.has_begin()) f.Bad("begin", "workspace needs the task it is for");
  HMM_RETURN_IF_ERROR(f.status());
  return out;
}

absl::Status LayoutFrom(const v1::Plan& in, const GraphIdentity& graph, Plan& out) {
  Fields f("");
  const Bytes alignment = in.alignment_bytes();
  // 0 is what a plan without a layout may leave unset.
  if (alignment > kAlignmentMax || (alignment & (alignment - 1)) != 0) {
    f.Bad("alignment_bytes", absl::StrCat(alignment, " is no power of two up to 2^40"));
  }
  out.alignment_bytes = std::max<Bytes>(alignment, 1);
  out.high_water_bytes = f.Size("high_water_bytes", in.high_water_bytes());
  out.lower_bound_bytes = f.Size("lower_bound_bytes", in.lower_bound_bytes());
  HMM_RETURN_IF_ERROR(f.status());
  out.places.reserve(static_cast<std::size_t>(in.places_size()));
  for (const v1::Plan::Place& place : in.places()) {
    HMM_ASSIGN_OR_RETURN(const plan::HbmPlace from,
                         PlaceFrom(place, graph, out, out.places.size()));
    out.places.push_back(from);
  }
  return absl::OkStatus();
}

absl::Status TotalsFrom(const v1::Plan& in, const GraphIdentity& graph, Plan& out) {
  Fields f("");
  if (!v1::PlanVerdict_IsValid(in.verdict()) || in.verdict() == v1::PLAN_VERDICT_UNSPECIFIED) {
    f.Bad("verdict", "is none of PLAN_VERDICT_FITS, _PLANNED, _INFEASIBLE");
  } else {
    out.verdict = static_cast<plan::Verdict>(static_cast<int>(in.verdict()) - 1);
  }
  const std::size_t ops = std::max<std::size_t>(graph.ops, 1);  // an empty graph's are 0
  f.Index("unplanned_peak_op", in.unplanned_peak_op(), ops, "op");
  f.Index("floor_op", in.floor_op(), ops, "op");
  f.Index("short_op", in.short_op(), ops, "op");
  out.planner = in.planner();
  out.budget_bytes = in.budget_bytes();
  out.unplanned_peak_bytes = in.unplanned_peak_bytes();
  out.unplanned_peak_op = in.unplanned_peak_op();
  out.floor_bytes = in.floor_bytes();
  out.floor_op = in.floor_op();
  out.short_bytes = in.short_bytes();
  out.short_op = in.short_op();
  out.short_tier = f.Tier("short_tier", in.short_tier());
  out.smallest_budget_bytes = in.smallest_budget_bytes();
  out.peak_bytes = in.peak_bytes();
  out.compute_us = f.Number("compute_us", in.compute_us());
  out.step_us = f.Number("step_us", in.step_us());
  out.stall_us = f.Number("stall_us", in.stall_us());
  out.moved_bytes = in.moved_bytes();
  out.recompute_us = f.Number("recompute_us", in.recompute_us());
  Fields c("ceilings");
  const v1::Plan::Ceilings& from = in.ceilings();
  out.ceilings.link_bytes_per_us = c.Number("link_bytes_per_us", from.link_bytes_per_us());
  out.ceilings.hide_80_percent_bytes_per_us =
      c.Number("hide_80_percent_bytes_per_us", from.hide_80_percent_bytes_per_us());
  out.ceilings.hideable_fraction = c.Number("hideable_fraction", from.hideable_fraction());
  out.ceilings.link_to_hbm_ratio = c.Number("link_to_hbm_ratio", from.link_to_hbm_ratio());
  out.ceilings.group_fetch_us = c.Number("group_fetch_us", from.group_fetch_us());
  HMM_RETURN_IF_ERROR(f.status());
  return c.status();
}

absl::StatusOr<GraphIdentity> IdentityFrom(const v1::Plan& message) {
  if (!message.has_graph()) {
    return BadGraph("graph", "is missing: for which graph is the plan?");
  }
  const v1::Plan::GraphRef& in = message.graph();
  if (in.ops() > kOpsMax || in.storages() > kStoragesMax || in.groups() > kStoragesMax) {
    return BadGraph("graph", absl::StrCat("claims ", in.ops(), " ops, ", in.storages(),
                                          " storages and ", in.groups(), " groups; the limits are ",
                                          kOpsMax, ", ", kStoragesMax, " and ", kStoragesMax));
  }
  GraphIdentity out{in.name(), in.ops(), in.storages(), in.groups(), in.fingerprint()};
  return out;
}

void MoveTo(const plan::Move& move, v1::Plan::Move& out) {
  out.set_kind(ToProto(move.kind));
  if (move.storage != kNone) out.set_storage(move.storage);
  if (move.group != kNone) out.set_group(move.group);
  out.set_from(ToProto(move.from));
  out.set_to(ToProto(move.to));
  out.set_bytes(move.bytes);
  if (move.producer != kNone) out.set_producer(move.producer);
  if (move.after_op != kNone) out.set_after_op(move.after_op);
  if (move.before_op != kNone) out.set_before_op(move.before_op);
  out.set_start_us(move.start_us);
  out.set_end_us(move.end_us);
  out.set_stall_us(move.stall_us);
}

void TotalsTo(const Plan& plan, v1::Plan& out) {
  out.set_planner(plan.planner);
  out.set_verdict(ToProto(plan.verdict));
  out.set_budget_bytes(plan.budget_bytes);
  out.set_unplanned_peak_bytes(plan.unplanned_peak_bytes);
  out.set_unplanned_peak_op(plan.unplanned_peak_op);
  out.set_floor_bytes(plan.floor_bytes);
  out.set_floor_op(plan.floor_op);
  out.set_short_bytes(plan.short_bytes);
  out.set_short_op(plan.short_op);
  out.set_short_tier(ToProto(plan.short_tier));
  out.set_smallest_budget_bytes(plan.smallest_budget_bytes);
  out.set_peak_bytes(plan.peak_bytes);
  out.set_compute_us(plan.compute_us);
  out.set_step_us(plan.step_us);
  out.set_stall_us(plan.stall_us);
  out.set_moved_bytes(plan.moved_bytes);
  out.set_recompute_us(plan.recompute_us);
  v1::Plan::Ceilings& to = *out.mutable_ceilings();
  to.set_link_bytes_per_us(plan.ceilings.link_bytes_per_us);
  to.set_hide_80_percent_bytes_per_us(plan.ceilings.hide_80_percent_bytes_per_us);
  to.set_hideable_fraction(plan.ceilings.hideable_fraction);
  to.set_link_to_hbm_ratio(plan.ceilings.link_to_hbm_ratio);
  to.set_group_fetch_us(plan.ceilings.group_fetch_us);
}

absl::StatusOr<PlanFile> Named(absl::StatusOr<PlanFile> plan, const std::string& file) {
  if (plan.ok()) return plan;
  return Annotate(plan.status(), file);
}

absl::StatusOr<v1::Plan> Writable(const Plan& plan, const GraphIdentity& graph) {
  if (!IsUtf8(graph.name)) return BadGraph("graph.name", "is not UTF-8");
  if (!IsUtf8(plan.planner)) return BadGraph("planner", "is not UTF-8");
  v1::Plan message = PlanToProto(plan, graph);
  // What no reader would take back is not written either.
  HMM_RETURN_IF_ERROR(PlanFromProto(message).status());
  return message;
}

}  // namespace

GraphIdentity IdentityOf(const plan::Graph& graph) {
  return {graph.name, static_cast<std::uint32_t>(graph.ops.size()),
          static_cast<std::uint32_t>(graph.storages.size()),
          static_cast<std::uint32_t>(graph.groups.size()), Fingerprint(graph)};
}

absl::Status CheckIdentity(const GraphIdentity& identity, const plan::Graph& graph) {
  const GraphIdentity other = IdentityOf(graph);
  std::string differs;
  const auto compare = [&differs](const char* what, std::uint32_t wants, std::uint32_t has) {
    if (wants != has) absl::StrAppend(&differs, ", ", has, " ", what, " in place of ", wants);
  };
  compare("ops", identity.ops, other.ops);
  compare("storages", identity.storages, other.storages);
  compare("groups", identity.groups, other.groups);
  if (differs.empty() && identity.fingerprint != other.fingerprint) {
    differs = ", as many ops and storages, but others (names, sizes, uses or order)";
  }
  if (differs.empty()) return absl::OkStatus();
  return Error(
      absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
      absl::StrCat("the plan is for another graph, ", Shown(identity.name), "; ", Shown(other.name),
                   " has", differs.substr(1), ". Plan this graph anew"));
}

v1::Plan PlanToProto(const Plan& plan, const GraphIdentity& graph) {
  v1::Plan message;
  message.set_format(std::string(kPlanFormat));
  v1::Plan::GraphRef& ref = *message.mutable_graph();
  ref.set_name(graph.name);
  ref.set_ops(graph.ops);
  ref.set_storages(graph.storages);
  ref.set_groups(graph.groups);
  ref.set_fingerprint(graph.fingerprint);
  TotalsTo(plan, message);
  message.mutable_sequence()->Reserve(static_cast<int>(plan.sequence.size()));
  for (std::size_t t = 0; t < plan.sequence.size(); ++t) {
    v1::Plan::Task& out = *message.add_sequence();
    if (plan.sequence[t].is_move) {
      out.set_move(plan.sequence[t].index);
    } else {
      out.set_op(plan.sequence[t].index);
    }
    out.mutable_waits()->Add(plan.waits.begin() + plan.wait_begin[t],
                             plan.waits.begin() + plan.wait_begin[t + 1]);
  }
  for (const plan::Move& move : plan.moves) MoveTo(move, *message.add_moves());
  for (const plan::Home& home : plan.homes) {
    v1::Plan::Home& out = *message.add_homes();
    out.set_storage(home.storage);
    out.set_tier(ToProto(home.tier));
    out.set_in_hbm_at_start(home.in_hbm_at_start);
    out.set_valid_at_start(home.valid_at_start);
  }
  for (const plan::HbmPlace& place : plan.places) {
    v1::Plan::Place& out = *message.add_places();
    if (place.storage != kNone) out.set_storage(place.storage);
    out.set_bytes(place.bytes);
    out.set_offset(place.offset);
    if (place.begin != kNone) out.set_begin(place.begin);
    out.set_kept(place.kept);
  }
  message.set_alignment_bytes(plan.alignment_bytes);
  message.set_high_water_bytes(plan.high_water_bytes);
  message.set_lower_bound_bytes(plan.lower_bound_bytes);
  message.mutable_offloaded_groups()->Add(plan.offloaded_groups.begin(),
                                          plan.offloaded_groups.end());
  return message;
}

absl::StatusOr<PlanFile> PlanFromProto(const v1::Plan& message) {
  if (!message.format().empty() && message.format() != kPlanFormat) {
    return BadGraph("format", absl::StrCat(Shown(message.format()), " is no plan, which is \"",
                                           std::string(kPlanFormat), "\""));
  }
  PlanFile file;
  HMM_ASSIGN_OR_RETURN(file.graph, IdentityFrom(message));
  HMM_RETURN_IF_ERROR(TotalsFrom(message, file.graph, file.plan));
  file.plan.moves.reserve(static_cast<std::size_t>(message.moves_size()));
  for (const v1::Plan::Move& in : message.moves()) {
    HMM_ASSIGN_OR_RETURN(plan::Move move, MoveFrom(in, file.graph, file.plan.moves.size()));
    file.plan.moves.push_back(move);
  }
  HMM_RETURN_IF_ERROR(SequenceFrom(message, file.graph, file.plan));
  HMM_RETURN_IF_ERROR(HomesFrom(message, file.graph, file.plan));
  HMM_RETURN_IF_ERROR(LayoutFrom(message, file.graph, file.plan));
  return file;
}

absl::StatusOr<PlanFile> ParsePlanText(std::string_view text, const std::string& file) {
  v1::Plan message;
  HMM_RETURN_IF_ERROR(ParseMessageText(text, file, message));
  return Named(PlanFromProto(message), file);
}

absl::StatusOr<PlanFile> ParsePlanBinary(std::string_view bytes, const std::string& file) {
  v1::Plan message;
  HMM_RETURN_IF_ERROR(ParseMessageBinary(bytes, file, message));
  return Named(PlanFromProto(message), file);
}

absl::StatusOr<std::string> FormatPlanText(const Plan& plan, const GraphIdentity& graph) {
  HMM_ASSIGN_OR_RETURN(const v1::Plan message, Writable(plan, graph));
  return FormatMessageText(message);
}

absl::StatusOr<std::string> FormatPlanBinary(const Plan& plan, const GraphIdentity& graph) {
  HMM_ASSIGN_OR_RETURN(const v1::Plan message, Writable(plan, graph));
  return FormatMessageBinary(message);
}

absl::StatusOr<PlanFile> ReadPlanProto(const std::string& path) {
  HMM_ASSIGN_OR_RETURN(const MessageForm form, FormOfPath(path));
  const bool text = form == MessageForm::kText;
  HMM_ASSIGN_OR_RETURN(const std::string bytes,
                       ReadFileBytes(path, text ? kTextBytesMax : kBinaryBytesMax));
  return text ? ParsePlanText(bytes, path) : ParsePlanBinary(bytes, path);
}

absl::Status WritePlanProto(const Plan& plan, const plan::Graph& graph, const std::string& path) {
  HMM_ASSIGN_OR_RETURN(const MessageForm form, FormOfPath(path));
  const GraphIdentity identity = IdentityOf(graph);
  const absl::StatusOr<std::string> bytes = form == MessageForm::kText
                                                ? FormatPlanText(plan, identity)
                                                : FormatPlanBinary(plan, identity);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return WriteFileBytes(path, *bytes);
}

}  // namespace hmm::graph
