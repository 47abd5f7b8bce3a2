// SPDX-License-Identifier: Apache-2.0
#include "graph/costed_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 8;  // a costed graph has 3
constexpr double kMillisecondsMax = 1e12;

struct Node {
  std::int64_t id = 0;
  std::string name;
  double us = 0;
  Bytes bytes = 0;
  bool backward = false;
  std::vector<std::uint32_t> from;  // places in `nodes`; unique, ascending
};

// The parser spends a hundred bytes on a level, so depth is judged before it runs.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDepthMax) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// json.hpp reports by exceptions; they end here.
absl::StatusOr<json> ParseJson(std::string_view text, const std::string& file) {
  if (TooDeep(text)) return BadGraph(file, absl::StrCat("nested deeper than ", kDepthMax));
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const std::size_t at = error.byte == 0 ? 0 : error.byte - 1;
    return BadGraph(absl::StrCat(file, ":", LineAt(text, at)),
                    absl::StrCat("no JSON at byte ", at, ": cut short or damaged"));
  } catch (const json::exception& error) {
    return BadGraph(file, absl::StrCat("no JSON: ", error.what()));
  }
}

// The member `key` of an object; an error that names it if it is missing.
absl::StatusOr<const json*> Member(const json& object, const std::string& where, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return BadGraph(where, absl::StrCat(key, ": is missing"));
  return &*it;
}

absl::StatusOr<Bytes> WholeBytes(const json& value, const std::string& where, const char* key) {
  if (!value.is_number_unsigned()) {
    return BadGraph(where, absl::StrCat(key, ": is no whole number from 0 on"));
  }
  const auto bytes = value.get<std::uint64_t>();
  if (bytes > Bytes{1} << 61) return BadGraph(where, absl::StrCat(key, ": is beyond 2^61 bytes"));
  return bytes;
}

absl::StatusOr<std::int64_t> NodeId(const json& value, const std::string& where, const char* key) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() < (1ULL << 62));
  if (!fits) return BadGraph(where, absl::StrCat(key, ": is no whole number"));
  return value.get<std::int64_t>();
}

absl::StatusOr<Node> ReadNode(const json& in, const std::string& at) {
  if (!in.is_object()) return BadGraph(at, "is no object");
  Node node;
  HMM_ASSIGN_OR_RETURN(const json* const id, Member(in, at, "id"));
  HMM_ASSIGN_OR_RETURN(node.id, NodeId(*id, at, "id"));
  HMM_ASSIGN_OR_RETURN(const json* const name, Member(in, at, "name"));
  if (!name->is_string() || name->get_ref<const std::string&>().empty() ||
      name->get_ref<const std::string&>().size() > kNameBytesMax) {
    return BadGraph(at, absl::StrCat("name: is no text of 1 to ", kNameBytesMax, " bytes"));
  }
  node.name = name->get<std::string>();
  const std::string where = absl::StrCat(at, " ", Shown(node.name));
  HMM_ASSIGN_OR_RETURN(const json* const ms, Member(in, where, "cpu_ms"));
  const double milliseconds = ms->is_number() ? ms->get<double>() : -1;
  if (!(milliseconds >= 0 && milliseconds <= kMillisecondsMax)) {
    return BadGraph(where, "cpu_ms: is no number from 0 to 1e12");
  }
  node.us = milliseconds * 1000;
  HMM_ASSIGN_OR_RETURN(const json* const bytes, Member(in, where, "ram_bytes"));
  HMM_ASSIGN_OR_RETURN(node.bytes, WholeBytes(*bytes, where, "ram_bytes"));
  if (const auto it = in.find("backward"); it != in.end()) {
    if (!it->is_boolean()) return BadGraph(where, "backward: is neither true nor false");
    node.backward = it->get<bool>();
  }
  return node;
}

