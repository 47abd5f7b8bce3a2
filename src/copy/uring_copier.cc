// SPDX-License-Identifier: Apache-2.0
//
//   Submit --> inbox --> queue of reads  --> slots (depth) --> landed --> hashed --> done posted
//              (mutex)   queue of writes       ^ ring ^                  (or hashed while it lands)
//
// A job is in one of the queues while it has pieces that are in no slot. It ends when all its
// pieces have landed and are hashed, or, after its first error, when none is in a slot any more:
// until then the kernel may touch its extents. Everything below but the inbox is the ring thread's.
#include "copy/uring_copier.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "copy/file_end.h"
#include "copy/memory_copy.h"
#include "copy/uring.h"
#include "share/memory_file.h"

namespace hmm::copy {
namespace {

constexpr unsigned kDepthMax = 4096;
constexpr Bytes kIoUnitMax = 1 * kGiB;
// Hashed at a time, between two looks at what has ended: some 20 us.
constexpr Bytes kHashUnit = 256 * kKiB;
// An I/O that the kernel interrupts or has no memory for is tried again, so often.
constexpr int kRetriesMax = 100;
constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};

struct Job {
  End from;
  End to;
  Bytes bytes = 0;
  std::optional<std::uint64_t> expected;
  CopyDone done;

  absl::Status status;
  TimePoint start{};        // of the first piece
  Bytes issued = 0;         // pieces below it have been in a slot
  unsigned open = 0;        // pieces in slots
  Bytes landed = 0;         // all below it has been carried
  std::deque<bool> beyond;  // of the pieces from `landed` on: has it?
  bool hash = false;
  bool hashing = false;  // in the queue of what is to be hashed
  Bytes hashed = 0;
  PiecewiseChecksum checksum;

  bool both_files() const { return from.file() && to.file(); }
  // Between two files a piece is hashed in its bounce buffer: one at a time, so in order.
  bool MayIssue() const { return status.ok() && issued < bytes && !(both_files() && open > 0); }
  // What can be hashed in the job's own memory: a source from the moment that it is written, a
  // target as far as it has been read.
  Bytes hashable() const {
    if (!hash || !status.ok() || both_files()) return hashed;
    return from.file() ? landed : issued;
  }
};
using JobPtr = std::unique_ptr<Job>;

// A piece under way.
struct Slot {
  Job* job = nullptr;
  Bytes at = 0;  // in the job
  Bytes bytes = 0;
  bool write = false;
  std::byte* buffer = nullptr;
  Buffer bounce;
  Bytes carried = 0;
  int retries = 0;

  const End& file() const { return write ? job->to : job->from; }
  Bytes padded() const { return RoundUp(bytes, file().unit); }
};

class UringCopier final : public Copier {
 public:
  UringCopier(Executor& executor, UringCopierOptions options, share::UniqueFd wake)
      : executor_(executor),
        io_unit_(std::clamp(RoundUp(std::min(options.io_unit, kIoUnitMax), kFilePage), kFilePage,
                            kIoUnitMax)),
        under_way_(options.under_way),
        on_result_(std::move(options.on_result)),
        wake_(std::move(wake)),
        buffers_(io_unit_),
        slots_(std::clamp(options.depth, 1U, kDepthMax)) {
    for (std::size_t i = slots_.size(); i > 0; --i) free_slots_.push_back(i - 1);
  }
  ~UringCopier() override;

  absl::Status Start();
  void Submit(const CopyJob& job, CopyDone done) override;

 private:
  // Any thread.
  void Wake();

  // The ring's thread.
  void Run();
  void TakeInbox();
  bool MaySleep();
  unsigned Patience() const;
  void Issue();
  absl::Status IssueOne(Job& job);
  void Prepare(std::size_t index);
  void OnEnded(std::uint64_t tag, std::int32_t result);
  void OnIo(Slot& slot, std::size_t index, std::int32_t result);
  absl::Status Progress(Slot& slot, std::int32_t result, bool& again);
  void OnLanded(Slot& slot, std::size_t index);
  void Leave(Slot& slot, std::size_t index);
  void HashSome();
  void WantHash(Job& job);
  void EndIfDone(Job& job);
  std::deque<Job*>& QueueOf(const Job& job) { return job.from.file() ? reads_ : writes_; }

