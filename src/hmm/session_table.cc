// SPDX-License-Identifier: Apache-2.0
#include "hmm/session_table.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {
namespace {

// Words below which a count at once is cheaper than it is worth avoiding.
constexpr std::uint32_t kCountAtOnceMax = 1u << 20;
// A session at its share may cost a look at all its words; where they are many, not at each call.
constexpr Duration kRecountEvery = std::chrono::milliseconds(10);
constexpr std::uint32_t kRecountAlwaysMax = 4096;
constexpr Duration kSweepEvery = std::chrono::microseconds(100);  // fences of one session

std::string TokenKey(const share::Token& token) {
  return std::string(reinterpret_cast<const char*>(token.data()), token.size());
}

}  // namespace

SessionTable::SessionTable(const ManagerOptions& options, TensorStore& store, std::size_t tiers,
                           const Clock& clock)
    : options_(options), store_(store), clock_(clock), tiers_(tiers), seeded_(options.seed) {}

absl::StatusOr<Session*> SessionTable::Open(const SessionInfo& info, TierId device) {
  auto refuse = [](std::string message) {
    return WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kRefused, message),
                     std::chrono::milliseconds(1000));
  };
  if (sessions_.size() >= options_.sessions_max) {
    return refuse(absl::StrCat("all ", options_.sessions_max, " sessions are taken"));
  }
  HMM_ASSIGN_OR_RETURN(const TenantId tenant, store_.TenantFor(info.tenant));
  if (by_tenant_.size() <= tenant) by_tenant_.resize(tenant + 1);
  if (by_tenant_[tenant].size() >= options_.sessions_per_tenant_max) {
    return refuse(absl::StrCat("tenant ", info.tenant, " has all of its ",
                               options_.sessions_per_tenant_max, " sessions"));
  }
  auto session = std::make_unique<Session>();
  session->id = next_;
  session->tenant = tenant;
  session->info = info;
  session->device = device;
  session->opened = clock_.Now();
  session->pinned.assign(tiers_, 0);
  session->leased.assign(tiers_, 0);
  if (options_.seed != 0) {
    for (auto& byte : session->token) byte = static_cast<std::uint8_t>(seeded_());
  } else if (getrandom(session->token.data(), session->token.size(), 0) !=
             static_cast<ssize_t>(session->token.size())) {
    return PosixError("getrandom", errno);
  }
  const Bytes bytes = share::PageBytes(options_.max_tensors);
  HMM_ASSIGN_OR_RETURN(session->page_file,
                       share::CreateMemoryFile(absl::StrCat("hmm-page-", session->id), bytes));
  HMM_RETURN_IF_ERROR(share::SealSeals(session->page_file.get()));
  HMM_ASSIGN_OR_RETURN(session->page,
                       share::Mapping::Map(session->page_file.get(), bytes,
                                           share::Mapping::Access::kReadWrite, false));
  auto* header = reinterpret_cast<share::PageHeader*>(session->page.data());
  *header = {share::kPageMagic, share::kAbiVersion, options_.max_tensors, options_.boot_epoch,
             session->id};
  session->words = share::PinWords(session->page.data());
  ++next_;
  Session* out = session.get();
  by_tenant_[tenant].push_back(out);
  by_token_.emplace(TokenKey(out->token), out->id);
  sessions_.emplace(out->id, std::move(session));
  return out;
}

void SessionTable::Remove(SessionId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  Session& session = *it->second;
  // Its accesses leave the sums that recency compares: adjust, so that its death touches nothing.
  for (std::uint32_t slot = 0; slot < store_.slots_used(session.tenant); ++slot) {
    const std::uint32_t accesses =
        share::AccessesOf(session.words[slot].load(std::memory_order_relaxed));
    const TensorIndex tensor = store_.at_slot(session.tenant, slot);
    if (accesses == 0 || tensor == kNoIndex) continue;
    std::uint16_t& seen = store_[tensor].accesses_seen;
    seen = static_cast<std::uint16_t>(seen - accesses);
  }
  std::erase(by_tenant_[session.tenant], &session);
  by_token_.erase(TokenKey(session.token));
  sessions_.erase(it);
}

Session* SessionTable::Find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}
const Session* SessionTable::Find(SessionId id) const {
  return const_cast<SessionTable*>(this)->Find(id);
}

std::optional<SessionId> SessionTable::FindToken(const share::Token& token) const {
  const auto it = by_token_.find(TokenKey(token));
  if (it == by_token_.end() || Find(it->second)->closing) return std::nullopt;
  return it->second;
}

