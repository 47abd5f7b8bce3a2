// SPDX-License-Identifier: Apache-2.0
//
// Clocks tell what data already leads from: for each channel, how many of its tasks have ended
// before a name exists. A wait that a clock covers needs no node.
#include "graph/weave.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/weave_index.h"

namespace hmm::graph {
namespace {

using plan::kNone;
using plan::OpIndex;
using plan::StorageIndex;
using plan::TaskIndex;

constexpr char kOut[] = "hmm.out/";
constexpr char kIn[] = "hmm.in/";
constexpr char kDrop[] = "hmm.drop/";
constexpr char kAfterName[] = "hmm.after/";
constexpr char kAgain[] = "hmm.again/";
constexpr char kView[] = "hmm.view/";
constexpr std::size_t kTiers = 4;  // by TierKind
constexpr std::size_t kViewsMax = 1000;

using Clock = std::shared_ptr<const std::vector<std::uint32_t>>;

// A storage on its way.
struct State {
  std::string content;                    // the model's value that the bytes are now
  std::string name;                       // under which they are in HBM
  std::array<std::string, kTiers> lower;  // and below; empty: no copy there
  std::uint32_t epoch = 0;                // how often `name` or `content` changed
};

class Weaver {
 public:
  Weaver(const plan::Graph& graph, const plan::Plan& plan, const WeaveModel& model,
         const WeaveIndex& index)
      : graph_(graph),
        plan_(plan),
        model_(model),
        index_(index),
        states_(graph.storages.size()),
        emitted_(model.nodes.size(), false),
        last_on_(plan::ChannelCount(graph)),
        alone_(plan.sequence.size(), false),
        token_(plan.sequence.size()),
        clock_of_(plan.sequence.size()),
        zero_(std::make_shared<std::vector<std::uint32_t>>(last_on_.size(), 0)) {
    for (StorageIndex s = 0; s < states_.size(); ++s) {
      states_[s].content = states_[s].name = index.AtStart(s);
    }
  }

  absl::StatusOr<Woven> Run() {
    for (TaskIndex t = 0; t < plan_.sequence.size(); ++t) {
      const plan::Task& task = plan_.sequence[t];
      HMM_RETURN_IF_ERROR(task.is_move ? RunMove(t, plan_.moves[task.index], task.index)
                                       : RunOp(t, task.index));
    }
    for (std::uint32_t n = 0; n < model_.nodes.size(); ++n) HMM_RETURN_IF_ERROR(Emit(n));
    return std::move(out_);
  }

 private:
  // 1. Clocks of names.
  const Clock& ClockOf(const std::string& name) const {
    const auto found = clocks_.find(name);
    return found != clocks_.end() ? found->second : zero_;
  }
  static Clock Merged(const Clock& a, const Clock& b) {
    if (a == b || Covers(*a, *b)) return a;
    if (Covers(*b, *a)) return b;
    auto merged = std::make_shared<std::vector<std::uint32_t>>(*a);
    for (std::size_t c = 0; c < merged->size(); ++c) (*merged)[c] = std::max((*a)[c], (*b)[c]);
    return merged;
  }
  static bool Covers(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
    for (std::size_t c = 0; c < a.size(); ++c) {
      if (a[c] < b[c]) return false;
    }
    return true;
  }
  Clock ClockOfInputs(const std::vector<std::string>& inputs) const {
    Clock clock = zero_;
    for (const std::string& input : inputs) clock = Merged(clock, ClockOf(input));
    return clock;
  }

  void Push(WovenNode node, const Clock& clock) {
    for (const std::string& output : node.outputs) clocks_[output] = clock;
    out_.nodes.push_back(std::move(node));
  }

