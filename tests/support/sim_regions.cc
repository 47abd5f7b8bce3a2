// SPDX-License-Identifier: Apache-2.0
//
// Actions on regions and jobs. A region has one job at a time, so that its bytes are certain.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "support/sim_world.h"

namespace hmm::testing {

void SimWorld::RegionStep(SimClient& client) {
  switch (Pick(18)) {
    case 0:
    case 1:
    case 2:
      return Lease(client);
    case 3:
      return Chance(0.3) ? ReleaseRegion(client) : DrainRegion(client);
    case 4:
    case 5:
    case 6:
      return StoreJob(client);
    case 7:
    case 8:
    case 9:
    case 10:
      return LoadJob(client);
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
      return FenceStep(client);
    default:
      return TakeVerdicts(client);
  }
}

std::byte* SimWorld::BytesOf(const ModelRegion& region) const {
  const tier::Tier& tier = manager_->tier(region.at.tier);
  return tier.Address({region.at.segment, region.at.offset, tier.LengthFor(region.at.bytes)});
}

bool SimWorld::Busy(const SimClient& client, core::RegionId region) const {
  return std::any_of(client.jobs.begin(), client.jobs.end(),
                     [&](const ModelJob& job) { return job.region == region; });
}

std::optional<std::size_t> SimWorld::IdleRegion(SimClient& client) {
  if (client.regions.empty()) return std::nullopt;
  const std::size_t at = Pick(client.regions.size());
  if (Busy(client, client.regions[at].id)) return std::nullopt;
  return at;
}

void SimWorld::Lease(SimClient& client) {
  if (client.regions.size() >= 3) return;
  core::CallContext call;
  call.session = client.session;
  call.deadline = clock_.Now() + std::chrono::milliseconds(Pick(40));
  const core::LeaseArgs args{.region = next_id_++,
                             .bytes = 1024 + Pick(2048),
                             .tier = TierName(true),
                             .wait = Chance(0.5)};
  action_ = absl::StrCat("lease ", args.bytes, " by ", client.session);
  const SessionId session = client.session;
  const std::uint64_t begun = Begin(call.deadline);
  const auto answer = [this, session, args, begun](absl::StatusOr<core::Location> at) {
    Answered(begun);
    SimClient* self = ClientOf(session);
    if (!at.ok()) {
      return RequireStatus(
          at.status(),
          {Reason::kFull, Reason::kPinned, Reason::kQuota, Reason::kTooLarge, Reason::kQueueFull,
           Reason::kDraining, Reason::kCancelled, Reason::kUnknownSession},
          "LeaseRegion");
    }
    Require(self != nullptr && !self->closing, "a lease for a session that has ended");
    Require(at->bytes == args.bytes, "a lease of another size");
    self->regions.push_back({args.region, *at});
  };
  (void)manager_->LeaseRegion(call, args, answer);
}

void SimWorld::ReleaseRegion(SimClient& client) {
  if (client.regions.empty()) return;
  const std::size_t at = Pick(client.regions.size());
  action_ = absl::StrCat("release region ", client.regions[at].id);
  const absl::Status released = manager_->ReleaseRegion(client.session, client.regions[at].id);
  if (!released.ok()) {
    return RequireStatus(released, {Reason::kUnknownSession}, "ReleaseRegion");
  }
  client.regions.erase(client.regions.begin() + static_cast<std::ptrdiff_t>(at));
}

void SimWorld::DrainRegion(SimClient& client) {
  if (client.regions.empty()) return;
  const ModelRegion region = client.regions[Pick(client.regions.size())];
  core::CallContext call;
  call.session = client.session;
  call.deadline = clock_.Now() + std::chrono::milliseconds(Pick(40));
  action_ = absl::StrCat("drain region ", region.id);
  const SessionId session = client.session;
  const std::uint64_t begun = Begin(call.deadline);
  (void)manager_->DrainRegion(
      call, {.region = region.id, .cancel = Chance(0.5)},
      [this, session, region, begun](const absl::StatusOr<bool>& drained) {
        Answered(begun);
        if (!drained.ok()) {
          return RequireStatus(drained.status(),
                               {Reason::kDeadline, Reason::kDraining, Reason::kCancelled,
                                Reason::kQueueFull, Reason::kUnknownSession},
                               "DrainRegion");
        }
        const SimClient* self = ClientOf(session);
        const bool ours = self != nullptr &&
                          std::any_of(self->regions.begin(), self->regions.end(),
                                      [&](const ModelRegion& one) { return one.id == region.id; });
        Require(!ours || !fragments_.Touches(BytesOf(region), region.at.bytes),
                "a drained region is touched");
      });
}

// A random cut of `bytes` at `offset`, in order.
std::vector<core::FragmentSpec> SimWorld::Cut(core::RegionId region, Bytes offset, Bytes bytes) {
  std::vector<core::FragmentSpec> cut;
  while (bytes > 0) {
    const Bytes piece = 1 + Pick(cut.size() < 6 ? bytes : 1) + (cut.size() < 6 ? 0 : bytes - 1);
    cut.push_back({region, offset, piece});
    offset += piece;
    bytes -= piece;
  }
  return cut;
}

void SimWorld::StoreJob(SimClient& client) {
  const auto at = IdleRegion(client);
  if (!at.has_value()) return;
  const ModelRegion& region = client.regions[*at];
  ModelJob job;
  job.id = next_id_++;
  job.store = true;
  job.key = absl::StrCat("j", next_key_++);
  job.offset = Pick(region.at.bytes);
  job.bytes = 1 + Pick(region.at.bytes - job.offset);
  job.region = region.id;
  job.pattern = rng_();
  for (Bytes i = 0; i < job.bytes; ++i) {
    BytesOf(region)[job.offset + i] = PatternByte(job.pattern, i);
  }
  core::JobArgs args;
  args.kind = core::JobKind::kStore;
  args.job = job.id;
  args.deadline = clock_.Now() + std::chrono::milliseconds(Pick(200));
  args.tier = TierName(true);
  args.allow_lower = Chance(0.5);
  core::JobKeySpec& key = args.keys.emplace_back();
  key.tensor.key = job.key;
  key.tensor.droppable = true;
  key.fragments = Cut(region.id, job.offset, job.bytes);
  action_ = absl::StrCat("store ", job.bytes, " by ", client.session, " job ", job.id);
  const absl::Status started = manager_->StartJob(client.session, std::move(args));
  if (started.ok()) {
    client.jobs.push_back(job);
  } else {
    RequireStatus(started, {Reason::kQueueFull, Reason::kDraining, Reason::kUnknownSession},
                  "Store");
  }
}

void SimWorld::LoadJob(SimClient& client) {
  const auto at = IdleRegion(client);
  if (!at.has_value()) return;
  const ModelRegion& region = client.regions[*at];
  // Mostly one that is there and fits; now and then any.
  std::optional<std::size_t> picked;
  for (int tries = 0; tries < 12; ++tries) {
    picked = PickTensor(client.tenant);
    if (!picked.has_value() || Chance(0.05)) break;
    const ModelTensor& one = tensors_[*picked];
    if (one.sealed && !one.freed && !one.key.empty() && one.bytes <= region.at.bytes) break;
  }
  if (!picked.has_value()) return;
  const ModelTensor& tensor = tensors_[*picked];
  if (tensor.key.empty() || tensor.bytes > region.at.bytes) return;
  ModelJob job;
  job.id = next_id_++;
  job.key = tensor.key;
  job.bytes = tensor.bytes;
  job.pattern = tensor.pattern;
  job.region = region.id;
  job.offset = Pick(region.at.bytes - tensor.bytes + 1);
  job.tensor = *picked;
  std::fill_n(BytesOf(region), region.at.bytes, std::byte{0x77});
  core::JobArgs args;
  args.job = job.id;
  args.deadline = clock_.Now() + std::chrono::milliseconds(Pick(200));
  core::JobKeySpec& key = args.keys.emplace_back();
  key.tensor.key = job.key;
  key.fragments = Cut(region.id, job.offset, job.bytes);
  action_ = absl::StrCat("load ", job.bytes, " by ", client.session, " job ", job.id);
  const absl::Status started = manager_->StartJob(client.session, std::move(args));
  if (started.ok()) {
    client.jobs.push_back(job);
  } else {
    RequireStatus(started, {Reason::kQueueFull, Reason::kDraining, Reason::kUnknownSession},
                  "Load");
  }
}

void SimWorld::TakeVerdicts(SimClient& client) {
  if (client.closing) return;
  for (std::size_t i = 0; i < client.jobs.size();) {
    const ModelJob job = client.jobs[i];
    auto status = manager_->PollJobs(client.session, absl::MakeConstSpan(&job.id, 1));
    Require(status.ok() && (*status)[0].ok(), "a job is unknown to the core");
    if (!(*status)[0]->ended) {
      ++i;
      continue;
    }
    client.jobs.erase(client.jobs.begin() + static_cast<std::ptrdiff_t>(i));
    Judge(client, job, (*status)[0]->done.at(0));
    Require(manager_->ForgetJobs(client.session, absl::MakeConstSpan(&job.id, 1)).ok(), "Forget");
  }
}

void SimWorld::Judge(SimClient& client, const ModelJob& job, const absl::Status& verdict) {
  ++verdicts_[absl::StrCat(job.store ? "Store " : "Load ",
                           verdict.ok() ? "OK" : std::string(ReasonName(*ReasonOf(verdict))))];
  RequireStatus(verdict,
                {Reason::kDeadline, Reason::kCancelled, Reason::kDraining, Reason::kNotFound,
                 Reason::kNotSealed, Reason::kTooLarge, Reason::kQuota, Reason::kChecksum,
                 // BAD_SIZE: the key was freed meanwhile and names a tensor of another size.
                 Reason::kIo, Reason::kExists, Reason::kBadSize},
                "a key of a job");
  const auto region = std::find_if(client.regions.begin(), client.regions.end(),
                                   [&](const ModelRegion& one) { return one.id == job.region; });
  const bool ours = region != client.regions.end();
  Require(!ours || !fragments_.Touches(BytesOf(*region), region->at.bytes),
          "a job that ended touches its region");
  if (!job.store) {
    const ModelTensor& tensor = tensors_[*job.tensor];
    if (ReasonOf(verdict) == Reason::kNotFound) {
      Require(!Certain(tensor), "a tensor that must be there is NOT_FOUND to Load");
    }
    if (verdict.code() == absl::StatusCode::kDataLoss)
      Require(faulty_, "DATA_LOSS without a fault");
    if (!verdict.ok() || !ours) return;
    for (Bytes i = 0; i < job.bytes; ++i) {
      Require(BytesOf(*region)[job.offset + i] == PatternByte(tensor.pattern, i),
              absl::StrCat("Load of ", job.key, " gave a wrong byte at ", i));
    }
    // Beside the fragments nothing was written.
    for (Bytes i = 0; i < region->at.bytes; ++i) {
      const bool inside = i >= job.offset && i < job.offset + job.bytes;
      Require(inside || BytesOf(*region)[i] == std::byte{0x77}, "Load wrote beside its fragments");
    }
    ++round_trips_;
    return;
  }
  const std::vector<std::string> keys{job.key};
  auto described = manager_->Describe(client.session, {}, keys);
  Require(described.ok(), "Describe of a stored key");
  const auto& info = (*described)[0];
  if (!verdict.ok()) return Require(!info.ok(), "a Store that failed left its key");
  if (!info.ok()) return;  // droppable: dropped meanwhile
  Require(info->sealed && info->bytes == job.bytes && info->owner == 0,
          "a stored tensor is not whole");
  core::TensorSpec spec;
  spec.bytes = job.bytes;
  spec.key = job.key;
  spec.droppable = true;
  ModelTensor& tensor = tensors_[NewTensor(client, spec, info->handle)];
  tensor.pattern = job.pattern;
  tensor.sealed = true;
  tensor.owner = 0;
}

void SimWorld::EndFragments(std::size_t n) {
  for (; n > 0 && fragments_.size() > 0; --n) fragments_.Complete(Pick(fragments_.size()));
}

bool SimWorld::JobsOver() {
  bool over = fragments_.size() == 0;
  for (const auto& client : clients_) {
    TakeVerdicts(*client);
    over = over && (client->closing || client->jobs.empty());
  }
  return over;
}

}  // namespace hmm::testing