  Executor& executor_;
  const Bytes io_unit_;
  UnderWay* const under_way_;
  absl::AnyInvocable<std::int32_t(const UringIo&, std::int32_t)> on_result_;
  const SteadyClock clock_;
  share::UniqueFd wake_;

  std::mutex mutex_;
  std::vector<JobPtr> inbox_;  // under mutex_
  bool stopping_ = false;      // under mutex_
  // Under mutex_. The ring's thread sleeps, or is about to, and has slots for more: wake it. With
  // all slots taken the next that lands does, and a wake is dear.
  bool waits_for_jobs_ = false;

  std::unique_ptr<Uring> ring_;
  BufferPool buffers_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_slots_;
  std::deque<Job*> reads_;
  std::deque<Job*> writes_;
  bool writes_next_ = false;
  std::deque<Job*> to_hash_;
  std::size_t jobs_ = 0;          // taken from the inbox, not ended
  std::uint64_t wake_value_ = 0;  // the kernel's while armed_
  bool armed_ = false;
  bool ending_ = false;

  std::thread thread_;
};

UringCopier::~UringCopier() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

absl::Status UringCopier::Start() {
  std::promise<absl::Status> started;
  try {
    thread_ = std::thread([this, &started] {
      pthread_setname_np(pthread_self(), "hmmd-ring");
      // One more than the pieces: the read of wake_.
      auto ring = Uring::Create(static_cast<unsigned>(slots_.size()) + 1);
      if (ring.ok()) ring_ = *std::move(ring);
      const bool runs = ring_ != nullptr;
      started.set_value(ring.status());
      if (runs) Run();
      ring_.reset();
    });
  } catch (const std::system_error& error) {
    return PosixError("starting a thread", error.code().value());
  }
  absl::Status status = started.get_future().get();
  if (!status.ok()) thread_.join();
  return status;
}

void UringCopier::Submit(const CopyJob& job, CopyDone done) {
  HMM_CHECK(job.from != nullptr && job.to != nullptr);
  HMM_CHECK(!job.from->mappable() || !job.to->mappable());
  HMM_CHECK(job.bytes <= job.source.length && job.bytes <= job.target.length);
  auto entry = std::make_unique<Job>();
  // Tiers are of the executor's thread: all that the ring's needs of them is looked up here.
  entry->from = EndOf(*job.from, job.source);
  entry->to = EndOf(*job.to, job.target);
  entry->bytes = job.bytes;
  entry->expected = job.expected_checksum;
  entry->done = std::move(done);
  if (under_way_ != nullptr) under_way_->Begin(SlowTier(entry->from, entry->to));
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(entry));
    wake = std::exchange(waits_for_jobs_, false);
  }
  if (wake) Wake();
}

void UringCopier::Wake() {
  constexpr std::uint64_t kOne = 1;
  while (::write(wake_.get(), &kOne, sizeof kOne) < 0 && errno == EINTR) {
  }
}

void UringCopier::Run() {
  while (true) {
    TakeInbox();
    if (!armed_ && !ending_) {
      ring_->PrepareRead(wake_.get(), &wake_value_, sizeof wake_value_, 0, kWakeTag);
      armed_ = true;
    }
    Issue();
    if (ending_ && jobs_ == 0 && !armed_) return;
    ring_->Submit(MaySleep() ? Patience() : 0);
    HashSome();  // after Submit: the drive is busy again meanwhile
    ring_->Reap([this](std::uint64_t tag, std::int32_t result) { OnEnded(tag, result); });
  }
}

void UringCopier::TakeInbox() {
  std::vector<JobPtr> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(inbox_);
    ending_ = stopping_;
    waits_for_jobs_ = false;
  }
  for (JobPtr& entry : taken) {
    Job& job = *entry.release();  // EndIfDone deletes it
    ++jobs_;
    job.hash = job.to.file() || job.expected.has_value();
    if (job.MayIssue()) {
      QueueOf(job).push_back(&job);
    } else {
      EndIfDone(job);
    }
  }
}

bool UringCopier::MaySleep() {
  if (!to_hash_.empty()) return false;
  const std::lock_guard lock(mutex_);
  if (!inbox_.empty() && !free_slots_.empty()) return false;
  waits_for_jobs_ = !free_slots_.empty();
  return true;
}

