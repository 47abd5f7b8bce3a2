// SPDX-License-Identifier: Apache-2.0
#include "tier/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::tier {
namespace {

constexpr double kSameSpeed = 0.9;           // of the bandwidth of the fastest of a rank
constexpr double kBytesPerMib = 1 << 20;     // hwloc gives MiB/s
constexpr std::size_t kNodesMax = 1u << 16;  // of a description that lies

struct TopologyDeleter {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

absl::Status Unreadable(const TopologySource& source, int error) {
  const std::string what = source.kind == TopologySource::Kind::kMachine
                               ? "this machine's topology"
                               : absl::StrCat("the topology ", source.text);
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kIo,
               absl::StrCat("hwloc cannot read ", what, ": ",
                            error == 0 ? "no reason given" : std::strerror(error)));
}

absl::StatusOr<HwlocTopology> Load(const TopologySource& source) {
  hwloc_topology_t raw = nullptr;
  errno = 0;
  if (hwloc_topology_init(&raw) != 0) return Unreadable(source, errno);
  HwlocTopology topology(raw);
  int result = 0;
  if (source.kind == TopologySource::Kind::kSynthetic) {
    result = hwloc_topology_set_synthetic(raw, source.text.c_str());
  } else if (source.kind == TopologySource::Kind::kXml) {
    result = hwloc_topology_set_xml(raw, source.text.c_str());
  }
  if (result != 0) return Unreadable(source, errno);
  // What a cpuset forbids is shown as forbidden instead of left out, so that a tier on it can be
  // told why. Only what gives nodes their place: no caches, no devices.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  if (hwloc_topology_load(raw) != 0) return Unreadable(source, errno);
  return topology;
}

std::string CpusOf(hwloc_const_bitmap_t set) {
  std::string text(static_cast<std::size_t>(hwloc_bitmap_list_snprintf(nullptr, 0, set)), '\0');
  hwloc_bitmap_list_snprintf(text.data(), text.size() + 1, set);
  return text;
}

// Of the memory as the CPUs see it that are best off; 0 where firmware does not say.
double Attribute(hwloc_topology_t topology, hwloc_memattr_id_t which, hwloc_obj_t node) {
  hwloc_location best{};
  hwloc_uint64_t value = 0;
  const int result = hwloc_memattr_get_best_initiator(topology, which, node, 0, &best, &value);
  return result == 0 ? static_cast<double>(value) : 0;
}

bool IsHighBandwidth(const MemoryNode& node) { return node.type == "HBM" || node.type == "MCDRAM"; }

// Where firmware gives no bandwidths, by what kind of memory it is.
unsigned ClassOf(const MemoryNode& node) {
  if (IsHighBandwidth(node)) return 0;
  if (node.type == "NVM") return 3;
  return node.cpuless ? 2 : 1;
}

void Rank(std::vector<MemoryNode>& nodes) {
  const bool told = std::all_of(nodes.begin(), nodes.end(),
                                [](const MemoryNode& node) { return node.bandwidth > 0; });
  std::vector<MemoryNode*> order;
  for (MemoryNode& node : nodes) order.push_back(&node);
  std::stable_sort(order.begin(), order.end(), [told](const MemoryNode* a, const MemoryNode* b) {
    return told ? a->bandwidth > b->bandwidth : ClassOf(*a) < ClassOf(*b);
  });
  const MemoryNode* first = nullptr;  // of its rank
  unsigned rank = 0;
  for (MemoryNode* node : order) {
    const bool slower = first != nullptr && (told ? node->bandwidth < kSameSpeed * first->bandwidth
                                                  : ClassOf(*node) > ClassOf(*first));
    if (slower) ++rank;
    if (slower || first == nullptr) first = node;
    node->rank = rank;
  }
}

}  // namespace

const MemoryNode* Topology::Find(int id) const {
  const auto at = std::find_if(nodes.begin(), nodes.end(),
                               [id](const MemoryNode& node) { return node.id == id; });
  return at == nodes.end() ? nullptr : &*at;
}

std::vector<int> CpulessNodes(const std::string& root) {
  std::vector<int> found;
  std::error_code error;
  const std::string nodes = absl::StrCat(root, "/sys/devices/system/node");
  for (std::filesystem::directory_iterator at(nodes, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    int id = 0;
    if (!absl::StartsWith(name, "node") || !absl::SimpleAtoi(name.substr(4), &id)) continue;
    std::ifstream file(at->path() / "cpulist");
    std::string cpus;
    if (file && !(file >> cpus)) found.push_back(id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

absl::StatusOr<Topology> ReadTopology(const TopologySource& source) {
  HMM_ASSIGN_OR_RETURN(const HwlocTopology loaded, Load(source));
  hwloc_topology_t const raw = loaded.get();
  std::vector<int> cpuless;
  if (source.kind == TopologySource::Kind::kMachine) cpuless = CpulessNodes();
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t at = nullptr;
       (at = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, at)) != nullptr;) {
    if (objects.size() < kNodesMax) objects.push_back(at);
  }
  std::sort(objects.begin(), objects.end(),
            [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  hwloc_const_nodeset_t const allowed = hwloc_topology_get_allowed_nodeset(raw);
  Topology topology;
  for (const hwloc_obj_t object : objects) {
    MemoryNode node;
    node.id = static_cast<int>(object->os_index);
    node.cpus = CpusOf(object->cpuset);
    if (object->subtype != nullptr) node.type = object->subtype;
    node.allowed = hwloc_bitmap_isset(allowed, object->os_index) != 0;
    node.bandwidth = kBytesPerMib * Attribute(raw, HWLOC_MEMATTR_ID_BANDWIDTH, object);
    node.latency_ns = Attribute(raw, HWLOC_MEMATTR_ID_LATENCY, object);
    node.cpuless = std::find(cpuless.begin(), cpuless.end(), node.id) != cpuless.end();
    for (const hwloc_obj_t other : objects) {
      if (other == object) continue;
      if (hwloc_bitmap_intersects(object->cpuset, other->cpuset) != 0) {
        node.near.push_back(static_cast<int>(other->os_index));
      }
      // hwloc puts a node without CPUs next to all that reach it: others lie closer to some.
      node.cpuless = node.cpuless || (hwloc_bitmap_isincluded(other->cpuset, object->cpuset) != 0 &&
                                      hwloc_bitmap_isequal(other->cpuset, object->cpuset) == 0);
    }
    topology.nodes.push_back(std::move(node));
  }
  Rank(topology.nodes);
  return topology;
}

}  // namespace hmm::tier