  // 2. Values as they are called now.
  absl::StatusOr<std::string> Actual(const std::string& value) {
    if (value.empty()) return value;
    const std::uint32_t made = index_.Producer(value);
    if (made != kNone && !emitted_[made]) HMM_RETURN_IF_ERROR(Emit(made));
    const std::vector<StorageIndex>& held = index_.Held(value);
    if (held.empty()) return value;
    if (held.size() == 1 && states_[held[0]].content == value) return states_[held[0]].name;
    // Another name for the same part of a tuple.
    if (const Written* written = index_.WrittenBy(value); written != nullptr) {
      if (states_[held[0]].content == *index_.Holder(*written)) return states_[held[0]].name;
    }
    const auto known = known_.find(value);
    const std::vector<std::uint32_t> now = EpochsOf(held);
    if (known != known_.end() && known->second.epochs == now) return known->second.name;
    if (made == kNone) return value;  // there at start, and nobody's content any more
    const WeaveNode& node = model_.nodes[made];
    if (node.op != kNone && !graph_.ops[node.op].writes.empty()) {
      if (held.size() == 1) return value;
      return CannotWeave(absl::StrCat("op ", Shown(graph_.ops[node.op].name),
                                      " yields a tuple that is ",
                                      "read whole after a part of it was moved; take it apart"));
    }
    return CopyView(made, value);
  }

  struct Known {
    std::string name;
    std::vector<std::uint32_t> epochs;
  };
  std::vector<std::uint32_t> EpochsOf(const std::vector<StorageIndex>& held) const {
    std::vector<std::uint32_t> epochs;
    for (const StorageIndex s : held) epochs.push_back(states_[s].epoch);
    return epochs;
  }

  absl::StatusOr<std::string> CopyView(std::uint32_t n, const std::string& value) {
    WovenNode copy;
    copy.kind = WovenNode::Kind::kCopy;
    copy.node = n;
    if (++views_ > kViewsMax) {
      return CannotWeave(absl::StrCat("more than ", kViewsMax, " views of views of what is moved"));
    }
    HMM_RETURN_IF_ERROR(ActualInputs(n, copy.inputs));
    --views_;
    const std::size_t number = copies_++;
    for (const std::string& output : model_.nodes[n].outputs) {
      if (output.empty()) {
        copy.outputs.emplace_back();
        continue;
      }
      copy.outputs.push_back(absl::StrCat(kView, number, "/", output));
      known_[output] = {copy.outputs.back(), EpochsOf(index_.Held(output))};
    }
    const Clock clock = ClockOfInputs(copy.inputs);
    Push(std::move(copy), clock);
    return known_[value].name;
  }

  absl::Status ActualInputs(std::uint32_t n, std::vector<std::string>& inputs) {
    for (const std::string& input : model_.nodes[n].inputs) {
      HMM_ASSIGN_OR_RETURN(std::string name, Actual(input));
      inputs.push_back(std::move(name));
    }
    return absl::OkStatus();
  }

  // What passes on stands where it is first needed. Chains of it can be long, so no recursion.
  absl::Status Emit(std::uint32_t first) {
    std::vector<std::uint32_t> open = {first};
    while (!open.empty()) {
      const std::uint32_t n = open.back();
      if (emitted_[n]) {
        open.pop_back();
        continue;
      }
      const std::size_t before = open.size();
      for (const std::string& input : model_.nodes[n].inputs) {
        const std::uint32_t made = index_.Producer(input);
        if (made != kNone && !emitted_[made]) open.push_back(made);
      }
      // Of nodes that make one name the last counts.
      const std::uint32_t earlier = index_.Earlier(n);
      if (earlier != kNone && !emitted_[earlier]) open.push_back(earlier);
      if (open.size() > before) {
        if (open.size() > index_.inputs()) {  // more than all that nodes need
          return CannotWeave(absl::StrCat("node of ", Shown(FirstOutput(n)), " depends on itself"));
        }
        continue;
      }
      open.pop_back();
      WovenNode node;
      node.node = n;
      HMM_RETURN_IF_ERROR(ActualInputs(n, node.inputs));
      const Clock clock = ClockOfInputs(node.inputs);
      Place(n, std::move(node), clock);
    }
    return absl::OkStatus();
  }

  std::string FirstOutput(std::uint32_t n) const {
    const auto& outputs = model_.nodes[n].outputs;
    return outputs.empty() ? std::string() : outputs[0];
  }

