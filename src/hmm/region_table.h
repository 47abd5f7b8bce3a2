// SPDX-License-Identifier: Apache-2.0
//
// Regions: contiguous ranges at fixed addresses that reclaim never touches. Leased ones are a room
// of a mappable tier, accounted as reserved; attached ones are a client's own memory file.
//
//   Add --> live --Release, its session reaped--> dying --no key of a job uses it--> gone
//
// A job's key uses its regions from the job's start to the key's end, so that a copier never
// touches one that is gone. One thread (the executor's).
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "hmm/reclaimer.h"
#include "hmm/region_types.h"
#include "hmm/session_table.h"
#include "hmm/store.h"
#include "share/memory_file.h"

namespace hmm::core {

struct Region {
  RegionId id = 0;
  std::uint64_t serial = 0;  // of all regions ever: ids are used again
  SessionId session = 0;
  TenantId tenant = 0;
  bool leased = false;
  Room room;               // leased
  share::Mapping mapping;  // attached
  std::byte* data = nullptr;
  Bytes bytes = 0;
  std::size_t users = 0;  // keys of jobs that have not ended
  unsigned drains = 0;    // calls that wait for it to be quiet: no new jobs
  bool dying = false;

  // Whether `bytes` at `offset` lie inside; never wraps.
  bool Holds(Bytes offset, Bytes length) const {
    return length <= bytes && offset <= bytes - length;
  }
};

class RegionTable {
 public:
  RegionTable(const ManagerOptions& options, Tiers& tiers, TensorStore& store,
              SessionTable& sessions, Reclaimer& reclaimer);

  // nullptr: the session has no such region.
  Region* Find(SessionId session, RegionId id);
  // Whether a region of this id could be added now. INVALID_ARGUMENT for id 0, ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED/QUOTA past the bounds, the session's, its tenant's and those of all;
  // `attached`: bytes of a memory file, 0 for a lease.
  absl::Status CheckNew(SessionId session, RegionId id, Bytes attached) const;
  // REQUIRES: CheckNew, and the session is there. Takes the room.
  Region& AddLeased(SessionId session, RegionId id, const Room& room, Bytes bytes);
  Region& AddAttached(SessionId session, RegionId id, share::Mapping mapping, Bytes bytes);
  // No new job finds it; it goes when nothing uses it.
  void Release(Region& region);
  void ReleaseAll(SessionId session);

  // Whether a key uses the region of this serial, released or not.
  bool InUse(std::uint64_t serial) const;
  void Use(Region& region) { ++region.users; }
  void Unuse(Region& region);

  Bytes reserved(TierId tier) const { return reserved_[tier]; }
  std::size_t count() const { return live_.size() + dying_.size(); }
  absl::Status Validate() const;

 private:
  using Key = std::pair<SessionId, RegionId>;
  struct Share {
    std::size_t regions = 0;  // live
    Bytes attached = 0;       // dying ones too
  };
  Region& Add(std::unique_ptr<Region> region);
  std::size_t CountOf(TenantId tenant) const;
  void Gone(Region& region);  // gives its memory back; the caller forgets it

  const ManagerOptions& options_;
  Tiers& tiers_;
  TensorStore& store_;
  SessionTable& sessions_;
  Reclaimer& reclaimer_;
  std::uint64_t last_serial_ = 0;
  std::map<Key, std::unique_ptr<Region>> live_;
  std::vector<std::unique_ptr<Region>> dying_;
  std::map<SessionId, Share> shares_;  // no empty ones
  std::vector<Bytes> reserved_;        // by tier
};

}  // namespace hmm::core
