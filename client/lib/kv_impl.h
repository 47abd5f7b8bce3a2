// SPDX-License-Identifier: Apache-2.0
//
// What stands behind KvCache and KvSequence.
//
//   kv_cache.cc     the cache: options, the geometry's record, bringing tensors
//   kv_sequence.cc  a step: Append, Read, Commit
//   kv_moves.cc     what happens between steps: Match, Fork, Suspend, Resume, Close
//
// One thread, as the header says.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "client/lib/kv_keys.h"
#include "hmm/kv_cache.h"

namespace hmm {

// A block of all layers. Shared by the sequences that were forked from one.
//
//   being written --Commit, full--> sealed --> (also under our key: the tenant's)
struct KvCacheBlock {
  struct Piece {  // of one layer
    Tensor tensor;
    Pin write;  // while it is being written
    bool sealed = false;
    bool own = true;      // nobody finds it by key: it goes with its last sequence
    bool hinted = false;  // while it was not where Read wants it, and not read since
  };
  std::vector<Piece> pieces;         // by layer
  bool sealed = false;               // all of them
  client_internal::KvDigest link{};  // once full: end of the chain up to and with it
};

class __attribute__((visibility("hidden"))) KvCache::Impl {
 public:
  using Pieces = absl::Span<KvCacheBlock::Piece* const>;

  Impl(Client& client, KvCacheOptions options);

  // The geometry that is stored for this identity, or stores ours. FAILED_PRECONDITION.
  absl::Status CheckFormat();

  // Where tensors have to be for Read, and how long a call may take.
  PlaceOptions Place(TimePoint deadline) const;
  TimePoint Deadline() const;
  // Of a try that has a smaller one to fall back to.
  static TimePoint Soon(TimePoint deadline);
  bool Readable(const Pin& pin) const;  // in a tier where Read wants it
  void CountHit(std::string_view tier);
  // `piece` was pinned without waiting for it, or after. What came up counts once, whether a hint
  // was first or not.
  void CountThere(KvCacheBlock::Piece& piece);
  void CountBrought(KvCacheBlock::Piece& piece, const Pin& pin);

  // Pins a leading run of `pieces`, bringing them up; one pin a piece. OK: at least one. Else
  // `pins` are those before the one that cannot be had, and the status says why it cannot. Tries
  // again what time mends, and with fewer when they do not fit all at once.
  absl::Status Bring(Pieces pieces, std::vector<Pin>& pins, TimePoint deadline);
  // Hints; what is there already costs no RPC.
  void Hint(std::vector<KvCacheBlock::Piece*> pieces);
  // Errors ignored: they go with the session at the latest.
  void Free(absl::Span<const Tensor> tensors);
  // The leading run of `keys` that is there, pinned, in as many calls as it takes. `why`: why it
  // ended; empty: all found. Not OK: nothing found because a call failed.
  absl::StatusOr<std::vector<Held>> Lookup(absl::Span<const std::string> keys, TimePoint deadline,
                                           std::string& why);
  // True: that call, of `count` elements, had more than the daemon takes in one, and `batch` is
  // less now: call again with no more than that.
  bool TakesFewer(const absl::Status& status, std::size_t count);
  // `call(begin, count)` for `total` elements in order, at most `batch` at a time, until one fails.
  template <typename Call>
  absl::Status InBatches(std::size_t total, Call call) {
    for (std::size_t begin = 0; begin < total;) {
      const std::size_t count = std::min(batch, total - begin);
      const absl::Status status = call(begin, count);
      if (TakesFewer(status, count)) continue;
      if (!status.ok()) return status;
      begin += count;
    }
    return absl::OkStatus();
  }

  Client& client;
  const KvCacheOptions options;
  const std::uint64_t tensor_bytes;
  const std::size_t window;  // tensors pinned at a time
  std::size_t fits;          // fewer, as far as tiers turned out to be too small or too full
  // Elements of one call: the most that a daemon takes by default, less once one took fewer.
  std::size_t batch = 4096;
  const client_internal::KvDigest identity;
  const client_internal::KvDigest chain_start;
  KvStats stats;

