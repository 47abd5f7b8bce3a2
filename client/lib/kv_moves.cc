// SPDX-License-Identifier: Apache-2.0
//
// What happens to a sequence between steps (Match, Fork, Suspend, Resume, Close), and KvSequence
// itself.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "client/lib/kv_impl.h"

namespace hmm {

using client_internal::BlockKey;
using client_internal::IsLoss;
using client_internal::KvDigest;
using client_internal::Waited;

// --- Match --------------------------------------------------------------------------------------

std::size_t KvSequence::Impl::Match(absl::Span<const std::int32_t> wanted) {
  if (tokens.size() % block_tokens() != 0) return 0;
  const Waited waited(cache.stats.wait);
  // 1. Links of all full blocks, which continue ours.
  DropAppended();
  const std::size_t begin = blocks.size();
  const std::size_t count = wanted.size() / block_tokens();
  std::vector<KvDigest> links;
  for (std::size_t i = 0; i < count; ++i) {
    const KvDigest& before =
        i > 0 ? links.back() : (begin > 0 ? blocks.back()->link : cache.chain_start);
    links.push_back(
        client_internal::ChainNext(before, wanted.subspan(i * block_tokens(), block_tokens())));
  }
  // 2. Look them up, all layers of some blocks at a time, until one is not whole. Where they do not
  //    fit all at once: without our own pins, then fewer.
  std::size_t at_once = std::max<std::size_t>(1, cache.fits / layers());
  bool keep = true;
  std::size_t found = 0;
  while (found < count) {
    const std::size_t some = std::min(at_once, count - found);
    std::string why;
    const std::size_t whole = MatchSome(absl::MakeConstSpan(links).subspan(found, some),
                                        wanted.subspan(found * block_tokens()), why);
    found += whole;
    if (!keep || kept.size() > cache.window) kept.clear();  // pins are for a step
    if (whole == some) continue;
    if (!client_internal::IsTooMuch(why) || (!keep && some == 1)) break;
    if (!keep) at_once = some / 2;
    keep = false;
    kept.clear();
  }
  cache.stats.matched_tokens += found * block_tokens();
  return found * block_tokens();
}

// Takes over the leading blocks that are whole; the pins go to `kept`.
std::size_t KvSequence::Impl::MatchSome(absl::Span<const KvDigest> links,
                                        absl::Span<const std::int32_t> wanted, std::string& why) {
  std::vector<std::string> keys;
  for (const KvDigest& link : links) {
    for (std::size_t layer = 0; layer < layers(); ++layer) keys.push_back(BlockKey(link, layer));
  }
  const TimePoint deadline = cache.Deadline();
  auto run = cache.Lookup(keys, links.size() > 1 ? KvCache::Impl::Soon(deadline) : deadline, why);
  if (!run.ok()) {
    why = ReasonOfStatus(run.status());
    return 0;
  }
  const std::size_t whole = run->size() / layers();
  for (std::size_t b = 0; b < whole; ++b) {
    auto block = std::make_shared<Block>();
    block->sealed = true;
    block->link = links[b];
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      Held& held = (*run)[b * layers() + layer];
      if (held.tensor.size() != cache.tensor_bytes) return b;  // not one of ours
      Block::Piece& piece = block->pieces.emplace_back(
          Block::Piece{held.tensor, Pin(), /*sealed=*/true, /*own=*/false});
      cache.CountHit(held.found_tier);
      if (held.found_tier != held.pin.tier()) ++cache.stats.brought;
      cache.CountBrought(piece, held.pin);
      kept.push_back(std::move(held.pin));
    }
    blocks.push_back(std::move(block));
    const auto part = wanted.subspan(b * block_tokens(), block_tokens());
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return whole;
}

// --- Fork ---------------------------------------------------------------------------------------

void KvSequence::Impl::CopyTail(Impl& to) {
  const std::size_t full = tokens.size() / block_tokens();
  to.tokens = tokens;
  to.blocks.assign(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(full));
  if (tokens.size() % block_tokens() == 0) return;
  // Pinned here, new there; whatever fails, the fork ends with the last full block.
  to.tokens.resize(full * block_tokens());
  std::vector<std::int32_t> rest(tokens.begin() + static_cast<std::ptrdiff_t>(to.tokens.size()),
                                 tokens.end());
  if (!PinTail().ok() || !to.Append(rest).ok()) return;
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    std::memcpy(to.blocks[full]->pieces[layer].write.data(),
                blocks[full]->pieces[layer].write.data(), cache.tensor_bytes);
  }
  to.tokens.insert(to.tokens.end(), rest.begin(), rest.end());
  to.appended.clear();
}