  // Writes a node of the model, and what it makes of the storages.
  void Place(std::uint32_t n, WovenNode node, const Clock& clock) {
    emitted_[n] = true;
    node.outputs = model_.nodes[n].outputs;
    const OpIndex op = model_.nodes[n].op;
    if (op != kNone) {
      for (const StorageIndex s : graph_.ops[op].writes) {
        State& state = states_[s];
        const std::string* holder = index_.Holder({op, s});
        state.content = holder != nullptr ? *holder : "";
        state.name = state.content;
        state.lower = {};
        ++state.epoch;
      }
    }
    for (const std::string& output : node.outputs) {
      if (!output.empty()) known_[output] = {output, EpochsOf(index_.Held(output))};
    }
    Push(std::move(node), clock);
  }

  // 3. Tasks.
  // What task t, with `inputs`, has to follow and data does not lead from: its waits, and the tasks
  // before it on its channel. Latest first, since they cover most.
  std::vector<TaskIndex> Uncovered(TaskIndex t, std::uint32_t channel,
                                   const std::vector<std::string>& inputs, Clock& clock) const {
    std::vector<TaskIndex> waits(plan_.waits.begin() + plan_.wait_begin[t],
                                 plan_.waits.begin() + plan_.wait_begin[t + 1]);
    if (channel != kNone) {
      waits.insert(waits.end(), last_on_[channel].begin(), last_on_[channel].end());
    }
    std::sort(waits.begin(), waits.end(), std::greater<>());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    std::vector<TaskIndex> left;
    for (const TaskIndex w : waits) {
      if (token_[w].empty() || Leads(w, inputs, *clock)) continue;
      left.push_back(w);
      clock = Merged(clock, clock_of_[w]);
    }
    return left;
  }

  // Whether what stands behind `clock` and `inputs` stands behind task w.
  bool Leads(TaskIndex w, const std::vector<std::string>& inputs,
             const std::vector<std::uint32_t>& clock) const {
    if (!alone_[w]) return Covers(clock, *clock_of_[w]);
    // Nothing says where it stands but those that follow it, as the next of its channel does.
    const std::uint32_t channel = plan::ChannelOf(graph_, plan_, plan_.sequence[w]);
    return clock[channel] > w + 1 ||
           std::find(inputs.begin(), inputs.end(), token_[w]) != inputs.end();
  }

  // Passes inputs[at] on behind each of `waits`.
  void Follow(std::vector<std::string>& inputs, std::size_t at,
              const std::vector<TaskIndex>& waits) {
    for (const TaskIndex w : waits) {
      WovenNode after;
      after.kind = WovenNode::Kind::kAfter;
      after.inputs = {inputs[at], token_[w]};
      after.outputs = {absl::StrCat(kAfterName, afters_++)};
      inputs[at] = after.outputs[0];
      const Clock clock = ClockOfInputs(after.inputs);
      Push(std::move(after), clock);
    }
  }

  // A tensor that "after" can pass on; a result of this step rather than a weight, which tools may
  // want to be a constant. kNone: there is none.
  std::size_t Carrier(std::uint32_t n) const {
    std::size_t best = kNone;
    const std::vector<std::string>& inputs = model_.nodes[n].inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::vector<StorageIndex>& held = index_.Held(inputs[i]);
      if (held.size() != 1) continue;
      if (!graph_.storages[held[0]].persistent) return i;
      if (best == kNone) best = i;
    }
    return best;
  }

  void Ended(TaskIndex t, std::uint32_t channel, const std::string& token, const Clock& clock) {
    auto own = std::make_shared<std::vector<std::uint32_t>>(*clock);
    if (channel != kNone && alone_[t]) {
      last_on_[channel].push_back(t);
    } else if (channel != kNone) {
      (*own)[channel] = t + 1;
      last_on_[channel] = {t};
    }
    clock_of_[t] = std::move(own);
    token_[t] = token;
  }

