// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/client_block_store.h"

#include <utility>

#include "base/status.h"

namespace hmm::ctl {
namespace {

class HeldBlock final : public PinnedBlock {
 public:
  explicit HeldBlock(Held held) : held_(std::move(held)) {}
  std::span<std::byte> bytes() const override { return {held_.pin.data(), held_.pin.size()}; }
  Held& held() { return held_; }

 private:
  Held held_;
};

}  // namespace

absl::StatusOr<std::vector<FoundBlock>> ClientBlockStore::Lookup(
    absl::Span<const std::string> keys, std::chrono::milliseconds timeout) {
  PlaceOptions where;
  where.tier = tier_;
  where.allow_lower = true;
  where.timeout = timeout;
  absl::StatusOr<std::vector<Held>> run = client_.Lookup(keys, where);
  if (!run.ok()) return run.status();
  std::vector<FoundBlock> found;
  found.reserve(run->size());
  for (Held& held : *run) {
    std::string tier = held.found_tier;
    found.push_back({std::make_unique<HeldBlock>(std::move(held)), std::move(tier)});
  }
  return found;
}

absl::StatusOr<std::vector<absl::StatusOr<std::unique_ptr<PinnedBlock>>>>
ClientBlockStore::Allocate(absl::Span<const std::string> keys, Bytes bytes,
                           std::chrono::milliseconds timeout) {
  PlaceOptions where;
  where.tier = tier_;
  where.allow_lower = true;
  where.wait = true;
  where.timeout = timeout;
  std::vector<AllocateOptions> what;
  what.reserve(keys.size());
  for (const std::string& key : keys) {
    AllocateOptions one;
    one.bytes = bytes;
    one.kind = Kind::kKvCache;
    one.key = key;
    one.droppable = true;
    what.push_back(std::move(one));
  }
  absl::StatusOr<std::vector<absl::StatusOr<Held>>> held = client_.AllocateBatch(what, where);
  if (!held.ok()) return held.status();
  std::vector<absl::StatusOr<std::unique_ptr<PinnedBlock>>> rooms;
  rooms.reserve(held->size());
  for (absl::StatusOr<Held>& one : *held) {
    if (one.ok()) {
      rooms.emplace_back(std::make_unique<HeldBlock>(std::move(*one)));
    } else {
      rooms.emplace_back(one.status());
    }
  }
  return rooms;
}

absl::StatusOr<std::vector<absl::Status>> ClientBlockStore::Seal(
    std::vector<std::unique_ptr<PinnedBlock>> blocks) {
  std::vector<Client::SealItem> items;
  items.reserve(blocks.size());
  for (std::unique_ptr<PinnedBlock>& block : blocks) {
    // Only blocks that Allocate made come back here.
    Held& held = static_cast<HeldBlock&>(*block).held();
    items.push_back({held.tensor, std::move(held.pin), std::string()});
  }
  return client_.SealBatch(std::move(items));
}

absl::Status ClientBlockStore::Touch(absl::Span<const std::string> keys) {
  return client_.Touch(keys).status();  // NOT_FOUND of one is no failure: it was evicted since
}

}  // namespace hmm::ctl
