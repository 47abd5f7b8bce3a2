// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_proto.h"

#include <hmm/v1/graph.pb.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "graph/file_error.h"
#include "graph/message_file.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

using plan::Graph;

constexpr double kFlopsMax = 1e30;
constexpr double kMicrosecondsMax = 1e15;
constexpr Bytes kBytesMax = Bytes{1} << 61;
constexpr std::uint32_t kStreamMax = 63;

std::string At(const char* list, std::size_t index, std::string_view name) {
  return absl::StrCat(list, "[", index, "] ", Shown(name));
}

// Whose name something is, and where it stands, so that a second use can name the first.
class Names {
 public:
  absl::Status Add(const std::string& where, std::string_view name, std::size_t index) {
    if (name.empty()) return BadGraph(where, "name: is empty; every one needs a unique name");
    if (name.size() > kNameBytesMax) {
      return BadGraph(where, absl::StrCat("name: longer than ", kNameBytesMax, " bytes"));
    }
    if (!IsUtf8(name)) return BadGraph(where, "name: is not UTF-8");
    const auto [it, added] = first_.emplace(absl::string_view(name.data(), name.size()), index);
    if (added) return absl::OkStatus();
    return BadGraph(where, absl::StrCat("name: ", Shown(name), " is taken by number ", it->second,
                                        " of the list"));
  }
  void Reserve(std::size_t n) { first_.reserve(n); }

 private:
  absl::flat_hash_map<absl::string_view, std::size_t> first_;
};

// Ascending indices below `limit`, each once.
template <typename Where>
absl::StatusOr<std::vector<std::uint32_t>> Indices(
    const Where& where, const char* field, const google::protobuf::RepeatedField<uint32_t>& list,
    std::size_t limit, const char* what) {
  for (int i = 0; i < list.size(); ++i) {
    const auto bad = [&](const std::string& why) {
      return BadGraph(where(), absl::StrCat(field, "[", i, "]: ", list[i], why));
    };
    if (list[i] >= limit) {
      return bad(absl::StrCat(" is no ", what, "; the graph has ", limit, ", counted from 0"));
    }
    if (i > 0 && list[i] == list[i - 1]) return bad(" stands twice");
    if (i > 0 && list[i] < list[i - 1]) return bad(" follows a greater one; sort the list");
  }
  return std::vector<std::uint32_t>(list.begin(), list.end());
}

// NaN fails every comparison.
bool InRange(double value, double most) { return value >= 0 && value <= most; }

absl::StatusOr<plan::Storage> StorageFrom(const v1::Graph::Storage& in, std::size_t index) {
  const auto bad = [&](const std::string& what) {
    return BadGraph(At("storages", index, in.name()), what);
  };
  if (in.bytes() == 0) return bad("bytes: is 0 or missing; a tensor of unknown size is `unknown`");
  if (in.bytes() > kBytesMax) {
    return bad(absl::StrCat("bytes: ", in.bytes(), " is beyond 2^61 (a negative number?)"));
  }
  if (!v1::TensorKind_IsValid(in.kind()) || in.kind() == v1::TENSOR_KIND_UNSPECIFIED) {
    return bad(absl::StrCat("kind: ", static_cast<int>(in.kind()),
                            " is none; write TENSOR_KIND_WEIGHT, _KV_CACHE, _ACTIVATION, "
                            "_OPTIMIZER_STATE or _OTHER"));
  }
  plan::Storage out;
  out.name = in.name();
  out.aliases.assign(in.aliases().begin(), in.aliases().end());
  out.bytes = in.bytes();
  out.kind = static_cast<TensorKind>(in.kind());
  out.persistent = in.persistent();
  out.input = in.input();
  out.output = in.output();
  out.pinned = in.pinned();
  out.recomputable = in.recomputable();
  return out;
}

