// SPDX-License-Identifier: Apache-2.0
//
// One io_uring: prepare reads and writes, submit all that is prepared in one call, look at what has
// ended. Made, used and destroyed on one thread. Nothing is ever registered with it (design: pages
// that are registered and then punched would take I/O that nobody sees). Internal to copy/.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::copy {

class Uring {
 public:
  // Room for `entries` operations under way. Proves that the system takes a read: setting up is
  // allowed in places where entering is not. Refused (kernel.io_uring_disabled, a system call
  // filter, the locked memory limit, an old kernel): FAILED_PRECONDITION/REFUSED, which says
  // why.
  static absl::StatusOr<std::unique_ptr<Uring>> Create(unsigned entries);
  // REQUIRES: nothing under way.
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // REQUIRES: fewer than `entries` under way. `tag` comes back with the result.
  void PrepareRead(int fd, void* to, unsigned bytes, Bytes offset, std::uint64_t tag);
  void PrepareWrite(int fd, const void* from, unsigned bytes, Bytes offset, std::uint64_t tag);

  // Submits all that is prepared, and waits until `wait` operations have ended, or the kernel has
  // no memory to take more now. Beyond the first it waits for a millisecond at most.
  void Submit(unsigned wait);

  // Calls `visit(tag, result)` for each operation that has ended: bytes, or -errno. It may prepare
  // new ones.
  template <typename Visit>
  void Reap(Visit visit) {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const std::uint64_t tag = cqe->user_data;
      const std::int32_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);  // first: `visit` may need its place
      visit(tag, result);
    }
  }

 private:
  Uring() = default;
  absl::Status TryRead();

  io_uring ring_{};
  bool open_ = false;
};

}  // namespace hmm::copy
