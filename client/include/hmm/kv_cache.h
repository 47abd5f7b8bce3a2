// SPDX-License-Identifier: Apache-2.0
//
// The KV cache of an inference engine, in the node's memory: what every engine writes again on top
// of hmm/client.h.
//
//   sequence   tokens   0        16        32        48   51
//                       | block 0 | block 1 | block 2 | b3 .    blocks of block_tokens tokens
//   layer 0             [tensor ] [tensor ] [tensor ] [tensor]  one tensor for each (block, layer)
//   layer 1             [tensor ] [tensor ] [tensor ] [tensor]
//                        sealed, shared by key ------  ^ being written, pinned
//
// clang-format off
//   auto cache = hmm::KvCache::Create(client, {.layers = 32, .block_tokens = 16,
//                                              .token_bytes = 4096,
//                                              .model_digest = sha256_of_the_weights});
//   hmm::KvSequence sequence = (*cache)->Open();
//   std::size_t done = sequence.Match(prompt);   // leading blocks that somebody computed before
//   std::vector<hmm::KvBlock> blocks;
//   while (sequence.length() < tokens.size()) {  // also after a miss: it has become shorter
//     auto chunk = TokensFrom(sequence.length());
//     absl::Status s = sequence.Append(chunk);   // room, pinned
//     for (std::size_t layer = 0; s.ok() && layer < 32; ++layer) {
//       if (layer + 1 < 32) sequence.PrefetchLayer(layer + 1);  // a hint
//       WriteKv(chunk, layer, sequence);                        // at Writable(layer, block)
//       for (std::size_t b = 0; s.ok() && b < sequence.blocks(); b += blocks.size()) {
//         s = sequence.Read(layer, b, blocks);
//         if (s.ok()) Attend(layer, b, blocks);
//       }
//     }
//     if (s.ok()) s = sequence.Commit();         // full blocks are sealed
//     if (!s.ok() && !hmm::KvCache::IsMiss(s)) return s;
//   }
// clang-format on
//
// What is in a tensor is the engine's: block_tokens * token_bytes bytes, contents not zeroed.
//
// Misses. The daemon may drop cached blocks, lose them (restart, broken medium) or find that they
// are not what was written. Whatever it is, the call that meets it answers ABORTED/LOST, IsMiss()
// is true, and the sequence has become shorter: length() is where the first lost block began, and
// the tokens from there on have to be computed again. Blocks that are lost are never read as
// others. Everything else that goes wrong (FULL, DEADLINE, NO_DAEMON ...) leaves the sequence as it
// was at the last Commit; the step may be tried again. The codes are those of hmm/client.h.
//
// Sizes. A step may have any number of tensors. One call to the daemon carries 4,096 of them, or as
// many as it turns out to take where its limits.batch_max is less; the rest goes in further calls.
//
// Keys. A full block is sealed under SHA-256 (its first 160 bits) of everything its bytes depend
// on: model_digest, dtype, layout, geometry, rank, salt, and all tokens from the first of the
// sequence to the block's last. So processes of one tenant share prefixes and can not mistake one
// for another; tenants never see each other's.
//
// Threads: a KvCache and its sequences are used by one thread at a time; several KvCaches may stand
// on one Client, each with its own. Ownership: the Client must outlive the KvCache, and the KvCache
// its sequences. Full blocks belong to the tenant and outlive all of them; a block that is not full
// goes with the last sequence that has it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hmm/client.h"

namespace hmm {

class KvSequence;

struct KvCacheOptions {
  // --- geometry ---------------------------------------------------------------------------------
  std::uint32_t layers = 0;         // 1 to 4,096
  std::uint32_t block_tokens = 16;  // 1 to 65,536
  std::uint64_t token_bytes = 0;    // KV of one token in one layer, keys and values together; > 0

  // --- identity: part of every key --------------------------------------------------------------
  std::string model_digest{};  // of the weights, say by KvCache::Digest; required
  std::string dtype = "f32";   // of keys and values
  std::string layout = "k,v";  // of the bytes in a tensor, by any name that tells layouts apart
  std::uint32_t rank = 0;      // of `ranks` in tensor parallel
  std::uint32_t ranks = 1;
  std::string salt{};  // keeps prefixes of several users of one tenant apart