absl::StatusOr<plan::Op> OpFrom(const v1::Graph& graph, const v1::Graph::Op& in,
                                std::size_t index) {
  const auto where = [&] { return At("ops", index, in.name()); };
  const auto storages = static_cast<std::size_t>(graph.storages_size());
  plan::Op out;
  out.name = in.name();
  out.type = in.type();
  HMM_ASSIGN_OR_RETURN(out.reads, Indices(where, "reads", in.reads(), storages, "storage"));
  HMM_ASSIGN_OR_RETURN(out.writes, Indices(where, "writes", in.writes(), storages, "storage"));
  for (int i = 0; i < in.after_size(); ++i) {
    if (in.after(i) < index) continue;
    return BadGraph(
        where(), absl::StrCat("after[", i, "]: ", in.after(i),
                              in.after(i) == index ? " is the op itself" : " is a later op or none",
                              "; ops stand in the order in which they run"));
  }
  out.after.assign(in.after().begin(), in.after().end());
  if (in.has_group()) {
    if (in.group() >= static_cast<std::uint32_t>(graph.groups_size())) {
      return BadGraph(where(), absl::StrCat("group: ", in.group(), " is no group; the graph has ",
                                            graph.groups_size()));
    }
    out.group = in.group();
  }
  if (in.workspace_bytes() > kBytesMax) {
    return BadGraph(where(), absl::StrCat("workspace_bytes: ", in.workspace_bytes(),
                                          " is beyond 2^61 (a negative number?)"));
  }
  if (!InRange(in.microseconds(), kMicrosecondsMax)) {
    return BadGraph(
        where(), absl::StrCat("microseconds: ", in.microseconds(), " is no time from 0 to 1e15"));
  }
  if (!InRange(in.flops(), kFlopsMax)) {
    return BadGraph(where(), absl::StrCat("flops: ", in.flops(), " is no number from 0 to 1e30"));
  }
  if (in.stream() > kStreamMax) {
    return BadGraph(where(), absl::StrCat("stream: ", in.stream(), " is beyond ", kStreamMax));
  }
  out.workspace = in.workspace_bytes();
  out.microseconds = in.microseconds();
  out.flops = in.flops();
  out.stream = in.stream();
  return out;
}

absl::StatusOr<plan::DataDependentGroup> GroupFrom(const v1::Graph& graph,
                                                   const v1::Graph::DataDependentGroup& in,
                                                   std::size_t index) {
  const auto where = [&] { return At("groups", index, in.name()); };
  plan::DataDependentGroup out;
  out.name = in.name();
  HMM_ASSIGN_OR_RETURN(out.members,
                       Indices(where, "members", in.members(),
                               static_cast<std::size_t>(graph.storages_size()), "storage"));
  if (in.k() == 0 || in.k() > out.members.size()) {
    return BadGraph(where(), absl::StrCat("k: ", in.k(), " is not from 1 to its ",
                                          out.members.size(), " members"));
  }
  out.k = in.k();
  return out;
}

absl::Status CheckSizes(const v1::Graph& message) {
  if (!message.format().empty() && message.format() != kGraphFormat) {
    return BadGraph("format", absl::StrCat(Shown(message.format()), " is no graph, which is \"",
                                           std::string(kGraphFormat), "\""));
  }
  const auto ops = static_cast<std::size_t>(message.ops_size());
  const auto storages = static_cast<std::size_t>(message.storages_size());
  if (ops <= kOpsMax && storages <= kStoragesMax) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
               absl::StrCat(ops, " ops and ", storages, " storages; the limits are ", kOpsMax,
                            " and ", kStoragesMax));
}

