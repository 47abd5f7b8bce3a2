// SPDX-License-Identifier: Apache-2.0
//
// Client: what it does behind the user's back. Magazines are filled and told by Allocate
// (client.cc) and by Upkeep here; the outbox's thread runs SendLater and Upkeep.
#include <algorithm>
#include <chrono>
#include <utility>

#include "client/lib/client_impl.h"
#include "hmm/client.h"

namespace hmm {

using client_internal::ForkedError;
using client_internal::MagazineOptions;
using client_internal::Magazines;
using client_internal::Outbox;
using client_internal::OutboxOptions;

namespace {

constexpr Duration kUpkeepTimeout = std::chrono::seconds(1);
constexpr Duration kUpkeepAgain = std::chrono::milliseconds(50);

MagazineOptions MagazinesOf(const ConnectOptions& options) {
  MagazineOptions out;
  out.tensors_max = options.magazine_bytes == 0 ? 0 : options.magazine_tensors;
  out.tensors_min = std::min(out.tensors_min, out.tensors_max);
  out.bytes_max = options.magazine_bytes;
  return out;
}

}  // namespace

Client::Impl::Impl(ConnectOptions options)
    : options_(std::move(options)),
      magazines_(MagazinesOf(options_)),
      outbox_(
          OutboxOptions{}, DeadlineOf(Timeout{0}) - std::chrono::steady_clock::now(),
          [this](std::vector<Outbox::Item>& run, TimePoint deadline) {
            return SendLater(run, deadline);
          },
          [this](TimePoint now) { return Upkeep(now); }) {}

std::optional<Held> Client::Impl::TakeFromMagazine(const AllocateOptions& what) {
  std::optional<Held> held =
      magazines_.Take(Magazines::ShapeOf(what), Peek(), std::chrono::steady_clock::now());
  WakeUpkeep();
  return held;
}

void Client::Impl::Before(absl::Span<const Tensor> tensors) {
  Before();
  // A keeper would make it PINNED, or show as a pin that nobody holds.
  if (magazines_.AnyUntold({tensors.data(), tensors.size()})) {
    Tell(Peek(), DeadlineOf(Timeout{0}));
  }
}

void Client::Impl::Tell(const AttachmentPtr& attachment, TimePoint deadline) {
  const std::vector<std::uint64_t> untold = magazines_.Untold(attachment);
  if (untold.empty()) return;
  v1::AllocateRequest request;
  for (const std::uint64_t handle : untold) request.add_taken(handle);
  v1::AllocateResponse response;
  // Should it fail they stay untold, and are told again.
  if (CallOn(*attachment, request, response, deadline, /*repeatable=*/true).ok()) {
    magazines_.Told(untold);
  }
}

TimePoint Client::Impl::Upkeep(TimePoint now) {
  const AttachmentPtr current = Peek();
  if (current->lost()) {
    magazines_.Clear();
    return TimePoint::max();
  }
  for (const Magazines::Wanted& wanted : magazines_.Low(current)) {
    Refill(current, wanted, now + kUpkeepTimeout);
  }
  if (magazines_.TellDue(now)) Tell(current, now + kUpkeepTimeout);
  const std::vector<std::uint64_t> returned = magazines_.Returned(current, now);
  if (!returned.empty()) {
    v1::FreeRequest request;
    for (const std::uint64_t handle : returned) request.add_handles(handle);
    v1::FreeResponse response;
    // NOT_FOUND is what the daemon took back. Should the call fail, it takes these back when it
    // needs the room, or when the session ends.
    CallOn(*current, request, response, now + kUpkeepTimeout, /*repeatable=*/false).IgnoreError();
  }
  return std::max(magazines_.NextUpkeep(), TimePoint(now + kUpkeepAgain));
}

std::vector<absl::Status> Client::Impl::SendLater(absl::Span<const Outbox::Item> run,
                                                  TimePoint deadline) {
  std::vector<absl::Status> out;
  while (out.size() < run.size()) {
    const auto part = run.subspan(out.size(), later_max_);
    auto answers = SendOnce(part, deadline);
    if (ReasonOfStatus(answers.status()) == "BATCH_TOO_LARGE" && part.size() > 1) {
      later_max_ = part.size() / 2;
      continue;
    }
    if (!answers.ok()) answers = std::vector<absl::Status>(part.size(), answers.status());
    out.insert(out.end(), answers->begin(), answers->end());
  }
  return out;
}

absl::StatusOr<std::vector<absl::Status>> Client::Impl::SendOnce(
    absl::Span<const Outbox::Item> items, TimePoint deadline) {
  if (items.front().free) {
    std::vector<const Tensor*> tensors;
    tensors.reserve(items.size());
    for (const Outbox::Item& item : items) tensors.push_back(&item.tensor);
    return Free(tensors, deadline);
  }
  std::vector<SealView> views;
  views.reserve(items.size());
  for (const Outbox::Item& item : items) views.push_back({&item.tensor, item.key});
  return Seal(views, deadline);
}

// --- the user's side ----------------------------------------------------------------------------

void Client::SealLater(const Tensor& tensor, Pin pin, std::string_view key) {
  if (impl_->forked()) return;
  impl_->outbox().Push({tensor, std::move(pin), std::string(key), /*free=*/false});
}

void Client::FreeLater(const Tensor& tensor) {
  if (impl_->forked()) return;
  impl_->outbox().Push({tensor, Pin(), std::string(), /*free=*/true});
}

std::vector<Client::LateError> Client::Flush() {
  if (impl_->forked()) return {{0, "", ForkedError()}};
  impl_->outbox().SendAll();
  return impl_->outbox().TakeFailures();
}

}  // namespace hmm
