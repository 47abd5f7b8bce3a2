// SPDX-License-Identifier: Apache-2.0
//
// region_holder DIR READY_FILE: a client that stores 16 tensors ("h0" to "h15") out of a leased
// region, loads them into a memory file of its own and frees them, over and over, with one more job
// that waits for room it never gets. Makes READY_FILE once that runs; lives until it is killed.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "hmm/region.h"

namespace {

constexpr std::size_t kPiece = 16 * 1024;
constexpr std::size_t kPieces = 16;
constexpr std::size_t kKeys = 16;

int Fail(const absl::Status& status) {
  std::cerr << status << "\n";
  return 1;
}

std::vector<hmm::Fragment> Pieces(const hmm::Region& region, std::size_t from) {
  std::vector<hmm::Fragment> pieces;
  for (std::size_t i = 0; i < kPieces; ++i) {
    pieces.push_back({&region, (from + i) * kPiece % region.size(), kPiece});
  }
  return pieces;
}

// One round; whatever a key's verdict is, the next round goes on.
absl::Status Round(hmm::Client& client, hmm::Regions& regions, const hmm::Region& lease,
                   const hmm::Region& own) {
  std::vector<hmm::StoreItem> out(kKeys);
  std::vector<hmm::LoadItem> in(kKeys);
  for (std::size_t i = 0; i < kKeys; ++i) {
    in[i].key = out[i].key = "h" + std::to_string(i);
    out[i].fragments = Pieces(lease, i);
    in[i].fragments = Pieces(own, i * kPieces);
  }
  auto store = regions.Store(out, {.tier = "ddr0", .allow_lower = true});
  if (!store.ok()) return store.status();
  if (auto ended = regions.Wait(*store); !ended.ok()) return ended.status();
  auto load = regions.Load(in);
  if (!load.ok()) return load.status();
  if (auto ended = regions.Wait(*load); !ended.ok()) return ended.status();
  for (std::size_t i = 0; i < kKeys; ++i) {
    const std::array<std::string, 1> key{in[i].key};
    auto found = client.Lookup(key);
    if (!found.ok()) return found.status();
    for (const hmm::Held& held : *found) (void)client.Free(held.tensor);
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto client = hmm::Client::Connect({.dir = argv[1]});
  if (!client.ok()) return Fail(client.status());
  hmm::Regions regions(**client);
  auto lease = regions.Lease(2 << 20, {.tier = "ddr0"});
  if (!lease.ok()) return Fail(lease.status());
  const int fd = memfd_create("own", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  constexpr std::size_t kOwn = kKeys * kPieces * kPiece;
  if (fd < 0 || ftruncate(fd, kOwn) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return 1;
  }
  auto own = regions.Attach(fd, kOwn);
  if (!own.ok()) return Fail(own.status());
  // Pins all there is of hbm0 for one session, so that a Store waits there.
  std::vector<hmm::Held> full;
  for (;;) {
    auto held = (*client)->Allocate({.bytes = 1 << 18}, {.tier = "hbm0"});
    if (!held.ok()) break;
    full.push_back(*std::move(held));
  }
  const hmm::StoreItem stuck{.key = "stuck", .fragments = {{&*lease, 0, 2 << 20}}};
  auto waits = regions.Store({&stuck, 1}, {.timeout = std::chrono::hours(1), .tier = "hbm0"});
  if (!waits.ok()) return Fail(waits.status());
  std::ofstream(argv[2]) << "ready\n";
  for (;;) {
    const absl::Status round = Round(**client, regions, *lease, *own);
    if (!round.ok()) return Fail(round);
  }
}
