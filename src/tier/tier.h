// SPDX-License-Identifier: Apache-2.0
//
// A tier: one pool of one medium. It hands out extents and keeps the ledger; it knows nothing of
// tensors, clients or moves. Public calls check and account, private virtuals do the medium's part.
//
// Backends: HostTier (tier/host_tier.h: memfd arenas, one per tenant), FileTier (tier/file_tier.h:
// one preallocated file), FakeTier (tests/support). Each passes tests/conformance.
//
// One thread (the executor's), except where a method says otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "tier/ledger.h"

namespace hmm::tier {

// A piece of a tier. `length` is what the tier set aside (>= the bytes asked for).
struct Extent {
  SegmentId segment = 0;
  Bytes offset = 0;  // within the segment (host) or the file (flash)
  Bytes length = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// A shareable segment, for the client to map.
struct SegmentInfo {
  TenantId tenant = 0;
  int fd = -1;  // owned by the tier
  Bytes bytes = 0;
};

enum class TierState : std::uint8_t {
  kOnline,
  kDraining,  // gives out nothing new, is being emptied
  kDegraded,  // works, but not as configured (said in `note`)
  kOffline,   // failed: neither reads nor writes
};
constexpr std::string_view TierStateName(TierState state) {
  constexpr std::array<std::string_view, 4> kNames = {"online", "draining", "degraded", "offline"};
  return kNames[static_cast<std::size_t>(state)];
}

struct TierOptions {
  std::string name;  // "hbm0"; at most 15 characters, [a-z0-9_]
  TierKind kind = TierKind::kDdr;
  bool emulated = false;     // host memory that stands for another; every report says so
  Bytes link_bandwidth = 0;  // a second, each way, of an emulated tier; 0: as fast as it goes
  Bytes capacity = 0;        // rounded down to the backend's unit; > 0 afterwards
  double high = 0.90;        // used/capacity that starts background demotion
  double low = 0.80;         // used/capacity that stops it
  Bytes reserve = 0;         // kept free for demand SwapIns and exchanges
};
// INVALID_ARGUMENT/BAD_CONFIG for a name or marks no tier can have. Backends check the capacity.
absl::Status CheckTierOptions(const TierOptions& options);

class Tier {
 public:
  explicit Tier(TierOptions options, Bytes capacity)
      : options_(std::move(options)), ledger_(capacity) {}
  virtual ~Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  const TierOptions& options() const { return options_; }
  TierOptions& mutable_options() { return options_; }  // watermarks and reserve only
  const std::string& name() const { return options_.name; }
  TierKind kind() const { return options_.kind; }
  const Ledger& ledger() const { return ledger_; }
  Bytes capacity() const { return ledger_.capacity(); }
  // What may be in use: below the capacity while the tier is made smaller.
  Bytes limit() const { return std::min(limit_, capacity()); }
  // Free bytes that may be handed out.
  Bytes available() const { return limit() - std::min(limit(), ledger_.used()); }
  // Sum of the extents this tenant holds, in whatever state.
  Bytes TenantBytes(TenantId tenant) const;

  // Clients map extents of this tier and use them in place.
  virtual bool mappable() const = 0;
  virtual std::string_view backend() const = 0;  // "host" | "file" | "fake"
  // What a person should know of how it is backed ("4 KiB pages", "buffered I/O"); may be empty.
  virtual std::string note() const { return {}; }
  // Works, but not as configured; note() says how (TierState::kDegraded).
  virtual bool degraded() const { return false; }

  // Room for `bytes` of `tenant`, accounted as `state` (kCreating, kMoving or kReserved), backed by
  // real memory or file blocks before it returns. Errors:
  //   FAILED_PRECONDITION/TOO_LARGE   larger than the whole tier
  //   RESOURCE_EXHAUSTED/FULL         no room now (fragmentation included)
  //   RESOURCE_EXHAUSTED/NO_MEMORY    the machine or cgroup would not back it
  //   INVALID_ARGUMENT/BAD_SIZE       bytes == 0
  absl::StatusOr<Extent> Allocate(TenantId tenant, Bytes bytes, ByteState state);

  // Gives an extent back. REQUIRES: it came from Allocate, is accounted as `state`, and no copier
  // touches it.
  void Free(TenantId tenant, const Extent& extent, ByteState state);

  // The extent is now accounted otherwise.
  void Account(const Extent& extent, ByteState from, ByteState to) {
    ledger_.Transfer(from, to, extent.length);
  }

  // About the longest piece that Allocate could give this tenant now: where bytes are free but in
  // pieces, it says why there is no room. Never more than that, but for what the machine refuses.
  virtual Bytes LongestFree(TenantId tenant) const = 0;

  // Length that Allocate would set aside for `bytes`; never wraps, whatever a client asks for.
  virtual Bytes LengthFor(Bytes bytes) const = 0;

  // Daemon's address of the extent's first byte; nullptr where !mappable(). Stable while the extent
  // is allocated; the bytes may be accessed from any thread.
  virtual std::byte* Address(const Extent& extent) const = 0;
  // The file of a tier that is not mappable; -1 otherwise. Any thread.
  virtual int fd() const { return -1; }

