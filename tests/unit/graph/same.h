// SPDX-License-Identifier: Apache-2.0
// Whether two graphs or plans are the same, field by field.
#pragma once

#include <tuple>

#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::testing {

inline auto FieldsOf(const plan::Storage& s) {
  return std::tie(s.name, s.aliases, s.bytes, s.kind, s.persistent, s.input, s.output, s.pinned,
                  s.recomputable);
}
inline auto FieldsOf(const plan::DataDependentGroup& g) { return std::tie(g.name, g.members, g.k); }
inline auto FieldsOf(const plan::Op& o) {
  return std::tie(o.name, o.type, o.reads, o.writes, o.after, o.group, o.workspace, o.microseconds,
                  o.flops, o.stream);
}
inline auto FieldsOf(const plan::Task& t) { return std::tie(t.is_move, t.index); }
inline auto FieldsOf(const plan::Move& m) {
  return std::tie(m.kind, m.storage, m.group, m.from, m.to, m.bytes, m.producer, m.after_op,
                  m.before_op, m.start_us, m.end_us, m.stall_us);
}
inline auto FieldsOf(const plan::Home& h) {
  return std::tie(h.storage, h.tier, h.in_hbm_at_start, h.valid_at_start);
}
inline auto FieldsOf(const plan::HbmPlace& p) {
  return std::tie(p.storage, p.bytes, p.offset, p.begin, p.kept);
}
inline auto FieldsOf(const plan::Ceilings& c) {
  return std::tie(c.link_bytes_per_us, c.hide_80_percent_bytes_per_us, c.hideable_fraction,
                  c.link_to_hbm_ratio, c.group_fetch_us);
}
inline auto TotalsOf(const plan::Plan& p) {
  return std::tie(p.planner, p.verdict, p.budget_bytes, p.unplanned_peak_bytes, p.unplanned_peak_op,
                  p.floor_bytes, p.floor_op, p.short_bytes, p.short_op, p.short_tier,
                  p.smallest_budget_bytes, p.peak_bytes, p.compute_us, p.step_us, p.stall_us,
                  p.moved_bytes, p.recompute_us, p.alignment_bytes, p.high_water_bytes,
                  p.lower_bound_bytes);
}

template <typename T>
bool SameList(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (FieldsOf(a[i]) != FieldsOf(b[i])) return false;
  }
  return true;
}

inline bool Same(const plan::Graph& a, const plan::Graph& b) {
  return a.name == b.name && a.unknown == b.unknown && SameList(a.ops, b.ops) &&
         SameList(a.storages, b.storages) && SameList(a.groups, b.groups);
}

inline bool Same(const plan::Plan& a, const plan::Plan& b) {
  // The waits of a plan without a sequence begin nowhere or at 0.
  const bool waits = a.sequence.empty() || a.wait_begin == b.wait_begin;
  return TotalsOf(a) == TotalsOf(b) && FieldsOf(a.ceilings) == FieldsOf(b.ceilings) && waits &&
         a.waits == b.waits && a.offloaded_groups == b.offloaded_groups &&
         SameList(a.sequence, b.sequence) && SameList(a.moves, b.moves) &&
         SameList(a.homes, b.homes) && SameList(a.places, b.places);
}

}  // namespace hmm::testing
