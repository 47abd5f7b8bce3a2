// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_report_data.h"

#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/plan_json_text.h"
#include "client/ctl/plan_moved.h"
#include "client/ctl/plan_timeline.h"
#include "client/ctl/plan_words.h"
#include "plan/planner.h"

namespace hmm::ctl {
namespace {

// An index in JSON: -1 for none.
std::int64_t IndexOrNone(std::uint32_t index) {
  return index == plan::kNone ? -1 : static_cast<std::int64_t>(index);
}

class DataWriter {
 public:
  explicit DataWriter(const PlanContext& context) : graph_(context.graph), context_(context) {}

  std::string Write(const plan::Plan& before, const std::vector<plan::Plan>& plans) {
    out_ = "{\"ops\":";
    Ops();
    absl::StrAppend(&out_, ",\n\"budget\":", plans.front().budget_bytes, ",\"before\":");
    Memory(TimelineOf(graph_, context_.machine, before));
    out_ += ",\n\"plans\":[";
    for (std::size_t i = 0; i < plans.size(); ++i) {
      out_ += i == 0 ? "\n" : ",\n";
      OnePlan(plans[i]);
    }
    return std::move(out_) + "]}";
  }

 private:
  // [value(0),value(1),...]
  template <typename Value>
  void Column(std::string_view key, std::size_t size, Value value) {
    absl::StrAppend(&out_, "\"", std::string(key), "\":[");
    for (std::size_t i = 0; i < size; ++i) {
      if (i > 0) out_ += ',';
      absl::StrAppend(&out_, value(i));
    }
    out_ += "]";
  }
  void Comma() { out_ += ",\n"; }

  void Ops() {
    std::map<std::string_view, std::size_t> types;
    std::vector<std::string_view> words;
    for (const plan::Op& op : graph_.ops) {
      if (types.try_emplace(op.type, words.size()).second) words.push_back(op.type);
    }
    out_ += "{";
    Column("names", graph_.ops.size(), [&](std::size_t i) { return JsonText(graph_.ops[i].name); });
    Comma();
    Column("type", graph_.ops.size(), [&](std::size_t i) { return types[graph_.ops[i].type]; });
    Comma();
    Column("types", words.size(), [&](std::size_t i) { return JsonText(words[i]); });
    out_ += "}";
  }

  // Differences: {"t":[ns...],"b":[bytes...],"step":ns}.
  void Memory(const PlanTimeline& timeline) {
    std::int64_t t = 0, b = 0;
    out_ += "{";
    Column("t", timeline.hbm.size(), [&](std::size_t i) {
      const std::int64_t now = WholeNs(timeline.hbm[i].at_us);
      return now - std::exchange(t, now);
    });
    Comma();
    Column("b", timeline.hbm.size(), [&](std::size_t i) {
      const auto now = static_cast<std::int64_t>(timeline.hbm[i].bytes);
      return now - std::exchange(b, now);
    });
    absl::StrAppend(&out_, ",\"step\":", WholeNs(timeline.step_us), "}");
  }

  // {"name":...,"link":bool,"gap":[ns idle before],"dur":[ns],"ref":[op, or -1 - move]}.
  void Row(const TimelineRow& row) {
    absl::StrAppend(&out_, "{\"name\":", JsonText(row.name),
                    ",\"link\":", row.is_link ? "true" : "false", ",");
    std::int64_t end = 0;
    Column("gap", row.spans.size(), [&](std::size_t i) {
      const std::int64_t start = std::max(end, WholeNs(row.spans[i].start_us));
      const std::int64_t last = std::exchange(end, std::max(start, WholeNs(row.spans[i].end_us)));
      return start - last;
    });
    Comma();
    end = 0;
    Column("dur", row.spans.size(), [&](std::size_t i) {
      const std::int64_t start = std::max(end, WholeNs(row.spans[i].start_us));
      end = std::max(start, WholeNs(row.spans[i].end_us));
      return end - start;
    });
    Comma();
    Column("ref", row.spans.size(), [&](std::size_t i) {
      const auto index = static_cast<std::int64_t>(row.spans[i].index);
      return row.spans[i].is_move ? -1 - index : index;
    });
    out_ += "}";
  }

