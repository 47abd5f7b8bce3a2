// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_trace.h"

#include <cinttypes>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/ctl/plan_json_text.h"
#include "client/ctl/plan_words.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

constexpr int kPid = 1;
constexpr int kCounterTid = 0;

// Microseconds with three decimals.
std::string Ts(std::int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

// As a reader of Ts has them.
double Us(std::int64_t ns) { return static_cast<double>(ns) / 1000; }
double Ends(std::int64_t start_ns, std::int64_t end_ns) {
  return Us(start_ns) + Us(end_ns - start_ns);
}

class TraceWriter {
 public:
  TraceWriter(const plan::Graph& graph, const plan::Plan& plan) : graph_(graph), plan_(plan) {}

  std::string Write(const PlanTimeline& timeline) {
    out_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    Metadata("process_name", kCounterTid, "name",
             JsonText(absl::StrCat("plan of ", graph_.name, " by ", plan_.planner)));
    int tid = kCounterTid;
    for (const TimelineRow& row : timeline.rows) {
      ++tid;
      Metadata("thread_name", tid, "name", JsonText(row.name));
      Metadata("thread_sort_index", tid, "sort_index", absl::StrCat(tid));
      for (std::size_t i = 0; i < row.spans.size(); ++i) {
        Complete(tid, row.spans[i], i + 1 < row.spans.size() ? &row.spans[i + 1] : nullptr);
      }
    }
    for (const plan::MemoryPoint& point : timeline.hbm) Counter(point);
    if (!timeline.hbm.empty()) {
      // The last value again, so that it is drawn up to the end of the step.
      Counter({timeline.step_us, timeline.hbm.back().bytes});
    }
    return std::move(out_) + "\n]}\n";
  }

 private:
  void Begin() {
    if (!first_) out_ += ",\n";
    first_ = false;
  }

  void Metadata(const char* name, int tid, const char* key, const std::string& value) {
    Begin();
    absl::StrAppend(&out_, "{\"ph\":\"M\",\"pid\":", kPid, ",\"tid\":", tid, ",\"name\":\"", name,
                    "\",\"args\":{\"", key, "\":", value, "}}");
  }

  void Complete(int tid, const TimelineSpan& span, const TimelineSpan* next) {
    Begin();
    const std::int64_t start = WholeNs(span.start_us);
    std::int64_t end = std::max(start, WholeNs(span.end_us));
    // Readers add ts and dur as doubles. Where that would end after the next begins they would nest
    // the next in this one: a nanosecond less.
    if (next != nullptr && end > start && Ends(start, end) > Us(WholeNs(next->start_us))) --end;
    absl::StrAppend(&out_, "{\"ph\":\"X\",\"pid\":", kPid, ",\"tid\":", tid, ",\"ts\":", Ts(start),
                    ",\"dur\":", Ts(end - start));
    if (span.is_move) {
      Move(plan_.moves[span.index]);
    } else {
      const plan::Op& op = graph_.ops[span.index];
      absl::StrAppend(&out_, ",\"cat\":\"compute\",\"name\":", JsonText(op.name),
                      ",\"args\":{\"op\":", span.index, ",\"type\":", JsonText(op.type), "}}");
    }
  }

  void Move(const plan::Move& move) {
    const bool recompute = move.kind == plan::MoveKind::kRecompute;
    const std::string kind(plan::MoveKindName(move.kind));
    absl::StrAppend(&out_, ",\"cat\":\"", recompute ? "compute" : "transfer",
                    "\",\"name\":", JsonText(absl::StrCat(kind, " ", MoveOf(&graph_, move))),
                    ",\"args\":{\"bytes\":", move.bytes,
                    ",\"exposed_us\":", absl::StrFormat("%.3f", move.stall_us));
    if (move.after_op < graph_.ops.size()) {
      absl::StrAppend(&out_, ",\"after\":", JsonText(graph_.ops[move.after_op].name));
    }
    if (move.before_op < graph_.ops.size()) {
      absl::StrAppend(&out_, ",\"before\":", JsonText(graph_.ops[move.before_op].name));
    }
    out_ += "}}";
  }

  void Counter(const plan::MemoryPoint& point) {
    Begin();
    absl::StrAppend(&out_, "{\"ph\":\"C\",\"pid\":", kPid, ",\"tid\":", kCounterTid,
                    ",\"name\":\"HBM\",\"ts\":", Ts(WholeNs(point.at_us)),
                    ",\"args\":{\"bytes\":", point.bytes, "}}");
  }

  const plan::Graph& graph_;
  const plan::Plan& plan_;
  std::string out_;
  bool first_ = true;
};

}  // namespace

std::string FormatPlanTrace(const plan::Graph& graph, const plan::Plan& plan,
                            const PlanTimeline& timeline) {
  return TraceWriter(graph, plan).Write(timeline);
}

absl::Status WritePlanTrace(const std::string& path, const plan::Graph& graph,
                            const plan::Machine& machine, const plan::Plan& plan) {
  if (plan.verdict == plan::Verdict::kInfeasible) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadArgument,
                 absl::StrCat("--trace ", path, ": not written, there is no plan to trace; ",
                              VerdictText(graph, plan)));
  }
  return graph::WriteFileBytes(path,
                               FormatPlanTrace(graph, plan, TimelineOf(graph, machine, plan)));
}

}  // namespace hmm::ctl
