// SPDX-License-Identifier: Apache-2.0
#include "plan/lifetimes.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace hmm::plan {
namespace {

// The uses of one position, unique: the op's reads and writes merged (write wins), its group's
// members when the group is not offloaded.
class UseLister {
 public:
  UseLister(const Graph& graph, const Order& order) : graph_(graph), order_(order) {}

  struct StorageUse {
    StorageIndex storage;
    bool write;
  };
  const std::vector<StorageUse>& List(const ExecStep& step) {
    const Op& op = graph_.ops[step.op];
    list_.clear();
    if (step.remakes != kNone) {
      for (const StorageIndex s : op.reads) list_.push_back({s, false});
      list_.push_back({step.remakes, true});
      return list_;
    }
    std::size_t r = 0;
    for (const StorageIndex s : op.writes) {
      for (; r < op.reads.size() && op.reads[r] < s; ++r) list_.push_back({op.reads[r], false});
      if (r < op.reads.size() && op.reads[r] == s) ++r;
      list_.push_back({s, true});
    }
    for (; r < op.reads.size(); ++r) list_.push_back({op.reads[r], false});
    if (op.group.has_value() && !order_.offloaded[*op.group]) AddMembers(*op.group);
    return list_;
  }

 private:
  void AddMembers(std::uint32_t group) {
    const std::size_t direct = list_.size();
    for (const StorageIndex s : graph_.groups[group].members) {
      const bool seen = std::any_of(list_.begin(), list_.begin() + static_cast<long>(direct),
                                    [s](const StorageUse& use) { return use.storage == s; });
      if (!seen) list_.push_back({s, false});
    }
  }

