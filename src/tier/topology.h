// SPDX-License-Identifier: Apache-2.0
//
// Which memory nodes the machine has, how fast they are beside each other, and which lie close
// together; from hwloc. Never sizes: those come from tier/machine.h.
//
// Values; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hmm::tier {

struct MemoryNode {
  int id = 0;            // the kernel's number, as numa_node in the configuration
  std::string cpus;      // next to it, as "0-3,8"
  std::string type;      // hwloc's word ("HBM", "DRAM", "NVM", "MCDRAM"); empty: it does not say
  bool cpuless = false;  // no CPUs of its own
  bool allowed = true;   // false: this process's cpuset forbids it
  double bandwidth = 0;  // bytes per second from the CPUs next to it, as firmware says; 0: not told
  double latency_ns = 0;  // likewise
  unsigned rank = 0;      // 0: the fastest; equal: about as fast
  std::vector<int> near;  // nodes next to the same CPUs, itself not among them
};

struct Topology {
  std::vector<MemoryNode> nodes;         // by id
  const MemoryNode* Find(int id) const;  // nullptr: there is none
};

struct TopologySource {
  enum class Kind { kMachine, kSynthetic, kXml };
  Kind kind = Kind::kMachine;
  std::string text;  // hwloc's synthetic description, or the path of an XML file
};

// FAILED_PRECONDITION/IO when hwloc cannot read the source.
absl::StatusOr<Topology> ReadTopology(const TopologySource& source = {});

// Nodes without CPUs, by the kernel's word. `root` as in DetectMachine.
std::vector<int> CpulessNodes(const std::string& root = "/");

}  // namespace hmm::tier
