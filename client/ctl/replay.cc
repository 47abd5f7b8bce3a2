// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/replay.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "client/ctl/pattern.h"

namespace hmm::ctl {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::size_t kBatchMax = 4096;  // elements of one call, less once a daemon took fewer
constexpr milliseconds kRetryFirst{2};   // where the answer names no delay

SteadyTime Now() { return std::chrono::steady_clock::now(); }

std::uint64_t MicrosSince(SteadyTime start) {
  return static_cast<std::uint64_t>(duration_cast<microseconds>(Now() - start).count());
}

// Sleeps until `when`; false as soon as a stop is asked for.
bool SleepUntil(const std::stop_token& stop, SteadyTime when) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_until(lock, stop, when, [] { return false; });
  return !stop.stop_requested();
}

// No room now, and waiting may help (an allocation waits to its deadline); everything else is an
// error or the key being taken.
bool IsNoRoom(const absl::Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  if (reason == Reason::kFull || reason == Reason::kPinned || reason == Reason::kQuota ||
      reason == Reason::kNoMemory || reason == Reason::kQueueFull || reason == Reason::kDraining) {
    return true;
  }
  return absl::IsDeadlineExceeded(status) || (!reason && absl::IsResourceExhausted(status));
}

bool IsTaken(const absl::Status& status) { return absl::IsAlreadyExists(status); }

}  // namespace

std::string BlockKey(const ReplayOptions& options, std::uint64_t block) {
  return absl::StrCat(options.key_prefix, "/", options.seed, "/", options.block_bytes, "/", block);
}

TierKind KindOfTier(const ReplayOptions& options, std::string_view name) {
  if (const auto it = options.tier_kinds.find(std::string(name)); it != options.tier_kinds.end()) {
    return it->second;
  }
  for (const TierKind kind : {TierKind::kHbm, TierKind::kFlash}) {
    if (name.starts_with(TierKindName(kind))) return kind;
  }
  return TierKind::kDdr;
}

// One thread's server. All its pins live inside Serve.
class Replayer::Server {
 public:
  Server(Replayer& owner, std::stop_token stop)
      : options_(owner.options_), store_(owner.store_), owner_(owner), stop_(std::move(stop)) {
    const std::uint64_t blocks = options_.window_bytes / options_.block_bytes;
    window_ = static_cast<std::size_t>(std::clamp<std::uint64_t>(blocks, 1, kBatchMax));
  }

  void Serve(const TraceRequest& request) {
    const std::vector<std::uint64_t> blocks = request.Blocks();
    const std::uint64_t errors = tally_.errors;
    ++tally_.requests;
    tally_.accesses += blocks.size();
    const std::size_t run = ReadRun(blocks);
    tally_.misses += blocks.size() - run;
    WriteRest(blocks, run);
    if (tally_.errors == errors) TouchAll(blocks);
  }

  const ReplayTally& tally() const { return tally_; }
  void Interrupt() { tally_.interrupted = true; }

 private:
  // Phase 1: the leading run. Returns its length.
  std::size_t ReadRun(const std::vector<std::uint64_t>& blocks) {
    std::size_t run = 0;
    std::uint64_t us = 0;
    while (run < blocks.size()) {
      const std::size_t asked = std::min(window_, blocks.size() - run);
      const std::vector<std::string> keys = Keys(blocks, run, asked);
      const SteadyTime start = Now();
      absl::StatusOr<std::vector<FoundBlock>> found = store_.Lookup(keys, options_.call_timeout);
      us += MicrosSince(start);
      if (ReasonOf(found.status()) == Reason::kBatchTooLarge && asked > 1) {
        // Before anything else is asked: windows that are written are no longer than this.
        window_ = batch_ = asked / 2;
        continue;
      }
      if (!Count("Lookup", found.status())) break;
      for (std::size_t i = 0; i < found->size() && i < asked; ++i) {
        Verify(blocks[run + i], (*found)[i]);
      }
      run += std::min(found->size(), asked);
      if (found->size() < asked) break;
    }
    if (run > 0) tally_.hit_us.Add(us);
    return run;
  }

