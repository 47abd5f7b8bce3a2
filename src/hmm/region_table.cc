// SPDX-License-Identifier: Apache-2.0
#include "hmm/region_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {

RegionTable::RegionTable(const ManagerOptions& options, Tiers& tiers, TensorStore& store,
                         SessionTable& sessions, Reclaimer& reclaimer)
    : options_(options),
      tiers_(tiers),
      store_(store),
      sessions_(sessions),
      reclaimer_(reclaimer),
      reserved_(tiers.size(), 0) {}

Region* RegionTable::Find(SessionId session, RegionId id) {
  const auto it = live_.find({session, id});
  return it == live_.end() ? nullptr : it->second.get();
}

absl::Status RegionTable::CheckNew(SessionId session, RegionId id, Bytes attached) const {
  if (id == 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "the region's id is 0; choose one above");
  }
  if (live_.contains({session, id})) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kExists,
                 absl::StrCat("the session has a region ", id, " already"));
  }
  const auto it = shares_.find(session);
  const Share share = it == shares_.end() ? Share{} : it->second;
  auto over = [](auto... words) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kQuota,
                 absl::StrCat(words..., "; release some"));
  };
  if (share.regions >= options_.jobs.regions_per_session_max) {
    return over("the session has all of its ", options_.jobs.regions_per_session_max, " regions");
  }
  if (count() >= options_.jobs.regions_max) {
    return over("all ", options_.jobs.regions_max, " regions of the daemon are taken");
  }
  const std::size_t tenant_max = TenantShare(options_.jobs.regions_max);
  const Session* mine = sessions_.Find(session);
  if (mine != nullptr && CountOf(mine->tenant) >= tenant_max) {
    return over("the tenant has ", tenant_max, " regions, all that one may have");
  }
  const Bytes limit = options_.jobs.attached_bytes_max;
  if (attached > limit || share.attached > limit - attached) {
    return over("the session attached ", share.attached, " bytes, ", attached,
                " more would exceed its limit of ", limit);
  }
  return absl::OkStatus();
}

std::size_t RegionTable::CountOf(TenantId tenant) const {
  const auto live = std::count_if(live_.begin(), live_.end(), [&](const auto& entry) {
    return entry.second->tenant == tenant;
  });
  const auto dying = std::count_if(dying_.begin(), dying_.end(),
                                   [&](const auto& region) { return region->tenant == tenant; });
  return static_cast<std::size_t>(live + dying);
}

Region& RegionTable::Add(std::unique_ptr<Region> region) {
  Region& added = *region;
  added.tenant = sessions_.Find(added.session)->tenant;
  added.serial = ++last_serial_;
  Share& share = shares_[added.session];
  ++share.regions;
  if (!added.leased) share.attached += added.bytes;
  const bool fresh = live_.emplace(Key{added.session, added.id}, std::move(region)).second;
  HMM_CHECK(fresh);
  return added;
}

Region& RegionTable::AddLeased(SessionId session, RegionId id, const Room& room, Bytes bytes) {
  auto region = std::make_unique<Region>();
  region->id = id;
  region->session = session;
  region->leased = true;
  region->room = room;
  region->data = tiers_[room.tier]->Address(room.extent);
  region->bytes = bytes;
  HMM_CHECK(region->data != nullptr);
  reserved_[room.tier] += room.extent.length;
  reclaimer_.AddFixed(room);
  sessions_.Find(session)->leased[room.tier] += room.extent.length;
  return Add(std::move(region));
}

Region& RegionTable::AddAttached(SessionId session, RegionId id, share::Mapping mapping,
                                 Bytes bytes) {
  auto region = std::make_unique<Region>();
  region->id = id;
  region->session = session;
  region->mapping = std::move(mapping);
  region->data = region->mapping.data();
  region->bytes = bytes;
  return Add(std::move(region));
}

void RegionTable::Gone(Region& region) {
  if (region.leased) {
    reserved_[region.room.tier] -= region.room.extent.length;
    reclaimer_.RemoveFixed(region.room);
    store_.ReturnRoom(region.room);
    if (Session* session = sessions_.Find(region.session)) {
      session->leased[region.room.tier] -= region.room.extent.length;
    }
  }
  // None is left when this is one of several leases that were dying.
  const auto share = shares_.find(region.session);
  if (share == shares_.end()) return;
  if (!region.leased) share->second.attached -= region.bytes;
  if (share->second.regions == 0 && share->second.attached == 0) shares_.erase(share);
}

void RegionTable::Release(Region& region) {
  HMM_CHECK(!region.dying);
  region.dying = true;
  --shares_.at(region.session).regions;
  auto node = live_.extract({region.session, region.id});
  if (node.mapped()->users == 0) {
    Gone(*node.mapped());
  } else {
    dying_.push_back(std::move(node.mapped()));
  }
}

void RegionTable::ReleaseAll(SessionId session) {
  for (auto it = live_.lower_bound({session, 0}); it != live_.end() && it->first.first == session;
       it = live_.lower_bound({session, 0})) {
    Release(*it->second);
  }
}

bool RegionTable::InUse(std::uint64_t serial) const {
  const bool live = std::any_of(live_.begin(), live_.end(), [&](const auto& entry) {
    return entry.second->serial == serial && entry.second->users > 0;
  });
  return live || std::any_of(dying_.begin(), dying_.end(),
                             [&](const auto& region) { return region->serial == serial; });
}

void RegionTable::Unuse(Region& region) {
  HMM_CHECK(region.users > 0);
  if (--region.users > 0 || !region.dying) return;
  const auto it = std::find_if(dying_.begin(), dying_.end(),
                               [&](const auto& dying) { return dying.get() == &region; });
  HMM_CHECK(it != dying_.end());
  Gone(region);
  dying_.erase(it);
}

absl::Status RegionTable::Validate() const {
  std::vector<Bytes> reserved(tiers_.size(), 0);
  for (const auto& [key, region] : live_) {
    if (region->leased) reserved[region->room.tier] += region->room.extent.length;
  }
  for (const auto& region : dying_) {
    if (region->leased) reserved[region->room.tier] += region->room.extent.length;
    if (region->users == 0) {
      return Error(absl::StatusCode::kInternal, Reason::kInternal, "a dying region without users");
    }
  }
  if (reserved != reserved_) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 "the regions' rooms are not those counted");
  }
  return absl::OkStatus();
}

}  // namespace hmm::core
