// SPDX-License-Identifier: Apache-2.0
//
// Sessions: their pages, tokens, and what each pinning call pinned.
//
//   ACTIVE --socket EOF--> CLOSING --death of the process--> gone
//      no new calls, pins stay --^        pins go with the page --^
//
// One thread (the executor's). The pin words of a page are shared with a process that may scribble
// in them: every value read is "pinned or not" or a count, never an index.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hmm/pin_ages.h"
#include "hmm/store.h"
#include "hmm/types.h"
#include "share/bell.h"
#include "share/pin.h"

namespace hmm::core {

// A pin that a call made for its client, by identity rather than index: slots are used again.
struct MadePin {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

// A pinning call, kept until the client says that it will not ask again.
struct CallRecord {
  enum class State { kWaiting, kDone, kReleased };
  State state = State::kWaiting;
  std::uint64_t op = 0;    // while waiting
  bool allocated = false;  // the pins are of tensors that this call made
  std::vector<MadePin> pins;
  std::vector<MadePin> ahead;  // no pins: what it allocated ahead, to be freed with the others
};

struct Session {
  SessionId id = 0;
  TenantId tenant = 0;
  SessionInfo info;
  TierId device = 0;
  bool closing = false;
  TimePoint opened{};
  share::Token token{};
  share::UniqueFd page_file;
  share::Mapping page;
  std::atomic<std::uint32_t>* words = nullptr;
  share::UniqueFd bell;  // rung when a job ended; invalid until the client asks for it
  std::uint64_t oldest_live_call = 0;
  std::map<std::uint64_t, CallRecord> calls;
  absl::flat_hash_set<TensorIndex> owned;  // die with the session
  // Pinned bytes by tier: counted at the last audit, plus what calls pinned since.
  std::vector<Bytes> pinned;
  mutable std::optional<TimePoint> fences_swept;
  std::vector<Bytes> leased;  // by its regions, by tier: they count towards its share as pins do
  std::uint64_t pins_audited = 0;
  PinAges pin_ages;       // as the audit sees them
  TimePoint recounted{};  // `pinned`, because a call would have exceeded the share
};

class SessionTable {
 public:
  SessionTable(const ManagerOptions& options, TensorStore& store, std::size_t tiers,
               const Clock& clock);

  absl::StatusOr<Session*> Open(const SessionInfo& info, TierId device);
  void Remove(SessionId id);
  // nullptr: no such session (CLOSING ones are found).
  Session* Find(SessionId id);
  const Session* Find(SessionId id) const;
  std::optional<SessionId> FindToken(const share::Token& token) const;
  const std::map<SessionId, std::unique_ptr<Session>>& all() const { return sessions_; }
  const std::vector<Session*>& of_tenant(TenantId tenant) const;

  // --- pins -------------------------------------------------------------------------------------
  // Whether any session of the tenant, CLOSING ones too, pins the tensor. REQUIRES for an answer
  // that stays true: MOVING or DOOMED is published.
  bool Pinned(const Tensor& tensor) const;
  // Ends the pins of a session whose fences are reached (share/fence.h). True: there were some.
  bool SweepFences(const Session& session) const;
  std::uint16_t AccessSum(const Tensor& tensor) const;
  // Pins for the client and notes it in its call record. REQUIRES: the session is ACTIVE and the
  // tensor cannot move (RESIDENT or CREATING).
  // FAILED_PRECONDITION/PINNED at the pin maximum, RESOURCE_EXHAUSTED/QUOTA past the session's
  // share.
  absl::Status PinFor(Session& session, const Tensor& tensor, TierId tier, Bytes tier_capacity,
                      CallRecord& record, TimePoint now);
  // Whether `bytes` more may be pinned in the tier. With a retry delay unless they are more than
  // the whole share. What clients unpinned silently is counted anew before it refuses.
  absl::Status CheckQuota(Session& session, TierId tier, Bytes tier_capacity, Bytes bytes);
  // As CheckQuota, but only by what is known now.
  bool WouldFit(const Session& session, TierId tier, Bytes tier_capacity, Bytes bytes) const;
  // Undoes a record's pins. Returns how many.
  std::uint32_t Undo(Session& session, CallRecord& record);
  void UndoOne(Session& session, const MadePin& pin);

  // --- calls ------------------------------------------------------------------------------------
  // Registers a pinning call. CANCELLED when its Release came first; INVALID_ARGUMENT for an id
  // that is 0, used before, or below the oldest live one; UNAVAILABLE/QUEUE_FULL past the bound.
  absl::StatusOr<CallRecord*> BeginCall(Session& session, const CallContext& call);
  // Forgets what the client will not ask about again.
  void Forget(Session& session, std::uint64_t oldest_live_call_id);

  // Recounts pins of some sessions, a bounded number of words a call; all in turn. True when a
  // round over all sessions ended.
  bool AuditSome(std::size_t words_max);
  // Exact where that is cheap, else as audited.
  std::uint64_t Pins(const Session& session) const;

 private:
  struct AuditCursor {
    SessionId session = 0;
    std::uint32_t slot = 0;
    std::uint64_t pins = 0;
    std::vector<Bytes> bytes;
  };
  void Recount(Session& session) const;

  const ManagerOptions& options_;
  TensorStore& store_;
  const Clock& clock_;
  std::size_t tiers_;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  std::vector<std::vector<Session*>> by_tenant_;
  absl::flat_hash_map<std::string, SessionId> by_token_;
  SessionId next_ = 1;
  std::mt19937_64 seeded_;
  AuditCursor audit_;
};

}  // namespace hmm::core
