// SPDX-License-Identifier: Apache-2.0
//
// One walk over the positions, emitting moves at their boundaries and ops at their positions.
#include "plan/assemble.h"

#include <algorithm>
#include <tuple>

#include "plan/sequencer.h"

namespace hmm::plan {
namespace {

bool FromStart(const Gap& gap, const GapPlan& plan) {
  if (gap.kind == GapKind::kHead || gap.kind == GapKind::kAll) return true;
  return gap.kind == GapKind::kWrap && plan.in_before <= gap.to;
}

Bytes HeldAtStart(const Problem& problem, const std::vector<GapPlan>& chosen) {
  Bytes held = 0;
  for (const Life& life : problem.lifetimes.lives) held += life.at_start ? life.bytes : 0;
  for (const GapPlan& plan : chosen) {
    const Gap& gap = problem.gaps[plan.gap];
    const Life& life = problem.lifetimes.lives[gap.life];
    if (FromStart(gap, plan) && life.at_start) held -= life.bytes;
  }
  return held;
}

class Assembler {
 public:
  Assembler(const Problem& problem, const std::vector<GapPlan>& chosen, const HomeTiers& homes)
      : problem_(problem),
        graph_(*problem.graph),
        lt_(problem.lifetimes),
        chosen_(chosen),
        homes_(homes),
        streams_(ChannelCount(graph_) - kLinkChannels),
        seq_(kLinkChannels + streams_, problem.budget, HeldAtStart(problem, chosen),
             lt_.positions + 3 * chosen.size() + 1) {}

  Assembled Run();

 private:
  struct LifeState {
    std::uint32_t first_access = 0;  // of the present stay in HBM
    TaskIndex opener = kNone;        // the SwapIn that began it
    std::uint64_t opener_known = 0;  // streams that have waited for it
    TaskIndex leaving = kNone;       // the SwapOut that ends it
    bool staged = false;             // on its way up through DDR
    TaskIndex copied_by = kNone;     // the last leg of the SwapOut that made the copy below
    std::uint32_t left_begin = 0, left_end = 0;  // last uses of the stay before, collected
  };
  enum class Kind : std::uint8_t { kOut, kLeave, kIn };
  struct Event {  // one thing to emit at a boundary
    std::uint32_t boundary;
    Kind kind;
    std::uint32_t rank;
    std::uint32_t index;  // into chosen_
    auto Key() const { return std::tie(boundary, kind, rank, index); }
  };

  void Prepare();
  void FillHomes();
  void AtBoundary(std::uint32_t p);
  void EmitOut(std::uint32_t index);
  void EmitLeave(const GapPlan& plan);
  void EmitStages();
  void EmitIn(std::uint32_t index);
  TaskIndex EmitFetch(std::uint32_t p);
  void EmitOp(std::uint32_t p, TaskIndex fetch);
  void WaitForUses(std::uint32_t p, std::uint32_t stream);
  Bytes TakenAt(std::uint32_t p) const;
  void CloseDead(std::uint32_t p);
  void LastUses(std::uint32_t life, std::uint32_t last);

  bool InFlash(StorageIndex s) const {
    return !homes_.in_flash.empty() &&
           std::binary_search(homes_.in_flash.begin(), homes_.in_flash.end(), s);
  }
  const Gap& GapOf(const GapPlan& plan) const { return problem_.gaps[plan.gap]; }
  const Life& LifeOf(const GapPlan& plan) const { return lt_.lives[GapOf(plan).life]; }
  std::uint32_t StreamAt(std::uint32_t p) const {
    return graph_.ops[problem_.order.steps[p].op].stream;
  }
  double LinkUs(TierKind from, TierKind to, Bytes bytes) const {
    return TransferUs(*FindLink(*problem_.machine, from, to), bytes);
  }

  const Problem& problem_;
  const Graph& graph_;
  const Lifetimes& lt_;
  const std::vector<GapPlan>& chosen_;
  const HomeTiers& homes_;
  const std::uint32_t streams_;
  Sequencer seq_;

