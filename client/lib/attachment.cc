// SPDX-License-Identifier: Apache-2.0
#include "client/lib/attachment.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "client/lib/attachment_resources.h"
#include "client/lib/quiet_thread.h"
#include "client/lib/session_socket.h"
#include "client/lib/status_convert.h"
#include "share/bell.h"
#include "share/memory_file.h"
#include "share/pin.h"

namespace hmm::client_internal {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

constexpr milliseconds kHandshake{2000};
constexpr milliseconds kHangUpWait{100};
constexpr milliseconds kPullTimeout{2000};  // of TryPin, which has no deadline of its own
constexpr std::chrono::duration<int, std::milli> kPinLook{20};
constexpr milliseconds kReleaseTimeout{1000};
constexpr milliseconds kReleasePauseMin{5};
constexpr milliseconds kReleasePauseMax{500};
constexpr milliseconds kDrainTimeout{1000};  // of the releases owed at the end
constexpr std::uint32_t kTensorsMax = 1u << 28;

TimePoint After(Duration wait) { return std::chrono::steady_clock::now() + wait; }

absl::Status ProtocolError(std::string_view what) {
  return Error(StatusCode::kFailedPrecondition, Reason::kProtocol,
               absl::StrCat("the daemon ", absl::string_view(what.data(), what.size())));
}

// A mapping beyond the end of the file would be SIGBUS in the user's hands.
absl::StatusOr<share::Mapping> MapChecked(int fd, Bytes bytes, share::Mapping::Access access) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return PosixError("fstat", errno);
  if (bytes == 0 || info.st_size < 0 || static_cast<Bytes>(info.st_size) < bytes) {
    return ProtocolError("gave a memory file that is shorter than it says");
  }
  return share::Mapping::Map(fd, bytes, access, /*dont_fork=*/true);
}

}  // namespace

Attachment::Attachment(std::unique_ptr<Resources> resources) : resources_(std::move(resources)) {}
Attachment::~Attachment() = default;

absl::StatusOr<std::shared_ptr<Attachment>> Attachment::Attach(const AttachOptions& options,
                                                               TimePoint deadline) {
  // 1. Who are we: the daemon answers with everything to map.
  auto made = std::make_unique<Resources>();
  made->dir = options.dir;
  HMM_ASSIGN_OR_RETURN(made->socket, SessionSocket::Connect(options.dir + "/session.sock"));
  HMM_ASSIGN_OR_RETURN(SessionSocket::Greeting greeting,
                       made->socket.Greet(options.device, std::min(deadline, After(kHandshake))));
  made->welcome = greeting.welcome;
  made->table_fd = std::move(greeting.table);
  made->page_fd = std::move(greeting.page);
  // 2. Map it. 3. Watch the socket.
  std::shared_ptr<Attachment> attachment(new Attachment(std::move(made)), &Retire);
  HMM_RETURN_IF_ERROR(attachment->Map(greeting.welcome.max_tensors));
  HMM_RETURN_IF_ERROR(attachment->Start());
  return attachment;
}

absl::Status Attachment::Map(std::uint32_t max_tensors) {
  Resources& r = *resources_;
  if (max_tensors == 0 || max_tensors > kTensorsMax) return ProtocolError("has an absurd table");
  HMM_ASSIGN_OR_RETURN(r.table, MapChecked(r.table_fd.get(), share::TableBytes(max_tensors),
                                           share::Mapping::Access::kReadOnly));
  HMM_ASSIGN_OR_RETURN(r.page, MapChecked(r.page_fd.get(), share::PageBytes(max_tensors),
                                          share::Mapping::Access::kReadWrite));
  r.table_fd.Reset();
  r.page_fd.Reset();
  share::TableHeader table;
  share::PageHeader page;
  std::memcpy(&table, r.table.data(), sizeof(table));
  std::memcpy(&page, r.page.data(), sizeof(page));
  if (table.magic != share::kTableMagic || page.magic != share::kPageMagic ||
      table.abi_version != share::kAbiVersion || page.abi_version != share::kAbiVersion ||
      table.max_tensors != max_tensors || page.max_tensors != max_tensors ||
      table.boot_epoch != r.welcome.boot_epoch || page.boot_epoch != r.welcome.boot_epoch ||
      page.session != r.welcome.session) {
    return ProtocolError("gave a table or page that is not of this session");
  }
  table_ = share::TableSlots(static_cast<const void*>(r.table.data()));
  words_ = share::PinWords(r.page.data());
  r.fences = std::make_unique<FenceBook>(share::Fences(r.page.data()), words_);
  max_tensors_ = max_tensors;
  segments_ = &r.segments;
  epoch_ = r.welcome.boot_epoch;
  session_ = r.welcome.session;
  for (std::size_t i = 0; i < std::min<std::size_t>(r.welcome.tier_count, share::kMaxTiers); ++i) {
    const auto& name = r.welcome.tier_names[i];
    r.tier_names[i].assign(name.data(), strnlen(name.data(), name.size()));
  }
  return absl::OkStatus();
}

