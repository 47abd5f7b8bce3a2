// SPDX-License-Identifier: Apache-2.0
//
// libfaulty_file.so: see faulty_file.h. Preloaded, so it knows nothing of the process it is in and
// depends on nothing but the C library.
#include "fault/faulty_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

using hmm::testing::Fault;
using hmm::testing::FaultControl;

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

FaultControl* Control() {
  static FaultControl* const control = []() -> FaultControl* {
    const char* path = std::getenv("FAULTY_CONTROL");
    if (path == nullptr) return nullptr;
    const int fd = Next<int (*)(const char*, int, ...)>("open")(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* memory = ::mmap(nullptr, sizeof(FaultControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<FaultControl*>(memory);
  }();
  return control;
}

// Descriptors of the file; small numbers, as a daemon that has just started has.
constexpr int kDescriptors = 1024;
std::atomic<bool> meant[kDescriptors];

void Opened(const char* path, int fd) {
  if (fd < 0 || fd >= kDescriptors) return;
  const char* suffix = std::getenv("FAULTY_FILE");
  const std::string_view name(path);
  meant[fd] = suffix != nullptr && name.size() >= std::strlen(suffix) &&
              name.substr(name.size() - std::strlen(suffix)) == suffix;
}

// What to do about this call; kNone for most.
Fault Strike(int fd) {
  FaultControl* control = Control();
  if (control == nullptr || fd < 0 || fd >= kDescriptors || !meant[fd]) return Fault::kNone;
  std::uint64_t at = control->calls.fetch_add(1) + control->seed * 0x9E3779B97F4A7C15u;
  at = (at ^ (at >> 31)) * 0xBF58476D1CE4E5B9u;
  at ^= at >> 29;
  if (at % 1000 >= control->per_mille) return Fault::kNone;
  const auto fault = static_cast<Fault>(control->fault.load());
  if (fault != Fault::kNone) ++control->struck;
  if (fault == Fault::kDelay) ::usleep(static_cast<useconds_t>(at % 20'000));
  if (fault == Fault::kHang) {
    ++control->hanging;
    while (static_cast<Fault>(control->fault.load()) == Fault::kHang) ::usleep(1000);
    --control->hanging;
  }
  return fault;
}

std::size_t Shorter(std::size_t bytes) {
  constexpr std::size_t kUnit = 4096;
  return bytes > kUnit ? std::max<std::size_t>(bytes / 2 / kUnit * kUnit, kUnit) : bytes;
}

// A file whose every read and write ends as `name` has it; opened once.
int Redirect(const char* name, int flags) {
  return Next<int (*)(const char*, int, ...)>("open")(name, flags | O_CLOEXEC);
}

// One operation that is prepared, before the kernel sees it.
void StrikeEntry(io_uring_sqe& entry) {
  const bool read = entry.opcode == IORING_OP_READ;
  if (!read && entry.opcode != IORING_OP_WRITE) return;
  FaultControl* const control = Control();
  if (control != nullptr && entry.fd >= 0 && entry.fd < kDescriptors && meant[entry.fd]) {
    ++control->ring_calls;
  }
  // Memory that is not there: EIO, for the file's offsets lie below any mapping.
  static const int nowhere = Redirect("/proc/self/mem", O_RDWR);
  static const int full = Redirect("/dev/full", O_WRONLY);
  static const int zero = Redirect("/dev/zero", O_RDWR);  // writes claim success
  switch (Strike(entry.fd)) {
    case Fault::kFail:
      entry.fd = nowhere;
      break;
    case Fault::kNoSpace:
      if (!read) entry.fd = full;
      break;
    case Fault::kShort:
      entry.len = static_cast<std::uint32_t>(Shorter(entry.len));
      break;
    case Fault::kCorrupt:
      if (read) entry.fd = zero;
      break;
    case Fault::kLie:
      if (!read) entry.fd = zero;
      break;
    default:
      break;
  }
}

void StrikePrepared(io_uring* ring) {
  for (unsigned at = ring->sq.sqe_head; at != ring->sq.sqe_tail; ++at) {
    StrikeEntry(ring->sq.sqes[at & ring->sq.ring_mask]);
  }
}

ssize_t Read(ssize_t (*real)(int, void*, size_t, off_t), int fd, void* to, size_t bytes,
             off_t offset) {
  const Fault fault = Strike(fd);
  if (fault == Fault::kFail) return errno = EIO, -1;
  if (fault == Fault::kShort) bytes = Shorter(bytes);
  const ssize_t done = real(fd, to, bytes, offset);
  if (fault == Fault::kCorrupt && done > 0) static_cast<char*>(to)[done / 3] ^= 0x10;
  return done;
}

ssize_t Write(ssize_t (*real)(int, const void*, size_t, off_t), int fd, const void* from,
              size_t bytes, off_t offset) {
  const Fault fault = Strike(fd);
  switch (fault) {
    case Fault::kFail:
      return errno = EIO, -1;
    case Fault::kNoSpace:
      return errno = ENOSPC, -1;
    case Fault::kShort:
      return real(fd, from, Shorter(bytes), offset);
    case Fault::kLie:
      return static_cast<ssize_t>(bytes);
    case Fault::kTorn:
      (void)real(fd, from, Shorter(bytes), offset);
      return static_cast<ssize_t>(bytes);
    default:
      return real(fd, from, bytes, offset);
  }
}

}  // namespace

extern "C" {

// The daemon opens its files with a mode, always: a third argument may be read.
#define FAULTY_OPEN(name)                                                             \
  __attribute__((visibility("default"))) int name(const char* path, int flags, ...) { \
    va_list more;                                                                     \
    va_start(more, flags);                                                            \
    const mode_t mode = va_arg(more, mode_t);                                         \
    va_end(more);                                                                     \
    static const auto real = Next<int (*)(const char*, int, ...)>(#name);             \
    const int fd = real(path, flags, mode);                                           \
    Opened(path, fd);                                                                 \
    return fd;                                                                        \
  }
FAULTY_OPEN(open)
FAULTY_OPEN(open64)

__attribute__((visibility("default"))) ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  static const auto real = Next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return Read(real, fd, to, bytes, offset);
}
__attribute__((visibility("default"))) ssize_t pread64(int fd, void* to, size_t bytes,
                                                       off64_t offset) {
  static const auto real = Next<ssize_t (*)(int, void*, size_t, off_t)>("pread64");
  return Read(real, fd, to, bytes, offset);
}
__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void* from, size_t bytes,
                                                      off_t offset) {
  static const auto real = Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return Write(real, fd, from, bytes, offset);
}
__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void* from, size_t bytes,
                                                        off64_t offset) {
  static const auto real = Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite64");
  return Write(real, fd, from, bytes, offset);
}

// All that the ring submits with.
__attribute__((visibility("default"))) int io_uring_submit_and_wait(io_uring* ring, unsigned wait) {
  static const auto real = Next<int (*)(io_uring*, unsigned)>("io_uring_submit_and_wait");
  StrikePrepared(ring);
  return real(ring, wait);
}
__attribute__((visibility("default"))) int io_uring_submit_and_wait_timeout(
    io_uring* ring, io_uring_cqe** first, unsigned wait, __kernel_timespec* bound, sigset_t* mask) {
  using Submit = int (*)(io_uring*, io_uring_cqe**, unsigned, __kernel_timespec*, sigset_t*);
  static const auto real = Next<Submit>("io_uring_submit_and_wait_timeout");
  StrikePrepared(ring);
  return real(ring, first, wait, bound, mask);
}
__attribute__((visibility("default"))) int io_uring_submit_and_get_events(io_uring* ring) {
  static const auto real = Next<int (*)(io_uring*)>("io_uring_submit_and_get_events");
  StrikePrepared(ring);
  return real(ring);
}

}  // extern "C"
