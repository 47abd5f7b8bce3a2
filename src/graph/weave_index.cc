// SPDX-License-Identifier: Apache-2.0
#include "graph/weave_index.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"

namespace hmm::graph {

using plan::kNone;
using plan::OpIndex;
using plan::StorageIndex;

absl::Status CannotWeave(const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph, what);
}

absl::StatusOr<WeaveIndex> WeaveIndex::Make(const plan::Graph& graph, const plan::Plan& plan,
                                            const WeaveModel& model) {
  if (plan.verdict == plan::Verdict::kInfeasible) {
    return CannotWeave("the budget is infeasible: there are no moves to write into the graph");
  }
  WeaveIndex index(graph, model);
  HMM_RETURN_IF_ERROR(index.AddNodes());
  index.at_start_.resize(graph.storages.size());
  for (const auto& [value, held] : model.holds) {
    if (held.size() == 1 && !index.producer_.contains(value)) index.SetStart(held[0], value);
  }
  for (std::uint32_t n = 0; n < model.nodes.size(); ++n) index.AddOutputs(n);
  HMM_RETURN_IF_ERROR(index.CheckReads(plan));
  return index;
}

absl::Status WeaveIndex::AddNodes() {
  node_of_op_.assign(graph_->ops.size(), kNone);
  for (std::uint32_t n = 0; n < model_->nodes.size(); ++n) {
    const WeaveNode& node = model_->nodes[n];
    inputs_ += 2 + node.inputs.size();  // and the one before it
    if (node.op != kNone) node_of_op_[node.op] = n;
    for (const std::string& output : node.outputs) {
      if (absl::StartsWith(output, kWovenPrefix) && !absl::StartsWith(output, kPartPrefix)) {
        return CannotWeave(absl::StrCat("value ", Shown(output),
                                        " has a name as the moves of a plan ",
                                        "have; give the graph without them"));
      }
      if (output.empty()) continue;
      const auto [made, first] = producer_.try_emplace(output, n);
      if (!first && made->second != n) earlier_[n] = made->second;
      made->second = n;
    }
  }
  return absl::OkStatus();
}

std::uint32_t WeaveIndex::Producer(const std::string& value) const {
  const auto found = producer_.find(value);
  return found != producer_.end() ? found->second : kNone;
}

std::uint32_t WeaveIndex::Earlier(std::uint32_t n) const {
  const auto found = earlier_.find(n);
  return found != earlier_.end() ? found->second : kNone;
}

bool WeaveIndex::IsRepeated(std::uint32_t n) const {
  if (earlier_.contains(n)) return true;
  const auto& outputs = model_->nodes[n].outputs;
  return std::any_of(outputs.begin(), outputs.end(), [&](const std::string& output) {
    return !output.empty() && Producer(output) != n;
  });
}

const std::vector<StorageIndex>& WeaveIndex::Held(const std::string& value) const {
  static const auto* nothing = new std::vector<StorageIndex>();
  const auto found = model_->holds.find(value);
  return found != model_->holds.end() ? found->second : *nothing;
}

const std::string* WeaveIndex::Holder(const Written& written) const {
  const auto found = holder_.find(written);
  return found != holder_.end() ? &found->second : nullptr;
}

const Written* WeaveIndex::WrittenBy(const std::string& value) const {
  const auto found = written_by_.find(value);
  return found != written_by_.end() ? &found->second : nullptr;
}

const std::vector<std::uint32_t>& WeaveIndex::PartsOf(OpIndex op) const {
  static const auto* nothing = new std::vector<std::uint32_t>();
  const auto found = parts_.find(op);
  return found != parts_.end() ? found->second : *nothing;
}

// Several names may be there at start; the storage's own comes first.
void WeaveIndex::SetStart(StorageIndex s, const std::string& value) {
  std::string& known = at_start_[s];
  const std::string& own = graph_->storages[s].name;
  if (known.empty() || value == own || (known != own && value < known)) known = value;
}

void WeaveIndex::AddOutputs(std::uint32_t n) {
  const WeaveNode& node = model_->nodes[n];
  for (const std::string& output : node.outputs) {
    const std::vector<StorageIndex>& held = Held(output);
    if (held.size() != 1) continue;
    const StorageIndex s = held[0];
    const OpIndex writer = WriterOf(n, s);
    if (writer != kNone) {
      holder_.try_emplace({writer, s}, output);
      written_by_[output] = {writer, s};
      if (node.op == kNone) parts_[writer].push_back(n);
    } else if (at_start_[s].empty() && Makes(n, s)) {
      at_start_[s] = output;  // a constant
    }
  }
}

// The op that wrote storage s as node n yields it: its own, or (an element of a tuple) that of what
// it takes apart.
OpIndex WeaveIndex::WriterOf(std::uint32_t n, StorageIndex s) const {
  const WeaveNode& node = model_->nodes[n];
  if (node.op != kNone) return Writes(node.op, s) ? node.op : kNone;
  for (const std::string& input : node.inputs) {
    const std::uint32_t producer = Producer(input);
    if (producer == kNone || Held(input).size() < 2 || !Holds(input, s)) continue;
    const OpIndex op = model_->nodes[producer].op;
    if (op != kNone && Writes(op, s)) return op;
  }
  return kNone;
}

bool WeaveIndex::Writes(OpIndex op, StorageIndex s) const {
  const auto& writes = graph_->ops[op].writes;
  return std::binary_search(writes.begin(), writes.end(), s);
}

bool WeaveIndex::Holds(const std::string& value, StorageIndex s) const {
  const std::vector<StorageIndex>& held = Held(value);
  return std::find(held.begin(), held.end(), s) != held.end();
}

// Whether it yields bytes that none of its inputs are.
bool WeaveIndex::Makes(std::uint32_t n, StorageIndex s) const {
  const auto& inputs = model_->nodes[n].inputs;
  return std::none_of(inputs.begin(), inputs.end(),
                      [&](const std::string& input) { return Holds(input, s); });
}

// What is moved has to be seen by those who read it.
absl::Status WeaveIndex::CheckReads(const plan::Plan& plan) const {
  std::vector<bool> moved(graph_->storages.size(), false);
  for (const plan::Move& move : plan.moves) {
    if (move.storage != kNone) moved[move.storage] = true;
  }
  for (OpIndex index = 0; index < graph_->ops.size(); ++index) {
    if (node_of_op_[index] == kNone) continue;
    const plan::Op& op = graph_->ops[index];
    const auto& inputs = model_->nodes[node_of_op_[index]].inputs;
    for (const StorageIndex s : op.reads) {
      const auto holds = [&](const std::string& input) { return Holds(input, s); };
      if (!moved[s] || std::any_of(inputs.begin(), inputs.end(), holds)) continue;
      return CannotWeave(absl::StrCat("storage ", Shown(graph_->storages[s].name),
                                      " lies inside op ", Shown(op.name), " (", op.type,
                                      "), where the file cannot show ",
                                      "that the plan moves it; give a larger budget"));
    }
  }
  return absl::OkStatus();
}

}  // namespace hmm::graph