const std::vector<Session*>& SessionTable::of_tenant(TenantId tenant) const {
  static const std::vector<Session*> kNone;
  return tenant < by_tenant_.size() ? by_tenant_[tenant] : kNone;
}

bool SessionTable::Pinned(const Tensor& tensor) const {
  for (const Session* session : of_tenant(tensor.tenant)) {
    const std::atomic<std::uint32_t>& word = session->words[tensor.slot];
    if (!share::IsPinned(word)) continue;
    // What is met over and over must not cost a sweep each time.
    const TimePoint now = clock_.Now();
    if (session->fences_swept.has_value() && now - *session->fences_swept < kSweepEvery) {
      return true;
    }
    session->fences_swept = now;
    if (!SweepFences(*session) || share::IsPinned(word)) return true;
  }
  return false;
}

bool SessionTable::SweepFences(const Session& session) const {
  share::FenceArea& area = share::Fences(session.page.data());
  const std::uint32_t used = std::min(area.used.load(std::memory_order_seq_cst), share::kFences);
  bool any = false;
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::optional<std::uint32_t> slot = share::TakeFence(area, area.entries[i]);
    if (!slot.has_value()) continue;
    if (*slot < options_.max_tensors) share::UnpinFor(session.words[*slot]);
    share::FreeFence(area.entries[i]);
    any = true;
  }
  return any;
}

std::uint16_t SessionTable::AccessSum(const Tensor& tensor) const {
  std::uint32_t sum = 0;
  for (const Session* session : of_tenant(tensor.tenant)) {
    sum += share::AccessesOf(session->words[tensor.slot].load(std::memory_order_relaxed));
  }
  return static_cast<std::uint16_t>(sum);
}

void SessionTable::Recount(Session& session) const {
  (void)SweepFences(session);
  std::fill(session.pinned.begin(), session.pinned.end(), Bytes{0});
  for (std::uint32_t slot = 0; slot < store_.slots_used(session.tenant); ++slot) {
    if (share::PinsOf(session.words[slot].load(std::memory_order_relaxed)) == 0) continue;
    const TensorIndex tensor = store_.at_slot(session.tenant, slot);
    if (tensor != kNoIndex) session.pinned[store_.home_tier(tensor)] += store_[tensor].bytes;
  }
}

bool SessionTable::WouldFit(const Session& session, TierId tier, Bytes tier_capacity,
                            Bytes bytes) const {
  const auto limit =
      static_cast<Bytes>(static_cast<double>(tier_capacity) * options_.session_pinned_max);
  return bytes <= limit && session.pinned[tier] + session.leased[tier] <= limit - bytes;
}

absl::Status SessionTable::CheckQuota(Session& session, TierId tier, Bytes tier_capacity,
                                      Bytes bytes) {
  const auto limit =
      static_cast<Bytes>(static_cast<double>(tier_capacity) * options_.session_pinned_max);
  auto fits = [&] { return WouldFit(session, tier, tier_capacity, bytes); };
  if (fits()) return absl::OkStatus();
  const bool few = store_.slots_used(session.tenant) <= kRecountAlwaysMax;
  if (bytes <= limit && (few || clock_.Now() - session.recounted >= kRecountEvery)) {
    session.recounted = clock_.Now();
    Recount(session);
    if (fits()) return absl::OkStatus();
  }
  const absl::Status over =
      Error(absl::StatusCode::kResourceExhausted, Reason::kQuota,
            absl::StrCat("the session pins or leases ", session.pinned[tier] + session.leased[tier],
                         " bytes of this tier; with the ", bytes,
                         " that the call asks for it would exceed its share of ", limit,
                         "; release pins or regions, or raise session_pinned_max"));
  return bytes > limit ? over : WithRetry(over, std::chrono::milliseconds(100));
}

absl::Status SessionTable::PinFor(Session& session, const Tensor& tensor, TierId tier,
                                  Bytes tier_capacity, CallRecord& record, TimePoint now) {
  HMM_DCHECK(!session.closing);
  HMM_DCHECK(tensor.state == TensorState::kResident || tensor.state == TensorState::kCreating);
  HMM_RETURN_IF_ERROR(CheckQuota(session, tier, tier_capacity, tensor.bytes));
  if (!share::PinFor(session.words[tensor.slot])) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kPinned,
                 absl::StrCat("this process holds ", share::kPinMax,
                              " pins of the tensor already; release some"));
  }
  session.pinned[tier] += tensor.bytes;
  session.pin_ages.PinnedAgain(tensor.slot, now);
  record.pins.push_back({tensor.slot, tensor.generation});
  return absl::OkStatus();
}