// How much must end to wake this thread. While every slot is taken, an eighth of them: each wake,
// with that of the executor that follows, is dear against a small I/O, and the drive has enough to
// do. With a slot free a new job may come, which must not wait.
unsigned UringCopier::Patience() const {
  return free_slots_.empty() ? std::max(1U, static_cast<unsigned>(slots_.size() / 8)) : 1;
}

// Fills the slots, a piece of each queue in turn.
void UringCopier::Issue() {
  while (!free_slots_.empty() && !(reads_.empty() && writes_.empty())) {
    const bool write = reads_.empty() || (writes_next_ && !writes_.empty());
    writes_next_ = !write;
    std::deque<Job*>& queue = write ? writes_ : reads_;
    Job& job = *queue.front();
    job.status.Update(IssueOne(job));
    if (!job.MayIssue()) queue.pop_front();
    if (!job.status.ok()) EndIfDone(job);
  }
}

absl::Status UringCopier::IssueOne(Job& job) {
  const Bytes at = job.issued;
  const Bytes bytes = std::min(io_unit_, job.bytes - at);
  std::byte* buffer = nullptr;
  if (!job.both_files()) {
    buffer = job.from.file() ? Straight(job.to, job.from, at, bytes)
                             : Straight(job.from, job.to, at, bytes);
  }
  Buffer bounce;
  if (buffer == nullptr) {
    bounce = buffers_.Take();
    if (bounce == nullptr) return NoBounceBuffer(io_unit_);
    buffer = bounce.get();
  }
  const std::size_t index = free_slots_.back();
  free_slots_.pop_back();
  slots_[index] = Slot{.job = &job,
                       .at = at,
                       .bytes = bytes,
                       .write = !job.from.file(),
                       .buffer = buffer,
                       .bounce = std::move(bounce)};
  Slot& slot = slots_[index];
  if (at == 0) job.start = clock_.Now();
  job.issued += bytes;
  ++job.open;
  job.beyond.push_back(false);
  if (slot.write && slot.bounce != nullptr) {
    std::memcpy(buffer, job.from.address + at, bytes);
    // A bounce buffer holds what an earlier job left: that must not reach the file.
    std::memset(buffer + bytes, 0, slot.padded() - bytes);
  }
  Prepare(index);
  WantHash(job);
  return absl::OkStatus();
}

void UringCopier::Prepare(std::size_t index) {
  Slot& slot = slots_[index];
  const auto left = static_cast<unsigned>(slot.padded() - slot.carried);
  const Bytes offset = slot.file().offset + slot.at + slot.carried;
  if (slot.write) {
    ring_->PrepareWrite(slot.file().fd, slot.buffer + slot.carried, left, offset, index);
  } else {
    ring_->PrepareRead(slot.file().fd, slot.buffer + slot.carried, left, offset, index);
  }
}

void UringCopier::OnEnded(std::uint64_t tag, std::int32_t result) {
  if (tag == kWakeTag) {
    armed_ = false;
    return;
  }
  Slot& slot = slots_[tag];
  if (on_result_) {
    result = on_result_({.write = slot.write,
                         .buffer = slot.buffer + slot.carried,
                         .bytes = slot.padded() - slot.carried,
                         .offset = slot.file().offset + slot.at + slot.carried},
                        result);
  }
  OnIo(slot, tag, result);
}

void UringCopier::OnIo(Slot& slot, std::size_t index, std::int32_t result) {
  bool again = false;
  if (absl::Status status = Progress(slot, result, again); !status.ok()) {
    slot.job->status.Update(status);
    std::erase(QueueOf(*slot.job), slot.job);  // the rest of it is not begun
    Leave(slot, index);
  } else if (again && slot.job->status.ok()) {
    Prepare(index);
  } else if (again) {
    Leave(slot, index);  // the job has failed elsewhere
  } else {
    OnLanded(slot, index);
  }
}

