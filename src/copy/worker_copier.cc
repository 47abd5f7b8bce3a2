// SPDX-License-Identifier: Apache-2.0
//
// Submit (the executor's thread) looks up addresses and descriptors, a pool thread copies, the
// executor gets the completion. A job touches nothing but its two extents and one bounce buffer.
//
// With a file the copy goes in pieces of at most io_unit, straight or by the bounce buffer
// (copy/file_end.h). The checksum is over the pieces, never over the padding.
#include "copy/worker_copier.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "copy/file_end.h"
#include "copy/memory_copy.h"

namespace hmm::copy {
namespace {

// Reads `padded` bytes at `at` of the extent, of which the first `needed` must exist: a file may
// end inside the last unit. REQUIRES: `to` and `at` aligned to from.unit.
absl::Status ReadPiece(const End& from, Bytes at, std::byte* to, Bytes needed, Bytes padded) {
  Bytes done = 0;
  while (done < needed) {
    const Bytes offset = from.offset + at + done;
    const ssize_t n = ::pread(from.fd, to + done, padded - done, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      return ReadError(from, offset, std::strerror(error));
    }
    const auto got = static_cast<Bytes>(n);
    if (done + got >= needed) break;
    // What came of a broken unit is read again, so that the next read is aligned.
    const Bytes whole = RoundDown(got, from.unit);
    if (whole == 0) return ReadError(from, offset + got, "the file ends");
    done += whole;
  }
  return absl::OkStatus();
}

// REQUIRES: `from`, `at` and `bytes` aligned to to.unit.
absl::Status WritePiece(const End& to, Bytes at, const std::byte* from, Bytes bytes) {
  Bytes done = 0;
  while (done < bytes) {
    const Bytes offset = to.offset + at + done;
    const ssize_t n = ::pwrite(to.fd, from + done, bytes - done, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    const int error = n < 0 ? errno : EIO;
    const Bytes whole = n < 0 ? 0 : RoundDown(static_cast<Bytes>(n), to.unit);
    if (whole == 0) {
      return WriteError(to, offset, error);
    }
    done += whole;
  }
  return absl::OkStatus();
}

// A copy between memory and a file, or two files, under way on a pool thread.
class FileCopy {
 public:
  FileCopy(const End& from, const End& to, Bytes io_unit, bool hash, BufferPool& buffers)
      : from_(from), to_(to), io_unit_(io_unit), hash_(hash), buffers_(buffers) {}
  ~FileCopy() { buffers_.GiveBack(std::move(bounce_)); }
  FileCopy(const FileCopy&) = delete;
  FileCopy& operator=(const FileCopy&) = delete;

  absl::Status Run(Bytes bytes) {
    for (Bytes at = 0; at < bytes; at += io_unit_) {
      HMM_RETURN_IF_ERROR(Piece(at, std::min(io_unit_, bytes - at)));
    }
    return absl::OkStatus();
  }
  // REQUIRES: hash.
  std::uint64_t checksum() const { return checksum_.Digest(); }

 private:
  absl::Status Piece(Bytes at, Bytes bytes) {
    std::byte* buffer = StraightPiece(at, bytes);
    if (buffer == nullptr) {
      if (bounce_ == nullptr) bounce_ = buffers_.Take();
      if (bounce_ == nullptr) {
        return NoBounceBuffer(io_unit_);
      }
      buffer = bounce_.get();
    }
    // 1. Into the buffer, unless the source is the buffer.
    if (from_.file()) {
      HMM_RETURN_IF_ERROR(ReadPiece(from_, at, buffer, bytes, RoundUp(bytes, from_.unit)));
    } else if (buffer != from_.address + at) {
      std::memcpy(buffer, from_.address + at, bytes);
    }
    // 2. Hashed while it lies in the cache.
    if (hash_) checksum_.Add(buffer, bytes);
    // 3. Out of it, unless the target is the buffer.
    if (!to_.file()) {
      if (buffer != to_.address + at) std::memcpy(to_.address + at, buffer, bytes);
      return absl::OkStatus();
    }
    const Bytes padded = RoundUp(bytes, to_.unit);
    // A bounce buffer holds what an earlier job left: that must not reach the file.
    if (buffer == bounce_.get()) std::memset(buffer + bytes, 0, padded - bytes);
    return WritePiece(to_, at, buffer, padded);
  }

  // The piece's own memory if the file's I/O can use it; nullptr otherwise.
  std::byte* StraightPiece(Bytes at, Bytes bytes) const {
    if (from_.file() && to_.file()) return nullptr;
    return from_.file() ? Straight(to_, from_, at, bytes) : Straight(from_, to_, at, bytes);
  }

  const End& from_;
  const End& to_;
  const Bytes io_unit_;  // a multiple of kFilePage: pieces start where units start
  const bool hash_;
  BufferPool& buffers_;
  Buffer bounce_;
  PiecewiseChecksum checksum_;
};

class WorkerCopier final : public Copier {
 public:
  WorkerCopier(Executor& executor, const WorkerCopierOptions& options)
      : executor_(executor),
        io_unit_(std::max(kFilePage, RoundUp(options.io_unit, kFilePage))),
        buffers_(io_unit_),
        under_way_(options.under_way),
        pool_(std::max(1U, options.threads)) {}

  // thread_pool's own destructor would drop what still waits for a thread.
  ~WorkerCopier() override { pool_.join(); }

  void Submit(const CopyJob& job, CopyDone done) override {
    HMM_CHECK(job.from != nullptr && job.to != nullptr);
    HMM_CHECK(job.bytes <= job.source.length && job.bytes <= job.target.length);
    // Tiers are of the executor's thread: all that the pool needs of them is looked up here.
    End from = EndOf(*job.from, job.source);
    End to = EndOf(*job.to, job.target);
    if (under_way_ != nullptr) under_way_->Begin(SlowTier(from, to));
    boost::asio::post(pool_, [this, from = std::move(from), to = std::move(to), bytes = job.bytes,
                              expected = job.expected_checksum, done = std::move(done)]() mutable {
      CopyResult result = Copy(from, to, bytes, expected);
      if (under_way_ != nullptr) under_way_->End(SlowTier(from, to));
      executor_.Post([done = std::move(done), result = std::move(result)]() mutable {
        std::move(done)(std::move(result));
      });
    });
  }

 private:
  CopyResult Copy(const End& from, const End& to, Bytes bytes,
                  const std::optional<std::uint64_t>& expected) {
    CopyResult result;
    const SteadyClock clock;
    const TimePoint start = clock.Now();
    std::uint64_t found = 0;
    if (from.file() || to.file()) {
      const bool hash = to.file() || expected.has_value();
      FileCopy copy(from, to, io_unit_, hash, buffers_);
      result.status = copy.Run(bytes);
      if (hash) found = copy.checksum();
    } else {
      CopyMemory(to.address, from.address, bytes);
      if (expected.has_value()) found = Checksum(to.address, bytes);
    }
    if (result.status.ok() && expected.has_value() && found != *expected) {
      result.status = Mismatch(from, *expected, found);
    }
    if (result.status.ok() && to.file()) result.checksum = found;
    result.elapsed = clock.Now() - start;
    return result;
  }

  Executor& executor_;
  const Bytes io_unit_;
  BufferPool buffers_;
  UnderWay* const under_way_;
  boost::asio::thread_pool pool_;  // last: its threads use all of the above
};

}  // namespace

std::unique_ptr<Copier> CreateWorkerCopier(Executor& executor, WorkerCopierOptions options) {
  return std::make_unique<WorkerCopier>(executor, options);
}

}  // namespace hmm::copy