// Names lie in `message`, which must not change while `names` is used.
absl::Status CheckNames(const v1::Graph& message) {
  Names ops, storages, groups, unknown;
  ops.Reserve(static_cast<std::size_t>(message.ops_size()));
  storages.Reserve(static_cast<std::size_t>(message.storages_size()));
  for (int i = 0; i < message.ops_size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    const v1::Graph::Op& op = message.ops(i);
    HMM_RETURN_IF_ERROR(ops.Add(absl::StrCat("ops[", i, "]"), op.name(), index));
    if (op.type().size() > kNameBytesMax || !IsUtf8(op.type())) {
      return BadGraph(At("ops", index, op.name()), "type: too long, or not UTF-8");
    }
  }
  for (int i = 0; i < message.storages_size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    const v1::Graph::Storage& storage = message.storages(i);
    HMM_RETURN_IF_ERROR(storages.Add(absl::StrCat("storages[", i, "]"), storage.name(), index));
    for (int a = 0; a < storage.aliases_size(); ++a) {
      HMM_RETURN_IF_ERROR(
          storages.Add(absl::StrCat(At("storages", index, storage.name()), ": aliases[", a, "]"),
                       storage.aliases(a), index));
    }
  }
  for (int i = 0; i < message.groups_size(); ++i) {
    HMM_RETURN_IF_ERROR(groups.Add(absl::StrCat("groups[", i, "]"), message.groups(i).name(),
                                   static_cast<std::size_t>(i)));
  }
  for (int i = 0; i < message.unknown_size(); ++i) {
    HMM_RETURN_IF_ERROR(unknown.Add(absl::StrCat("unknown[", i, "]"), message.unknown(i),
                                    static_cast<std::size_t>(i)));
  }
  if (message.name().size() > kNameBytesMax || !IsUtf8(message.name())) {
    return BadGraph("name", "too long, or not UTF-8");
  }
  return absl::OkStatus();
}

absl::StatusOr<plan::Graph> Named(absl::StatusOr<plan::Graph> graph, const std::string& file) {
  if (graph.ok()) return graph;
  return Annotate(graph.status(), file);
}

absl::Status CheckWhole(const plan::Graph& graph) {
  const absl::Status status = plan::CheckGraph(graph);
  if (status.ok()) return status;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadGraph,
               std::string(status.message()));
}

// What no reader would take back is not written either.
absl::StatusOr<v1::Graph> Writable(const plan::Graph& graph) {
  v1::Graph message = GraphToProto(graph);
  HMM_RETURN_IF_ERROR(CheckSizes(message));
  HMM_RETURN_IF_ERROR(CheckNames(message));
  std::size_t index = 0;
  for (const v1::Graph::Storage& storage : message.storages()) {
    HMM_RETURN_IF_ERROR(StorageFrom(storage, index++).status());
  }
  index = 0;
  for (const v1::Graph::DataDependentGroup& group : message.groups()) {
    HMM_RETURN_IF_ERROR(GroupFrom(message, group, index++).status());
  }
  index = 0;
  for (const v1::Graph::Op& op : message.ops()) {
    HMM_RETURN_IF_ERROR(OpFrom(message, op, index++).status());
  }
  HMM_RETURN_IF_ERROR(CheckWhole(graph));
  return message;
}

}  // namespace

v1::Graph GraphToProto(const Graph& graph) {
  v1::Graph message;
  message.set_format(std::string(kGraphFormat));
  message.set_name(graph.name);
  message.mutable_ops()->Reserve(static_cast<int>(graph.ops.size()));
  for (const plan::Op& op : graph.ops) {
    v1::Graph::Op& out = *message.add_ops();
    out.set_name(op.name);
    out.set_type(op.type);
    out.mutable_reads()->Add(op.reads.begin(), op.reads.end());
    out.mutable_writes()->Add(op.writes.begin(), op.writes.end());
    out.mutable_after()->Add(op.after.begin(), op.after.end());
    if (op.group.has_value()) out.set_group(*op.group);
    out.set_workspace_bytes(op.workspace);
    out.set_microseconds(op.microseconds);
    out.set_flops(op.flops);
    out.set_stream(op.stream);
  }
  message.mutable_storages()->Reserve(static_cast<int>(graph.storages.size()));
  for (const plan::Storage& storage : graph.storages) {
    v1::Graph::Storage& out = *message.add_storages();
    out.set_name(storage.name);
    for (const std::string& alias : storage.aliases) out.add_aliases(alias);
    out.set_bytes(storage.bytes);
    out.set_kind(static_cast<v1::TensorKind>(storage.kind));
    out.set_persistent(storage.persistent);
    out.set_input(storage.input);
    out.set_output(storage.output);
    out.set_pinned(storage.pinned);
    out.set_recomputable(storage.recomputable);
  }
  for (const plan::DataDependentGroup& group : graph.groups) {
    v1::Graph::DataDependentGroup& out = *message.add_groups();
    out.set_name(group.name);
    out.mutable_members()->Add(group.members.begin(), group.members.end());
    out.set_k(group.k);
  }
  for (const std::string& name : graph.unknown) message.add_unknown(name);
  return message;
}

