// SPDX-License-Identifier: Apache-2.0
//
// What of a job is accepted, asked for and forgotten. What runs is in job_run.cc.
#include "hmm/job_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "hmm/core.h"

namespace hmm::core {
namespace {

absl::Status BadKey(Reason reason, const std::string& words) {
  return Error(absl::StatusCode::kInvalidArgument, reason, words);
}

absl::Status QueueFull(const std::string& words) {
  return WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull, words),
                   std::chrono::milliseconds(10));
}

}  // namespace

JobTable::JobTable(Core& core, RegionTable& regions, copy::FragmentCopier* copier)
    : core_(core), regions_(regions), copier_(copier) {}

JobTable::~JobTable() = default;

absl::Status JobTable::CheckJob(const Session& session, const JobArgs& args,
                                std::size_t fragments) const {
  const JobLimits& limits = core_.options.jobs;
  if (copier_ == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, Reason::kInternal, "no copier of fragments");
  }
  if (args.job == 0) return BadKey(Reason::kBadArgument, "the job's id is 0; choose one above");
  if (args.keys.empty()) return BadKey(Reason::kBadArgument, "a job without keys");
  if (fragments > limits.fragments_per_job_max) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
                 absl::StrCat(fragments, " fragments in one job, at most ",
                              limits.fragments_per_job_max, "; split it"));
  }
  if (jobs_.contains({session.id, args.job})) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kExists,
                 absl::StrCat("the session has a job ", args.job, " already"));
  }
  const auto first = jobs_.lower_bound({session.id, 0});
  const auto last = jobs_.lower_bound({session.id + 1, 0});
  if (static_cast<std::size_t>(std::distance(first, last)) >= limits.jobs_per_session_max) {
    return QueueFull(absl::StrCat("the session has all of its ", limits.jobs_per_session_max,
                                  " jobs; take the results of those that ended (Poll or Wait), or "
                                  "let go of their Job objects"));
  }
  if (fragments > limits.fragments_max - std::min(limits.fragments_max, fragments_)) {
    return QueueFull(absl::StrCat(fragments_, " fragments are under way, ", fragments,
                                  " more would exceed ", limits.fragments_max));
  }
  std::size_t own = 0;
  for (const JobPtr& job : alive_) own += job->tenant == session.tenant ? job->fragments : 0;
  // A job that the tenant runs alone may be of any size.
  if (own > 0 && own + fragments > TenantShare(limits.fragments_max)) {
    return QueueFull(absl::StrCat(own, " fragments of this tenant are under way, ", fragments,
                                  " more would exceed ", TenantShare(limits.fragments_max)));
  }
  return absl::OkStatus();
}

// One sort of the whole job, then a walk upwards with the last piece of a good key: of two that
// overlap the later key is bad, so that in the end no two good ones do.
void JobTable::JudgeOverlaps(Job& job) {
  struct At {
    const Piece* piece;
    std::size_t key;
  };
  std::vector<At> sorted;
  sorted.reserve(job.fragments);
  for (std::size_t i = 0; i < job.keys.size(); ++i) {
    for (const Piece& piece : job.keys[i].pieces) sorted.push_back({&piece, i});
  }
  std::sort(sorted.begin(), sorted.end(), [](const At& a, const At& b) {
    return std::pair(a.piece->region->id, a.piece->offset) <
           std::pair(b.piece->region->id, b.piece->offset);
  });
  auto bad = [&](const At* at) { return at == nullptr || job.keys[at->key].judged; };
  const At* last = nullptr;
  for (const At& at : sorted) {
    if (bad(&at)) continue;
    if (!bad(last) && last->piece->region == at.piece->region &&
        last->piece->offset + last->piece->bytes > at.piece->offset) {
      const auto [first, second] = std::minmax(at.key, last->key);
      Judge(job.keys[second],
            BadKey(Reason::kBadArgument,
                   absl::StrCat("fragments of keys[", first, "] and keys[", second,
                                "] overlap in region ", at.piece->region->id, " at offset ",
                                at.piece->offset, "; a Load writes each byte once")));
    }
    if (!bad(&at)) last = &at;
  }
}