  const Graph& graph_;
  const Order& order_;
  std::vector<StorageUse> list_;
};

std::vector<bool> HiddenMembers(const Graph& graph, const Order& order) {
  std::vector<bool> hidden(graph.storages.size(), false);
  for (std::size_t g = 0; g < graph.groups.size(); ++g) {
    if (!order.offloaded[g]) continue;
    for (const StorageIndex s : graph.groups[g].members) hidden[s] = true;
  }
  return hidden;
}

Life NewLife(const Graph& graph, StorageIndex s, bool first) {
  const Storage& storage = graph.storages[s];
  Life life;
  life.storage = s;
  life.bytes = storage.bytes;
  life.cyclic = storage.persistent;
  life.at_start = first && (storage.persistent || storage.input);
  life.fixed = storage.pinned;
  return life;
}

// Lives in order of discovery and the uses that name them.
void FindLives(const Graph& graph, const Order& order, Lifetimes& out) {
  UseLister lister(graph, order);
  std::vector<std::uint32_t> current(graph.storages.size(), kNone);
  out.use_begin.reserve(order.steps.size() + 1);
  for (const ExecStep& step : order.steps) {
    out.use_begin.push_back(static_cast<std::uint32_t>(out.uses.size()));
    for (const auto& [s, write] : lister.List(step)) {
      const bool anew = s == step.remakes;
      if (current[s] == kNone || anew) {
        if (current[s] != kNone) out.lives[current[s]].remade = true;
        out.lives.push_back(NewLife(graph, s, current[s] == kNone));
        current[s] = static_cast<std::uint32_t>(out.lives.size() - 1);
      }
      out.uses.push_back({current[s], write});
    }
  }
  out.use_begin.push_back(static_cast<std::uint32_t>(out.uses.size()));
  const std::vector<bool> hidden = HiddenMembers(graph, order);
  for (StorageIndex s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    if (current[s] == kNone) {
      if (hidden[s] || !storage.persistent) continue;  // an unused input is nobody's burden
      out.lives.push_back(NewLife(graph, s, true));
      current[s] = static_cast<std::uint32_t>(out.lives.size() - 1);
    }
    out.lives[current[s]].at_end = storage.persistent || storage.output;
  }
}

// Distributes the accesses to their lives.
void FillAccesses(Lifetimes& out) {
  std::vector<std::uint32_t> count(out.lives.size() + 1, 0);
  for (const Use& use : out.uses) ++count[use.life + 1];
  std::partial_sum(count.begin(), count.end(), count.begin());
  for (std::size_t i = 0; i < out.lives.size(); ++i) {
    out.lives[i].access_begin = count[i];
    out.lives[i].access_end = count[i + 1];
  }
  out.accesses.resize(out.uses.size());
  for (std::uint32_t p = 0; p + 1 < out.use_begin.size(); ++p) {
    for (std::uint32_t u = out.use_begin[p]; u < out.use_begin[p + 1]; ++u) {
      out.accesses[count[out.uses[u].life]++] = {p, out.uses[u].write};
    }
  }
  for (Life& life : out.lives) {
    bool written = false;
    for (std::uint32_t a = life.access_begin; a < life.access_end; ++a) {
      written = written || out.accesses[a].write;
    }
    life.clean = life.cyclic && !written;
  }
}

// Renumbers the lives by what they are, not by where the input listed them.
void SortLives(Lifetimes& out) {
  const auto key = [&out](const Life& life) {
    const bool used = life.access_begin < life.access_end;
    const std::uint32_t first = used ? out.accesses[life.access_begin].position : kNone;
    const std::uint32_t last = used ? out.accesses[life.access_end - 1].position : kNone;
    return std::tuple(first, last, life.bytes, life.access_end - life.access_begin, life.at_start,
                      life.at_end, life.cyclic, life.fixed);
  };
  const auto less = [&](std::uint32_t a, std::uint32_t b) {
    const Life& x = out.lives[a];
    const Life& y = out.lives[b];
    const auto kx = key(x), ky = key(y);
    if (kx != ky) return kx < ky;
    for (std::uint32_t i = 0; i < x.access_end - x.access_begin; ++i) {
      const Access& ax = out.accesses[x.access_begin + i];
      const Access& ay = out.accesses[y.access_begin + i];
      if (ax.position != ay.position) return ax.position < ay.position;
      if (ax.write != ay.write) return ay.write;
    }
    return x.storage < y.storage;
  };
  std::vector<std::uint32_t> by(out.lives.size());
  std::iota(by.begin(), by.end(), 0U);
  std::sort(by.begin(), by.end(), less);
  std::vector<std::uint32_t> place(by.size());
  std::vector<Life> sorted;
  sorted.reserve(by.size());
  for (std::uint32_t i = 0; i < by.size(); ++i) {
    place[by[i]] = i;
    sorted.push_back(out.lives[by[i]]);
  }
  out.lives = std::move(sorted);
  for (Use& use : out.uses) use.life = place[use.life];
  for (std::size_t p = 0; p + 1 < out.use_begin.size(); ++p) {
    std::sort(out.uses.begin() + out.use_begin[p], out.uses.begin() + out.use_begin[p + 1],
              [](const Use& a, const Use& b) { return a.life < b.life; });
  }
}

void FillDeps(const Graph& graph, const Order& order, Lifetimes& out) {
  out.dep_begin.assign(out.positions + 1, 0);
  const bool one_stream = std::all_of(graph.ops.begin(), graph.ops.end(), [&graph](const Op& op) {
    return op.stream == graph.ops.front().stream;
  });
  if (one_stream) return;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;  // position, what it follows
  const auto stream = [&](std::uint32_t p) { return graph.ops[order.steps[p].op].stream; };
  const auto add = [&](std::uint32_t p, std::uint32_t before) {
    if (stream(p) != stream(before)) pairs.emplace_back(p, before);
  };
  std::vector<std::uint32_t> readers;
  for (const Life& life : out.lives) {
    std::uint32_t writer = kNone;
    readers.clear();
    for (std::uint32_t a = life.access_begin; a < life.access_end; ++a) {
      const Access& access = out.accesses[a];
      if (writer != kNone) add(access.position, writer);
      if (!access.write) {
        readers.push_back(access.position);
        continue;
      }
      for (const std::uint32_t reader : readers) add(access.position, reader);
      readers.clear();
      writer = access.position;
    }
  }
  std::vector<std::uint32_t> position_of(graph.ops.size(), kNone);
  for (std::uint32_t p = 0; p < out.positions; ++p) {
    if (order.steps[p].remakes == kNone) position_of[order.steps[p].op] = p;
  }
  for (std::uint32_t p = 0; p < out.positions; ++p) {
    for (const OpIndex op : graph.ops[order.steps[p].op].after) add(p, position_of[op]);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  for (const auto& [p, before] : pairs) {
    ++out.dep_begin[p + 1];
    out.deps.push_back(before);
  }
  std::partial_sum(out.dep_begin.begin(), out.dep_begin.end(), out.dep_begin.begin());
}

// Adds `bytes` over [first, last] of a difference array.
void Span(std::vector<Bytes>& difference, std::uint32_t first, std::uint32_t last, Bytes bytes) {
  difference[first] += bytes;
  difference[last + 1] -= bytes;  // wraps below 0 in between, and back
}

void FillCurve(const Graph& graph, const Order& order, Lifetimes& out) {
  const std::uint32_t n = out.positions;
  std::vector<Bytes> all(n + 1, 0), fixed(n + 1, 0);
  for (const Life& life : out.lives) {
    const bool used = life.access_begin < life.access_end;
    const std::uint32_t first = life.at_start ? 0 : out.accesses[life.access_begin].position;
    const std::uint32_t last =
        life.at_end || !used ? n - 1 : out.accesses[life.access_end - 1].position;
    Span(all, first, last, life.bytes);
    if (life.fixed) Span(fixed, first, last, life.bytes);
  }
  std::partial_sum(all.begin(), all.end(), all.begin());
  std::partial_sum(fixed.begin(), fixed.end(), fixed.begin());
  out.scratch.resize(n);
  out.own.resize(n);
  out.curve.resize(n);
  for (std::uint32_t p = 0; p < n; ++p) {
    const Op& op = graph.ops[order.steps[p].op];
    out.scratch[p] = op.workspace;
    if (op.group.has_value() && order.offloaded[*op.group]) {
      out.scratch[p] += GroupSlotBytes(graph, *op.group);
    }
    out.own[p] = out.scratch[p] + fixed[p];
    for (std::uint32_t u = out.use_begin[p]; u < out.use_begin[p + 1]; ++u) {
      const Life& life = out.lives[out.uses[u].life];
      if (!life.fixed) out.own[p] += life.bytes;
    }
    out.curve[p] = all[p] + out.scratch[p];
    if (out.curve[p] > out.peak_bytes) {
      out.peak_bytes = out.curve[p];
      out.peak_position = p;
    }
    if (out.own[p] > out.floor_bytes) {
      out.floor_bytes = out.own[p];
      out.floor_position = p;
    }
  }
}

}  // namespace

std::vector<bool> OffloadableGroups(const Graph& graph) {
  std::vector<std::uint8_t> groups_of(graph.storages.size(), 0);
  std::vector<bool> touched(graph.storages.size(), false);
  for (const DataDependentGroup& group : graph.groups) {
    for (const StorageIndex s : group.members) {
      groups_of[s] = static_cast<std::uint8_t>(std::min(2, groups_of[s] + 1));
    }
  }
  for (const Op& op : graph.ops) {
    for (const StorageIndex s : op.reads) touched[s] = true;
    for (const StorageIndex s : op.writes) touched[s] = true;
  }
  std::vector<bool> result;
  for (std::uint32_t g = 0; g < graph.groups.size(); ++g) {
    Bytes bytes = 0;
    bool may = true;
    for (const StorageIndex s : graph.groups[g].members) {
      const Storage& storage = graph.storages[s];
      may = may && storage.persistent && !storage.pinned && groups_of[s] == 1 && !touched[s];
      bytes += storage.bytes;
    }
    result.push_back(may && GroupSlotBytes(graph, g) < bytes);
  }
  return result;
}

Order GivenOrder(const Graph& graph) {
  Order order;
  order.steps.resize(graph.ops.size());
  for (OpIndex op = 0; op < graph.ops.size(); ++op) order.steps[op].op = op;
  order.offloaded.assign(graph.groups.size(), false);
  return order;
}

Bytes GroupSlotBytes(const Graph& graph, std::uint32_t group) {
  Bytes largest = 0;
  for (const StorageIndex s : graph.groups[group].members) {
    largest = std::max(largest, graph.storages[s].bytes);
  }
  return largest * graph.groups[group].k;
}

Lifetimes ComputeLifetimes(const Graph& graph, const Order& order) {
  HMM_CHECK(order.offloaded.size() == graph.groups.size());
  Lifetimes out;
  out.positions = static_cast<std::uint32_t>(order.steps.size());
  FindLives(graph, order, out);
  FillAccesses(out);
  SortLives(out);
  FillDeps(graph, order, out);
  if (out.positions > 0) FillCurve(graph, order, out);
  return out;
}

std::vector<Gap> FindGaps(const Lifetimes& lifetimes) {
  std::vector<Gap> gaps;
  const std::uint32_t n = lifetimes.positions;
  for (std::uint32_t l = 0; l < lifetimes.lives.size(); ++l) {
    const Life& life = lifetimes.lives[l];
    if (life.fixed || n == 0) continue;
    if (life.access_begin == life.access_end) {
      gaps.push_back({l, GapKind::kAll, 0, n, kNone});
      continue;
    }
    const std::uint32_t first = lifetimes.accesses[life.access_begin].position;
    if (life.at_start && !life.cyclic && first > 0) {
      gaps.push_back({l, GapKind::kHead, 0, first, kNone});
    }
    std::uint32_t last_write = kNone, at = kNone;
    for (std::uint32_t a = life.access_begin; a < life.access_end; ++a) {
      const Access& access = lifetimes.accesses[a];
      if (at != kNone && access.position > at + 1) {
        gaps.push_back({l, GapKind::kInner, at, access.position, last_write});
      }
      at = access.position;
      if (access.write) last_write = at;
    }
    if (life.cyclic && first + (n - 1 - at) > 0) {
      gaps.push_back({l, GapKind::kWrap, at, first, last_write});
    } else if (!life.cyclic && life.at_end && at + 1 < n) {
      gaps.push_back({l, GapKind::kTail, at, n, last_write});
    }
  }
  return gaps;
}

}  // namespace hmm::plan