absl::StatusOr<Graph> GraphFromProto(const v1::Graph& message) {
  HMM_RETURN_IF_ERROR(CheckSizes(message));
  HMM_RETURN_IF_ERROR(CheckNames(message));
  Graph graph;
  graph.name = message.name();
  graph.storages.reserve(static_cast<std::size_t>(message.storages_size()));
  for (const v1::Graph::Storage& in : message.storages()) {
    HMM_ASSIGN_OR_RETURN(plan::Storage storage, StorageFrom(in, graph.storages.size()));
    graph.storages.push_back(std::move(storage));
  }
  for (const v1::Graph::DataDependentGroup& in : message.groups()) {
    HMM_ASSIGN_OR_RETURN(plan::DataDependentGroup group,
                         GroupFrom(message, in, graph.groups.size()));
    graph.groups.push_back(std::move(group));
  }
  graph.ops.reserve(static_cast<std::size_t>(message.ops_size()));
  for (const v1::Graph::Op& in : message.ops()) {
    HMM_ASSIGN_OR_RETURN(plan::Op op, OpFrom(message, in, graph.ops.size()));
    graph.ops.push_back(std::move(op));
  }
  graph.unknown.assign(message.unknown().begin(), message.unknown().end());
  // What concerns the graph as a whole: sums, reads before any write, members that are not
  // persistent.
  HMM_RETURN_IF_ERROR(CheckWhole(graph));
  return graph;
}

absl::StatusOr<Graph> ParseGraphText(std::string_view text, const std::string& file) {
  v1::Graph message;
  HMM_RETURN_IF_ERROR(ParseMessageText(text, file, message));
  return Named(GraphFromProto(message), file);
}

absl::StatusOr<Graph> ParseGraphBinary(std::string_view bytes, const std::string& file) {
  v1::Graph message;
  HMM_RETURN_IF_ERROR(ParseMessageBinary(bytes, file, message));
  return Named(GraphFromProto(message), file);
}

absl::StatusOr<std::string> FormatGraphText(const Graph& graph) {
  HMM_ASSIGN_OR_RETURN(const v1::Graph message, Writable(graph));
  return FormatMessageText(message);
}

absl::StatusOr<std::string> FormatGraphBinary(const Graph& graph) {
  HMM_ASSIGN_OR_RETURN(const v1::Graph message, Writable(graph));
  return FormatMessageBinary(message);
}

absl::StatusOr<Graph> ReadGraphProto(const std::string& path) {
  HMM_ASSIGN_OR_RETURN(const MessageForm form, FormOfPath(path));
  const bool text = form == MessageForm::kText;
  HMM_ASSIGN_OR_RETURN(const std::string bytes,
                       ReadFileBytes(path, text ? kTextBytesMax : kBinaryBytesMax));
  return text ? ParseGraphText(bytes, path) : ParseGraphBinary(bytes, path);
}

absl::Status WriteGraphProto(const Graph& graph, const std::string& path) {
  HMM_ASSIGN_OR_RETURN(const MessageForm form, FormOfPath(path));
  return WriteGraphProto(graph, form, path);
}

absl::Status WriteGraphProto(const Graph& graph, MessageForm form, const std::string& path) {
  const absl::StatusOr<std::string> bytes =
      form == MessageForm::kText ? FormatGraphText(graph) : FormatGraphBinary(graph);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return WriteFileBytes(path, *bytes);
}

}  // namespace hmm::graph