  // NOT_FOUND when no such segment lives here.
  virtual absl::StatusOr<SegmentInfo> Segment(SegmentId segment) const = 0;

  // Gives memory without extents back to the system (punches empty chunks) until at most `keep`
  // bytes of committed-free remain. Returns the bytes given back.
  virtual Bytes Trim(Bytes keep) = 0;

  // The range of `segment` whose emptying would free a whole unit of memory for `tenant` at the
  // least cost in used bytes; nullopt if there is none (all is this tenant's and contiguous). The
  // caller evicts what lies in it and allocates again. `skip` names ranges to leave out (pinned).
  struct Window {
    SegmentId segment = 0;
    Bytes offset = 0;
    Bytes length = 0;
  };
  virtual std::optional<Window> EmptiestWindow(Bytes bytes,
                                               const std::vector<Window>& skip) const = 0;

  // A range that would hold `bytes` if the first ones of `leaving`, as few of them as do, were
  // free; they are extents of this tier, those first that are missed least. nullopt: not these, or
  // this tier's segments are not one range for all.
  virtual std::optional<Window> FirstWindow(Bytes /*bytes*/,
                                            const std::vector<Extent>& /*leaving*/) const {
    return std::nullopt;
  }

  // --- another size -----------------------------------------------------------------------------
  // The capacity nearest to `bytes` that it can have. INVALID_ARGUMENT/BAD_SIZE: none.
  // FAILED_PRECONDITION/TOO_LARGE: cannot grow so far while it runs.
  virtual absl::StatusOr<Bytes> SizeFor(Bytes bytes) const;
  // From now on only so much may be in use, so that it can shrink to that; no value: all of it.
  void SetLimit(std::optional<Bytes> limit) {
    limit_ = limit.value_or(std::numeric_limits<Bytes>::max());
  }
  // Ranges to empty before the tier can be no larger than its limit, at most `max`, those first
  // that hold least; none when nothing is in the way.
  virtual std::vector<Window> Obstacles(std::size_t /*max*/,
                                        const std::vector<Window>& /*skip*/) const {
    return {};
  }
  // Gives up what is empty beyond `capacity`, or adds to it. REQUIRES: a size that SizeFor named;
  // to shrink: no Obstacles. RESOURCE_EXHAUSTED/FULL: too much is committed still; Trim, and ask
  // again. RESOURCE_EXHAUSTED/NO_MEMORY: the machine would not back it. Nothing changed on an
  // error.
  absl::Status Resize(Bytes capacity);

  // Ranges that could be emptied into what is committed beside them, so that Trim could give them
  // back: at most `max`, the emptiest first.
  virtual std::vector<Window> SparseRanges(std::size_t /*max*/,
                                           const std::vector<Window>& /*skip*/) const {
    return {};
  }
  // As Allocate, but out of what is committed already, and not from `avoid`: the new place of what
  // lies in `from` and moves within the tier. It keeps no more memory from being given back there
  // than it did here. The limit bounds where it may lie, not how much is used meanwhile.
  absl::StatusOr<Extent> AllocateOutside(TenantId tenant, const Extent& from, ByteState state,
                                         const std::vector<Window>& avoid);

  // Compares what the system backs with what was committed, and gives back what was not. Names each
  // tenant whose readers committed memory behind our back, with the bytes found.
  struct Excess {
    TenantId tenant = 0;
    Bytes bytes = 0;
  };
  virtual std::vector<Excess> Audit() = 0;

  // All of a tenant's memory goes back to the system. REQUIRES: no extents of it remain.
  virtual void ForgetTenant(TenantId tenant) = 0;

  // The medium's self check (allocator, chunk counts against the ledger). For debug builds and
  // tests.
  virtual absl::Status Validate() const = 0;

 protected:
  // Extent for exactly LengthFor(bytes); the backend moves kFree/kCommittedFree in the ledger as it
  // commits, the base then accounts the extent.
  virtual absl::StatusOr<Extent> DoAllocate(TenantId tenant, Bytes length) = 0;
  virtual void DoFree(TenantId tenant, const Extent& extent) = 0;
  virtual absl::StatusOr<Extent> DoAllocateOutside(TenantId /*tenant*/, const Extent& from,
                                                   const std::vector<Window>& /*avoid*/) {
    return NoRoom(from.length);
  }
  // Changes the medium and the ledger. REQUIRES: a size that SizeFor named.
  virtual absl::Status DoResize(Bytes capacity);
  absl::Status NoRoom(Bytes length) const;
  Ledger& mutable_ledger() { return ledger_; }
  // RoundUp that stops at the largest multiple of `unit` instead of wrapping to 0.
  static Bytes RoundUpSaturated(Bytes bytes, Bytes unit) {
    const Bytes largest = RoundDown(~Bytes{0}, unit);
    return bytes > largest ? largest : RoundUp(bytes, unit);
  }

 private:
  TierOptions options_;
  Ledger ledger_;
  Bytes limit_ = std::numeric_limits<Bytes>::max();
  absl::flat_hash_map<TenantId, Bytes> tenant_bytes_;  // no zeros
};

}  // namespace hmm::tier
