// SPDX-License-Identifier: Apache-2.0
//
// Client: the verbs that do not pin. A verb of one tensor is its batch of one.
#include <chrono>
#include <utility>

#include "base/status.h"
#include "client/lib/client_impl.h"
#include "client/lib/status_convert.h"
#include "hmm/client.h"

namespace hmm {
namespace {

using client_internal::ForkedError;
using client_internal::FromElement;

// Puts the answers of a batch to their elements.
template <typename Response>
absl::StatusOr<std::vector<absl::Status>> Spread(std::string_view verb, const Response& response,
                                                 const std::vector<std::size_t>& asked,
                                                 std::vector<absl::Status> verdict) {
  if (response.results_size() != static_cast<int>(asked.size())) return CountError(verb);
  for (int k = 0; k < response.results_size(); ++k) {
    verdict[asked[static_cast<std::size_t>(k)]] = FromElement(response.results(k).error());
  }
  return verdict;
}

// The one verdict of a batch of one.
absl::Status Only(absl::StatusOr<std::vector<absl::Status>> batch) {
  return batch.ok() ? std::move(batch->front()) : batch.status();
}

std::string KindName(v1::TierKind kind) {
  const bool known = kind >= v1::TIER_KIND_HBM && kind <= v1::TIER_KIND_FLASH;
  return known ? std::string(TierKindName(static_cast<TierKind>(kind))) : "unknown";
}

std::string StateName(v1::TensorState state) {
  const auto number = static_cast<std::size_t>(state);
  return number < kTensorStates ? std::string(TensorStateName(static_cast<TensorState>(number)))
                                : "unknown";
}

}  // namespace

// --- Seal ---------------------------------------------------------------------------------------

absl::Status Client::Seal(const Tensor& tensor, Pin pin, std::string_view key) {
  std::vector<SealItem> items;
  items.push_back({tensor, std::move(pin), std::string(key)});
  return Only(SealBatch(std::move(items)));
}

absl::Status Client::Seal(const Tensor& tensor, std::string_view key) {
  return Seal(tensor, Pin(), key);
}

absl::StatusOr<std::vector<absl::Status>> Client::SealBatch(std::vector<SealItem> items) {
  if (impl_->forked()) return ForkedError();
  impl_->Before();
  std::vector<Impl::SealView> views;
  views.reserve(items.size());
  for (const SealItem& item : items) views.push_back({&item.tensor, item.key});
  // The pins go with `items`, here: were the daemon to take them, a reply that is lost would leave
  // us not knowing whether it did.
  return impl_->Seal(views, impl_->DeadlineOf(Timeout{0}));
}

absl::StatusOr<std::vector<absl::Status>> Client::Impl::Seal(absl::Span<const SealView> items,
                                                             TimePoint deadline) {
  Selection selection =
      Select(items.size(), [&](std::size_t i) -> const Tensor& { return *items[i].tensor; });
  if (selection.attachment == nullptr) return selection.verdict;
  v1::SealRequest request;
  std::vector<std::uint64_t> handles;
  for (const std::size_t i : selection.asked) {
    v1::SealRequest::Item& item = *request.add_items();
    item.set_handle(items[i].tensor->handle());
    item.set_key(std::string(items[i].key));
    handles.push_back(item.handle());
  }
  v1::SealResponse response;
  HMM_RETURN_IF_ERROR(CallOn(*selection.attachment, request, response, deadline,
                             /*repeatable=*/false));
  magazines_.Told(handles);  // answered is told, whatever the answer
  return Spread("Seal", response, selection.asked, std::move(selection.verdict));
}

// --- Free ---------------------------------------------------------------------------------------

absl::Status Client::Free(const Tensor& tensor) { return Only(FreeBatch({&tensor, 1})); }

absl::StatusOr<std::vector<absl::Status>> Client::FreeBatch(absl::Span<const Tensor> tensors) {
  if (impl_->forked()) return ForkedError();
  impl_->Before();
  std::vector<const Tensor*> views;
  views.reserve(tensors.size());
  for (const Tensor& tensor : tensors) views.push_back(&tensor);
  return impl_->Free(views, impl_->DeadlineOf(Timeout{0}));
}

absl::StatusOr<std::vector<absl::Status>> Client::Impl::Free(
    absl::Span<const Tensor* const> tensors, TimePoint deadline) {
  Selection selection =
      Select(tensors.size(), [&](std::size_t i) -> const Tensor& { return *tensors[i]; });
  if (selection.attachment == nullptr) return selection.verdict;
  v1::FreeRequest request;
  std::vector<std::uint64_t> handles;
  for (const std::size_t i : selection.asked) {
    handles.push_back(tensors[i]->handle());
    request.add_handles(handles.back());
  }
  v1::FreeResponse response;
  HMM_RETURN_IF_ERROR(CallOn(*selection.attachment, request, response, deadline,
                             /*repeatable=*/false));
  magazines_.Told(handles);
  return Spread("Free", response, selection.asked, std::move(selection.verdict));
}

// --- Prefetch -----------------------------------------------------------------------------------

absl::Status Client::Prefetch(const Tensor& tensor, const PlaceOptions& where) {
  return Only(PrefetchBatch({&tensor, 1}, where));
}

absl::StatusOr<std::vector<absl::Status>> Client::PrefetchBatch(absl::Span<const Tensor> tensors,
                                                                const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  impl_->Before(tensors);
  Impl::Selection selection =
      impl_->Select(tensors.size(), [&](std::size_t i) -> const Tensor& { return tensors[i]; });
  if (selection.attachment == nullptr) return selection.verdict;
  v1::PrefetchRequest request;
  for (const std::size_t i : selection.asked) request.add_handles(tensors[i].handle());
  request.set_tier(where.tier);
  // The time-out is the hint's: the call itself never waits, but answers no later.
  if (where.timeout.count() > 0) {
    request.set_deadline_us(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(where.timeout).count()));
  }
  v1::PrefetchResponse response;
  HMM_RETURN_IF_ERROR(impl_->CallOn(*selection.attachment, request, response,
                                    impl_->AnswerBy(impl_->DeadlineOf(where.timeout)),
                                    /*repeatable=*/true));
  return Spread("Prefetch", response, selection.asked, std::move(selection.verdict));
}

