// SPDX-License-Identifier: Apache-2.0
#include "hmm/kv_cache.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "client/lib/kv_impl.h"

namespace hmm {
namespace {

using absl::StatusCode;
using client_internal::KvDigest;

constexpr std::uint32_t kLayersMax = 4096;
constexpr std::uint32_t kBlockTokensMax = 65'536;
constexpr std::uint64_t kTensorBytesMax = std::uint64_t{1} << 40;
constexpr std::size_t kWindowMax = 1024;
constexpr std::chrono::milliseconds kTimeoutDefault{10'000};
constexpr std::chrono::milliseconds kPatience{500};
constexpr std::size_t kProbeAfter = 256;  // batches, before more than what fits is tried again
// The record of a geometry is worth more than any one block.
constexpr std::uint32_t kFormatPriority = 7;

// The bytes of a geometry's record.
struct FormatRecord {
  std::array<char, 8> magic{'h', 'm', 'm', 'k', 'v', 'f', '0', '1'};
  std::uint32_t layers = 0;
  std::uint32_t block_tokens = 0;
  std::uint64_t token_bytes = 0;
};

absl::Status BadOption(absl::string_view field, std::uint64_t value, absl::string_view wanted) {
  return Error(StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat("KvCacheOptions.", field, " is ", value, ", not ", wanted));
}

absl::Status Check(const KvCacheOptions& o) {
  if (o.layers < 1 || o.layers > kLayersMax) return BadOption("layers", o.layers, "1 to 4096");
  if (o.block_tokens < 1 || o.block_tokens > kBlockTokensMax) {
    return BadOption("block_tokens", o.block_tokens, "1 to 65536");
  }
  if (o.token_bytes < 1 || o.token_bytes > kTensorBytesMax / o.block_tokens) {
    return BadOption("token_bytes", o.token_bytes, "such that a block has 1 byte to 1 TiB a layer");
  }
  if (o.ranks < 1 || o.rank >= o.ranks) {
    return BadOption("rank", o.rank, absl::StrCat("less than ranks, ", o.ranks));
  }
  if (o.priority > 7) return BadOption("priority", o.priority, "0 to 7");
  if (o.model_digest.empty()) {
    return Error(StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "KvCacheOptions.model_digest is empty: without it models would share keys; "
                 "KvCache::Digest makes one");
  }
  return absl::OkStatus();
}

absl::Status Differs(absl::string_view field, std::uint64_t ours, std::uint64_t theirs) {
  return Error(StatusCode::kFailedPrecondition, Reason::kBadArgument,
               absl::StrCat("KvCacheOptions.", field, " is ", ours,
                            ", but the prefixes stored for this model have ", theirs,
                            "; use that, or another salt"));
}

}  // namespace

namespace client_internal {

bool IsLoss(const absl::Status& status) {
  const std::string reason = ReasonOfStatus(status);
  return reason == "LOST" || reason == "NOT_FOUND" || reason == "CHECKSUM" || reason == "IO";
}

bool IsTooMuch(std::string_view reason) {
  return reason == "FULL" || reason == "PINNED" || reason == "QUOTA" || reason == "DEADLINE" ||
         reason == "NO_MEMORY";
}

bool WaitToRetry(const absl::Status& status, TimePoint deadline) {
  const auto pause = RetryAfterOf(status);
  if (!pause) return false;
  const TimePoint now = std::chrono::steady_clock::now();
  if (now + *pause >= deadline) return false;
  std::this_thread::sleep_for(*pause);
  return true;
}

}  // namespace client_internal

// --- the implementation -------------------------------------------------------------------------

KvCache::Impl::Impl(Client& used, KvCacheOptions given)
    : client(used),
      options(std::move(given)),
      tensor_bytes(options.token_bytes * options.block_tokens),
      window(std::clamp<std::size_t>(options.window_bytes / tensor_bytes, 1, kWindowMax)),
      fits(window),
      identity(client_internal::IdentityOf(options)),
      chain_start(client_internal::ChainStart(identity, options)),
      too_many(window + 1) {}

TimePoint KvCache::Impl::Deadline() const {
  return std::chrono::steady_clock::now() +
         (options.timeout.count() > 0 ? options.timeout : kTimeoutDefault);
}

TimePoint KvCache::Impl::Soon(TimePoint deadline) {
  return std::min<TimePoint>(deadline, std::chrono::steady_clock::now() + kPatience);
}

PlaceOptions KvCache::Impl::Place(TimePoint deadline) const {
  PlaceOptions where;
  where.tier = options.tier;
  where.allow_lower = true;
  where.timeout =
      std::max(std::chrono::milliseconds(1), std::chrono::duration_cast<std::chrono::milliseconds>(
                                                 deadline - std::chrono::steady_clock::now()));
  return where;
}

bool KvCache::Impl::Readable(const Pin& pin) const {
  return options.tier.empty() || pin.tier() == options.tier;
}

void KvCache::Impl::CountHit(std::string_view tier) {
  for (KvStats::Hits& hits : stats.hits) {
    if (hits.tier != tier) continue;
    ++hits.count;
    return;
  }
  stats.hits.push_back({std::string(tier), 1});
}

void KvCache::Impl::CountThere(KvCacheBlock::Piece& piece) {
  if (std::exchange(piece.hinted, false)) stats.prefetched_bytes += tensor_bytes;
}

void KvCache::Impl::CountBrought(KvCacheBlock::Piece& piece, const Pin& pin) {
  // Found where it is now: a hint was quicker, or there was no room above.
  const bool moved = pin.found_tier() != pin.tier();
  if (!moved && Readable(pin)) return CountThere(piece);
  piece.hinted = false;
  if (moved) stats.brought_bytes += tensor_bytes;
}

absl::Status KvCache::Impl::CheckFormat() {
  // 1. Whoever came first left a record. It is a hint alone: the geometry is part of every key.
  FormatRecord ours;
  ours.layers = options.layers;
  ours.block_tokens = options.block_tokens;
  ours.token_bytes = options.token_bytes;
  const std::string key = client_internal::FormatKey(identity);
  PlaceOptions where;
  where.allow_lower = true;
  where.timeout = options.timeout;
  HMM_ASSIGN_OR_RETURN(const std::vector<Held> found, client.Lookup({&key, 1}, where));
  if (!found.empty() && found[0].pin.size() == sizeof(FormatRecord)) {
    FormatRecord theirs;
    std::memcpy(&theirs, found[0].pin.data(), sizeof(theirs));
    if (theirs.magic != ours.magic) return absl::OkStatus();
    if (theirs.block_tokens != ours.block_tokens) {
      return Differs("block_tokens", ours.block_tokens, theirs.block_tokens);
    }
    if (theirs.layers != ours.layers) return Differs("layers", ours.layers, theirs.layers);
    if (theirs.token_bytes != ours.token_bytes) {
      return Differs("token_bytes", ours.token_bytes, theirs.token_bytes);
    }
    return absl::OkStatus();
  }
  // 2. Nobody did. Should there be no room, or another be quicker: no matter.
  AllocateOptions what;
  what.bytes = sizeof(FormatRecord);
  what.kind = Kind::kKvCache;
  what.key = key;
  what.priority = kFormatPriority;
  what.droppable = true;
  absl::StatusOr<Held> held = client.Allocate(what, where);
  if (!held.ok()) return absl::OkStatus();
  std::memcpy(held->pin.data(), &ours, sizeof(ours));
  client.Seal(held->tensor, std::move(held->pin)).IgnoreError();
  return absl::OkStatus();
}

// The leading run of what was asked for goes to `pins`.
absl::Status KvCache::Impl::BringOnce(Pieces pieces, std::vector<Pin>& pins, TimePoint deadline) {
  std::vector<Tensor> tensors;
  for (const KvCacheBlock::Piece* piece : pieces) tensors.push_back(piece->tensor);
  HMM_ASSIGN_OR_RETURN(auto answers, client.AcquireBatch(tensors, Place(deadline)));
  for (absl::StatusOr<Pin>& pin : answers) {
    if (!pin.ok()) return pin.status();
    ++stats.brought;
    CountBrought(*pieces[pins.size()], *pin);
    CountHit(pin->found_tier());
    pins.push_back(*std::move(pin));
  }
  return absl::OkStatus();
}

void KvCache::Impl::FoundRoom(std::size_t count) {
  if (count < fits) return;
  if (fits + 1 < too_many) {
    ++fits;
  } else if (++full >= kProbeAfter) {
    too_many = window + 1;
    full = 0;
  }
}

void KvCache::Impl::FoundTooLittle(std::size_t count, std::size_t found) {
  too_many = count;
  fits = std::max<std::size_t>(1, found > 0 ? found : count / 2);
  full = 0;
}

absl::Status KvCache::Impl::Bring(Pieces pieces, std::vector<Pin>& pins, TimePoint deadline) {
  const TimePoint begin = std::chrono::steady_clock::now();
  pins.clear();
  absl::Status status;
  for (;;) {
    const std::size_t count = std::min({pieces.size(), fits, batch});
    status = BringOnce(pieces.subspan(0, count), pins, count > 1 ? Soon(deadline) : deadline);
    if (TakesFewer(status, count)) continue;
    const bool fewer = count > 1 && client_internal::IsTooMuch(ReasonOfStatus(status));
    if (status.ok()) FoundRoom(count);
    if (fewer) FoundTooLittle(count, pins.size());
    if (status.ok() || !pins.empty()) break;  // no pins are held while we wait
    if (!fewer && !client_internal::WaitToRetry(status, deadline)) break;
  }
  stats.wait += std::chrono::steady_clock::now() - begin;
  return status;
}

void KvCache::Impl::Hint(std::vector<KvCacheBlock::Piece*> pieces) {
  std::erase_if(pieces, [&](const KvCacheBlock::Piece* piece) {
    const std::optional<Pin> pin = piece->tensor.TryPin();
    return pin.has_value() && Readable(*pin);
  });
  std::vector<Tensor> tensors;
  for (const KvCacheBlock::Piece* piece : pieces) tensors.push_back(piece->tensor);
  PlaceOptions where;
  where.tier = options.tier;
  InBatches(tensors.size(), [&](std::size_t begin, std::size_t count) {
    const auto part = absl::MakeConstSpan(tensors).subspan(begin, count);
    const auto taken = client.PrefetchBatch(part, where);
    if (!taken.ok()) return taken.status();
    for (std::size_t i = 0; i < taken->size(); ++i) {
      if ((*taken)[i].ok()) pieces[begin + i]->hinted = true;
    }
    return absl::OkStatus();
  }).IgnoreError();
}

void KvCache::Impl::Free(absl::Span<const Tensor> tensors) {
  InBatches(tensors.size(), [&](std::size_t begin, std::size_t count) {
    return client.FreeBatch(tensors.subspan(begin, count)).status();
  }).IgnoreError();
}

absl::StatusOr<std::vector<Held>> KvCache::Impl::Lookup(absl::Span<const std::string> keys,
                                                        TimePoint deadline, std::string& why) {
  std::vector<Held> found;
  const absl::Status status =
      InBatches(keys.size(), [&](std::size_t begin, std::size_t count) -> absl::Status {
        if (found.size() < begin) return absl::OkStatus();  // the run has ended
        HMM_ASSIGN_OR_RETURN(std::vector<Held> run,
                             client.Lookup(keys.subspan(begin, count), Place(deadline), &why));
        std::move(run.begin(), run.end(), std::back_inserter(found));
        return absl::OkStatus();
      });
  if (status.ok()) return found;
  if (found.empty()) return status;
  why = ReasonOfStatus(status);
  return found;
}

bool KvCache::Impl::TakesFewer(const absl::Status& status, std::size_t count) {
  if (ReasonOfStatus(status) != "BATCH_TOO_LARGE" || count < 2) return false;
  batch = std::min(batch, count / 2);
  return true;
}

// --- the interface ------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Client& client, KvCacheOptions options) {
  HMM_RETURN_IF_ERROR(Check(options));
  auto impl = std::make_unique<Impl>(client, std::move(options));
  HMM_RETURN_IF_ERROR(impl->CheckFormat());
  return std::unique_ptr<KvCache>(new KvCache(std::move(impl)));
}

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::~KvCache() = default;

KvSequence KvCache::Open() { return KvSequence(std::make_unique<KvSequence::Impl>(*impl_)); }
const KvCacheOptions& KvCache::options() const { return impl_->options; }
const KvStats& KvCache::stats() const { return impl_->stats; }

bool KvCache::IsMiss(const absl::Status& status) { return ReasonOfStatus(status) == "LOST"; }

std::string KvCache::Digest(absl::Span<const std::byte> bytes) {
  const KvDigest digest = client_internal::Sha256(bytes);
  return client_internal::HexOf(digest, digest.size());
}

}  // namespace hmm
