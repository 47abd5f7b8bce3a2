// SPDX-License-Identifier: Apache-2.0
#include "hmm/region.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/lib/attachment.h"
#include "client/lib/client_impl.h"
#include "client/lib/status_convert.h"

namespace hmm {
namespace {

using absl::StatusCode;
using client_internal::Attachment;
using client_internal::ForkedError;
using client_internal::FromElement;

constexpr std::chrono::milliseconds kReleaseTimeout{1000};

absl::Status ReleaseOn(Attachment& attachment, std::uint64_t id, TimePoint deadline) {
  v1::ReleaseRegionRequest request;
  v1::ReleaseRegionResponse response;
  request.set_region(id);
  return attachment.rpc().Call(request, response, deadline);
}

// Gives back what a call may have got whose answer was lost. A daemon that does not hear of it now
// is told before the next region is asked for; else it goes with the session.
void GiveBack(Attachment& attachment, std::uint64_t id, TimePoint deadline) {
  if (attachment.lost()) return;
  const absl::Status released = ReleaseOn(attachment, id, deadline);
  if (client_internal::IsTransportError(released)) attachment.OweRegion(id);
}

void GiveBackOwed(Attachment& attachment, TimePoint deadline) {
  for (const std::uint64_t id : attachment.TakeOwedRegions()) GiveBack(attachment, id, deadline);
}

}  // namespace

// --- Region -------------------------------------------------------------------------------------

Region::Region(Region&& other) noexcept
    : attachment_(std::move(other.attachment_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      id_(std::exchange(other.id_, 0)),
      segment_(other.segment_) {}

Region& Region::operator=(Region&& other) noexcept {
  if (this != &other) {
    (void)Release();
    attachment_ = std::move(other.attachment_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    id_ = std::exchange(other.id_, 0);
    segment_ = other.segment_;
  }
  return *this;
}

Region::~Region() { (void)Release(); }

std::string_view Region::tier() const {
  return data_ == nullptr ? std::string_view() : attachment_->TierName(TierOfSegment(segment_));
}

bool Region::lost() const { return attachment_ != nullptr && attachment_->lost(); }

absl::Status Region::Release() {
  if (id_ == 0) return absl::OkStatus();
  const std::uint64_t id = std::exchange(id_, 0);
  const bool leased = std::exchange(data_, nullptr) != nullptr;
  size_ = 0;
  const std::shared_ptr<Attachment> attachment = std::move(attachment_);
  if (attachment->forked()) return ForkedError();
  const absl::Status released =
      attachment->lost()
          ? absl::OkStatus()
          : ReleaseOn(*attachment, id, std::chrono::steady_clock::now() + kReleaseTimeout);
  if (leased) attachment->LetGo();
  if (released.ok() || attachment->ConfirmLost()) return absl::OkStatus();
  return client_internal::WithTransportReason(released);
}

absl::StatusOr<Region> Regions::Lease(std::size_t bytes, const PlaceOptions& where) {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  impl.Before();
  const TimePoint deadline = impl.DeadlineOf(where.timeout);
  HMM_ASSIGN_OR_RETURN(const Client::Impl::AttachmentPtr attachment, impl.Current(deadline));
  GiveBackOwed(*attachment, deadline);
  v1::LeaseRegionRequest request;
  request.set_region(attachment->NewId());
  request.set_bytes(bytes);
  request.set_tier(where.tier);
  request.set_wait(where.wait);
  v1::LeaseRegionResponse response;
  absl::Status status = impl.CallOn(*attachment, request, response, deadline, /*repeatable=*/false);
  Region region;
  if (status.ok()) {
    const v1::Location& location = response.location();
    absl::StatusOr<std::byte*> data =
        attachment->Hold({location.segment(), location.offset(), location.bytes()}, deadline);
    status = data.status();
    if (data.ok()) {
      region.attachment_ = attachment;
      region.data_ = *data;
      region.size_ = bytes;
      region.id_ = request.region();
      region.segment_ = location.segment();
      return region;
    }
  }
  // Its answer may be lost, or of no use to us.
  GiveBack(*attachment, request.region(), impl.AnswerBy(deadline));
  return status;
}

absl::StatusOr<Region> Regions::Attach(int memfd, std::size_t bytes, Timeout timeout) {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  impl.Before();
  const TimePoint deadline = impl.DeadlineOf(timeout);
  HMM_ASSIGN_OR_RETURN(const Client::Impl::AttachmentPtr attachment, impl.Current(deadline));
  GiveBackOwed(*attachment, deadline);
  const std::uint64_t id = attachment->NewId();
  const absl::Status status = attachment->AttachRegion(id, memfd, bytes, deadline);
  if (!status.ok()) {
    if (absl::IsDeadlineExceeded(status)) GiveBack(*attachment, id, impl.AnswerBy(deadline));
    return status;
  }
  Region region;
  region.attachment_ = attachment;
  region.size_ = bytes;
  region.id_ = id;
  return region;
}

absl::Status Regions::Drain(const Region& region, const DrainOptions& options) {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  impl.Before();
  if (!region.valid()) {
    return Error(StatusCode::kNotFound, Reason::kNotFound, "an empty Region names nothing");
  }
  v1::DrainRegionRequest request;
  request.set_region(region.id_);
  request.set_cancel(options.cancel);
  v1::DrainRegionResponse response;
  return impl.CallOn(*region.attachment_, request, response, impl.DeadlineOf(options.timeout),
                     /*repeatable=*/true);
}

// --- Job ----------------------------------------------------------------------------------------

Job::Job(Job&& other) noexcept
    : attachment_(std::move(other.attachment_)),
      id_(std::exchange(other.id_, 0)),
      result_(std::move(other.result_)),
      keys_(other.keys_) {}

Job& Job::operator=(Job&& other) noexcept {
  if (this != &other) {
    Job old(std::move(*this));
    attachment_ = std::move(other.attachment_);
    id_ = std::exchange(other.id_, 0);
    result_ = std::move(other.result_);
    keys_ = other.keys_;
  }
  return *this;
}

Job::~Job() {
  // With its result its place was given back.
  if (id_ == 0 || result_ != nullptr || attachment_->forked()) return;
  attachment_->Forget(id_);
}

namespace {

template <typename Item, typename Key>
void FillFragments(const Item& item, Key& key) {
  key.set_key(item.key);
  key.mutable_fragments()->Reserve(static_cast<int>(item.fragments.size()));
  for (const Fragment& fragment : item.fragments) {
    v1::Fragment& to = *key.add_fragments();
    to.set_region(fragment.region->id());
    to.set_offset(fragment.offset);
    to.set_bytes(fragment.bytes);
  }
}

void FillKey(const StoreItem& item, v1::StoreRequest& request) {
  v1::StoreRequest::Key& key = *request.add_keys();
  FillFragments(item, key);
  key.set_kind(static_cast<v1::TensorKind>(item.kind));
  key.set_priority(item.priority);
  key.set_recompute_us(
      static_cast<std::uint64_t>(std::max<std::int64_t>(item.recompute_cost.count(), 0)));
  key.set_droppable(item.droppable);
}

void FillKey(const LoadItem& item, v1::LoadRequest& request) {
  FillFragments(item, *request.add_keys());
}

}  // namespace

template <typename Items, typename Request>
absl::StatusOr<Job> Regions::Start(const Items& items, Request& request,
                                   const JobOptions& options) {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  impl.Before();
  std::shared_ptr<Attachment> attachment;
  for (const auto& item : items) {
    for (const Fragment& fragment : item.fragments) {
      if (fragment.region == nullptr || !fragment.region->valid()) {
        return Error(StatusCode::kNotFound, Reason::kNotFound,
                     absl::StrCat("a fragment of key '", item.key, "' names no region"));
      }
      if (attachment == nullptr) attachment = fragment.region->attachment_;
      if (attachment != fragment.region->attachment_) {
        return Error(StatusCode::kInvalidArgument, Reason::kBadArgument,
                     "the regions of one job are of one Client, since the last restart");
      }
    }
  }
  const TimePoint deadline = impl.DeadlineOf(options.timeout);
  if (attachment == nullptr) {
    HMM_ASSIGN_OR_RETURN(attachment, impl.Current(deadline));
  }
  for (const auto& item : items) FillKey(item, request);
  const std::uint64_t id = attachment->NewId();
  request.set_job(id);
  // The job's deadline is its own; the call that starts it never waits.
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
      deadline - std::chrono::steady_clock::now());
  request.set_timeout_us(static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1)));
  const std::vector<std::uint64_t> forget = attachment->TakeForgotten();
  for (const std::uint64_t old : forget) request.add_forget(old);
  Job job;
  job.attachment_ = attachment;
  job.id_ = id;
  job.keys_ = items.size();
  std::conditional_t<std::is_same_v<Request, v1::StoreRequest>, v1::StoreResponse, v1::LoadResponse>
      response;
  absl::Status started = impl.CallOn(*attachment, request, response, impl.AnswerBy(deadline),
                                     /*repeatable=*/true);
  // A first try was heard after all: the id is of this Client alone.
  if (absl::IsAlreadyExists(started)) started = absl::OkStatus();
  if (started.ok()) return job;
  // Where the answer was lost the job may run: `job` goes and is forgotten with these.
  for (const std::uint64_t old : forget) attachment->Forget(old);
  return started;
}

absl::StatusOr<Job> Regions::Store(absl::Span<const StoreItem> items, const JobOptions& options) {
  v1::StoreRequest request;
  request.set_tier(options.tier);
  request.set_allow_lower(options.allow_lower);
  return Start(items, request, options);
}

absl::StatusOr<Job> Regions::Load(absl::Span<const LoadItem> items, const JobOptions& options) {
  v1::LoadRequest request;
  return Start(items, request, options);
}

absl::StatusOr<JobResult> Regions::Ask(Job& job, bool wait, TimePoint deadline) {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  impl.Before();
  if (!job.valid()) {
    return Error(StatusCode::kNotFound, Reason::kNotFound, "an empty Job names nothing");
  }
  if (job.result_ != nullptr) return *job.result_;
  v1::PollJobsRequest request;
  request.add_jobs(job.id_);
  request.set_wait(wait);
  for (const std::uint64_t old : job.attachment_->TakeForgotten()) request.add_forget(old);
  v1::PollJobsResponse response;
  const absl::Status asked =
      impl.CallOn(*job.attachment_, request, response, deadline, /*repeatable=*/true);
  if (!asked.ok()) {
    for (const std::uint64_t old : request.forget()) job.attachment_->Forget(old);
    return asked;
  }
  if (response.jobs_size() != 1) return CountError("PollJobs");
  const v1::JobState& state = response.jobs(0);
  HMM_RETURN_IF_ERROR(FromElement(state.error()));
  JobResult result{state.ended(), state.keys(), state.keys_ended(), {}};
  if (!result.ended) return result;
  if (result.keys != job.keys_) return CountError("PollJobs");
  result.done.resize(result.keys);
  for (const v1::JobState::Verdict& verdict : state.failed()) {
    if (verdict.key() >= result.keys) return CountError("PollJobs");
    result.done[verdict.key()] = FromElement(verdict.error());
  }
  job.attachment_->Forget(job.id_);
  job.result_ = std::make_unique<JobResult>(result);
  return result;
}

absl::StatusOr<JobResult> Regions::Poll(Job& job) {
  return Ask(job, false, client_->impl_->DeadlineOf(Timeout{0}));
}

absl::StatusOr<JobResult> Regions::Wait(Job& job, Timeout timeout) {
  const Client::Impl& impl = *client_->impl_;
  const TimePoint deadline = impl.DeadlineOf(timeout);
  absl::StatusOr<JobResult> result = Ask(job, true, deadline);
  // Our own clock was faster than the daemon's answer.
  if (absl::IsDeadlineExceeded(result.status())) return Ask(job, false, impl.AnswerBy(deadline));
  return result;
}

absl::Status Regions::Cancel(const Job& job) {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  impl.Before();
  if (!job.valid()) {
    return Error(StatusCode::kNotFound, Reason::kNotFound, "an empty Job names nothing");
  }
  if (job.result_ != nullptr) return absl::OkStatus();
  v1::CancelJobsRequest request;
  request.add_jobs(job.id_);
  v1::CancelJobsResponse response;
  HMM_RETURN_IF_ERROR(impl.CallOn(*job.attachment_, request, response, impl.DeadlineOf(Timeout{0}),
                                  /*repeatable=*/true));
  if (response.results_size() != 1) return CountError("CancelJobs");
  return FromElement(response.results(0).error());
}

absl::StatusOr<int> Regions::EventFd() {
  Client::Impl& impl = *client_->impl_;
  if (impl.forked()) return ForkedError();
  const TimePoint deadline = impl.DeadlineOf(Timeout{0});
  HMM_ASSIGN_OR_RETURN(const Client::Impl::AttachmentPtr attachment, impl.Current(deadline));
  return attachment->JobEvents(deadline);
}

}  // namespace hmm