void SessionTable::UndoOne(Session& session, const MadePin& pin) {
  // A pin that still stands keeps its tensor's slot, so another generation there means that the
  // client gave the pin back itself.
  const TensorIndex index = store_.at_slot(session.tenant, pin.slot);
  if (index == kNoIndex || store_[index].generation != pin.generation) return;
  share::UnpinFor(session.words[pin.slot]);
  Bytes& pinned = session.pinned[store_.home_tier(index)];
  pinned -= std::min(pinned, store_[index].bytes);
}

std::uint32_t SessionTable::Undo(Session& session, CallRecord& record) {
  for (const MadePin& pin : record.pins) UndoOne(session, pin);
  const auto undone = static_cast<std::uint32_t>(record.pins.size());
  record.pins.clear();
  return undone;
}

absl::StatusOr<CallRecord*> SessionTable::BeginCall(Session& session, const CallContext& call) {
  Forget(session, call.oldest_live_call_id);
  auto bad = [&](std::string_view why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat("call_id ", call.call_id, " ", std::string(why),
                              "; use a new, higher one for each pinning call"));
  };
  if (call.call_id == 0) return bad("is not a call id");
  if (call.call_id < session.oldest_live_call) return bad("lies below the oldest live call");
  if (const auto it = session.calls.find(call.call_id); it != session.calls.end()) {
    if (it->second.state == CallRecord::State::kReleased) {
      return Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                   "the call was released before it arrived");
    }
    return bad("was used before");
  }
  if (session.calls.size() >= options_.calls_remembered_max) {
    return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                           "too many calls whose pins may still be released; advance "
                           "oldest_live_call_id"),
                     std::chrono::milliseconds(10));
  }
  return &session.calls[call.call_id];
}

void SessionTable::Forget(Session& session, std::uint64_t oldest_live_call_id) {
  if (oldest_live_call_id <= session.oldest_live_call) return;
  session.oldest_live_call = oldest_live_call_id;
  auto it = session.calls.begin();
  while (it != session.calls.end() && it->first < oldest_live_call_id) {
    // A call that still waits stays until it ends: its op points here.
    it = it->second.state == CallRecord::State::kWaiting ? std::next(it) : session.calls.erase(it);
  }
}

bool SessionTable::AuditSome(std::size_t words_max) {
  const TimePoint now = clock_.Now();
  while (words_max > 0) {
    auto it = sessions_.lower_bound(audit_.session);
    if (it == sessions_.end()) {
      audit_ = AuditCursor{};
      return true;
    }
    Session& session = *it->second;
    if (session.id != audit_.session || audit_.bytes.empty()) {
      audit_ = {session.id, 0, 0, std::vector<Bytes>(tiers_, 0)};
      (void)SweepFences(session);
    }
    const std::uint32_t used = store_.slots_used(session.tenant);
    for (; audit_.slot < used && words_max > 0; ++audit_.slot, --words_max) {
      const std::uint32_t word = session.words[audit_.slot].load(std::memory_order_relaxed);
      const std::uint32_t pins = share::PinsOf(word);
      const TensorIndex tensor = store_.at_slot(session.tenant, audit_.slot);
      session.pin_ages.Saw(audit_.slot, tensor == kNoIndex ? 0 : store_[tensor].generation, word,
                           now);
      if (pins == 0) continue;
      audit_.pins += pins;
      if (tensor != kNoIndex) audit_.bytes[store_.home_tier(tensor)] += store_[tensor].bytes;
    }
    if (audit_.slot < used) return false;
    session.pins_audited = audit_.pins;
    session.pinned = audit_.bytes;
    audit_ = AuditCursor{session.id + 1, 0, 0, {}};
    if (words_max > 0) --words_max;
  }
  return false;
}

std::uint64_t SessionTable::Pins(const Session& session) const {
  const std::uint32_t used = store_.slots_used(session.tenant);
  if (used > kCountAtOnceMax / std::max<std::size_t>(1, sessions_.size())) {
    return session.pins_audited;
  }
  std::uint64_t pins = 0;
  for (std::uint32_t slot = 0; slot < used; ++slot) {
    pins += share::PinsOf(session.words[slot].load(std::memory_order_relaxed));
  }
  return pins;
}

}  // namespace hmm::core
