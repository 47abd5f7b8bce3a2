// SPDX-License-Identifier: Apache-2.0
//
// Client: connecting, and the verbs that pin (Allocate, Acquire, Lookup). The others are in
// verbs.cc. A verb of one tensor is its batch of one.
#include "hmm/client.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
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
using client_internal::Magazines;

static_assert(static_cast<int>(Kind::kWeight) == static_cast<int>(TensorKind::kWeight));
static_assert(static_cast<int>(Kind::kKvCache) == static_cast<int>(TensorKind::kKvCache));
static_assert(static_cast<int>(Kind::kActivation) == static_cast<int>(TensorKind::kActivation));
static_assert(static_cast<int>(Kind::kOptimizerState) ==
              static_cast<int>(TensorKind::kOptimizerState));
static_assert(static_cast<int>(Kind::kOther) == static_cast<int>(TensorKind::kOther));

Attachment::Place PlaceOf(const v1::Location& location) {
  return {location.segment(), location.offset(), location.bytes()};
}

void Fill(const AllocateOptions& what, v1::TensorSpec& out) {
  out.set_bytes(what.bytes);
  out.set_kind(static_cast<v1::TensorKind>(what.kind));
  out.set_key(what.key);
  out.set_priority(what.priority);
  out.set_recompute_us(
      static_cast<std::uint64_t>(std::max<std::int64_t>(what.recompute_cost.count(), 0)));
  out.set_droppable(what.droppable);
}

absl::StatusOr<Held> HeldOf(const std::shared_ptr<Attachment>& attachment, std::uint64_t handle,
                            const v1::Location& location, TimePoint deadline) {
  absl::StatusOr<Pin> pin = attachment->Adopt(handle, PlaceOf(location), deadline);
  if (!pin.ok()) return pin.status();
  Held held;
  held.tensor = Attachment::MakeTensor(attachment, handle, location.bytes());
  held.pin = *std::move(pin);
  return held;
}

}  // namespace

std::string ReasonOfStatus(const absl::Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  return reason.has_value() ? std::string(ReasonName(*reason)) : std::string();
}

std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status) {
  return RetryAfter(status);
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ConnectOptions options) {
  if (client_internal::DescendsFromClient()) return ForkedError();
  HMM_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Impl::Connect(std::move(options)));
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() {
  // In a fork child even a mutex may be in a state that nobody will ever undo: leave all as it is.
  if (impl_->forked()) (void)impl_.release();
}

std::uint64_t Client::epoch() const { return impl_->forked() ? 0 : impl_->Peek()->epoch(); }
std::uint32_t Client::session() const { return impl_->forked() ? 0 : impl_->Peek()->session(); }

absl::StatusOr<Timeline> Client::CreateTimeline() {
  if (impl_->forked()) return ForkedError();
  HMM_ASSIGN_OR_RETURN(const Impl::AttachmentPtr attachment,
                       impl_->Current(impl_->DeadlineOf(Timeout{0})));
  Timeline timeline;
  HMM_ASSIGN_OR_RETURN(timeline.index_, attachment->NewTimeline());
  timeline.attachment_ = attachment;
  return timeline;
}

// --- Allocate -----------------------------------------------------------------------------------

absl::StatusOr<Held> Client::Allocate(const AllocateOptions& what, const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  std::size_t ahead = 0;
  if (what.key.empty() && where.tier.empty() && impl_->magazines().on()) {
    if (std::optional<Held> held = impl_->TakeFromMagazine(what)) return *std::move(held);
    ahead = impl_->magazines().Want(Magazines::ShapeOf(what));
  }
  HMM_ASSIGN_OR_RETURN(auto batch, impl_->Allocate({&what, 1}, where, ahead));
  return std::move(batch.front());
}

absl::StatusOr<std::vector<absl::StatusOr<Held>>> Client::AllocateBatch(
    absl::Span<const AllocateOptions> what, const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  if (what.empty()) return std::vector<absl::StatusOr<Held>>();
  return impl_->Allocate(what, where, 0);
}

