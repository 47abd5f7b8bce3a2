// SPDX-License-Identifier: Apache-2.0
//
// Errors. What a caller can react to is an absl::Status; what only a programmer can fix is
// HMM_CHECK (base/check.h); our code throws nothing. Codes equal gRPC's by number. Every error that
// reaches a client carries a Reason, and a retry delay where waiting helps; both travel as status
// payloads and become google.rpc.ErrorInfo / RetryInfo at the RPC boundary.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hmm {

// X(enumerator, "WIRE_NAME", "what it means and what the caller does"). The wire name is a
// contract.
#define HMM_REASONS(X)                                                                            \
  X(BadArgument, "BAD_ARGUMENT", "A field of the request is out of its range; mend the request.") \
  X(BadSize, "BAD_SIZE", "A size is zero, malformed or beyond any tier; mend the request.")       \
  X(BadEnum, "BAD_ENUM", "An enum value this daemon does not know; update one of the two sides.") \
  X(BadConfig, "BAD_CONFIG",                                                                      \
    "The configuration is refused; the message names file, line and key.")                        \
  X(BadTrace, "BAD_TRACE", "A trace file is malformed; the message names the line.")              \
  X(BadGraph, "BAD_GRAPH",                                                                        \
    "A graph, plan or profile is malformed; the message names file, node and field.")             \
  X(BatchTooLarge, "BATCH_TOO_LARGE", "More elements than one call may carry; split the batch.")  \
  X(MissingToken, "MISSING_TOKEN", "The call carries no session token; open a session first.")    \
  X(UnknownSession, "UNKNOWN_SESSION",                                                            \
    "The token names no live session (daemon restarted, or the "                                  \
    "session ended); attach again.")                                                              \
  X(NotFound, "NOT_FOUND", "No such tensor, key, tier or segment for this tenant.")               \
  X(Exists, "ALREADY_EXISTS", "The key is taken by another tensor of this tenant.")               \
  X(NotSealed, "NOT_SEALED", "The tensor is still being written; seal it first.")                 \
  X(Sealed, "SEALED", "The tensor is sealed already and immutable.")                              \
  X(Pinned, "PINNED", "Pins hold the tensor, or nothing can be moved because all is pinned.")     \
  X(NotPinned, "NOT_PINNED", "The pin was given back before.")                                    \
  X(Full, "FULL", "No room now; wait for the retry delay, or allocate with wait.")                \
  X(Quota, "QUOTA", "The session's or tenant's share is used up; release pins or free tensors.")  \
  X(TooLarge, "TOO_LARGE", "Larger than the tier can ever hold; never retry.")                    \
  X(NoMemory, "NO_MEMORY", "The machine or its cgroup cannot back more memory now.")              \
  X(QueueFull, "QUEUE_FULL", "A bounded queue is full; retry after the delay.")                   \
  X(Draining, "DRAINING", "The daemon or the tier is draining; retry after the delay.")           \
  X(Dropped, "DROPPED", "A hint was not taken up.")                                               \
  X(Degraded, "DEGRADED", "The tier works, but not as configured; its note says what to mend.")   \
  X(Lost, "LOST", "The bytes are gone (daemon restarted or medium failed); recompute.")           \
  X(Checksum, "CHECKSUM", "Bytes read from flash do not match what was written; recompute.")      \
  X(PageToken, "PAGE_TOKEN",                                                                      \
    "The page token belongs to another query or another start of the daemon; begin again.")       \
  X(SlowWatcher, "SLOW_WATCHER",                                                                  \
    "Events came faster than the watcher read them; watch again, with a narrower filter.")        \
  X(EventsGone, "EVENTS_GONE",                                                                    \
    "Events after the number asked for are not kept any more; list, then watch from now on.")     \
  X(Deadline, "DEADLINE", "The deadline passed first.")                                           \
  X(Cancelled, "CANCELLED", "The caller gave up or released the call.")                           \
  X(Forked, "FORKED", "A forked child of a process that had connected; fork first, or exec.")     \
  X(NoDaemon, "NO_DAEMON", "No daemon answers on the socket; start hmmd or name its directory.")  \
  X(Protocol, "PROTOCOL", "The peer speaks another version or sent a malformed message.")         \
  X(Refused, "REFUSED", "The daemon does not serve this peer (uid, session limit).")              \
  X(Io, "IO", "A system call failed; the message names it.")                                      \
  X(Internal, "INTERNAL", "A bug in hmmd; report it.")

enum class Reason {
#define HMM_X(name, wire, text) k##name,
  HMM_REASONS(HMM_X)
#undef HMM_X
};

std::string_view ReasonName(Reason reason);
std::optional<Reason> ReasonFromName(std::string_view name);

// A status with its reason. REQUIRES: code != kOk.
absl::Status Error(absl::StatusCode code, Reason reason, std::string_view message);

// Adds (or replaces) the delay after which a retry can help. An OK status is returned unchanged.
absl::Status WithRetry(absl::Status status, std::chrono::milliseconds delay);

// Adds a fact that a program can read: metadata `key` of the error's ErrorInfo. Short; a few at
// most.
absl::Status WithDetail(absl::Status status, std::string_view key, std::string_view value);
std::map<std::string, std::string> DetailsOf(const absl::Status& status);

// Adds context in front of the message; keeps code and payloads. Once, where the context is known.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// nullopt when the status carries none (or is OK).
std::optional<Reason> ReasonOf(const absl::Status& status);
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);

// The one place where errno becomes a Status: "<context>: <strerror>", reason IO, code by errno
// (ENOENT NOT_FOUND; ENOSPC, ENOMEM, EMFILE, EDQUOT RESOURCE_EXHAUSTED; EACCES, EPERM
// PERMISSION_DENIED; EINVAL INVALID_ARGUMENT; ECONNREFUSED, EPIPE, ECONNRESET UNAVAILABLE; EIO
// DATA_LOSS; else INTERNAL).
absl::Status PosixError(std::string_view context, int error);

#define HMM_CONCAT_INNER(a, b) a##b
#define HMM_CONCAT(a, b) HMM_CONCAT_INNER(a, b)

#define HMM_RETURN_IF_ERROR(expr)                             \
  do {                                                        \
    if (absl::Status hmm_status = (expr); !hmm_status.ok()) { \
      return hmm_status;                                      \
    }                                                         \
  } while (false)

#define HMM_ASSIGN_OR_RETURN(lhs, expr) \
  HMM_ASSIGN_OR_RETURN_IMPL(HMM_CONCAT(hmm_statusor_, __LINE__), lhs, expr)
#define HMM_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return tmp.status();             \
  lhs = std::move(tmp).value()

}  // namespace hmm
