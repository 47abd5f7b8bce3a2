// SPDX-License-Identifier: Apache-2.0
//
// Blocks of 128 KiB put through the client library (allocate, write, seal under a key; magazines
// and batches), against writing the same bytes to a plain shared mapping. Both mappings were
// touched before; all fits HBM.
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/bench_support.h"
#include "hmm/client.h"

namespace hmm::bench {
namespace {

constexpr std::size_t kBlock = 128 * 1024;
constexpr std::size_t kBlocks = 256;
constexpr int kRounds = 40;

std::byte* PlainMapping(std::size_t bytes) {
  const int fd = memfd_create("bench-plain", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::exit(1);
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (at == MAP_FAILED) std::exit(1);
  close(fd);
  return static_cast<std::byte*>(at);
}

// Every block written and sealed when it returns.
std::vector<Tensor> PutAll(Client& client, const std::vector<std::byte>& block, int round) {
  std::vector<Tensor> tensors;
  tensors.reserve(kBlocks);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    Held held = Must(client.Allocate({.bytes = kBlock, .kind = Kind::kKvCache}));
    std::memcpy(held.pin.data(), block.data(), kBlock);
    tensors.push_back(held.tensor);
    client.SealLater(held.tensor, std::move(held.pin),
                     std::to_string(round) + "." + std::to_string(i));
  }
  for (const auto& failed : client.Flush()) Must(failed.status);
  return tensors;
}

int Run() {
  // Pages as the plain mapping has them.
  OwnDaemon daemon(R"(
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "160MiB"
pages = "small"
)");
  auto client =
      Must(Client::Connect({.dir = daemon.dir(), .connect_timeout = std::chrono::seconds(30)}));
  std::byte* plain = PlainMapping(kBlock * kBlocks);
  const std::vector<std::byte> block(kBlock, std::byte{0x5a});
  Pairs pairs;
  for (int round = 0; round < kRounds + 2; ++round) {
    std::vector<Tensor> tensors;
    const auto put = [&] { tensors = PutAll(*client, block, round); };
    const auto write = [&] {
      for (std::size_t i = 0; i < kBlocks; ++i) {
        std::memcpy(plain + i * kBlock, block.data(), kBlock);
      }
    };
    double our = 0;
    if (round % 2 == 0) our = Seconds(put);
    const double theirs = Seconds(write);
    if (round % 2 == 1) our = Seconds(put);
    for (const absl::Status& freed : Must(client->FreeBatch(tensors))) Must(freed);
    // The first rounds touch the mappings.
    if (round >= 2) pairs.Add(kBlock * kBlocks / our, kBlock * kBlocks / theirs);
  }
  // The best tenth of each: a round takes milliseconds, and any preemption in it spoils it.
  const double our = Quantile(pairs.ours, 0.9);
  const double theirs = Quantile(pairs.limit, 0.9);
  Row("put/128KiB_blocks", our * 1e-9, theirs * 1e-9, "GB/s", our / theirs, Bar::kAtLeast, 0.6);
  return 0;
}

}  // namespace
}  // namespace hmm::bench

int main() { return hmm::bench::Run(); }
