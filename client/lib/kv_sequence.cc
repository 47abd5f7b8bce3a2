// SPDX-License-Identifier: Apache-2.0
//
// One step of a sequence: Append, Read, Commit; and what becomes of it at a miss.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "client/lib/kv_impl.h"

namespace hmm {
namespace {

using absl::StatusCode;
using client_internal::IsLoss;
using client_internal::Waited;

}  // namespace

// --- misses -------------------------------------------------------------------------------------

void KvSequence::Impl::DropBlocks(std::size_t first) {
  std::vector<Tensor> dead;
  for (std::size_t b = first; b < blocks.size(); ++b) {
    if (blocks[b].use_count() > 1) continue;  // a fork has it
    for (Block::Piece& piece : blocks[b]->pieces) {
      if (piece.own && piece.tensor.valid()) dead.push_back(piece.tensor);
    }
  }
  blocks.resize(std::min(first, blocks.size()));  // their pins go first
  cache.Free(dead);
}

void KvSequence::Impl::DropAppended() {
  appended.clear();
  DropBlocks(BlocksFor(tokens.size()));
}

absl::Status KvSequence::Impl::Miss(std::size_t first, const absl::Status& why) {
  // A daemon that is gone took all with it: no need to find out block by block.
  for (std::size_t b = 0; b < first; ++b) {
    if (std::any_of(blocks[b]->pieces.begin(), blocks[b]->pieces.end(),
                    [](const Block::Piece& piece) { return piece.tensor.lost(); })) {
      first = b;
    }
  }
  const std::size_t length = std::min(tokens.size(), first * block_tokens());
  ++cache.stats.misses;
  cache.stats.lost_tokens += tokens.size() - length;
  tokens.resize(length);
  appended.clear();
  kept.clear();
  DropBlocks(first);
  return Error(StatusCode::kAborted, Reason::kLost,
               absl::StrCat("cached blocks are gone; compute again from token ", length, " on (",
                            why.message(), ")"));
}

// --- Append -------------------------------------------------------------------------------------

absl::Status KvSequence::Impl::PinTail() {
  if (tokens.size() % block_tokens() == 0) return absl::OkStatus();
  Block& tail = *blocks[tokens.size() / block_tokens()];
  std::vector<Block::Piece*> wanted;
  for (Block::Piece& piece : tail.pieces) {
    if (piece.write) continue;
    if (std::optional<Pin> pin = piece.tensor.TryPin(); pin && cache.Readable(*pin)) {
      cache.CountThere(piece);
      piece.write = *std::move(pin);
      continue;
    }
    wanted.push_back(&piece);
  }
  for (std::size_t done = 0; done < wanted.size();) {
    std::vector<Pin> pins;
    const absl::Status status =
        cache.Bring(absl::MakeConstSpan(wanted).subspan(done), pins, cache.Deadline());
    for (Pin& pin : pins) wanted[done++]->write = std::move(pin);
    if (IsLoss(status)) return Miss(tokens.size() / block_tokens(), status);
    HMM_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status KvSequence::Impl::AddBlocks(std::size_t count) {
  const TimePoint deadline = cache.Deadline();
  AllocateOptions one;
  one.bytes = cache.tensor_bytes;
  one.kind = Kind::kKvCache;
  one.priority = cache.options.priority;
  one.recompute_cost = cache.options.recompute_cost;
  one.droppable = true;
  const std::size_t first = blocks.size();
  for (std::size_t b = 0; b < count; ++b) {
    blocks.push_back(std::make_shared<Block>());
    blocks.back()->pieces.resize(layers());
  }
  for (std::size_t done = 0; done < count * layers();) {
    const std::vector<AllocateOptions> what(std::min(cache.batch, count * layers() - done), one);
    PlaceOptions where = cache.Place(deadline);
    where.wait = kept.empty();  // room is waited for without the pins that may be in its way
    where.all = true;
    absl::StatusOr<std::vector<absl::StatusOr<Held>>> rooms =
        cache.client.AllocateBatch(what, where);
    if (!rooms.ok() && !kept.empty() &&
        client_internal::IsTooMuch(ReasonOfStatus(rooms.status()))) {
      kept.clear();
      continue;
    }
    if (!rooms.ok()) {
      if (cache.TakesFewer(rooms.status(), what.size())) continue;
      if (client_internal::WaitToRetry(rooms.status(), deadline)) continue;
      return rooms.status();
    }
    for (absl::StatusOr<Held>& held : *rooms) {
      Block::Piece& piece = blocks[first + done / layers()]->pieces[done % layers()];
      piece.tensor = held->tensor;
      piece.write = std::move(held->pin);
      ++done;
    }
  }
  return absl::OkStatus();
}

absl::Status KvSequence::Impl::Append(absl::Span<const std::int32_t> added) {
  const Waited waited(cache.stats.wait);
  appended.clear();
  HMM_RETURN_IF_ERROR(PinTail());
  const std::size_t needed = BlocksFor(tokens.size() + added.size());
  DropBlocks(needed);
  if (const absl::Status full = AddBlocks(needed - blocks.size()); !full.ok()) {
    DropAppended();  // the room that was found is of no use
    return full;
  }
  appended.assign(added.begin(), added.end());
  return absl::OkStatus();
}

// --- Read ---------------------------------------------------------------------------------------

bool KvSequence::Impl::ReadThere(Block::Piece& piece, KvBlock& block) {
  if (piece.write) {
    block.data = piece.write.data();
    return true;
  }
  std::optional<Pin> pin = piece.tensor.TryPin();
  if (!pin || !cache.Readable(*pin)) return false;
  cache.CountHit(pin->tier());
  cache.CountThere(piece);
  block.data = pin->data();
  block.pin = *std::move(pin);
  return true;
}

absl::Status KvSequence::Impl::Read(std::size_t layer, std::size_t first,
                                    std::vector<KvBlock>& out) {
  out.clear();
  const std::size_t end = first + std::min(blocks.size() - first, cache.fits);
  // 1. The leading run that can be read where it is. With its pins in hand nothing is waited for:
  //    they may be what keeps room from being made. The rest is hinted at, and the next call's.
  for (std::size_t b = first; b < end; ++b) {
    KvBlock block;
    if (!ReadThere(blocks[b]->pieces[layer], block)) break;
    out.push_back(std::move(block));
  }
  if (first + out.size() == end) return absl::OkStatus();
  if (out.empty()) HMM_RETURN_IF_ERROR(ReadBrought(layer, first, end, out));

  // 2. What comes next comes while this is used.
  PrefetchBlocks(layer, first + out.size());
  return absl::OkStatus();
}

// The first has to be brought; then all of the window that has to, in one call.
absl::Status KvSequence::Impl::ReadBrought(std::size_t layer, std::size_t first, std::size_t end,
                                           std::vector<KvBlock>& out) {
  kept.clear();
  std::vector<Block::Piece*> wanted;
  std::vector<std::size_t> where;
  for (std::size_t b = first; b < end; ++b) {
    Block::Piece& piece = blocks[b]->pieces[layer];
    if (piece.write) continue;
    const std::optional<Pin> pin = piece.tensor.TryPin();
    if (b > first && pin && cache.Readable(*pin)) continue;
    wanted.push_back(&piece);
    where.push_back(b);
  }
  std::vector<Pin> pins;
  const absl::Status status = cache.Bring(wanted, pins, cache.Deadline());
  if (pins.empty()) return IsLoss(status) ? Miss(first, status) : status;
  std::size_t next = 0;
  for (std::size_t b = first; b < end; ++b) {
    KvBlock block;
    if (next < where.size() && b == where[next]) {
      if (next == pins.size()) break;
      block.data = pins[next].data();
      block.pin = std::move(pins[next++]);
    } else if (!ReadThere(blocks[b]->pieces[layer], block)) {
      break;
    }
    out.push_back(std::move(block));
  }
  return absl::OkStatus();
}

void KvSequence::Impl::PrefetchBlocks(std::size_t layer, std::size_t first) {
  std::vector<Block::Piece*> wanted;
  for (std::size_t b = first; b < std::min(blocks.size(), first + cache.fits); ++b) {
    Block::Piece& piece = blocks[b]->pieces[layer];
    if (!piece.write) wanted.push_back(&piece);
  }
  cache.Hint(std::move(wanted));
}

// --- Commit -------------------------------------------------------------------------------------

absl::Status KvSequence::Impl::Commit() {
  tokens.insert(tokens.end(), appended.begin(), appended.end());
  appended.clear();
  kept.clear();
  return SealFull();
}

absl::Status KvSequence::Impl::SealFull() {
  // 1. Links of the chain, and all tensors of all full blocks.
  std::vector<Client::SealItem> items;
  std::vector<std::pair<std::size_t, std::size_t>> at;  // block, layer
  const std::size_t full = tokens.size() / block_tokens();
  std::size_t first = 0;  // what failed may lie before what did not
  while (first < full && blocks[first]->sealed) ++first;
  for (std::size_t b = first; b < full; ++b) {
    Block& block = *blocks[b];
    if (block.sealed) continue;
    block.link = client_internal::ChainNext(
        b == 0 ? cache.chain_start : blocks[b - 1]->link,
        absl::MakeConstSpan(tokens).subspan(b * block_tokens(), block_tokens()));
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      Block::Piece& piece = block.pieces[layer];
      if (piece.sealed) continue;
      items.push_back(
          {piece.tensor, std::move(piece.write), client_internal::BlockKey(block.link, layer)});
      at.emplace_back(b, layer);
    }
  }
  if (items.empty()) return absl::OkStatus();
  std::vector<absl::Status> verdicts;
  const absl::Status sent = Seal(items, verdicts);
  if (IsLoss(sent)) return Miss(first, sent);

  // 2. What came of each that was sent.
  absl::Status later = sent;  // to be tried again
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const absl::Status& verdict = verdicts[i];
    const auto [b, layer] = at[i];
    const std::string reason = ReasonOfStatus(verdict);
    if (verdict.ok() || reason == "SEALED") {  // SEALED: by an earlier try whose answer was lost
      blocks[b]->pieces[layer].sealed = true;
      blocks[b]->pieces[layer].own = false;
    } else if (reason == "ALREADY_EXISTS") {
      taken.push_back(at[i]);
    } else if (IsLoss(verdict)) {
      return Miss(b, verdict);
    } else {
      later.Update(verdict);
    }
  }
  if (sent.ok() && !taken.empty()) later.Update(Settle(taken));
  for (std::size_t b = first; b < full; ++b) {
    Block& block = *blocks[b];
    block.sealed = std::all_of(block.pieces.begin(), block.pieces.end(),
                               [](const Block::Piece& piece) { return piece.sealed; });
  }
  return later;
}

// Not OK: of the call behind those that `verdicts` are of.
absl::Status KvSequence::Impl::Seal(std::vector<Client::SealItem>& items,
                                    std::vector<absl::Status>& verdicts) {
  return cache.InBatches(items.size(), [&](std::size_t begin, std::size_t count) -> absl::Status {
    std::vector<Client::SealItem> part;
    for (std::size_t i = begin; i < begin + count; ++i) {
      // A call that fails takes the pins with it; the next try needs none.
      part.push_back({items[i].tensor, std::move(items[i].pin), items[i].key});
    }
    HMM_ASSIGN_OR_RETURN(const auto sealed, cache.client.SealBatch(std::move(part)));
    verdicts.insert(verdicts.end(), sealed.begin(), sealed.end());
    return absl::OkStatus();
  });
}

// Tensors whose keys others hold: theirs are the same bytes, so ours go. What cannot be had (still
// being written, evicted since) is sealed without a key and stays ours.
absl::Status KvSequence::Impl::Settle(
    const std::vector<std::pair<std::size_t, std::size_t>>& taken) {
  std::vector<std::string> keys;
  for (const auto& [b, layer] : taken) {
    keys.push_back(client_internal::BlockKey(blocks[b]->link, layer));
  }
  std::vector<Tensor> spare;
  std::size_t found = 0;
  while (found < taken.size()) {
    std::string why;
    const auto run =
        cache.Lookup(absl::MakeConstSpan(keys).subspan(found, cache.window), cache.Deadline(), why);
    if (!run.ok() || run->empty()) break;
    for (const Held& held : *run) {
      const auto [b, layer] = taken[found++];
      Block::Piece& piece = blocks[b]->pieces[layer];
      if (held.tensor.size() != cache.tensor_bytes) continue;
      spare.push_back(std::exchange(piece.tensor, held.tensor));
      piece.sealed = true;
      piece.own = false;
      ++cache.stats.adopted;
    }
  }
  cache.Free(spare);
  std::vector<Client::SealItem> items;
  std::vector<Block::Piece*> private_ones;
  for (const auto& [b, layer] : taken) {
    Block::Piece& piece = blocks[b]->pieces[layer];
    if (piece.sealed) continue;
    items.push_back({piece.tensor, Pin(), std::string()});
    private_ones.push_back(&piece);
  }
  std::vector<absl::Status> verdicts;
  absl::Status later = Seal(items, verdicts);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    private_ones[i]->sealed = verdicts[i].ok();
    later.Update(verdicts[i]);
  }
  return later;
}

}  // namespace hmm