absl::Status Attachment::Start() {
  Resources& r = *resources_;
  r.wake = std::make_shared<share::UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!r.wake->valid()) return PosixError("eventfd", errno);
  r.rpc = std::make_unique<MemoryRpc>(r.dir + "/hmm.sock", r.welcome.token);
  r.watcher = StartQuietThread([this] { Watch(); });
  if (r.watcher.joinable()) return absl::OkStatus();
  return Error(StatusCode::kResourceExhausted, Reason::kNoMemory, "no thread to watch the daemon");
}

void Attachment::MarkLost() {
  lost_.store(true, std::memory_order_seq_cst);
  Wake(*resources_->wake);
}

void Attachment::Close() {
  Resources& r = *resources_;
  std::thread releaser;
  {
    std::lock_guard lock(r.releaser_mutex);
    r.closed = true;
    releaser = std::move(r.releaser);
  }
  if (releaser.joinable()) {
    // What calls left pinned must not stay so until the process ends: give it a moment.
    if (!lost()) r.calls.WaitUntilNoneOwed(After(kDrainTimeout));
    r.calls.Close();
    r.rpc->CancelReleases();
    releaser.join();
  }
  MarkLost();
}

void Attachment::Retire(Attachment* attachment) {
  // In a fork child the mappings are not there, the threads neither, and gRPC must not be entered.
  if (attachment->forked()) return;
  Resources& r = *attachment->resources_;
  if (!r.watcher.joinable()) {  // never came to life
    delete attachment;
    return;
  }
  attachment->Close();
  const std::shared_ptr<share::UniqueFd> wake = r.wake;
  attachment->SweepFences();
  // No reference is left through which a pin could come; those that are can only go.
  if (attachment->pins_.Sum() == 0) {
    r.stop.store(true);
    Wake(*wake);
    r.watcher.join();
    r.segments.Clear();
    r.socket.Leave();
    delete attachment;
    return;
  }
  r.watcher.detach();
  r.orphaned.store(true);  // from here on it may be gone
  Wake(*wake);
}

// Polls the socket and never reads: replies belong to Pull. Giving a pin back is silent, so that
// the last one of a lost attachment is looked for.
void Attachment::Watch() {
  Resources& r = *resources_;
  bool settled = false;
  bool unmapped = false;
  for (;;) {
    std::array<pollfd, 3> entries{pollfd{r.wake->get(), POLLIN, 0},
                                  pollfd{lost() ? -1 : r.socket.fd(), POLLRDHUP, 0},
                                  pollfd{lost() ? -1 : r.bell_fd.load(), POLLIN, 0}};
    const bool looking = (lost() && !unmapped) || r.orphaned.load();
    const int ready = ::poll(entries.data(), entries.size(), looking ? kPinLook.count() : -1);
    // Blind, so assume the worst: the client attaches anew.
    if (ready < 0 && errno != EINTR) lost_.store(true);
    if (ready > 0 && entries[0].revents != 0) {
      std::uint64_t count = 0;
      HMM_CHECK(::read(r.wake->get(), &count, sizeof(count)) > 0 || errno == EAGAIN);
    }
    if (ready > 0 && entries[1].revents != 0) lost_.store(true);
    if (ready > 0 && entries[2].revents != 0) {
      if (!share::TakeRings(entries[2].fd)) r.bell_fd.store(-1);  // the daemon hung up
      Wake(r.events);
    }
    if (r.stop.load()) return;
    if (!lost()) continue;
    if (!settled) {
      pins_.Settle();
      if (r.bell_fd.load() >= 0) Wake(r.events);  // who waits for a job learns that it is lost
    }
    settled = true;
    SweepFences();
    if (pins_.Sum() != 0) continue;
    if (!unmapped) {
      std::lock_guard lock(r.pull_mutex);
      r.segments.Clear();
      r.socket.Leave();
      unmapped = true;
    }
    if (r.orphaned.load()) {
      delete this;
      return;
    }
  }
}

bool Attachment::ConfirmLost() {
  if (!lost() && resources_->socket.HungUp(kHangUpWait)) MarkLost();
  return lost();
}

std::string_view Attachment::TierName(std::uint32_t tier) const {
  return tier < share::kMaxTiers ? std::string_view(resources_->tier_names[tier])
                                 : std::string_view();
}

