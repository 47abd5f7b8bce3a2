// SPDX-License-Identifier: Apache-2.0
//
// How a job's keys run. Calls that wait (for room, for a tensor to come up) are ops of the core
// like any other; their callbacks come at once or later, and a key that was judged meanwhile only
// gives back what it got.
#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "hmm/bring_op.h"
#include "hmm/core.h"
#include "hmm/job_table.h"
#include "hmm/room_op.h"

namespace hmm::core {
namespace {

absl::Status TooLate() {
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadline,
               "the job's deadline passed before the key was done");
}

absl::Status NoSuchKey() {
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               "no tensor of this key: never stored, freed, or evicted");
}

}  // namespace

// --- keys that begin ----------------------------------------------------------------------------

void JobTable::Pump(const JobPtr& job) {
  while (job->under_way < core_.options.jobs.keys_under_way_max && job->next < job->keys.size()) {
    const std::size_t i = job->next++;
    if (!Begin(job, i)) {
      job->next = i;
      return;
    }
  }
}

bool JobTable::Begin(const JobPtr& job, std::size_t i) {
  Key& key = job->keys[i];
  if (key.place != Key::Place::kOpen) return true;
  if (!key.judged && core_.clock.Now() >= job->deadline) Judge(key, TooLate());
  if (!key.judged) {
    // It begins at a later look, when fewer calls wait.
    if (!core_.CheckWaiting(job->session).ok()) return false;
    const absl::Status begun = job->kind == JobKind::kLoad ? BeginLoad(job, i) : BeginStore(job, i);
    if (begun.ok()) return true;
    Judge(key, begun);
  }
  EndKey(job, i);
  return true;
}

absl::Status JobTable::BeginLoad(const JobPtr& job, std::size_t i) {
  Key& key = job->keys[i];
  const TensorIndex index = core_.store.FindKey(job->tenant, key.spec.key);
  if (index == kNoIndex) return NoSuchKey();
  const Tensor& tensor = core_.store[index];
  if (tensor.lost) {
    return Error(absl::StatusCode::kDataLoss, Reason::kChecksum,
                 "the bytes on flash are not what was written, or cannot be read; recompute");
  }
  if (!tensor.sealed) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotSealed,
                 "the tensor is still being written");
  }
  if (tensor.bytes != key.spec.bytes) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("the fragments add up to ", key.spec.bytes, " bytes, the tensor has ",
                              tensor.bytes));
  }
  key.handle = tensor.handle();
  ++core_.hits[core_.store.home_tier(index)];
  if (tensor.state == TensorState::kResident) {
    CopyKey(job, i);
    return absl::OkStatus();
  }
  CallContext call;
  call.session = job->session;
  call.deadline = job->deadline;
  BringArgs args;
  args.handles = {key.handle};
  args.all = true;
  args.pin = false;
  key.place = Key::Place::kWaiting;
  ++job->under_way;
  const OpId op = core_.Launch(std::make_unique<BringOp>(
      core_, call, std::move(args), [this, job, i](absl::StatusOr<BringResult> brought) {
        OnBrought(job, i, brought.status());
      }));
  if (op != 0) key.op = op;
  return absl::OkStatus();
}

absl::Status JobTable::BeginStore(const JobPtr& job, std::size_t i) {
  Key& key = job->keys[i];
  if (core_.store.FindKey(job->tenant, key.spec.key) != kNoIndex) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kExists,
                 "the key is taken by another tensor of this tenant");
  }
  CallContext call;
  call.session = job->session;
  call.deadline = job->deadline;
  const RoomArgs args{.tenant = job->tenant,
                      .tier = job->tier,
                      .bytes = key.spec.bytes,
                      .allow_lower = job->allow_lower,
                      .wait = true};
  key.place = Key::Place::kWaiting;
  ++job->under_way;
  const OpId op = core_.Launch(std::make_unique<RoomOp>(
      core_, call, args,
      [this, job, i](absl::StatusOr<Room> room) { OnRoom(job, i, std::move(room)); }));
  if (op != 0) key.op = op;
  return absl::OkStatus();
}

// --- what they waited for is there --------------------------------------------------------------

