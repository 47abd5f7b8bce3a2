// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_words.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/table.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

using plan::Plan;

constexpr std::size_t kNamesShown = 8;

// As ExactText, rounded as `other` is, in one message: 52 KiB beside 52.0 KiB looks like less care.
std::string ExactTextBeside(Bytes bytes, Bytes other) {
  std::string text = ExactText(bytes);
  if (bytes < kKiB || other < kKiB || absl::StrContains(text, '.')) return text;
  if (absl::StrContains(ExactText(other), '.')) text.insert(text.find(' '), ".0");
  return text;
}

std::string Infeasible(const plan::Graph& graph, const Plan& plan) {
  // Only ours says what would do.
  if (plan.short_bytes == 0) {
    return absl::StrCat(
        "infeasible: planner '", plan.planner,
        "' finds no plan within this budget, which does not say that there is none");
  }
  const std::string would_do =
      plan.smallest_budget_bytes == 0
          ? std::string()
          : absl::StrCat("\nThe smallest that would do: ",
                         ExactTextBeside(plan.smallest_budget_bytes, plan.short_bytes));
  const std::string short_by = ExactTextBeside(plan.short_bytes, plan.smallest_budget_bytes);
  if (plan.short_tier != TierKind::kHbm) {
    return absl::StrCat("infeasible: ", std::string(TierKindName(plan.short_tier)), " is short by ",
                        short_by, " for what has to leave HBM, which peaks at ",
                        OpText(graph, plan.short_op), would_do);
  }
  return absl::StrCat("infeasible: ", OpText(graph, plan.short_op), " is short by ", short_by,
                      would_do);
}

double Of(Bytes part, Bytes whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string MovedText(const Plan& plan) {
  const MoveTotals t = TotalMoves(plan);
  std::string out = absl::StrCat(ExactText(plan.moved_bytes), ": ", t.swap_outs, " SwapOut, ",
                                 t.swap_ins, " SwapIn, ", t.drops, " dropped");
  if (t.recomputes > 0) absl::StrAppend(&out, ", ", t.recomputes, " recomputed");
  if (t.flash_bytes > 0) absl::StrAppend(&out, "; ", FormatBytes(t.flash_bytes), " by flash");
  return out;
}

std::string StepText(const Plan& plan) {
  std::string out =
      absl::StrCat(MicrosText(plan.step_us), ": compute ", MicrosText(plan.compute_us),
                   ", exposed ", MicrosText(plan.stall_us));
  if (plan.recompute_us > 0) {
    absl::StrAppend(&out, " (of it recomputing ", MicrosText(plan.recompute_us), ")");
  }
  return out;
}

std::string AddressesText(const Plan& plan) {
  std::string out = absl::StrCat("high water ", ExactText(plan.high_water_bytes), ", lower bound ",
                                 ExactText(plan.lower_bound_bytes));
  if (plan.high_water_bytes > plan.budget_bytes) {
    absl::StrAppend(&out, "; fixed addresses need ",
                    FormatBytes(plan.high_water_bytes - plan.budget_bytes),
                    " more than the budget");
  }
  return out;
}

}  // namespace

std::vector<Figure> FiguresOf(const plan::Graph& graph, const Plan& plan) {
  std::vector<Figure> out;
  out.push_back(
      {"budget", absl::StrCat(ExactText(plan.budget_bytes), ", ",
                              PercentCell(Of(plan.budget_bytes, plan.unplanned_peak_bytes)),
                              " of the unplanned peak")});
  out.push_back({"unplanned peak", absl::StrCat(ExactText(plan.unplanned_peak_bytes), " at ",
                                                OpText(graph, plan.unplanned_peak_op))});
  out.push_back({"floor of any",
                 absl::StrCat(ExactText(plan.floor_bytes), " at ", OpText(graph, plan.floor_op))});
  if (plan.verdict == plan::Verdict::kInfeasible) return out;
  out.push_back({"planned peak", ExactText(plan.peak_bytes)});
  out.push_back({"step", StepText(plan)});
  if (plan.verdict == plan::Verdict::kPlanned) out.push_back({"moved", MovedText(plan)});
  if (!plan.places.empty()) out.push_back({"addresses", AddressesText(plan)});
  return out;
}

std::string MachineText(const plan::Machine& machine) {
  return absl::StrCat(machine.name, ": ", machine.assumptions);
}

std::string DurationsText(const plan::Graph& graph, std::size_t roofline_ops) {
  return absl::StrCat(roofline_ops, " of ", graph.ops.size(),
                      " ops by the roofline of this machine; the others have one, or take no time "
                      "(views, constants)");
}

std::string OpText(const plan::Graph& graph, plan::OpIndex op) {
  if (op >= graph.ops.size()) return "-";
  const std::string& type = graph.ops[op].type;
  return absl::StrCat("op ", op, " ", graph::Shown(graph.ops[op].name),
                      type.empty() ? "" : absl::StrCat(" (", EscapeKey(type), ")"));
}

std::string MicrosText(double us) {
  if (us < 1e3) return absl::StrFormat("%.3g us", us);
  if (us < 1e6) return absl::StrFormat("%.4g ms", us / 1e3);
  return absl::StrFormat("%.4g s", us / 1e6);
}

