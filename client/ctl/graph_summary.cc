// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_summary.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/plan_words.h"
#include "client/ctl/table.h"
#include "graph/file_error.h"
#include "plan/planner.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;

std::string KindName(std::size_t index) {
  return std::string(TensorKindName(static_cast<TensorKind>(index + 1)));
}

// "8.03 billion".
std::string CountText(std::uint64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e12) return absl::StrFormat("%.4g trillion", value / 1e12);
  if (value >= 1e9) return absl::StrFormat("%.4g billion", value / 1e9);
  if (value >= 1e6) return absl::StrFormat("%.4g million", value / 1e6);
  return absl::StrCat(count);
}

std::string AsTable(const plan::Graph& graph, const GraphSummary& summary) {
  std::string out = absl::StrCat("graph ", graph::Shown(graph.name), ": ", graph.ops.size(),
                                 " ops, ", graph.storages.size(), " storages, ",
                                 graph.groups.size(), " data-dependent groups\n");
  if (summary.parameters) {
    absl::StrAppend(&out, "parameters ", CountText(summary.parameters->total), ", ",
                    CountText(summary.parameters->active), " active for a token\n");
  }
  Table table({{"KIND"}, {"STORAGES", true}, {"SIZE", true}, {"BYTES", true}});
  const auto add = [&table](const std::string& name, const GraphSummary::Kind& kind) {
    if (kind.storages == 0) return;
    table.AddRow(
        {name, absl::StrCat(kind.storages), SizeCell(kind.bytes), absl::StrCat(kind.bytes)});
  };
  for (std::size_t i = 0; i < summary.kinds.size(); ++i) add(KindName(i), summary.kinds[i]);
  add("all", summary.all);
  add("of-it-persistent", summary.persistent);
  absl::StrAppend(&out, "\n", table.ToString(), "\n");
  absl::StrAppendFormat(&out, "unplanned peak  %s at %s\n", ExactText(summary.unplanned_peak_bytes),
                        OpText(graph, summary.unplanned_peak_op));
  absl::StrAppendFormat(&out, "floor           %s at %s\n", ExactText(summary.floor_bytes),
                        OpText(graph, summary.floor_op));
  absl::StrAppendFormat(&out, "work            %.4g TFLOP; %d of %d ops have a duration\n",
                        summary.flops / 1e12, summary.timed_ops, graph.ops.size());
  const std::string unknown = UnknownText(graph);
  if (!unknown.empty()) absl::StrAppend(&out, unknown, "\n");
  return out;
}

std::string AsJson(const plan::Graph& graph, const GraphSummary& summary) {
  ordered_json out;
  out["name"] = graph.name;
  out["ops"] = graph.ops.size();
  out["storages"] = graph.storages.size();
  out["groups"] = graph.groups.size();
  out["bytes_by_kind"] = ordered_json::object();
  out["storages_by_kind"] = ordered_json::object();
  for (std::size_t i = 0; i < summary.kinds.size(); ++i) {
    out["bytes_by_kind"][KindName(i)] = summary.kinds[i].bytes;
    out["storages_by_kind"][KindName(i)] = summary.kinds[i].storages;
  }
  out["total_bytes"] = summary.all.bytes;
  out["persistent_bytes"] = summary.persistent.bytes;
  out["parameters"] =
      summary.parameters ? ordered_json(summary.parameters->total) : ordered_json(nullptr);
  out["active_parameters"] =
      summary.parameters ? ordered_json(summary.parameters->active) : ordered_json(nullptr);
  out["flops"] = summary.flops;
  out["timed_ops"] = summary.timed_ops;
  const auto name = [&graph](plan::OpIndex op) {
    return op < graph.ops.size() ? ordered_json(graph.ops[op].name) : ordered_json(nullptr);
  };
  const auto index = [&graph](plan::OpIndex op) {
    return op < graph.ops.size() ? ordered_json(op) : ordered_json(nullptr);
  };
  out["unplanned_peak_bytes"] = summary.unplanned_peak_bytes;
  out["unplanned_peak_op"] = index(summary.unplanned_peak_op);
  out["unplanned_peak_op_name"] = name(summary.unplanned_peak_op);
  out["floor_bytes"] = summary.floor_bytes;
  out["floor_op"] = index(summary.floor_op);
  out["floor_op_name"] = name(summary.floor_op);
  out["unknown_tensors"] = graph.unknown.size();
  out["unknown_tensor_names"] = graph.unknown;
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

GraphSummary Summarize(const plan::Graph& graph) {
  GraphSummary summary;
  const auto count = [](GraphSummary::Kind& kind, Bytes bytes) {
    ++kind.storages;
    kind.bytes += bytes;
  };
  for (const plan::Storage& storage : graph.storages) {
    count(summary.kinds[static_cast<std::size_t>(storage.kind) - 1], storage.bytes);
    count(summary.all, storage.bytes);
    if (storage.persistent) count(summary.persistent, storage.bytes);
  }
  for (const plan::Op& op : graph.ops) {
    summary.flops += op.flops;
    if (op.microseconds > 0) ++summary.timed_ops;
  }
  plan::Plan totals;
  plan::FillGraphTotals(graph, totals);
  summary.unplanned_peak_bytes = totals.unplanned_peak_bytes;
  summary.unplanned_peak_op = totals.unplanned_peak_op;
  summary.floor_bytes = totals.floor_bytes;
  summary.floor_op = totals.floor_op;
  return summary;
}

std::string FormatSummary(const plan::Graph& graph, const GraphSummary& summary, Format format) {
  return format == Format::kJson ? AsJson(graph, summary) : AsTable(graph, summary);
}

}  // namespace hmm::ctl