// What the result of an I/O means: an error, more to do (`again`), or the piece is carried.
absl::Status UringCopier::Progress(Slot& slot, std::int32_t result, bool& again) {
  const End& file = slot.file();
  const Bytes offset = file.offset + slot.at + slot.carried;
  again = true;
  if (result == -EINTR || result == -EAGAIN) {
    if (++slot.retries <= kRetriesMax) return absl::OkStatus();
  }
  if (result < 0) {
    return slot.write ? WriteError(file, offset, -result)
                      : ReadError(file, offset, std::strerror(-result));
  }
  const auto got = static_cast<Bytes>(result);
  // A file may end inside the last unit; what is written is whole units.
  if (slot.carried + got >= (slot.write ? slot.padded() : slot.bytes)) {
    again = false;
    return absl::OkStatus();
  }
  // What came of a broken unit is carried again, so that the next I/O is aligned.
  const Bytes whole = RoundDown(got, file.unit);
  if (whole == 0) {
    return slot.write ? WriteError(file, offset, EIO)
                      : ReadError(file, offset + got, "the file ends");
  }
  slot.carried += whole;
  return absl::OkStatus();
}

void UringCopier::OnLanded(Slot& slot, std::size_t index) {
  Job& job = *slot.job;
  if (job.both_files() && !slot.write) {
    // Read; now the same buffer is written.
    if (job.hash) job.checksum.Add(slot.buffer, slot.bytes);
    job.hashed += slot.bytes;
    slot.write = true;
    slot.carried = 0;
    slot.retries = 0;
    std::memset(slot.buffer + slot.bytes, 0, slot.padded() - slot.bytes);
    Prepare(index);
    return;
  }
  if (!slot.write && slot.bounce != nullptr) {
    std::memcpy(job.to.address + slot.at, slot.buffer, slot.bytes);
  }
  job.beyond[(slot.at - job.landed) / io_unit_] = true;
  while (!job.beyond.empty() && job.beyond.front()) {
    job.beyond.pop_front();
    job.landed = std::min(job.bytes, job.landed + io_unit_);
  }
  Leave(slot, index);
}

// The kernel is done with the piece.
void UringCopier::Leave(Slot& slot, std::size_t index) {
  Job& job = *slot.job;
  buffers_.GiveBack(std::move(slot.bounce));
  slot.job = nullptr;
  free_slots_.push_back(index);
  --job.open;
  if (job.both_files() && job.MayIssue()) reads_.push_front(&job);
  WantHash(job);
  EndIfDone(job);
}

void UringCopier::WantHash(Job& job) {
  if (job.hashing || job.hashable() == job.hashed) return;
  job.hashing = true;
  to_hash_.push_back(&job);
}

void UringCopier::HashSome() {
  if (to_hash_.empty()) return;
  Job& job = *to_hash_.front();
  if (const Bytes bytes = std::min(kHashUnit, job.hashable() - job.hashed); bytes > 0) {
    const std::byte* const memory = job.from.file() ? job.to.address : job.from.address;
    job.checksum.Add(memory + job.hashed, bytes);
    job.hashed += bytes;
  }
  if (job.hashable() > job.hashed) return;
  to_hash_.pop_front();
  job.hashing = false;
  EndIfDone(job);
}

void UringCopier::EndIfDone(Job& job) {
  if (job.open > 0 || job.hashing) return;
  if (job.status.ok() && (job.landed < job.bytes || (job.hash && job.hashed < job.bytes))) return;
  const JobPtr ended(&job);
  --jobs_;
  CopyResult result;
  result.status = std::move(job.status);
  const std::uint64_t found = job.hash ? job.checksum.Digest() : 0;
  if (result.status.ok() && job.expected.has_value() && found != *job.expected) {
    result.status = Mismatch(job.from, *job.expected, found);
  }
  if (result.status.ok() && job.to.file()) result.checksum = found;
  if (job.issued > 0) result.elapsed = clock_.Now() - job.start;
  if (under_way_ != nullptr) under_way_->End(SlowTier(job.from, job.to));
  executor_.Post([done = std::move(job.done), result = std::move(result)]() mutable {
    std::move(done)(std::move(result));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Copier>> CreateUringCopier(Executor& executor,
                                                          UringCopierOptions options) {
  share::UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake.valid()) return PosixError("eventfd", errno);
  auto copier = std::make_unique<UringCopier>(executor, std::move(options), std::move(wake));
  HMM_RETURN_IF_ERROR(copier->Start());
  return copier;
}

}  // namespace hmm::copy
