// SPDX-License-Identifier: Apache-2.0
//
// What stands behind Client: the current attachment, how a call finds one, and what becomes of a
// call whose daemon goes away.
//
//   a call without handles (Allocate, Lookup)   is repeated on the next daemon: whatever the old
//   one
//                                               did for it died with it
//   a call with handles                         belongs to the attachment that answered them: LOST
//
// Any thread. One thread at a time attaches anew; the others wait for it, to their own deadlines.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/units.h"
#include "client/lib/attachment.h"
#include "client/lib/fork_guard.h"
#include "client/lib/magazine.h"
#include "client/lib/outbox.h"
#include "client/lib/status_convert.h"
#include "hmm/client.h"

namespace hmm {

// Hidden, for the version script of the shared library shows all that lies in Client.
class __attribute__((visibility("hidden"))) Client::Impl {
 public:
  using Attachment = client_internal::Attachment;
  using AttachmentPtr = std::shared_ptr<Attachment>;

  static absl::StatusOr<std::unique_ptr<Impl>> Connect(ConnectOptions options);
  ~Impl();

  bool forked() const { return guard_.Forked(); }
  TimePoint DeadlineOf(Timeout timeout) const;
  // For a call whose own work ends at `deadline` and that never waits: a moment for the answer.
  TimePoint AnswerBy(TimePoint deadline) const;

  // The attachment now; attaches anew when it is lost. UNAVAILABLE/NO_DAEMON.
  absl::StatusOr<AttachmentPtr> Current(TimePoint deadline);
  // Without attaching.
  AttachmentPtr Peek() const;

  // Calls on the current attachment, anew after a restart; `used` is the one that answered.
  template <typename Request, typename Response>
  absl::Status CallAny(Request& request, Response& response, TimePoint deadline,
                       AttachmentPtr& used);
  // Calls on the attachment that the request's handles belong to. `repeatable`: doing it twice is
  // doing it once, so that a broken connection to a living daemon is tried again.
  template <typename Request, typename Response>
  absl::Status CallOn(Attachment& attachment, Request& request, Response& response,
                      TimePoint deadline, bool repeatable);

  // --- magazines and the outbox (later.cc) ------------------------------------------------------
  // Before a call: what is queued goes first.
  void Before() {
    if (!outbox_.idle()) outbox_.SendAll();
  }
  // And before one about tensors whose keepers would be in its way.
  void Before(absl::Span<const Tensor> tensors);
  // Out of a magazine.
  std::optional<Held> TakeFromMagazine(const AllocateOptions& what);
  // `ahead`: what a magazine asks for beyond the first.
  absl::StatusOr<std::vector<absl::StatusOr<Held>>> Allocate(absl::Span<const AllocateOptions> what,
                                                             const PlaceOptions& where,
                                                             std::size_t ahead);
  struct SealView {
    const Tensor* tensor;
    std::string_view key;
  };
  absl::StatusOr<std::vector<absl::Status>> Seal(absl::Span<const SealView> items,
                                                 TimePoint deadline);
  absl::StatusOr<std::vector<absl::Status>> Free(absl::Span<const Tensor* const> tensors,
                                                 TimePoint deadline);
  client_internal::Magazines& magazines() { return magazines_; }
  client_internal::Outbox& outbox() { return outbox_; }

  // Which elements of a batch of tensors can be asked for, and the verdict on the others.
  struct Selection {
    AttachmentPtr attachment;           // nullptr: none can
    std::vector<std::size_t> asked;     // their indices
    std::vector<absl::Status> verdict;  // one an element; OK for those asked
    // The first verdict that is not OK, with its index.
    absl::Status FirstError() const;
  };
  template <typename TensorAt>
  Selection Select(std::size_t count, TensorAt tensor_at) const;

 private:
  // What to do about a call that failed.
  enum class Next { kReturn, kLost, kAgain };

  explicit Impl(ConnectOptions options);

  // Items of one kind, in as many calls as the daemon's limits.batch_max makes of them. By one
  // thread at a time.
  std::vector<absl::Status> SendLater(absl::Span<const client_internal::Outbox::Item> run,
                                      TimePoint deadline);
  absl::StatusOr<std::vector<absl::Status>> SendOnce(
      absl::Span<const client_internal::Outbox::Item> items, TimePoint deadline);
  void Tell(const AttachmentPtr& attachment, TimePoint deadline);
  void FillMagazine(const client_internal::Magazines::Shape& shape, const AttachmentPtr& attachment,
                    const v1::AllocateResponse& response);  // attachment null: the call failed
  void Refill(const AttachmentPtr& attachment, const client_internal::Magazines::Wanted& wanted,
              TimePoint deadline);
  TimePoint Upkeep(TimePoint now);
  void WakeUpkeep() {
    if (magazines_.TakeUpkeepWanted()) outbox_.WakeBy(magazines_.NextUpkeep());
  }

