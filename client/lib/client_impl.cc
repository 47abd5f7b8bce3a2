// SPDX-License-Identifier: Apache-2.0
#include "client/lib/client_impl.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace hmm {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

constexpr milliseconds kStopTimeout{1000};  // of what is still queued when the Client goes
constexpr milliseconds kAnswerGrace{250};   // of a daemon that is busy, not stopped
constexpr milliseconds kRefusedRetry{100};
constexpr milliseconds kBackOffMin{2};
constexpr milliseconds kBackOffMax{250};
// A deadline is a point of a 64-bit nanosecond clock: longer waits than this are no different.
constexpr milliseconds kTimeoutMax{std::chrono::hours(24 * 365)};

}  // namespace

absl::Status LostError() {
  return Error(StatusCode::kAborted, Reason::kLost,
               "the daemon that held this tensor is gone; recompute");
}

absl::Status CountError(std::string_view verb) {
  return Error(StatusCode::kInternal, Reason::kProtocol,
               absl::StrCat("the daemon answered another number of elements to ",
                            absl::string_view(verb.data(), verb.size())));
}

absl::StatusOr<std::unique_ptr<Client::Impl>> Client::Impl::Connect(ConnectOptions options) {
  options.dir = client_internal::RuntimeDir(options.dir);
  std::unique_ptr<Impl> impl(new Impl(std::move(options)));
  const TimePoint deadline =
      std::chrono::steady_clock::now() +
      std::clamp(impl->options_.connect_timeout, milliseconds(0), kTimeoutMax);
  HMM_ASSIGN_OR_RETURN(impl->current_, AttachUntil(impl->attach_options(), deadline));
  return impl;
}

Client::Impl::~Impl() {
  outbox_.Stop(kStopTimeout);
  magazines_.Clear();  // its pins would keep the attachment
  // Null when Connect failed. Tensors may keep it, but from now on they find it lost.
  if (current_ != nullptr) current_->Close();
}

client_internal::AttachOptions Client::Impl::attach_options() const {
  return {options_.dir, options_.device};
}

TimePoint Client::Impl::DeadlineOf(Timeout timeout) const {
  const Timeout chosen = timeout.count() != 0 ? timeout : options_.default_timeout;
  return std::chrono::steady_clock::now() + std::clamp(chosen, milliseconds(0), kTimeoutMax);
}

TimePoint Client::Impl::AnswerBy(TimePoint deadline) const {
  return std::min(deadline + kAnswerGrace, DeadlineOf(Timeout{0}));
}

Client::Impl::AttachmentPtr Client::Impl::Peek() const {
  std::lock_guard lock(mutex_);
  return current_;
}

absl::StatusOr<Client::Impl::AttachmentPtr> Client::Impl::Current(TimePoint deadline) {
  AttachmentPtr old;  // closed after the lock: that joins a thread
  const TimePoint give_up =
      std::min(deadline, std::chrono::steady_clock::now() +
                             std::clamp(options_.connect_timeout, milliseconds(0), kTimeoutMax));
  std::unique_lock lock(mutex_);
  while (current_->lost()) {
    if (attaching_) {
      if (attached_.wait_until(lock, give_up) == std::cv_status::timeout && attaching_) {
        return Error(StatusCode::kUnavailable, Reason::kNoDaemon,
                     absl::StrCat("no daemon on ", options_.dir, " since the last one went away"));
      }
      continue;
    }
    attaching_ = true;
    lock.unlock();
    absl::StatusOr<AttachmentPtr> next = AttachUntil(attach_options(), give_up);
    lock.lock();
    attaching_ = false;
    attached_.notify_all();
    if (!next.ok()) return next.status();
    old = std::exchange(current_, *std::move(next));
    break;
  }
  const AttachmentPtr current = current_;
  lock.unlock();
  if (old != nullptr) old->Close();
  return current;
}

absl::StatusOr<Client::Impl::AttachmentPtr> Client::Impl::AttachUntil(
    const client_internal::AttachOptions& options, TimePoint deadline) {
  for (int attempt = 0;; ++attempt) {
    absl::StatusOr<AttachmentPtr> attachment = Attachment::Attach(options, deadline);
    if (attachment.ok() || !absl::IsUnavailable(attachment.status())) return attachment;
    if (BackOff(attempt, deadline)) continue;
    if (ReasonOf(attachment.status()) != Reason::kNoDaemon) return attachment;
    return Error(StatusCode::kUnavailable, Reason::kNoDaemon,
                 absl::StrCat("no daemon answers: ", attachment.status().message(),
                              "; start one with `hmmd --dir ", options.dir,
                              "`, or name its directory (ConnectOptions::dir, HMM_DIR)"));
  }
}

bool Client::Impl::BackOff(int attempt, TimePoint deadline) {
  const milliseconds wait = std::min(kBackOffMin * (1 << std::min(attempt, 10)), kBackOffMax);
  const TimePoint until = std::chrono::steady_clock::now() + wait;
  if (until >= deadline) return false;
  std::this_thread::sleep_until(until);
  return true;
}

Client::Impl::Next Client::Impl::Judge(Attachment& attachment, const absl::Status& status) {
  if (ReasonOf(status) == Reason::kUnknownSession) attachment.MarkLost();
  if (attachment.lost() && !absl::IsDeadlineExceeded(status)) return Next::kLost;
  const bool transport = client_internal::IsTransportError(status) && absl::IsUnavailable(status);
  if (!transport) return Next::kReturn;
  return attachment.ConfirmLost() ? Next::kLost : Next::kAgain;
}

absl::Status Client::Impl::Verdict(Next next, absl::Status status) const {
  if (next != Next::kAgain) return client_internal::WithTransportReason(std::move(status));
  // The session lives, so a daemon runs: it is its socket for calls that is full.
  return WithRetry(
      Error(StatusCode::kUnavailable, Reason::kRefused,
            absl::StrCat("the daemon in ", options_.dir,
                         " runs, but refused the connection to hmm.sock or closed it (",
                         status.message(),
                         "); most likely too many are open: see connections_max in hmmd.toml")),
      kRefusedRetry);
}

absl::Status Client::Impl::VerdictOn(const Tensor& tensor, const AttachmentPtr& current) {
  if (!tensor.valid()) {
    return Error(StatusCode::kNotFound, Reason::kNotFound, "an empty Tensor names nothing");
  }
  if (tensor.attachment_->lost()) return LostError();
  if (tensor.attachment_ == current) return absl::OkStatus();
  return Error(StatusCode::kInvalidArgument, Reason::kBadArgument,
               "the tensor belongs to another Client");
}

absl::Status Client::Impl::Selection::FirstError() const {
  for (std::size_t i = 0; i < verdict.size(); ++i) {
    if (!verdict[i].ok()) return Annotate(verdict[i], absl::StrCat("element ", i));
  }
  return absl::OkStatus();
}

}  // namespace hmm
