// SPDX-License-Identifier: Apache-2.0
//
// Values that go in and out of the manager. Plain data; meaning as in proto/hmm/v1, whose messages
// daemon/convert.cc maps to and from these.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/units.h"
#include "copy/calibration.h"
#include "copy/mover.h"
#include "hmm/moves.h"
#include "policy/cost.h"
#include "share/memory_file.h"
#include "share/session_wire.h"
#include "tier/tier.h"
#include "tier/topology.h"

namespace hmm::core {

// What one tenant may hold in one tier.
struct ResidentMax {
  double ratio = 0;  // > 0: of the tier's capacity
  Bytes bytes = 0;   // else; 0: ManagerOptions::tenant_resident_max
};
// By tenant's name, then by tier: one entry each.
using TenantLimits = std::map<std::string, std::vector<ResidentMax>>;

// Of regions and jobs (hmm/region_table.h, hmm/job_table.h).
struct JobLimits {
  std::size_t regions_per_session_max = 64;
  std::size_t regions_max = 4096;         // over all sessions; TenantShare
  Bytes attached_bytes_max = 64 * kGiB;   // per session: address space, and what jobs commit
  std::size_t jobs_per_session_max = 64;  // those that ended and are not forgotten included
  std::size_t fragments_per_key_max = 16384;
  std::size_t fragments_per_job_max = 65536;
  std::size_t fragments_max = 1u << 20;  // of jobs under way, over all sessions; TenantShare
  std::size_t keys_under_way_max = 16;   // of one job; the others wait their turn
};

// What one tenant alone may have of a bound that all share: a quarter is left to others, however
// much it asks for.
constexpr std::size_t TenantShare(std::size_t bound) { return bound - bound / 4; }

struct ManagerOptions {
  std::uint64_t boot_epoch = 0;          // random, not 0; another for each start of the daemon
  std::uint64_t seed = 0;                // of session tokens; 0: from the system's randomness
  std::uint32_t max_tensors = 1u << 20;  // per tenant: slots of its residency table (sparse)
  std::size_t batch_max = 4096;          // elements of one call
  std::size_t key_bytes_max = 256;
  std::size_t sessions_max = 1024;  // over all tenants
  std::size_t sessions_per_tenant_max = 256;
  std::size_t waiting_max = 1024;               // calls that wait for room or moves; TenantShare
  std::size_t waiting_elements_max = 1u << 18;  // of their batches, together; TenantShare
  std::size_t calls_remembered_max = 4096;      // per session: pinning calls that Release may undo
  double session_pinned_max = 0.80;  // of a tier's capacity: what one session may hold pinned
  double tenant_resident_max = 1.0;  // of a tier's capacity: what one tenant may hold there
  TenantLimits tenant_limits;        // of those for whom it is not so
  // Tensors that one session may have allocated ahead, for its client's magazines.
  std::size_t ahead_max = 1024;
  Bytes ahead_bytes_max = 64 * kMiB;
  Duration rescan = std::chrono::milliseconds(2);  // a wait looks again: unpin is silent
  Duration audit = std::chrono::seconds(1);        // pins, pages behind our back
  std::size_t victims_per_batch = 64;              // moved between two looks at the watermark
  // A slot's last generation: then the slot is retired, so that no handle is ever given out twice.
  std::uint32_t generation_max = std::numeric_limits<std::uint32_t>::max();
  std::size_t events_kept = 1u << 15;  // for watchers that lag, over all of them
  std::size_t moves_kept = 1u << 15;   // that Explain can tell of, over all tensors
  // Where each tier's tensors go when it fills, by tier; always a later one. Empty: to the first
  // tier of a slower kind. Offline ones are passed by.
  std::vector<std::optional<TierId>> demote_to;
  copy::MoverOptions mover;
  copy::CalibrationOptions calibration;
  JobLimits jobs;
};

struct SessionInfo {
  std::string tenant;  // name: "uid:1000", or as configured for the socket
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  std::string command;  // for people
  std::string device;   // HBM tier it works on; empty: the first
};

struct SessionGrant {
  SessionId session = 0;
  share::Token token{};
  std::uint32_t max_tensors = 0;
  // Descriptors to send; the manager keeps its own.
  share::UniqueFd table;  // residency table of the tenant, read only
  share::UniqueFd page;   // session page
  std::vector<std::string> tier_names;
};

// Who calls, and how a pinning call can be undone.
struct CallContext {
  SessionId session = 0;
  std::uint64_t call_id = 0;  // > 0 for calls that pin
  std::uint64_t oldest_live_call_id = 0;
  TimePoint deadline = TimePoint::max();
};

struct Location {
  TierId tier = 0;
  SegmentId segment = 0;
  Bytes offset = 0;
  Bytes bytes = 0;
};

struct TensorSpec {
  Bytes bytes = 0;
  TensorKind kind = TensorKind::kOther;
  std::string key;
  std::uint32_t priority = 0;  // 0..7
  std::uint64_t recompute_us = 0;
  bool droppable = false;
};

struct AllocateArgs {
  std::vector<TensorSpec> tensors;
  bool all = false;
  bool wait = false;
  std::string tier;
  bool allow_lower = false;
  std::size_t ahead = 0;                 // that many more, unpinned, if there is room to spare
  std::optional<TensorSpec> ahead_like;  // what these are like; else as tensors[0]
  std::vector<Handle> taken;  // of those allocated ahead: the client took them, they are ordinary
};
struct Allocated {
  Handle handle;
  Location location;
};
struct AllocateResult {
  std::vector<absl::StatusOr<Allocated>> tensors;
  std::vector<Allocated> ahead;
};

struct AcquireArgs {
  std::vector<Handle> handles;
  bool all = false;
  std::string tier;  // empty: any mappable one
  bool allow_lower = false;
};
struct Acquired {
  Location location;
  TierId found_tier = 0;
};
struct AcquireResult {
  std::vector<absl::StatusOr<Acquired>> tensors;
};

struct LookupArgs {
  std::vector<std::string> keys;
  std::string tier;
  bool allow_lower = false;
  bool no_pin = false;
};
struct Found {
  Handle handle;
  Location location;
  TierId found_tier = 0;
  std::uint64_t estimated_us = 0;
};
struct LookupResult {
  std::vector<Found> run;
  std::string miss_reason;
};

struct SealItem {
  Handle handle;
  std::string key;
  bool unpin = false;
};

struct PrefetchArgs {
  std::vector<Handle> handles;
  std::vector<std::string> keys;
  std::string tier;
  TimePoint deadline = TimePoint::max();
  bool in_place = false;  // only recency: nothing moves
};

struct SwapArgs {
  std::vector<Handle> handles;
  std::string tier;
};
struct SwapResult {
  std::vector<absl::StatusOr<TierId>> tensors;  // where each is now
};

struct FreeResult {
  bool deferred = false;
};

struct EvictResult {
  Bytes freed_bytes = 0;
  std::uint64_t tensors = 0;  // that left the tier
  std::uint64_t dropped = 0;  // of those, that went nowhere: they are gone
  std::uint64_t pinned_tensors = 0;
  std::uint64_t kept_tensors = 0;  // stayed otherwise: no room below, and not droppable
};

struct TensorInfo {
  Handle handle;
  std::string key;
  TensorKind kind = TensorKind::kOther;
  TensorState state = TensorState::kGone;
  TierId tier = 0;
  Bytes bytes = 0;
  bool sealed = false;
  bool ahead = false;  // allocated ahead, not taken yet: its bytes count as reserved
  bool droppable = false;
  std::uint32_t priority = 0;
  std::uint64_t recompute_us = 0;
  std::string tenant;
  SessionId owner = 0;
  std::vector<std::pair<SessionId, std::uint32_t>> pins;
  Duration age{};
  Duration idle{};
  std::vector<TierId> clean_copies;
};

// What ListTensors shows: those that pass all that is set.
struct TensorFilter {
  std::string tier{};
  std::string tenant{};
  std::optional<TensorKind> kind{};
  std::optional<TensorState> state{};
  std::string key_prefix{};
  std::optional<bool> pinned{};
};

struct TensorPage {
  std::vector<TensorInfo> tensors;
  std::uint64_t next = 0;
};

// Cost of evicting a tensor, and its factors (policy/cost.h).
struct EvictionCostInfo {
  policy::EvictionCost cost;
  double uses_per_s = 0;
  std::uint64_t accesses = 0;
  Duration idle{};
  std::optional<TierId> below;
  Duration bring_back{};
  bool bring_back_measured = false;
  std::uint64_t recompute_us = 0;
  bool clean_below = false;
};

struct Explanation {
  TensorInfo tensor;
  std::uint64_t rank = 0;
  bool rank_capped = false;
  std::uint64_t of_tensors = 0;
  std::string next;
  EvictionCostInfo cost;
  std::vector<MoveRecord> moves;  // newest first
  bool moves_forgotten = false;
};

struct TierHealth {
  std::string name;
  tier::TierState state = tier::TierState::kOnline;
  std::optional<Reason> reason;  // unset: online
  std::string note;
  Duration since{};
  std::optional<Duration> last_probe;  // ago: a move into or out of it ended
  bool last_probe_ok = false;
  std::uint64_t read_errors = 0;
  std::uint64_t write_errors = 0;
  std::uint64_t checksum_errors = 0;
};

// --- administration -----------------------------------------------------------------------------

struct ResizeResult {
  Bytes old_bytes = 0;
  Bytes new_bytes = 0;
  Bytes freed_bytes = 0;      // of the tensors alone: clean copies that went are not in it
  std::uint64_t tensors = 0;  // that left the tier
  std::uint64_t dropped = 0;  // of those: gone, because nothing below took them
};

struct CompactResult {
  Bytes returned_bytes = 0;
  Bytes moved_bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t pinned_windows = 0;
};

// Tensors of one tenant: those named, or with neither handles nor keys all that the rest allows.
struct TensorSelector {
  std::string tenant;
  std::vector<Handle> handles;
  std::vector<std::string> keys;
  std::string key_prefix;
  std::optional<TensorKind> kind;
};

struct SwapManyResult {
  std::uint64_t tensors = 0;  // came to the tier and are there
  Bytes moved_bytes = 0;      // of those
  std::uint64_t left = 0;     // came or were there, and had left before the answer
  std::uint64_t there = 0;    // were there before, and still are
  std::uint64_t pinned = 0;
  std::uint64_t failed = 0;
  absl::Status first_error;
};

struct PrefetchManyResult {
  std::uint64_t taken = 0;
  std::uint64_t dropped = 0;
  absl::Status first_error;
};

struct TierInfo {
  std::string name;
  TierKind kind = TierKind::kDdr;
  std::string backend;
  bool emulated = false;
  tier::TierState state = tier::TierState::kOnline;
  std::string note;
  Bytes capacity = 0;
  Bytes used = 0;
  Bytes pinned = 0;  // at the last audit, plus what calls pinned since
  double high = 0;
  double low = 0;
  Bytes reserve = 0;
  std::array<Bytes, tier::kByteStates> by_state{};
  Bytes clean_copies = 0;
  std::uint64_t tensors = 0;
  std::uint64_t hits = 0;
};

// What the daemon knows of the machine and the order of its tiers.
struct TierFacts {
  unsigned rank = 0;  // 0: the fastest; equal: about as fast
  int numa_node = -1;
};
struct TopologyFacts {
  std::vector<tier::MemoryNode> nodes;
  std::vector<TierFacts> tiers;  // by tier; empty: not told
};

// The last measurement of the links.
struct LinkMeasurement {
  std::vector<copy::LinkModel> links;
  std::int64_t unix_ms = 0;  // 0: never, or nobody noted when
  bool from_file = false;    // at an earlier start
};

struct TopologyInfo {
  TopologyFacts facts;
  std::vector<std::optional<TierId>> demote_to;  // by tier, now
  LinkMeasurement measured;
};

struct LinkInfo {
  TierId from = 0;
  TierId to = 0;
  copy::LinkStats stats;
};

struct Counters {
  std::uint64_t allocations = 0;
  std::uint64_t allocation_failures = 0;
  std::uint64_t lookups = 0;
  std::uint64_t lookup_hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t demotions = 0;
  std::uint64_t promotions = 0;
  std::uint64_t cancelled_demotions = 0;
  std::uint64_t clean_drops = 0;
  std::uint64_t taken_back_moves = 0;
  std::uint64_t lost_tensors = 0;
  std::uint64_t expelled_sessions = 0;
  std::uint64_t reaped_sessions = 0;
  std::uint64_t ahead_taken_back = 0;
};

struct StatusInfo {
  std::uint64_t epoch = 0;
  Duration uptime{};
  std::uint64_t sessions = 0;
  std::uint64_t pins = 0;
  std::uint64_t tensors = 0;
  std::vector<TierInfo> tiers;
  std::vector<LinkInfo> links;
  Counters counters;
  bool draining = false;
};

struct SessionStatus {
  SessionId session = 0;
  std::string tenant;
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  std::string command;
  bool closing = false;
  std::uint64_t pins = 0;
  Bytes pinned_bytes = 0;
  Duration age{};
  std::uint64_t tensors = 0;
  Duration oldest_pin{};  // a lower bound; 0: none seen
  Handle oldest_pin_of;
};

// Times each cell of the transition table was taken (hmm/tensor.h).
using TransitionCounts = std::array<std::array<std::uint64_t, kTensorStates>, kTensorStates>;

}  // namespace hmm::core
