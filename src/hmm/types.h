// SPDX-License-Identifier: Apache-2.0
//
// Values that go in and out of the manager. Plain data; meaning as in proto/hmm/v1, whose messages
// daemon/convert.cc maps to and from these.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "copy/mover.h"
#include "share/memory_file.h"
#include "share/session_wire.h"
#include "tier/tier.h"

namespace hmm::core {

struct ManagerOptions {
  std::uint64_t boot_epoch = 0;          // random, not 0; another for each start of the daemon
  std::uint64_t seed = 0;                // of session tokens; 0: from the system's randomness
  std::uint32_t max_tensors = 1u << 20;  // per tenant: slots of its residency table (sparse)
  std::size_t batch_max = 4096;          // elements of one call
  std::size_t key_bytes_max = 256;
  std::size_t sessions_max = 1024;  // over all tenants
  std::size_t sessions_per_tenant_max = 256;
  std::size_t waiting_max = 1024;           // calls that wait for room or moves, over all sessions
  std::size_t calls_remembered_max = 4096;  // per session: pinning calls that Release may undo
  double session_pinned_max = 0.80;  // of a tier's capacity: what one session may hold pinned
  double tenant_resident_max = 1.0;  // of a tier's capacity: what one tenant may hold there
  Duration rescan = std::chrono::milliseconds(2);  // a wait looks again: unpin is silent
  Duration audit = std::chrono::seconds(1);        // pins, pages behind our back
  std::size_t victims_per_batch = 64;              // moved between two looks at the watermark
  // A slot's last generation: then the slot is retired, so that no handle is ever given out twice.
  std::uint32_t generation_max = std::numeric_limits<std::uint32_t>::max();
  copy::MoverOptions mover;
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
};
struct Allocated {
  Handle handle;
  Location location;
};
struct AllocateResult {
  std::vector<absl::StatusOr<Allocated>> tensors;
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
  std::uint64_t tensors = 0;
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

struct TensorPage {
  std::vector<TensorInfo> tensors;
  std::uint64_t next = 0;
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
};

// Times each cell of the transition table was taken (hmm/tensor.h).
using TransitionCounts = std::array<std::array<std::uint64_t, kTensorStates>, kTensorStates>;

}  // namespace hmm::core