  template <typename Request, typename Response>
  static absl::Status CallOnce(Attachment& attachment, Request& request, Response& response,
                               TimePoint deadline);
  static Next Judge(Attachment& attachment, const absl::Status& status);
  // The last word on a call that is not tried again.
  absl::Status Verdict(Next next, absl::Status status) const;
  // Tries until the deadline; UNAVAILABLE/NO_DAEMON names the directory and how to start one.
  static absl::StatusOr<AttachmentPtr> AttachUntil(const client_internal::AttachOptions& options,
                                                   TimePoint deadline);
  static absl::Status VerdictOn(const Tensor& tensor, const AttachmentPtr& current);
  // Sleeps before try number `attempt`; false when the deadline would pass.
  static bool BackOff(int attempt, TimePoint deadline);
  client_internal::AttachOptions attach_options() const;

  client_internal::ForkGuard guard_;
  const ConnectOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable attached_;
  bool attaching_ = false;
  AttachmentPtr current_;  // never null
  client_internal::Magazines magazines_;
  std::size_t later_max_ = 4096;    // items of one call; less once the daemon took fewer
  client_internal::Outbox outbox_;  // last: its thread uses all of this
};

// ABORTED/LOST.
absl::Status LostError();
// INTERNAL/PROTOCOL: the daemon answered another number of elements.
absl::Status CountError(std::string_view verb);

template <typename Request, typename Response>
absl::Status Client::Impl::CallOnce(Attachment& attachment, Request& request, Response& response,
                                    TimePoint deadline) {
  constexpr bool kPins = requires { request.mutable_call(); };
  client_internal::CallWindow::Ids ids;
  if constexpr (kPins) {
    HMM_ASSIGN_OR_RETURN(ids, attachment.calls().Begin());
    request.mutable_call()->set_call_id(ids.call_id);
    request.mutable_call()->set_oldest_live_call_id(ids.oldest_live_call_id);
  }
  response.Clear();
  absl::Status status = attachment.rpc().Call(request, response, deadline);
  if (status.ok() && response.epoch() != attachment.epoch()) {
    status = Error(absl::StatusCode::kUnavailable, Reason::kUnknownSession,
                   "another daemon answered than the one attached to");
  }
  if constexpr (kPins) attachment.EndPinningCall(ids.call_id, status.ok());
  return status;
}

template <typename Request, typename Response>
absl::Status Client::Impl::CallOn(Attachment& attachment, Request& request, Response& response,
                                  TimePoint deadline, bool repeatable) {
  for (int attempt = 0;; ++attempt) {
    if (attachment.lost()) return LostError();
    absl::Status status = CallOnce(attachment, request, response, deadline);
    if (status.ok()) return status;
    const Next next = Judge(attachment, status);
    if (next == Next::kLost) return LostError();
    if (next == Next::kReturn || !repeatable || !BackOff(attempt, deadline)) {
      return Verdict(next, std::move(status));
    }
  }
}

template <typename Request, typename Response>
absl::Status Client::Impl::CallAny(Request& request, Response& response, TimePoint deadline,
                                   AttachmentPtr& used) {
  for (int attempt = 0;; ++attempt) {
    HMM_ASSIGN_OR_RETURN(used, Current(deadline));
    absl::Status status = CallOnce(*used, request, response, deadline);
    if (status.ok()) return status;
    const Next next = Judge(*used, status);
    if (next == Next::kReturn || !BackOff(attempt, deadline)) {
      return Verdict(next, std::move(status));
    }
  }
}

template <typename TensorAt>
Client::Impl::Selection Client::Impl::Select(std::size_t count, TensorAt tensor_at) const {
  Selection selection;
  const AttachmentPtr current = Peek();
  selection.verdict.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    selection.verdict.push_back(VerdictOn(tensor_at(i), current));
    if (selection.verdict.back().ok()) selection.asked.push_back(i);
  }
  if (!selection.asked.empty()) selection.attachment = current;
  return selection;
}

}  // namespace hmm