absl::Status JobTable::FillKey(Job& job, Key& key, JobKeySpec& spec) {
  const JobLimits& limits = core_.options.jobs;
  key.spec = std::move(spec.tensor);
  key.spec.bytes = 0;
  if (key.spec.key.empty()) return BadKey(Reason::kBadArgument, "the key is empty");
  if (key.spec.key.size() > core_.options.key_bytes_max) {
    return BadKey(Reason::kBadArgument,
                  absl::StrCat("the key has ", key.spec.key.size(), " bytes, at most ",
                               core_.options.key_bytes_max));
  }
  if (key.spec.priority > 7) {
    return BadKey(Reason::kBadArgument,
                  absl::StrCat("priority is ", key.spec.priority, "; 0 to 7 are known"));
  }
  if (spec.fragments.empty()) return BadKey(Reason::kBadSize, "a key without fragments");
  if (spec.fragments.size() > limits.fragments_per_key_max) {
    return BadKey(Reason::kBatchTooLarge,
                  absl::StrCat(spec.fragments.size(), " fragments of one key, at most ",
                               limits.fragments_per_key_max));
  }
  std::vector<Piece> pieces;
  std::vector<Region*> regions;
  for (std::size_t i = 0; i < spec.fragments.size(); ++i) {
    const FragmentSpec& at = spec.fragments[i];
    Region* region = pieces.empty() ? nullptr : pieces.back().region;
    if (region == nullptr || region->id != at.region) {
      region = regions_.Find(job.session, at.region);
    }
    if (region == nullptr) {
      return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                   absl::StrCat("fragments[", i, "]: the session has no region ", at.region));
    }
    if (region->drains > 0) {
      return WithRetry(
          Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                absl::StrCat("fragments[", i, "]: region ", at.region, " is draining")),
          std::chrono::milliseconds(10));
    }
    if (at.bytes == 0 || !region->Holds(at.offset, at.bytes)) {
      const std::string what =
          absl::StrCat("fragments[", i, "]: ", at.bytes, " bytes at offset ", at.offset);
      return at.bytes == 0 ? BadKey(Reason::kBadSize, absl::StrCat(what, " are nothing to copy"))
                           : BadKey(Reason::kBadArgument,
                                    absl::StrCat(what, " lie outside of region ", at.region, " of ",
                                                 region->bytes, " bytes"));
    }
    // Store may name the same bytes many times.
    if (key.spec.bytes > ~Bytes{0} - at.bytes) {
      return BadKey(Reason::kBadSize, "the lengths of the fragments add up to no size");
    }
    key.spec.bytes += at.bytes;
    pieces.push_back({region, at.offset, at.bytes});
    if (std::find(regions.begin(), regions.end(), region) == regions.end()) {
      regions.push_back(region);
    }
  }
  key.pieces = std::move(pieces);
  key.regions = std::move(regions);
  return absl::OkStatus();
}

absl::Status JobTable::Start(Session& session, JobArgs args, TierId tier) {
  std::size_t fragments = 0;
  for (const JobKeySpec& key : args.keys) fragments += key.fragments.size();
  HMM_RETURN_IF_ERROR(CheckJob(session, args, fragments));
  auto job = std::make_shared<Job>();
  job->id = args.job;
  job->session = session.id;
  job->tenant = session.tenant;
  job->kind = args.kind;
  job->tier = tier;
  job->allow_lower = args.allow_lower;
  job->deadline = args.deadline;
  job->keys.resize(args.keys.size());
  job->fragments = fragments;
  fragments_ += fragments;
  jobs_.emplace(Id{job->session, job->id}, job);
  alive_.push_back(job);
  // Before anything runs: a key that is bad never begins.
  for (std::size_t i = 0; i < job->keys.size(); ++i) {
    const absl::Status filled = FillKey(*job, job->keys[i], args.keys[i]);
    if (!filled.ok()) Judge(job->keys[i], filled);
  }
  if (job->kind == JobKind::kLoad) JudgeOverlaps(*job);
  for (Key& key : job->keys) {
    if (key.judged) key.regions.clear();  // never used
    for (Region* region : key.regions) regions_.Use(*region);
  }
  Pump(job);
  core_.Kick();
  return absl::OkStatus();
}

JobStatus JobTable::StatusOf(const Job& job) {
  JobStatus status;
  status.job = job.id;
  status.ended = job.over();
  status.keys = job.keys.size();
  status.keys_ended = job.ended;
  if (!status.ended) return status;
  status.done.reserve(job.keys.size());
  for (const Key& key : job.keys) status.done.push_back(key.verdict);
  return status;
}

absl::StatusOr<JobStatus> JobTable::Status(SessionId session, JobId job) const {
  const auto it = jobs_.find({session, job});
  if (it != jobs_.end()) return StatusOf(*it->second);
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat("the session has no job ", job, ": never started, or forgotten"));
}

std::vector<JobStatus> JobTable::All(SessionId session) const {
  std::vector<JobStatus> all;
  const auto last = jobs_.lower_bound({session + 1, 0});
  for (auto it = jobs_.lower_bound({session, 0}); it != last; ++it) {
    all.push_back(StatusOf(*it->second));
  }
  return all;
}

bool JobTable::Ended(SessionId session, JobId job) const {
  const auto it = jobs_.find({session, job});
  return it == jobs_.end() || it->second->over();
}

void JobTable::Forget(SessionId session, JobId job) {
  const auto it = jobs_.find({session, job});
  if (it == jobs_.end()) return;
  it->second->forgotten = true;
  if (it->second->over()) jobs_.erase(it);
}

void JobTable::ForgetSession(SessionId session) {
  jobs_.erase(jobs_.lower_bound({session, 0}), jobs_.lower_bound({session + 1, 0}));
}

absl::Status JobTable::Validate() const {
  auto broken = [](auto... parts) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, absl::StrCat(parts...));
  };
  std::size_t fragments = 0;
  for (const JobPtr& job : alive_) {
    if (job->over()) return broken("job ", job->id, " is over and counted as alive");
    fragments += job->fragments;
    std::size_t ended = 0, under_way = 0;
    for (const Key& key : job->keys) {
      ended += key.place == Key::Place::kEnded;
      under_way += key.place == Key::Place::kWaiting || key.place == Key::Place::kCopying;
      if (key.tensor != kNoIndex && !core_.store[key.tensor].hidden) {
        return broken("job ", job->id, ": the tensor of a key is not hidden");
      }
      if (key.place == Key::Place::kEnded && !key.regions.empty()) {
        return broken("job ", job->id, ": a key that ended uses regions");
      }
    }
    if (ended != job->ended || under_way != job->under_way) {
      return broken("job ", job->id, ": keys are not those counted");
    }
  }
  if (fragments != fragments_) return broken("fragments ", fragments_, " counted ", fragments);
  return absl::OkStatus();
}

}  // namespace hmm::core
