// SPDX-License-Identifier: Apache-2.0
#include "copy/uring.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "share/memory_file.h"

namespace hmm::copy {
namespace {

absl::Status Refused(int error) {
  std::string why = std::strerror(error);
  int disabled = 0;
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");  // since Linux 6.6
  if (error == EPERM && file >> disabled && disabled > 0) {
    absl::StrAppend(&why, " (kernel.io_uring_disabled is ", disabled, ")");
  } else if (error == ENOMEM) {
    absl::StrAppend(&why, " (before Linux 5.12 a ring counts against the locked memory limit)");
  }
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRefused,
               absl::StrCat("io_uring refused: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Uring>> Uring::Create(unsigned entries) {
  std::unique_ptr<Uring> uring(new Uring);
  // Completions are worked off when this thread asks for them and do not interrupt it (Linux 6.1).
  constexpr unsigned kFlags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  int result = io_uring_queue_init(entries, &uring->ring_, kFlags);
  if (result == -EINVAL) result = io_uring_queue_init(entries, &uring->ring_, 0);
  if (result < 0) return Refused(-result);
  uring->open_ = true;
  HMM_RETURN_IF_ERROR(uring->TryRead());
  return uring;
}

Uring::~Uring() {
  if (open_) io_uring_queue_exit(&ring_);
}

absl::Status Uring::TryRead() {
  const share::UniqueFd event(eventfd(1, EFD_CLOEXEC));
  if (!event.valid()) return PosixError("eventfd", errno);
  std::uint64_t value = 0;
  PrepareRead(event.get(), &value, sizeof value, 0, 0);
  const int submitted = io_uring_submit_and_wait(&ring_, 1);
  // What was not submitted goes with the ring; what was has ended: the value is there to be read.
  if (submitted < 0) return Refused(-submitted);
  std::int32_t result = 0;
  Reap([&](std::uint64_t, std::int32_t got) { result = got; });
  if (result != sizeof value) return Refused(result < 0 ? -result : EIO);
  return absl::OkStatus();
}

void Uring::PrepareRead(int fd, void* to, unsigned bytes, Bytes offset, std::uint64_t tag) {
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  HMM_CHECK(sqe != nullptr);
  io_uring_prep_read(sqe, fd, to, bytes, offset);
  io_uring_sqe_set_data64(sqe, tag);
}

void Uring::PrepareWrite(int fd, const void* from, unsigned bytes, Bytes offset,
                         std::uint64_t tag) {
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  HMM_CHECK(sqe != nullptr);
  io_uring_prep_write(sqe, fd, from, bytes, offset);
  io_uring_sqe_set_data64(sqe, tag);
}

void Uring::Submit(unsigned wait) {
  int result = 0;
  if (wait == 0) {
    result = io_uring_submit_and_get_events(&ring_);
  } else if (wait == 1 || (ring_.features & IORING_FEAT_EXT_ARG) == 0) {
    result = io_uring_submit_and_wait(&ring_, 1);
  } else {
    io_uring_cqe* first = nullptr;
    __kernel_timespec bound{.tv_sec = 0, .tv_nsec = 1'000'000};
    result = io_uring_submit_and_wait_timeout(&ring_, &first, wait, &bound, nullptr);
    if (result == -ETIME && io_uring_cq_ready(&ring_) == 0) {
      result = io_uring_submit_and_wait(&ring_, 1);
    }
  }
  if (result >= 0 || result == -EINTR || result == -ETIME) return;
  // The kernel lacks memory, or wants completions to be taken first. What is prepared stays so and
  // is submitted the next time.
  HMM_CHECK(result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
  if (io_uring_cq_ready(&ring_) > 0) return;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  nanosleep(&kPause, nullptr);
}

}  // namespace hmm::copy