std::string RateText(double bytes_per_us) {
  return absl::StrFormat("%.3g GB/s", bytes_per_us / 1e3);
}

std::string ShareText(double part, double whole) {
  if (whole <= 0) return "0%";
  const double percent = part / whole * 100;
  // Three digits, but never an exponent.
  return absl::StrFormat(percent < 1000 ? "%.3g%%" : "%.0f%%", percent);
}

std::string ExactText(Bytes bytes) {
  const std::string text = FormatBytes(bytes);
  if (bytes < kKiB) return text;
  return absl::StrCat(text, " (", bytes, " bytes)");
}

std::string VerdictText(const plan::Graph& graph, const Plan& plan) {
  switch (plan.verdict) {
    case plan::Verdict::kFits:
      return "fits: needs no plan, the whole step lies within the budget";
    case plan::Verdict::kPlanned:
      return absl::StrCat(
          "planned: fits with the moves given; ",
          plan.stall_us <= 0
              ? std::string("all of them are hidden")
              : absl::StrCat(MicrosText(plan.stall_us), " are exposed, ",
                             ShareText(plan.stall_us, plan.compute_us), " of the compute time"));
    case plan::Verdict::kInfeasible:
      return Infeasible(graph, plan);
  }
  return "";
}

std::string CeilingsText(const plan::Graph& graph, const Plan& plan) {
  const plan::Ceilings& c = plan.ceilings;
  std::string out;
  if (c.hide_80_percent_bytes_per_us > 0) {
    absl::StrAppend(&out, "  80% hidden needs ", RateText(c.hide_80_percent_bytes_per_us),
                    ", the link has ", RateText(c.link_bytes_per_us), "; of what this plan brings ",
                    "in, at most ", ShareText(c.hideable_fraction, 1), " can hide\n");
  }
  if (c.link_to_hbm_ratio > 0 && ReadsKvCache(graph)) {
    absl::StrAppend(&out,
                    "  a KV cache read once a step at HBM's rate, as decode does: the link has ",
                    ShareText(c.link_to_hbm_ratio, 1), " of that rate, so at most ",
                    ShareText(c.link_to_hbm_ratio, 1), " of the KV can hide\n");
  }
  if (c.group_fetch_us > 0) {
    absl::StrAppend(&out, "  fetches that only the data decides take ",
                    MicrosText(c.group_fetch_us), "; none of that counts as hidden\n");
  }
  return out;
}

std::string UnknownText(const plan::Graph& graph) {
  if (graph.unknown.empty()) return "";
  std::string out =
      absl::StrCat(graph.unknown.size(), graph.unknown.size() == 1 ? " tensor" : " tensors",
                   " of unknown size, counted in no figure:");
  for (std::size_t i = 0; i < std::min(kNamesShown, graph.unknown.size()); ++i) {
    absl::StrAppend(&out, " ", graph::Shown(graph.unknown[i]));
  }
  if (graph.unknown.size() > kNamesShown) {
    absl::StrAppend(&out, " and ", graph.unknown.size() - kNamesShown, " more (all in -o json)");
  }
  return out;
}

std::string MoveOf(const plan::Graph* graph, const plan::Move& move) {
  if (move.storage == plan::kNone) {
    if (graph == nullptr || move.group >= graph->groups.size()) {
      return absl::StrCat("group ", move.group);
    }
    return graph->groups[move.group].name;
  }
  if (graph == nullptr || move.storage >= graph->storages.size()) {
    return absl::StrCat("storage ", move.storage);
  }
  return graph->storages[move.storage].name;
}

std::string GapKindText(plan::GapKind kind) {
  switch (kind) {
    case plan::GapKind::kInner:
      return "inner";
    case plan::GapKind::kHead:
      return "head";
    case plan::GapKind::kTail:
      return "tail";
    case plan::GapKind::kWrap:
      return "wrap";
    case plan::GapKind::kAll:
      return "all";
  }
  return "";
}

bool ReadsKvCache(const plan::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const plan::Op& op) {
    return std::any_of(op.reads.begin(), op.reads.end(), [&](plan::StorageIndex s) {
      const plan::Storage& storage = graph.storages[s];
      return storage.kind == TensorKind::kKvCache && (storage.persistent || storage.input);
    });
  });
}

MoveTotals TotalMoves(const Plan& plan) {
  MoveTotals totals;
  for (const plan::Move& move : plan.moves) {
    switch (move.kind) {
      case plan::MoveKind::kDrop:
        ++totals.drops;
        continue;
      case plan::MoveKind::kRecompute:
        ++totals.recomputes;
        continue;
      case plan::MoveKind::kSwapIn:
        ++totals.swap_ins;
        break;
      case plan::MoveKind::kSwapOut:
        ++totals.swap_outs;
        break;
    }
    if (move.to == TierKind::kHbm) {
      totals.in_bytes += move.bytes;
    } else if (move.from == TierKind::kHbm) {
      totals.out_bytes += move.bytes;
    } else {
      totals.flash_bytes += move.bytes;
    }
  }
  return totals;
}

}  // namespace hmm::ctl