  // Puts a node that may have no input to carry it behind what task t waits for.
  Clock Behind(TaskIndex t, std::uint32_t channel, std::uint32_t n, WovenNode& node) {
    Clock clock = ClockOfInputs(node.inputs);
    const Clock by_data = clock;
    const std::vector<TaskIndex> waits = Uncovered(t, channel, node.inputs, clock);
    if (waits.empty()) return clock;
    const std::size_t carrier = Carrier(n);
    if (carrier == kNone) {
      ++out_.unordered;
      alone_[t] = true;
      return by_data;
    }
    Follow(node.inputs, carrier, waits);
    return clock;
  }

  // Views and constants run nothing: they are ordered by data, or need no order.
  bool PassesOn(std::uint32_t n) const {
    const WeaveNode& node = model_.nodes[n];
    const plan::Op& op = graph_.ops[node.op];
    if (!op.reads.empty() || !op.writes.empty() || op.workspace > 0 || op.group) return false;
    if (index_.IsRepeated(n)) return true;
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](const std::string& output) { return !index_.Held(output).empty(); });
  }

  absl::Status RunOp(TaskIndex t, OpIndex op) {
    const std::uint32_t n = index_.NodeOf(op);
    if (n == kNone) return absl::OkStatus();
    if (PassesOn(n)) {
      HMM_RETURN_IF_ERROR(Emit(n));
      Ended(t, kNone, FirstOutput(n), ClockOf(FirstOutput(n)));
      return absl::OkStatus();
    }
    if (emitted_[n]) {
      return CannotWeave(
          absl::StrCat("op ", Shown(graph_.ops[op].name), " is needed before it runs"));
    }
    WovenNode node;
    node.node = n;
    HMM_RETURN_IF_ERROR(ActualInputs(n, node.inputs));
    const std::uint32_t channel = plan::ChannelOf(graph_, plan_, plan_.sequence[t]);
    const Clock clock = Behind(t, channel, n, node);
    Ended(t, channel, FirstOutput(n), clock);
    Place(n, std::move(node), clock_of_[t]);
    // While its parts are all still what it yields.
    for (const std::uint32_t part : index_.PartsOf(op)) HMM_RETURN_IF_ERROR(Emit(part));
    return absl::OkStatus();
  }

  absl::Status RunMove(TaskIndex t, const plan::Move& move, std::uint32_t index) {
    if (move.kind == plan::MoveKind::kRecompute) return RunAgain(t, move, index);
    HMM_ASSIGN_OR_RETURN(std::string from, Source(move));
    if (from.empty()) {
      return CannotWeave(absl::StrCat("storage ", Shown(graph_.storages[move.storage].name),
                                      " is moved, and no node of the model yields it alone"));
    }
    WovenNode node;
    node.kind = WovenNode::Kind::kMove;
    node.move = index;
    node.inputs = {std::move(from)};
    const std::uint32_t channel = plan::ChannelOf(graph_, plan_, plan_.sequence[t]);
    Clock clock = ClockOfInputs(node.inputs);
    const std::vector<TaskIndex> waits = Uncovered(t, channel, node.inputs, clock);
    Follow(node.inputs, 0, waits);
    const char* prefix = move.kind == plan::MoveKind::kSwapOut  ? kOut
                         : move.kind == plan::MoveKind::kSwapIn ? kIn
                                                                : kDrop;
    node.outputs = {absl::StrCat(prefix, index)};
    const std::string made = node.outputs[0];
    Ended(t, channel, made, clock);
    Push(std::move(node), clock_of_[t]);
    if (move.storage != kNone) Settle(move, made);
    return absl::OkStatus();
  }

  // What a move takes.
  absl::StatusOr<std::string> Source(const plan::Move& move) {
    if (move.storage == kNone) {
      return Actual(states_[graph_.groups[move.group].members[0]].content);
    }
    const State& state = states_[move.storage];
    const auto from = static_cast<std::size_t>(move.from);
    const std::string& below = state.lower[from];
    if (move.from != TierKind::kHbm && !below.empty()) return below;
    if (move.kind == plan::MoveKind::kDrop) {
      // What stays: the copy below, which what comes later is taken from.
      for (const std::string& copy : state.lower) {
        if (!copy.empty()) return copy;
      }
    }
    return state.content.empty() ? std::string() : Actual(state.content);
  }

  void Settle(const plan::Move& move, const std::string& made) {
    State& state = states_[move.storage];
    const auto to = static_cast<std::size_t>(move.to);
    if (move.kind == plan::MoveKind::kDrop) {
      for (std::string& copy : state.lower) {
        if (copy.empty()) continue;
        copy = made;
        return;
      }
      if (!graph_.storages[move.storage].recomputable) {
        state.lower[static_cast<std::size_t>(TierKind::kDdr)] = made;  // there from the start
      }
      return;
    }
    if (move.to != TierKind::kHbm) {
      state.lower[to] = made;
      return;
    }
    state.name = made;
    ++state.epoch;
  }

  absl::Status RunAgain(TaskIndex t, const plan::Move& move, std::uint32_t index) {
    const std::uint32_t n = index_.NodeOf(move.producer);
    State& state = states_[move.storage];
    const std::string* holder = index_.Holder({move.producer, move.storage});
    if (n == kNone || holder == nullptr) {
      return CannotWeave(absl::StrCat("storage ", Shown(graph_.storages[move.storage].name),
                                      " is made anew, and no node of the model yields it alone"));
    }
    WovenNode node;
    node.kind = WovenNode::Kind::kCopy;
    node.node = n;
    node.move = index;
    HMM_RETURN_IF_ERROR(ActualInputs(n, node.inputs));
    const std::uint32_t channel = plan::ChannelOf(graph_, plan_, plan_.sequence[t]);
    const Clock clock = Behind(t, channel, n, node);
    std::string made;
    for (const std::string& output : model_.nodes[n].outputs) {
      node.outputs.push_back(output.empty() ? "" : absl::StrCat(kAgain, index, "/", output));
      if (output == *holder) made = node.outputs.back();
    }
    if (made.empty()) {
      return CannotWeave(absl::StrCat("op ", Shown(graph_.ops[move.producer].name),
                                      " yields a tuple, and is run again"));
    }
    Ended(t, channel, made, clock);
    Push(std::move(node), clock_of_[t]);
    state.content = *holder;
    state.name = made;
    state.lower = {};
    ++state.epoch;
    return absl::OkStatus();
  }

  const plan::Graph& graph_;
  const plan::Plan& plan_;
  const WeaveModel& model_;
  const WeaveIndex& index_;
  Woven out_;
  std::vector<State> states_;
  std::vector<bool> emitted_;
  absl::flat_hash_map<std::string, Known> known_;  // how a value is called, and since when
  std::size_t copies_ = 0, afters_ = 0;
  std::size_t views_ = 0;                        // that are being copied, one within the other
  std::vector<std::vector<TaskIndex>> last_on_;  // by channel: its latest, and such as are alone
  std::vector<bool> alone_;                      // has no input that could carry its order
  std::vector<std::string> token_;               // a name that exists once the task ended
  std::vector<Clock> clock_of_;                  // by task
  absl::flat_hash_map<std::string, Clock> clocks_;
  Clock zero_;
};

}  // namespace

absl::StatusOr<Woven> Weave(const plan::Graph& graph, const plan::Plan& plan,
                            const WeaveModel& model) {
  const absl::StatusOr<WeaveIndex> index = WeaveIndex::Make(graph, plan, model);
  if (!index.ok()) return index.status();
  return Weaver(graph, plan, model, *index).Run();
}

bool IsWovenName(const std::string& name) {
  for (const char* prefix : {kOut, kIn, kDrop, kAfterName, kAgain, kView}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

WovenName ParseWovenName(const std::string& name) {
  if (!absl::StartsWith(name, kWovenPrefix)) return {};
  for (const char* copy : {kAgain, kView}) {
    if (!absl::StartsWith(name, copy)) continue;
    const std::size_t slash = name.find('/', std::string_view(copy).size());
    return {true, slash == std::string::npos ? "" : name.substr(slash + 1)};
  }
  return {true, ""};
}

}  // namespace hmm::graph