  void OnePlan(const plan::Plan& plan) {
    const PlanTimeline timeline = TimelineOf(graph_, context_.machine, plan);
    const std::vector<MovedTensor> moved = MovedTensors(graph_, context_.machine, plan);
    absl::StrAppend(&out_, "{\"planner\":", JsonText(plan.planner), ",\"verdict\":\"",
                    std::string(plan::VerdictName(plan.verdict)),
                    "\",\"compute\":", WholeNs(plan.compute_us), ",\"memory\":");
    Memory(timeline);
    out_ += ",\n\"rows\":[";
    for (std::size_t i = 0; i < timeline.rows.size(); ++i) {
      if (i > 0) Comma();
      Row(timeline.rows[i]);
    }
    out_ += "],\n\"moves\":";
    Moves(plan, moved);
    out_ += ",\n\"moved\":";
    Moved(moved);
    out_ += "}";
  }

  // {"kind":[MoveKind],"of":[place in moved],"bytes":[...]}.
  void Moves(const plan::Plan& plan, const std::vector<MovedTensor>& moved) {
    std::map<plan::StorageIndex, std::size_t> storages;
    std::map<std::uint32_t, std::size_t> groups;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      if (moved[i].storage != plan::kNone) {
        storages[moved[i].storage] = i;
      } else {
        groups[moved[i].group] = i;
      }
    }
    const auto& moves = plan.moves;
    out_ += "{";
    Column("kind", moves.size(),
           [&](std::size_t i) { return static_cast<unsigned>(moves[i].kind); });
    Comma();
    Column("of", moves.size(), [&](std::size_t i) {
      return moves[i].storage != plan::kNone ? storages[moves[i].storage] : groups[moves[i].group];
    });
    Comma();
    Column("bytes", moves.size(), [&](std::size_t i) { return moves[i].bytes; });
    out_ += "}";
  }

  // A column a figure of MovedTensor; times in microseconds.
  void Moved(const std::vector<MovedTensor>& moved) {
    const auto us = [](double value) { return absl::StrFormat("%.3f", value); };
    out_ += "{";
    Column("name", moved.size(), [&](std::size_t i) { return JsonText(NameOf(moved[i])); });
    Comma();
    Column("kind", moved.size(), [&](std::size_t i) { return JsonText(KindOf(moved[i])); });
    Comma();
    Column("how", moved.size(), [&](std::size_t i) { return JsonText(moved[i].how); });
    Comma();
    Column("bytes", moved.size(), [&](std::size_t i) { return moved[i].bytes; });
    Comma();
    Column("uses", moved.size(), [&](std::size_t i) { return moved[i].uses_per_step; });
    Comma();
    Column("recompute", moved.size(), [&](std::size_t i) { return us(moved[i].recompute_us); });
    Comma();
    Column("in", moved.size(), [&](std::size_t i) { return us(moved[i].in_us); });
    Comma();
    Column("slack", moved.size(), [&](std::size_t i) { return us(moved[i].slack_us); });
    Comma();
    Column("exposed", moved.size(), [&](std::size_t i) { return us(moved[i].exposed_us); });
    Comma();
    Column("after", moved.size(), [&](std::size_t i) { return IndexOrNone(moved[i].after_op); });
    Comma();
    Column("before", moved.size(), [&](std::size_t i) { return IndexOrNone(moved[i].before_op); });
    out_ += "}";
  }

  const std::string& NameOf(const MovedTensor& moved) const {
    return moved.storage == plan::kNone ? graph_.groups[moved.group].name
                                        : graph_.storages[moved.storage].name;
  }
  std::string KindOf(const MovedTensor& moved) const {
    if (moved.storage == plan::kNone) return "group";
    return std::string(TensorKindName(graph_.storages[moved.storage].kind));
  }

  const plan::Graph& graph_;
  const PlanContext& context_;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> ReportData(const PlanContext& context,
                                       const std::vector<plan::Plan>& plans) {
  // Nothing moves where the budget is what the step takes without a plan.
  plan::PlanOptions options;
  options.layout = false;
  const absl::StatusOr<plan::Plan> before =
      plan::MakePlan(context.graph, context.machine, plans.front().unplanned_peak_bytes, options);
  if (!before.ok()) return before.status();
  return DataWriter(context).Write(*before, plans);
}

}  // namespace hmm::ctl