  void Verify(std::uint64_t block, const FoundBlock& found) {
    ++tally_.hits[static_cast<std::size_t>(KindOfTier(options_, found.tier)) - 1];
    const std::span<const std::byte> bytes = found.block->bytes();
    tally_.verified_bytes += bytes.size();
    const std::uint64_t wrong = CountWrongBytes({options_.seed, block}, bytes);
    tally_.wrong_bytes += wrong;
    if (wrong != 0 || bytes.size() != options_.block_bytes) {
      tally_.AddError(absl::StrCat("block ", block, " (found in ", found.tier, "): ", wrong, " of ",
                                   bytes.size(), " bytes are wrong, ", options_.block_bytes,
                                   " were written"));
    }
  }

  // Phase 2: what is missing, from the last window to the first. Within a batch the daemon itself
  // takes the first block for the one used last.
  void WriteRest(const std::vector<std::uint64_t>& blocks, std::size_t run) {
    if (run == blocks.size()) return;
    std::uint64_t us = 0;
    std::size_t end = blocks.size();
    while (end > run) {
      const std::size_t begin = end - std::min(window_, end - run);
      std::vector<std::uint64_t> window(blocks.begin() + static_cast<std::ptrdiff_t>(begin),
                                        blocks.begin() + static_cast<std::ptrdiff_t>(end));
      us += WriteWindow(std::move(window));
      end = begin;
    }
    tally_.miss_us.Add(us);
  }

  // Phase 3: the whole request was in use, its start last: so a cache loses ends of prefixes first,
  // and what it still holds is a leading run.
  void TouchAll(const std::vector<std::uint64_t>& blocks) {
    for (std::size_t end = blocks.size(); end > 0;) {
      const std::size_t begin = end - std::min(batch_, end);
      const absl::Status touched = store_.Touch(Keys(blocks, begin, end - begin));
      if (ReasonOf(touched) == Reason::kBatchTooLarge && end - begin > 1) {
        batch_ = (end - begin) / 2;
        continue;
      }
      Count("Touch", touched);
      end = begin;
    }
  }

  // Stores what it can, again for what finds no room, until retry_max is over. Returns the time
  // spent in calls.
  std::uint64_t WriteWindow(std::vector<std::uint64_t> window) {
    std::uint64_t us = 0;
    milliseconds wait = kRetryFirst;
    const SteadyTime give_up = Now() + options_.retry_max;
    for (;;) {
      std::optional<milliseconds> asked;
      window = WriteOnce(window, &us, &asked);
      if (window.empty()) return us;
      const SteadyTime again = Now() + asked.value_or(wait);
      wait = std::min(wait * 2, milliseconds(200));
      if (again > give_up || !SleepUntil(stop_, again)) {
        tally_.unstored += window.size();
        return us;
      }
    }
  }

  // Returns the blocks that found no room.
  std::vector<std::uint64_t> WriteOnce(const std::vector<std::uint64_t>& window, std::uint64_t* us,
                                       std::optional<milliseconds>* retry_after) {
    const SteadyTime start = Now();
    auto rooms = store_.Allocate(Keys(window, 0, window.size()), options_.block_bytes,
                                 std::min(options_.call_timeout, options_.retry_max));
    *us += MicrosSince(start);
    if (!rooms.ok()) {
      if (IsNoRoom(rooms.status())) {
        *retry_after = RetryAfter(rooms.status());
        return window;
      }
      Count("Allocate", rooms.status());
      return {};
    }
    std::vector<std::uint64_t> left;
    std::vector<std::unique_ptr<PinnedBlock>> filled;
    for (std::size_t i = 0; i < window.size() && i < rooms->size(); ++i) {
      absl::StatusOr<std::unique_ptr<PinnedBlock>>& room = (*rooms)[i];
      if (room.ok()) {
        FillPattern({options_.seed, window[i]}, (*room)->bytes());
        filled.push_back(std::move(*room));
      } else if (IsTaken(room.status())) {
        ++tally_.present;
      } else if (IsNoRoom(room.status())) {
        *retry_after = RetryAfter(room.status());
        left.push_back(window[i]);
      } else {
        Count("Allocate", room.status());
      }
    }
    if (!filled.empty()) *us += SealAll(std::move(filled));
    return left;
  }

