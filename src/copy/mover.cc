// SPDX-License-Identifier: Apache-2.0
//
// Queues of moves and their order of service. Everything here runs on the executor's thread; the
// copier answers there too, so nothing needs a lock.
#include "copy/mover.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::copy {

std::string_view PriorityName(Priority priority) {
  switch (priority) {
    case Priority::kDemand:
      return "demand";
    case Priority::kPlanned:
      return "planned";
    case Priority::kPrefetch:
      return "prefetch";
    case Priority::kMakeRoom:
      return "make_room";
    case Priority::kBackground:
      return "background";
  }
  return "unknown";
}

namespace {

bool IsFile(const tier::Tier& from, const tier::Tier& to) {
  return !from.mappable() || !to.mappable();
}

}  // namespace

Mover::Mover(Copier& copier, Executor& executor, MoverOptions options)
    : copier_(copier), executor_(executor), options_(options) {
  HMM_CHECK(options_.running_max > 0);
}

Mover::~Mover() = default;

absl::StatusOr<MoveId> Mover::Submit(const CopyJob& job, Priority priority, CopyDone done) {
  HMM_CHECK(job.from != nullptr && job.to != nullptr);
  Link& link = links_[{job.from, job.to}];
  link.file = IsFile(*job.from, *job.to);
  if (!HasRoom(link)) {
    return WithRetry(
        Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
              absl::StrCat("the queue of moves ", job.from->name(), " -> ", job.to->name(),
                           " is full (", options_.queued_max, "); retry after the delay")),
        options_.retry_delay);
  }
  const MoveId id = ++last_id_;
  link.queue.emplace(Place{priority, id}, Queued{job, std::move(done)});
  queued_.emplace(id, Where{&link, priority});
  link.stats.queued = link.queue.size();
  StartWhatMay(link);
  return id;
}

void Mover::Raise(MoveId id, Priority priority) {
  const auto it = queued_.find(id);
  if (it == queued_.end() || it->second.priority <= priority) return;
  auto node = it->second.link->queue.extract(Place{it->second.priority, id});
  node.key().first = priority;
  it->second.link->queue.insert(std::move(node));
  it->second.priority = priority;
}

bool Mover::Cancel(MoveId id) {
  const auto it = queued_.find(id);
  if (it == queued_.end()) return false;
  Link& link = *it->second.link;
  auto node = link.queue.extract(Place{it->second.priority, id});
  queued_.erase(it);
  link.stats.queued = link.queue.size();
  executor_.Post([done = std::move(node.mapped().done)]() mutable {
    CopyResult result;
    result.status = Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                          "the move was cancelled before it started");
    std::move(done)(std::move(result));
  });
  return true;
}

bool Mover::HasRoom(const tier::Tier& from, const tier::Tier& to) const {
  const auto it = links_.find({&from, &to});
  return it == links_.end() || HasRoom(it->second);  // an idle link starts it at once
}

bool Mover::MayStart(const Link& link) const {
  if (link.stats.running < options_.running_max) return true;
  return link.file && link.stats.running < options_.file_running_max &&
         link.running_bytes < options_.file_running_bytes;
}

bool Mover::HasRoom(const Link& link) const {
  // A move that starts at once takes no place in the queue.
  return MayStart(link) || link.queue.size() < options_.queued_max;
}

bool Mover::idle() const { return running_ == 0 && queued_.empty(); }

const LinkStats& Mover::stats(LinkKey link) const {
  static const LinkStats none;
  const auto it = links_.find(link);
  return it == links_.end() ? none : it->second.stats;
}

void Mover::StartWhatMay(Link& link) {
  while (MayStart(link) && !link.queue.empty()) {
    auto node = link.queue.extract(link.queue.begin());
    queued_.erase(node.key().second);
    link.stats.queued = link.queue.size();
    ++link.stats.running;
    ++running_;
    const CopyJob& job = node.mapped().job;
    link.running_bytes += job.bytes;
    copier_.Submit(job, [this, &link, bytes = job.bytes,
                         done = std::move(node.mapped().done)](CopyResult result) mutable {
      OnCopied(link, bytes, std::move(done), std::move(result));
    });
  }
}

void Mover::OnCopied(Link& link, Bytes bytes, CopyDone done, CopyResult result) {
  HMM_CHECK(link.stats.running > 0);
  --link.stats.running;
  --running_;
  link.running_bytes -= bytes;
  link.stats.busy += result.elapsed;
  if (result.status.ok()) {
    ++link.stats.moves;
    link.stats.moved_bytes += bytes;
  } else {
    ++link.stats.failed;
  }
  // Before `done`: the link stays busy, and `done` may destroy an idle mover.
  StartWhatMay(link);
  std::move(done)(std::move(result));
}

}  // namespace hmm::copy