absl::StatusOr<std::vector<Node>> ReadNodes(const json& root, const std::string& file) {
  HMM_ASSIGN_OR_RETURN(const json* const list, Member(root, file, "nodes"));
  if (!list->is_array()) return BadGraph(file, "nodes: is no list");
  if (list->size() > kOpsMax) return BadGraph(file, absl::StrCat("nodes: more than ", kOpsMax));
  std::vector<Node> nodes;
  std::unordered_map<std::string, std::size_t> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = absl::StrCat(file, ": nodes[", i, "]");
    HMM_ASSIGN_OR_RETURN(Node node, ReadNode((*list)[i], at));
    const auto [it, added] = names.emplace(node.name, i);
    if (!added) {
      return BadGraph(
          at, absl::StrCat("name: ", Shown(node.name), " is that of nodes[", it->second, "]"));
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

absl::Status ReadEdges(const json& root, const std::string& file, std::vector<Node>& nodes) {
  std::unordered_map<std::int64_t, std::uint32_t> place;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (place.emplace(nodes[i].id, i).second) continue;
    return BadGraph(absl::StrCat(file, ": nodes[", i, "] ", Shown(nodes[i].name)),
                    absl::StrCat("id: ", nodes[i].id, " is taken"));
  }
  HMM_ASSIGN_OR_RETURN(const json* const list, Member(root, file, "edges"));
  if (!list->is_array()) return BadGraph(file, "edges: is no list");
  for (std::size_t e = 0; e < list->size(); ++e) {
    const std::string at = absl::StrCat(file, ": edges[", e, "]");
    const json& edge = (*list)[e];
    if (!edge.is_array() || edge.size() != 2) {
      return BadGraph(at, "is no pair [producer, consumer]");
    }
    std::uint32_t ends[2] = {};
    for (std::size_t side = 0; side < 2; ++side) {
      HMM_ASSIGN_OR_RETURN(const std::int64_t id, NodeId(edge[side], at, "id"));
      const auto it = place.find(id);
      if (it == place.end()) return BadGraph(at, absl::StrCat("there is no node ", id));
      ends[side] = it->second;
    }
    if (ends[0] == ends[1]) {
      return BadGraph(at, absl::StrCat("node ", Shown(nodes[ends[0]].name), " feeds itself"));
    }
    nodes[ends[1]].from.push_back(ends[0]);
  }
  for (Node& node : nodes) {
    std::sort(node.from.begin(), node.from.end());
    node.from.erase(std::unique(node.from.begin(), node.from.end()), node.from.end());
  }
  return absl::OkStatus();
}

// The given order where it is one, else the nearest to it: the first that can run runs first.
absl::StatusOr<std::vector<std::uint32_t>> Sorted(const std::vector<Node>& nodes,
                                                  const std::string& file) {
  const auto n = static_cast<std::uint32_t>(nodes.size());
  std::vector<std::vector<std::uint32_t>> to(n);
  std::vector<std::size_t> waits(n);
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t i = 0; i < n; ++i) {
    waits[i] = nodes[i].from.size();
    for (const std::uint32_t from : nodes[i].from) to[from].push_back(i);
    if (waits[i] == 0) ready.push(i);
  }
  std::vector<std::uint32_t> order;
  order.reserve(n);
  while (!ready.empty()) {
    const std::uint32_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const std::uint32_t next : to[i]) {
      if (--waits[next] == 0) ready.push(next);
    }
  }
  if (order.size() == n) return order;
  // Going back from any node that never got ready by one that did not either ends on the circle.
  std::uint32_t at = 0;
  while (waits[at] == 0) ++at;
  for (std::uint32_t step = 0; step < n; ++step) {
    const auto& from = nodes[at].from;
    at = *std::find_if(from.begin(), from.end(), [&](std::uint32_t f) { return waits[f] > 0; });
  }
  return BadGraph(file, absl::StrCat("nodes: node ", nodes[at].id, " ", Shown(nodes[at].name),
                                     " depends on itself; a graph has no circles"));
}

// "layer4_LinearLayer" is a LinearLayer.
std::string TypeOf(const std::string& name) {
  const std::size_t bar = name.find('_');
  const bool counted = name.starts_with("layer") && bar != std::string::npos && bar > 5 &&
                       name.find_first_not_of("0123456789", 5) == bar;
  return counted ? name.substr(bar + 1) : name;
}