MemoryRpc& Attachment::rpc() { return *resources_->rpc; }
CallWindow& Attachment::calls() { return resources_->calls; }

void Attachment::EndPinningCall(std::uint64_t call_id, bool ok) {
  Resources& r = *resources_;
  r.calls.End(call_id, ok);
  if (ok) return;
  std::lock_guard lock(r.releaser_mutex);
  // Should it not start now, the next call that owes a release tries again.
  if (!r.closed && !r.releaser.joinable())
    r.releaser = StartQuietThread([this] { SendReleases(); });
}

// One at a time and until each succeeded; a lost attachment owes nothing, for its pins died with
// the daemon or are reaped with the process.
void Attachment::SendReleases() {
  Resources& r = *resources_;
  Duration pause = kReleasePauseMin;
  while (const std::optional<CallWindow::Ids> owed = r.calls.WaitForOwed()) {
    absl::Status status;
    if (!lost()) {
      v1::ReleaseRequest request;
      v1::ReleaseResponse response;
      request.set_call_id(owed->call_id);
      request.set_oldest_live_call_id(owed->oldest_live_call_id);
      status = r.rpc->Call(request, response, After(kReleaseTimeout));
      if (ReasonOf(status) == Reason::kUnknownSession) MarkLost();
    }
    if (status.ok() || lost()) {
      r.calls.Released(owed->call_id);
      pause = kReleasePauseMin;
      continue;
    }
    if (!r.calls.Pause(pause)) return;
    pause = std::min<Duration>(pause * 2, kReleasePauseMax);
  }
}

// --- pins ---------------------------------------------------------------------------------------

Tensor Attachment::MakeTensor(const std::shared_ptr<Attachment>& self, std::uint64_t handle,
                              Bytes bytes) {
  Tensor tensor;
  tensor.attachment_ = self;
  tensor.handle_ = handle;
  tensor.size_ = bytes;
  return tensor;
}

std::byte* Attachment::PullAndResolve(const Place& place) {
  return Reach(place, After(kPullTimeout)).value_or(nullptr);
}

absl::StatusOr<Pin> Attachment::Adopt(std::uint64_t handle, const Place& place,
                                      TimePoint deadline) {
  const Handle tensor = Handle::Unpack(handle);
  if (tensor.slot >= max_tensors_) return ProtocolError("answered a handle beyond its table");
  pins_.Add(1);
  const absl::StatusOr<std::byte*> data =
      lost() ? absl::StatusOr<std::byte*>(GoneError()) : Reach(place, deadline);
  if (!data.ok()) {
    Unpin(tensor.slot);
    return data.status();
  }
  Pin pin;
  Fill(pin, tensor.slot, *data, place);
  return pin;
}

Pin Attachment::Another(const Pin& pin) {
  pins_.Add(1);
  words_[pin.slot_].fetch_add(share::kPinOne, std::memory_order_seq_cst);
  Pin out;
  out.attachment_ = this;
  out.data_ = pin.data_;
  out.size_ = pin.size_;
  out.slot_ = pin.slot_;
  out.tier_ = pin.tier_;
  return out;
}

void Attachment::GiveBack(std::uint64_t handle) {
  const Handle tensor = Handle::Unpack(handle);
  if (tensor.slot < max_tensors_) share::Unpin(words_[tensor.slot]);
}

absl::StatusOr<std::byte*> Attachment::Reach(const Place& place, TimePoint deadline) {
  const SegmentMap::Segment* segment = segments_->Find(place.segment);
  if (segment == nullptr) {
    HMM_ASSIGN_OR_RETURN(segment, Pull(place.segment, deadline));
  }
  std::byte* data = SegmentMap::Resolve(*segment, place.offset, place.bytes);
  if (data == nullptr) return ProtocolError("answered a location beyond its segment");
  return data;
}

absl::StatusOr<const SegmentMap::Segment*> Attachment::Pull(SegmentId segment, TimePoint deadline) {
  Resources& r = *resources_;
  std::lock_guard lock(r.pull_mutex);
  // Another thread may have pulled it while we waited.
  if (const SegmentMap::Segment* found = r.segments.Find(segment)) return found;
  absl::StatusOr<SessionSocket::Grant> grant =
      r.socket.PullSegment(segment, std::min(deadline, After(kPullTimeout)));
  if (!grant.ok()) {
    if (ReasonOf(grant.status()) != Reason::kNoDaemon) return grant.status();
    MarkLost();
    return GoneError();
  }
  HMM_ASSIGN_OR_RETURN(share::Mapping mapping, MapChecked(grant->fd.get(), grant->bytes,
                                                          share::Mapping::Access::kReadWrite));
  return r.segments.Add(segment, std::move(mapping));
}

}  // namespace hmm::client_internal