// --- Suspend, Resume ----------------------------------------------------------------------------

namespace {

// Not IO: moving away also fails because of where it goes.
bool IsGone(const absl::Status& status) { return IsLoss(status) && ReasonOfStatus(status) != "IO"; }

// And not RESOURCE_EXHAUSTED/PINNED: no room there, because of pins.
bool IsPinnedByOthers(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && ReasonOfStatus(status) == "PINNED";
}

}  // namespace

absl::Status KvSequence::Impl::Suspend(const std::string& tier) {
  DropAppended();
  kept.clear();
  std::vector<Tensor> all;
  for (const BlockPtr& block : blocks) {
    for (Block::Piece& piece : block->pieces) {
      piece.write = Pin();
      all.push_back(piece.tensor);
    }
  }
  if (tier.empty()) return absl::OkStatus();
  // The end first: should it be the cold end of that tier too, the start stays longest.
  PlaceOptions where = cache.Place(cache.Deadline());
  where.tier = tier;
  where.allow_lower = false;
  for (std::size_t end = all.size(); end > 0;) {
    const std::size_t begin = end - std::min({end, cache.window, cache.batch});
    const auto moved =
        cache.client.SwapBatch(absl::MakeConstSpan(all).subspan(begin, end - begin), where);
    if (cache.TakesFewer(moved.status(), end - begin)) continue;
    if (IsGone(moved.status())) {
      // Of a call as a whole: there is no such tier.
      return absl::IsNotFound(moved.status()) ? moved.status()
                                              : Miss(blocks.size(), moved.status());
    }
    HMM_RETURN_IF_ERROR(moved.status());
    absl::Status stayed;
    for (std::size_t i = 0; i < moved->size(); ++i) {
      const absl::Status& verdict = (*moved)[i];
      // In order, so the first that is gone lies in the first block that is.
      if (IsGone(verdict)) return Miss((begin + i) / layers(), verdict);
      if (!IsPinnedByOthers(verdict)) stayed.Update(verdict);
    }
    HMM_RETURN_IF_ERROR(stayed);  // what did not fit keeps the rest from fitting
    end = begin;
  }
  return absl::OkStatus();
}

absl::Status KvSequence::Impl::Resume() {
  const Waited waited(cache.stats.wait);
  kept.clear();
  std::vector<Block::Piece*> all;
  std::vector<std::size_t> block_of;
  const std::size_t full = tokens.size() / block_tokens();
  for (std::size_t b = 0; b < full; ++b) {
    for (Block::Piece& piece : blocks[b]->pieces) {
      all.push_back(&piece);
      block_of.push_back(b);
    }
  }
  // 1. Hints, so that moves run while we pin what is there.
  cache.Hint(all);
  // 2. What is written next; then the rest, as far as the window goes.
  HMM_RETURN_IF_ERROR(PinTail());
  all.resize(std::min(all.size(), cache.fits));
  std::vector<Block::Piece*> wanted;
  std::vector<std::size_t> wanted_block;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::optional<Pin> pin = all[i]->tensor.TryPin();
    if (pin && cache.Readable(*pin)) {
      cache.CountHit(pin->tier());
      cache.CountThere(*all[i]);
      kept.push_back(*std::move(pin));
    } else {
      wanted.push_back(all[i]);
      wanted_block.push_back(block_of[i]);
    }
  }
  for (std::size_t done = 0; done < wanted.size();) {
    std::vector<Pin> pins;
    const absl::Status status = cache.Bring(absl::MakeConstSpan(wanted).subspan(done), pins,
                                            KvCache::Impl::Soon(cache.Deadline()));
    for (Pin& pin : pins) kept.push_back(std::move(pin));
    done += pins.size();
    if (IsLoss(status)) return Miss(wanted_block[done], status);
    if (!status.ok()) break;  // no room to have it all pinned: Read brings the rest
  }
  return absl::OkStatus();
}