 private:
  absl::Status BringOnce(Pieces pieces, std::vector<Pin>& pins, TimePoint deadline);
  void FoundRoom(std::size_t count);
  void FoundTooLittle(std::size_t count, std::size_t found);

  // A try that finds no room costs a wait: what failed is not tried again soon.
  std::size_t too_many;  // as many found no room
  std::size_t full = 0;  // batches of `fits` since
};

class __attribute__((visibility("hidden"))) KvSequence::Impl {
 public:
  using Block = KvCacheBlock;
  using BlockPtr = std::shared_ptr<Block>;

  explicit Impl(KvCache::Impl& of) : cache(of) {}

  std::size_t block_tokens() const { return cache.options.block_tokens; }
  std::size_t layers() const { return cache.options.layers; }
  std::size_t BlocksFor(std::size_t count) const {
    return (count + block_tokens() - 1) / block_tokens();
  }

  // --- kv_sequence.cc ---------------------------------------------------------------------------
  absl::Status Append(absl::Span<const std::int32_t> added);
  absl::Status Read(std::size_t layer, std::size_t first, std::vector<KvBlock>& out);
  void PrefetchBlocks(std::size_t layer, std::size_t first);
  absl::Status Commit();
  // ABORTED/LOST, and the sequence ends before block `first`, or before an earlier lost one.
  absl::Status Miss(std::size_t first, const absl::Status& why);
  // Blocks from `first` on go; those of nobody else are freed.
  void DropBlocks(std::size_t first);
  void DropAppended();
  // Pins the block that is written next, if it is not.
  absl::Status PinTail();

  // --- kv_moves.cc ------------------------------------------------------------------------------
  std::size_t Match(absl::Span<const std::int32_t> wanted);
  void CopyTail(Impl& to);
  absl::Status Suspend(const std::string& tier);
  absl::Status Resume();
  absl::Status Close();

  KvCache::Impl& cache;
  std::vector<std::int32_t> tokens;    // committed
  std::vector<std::int32_t> appended;  // behind them
  std::vector<BlockPtr> blocks;
  std::vector<Pin> kept;  // of Match and Resume

 private:
  std::size_t MatchSome(absl::Span<const client_internal::KvDigest> links,
                        absl::Span<const std::int32_t> wanted, std::string& why);
  absl::Status AddBlocks(std::size_t count);
  // Where it is, if it can be read there.
  bool ReadThere(Block::Piece& piece, KvBlock& block);
  absl::Status ReadBrought(std::size_t layer, std::size_t first, std::size_t end,
                           std::vector<KvBlock>& out);
  absl::Status SealFull();
  // Uses up the pins.
  absl::Status Seal(std::vector<Client::SealItem>& items, std::vector<absl::Status>& verdicts);
  absl::Status Settle(const std::vector<std::pair<std::size_t, std::size_t>>& taken);
};

namespace client_internal {

// What a tensor's error means to a cache.
bool IsLoss(const absl::Status& status);  // the bytes are gone
bool IsTooMuch(std::string_view reason);  // not now, not all at once
// How long to wait before the same call may succeed; false: it will not, or not in time.
bool WaitToRetry(const absl::Status& status, TimePoint deadline);

// Sets a counter, when it ends, to what it was and the time between: what calls inside counted
// themselves counts once.
class Waited {
 public:
  explicit Waited(std::chrono::nanoseconds& sum) : sum_(sum), before_(sum) {}
  ~Waited() { sum_ = before_ + (std::chrono::steady_clock::now() - begin_); }
  Waited(const Waited&) = delete;
  Waited& operator=(const Waited&) = delete;

 private:
  std::chrono::nanoseconds& sum_;
  const std::chrono::nanoseconds before_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace client_internal
}  // namespace hmm