absl::StatusOr<std::vector<absl::Status>> Client::Touch(absl::Span<const std::string> keys) {
  if (impl_->forked()) return ForkedError();
  impl_->Before();
  v1::PrefetchRequest request;
  for (const std::string& key : keys) request.add_keys(key);
  request.set_in_place(true);
  v1::PrefetchResponse response;
  Impl::AttachmentPtr used;
  HMM_RETURN_IF_ERROR(impl_->CallAny(request, response, impl_->DeadlineOf(Timeout{0}), used));
  if (response.results_size() != static_cast<int>(keys.size())) return CountError("Touch");
  std::vector<absl::Status> verdict;
  verdict.reserve(keys.size());
  for (const auto& result : response.results()) verdict.push_back(FromElement(result.error()));
  return verdict;
}

// --- Swap ---------------------------------------------------------------------------------------

absl::Status Client::Swap(const Tensor& tensor, const PlaceOptions& where) {
  return Only(SwapBatch({&tensor, 1}, where));
}

absl::StatusOr<std::vector<absl::Status>> Client::SwapBatch(absl::Span<const Tensor> tensors,
                                                            const PlaceOptions& where) {
  if (impl_->forked()) return ForkedError();
  impl_->Before(tensors);
  if (where.tier.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, "Swap must name a tier");
  }
  Impl::Selection selection =
      impl_->Select(tensors.size(), [&](std::size_t i) -> const Tensor& { return tensors[i]; });
  if (where.all) HMM_RETURN_IF_ERROR(selection.FirstError());
  if (selection.attachment == nullptr) return selection.verdict;
  v1::SwapRequest request;
  for (const std::size_t i : selection.asked) request.add_handles(tensors[i].handle());
  request.set_tier(where.tier);
  v1::SwapResponse response;
  HMM_RETURN_IF_ERROR(impl_->CallOn(*selection.attachment, request, response,
                                    impl_->DeadlineOf(where.timeout), /*repeatable=*/true));
  return Spread("Swap", response, selection.asked, std::move(selection.verdict));
}

// --- Describe -----------------------------------------------------------------------------------

absl::StatusOr<Client::Info> Client::Describe(const Tensor& tensor) {
  if (impl_->forked()) return ForkedError();
  impl_->Before({&tensor, 1});
  Impl::Selection selection =
      impl_->Select(1, [&](std::size_t) -> const Tensor& { return tensor; });
  if (selection.attachment == nullptr) return selection.verdict.front();
  v1::DescribeRequest request;
  request.add_handles(tensor.handle());
  v1::DescribeResponse response;
  HMM_RETURN_IF_ERROR(impl_->CallOn(*selection.attachment, request, response,
                                    impl_->DeadlineOf(Timeout{0}), /*repeatable=*/true));
  if (response.results_size() != 1) return CountError("Describe");
  HMM_RETURN_IF_ERROR(FromElement(response.results(0).error()));
  const v1::TensorInfo& info = response.results(0).tensor();
  Info out;
  out.state = info.reserved() ? "reserved" : StateName(info.state());
  out.tier = info.tier_name();
  out.key = info.key();
  out.bytes = info.bytes();
  out.sealed = info.sealed();
  for (const v1::TensorInfo::SessionPins& pins : info.pins()) out.pins += pins.pins();
  return out;
}

// --- Tiers --------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Client::Tier>> Client::Tiers() {
  if (impl_->forked()) return ForkedError();
  v1::ListTiersRequest request;
  v1::ListTiersResponse response;
  Impl::AttachmentPtr used;
  HMM_RETURN_IF_ERROR(impl_->CallAny(request, response, impl_->DeadlineOf(Timeout{0}), used));
  std::vector<Tier> tiers;
  for (const v1::TierInfo& tier : response.tiers()) {
    tiers.push_back({tier.name(), KindName(tier.kind()), tier.state()});
  }
  return tiers;
}

}  // namespace hmm
