// SPDX-License-Identifier: Apache-2.0
//
// Attachment: what regions and jobs need of it.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/lib/attachment.h"
#include "client/lib/attachment_resources.h"

namespace hmm::client_internal {
namespace {

// Ids in one call; those beyond wait for the next.
constexpr std::size_t kForgetMax = 1024;

absl::Status NoMemoryFile(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat("the region's descriptor is ", what,
                            "; it needs a memory file, made with memfd_create"));
}

// What the daemon cannot tell from a request that came without a descriptor, and the socket only
// with EBADF. Never waits for whoever serves the file.
absl::Status CheckMemoryFile(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return NoMemoryFile("not open");
  if (fcntl(fd, F_GET_SEALS) >= 0) {
    if ((flags & O_ACCMODE) == O_RDWR) return absl::OkStatus();
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "the region's memory file is not open for reading and writing; Load could not "
                 "fill it");
  }
  struct statx info {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) != 0) {
    return NoMemoryFile("no memory file");
  }
  switch (info.stx_mode & S_IFMT) {
    case S_IFDIR:
      return NoMemoryFile("a directory");
    case S_IFREG:
      return NoMemoryFile("a plain file");
    case S_IFCHR:
    case S_IFBLK:
      return NoMemoryFile("a device");
    case S_IFIFO:
      return NoMemoryFile("a pipe");
    case S_IFSOCK:
      return NoMemoryFile("a socket");
    default:
      return NoMemoryFile("no memory file");
  }
}

}  // namespace

// --- fences -------------------------------------------------------------------------------------

absl::StatusOr<std::uint32_t> Attachment::NewTimeline() {
  return resources_->fences->NewTimeline();
}

std::uint64_t* Attachment::TimelineAddress(std::uint32_t timeline) {
  static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));
  return reinterpret_cast<std::uint64_t*>(&resources_->fences->timeline(timeline).value);
}

std::uint64_t Attachment::TimelineValue(std::uint32_t timeline) const {
  return resources_->fences->timeline(timeline).value.load(std::memory_order_acquire);
}

void Attachment::Signal(std::uint32_t timeline, std::uint64_t value) {
  share::Signal(resources_->fences->timeline(timeline), value);
  SweepFences();
}

absl::Status Attachment::UnpinAt(std::uint32_t slot, std::uint32_t timeline, std::uint64_t value) {
  absl::Status armed = resources_->fences->Arm(slot, timeline, value);
  if (!armed.ok()) {
    SweepFences();
    armed = resources_->fences->Arm(slot, timeline, value);
  }
  if (armed.ok()) SweepFences();  // it may be reached already
  return armed;
}

void Attachment::SweepFences() {
  // Last: when no pin and no reference is left, the watcher may delete us.
  if (const std::size_t gone = resources_->fences->Sweep(lost()); gone > 0) {
    pins_.Add(-static_cast<std::int64_t>(gone));
  }
}

// --- regions and jobs ---------------------------------------------------------------------------

std::uint64_t Attachment::NewId() { return ++resources_->last_id; }

absl::StatusOr<std::byte*> Attachment::Hold(const Place& place, TimePoint deadline) {
  pins_.Add(1);
  absl::StatusOr<std::byte*> data =
      lost() ? absl::StatusOr<std::byte*>(GoneError()) : Reach(place, deadline);
  if (!data.ok()) LetGo();
  return data;
}

absl::Status Attachment::AttachRegion(std::uint64_t region, int fd, Bytes bytes,
                                      TimePoint deadline) {
  if (fd < 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "a region's descriptor is not negative");
  }
  HMM_RETURN_IF_ERROR(CheckMemoryFile(fd));
  std::lock_guard lock(resources_->pull_mutex);
  if (lost()) return GoneError();
  const absl::Status attached = resources_->socket.AttachRegion(region, fd, bytes, deadline);
  if (ReasonOf(attached) != Reason::kNoDaemon) return attached;
  MarkLost();
  return GoneError();
}

absl::StatusOr<int> Attachment::JobEvents(TimePoint deadline) {
  Resources& r = *resources_;
  std::lock_guard lock(r.pull_mutex);
  if (lost()) return GoneError();
  if (r.bell.valid()) return r.events.get();
  if (!r.events.valid()) {
    r.events = share::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!r.events.valid()) return PosixError("eventfd", errno);
  }
  HMM_ASSIGN_OR_RETURN(r.bell, r.socket.OpenEvents(deadline));
  r.bell_fd.store(r.bell.get());
  Wake(*r.wake);  // the watcher listens from here on
  return r.events.get();
}

void Attachment::Forget(std::uint64_t job) {
  std::lock_guard lock(resources_->jobs_mutex);
  resources_->forget.push_back(job);
}

std::vector<std::uint64_t> Attachment::TakeForgotten() {
  std::lock_guard lock(resources_->jobs_mutex);
  std::vector<std::uint64_t>& all = resources_->forget;
  const std::size_t first = all.size() - std::min(all.size(), kForgetMax);
  std::vector<std::uint64_t> some(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  all.resize(first);
  return some;
}

void Attachment::OweRegion(std::uint64_t region) {
  std::lock_guard lock(resources_->jobs_mutex);
  resources_->owed_regions.push_back(region);
}

std::vector<std::uint64_t> Attachment::TakeOwedRegions() {
  std::lock_guard lock(resources_->jobs_mutex);
  return std::exchange(resources_->owed_regions, {});
}

}  // namespace hmm::client_internal
