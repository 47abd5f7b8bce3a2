// SPDX-License-Identifier: Apache-2.0
//
// hmmctl explain.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/ctl/event_text.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {
namespace {

std::string Microseconds(std::uint64_t us) {
  return us < 10'000 ? absl::StrCat(us, "us") : TimeCell(us / 1000);
}

std::string CostTable(const v1::EvictionCost& cost) {
  Table table({{"FACTOR"}, {"VALUE"}, {"MEANS"}});
  table.AddRow({"use_probability", absl::StrFormat("%.3g", cost.use_probability()),
                absl::StrFormat("of a use within %s: %.3g uses/s of %d known, idle %s",
                                TimeCell(cost.horizon_ms()), cost.uses_per_s(), cost.accesses(),
                                Microseconds(cost.idle_us()))});
  table.AddRow({"bring_back", cost.below().empty() ? "" : Microseconds(cost.bring_back_us()),
                cost.below().empty()         ? "no tier below: it would be dropped"
                : cost.bring_back_measured() ? absl::StrCat("from ", cost.below(), ", measured")
                                             : absl::StrCat("from ", cost.below(), ", assumed")});
  table.AddRow({"recompute", cost.recompute_us() == 0 ? "" : Microseconds(cost.recompute_us()),
                cost.recompute_us() == 0 ? "its maker did not say" : "as its maker said"});
  table.AddRow({"weight", absl::StrFormat("%.3g", cost.weight()), "of its kind and priority"});
  table.AddRow({"cost", cost.us_per_byte() == 0 ? "" : absl::StrFormat("%.3g", cost.us_per_byte()),
                "microseconds for each byte freed"});
  return table.ToString();
}

}  // namespace

std::string ExplainTable(const v1::ExplainResponse& why, const TableStyle& style) {
  const v1::TensorInfo& tensor = why.tensor();
  std::string out = absl::StrCat(
      "tensor ", tensor.handle(), tensor.key().empty() ? "" : " " + EscapeKey(tensor.key()), ": ",
      SizeCell(tensor.bytes()), " ", KindWord(tensor.kind()), " of ", tensor.tenant(), ", ",
      StateWord(tensor.state()), " in ", tensor.tier_name(), "\n");
  absl::StrAppend(&out, "next: ", why.next().empty() ? "-" : why.next(), "\n");
  if (why.of_tensors() > 0) {
    absl::StrAppend(&out, "order: ", why.rank(), why.rank_capped() ? " or more" : "", " of ",
                    why.of_tensors(), " go first (", why.policy(), ")\n");
  }
  if (why.has_cost()) {
    absl::StrAppend(&out, "\n", CostTable(why.cost()));
    if (why.cost().clean_below()) {
      absl::StrAppend(&out, "an identical copy stands below: evicting it copies nothing\n");
    }
  }
  Table moves({{"TIME"},
               {"FROM"},
               {"TO"},
               {"OUTCOME"},
               {"CAUSE"},
               {"SIZE", true},
               {"TOOK", true},
               {"TIER-USE", true},
               {"IDLE", true},
               {"SESSION", true},
               {"ERROR"}});
  for (const v1::MoveRecord& move : why.moves()) {
    const double use = move.capacity_bytes() == 0 ? 0
                                                  : static_cast<double>(move.used_bytes()) /
                                                        static_cast<double>(move.capacity_bytes());
    moves.AddRow({ClockText(move.time_us()), move.from(), move.to(), OutcomeWord(move.outcome()),
                  CauseWord(move.cause()), Size(move.bytes()), Microseconds(move.took_us()),
                  move.capacity_bytes() == 0 ? Cell("") : Percent(use),
                  Microseconds(move.idle_us()),
                  move.for_session() == 0 ? "" : absl::StrCat(move.for_session()), move.error()});
  }
  absl::StrAppend(&out, "\n", moves.ToString(style));
  if (why.moves_forgotten()) absl::StrAppend(&out, "older moves are forgotten\n");
  return out;
}

absl::StatusOr<int> RunExplain(const Command& command) {
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  const absl::StatusOr<v1::ExplainResponse> why =
      ExplainNamed(**link, command.tensor, command.select.tenant);
  if (!why.ok()) return why.status();
  HMM_RETURN_IF_ERROR(WriteOut(
      command.format == Format::kJson ? ExplainJson(*why) : ExplainTable(*why, command.style)));
  return 0;
}

}  // namespace hmm::ctl