// --- Close --------------------------------------------------------------------------------------

absl::Status KvSequence::Impl::Close() {
  kept.clear();
  std::vector<std::string> keys;
  for (const BlockPtr& block : blocks) {
    if (!block->sealed || block->pieces.front().tensor.lost()) continue;
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      if (!block->pieces[layer].own) keys.push_back(BlockKey(block->link, layer));
    }
  }
  tokens.clear();
  appended.clear();
  DropBlocks(0);
  // The last part first, and each call touches its first key last: the start is the most recent.
  absl::Status status;
  for (std::size_t end = keys.size(); end > 0;) {
    const std::size_t begin = end - std::min(end, cache.batch);
    status = cache.client.Touch(absl::MakeConstSpan(keys).subspan(begin, end - begin)).status();
    if (cache.TakesFewer(status, end - begin)) continue;
    if (!status.ok()) break;
    end = begin;
  }
  return status;
}

// --- the interface ------------------------------------------------------------------------------

KvSequence::KvSequence(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvSequence::KvSequence(KvSequence&&) noexcept = default;
KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ != nullptr) impl_->Close().IgnoreError();
  impl_ = std::move(other.impl_);
  return *this;
}
KvSequence::~KvSequence() {
  if (impl_ != nullptr) impl_->Close().IgnoreError();
}

std::size_t KvSequence::length() const { return impl_->tokens.size(); }
absl::Span<const std::int32_t> KvSequence::tokens() const { return impl_->tokens; }
std::size_t KvSequence::blocks() const {
  return impl_->BlocksFor(impl_->tokens.size() + impl_->appended.size());
}
std::size_t KvSequence::Match(absl::Span<const std::int32_t> tokens) {
  return impl_->Match(tokens);
}
absl::Status KvSequence::Append(absl::Span<const std::int32_t> tokens) {
  HMM_CHECK(!tokens.empty());
  return impl_->Append(tokens);
}
absl::Span<std::byte> KvSequence::Writable(std::size_t layer, std::size_t block) {
  HMM_CHECK(layer < impl_->layers() && block < impl_->blocks.size());
  const Pin& pin = impl_->blocks[block]->pieces[layer].write;
  HMM_CHECK(pin.valid());
  return {pin.data(), pin.size()};
}
absl::Status KvSequence::Read(std::size_t layer, std::size_t first_block,
                              std::vector<KvBlock>& out) {
  HMM_CHECK(layer < impl_->layers() && first_block < blocks());
  return impl_->Read(layer, first_block, out);
}
void KvSequence::PrefetchLayer(std::size_t layer) {
  HMM_CHECK(layer < impl_->layers());
  impl_->PrefetchBlocks(layer, 0);
}
absl::Status KvSequence::Commit() { return impl_->Commit(); }
KvSequence KvSequence::Fork() {
  auto fork = std::make_unique<Impl>(impl_->cache);
  impl_->CopyTail(*fork);
  return KvSequence(std::move(fork));
}
absl::Status KvSequence::Suspend(const std::string& tier) { return impl_->Suspend(tier); }
absl::Status KvSequence::Resume() { return impl_->Resume(); }
absl::Status KvSequence::Close() { return impl_->Close(); }

}  // namespace hmm