bool JobTable::StopWaiting(const JobPtr& job, std::size_t i, const absl::Status& got) {
  Key& key = job->keys[i];
  HMM_CHECK(key.place == Key::Place::kWaiting);
  key.op = 0;
  --job->under_way;
  key.place = Key::Place::kOpen;
  if (key.judged) {
    EndKey(job, i);
    return false;
  }
  if (got.ok()) return true;
  const bool late = core_.clock.Now() >= job->deadline;
  Judge(key, late ? TooLate() : got);
  EndKey(job, i);
  core_.Kick();
  return false;
}

void JobTable::OnBrought(const JobPtr& job, std::size_t i, const absl::Status& brought) {
  if (!StopWaiting(job, i, brought)) return;
  if (core_.store.Find(job->tenant, job->keys[i].handle) != kNoIndex) return CopyKey(job, i);
  Judge(job->keys[i], NoSuchKey());
  EndKey(job, i);
}

void JobTable::OnRoom(const JobPtr& job, std::size_t i, absl::StatusOr<Room> room) {
  if (!StopWaiting(job, i, room.status())) {
    if (room.ok()) core_.store.ReturnRoom(*room);
    return;
  }
  Key& key = job->keys[i];
  auto index = core_.store.Create(job->tenant, job->session, key.spec, *room);
  if (!index.ok()) {
    core_.store.ReturnRoom(*room);
    Judge(key, index.status());
    return EndKey(job, i);
  }
  Tensor& tensor = core_.store[*index];
  // Until it is sealed only this job knows it, and it does not move.
  tensor.hidden = true;
  ++tensor.holds;
  tensor.accesses_seen = core_.sessions.AccessSum(tensor);
  core_.sessions.Find(job->session)->owned.insert(*index);
  key.tensor = *index;
  CopyKey(job, i);
}

// --- copies -------------------------------------------------------------------------------------

void JobTable::CopyKey(const JobPtr& job, std::size_t i) {
  Key& key = job->keys[i];
  const bool store = job->kind == JobKind::kStore;
  const TensorIndex index = store ? key.tensor : core_.store.Find(job->tenant, key.handle);
  key.copy = core_.store[index].home;
  Copy& copy = core_.store.copy(key.copy);
  HMM_CHECK(core_.Mappable(copy.tier));
  ++copy.copiers;
  if (!store) ++core_.store[index].holds;
  std::byte* at = core_.tiers[copy.tier]->Address(copy.extent);
  copy::FragmentJob list;
  list.pieces.reserve(key.pieces.size());
  const auto cross = [&](TierId id, bool into, Bytes bytes) {
    const tier::Tier* const tier = core_.tiers[id].get();
    if (tier->options().link_bandwidth == 0) return;
    for (copy::Crossing& known : list.crossings) {
      if (known.tier == tier && known.into == into) return void(known.bytes += bytes);
    }
    list.crossings.push_back({tier, into, bytes});
  };
  for (const Piece& piece : key.pieces) {
    const Region& region = *piece.region;
    // Within one tier nothing goes over its link; the memory that a client attached has none.
    if (!region.leased || region.room.tier != copy.tier) {
      cross(copy.tier, store, piece.bytes);
      if (region.leased) cross(region.room.tier, !store, piece.bytes);
    }
    std::byte* fragment = piece.region->data + piece.offset;
    list.pieces.push_back(store ? copy::CopyPiece{at, fragment, piece.bytes}
                                : copy::CopyPiece{fragment, at, piece.bytes});
    at += piece.bytes;
  }
  key.stop = std::make_shared<std::atomic<bool>>(false);
  list.stop = key.stop;
  key.place = Key::Place::kCopying;
  ++job->under_way;
  copier_->Submit(std::move(list),
                  [this, job, i](copy::FragmentResult result) { OnCopied(job, i, result); });
}

void JobTable::OnCopied(const JobPtr& job, std::size_t i, const copy::FragmentResult& result) {
  Key& key = job->keys[i];
  --job->under_way;
  core_.store.CopierDone(std::exchange(key.copy, kNoIndex));
  if (job->kind == JobKind::kLoad) {
    const TensorIndex index = core_.store.Find(job->tenant, key.handle);
    if (index != kNoIndex) {
      --core_.store[index].holds;
      core_.store.Touch(index);
    }
  }
  if (!key.judged) {
    HMM_CHECK(result.complete);  // nobody else stops it
    if (job->kind == JobKind::kStore) SealKey(key);
    Judge(key, absl::OkStatus());
  }
  EndKey(job, i);
  Pump(job);
  core_.Kick();
}

