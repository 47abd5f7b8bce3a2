// SPDX-License-Identifier: Apache-2.0
//
// Client: connecting, and the verbs that pin (Allocate, Acquire, Lookup). The others are in
// verbs.cc. A verb of one tensor is its batch of one.
#include "hmm/client.h"

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

// --- Allocate -----------------------------------------------------------------------------------

absl::StatusOr<Held> Client::Allocate(const AllocateOptions& what, const PlaceOptions& where) {
  HMM_ASSIGN_OR_RETURN(auto batch, AllocateBatch({&what, 1}, where));
  return std::move(batch.front());
}

absl::StatusOr<std::vector<absl::StatusOr<Held>>> Client::AllocateBatch(
    absl::Span<const AllocateOptions> what, const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  std::vector<absl::StatusOr<Held>> out;
  if (what.empty()) return out;
  v1::AllocateRequest request;
  for (const AllocateOptions& one : what) Fill(one, *request.add_tensors());
  request.set_all(where.all);
  request.set_wait(where.wait);
  request.set_tier(where.tier);
  request.set_allow_lower(where.allow_lower);
  const TimePoint deadline = impl_->DeadlineOf(where.timeout);
  v1::AllocateResponse response;
  Impl::AttachmentPtr attachment;
  HMM_RETURN_IF_ERROR(impl_->CallAny(request, response, deadline, attachment));
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
  FreeBatch(unreachable).IgnoreError();
  if (where.all) return first;
  return out;
}

// --- Acquire ------------------------------------------------------------------------------------

absl::StatusOr<Pin> Client::Acquire(const Tensor& tensor, const PlaceOptions& where) {
  HMM_ASSIGN_OR_RETURN(auto batch, AcquireBatch({&tensor, 1}, where));
  return std::move(batch.front());
}

absl::StatusOr<std::vector<absl::StatusOr<Pin>>> Client::AcquireBatch(
    absl::Span<const Tensor> tensors, const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  Impl::Selection selection =
      impl_->Select(tensors.size(), [&](std::size_t i) -> const Tensor& { return tensors[i]; });
  if (where.all) HMM_RETURN_IF_ERROR(selection.FirstError());
  std::vector<absl::StatusOr<Pin>> out;  // UNKNOWN where asked, until it is answered
  out.reserve(tensors.size());
  for (const absl::Status& verdict : selection.verdict) {
    out.emplace_back(verdict.ok() ? absl::UnknownError("not answered") : verdict);
  }
  if (selection.attachment == nullptr) return out;

  v1::AcquireRequest request;
  for (const std::size_t i : selection.asked) request.add_handles(tensors[i].handle());
  request.set_all(where.all);
  request.set_tier(where.tier);
  request.set_allow_lower(where.allow_lower);
  const TimePoint deadline = impl_->DeadlineOf(where.timeout);
  v1::AcquireResponse response;
  HMM_RETURN_IF_ERROR(impl_->CallOn(*selection.attachment, request, response, deadline,
                                    /*repeatable=*/true));
  if (response.results_size() != request.handles_size()) return CountError("Acquire");
  for (int k = 0; k < response.results_size(); ++k) {
    const std::size_t i = selection.asked[static_cast<std::size_t>(k)];
    const v1::AcquireResponse::Result& result = response.results(k);
    out[i] = result.error().code() != 0
                 ? absl::StatusOr<Pin>(FromElement(result.error()))
                 : selection.attachment->Adopt(tensors[i].handle(), PlaceOf(result.location()),
                                               deadline);
  }
  if (where.all) {
    for (const absl::StatusOr<Pin>& pin : out) HMM_RETURN_IF_ERROR(pin.status());
  }
  return out;
}

// --- Lookup -------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Held>> Client::Lookup(absl::Span<const std::string> keys,
                                                 const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  std::vector<Held> out;
  if (keys.empty()) return out;
  v1::LookupRequest request;
  for (const std::string& key : keys) request.add_keys(key);
  request.set_tier(where.tier);
  request.set_allow_lower(where.allow_lower);
  const TimePoint deadline = impl_->DeadlineOf(where.timeout);
  v1::LookupResponse response;
  Impl::AttachmentPtr attachment;
  HMM_RETURN_IF_ERROR(impl_->CallAny(request, response, deadline, attachment));
  if (response.run_size() > request.keys_size()) return CountError("Lookup");

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
    out.push_back(*std::move(held));
  }
  if (out.empty() && !unreachable.ok()) return unreachable;
  return out;
}

}  // namespace hmm
