// SPDX-License-Identifier: Apache-2.0
//
// TryPin and ~Pin of 65,536 resident tensors in random order, through the library as users link it,
// against the same atomics and loads done bare on the same lines of the table and the page. The
// bare side finds both where the library mapped them (/proc/self/maps). CPU time of the thread.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "base/ids.h"
#include "bench/bench_support.h"
#include "hmm/client.h"
#include "share/layout.h"
#include "share/pin.h"

namespace hmm::bench {
namespace {

constexpr std::size_t kTensors = 65'536;
constexpr int kRounds = 61;

// Start of this process's mapping of the memfd whose name begins so.
std::byte* MappingOf(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:" + name) == std::string::npos) continue;
    return reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16));
  }
  std::fprintf(stderr, "bench_pin: no mapping of %s\n", name.c_str());
  std::exit(1);
}

int Run() {
  OwnDaemon daemon(R"(
[limits]
session_pinned_max = 1.0
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "64MiB"
high = 1.0
low = 0.9
)");
  auto client =
      Must(Client::Connect({.dir = daemon.dir(), .connect_timeout = std::chrono::seconds(30)}));
  std::vector<Tensor> tensors;
  while (tensors.size() < kTensors) {
    const std::vector<AllocateOptions> what(4096, {.bytes = 256});
    std::vector<Client::SealItem> items;
    for (auto& held : Must(client->AllocateBatch(what))) {
      Must(held.status());
      tensors.push_back(held->tensor);
      items.push_back({held->tensor, std::move(held->pin), ""});
    }
    Must(client->SealBatch(std::move(items)).status());
  }
  std::mt19937_64 rng(1);
  std::shuffle(tensors.begin(), tensors.end(), rng);
  std::vector<Handle> handles;
  for (const Tensor& tensor : tensors) handles.push_back(Handle::Unpack(tensor.handle()));

  const share::TableSlot* table =
      share::TableSlots(static_cast<const void*>(MappingOf("hmm-table-")));
  std::atomic<std::uint32_t>* words = share::PinWords(MappingOf("hmm-page-"));
  std::uint64_t sum = 0;
  const auto bare = [&] {
    for (const Handle handle : handles) {
      std::atomic<std::uint32_t>& word = words[handle.slot];
      const share::TableSlot& slot = table[handle.slot];
      word.fetch_add(share::kPinOne + share::kAccessOne);
      const share::StateWord state = share::StateWord::Unpack(slot.state.load());
      if (state.state == TensorState::kResident && state.generation == handle.generation) {
        sum += slot.segment.load(std::memory_order_relaxed) +
               slot.offset.load(std::memory_order_relaxed) +
               slot.bytes.load(std::memory_order_relaxed);
      }
      word.fetch_sub(share::kPinOne, std::memory_order_release);
    }
  };
  const auto ours = [&] {
    for (const Tensor& tensor : tensors) {
      const std::optional<Pin> pin = tensor.TryPin();
      if (!pin.has_value()) std::abort();
      sum += reinterpret_cast<std::uintptr_t>(pin->data());
    }
  };
  bare();
  ours();
  Pairs pairs;
  for (int round = 0; round < kRounds; ++round) {
    // Which is first alternates.
    double our = 0;
    if (round % 2 == 0) our = CpuTime(ours);
    const double theirs = CpuTime(bare);
    if (round % 2 == 1) our = CpuTime(ours);
    pairs.Add(our / kTensors, theirs / kTensors);
  }
  Row("pin/trypin_unpin_random_65536", pairs, 1e9, "ns", Bar::kAtMost, 2);
  return sum == 42 ? 2 : 0;  // the loads are used
}

}  // namespace
}  // namespace hmm::bench

int main() { return hmm::bench::Run(); }