void AddParameters(Bytes bytes, const CostedOptions& options, plan::Graph& graph) {
  if (bytes == 0) return;
  if (!options.pin_parameters) {
    graph.unknown.push_back(
        absl::StrCat("parameters (", FormatBytes(bytes), ", read by nodes that are not named)"));
    return;
  }
  plan::Storage parameters;
  parameters.name = "parameters";
  while (std::any_of(graph.storages.begin(), graph.storages.end(),
                     [&](const plan::Storage& s) { return s.name == parameters.name; })) {
    parameters.name += "_";
  }
  parameters.bytes = bytes;
  parameters.kind = TensorKind::kWeight;
  parameters.persistent = true;
  parameters.pinned = true;
  graph.storages.push_back(std::move(parameters));
}

plan::Graph Build(const std::vector<Node>& nodes, const std::vector<std::uint32_t>& order) {
  plan::Graph graph;
  std::vector<std::uint32_t> op_of(nodes.size(), 0), storage_of(nodes.size(), 0);
  for (const std::uint32_t i : order) {
    const Node& node = nodes[i];
    plan::Op op;
    op.name = node.name;
    op.type = TypeOf(node.name);
    op.microseconds = node.us;
    for (const std::uint32_t from : node.from) {
      // What has no bytes orders all the same.
      (nodes[from].bytes == 0 ? op.after : op.reads)
          .push_back(nodes[from].bytes == 0 ? op_of[from] : storage_of[from]);
    }
    std::sort(op.reads.begin(), op.reads.end());
    op_of[i] = static_cast<std::uint32_t>(graph.ops.size());
    if (node.bytes > 0) {
      storage_of[i] = static_cast<std::uint32_t>(graph.storages.size());
      op.writes = {storage_of[i]};
      plan::Storage storage;
      storage.name = node.name;
      storage.bytes = node.bytes;
      // What nothing feeds is data from outside: running the node again would not give it.
      storage.recomputable = !node.backward && !node.from.empty();
      graph.storages.push_back(std::move(storage));
    }
    graph.ops.push_back(std::move(op));
  }
  return graph;
}

}  // namespace

absl::StatusOr<plan::Graph> ParseCostedGraph(std::string_view text, const std::string& file,
                                             const CostedOptions& options) {
  if (text.size() > kTextBytesMax) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                 absl::StrCat(file, ": larger than ", FormatBytes(kTextBytesMax)));
  }
  HMM_ASSIGN_OR_RETURN(const json root, ParseJson(text, file));
  if (!root.is_object()) return BadGraph(file, "no costed graph: not a JSON object");
  HMM_ASSIGN_OR_RETURN(std::vector<Node> nodes, ReadNodes(root, file));
  HMM_RETURN_IF_ERROR(ReadEdges(root, file, nodes));
  HMM_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> order, Sorted(nodes, file));
  plan::Graph graph = Build(nodes, order);
  if (const auto it = root.find("model"); it != root.end()) {
    if (!it->is_string() || it->get_ref<const std::string&>().size() > kNameBytesMax) {
      return BadGraph(file, absl::StrCat("model: is no text of up to ", kNameBytesMax, " bytes"));
    }
    graph.name = it->get<std::string>();
  }
  Bytes parameters = 0;
  if (const auto it = root.find("param_bytes"); it != root.end()) {
    HMM_ASSIGN_OR_RETURN(parameters, WholeBytes(*it, file, "param_bytes"));
  }
  AddParameters(parameters, options, graph);
  if (const absl::Status status = plan::CheckGraph(graph); !status.ok()) {
    return BadGraph(file, std::string(status.message()));
  }
  return graph;
}

absl::StatusOr<plan::Graph> ReadCostedGraph(const std::string& path, const CostedOptions& options) {
  HMM_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, kTextBytesMax));
  return ParseCostedGraph(text, path, options);
}

}  // namespace hmm::graph