  // --- placement --------------------------------------------------------------------------------
  // Where blocks have to be to be read ("hbm0"): they are brought up, and where that finds no room,
  // read where they can be. Empty: read in any mapped tier, as a CPU can.
  std::string tier{};
  // Bytes that reading and matching pin at a time, at least one tensor. Half of what a session may
  // pin of its smallest mapped tier is a good value.
  std::uint64_t window_bytes = std::uint64_t{16} << 20;
  std::uint32_t priority = 0;                   // 0..7, as AllocateOptions
  std::chrono::microseconds recompute_cost{0};  // of one tensor, as AllocateOptions
  // Of one call here, retries included; 0: ConnectOptions::default_timeout.
  Timeout timeout{0};
};

// What a KvCache did since it was made. Tensors, not blocks.
struct KvStats {
  struct Hits {
    std::string tier;         // by name
    std::uint64_t count = 0;  // read from there: found there when asked for
  };
  std::vector<Hits> hits;            // Read, Match and Resume
  std::uint64_t matched_tokens = 0;  // by Match
  std::uint64_t brought = 0;         // tensors that Append, Read, Match and Resume waited for
  // Bytes of tensors that came up, each time once, through however many tiers: while one of these
  // calls waited for them, with a hint on its way or not; and there when they were used, after a
  // hint that was taken when they were not. What left again unused counts in neither.
  std::uint64_t brought_bytes = 0;
  std::uint64_t prefetched_bytes = 0;
  std::uint64_t misses = 0;          // times that a sequence became shorter
  std::uint64_t lost_tokens = 0;     // by that
  std::uint64_t adopted = 0;         // computed here, but somebody's sealed one was there first
  std::chrono::nanoseconds wait{0};  // in calls that move or make room: Append, Read,
                                     // Match, Resume
};

// One block as Read gives it. The bytes may be used as long as this lives, and must not be written.
struct KvBlock {
  const std::byte* data = nullptr;
  Pin pin;  // empty for the block that is being written, which the sequence itself has pinned
};

class KvCache {
 public:
  // INVALID_ARGUMENT naming the field and its value. FAILED_PRECONDITION when what is stored for
  // this model_digest has another block_tokens, layers or token_bytes; the message has both values.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Client& client, KvCacheOptions options);
  ~KvCache();  // REQUIRES: no sequence of it lives
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  KvSequence Open();  // an empty sequence
  const KvCacheOptions& options() const;
  const KvStats& stats() const;

  // True for the status of a call that met a miss (see above).
  static bool IsMiss(const absl::Status& status);
  // SHA-256 in hex, for model_digest.
  static std::string Digest(absl::Span<const std::byte> bytes);

 private:
  friend class KvSequence;
  class Impl;
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class KvSequence {
 public:
  KvSequence(KvSequence&&) noexcept;
  KvSequence& operator=(KvSequence&&) noexcept;
  // Close(), whatever comes of it.
  ~KvSequence();

  // Tokens whose KV is committed.
  std::size_t length() const;
  // Those tokens.
  absl::Span<const std::int32_t> tokens() const;
  // Blocks that length() and what is appended reach into.
  std::size_t blocks() const;

  // Finds how much of `tokens` is cached, in whole blocks, and takes it over: length() is that
  // much. The blocks stay pinned until the next Commit or Suspend, as far as window_bytes allow and
  // Append and Read need no room. A daemon that does not answer is a miss. REQUIRES: length() == 0,
  // nothing appended. To get the logits of the last token, leave that one out.
  std::size_t Match(absl::Span<const std::int32_t> tokens);

  // Room for these tokens behind length(), in all layers, pinned for writing until Commit.
  // Waits for room, and takes it in a lower tier where HBM has none. What was appended before and
  // not committed gives way. REQUIRES: not empty.
  absl::Status Append(absl::Span<const std::int32_t> tokens);
  // The tensor of a block that was appended to: block_tokens * token_bytes bytes. Write only the
  // slots of appended tokens. Valid until Commit. REQUIRES: an Append that reaches into `block`.
  absl::Span<std::byte> Writable(std::size_t layer, std::size_t block);
  // Pins blocks of a layer from `first_block` on, as many as window_bytes and the tiers allow, at
  // least one. Replaces `out`. Without an RPC where they can be read where they are; those before
  // the first that cannot are given first, and the rest is hinted at. Where that is the first, it
  // and those behind it are brought, and the next are hinted at. REQUIRES: first_block < blocks().
  absl::Status Read(std::size_t layer, std::size_t first_block, std::vector<KvBlock>& out);
  // A hint to bring the first window of this layer, while another computes. No RPC when it is
  // there.
  void PrefetchLayer(std::size_t layer);
  // The KV of all appended tokens is written: length() grows by them, and blocks that are full are
  // sealed under their keys and may move. A block whose key somebody else sealed first is replaced
  // by that one. Not OK: length() has grown all the same, unless it is a miss; sealing is tried
  // again by the next Commit.
  absl::Status Commit();

  // A second sequence with the same tokens. Full blocks are shared; the one being written is
  // copied, for both will write on. Never fails: where there is no room for the copy, the new
  // sequence is shorter by the tokens of that block. What is appended and not committed stays here.
  KvSequence Fork();

  // Gives up every pin, so that all of the sequence may leave HBM. With a tier, moves it there now,
  // the end first; what others have pinned stays where it is, and that is OK. What is appended and
  // not committed is gone. May miss. NOT_FOUND: no such tier. RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED
  // and other codes: not all of it went there; the rest stays where it is, without pins. Whatever
  // the answer, the sequence is suspended, and whole unless it is a miss.
  absl::Status Suspend(const std::string& tier = {});
  // Brings it back: hints for all of it, then pins what is written next and, as far as window_bytes
  // allow, the rest until the next Commit or Suspend. May miss.
  absl::Status Resume();

  // Marks the blocks as used, start last, so that the cache drops the end of a prefix before its
  // start; frees what is not shared. The sequence is empty then.
  absl::Status Close();

 private:
  friend class KvCache;
  class Impl;
  explicit KvSequence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hmm