void JobTable::SealKey(Key& key) {
  const TensorIndex index = std::exchange(key.tensor, kNoIndex);
  Tensor& tensor = core_.store[index];
  tensor.hidden = false;
  --tensor.holds;
  core_.store.Seal(index);
  // From here on it belongs to the tenant and outlives the session.
  if (Session* owner = core_.sessions.Find(tensor.owner)) owner->owned.erase(index);
  tensor.owner = 0;
  core_.store.Touch(index);
  ++core_.counters.allocations;
}

void JobTable::DropTensor(Key& key) {
  if (key.tensor == kNoIndex) return;
  const TensorIndex index = std::exchange(key.tensor, kNoIndex);
  core_.store[index].hidden = false;
  --core_.store[index].holds;
  core_.relocator.Doom(index);  // its extent stays with the copier until that is done
}

// --- ends ---------------------------------------------------------------------------------------

void JobTable::Judge(Key& key, const absl::Status& verdict) {
  if (key.judged) return;
  key.judged = true;
  key.verdict = verdict;
}

void JobTable::EndKey(JobPtr job, std::size_t i) {
  Key& key = job->keys[i];
  HMM_CHECK(key.judged && key.tensor == kNoIndex && key.copy == kNoIndex);
  key.place = Key::Place::kEnded;
  key.stop = nullptr;
  for (Region* region : std::exchange(key.regions, {})) regions_.Unuse(*region);
  std::vector<Piece>().swap(key.pieces);
  if (++job->ended < job->keys.size()) return;
  fragments_ -= job->fragments;
  std::erase(alive_, job);
  if (job->forgotten) jobs_.erase({job->session, job->id});
  if (ended_) ended_(job->session);
  core_.Kick();
}

void JobTable::CancelKey(const JobPtr& job, std::size_t i, const absl::Status& why) {
  Key& key = job->keys[i];
  if (key.place == Key::Place::kEnded || key.judged) return;
  Judge(key, why);
  switch (key.place) {
    case Key::Place::kOpen:
      return EndKey(job, i);
    case Key::Place::kWaiting:
      return core_.Cancel(key.op, why);  // ends the key by its callback
    case Key::Place::kCopying:
      key.stop->store(true, std::memory_order_relaxed);
      return DropTensor(key);
    case Key::Place::kEnded:
      return;
  }
}

void JobTable::CancelJob(const JobPtr& job, const absl::Status& why) {
  for (std::size_t i = 0; i < job->keys.size(); ++i) CancelKey(job, i, why);
}

absl::Status JobTable::Cancel(SessionId session, JobId id, const absl::Status& why) {
  const auto it = jobs_.find({session, id});
  if (it == jobs_.end()) return Status(session, id).status();
  const JobPtr job = it->second;
  CancelJob(job, why);
  return absl::OkStatus();
}

void JobTable::CancelSession(SessionId session, const absl::Status& why) {
  for (const JobPtr& job : std::vector<JobPtr>(alive_)) {
    if (session == 0 || job->session == session) CancelJob(job, why);
  }
}

void JobTable::CancelRegion(const Region& region, const absl::Status& why) {
  for (const JobPtr& job : std::vector<JobPtr>(alive_)) {
    if (job->session != region.session) continue;
    for (std::size_t i = 0; i < job->keys.size(); ++i) {
      const std::vector<Region*>& used = job->keys[i].regions;
      if (std::find(used.begin(), used.end(), &region) != used.end()) CancelKey(job, i, why);
    }
  }
}

void JobTable::Look() {
  const TimePoint now = core_.clock.Now();
  for (const JobPtr& job : std::vector<JobPtr>(alive_)) {
    if (now >= job->deadline) {
      CancelJob(job, TooLate());
    } else {
      Pump(job);
    }
  }
}

}  // namespace hmm::core