  std::uint64_t SealAll(std::vector<std::unique_ptr<PinnedBlock>> filled) {
    const SteadyTime start = Now();
    absl::StatusOr<std::vector<absl::Status>> sealed = store_.Seal(std::move(filled));
    const std::uint64_t us = MicrosSince(start);
    if (!Count("Seal", sealed.status())) return us;
    for (const absl::Status& status : *sealed) {
      if (Count("Seal", status)) ++tally_.stored;
    }
    return us;
  }

  std::vector<std::string> Keys(const std::vector<std::uint64_t>& blocks, std::size_t begin,
                                std::size_t count) const {
    std::vector<std::string> keys;
    keys.reserve(count);
    for (std::size_t i = begin; i < begin + count; ++i)
      keys.push_back(BlockKey(options_, blocks[i]));
    return keys;
  }

  // Counts an unexpected status; true when it is OK.
  bool Count(const char* what, const absl::Status& status) {
    if (status.ok()) {
      owner_.errors_in_a_row_.store(0, std::memory_order_relaxed);
      return true;
    }
    // The library has tried to attach again for its whole time-out: no use in asking once more.
    const bool gone = ReasonOf(status) == Reason::kNoDaemon;
    owner_.errors_in_a_row_.fetch_add(gone ? options_.errors_in_a_row_max : 1,
                                      std::memory_order_relaxed);
    tally_.AddError(absl::StrCat(what, ": ", std::string(status.message())));
    return false;
  }

  const ReplayOptions& options_;
  BlockStore& store_;
  Replayer& owner_;
  const std::stop_token stop_;
  std::size_t window_ = 1;         // blocks pinned at a time
  std::size_t batch_ = kBatchMax;  // elements of one call
  ReplayTally tally_;
};

Replayer::Replayer(const Trace& trace, ReplayOptions options, BlockStore& store)
    : trace_(trace), options_(std::move(options)), store_(store) {
  HMM_CHECK(options_.block_bytes > 0 && options_.threads > 0 && options_.parts > 0);
  std::size_t requests = trace_.requests.size();
  if (options_.requests_max != 0) requests = std::min(requests, options_.requests_max);
  total_ = requests <= options_.part
               ? 0
               : (requests - options_.part + options_.parts - 1) / options_.parts;
}

ReplayTally Replayer::Run(const std::stop_token& stop) {
  const SteadyTime start = Now();
  std::mutex mutex;
  ReplayTally all;  // guarded by mutex
  const auto serve = [&] {
    Server server(*this, stop);
    for (std::size_t i = next_++; i < total_; i = next_++) {
      const TraceRequest& request = trace_.requests[options_.part + i * options_.parts];
      bool go = !stop.stop_requested();
      if (go && options_.speed > 0) {
        const std::chrono::duration<double, std::micro> arrival(
            static_cast<double>(request.time_us) / options_.speed);
        go = SleepUntil(stop, start + duration_cast<std::chrono::nanoseconds>(arrival));
      }
      if (!go || errors_in_a_row_.load(std::memory_order_relaxed) >= options_.errors_in_a_row_max) {
        server.Interrupt();
        break;
      }
      server.Serve(request);
      done_.fetch_add(1, std::memory_order_relaxed);
    }
    const std::lock_guard lock(mutex);
    all.Merge(server.tally());
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < options_.threads; ++i) threads.emplace_back(serve);
    serve();
  }
  return all;
}

}  // namespace hmm::ctl