  Assembled out_;
  std::vector<Event> events_;
  std::size_t next_event_ = 0;
  std::uint32_t position_ = 0;
  std::vector<LifeState> state_;
  std::vector<TaskIndex> task_of_;  // by position
  // Flash: moves pass through four slots in DDR, two each way. The leg up to DDR starts as soon as
  // a slot is free, in the order of the legs up to HBM.
  std::vector<std::uint32_t> stage_queue_;  // indices into chosen_
  std::size_t stages_emitted_ = 0;
  std::vector<TaskIndex> stage_of_;     // by index into chosen_
  std::vector<bool> copied_;            // by index into chosen_: SwapOut emitted
  std::vector<TaskIndex> staged_outs_;  // last legs, in order
  std::vector<TaskIndex> staged_ins_;
};

void Assembler::Prepare() {
  const std::uint32_t n = lt_.positions;
  task_of_.assign(n, kNone);
  out_.op_start.assign(n, 0);
  out_.op_end.assign(n, 0);
  state_.resize(lt_.lives.size());
  for (std::uint32_t l = 0; l < lt_.lives.size(); ++l) {
    state_[l].first_access = lt_.lives[l].access_begin;
  }
  stage_of_.assign(chosen_.size(), kNone);
  copied_.assign(chosen_.size(), false);
  for (std::uint32_t i = 0; i < chosen_.size(); ++i) {
    const GapPlan& plan = chosen_[i];
    const Gap& gap = GapOf(plan);
    if (plan.copies_out) events_.push_back({plan.out_before, Kind::kOut, plan.out_rank, i});
    if (gap.kind != GapKind::kHead && gap.kind != GapKind::kAll) {
      events_.push_back({plan.leave_before, Kind::kLeave, 0, i});
    }
    if (plan.in_before == kNone) continue;
    const bool next_step = gap.kind == GapKind::kWrap && plan.in_before > gap.to;
    events_.push_back({plan.in_before, Kind::kIn, gap.to + (next_step ? n : 0), i});
  }
  std::sort(events_.begin(), events_.end(),
            [](const Event& a, const Event& b) { return a.Key() < b.Key(); });
  for (const Event& event : events_) {
    if (event.kind == Kind::kIn && InFlash(LifeOf(chosen_[event.index]).storage)) {
      stage_queue_.push_back(event.index);
    }
  }
  FillHomes();
}

void Assembler::FillHomes() {
  std::vector<Home>& homes = seq_.plan().homes;
  for (const GapPlan& plan : chosen_) {
    const Gap& gap = GapOf(plan);
    const Life& life = LifeOf(plan);
    const bool from_start = FromStart(gap, plan);
    homes.push_back({life.storage, InFlash(life.storage) ? TierKind::kFlash : TierKind::kDdr,
                     life.at_start && !from_start,
                     from_start || life.clean || gap.kind == GapKind::kWrap});
  }
  std::sort(homes.begin(), homes.end(),
            [](const Home& a, const Home& b) { return a.storage < b.storage; });
  std::size_t kept = 0;
  for (const Home& home : homes) {
    if (kept > 0 && homes[kept - 1].storage == home.storage) {
      // There at the start unless any of its gaps says otherwise.
      homes[kept - 1].valid_at_start |= home.valid_at_start;
      homes[kept - 1].in_hbm_at_start &= home.in_hbm_at_start;
    } else {
      homes[kept++] = home;
    }
  }
  homes.resize(kept);
  for (std::uint32_t g = 0; g < problem_.order.offloaded.size(); ++g) {
    if (!problem_.order.offloaded[g]) continue;
    seq_.plan().offloaded_groups.push_back(g);
    for (const StorageIndex s : graph_.groups[g].members) {
      homes.push_back({s, TierKind::kDdr, false, true});
    }
  }
}

Assembled Assembler::Run() {
  Prepare();
  EmitStages();
  for (position_ = 0; seq_.ok() && position_ < lt_.positions; ++position_) {
    AtBoundary(position_);
    const TaskIndex fetch = EmitFetch(position_);
    if (seq_.ok()) EmitOp(position_, fetch);
  }
  if (seq_.ok()) AtBoundary(lt_.positions);
  out_.ok = seq_.ok();
  if (out_.ok) {
    seq_.Finish(problem_.compute_us);
    out_.plan = std::move(seq_.plan());
  } else {
    out_.failed_position = position_ == 0 ? 0 : position_ - 1;
  }
  return std::move(out_);
}

void Assembler::AtBoundary(std::uint32_t p) {
  for (; next_event_ < events_.size() && events_[next_event_].boundary == p; ++next_event_) {
    const Event& event = events_[next_event_];
    switch (event.kind) {
      case Kind::kOut:
        EmitOut(event.index);
        break;
      case Kind::kLeave:
        EmitLeave(chosen_[event.index]);
        break;
      case Kind::kIn:
        EmitIn(event.index);
        break;
    }
    if (!seq_.ok()) return;
  }
}

void Assembler::EmitOut(std::uint32_t index) {
  const GapPlan& plan = chosen_[index];
  const Gap& gap = GapOf(plan);
  const Life& life = LifeOf(plan);
  LifeState& state = state_[gap.life];
  const bool flash = InFlash(life.storage);
  if (gap.last_write != kNone) seq_.Wait(task_of_[gap.last_write]);
  if (state.copied_by != kNone) seq_.Wait(state.copied_by);
  if (flash && staged_outs_.size() >= 2) seq_.Wait(staged_outs_[staged_outs_.size() - 2]);
  Move move;
  move.kind = MoveKind::kSwapOut;
  move.storage = life.storage;
  move.bytes = life.bytes;
  state.leaving = seq_.EmitMove(move, LinkUs(move.from, move.to, life.bytes), 0);
  state.copied_by = state.leaving;
  copied_[index] = true;
  if (!flash) return;
  seq_.Wait(state.leaving);
  move.from = TierKind::kDdr;
  move.to = TierKind::kFlash;
  state.copied_by = seq_.EmitMove(move, LinkUs(move.from, move.to, life.bytes), 0);
  staged_outs_.push_back(state.copied_by);
  EmitStages();
}

void Assembler::EmitLeave(const GapPlan& plan) {
  const Gap& gap = GapOf(plan);
  const Life& life = LifeOf(plan);
  LifeState& state = state_[gap.life];
  const auto begin = lt_.accesses.begin();
  const auto at = std::lower_bound(
      begin + life.access_begin, begin + life.access_end, gap.from,
      [](const Access& access, std::uint32_t position) { return access.position < position; });
  state.left_begin = seq_.collected();
  LastUses(gap.life, static_cast<std::uint32_t>(at - begin));
  state.left_end = seq_.collected();
  if (plan.copies_out) seq_.Collect(state.leaving);
  seq_.Release(life.bytes, state.left_begin, seq_.collected());
  state.first_access = static_cast<std::uint32_t>(at - begin) + 1;
  state.opener = state.leaving = kNone;
  if (plan.copies_out) return;
  Move move;
  move.storage = life.storage;
  move.bytes = life.bytes;
  move.after_op = problem_.order.steps[gap.from].op;
  seq_.EmitDrop(move, out_.op_end[gap.from]);
}

void Assembler::EmitStages() {
  while (stages_emitted_ < stage_queue_.size() && stages_emitted_ - staged_ins_.size() < 2) {
    const std::uint32_t index = stage_queue_[stages_emitted_];
    const GapPlan& plan = chosen_[index];
    const Life& life = LifeOf(plan);
    LifeState& state = state_[GapOf(plan).life];
    // In the head of a step it is the step before that has copied.
    const bool copies_first = plan.copies_out && !FromStart(GapOf(plan), plan);
    if (state.staged || (copies_first && !copied_[index])) return;
    if (state.copied_by != kNone) seq_.Wait(state.copied_by);
    state.staged = true;
    if (stages_emitted_ >= 2) seq_.Wait(staged_ins_[stages_emitted_ - 2]);
    Move move;
    move.kind = MoveKind::kSwapIn;
    move.storage = life.storage;
    move.from = TierKind::kFlash;
    move.to = TierKind::kDdr;
    move.bytes = life.bytes;
    stage_of_[index] = seq_.EmitMove(move, LinkUs(move.from, move.to, life.bytes), 0);
    ++stages_emitted_;
  }
}

void Assembler::EmitIn(std::uint32_t index) {
  const GapPlan& plan = chosen_[index];
  const Gap& gap = GapOf(plan);
  const Life& life = LifeOf(plan);
  LifeState& state = state_[gap.life];
  const bool flash = InFlash(life.storage);
  if (flash) EmitStages();
  if (state.copied_by != kNone) seq_.Wait(state.copied_by);
  if (flash) seq_.Wait(stage_of_[index]);
  for (std::uint32_t t = state.left_begin; t < state.left_end; ++t) {
    seq_.Wait(seq_.collected_at(t));
  }
  if (plan.on_demand && position_ > 0) seq_.Wait(task_of_[position_ - 1]);
  Move move;
  move.kind = MoveKind::kSwapIn;
  move.storage = life.storage;
  move.from = TierKind::kDdr;
  move.to = TierKind::kHbm;
  move.bytes = life.bytes;
  state.opener = seq_.EmitMove(move, LinkUs(move.from, move.to, life.bytes), life.bytes);
  state.opener_known = 0;
  if (!flash || !seq_.ok()) return;
  staged_ins_.push_back(state.opener);
  state.staged = false;
  EmitStages();
}

// The members a data-dependent op reads: asked for when everything the op depends on has ended.
TaskIndex Assembler::EmitFetch(std::uint32_t p) {
  const ExecStep& step = problem_.order.steps[p];
  const Op& op = graph_.ops[step.op];
  if (!seq_.ok() || !op.group.has_value() || step.remakes != kNone ||
      !problem_.order.offloaded[*op.group] || graph_.groups[*op.group].k == 0) {
    return kNone;
  }
  for (std::uint32_t q = p; q-- > 0;) {  // the op before it on its stream
    if (StreamAt(q) != op.stream) continue;
    seq_.Wait(task_of_[q]);
    break;
  }
  for (std::uint32_t d = lt_.dep_begin[p]; d < lt_.dep_begin[p + 1]; ++d) {
    seq_.Wait(task_of_[lt_.deps[d]]);
  }
  Move move;
  move.kind = MoveKind::kSwapIn;
  move.group = *op.group;
  move.from = TierKind::kDdr;
  move.to = TierKind::kHbm;
  move.bytes = GroupSlotBytes(graph_, *op.group);
  const std::uint32_t k = graph_.groups[*op.group].k;
  return seq_.EmitMove(move, k * LinkUs(move.from, move.to, move.bytes / k), move.bytes);
}

void Assembler::WaitForUses(std::uint32_t p, std::uint32_t stream) {
  const std::uint64_t bit = std::uint64_t{1} << stream;
  for (std::uint32_t u = lt_.use_begin[p]; u < lt_.use_begin[p + 1]; ++u) {
    LifeState& state = state_[lt_.uses[u].life];
    if (state.opener == kNone || (state.opener_known & bit) != 0) continue;
    seq_.Wait(state.opener);
    state.opener_known |= bit;
  }
}

// Workspace and what begins here.
Bytes Assembler::TakenAt(std::uint32_t p) const {
  Bytes takes = graph_.ops[problem_.order.steps[p].op].workspace;
  for (std::uint32_t u = lt_.use_begin[p]; u < lt_.use_begin[p + 1]; ++u) {
    const Life& life = lt_.lives[lt_.uses[u].life];
    if (!life.at_start && lt_.accesses[life.access_begin].position == p) takes += life.bytes;
  }
  return takes;
}

void Assembler::EmitOp(std::uint32_t p, TaskIndex fetch) {
  const ExecStep& step = problem_.order.steps[p];
  const std::uint32_t stream = StreamAt(p);
  double base = seq_.free_at(kLinkChannels + stream);
  for (std::uint32_t d = lt_.dep_begin[p]; d < lt_.dep_begin[p + 1]; ++d) {
    seq_.Wait(task_of_[lt_.deps[d]]);
    base = std::max(base, seq_.end(task_of_[lt_.deps[d]]));
  }
  WaitForUses(p, stream);
  if (fetch != kNone) seq_.Wait(fetch);
  Task task{false, step.op};
  Plan& plan = seq_.plan();
  if (step.remakes != kNone) {
    Move move;
    move.kind = MoveKind::kRecompute;
    move.storage = step.remakes;
    move.from = move.to = TierKind::kHbm;
    move.bytes = graph_.storages[step.remakes].bytes;
    move.producer = step.op;
    plan.recompute_us += problem_.us[p];
    task = {true, static_cast<std::uint32_t>(plan.moves.size())};
    plan.moves.push_back(move);
  }
  const TaskIndex at = seq_.EmitOp(task, kLinkChannels + stream, problem_.us[p], TakenAt(p), base);
  if (!seq_.ok()) return;
  task_of_[p] = at;
  out_.op_start[p] = seq_.start(at);
  out_.op_end[p] = seq_.end(at);
  if (lt_.scratch[p] > 0) {
    const std::uint32_t begin = seq_.collected();
    seq_.Collect(at);
    seq_.Release(lt_.scratch[p], begin, begin + 1);
  }
  CloseDead(p);
}

// What is not needed after position p goes with it.
void Assembler::CloseDead(std::uint32_t p) {
  for (std::uint32_t u = lt_.use_begin[p]; u < lt_.use_begin[p + 1]; ++u) {
    const std::uint32_t index = lt_.uses[u].life;
    const Life& life = lt_.lives[index];
    if (life.at_end || lt_.accesses[life.access_end - 1].position != p) continue;
    const std::uint32_t begin = seq_.collected();
    LastUses(index, life.access_end - 1);
    seq_.Release(life.bytes, begin, seq_.collected());
    if (!life.remade) continue;
    Move move;
    move.storage = life.storage;
    move.bytes = life.bytes;
    move.after_op = problem_.order.steps[p].op;
    seq_.EmitDrop(move, out_.op_end[p]);
  }
}

// Collects the last use on each stream of the present stay, up to access `last`.
void Assembler::LastUses(std::uint32_t life, std::uint32_t last) {
  std::uint64_t seen = 0;
  for (std::uint32_t a = last + 1; a-- > state_[life].first_access;) {
    const std::uint32_t p = lt_.accesses[a].position;
    const std::uint64_t bit = std::uint64_t{1} << StreamAt(p);
    if ((seen & bit) != 0) continue;
    seen |= bit;
    seq_.Collect(task_of_[p]);
    if (streams_ == 1) break;
  }
}

}  // namespace

Assembled Assemble(const Problem& problem, const std::vector<GapPlan>& chosen,
                   const HomeTiers& homes) {
  return Assembler(problem, chosen, homes).Run();
}

}  // namespace hmm::plan