absl::StatusOr<std::vector<absl::StatusOr<Held>>> Client::Impl::Allocate(
    absl::Span<const AllocateOptions> what, const PlaceOptions& where, std::size_t ahead) {
  Before();
  std::vector<absl::StatusOr<Held>> out;
  v1::AllocateRequest request;
  for (const AllocateOptions& one : what) Fill(one, *request.add_tensors());
  request.set_all(where.all);
  request.set_wait(where.wait);
  request.set_tier(where.tier);
  request.set_allow_lower(where.allow_lower);
  request.set_ahead(static_cast<std::uint32_t>(ahead));
  const std::vector<std::uint64_t> untold = magazines_.Untold(Peek());
  for (const std::uint64_t handle : untold) request.add_taken(handle);
  const TimePoint deadline = DeadlineOf(where.timeout);
  google::protobuf::Arena arena;  // one piece for all the parts of a batch
  auto& response = *google::protobuf::Arena::CreateMessage<v1::AllocateResponse>(&arena);
  AttachmentPtr attachment;
  const absl::Status status = CallAny(request, response, deadline, attachment);
  if (ahead > 0) {
    FillMagazine(Magazines::ShapeOf(what.front()), status.ok() ? attachment : nullptr, response);
  }
  HMM_RETURN_IF_ERROR(status);
  magazines_.Told(untold);
  if (response.results_size() != request.tensors_size()) return CountError("Allocate");

  out.reserve(what.size());
  std::vector<Tensor> unreachable;  // allocated, but of no use to us
  absl::Status first;
  for (const v1::AllocateResponse::Result& result : response.results()) {
    if (result.error().code() != 0) {
      out.emplace_back(FromElement(result.error()));
      continue;
    }
    out.push_back(HeldOf(attachment, result.handle(), result.location(), deadline));
    if (out.back().ok()) continue;
    first.Update(out.back().status());
    unreachable.push_back(
        Attachment::MakeTensor(attachment, result.handle(), result.location().bytes()));
  }
  if (unreachable.empty()) return out;
  if (where.all) {
    for (const absl::StatusOr<Held>& held : out) {
      if (held.ok()) unreachable.push_back(held->tensor);
    }
    out.clear();
  }
  // Best effort: should it fail too, they die with the session.
  std::vector<const Tensor*> useless;
  for (const Tensor& tensor : unreachable) useless.push_back(&tensor);
  Free(useless, deadline).IgnoreError();
  if (where.all) return first;
  return out;
}

void Client::Impl::Refill(const AttachmentPtr& attachment, const Magazines::Wanted& wanted,
                          TimePoint deadline) {
  v1::AllocateRequest request;
  const Magazines::Shape& like = wanted.shape;
  Fill({.bytes = like.bytes,
        .kind = like.kind,
        .priority = like.priority,
        .recompute_cost = std::chrono::microseconds(like.recompute_us),
        .droppable = like.droppable},
       *request.mutable_ahead_like());
  request.set_ahead(static_cast<std::uint32_t>(wanted.count));
  const std::vector<std::uint64_t> untold = magazines_.Untold(attachment);
  for (const std::uint64_t handle : untold) request.add_taken(handle);
  google::protobuf::Arena arena;
  auto& response = *google::protobuf::Arena::CreateMessage<v1::AllocateResponse>(&arena);
  const absl::Status status =
      CallOn(*attachment, request, response, deadline, /*repeatable=*/false);
  if (status.ok()) magazines_.Told(untold);
  FillMagazine(like, status.ok() ? attachment : nullptr, response);
}

void Client::Impl::FillMagazine(const Magazines::Shape& shape, const AttachmentPtr& attachment,
                                const v1::AllocateResponse& response) {
  std::vector<std::uint64_t> handles;
  handles.reserve(static_cast<std::size_t>(response.ahead_size()));
  for (const v1::AllocateResponse::Result& one : response.ahead()) {
    handles.push_back(one.handle());
  }
  magazines_.Filled(shape, attachment, std::move(handles), std::chrono::steady_clock::now());
  WakeUpkeep();
}

// --- Acquire ------------------------------------------------------------------------------------

absl::StatusOr<Pin> Client::Acquire(const Tensor& tensor, const PlaceOptions& where) {
  HMM_ASSIGN_OR_RETURN(auto batch, AcquireBatch({&tensor, 1}, where));
  return std::move(batch.front());
}

absl::StatusOr<std::vector<absl::StatusOr<Pin>>> Client::AcquireBatch(
    absl::Span<const Tensor> tensors, const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  impl_->Before(tensors);
  Impl::Selection selection =
      impl_->Select(tensors.size(), [&](std::size_t i) -> const Tensor& { return tensors[i]; });
  if (where.all) HMM_RETURN_IF_ERROR(selection.FirstError());
  std::vector<absl::StatusOr<Pin>> out;
  out.reserve(tensors.size());
  if (selection.attachment == nullptr) {
    out.assign(selection.verdict.begin(), selection.verdict.end());
    return out;
  }

  v1::AcquireRequest request;
  for (const std::size_t i : selection.asked) request.add_handles(tensors[i].handle());
  request.set_all(where.all);
  request.set_tier(where.tier);
  request.set_allow_lower(where.allow_lower);
  const TimePoint deadline = impl_->DeadlineOf(where.timeout);
  google::protobuf::Arena arena;  // one piece for all the parts of a batch
  auto& response = *google::protobuf::Arena::CreateMessage<v1::AcquireResponse>(&arena);
  HMM_RETURN_IF_ERROR(impl_->CallOn(*selection.attachment, request, response, deadline,
                                    /*repeatable=*/true));
  if (response.results_size() != request.handles_size()) return CountError("Acquire");
  int answer = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!selection.verdict[i].ok()) {
      out.emplace_back(selection.verdict[i]);
      continue;
    }
    const v1::AcquireResponse::Result& result = response.results(answer++);
    if (result.has_error() && result.error().code() != 0) {
      out.emplace_back(FromElement(result.error()));
      continue;
    }
    out.push_back(
        selection.attachment->Adopt(tensors[i].handle(), PlaceOf(result.location()), deadline));
    if (out.back().ok()) out.back()->found_tier_ = static_cast<std::uint8_t>(result.found_tier());
  }
  if (where.all) {
    for (const absl::StatusOr<Pin>& pin : out) HMM_RETURN_IF_ERROR(pin.status());
  }
  return out;
}

// --- Lookup -------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Held>> Client::Lookup(absl::Span<const std::string> keys,
                                                 const PlaceOptions& where,
                                                 std::string* miss_reason) {
  if (impl_->forked()) return ForkedError();
  std::vector<Held> out;
  if (miss_reason != nullptr) miss_reason->clear();
  if (keys.empty()) return out;
  impl_->Before();
  v1::LookupRequest request;
  for (const std::string& key : keys) request.add_keys(key);
  request.set_tier(where.tier);
  request.set_allow_lower(where.allow_lower);
  const TimePoint deadline = impl_->DeadlineOf(where.timeout);
  google::protobuf::Arena arena;  // one piece for all the parts of a batch
  auto& response = *google::protobuf::Arena::CreateMessage<v1::LookupResponse>(&arena);
  Impl::AttachmentPtr attachment;
  HMM_RETURN_IF_ERROR(impl_->CallAny(request, response, deadline, attachment));
  if (response.run_size() > request.keys_size()) return CountError("Lookup");
  if (miss_reason != nullptr) *miss_reason = response.miss_reason();

  absl::Status unreachable;
  for (const v1::LookupResponse::Found& found : response.run()) {
    if (!unreachable.ok()) {
      // Beyond the run that can be used.
      attachment->GiveBack(found.handle());
      continue;
    }
    absl::StatusOr<Held> held = HeldOf(attachment, found.handle(), found.location(), deadline);
    if (!held.ok()) {
      unreachable = held.status();
      continue;
    }
    held->found_tier = std::string(attachment->TierName(found.found_tier()));
    held->pin.found_tier_ = static_cast<std::uint8_t>(found.found_tier());
    out.push_back(*std::move(held));
  }
  if (out.empty() && !unreachable.ok()) return unreachable;
  if (miss_reason != nullptr && !unreachable.ok()) *miss_reason = ReasonOfStatus(unreachable);
  return out;
}

}  // namespace hmm
