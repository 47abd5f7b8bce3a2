// SPDX-License-Identifier: Apache-2.0
#include "tier/host_tier.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "tier/arena.h"
#include "tier/machine.h"

namespace hmm::tier {
namespace {

constexpr std::uint32_t kOrdinalMax = 0xFFFF;
constexpr Bytes kChunkMin = 64 * kKiB;
constexpr Bytes kCapacityMax = Bytes{1} << 46;  // what a 47-bit address space could ever map
constexpr double kAddressFactorMax = 64;

absl::Status NoMemory(const std::string& tier, Bytes bytes, const absl::Status& why) {
  // Others of the machine may give some back.
  return WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kNoMemory,
                         absl::StrCat("tier ", tier, " cannot commit ", FormatBytes(bytes), ": ",
                                      why.message())),
                   std::chrono::milliseconds(100));
}

// The pages of all arenas of a tier, and what a person should know of them.
struct PageChoice {
  ArenaPages pages = ArenaPages::kSmall;
  std::string note;
  bool degraded = false;
};

// The ladder hugetlb -> shmem THP -> small, entered where the options say.
PageChoice ChoosePages(const HostTierOptions& options, Bytes capacity, const Machine& machine) {
  const Bytes chunk = options.commit_chunk;
  const Bytes huge = machine.huge_page_size;
  const bool reserved = huge > 0 && chunk % huge == 0 &&
                        machine.huge_pages_free >= std::max(capacity, options.hugetlb_needed);
  const bool transparent = machine.shmem_thp && chunk >= 2 * kMiB;
  const std::string small = absl::StrCat(FormatBytes(machine.page_size), " pages");
  switch (options.pages) {
    case PageMode::kAuto:
    case PageMode::kHugetlb: {
      if (reserved) {
        return {ArenaPages::kHugetlb, absl::StrCat(FormatBytes(huge), " hugetlb pages"), false};
      }
      const bool asked = options.pages == PageMode::kHugetlb;
      const std::string lack =
          asked ? absl::StrCat(" (hugetlb asked, but ", FormatBytes(machine.huge_pages_free),
                               " are reserved and free)")
                : "";
      if (transparent) {
        return {ArenaPages::kTransparent, absl::StrCat("transparent huge pages", lack), asked};
      }
      return {ArenaPages::kSmall, absl::StrCat(small, lack), asked};
    }
    case PageMode::kTransparent:
      if (transparent) return {ArenaPages::kTransparent, "transparent huge pages", false};
      return {ArenaPages::kSmall,
              absl::StrCat(small,
                           " (transparent huge pages asked, but shmem_enabled or the chunk "
                           "does not allow them)"),
              true};
    case PageMode::kSmall:
      break;
  }
  return {ArenaPages::kSmall, small, false};
}

class HostTier final : public Tier {
 public:
  HostTier(HostTierOptions options, Bytes capacity, PageChoice pages)
      : Tier(options.tier, capacity),
        host_(std::move(options)),
        chunk_(host_.commit_chunk),
        start_(capacity),
        pages_(std::move(pages)) {
    if (host_.numa_node < 0) return;
    NoteBinding(ProbeBind(host_.numa_node));
  }

  bool mappable() const override { return true; }
  std::string_view backend() const override { return "host"; }
  std::string note() const override {
    return numa_note_.empty() ? pages_.note : absl::StrCat(pages_.note, "; ", numa_note_);
  }
  bool degraded() const override { return pages_.degraded || !numa_note_.empty(); }

  Bytes LengthFor(Bytes bytes) const override {
    const Bytes unit = bytes < kPageUnit ? kSmallUnit : kPageUnit;
    return RoundUpSaturated(bytes, unit);
  }
  std::byte* Address(const Extent& extent) const override;
  absl::StatusOr<SegmentInfo> Segment(SegmentId segment) const override;
  Bytes LongestFree(TenantId tenant) const override;
  Bytes Trim(Bytes keep) override;
  std::optional<Window> EmptiestWindow(Bytes bytes, const std::vector<Window>& skip) const override;
  absl::StatusOr<Bytes> SizeFor(Bytes bytes) const override;
  std::vector<Window> Obstacles(std::size_t max, const std::vector<Window>& skip) const override;
  std::vector<Window> SparseRanges(std::size_t max, const std::vector<Window>& skip) const override;
  std::vector<Excess> Audit() override;
  void ForgetTenant(TenantId tenant) override;
  absl::Status Validate() const override;

 protected:
  absl::StatusOr<Extent> DoAllocate(TenantId tenant, Bytes length) override;
  void DoFree(TenantId tenant, const Extent& extent) override;
  absl::StatusOr<Extent> DoAllocateOutside(TenantId tenant, const Extent& from,
                                           const std::vector<Window>& avoid) override;
  absl::Status DoResize(Bytes capacity) override;

 private:
  struct Home {
    SegmentId segment = 0;
    std::unique_ptr<Arena> arena;
  };
  using Homes = absl::btree_map<TenantId, Home>;  // in order, so that runs repeat

  absl::StatusOr<Home*> HomeOf(TenantId tenant);
  absl::StatusOr<SegmentId> FreshSegment();
  absl::Status Commit(Arena& arena, Bytes length);
  std::size_t UncommittedChunks() const;
  std::size_t EmptyChunks() const;
  void NoteBinding(const absl::Status& bound) {
    if (!bound.ok()) numa_note_ = absl::StrCat("not bound to its NUMA node: ", bound.message());
  }
  bool PunchOne(const Arena& first_spared, std::size_t first, std::size_t end);
  const Home* Find(SegmentId segment) const;
  static std::vector<Range> RangesIn(SegmentId segment, const std::vector<Window>& windows);
  std::vector<Window> Sparsest(std::size_t max, bool absorbed,
                               const std::vector<Window>& skip) const;

  HostTierOptions host_;
  const Bytes chunk_;
  const Bytes start_;  // the capacity configured
  PageChoice pages_;
  std::string numa_note_;  // why memory is not bound; set once, then binding is not tried again
  Homes homes_;
  absl::flat_hash_map<SegmentId, TenantId> segments_;
  std::uint32_t last_ordinal_ = 0;
};

const HostTier::Home* HostTier::Find(SegmentId segment) const {
  const auto it = segments_.find(segment);
  return it == segments_.end() ? nullptr : &homes_.find(it->second)->second;
}

std::byte* HostTier::Address(const Extent& extent) const {
  const Home* home = Find(extent.segment);
  HMM_CHECK(home != nullptr && extent.length <= home->arena->bytes() &&
            extent.offset <= home->arena->bytes() - extent.length);
  return home->arena->data() + extent.offset;
}

absl::StatusOr<SegmentInfo> HostTier::Segment(SegmentId segment) const {
  const Home* home = Find(segment);
  if (home == nullptr) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("tier ", name(), " has no segment ", segment));
  }
  return SegmentInfo{segments_.find(segment)->second, home->arena->fd(), home->arena->bytes()};
}

absl::StatusOr<Extent> HostTier::DoAllocate(TenantId tenant, Bytes length) {
  HMM_ASSIGN_OR_RETURN(Home * home, HomeOf(tenant));
  std::optional<Range> range = home->arena->Allocate(length);
  if (!range.has_value()) {
    HMM_RETURN_IF_ERROR(Commit(*home->arena, length));
    range = home->arena->Allocate(length);
    HMM_CHECK(range.has_value());
  }
  return Extent{home->segment, range->offset, range->length};
}

void HostTier::DoFree(TenantId tenant, const Extent& extent) {
  const auto it = homes_.find(tenant);
  HMM_CHECK(it != homes_.end() && it->second.segment == extent.segment);
  // A second free changes nothing; Validate reports it.
  (void)it->second.arena->Free({extent.offset, extent.length});
}

// While the tier is made smaller, what it is to give up is committed no more.
std::size_t HostTier::UncommittedChunks() const {
  const Bytes committed = capacity() - ledger()[ByteState::kFree];
  return (limit() - std::min(limit(), committed)) / chunk_;
}

std::size_t HostTier::EmptyChunks() const {
  std::size_t empty = 0;
  for (const auto& [tenant, home] : homes_) empty += home.arena->empty_chunks();
  return empty;
}

// What is committed in one piece, or whole chunks that could be: what joins both is not looked for.
Bytes HostTier::LongestFree(TenantId tenant) const {
  const Bytes chunks = (UncommittedChunks() + EmptyChunks()) * chunk_;
  const auto it = homes_.find(tenant);
  if (it == homes_.end()) return std::min(chunks, available());
  const Arena& arena = *it->second.arena;
  const Bytes space = arena.longest_space();
  const Bytes grown = std::min(chunks, space < 2 * chunk_ ? 0 : RoundDown(space - chunk_, chunk_));
  return std::min(std::max(arena.longest_committed(), grown), available());
}

// Puts memory where `length` fits: out of what is not committed yet, else out of empty chunks of
// any arena, which are punched for it (empty ones inside the planned range serve where they are).
absl::Status HostTier::Commit(Arena& arena, Bytes length) {
  const std::optional<Arena::Growth> plan = arena.PlanGrowth(length);
  std::size_t empty = EmptyChunks();
  if (plan.has_value()) empty -= arena.EmptyWithin(plan->first, plan->end);
  const std::size_t uncommitted = UncommittedChunks();
  // Nothing is punched for an allocation that cannot be had anyway.
  if (!plan.has_value() || plan->missing > uncommitted + empty) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
                 absl::StrCat("tier ", name(), " has no room for ", length, " bytes now"));
  }
  std::size_t fresh = std::min(plan->missing, uncommitted);
  if (fresh > 0 && host_.may_commit && pages_.pages != ArenaPages::kHugetlb) {
    const absl::Status status = host_.may_commit(fresh * chunk_);
    // What we have committed already and do not use needs nobody's leave.
    if (!status.ok() && empty >= plan->missing) {
      fresh = 0;
    } else if (!status.ok()) {
      return NoMemory(name(), fresh * chunk_, status);
    }
  }
  for (std::size_t punched = 0; punched < plan->missing - fresh; ++punched) {
    HMM_CHECK(PunchOne(arena, plan->first, plan->end));
  }
  const Bytes needed = plan->missing * chunk_;
  if (const absl::Status status = arena.Grow(*plan); !status.ok()) {
    return NoMemory(name(), needed, status);
  }
  mutable_ledger().Transfer(ByteState::kFree, ByteState::kCommittedFree, needed);
  return absl::OkStatus();
}

// Other tenants' chunks first: this one may want its own soon.
bool HostTier::PunchOne(const Arena& spared, std::size_t first, std::size_t end) {
  bool punched = false;
  const Home* own = nullptr;
  for (const auto& [tenant, home] : homes_) {
    if (home.arena.get() == &spared) {
      own = &home;
    } else if (home.arena->PunchEmpty()) {
      punched = true;
      break;
    }
  }
  if (!punched && own != nullptr) punched = own->arena->PunchEmpty(first, end);
  if (punched) mutable_ledger().Transfer(ByteState::kCommittedFree, ByteState::kFree, chunk_);
  return punched;
}

absl::StatusOr<HostTier::Home*> HostTier::HomeOf(TenantId tenant) {
  if (const auto it = homes_.find(tenant); it != homes_.end()) return &it->second;
  HMM_ASSIGN_OR_RETURN(const SegmentId segment, FreshSegment());
  // A tenant that comes while the tier is small must not keep it from growing back: an arena stays
  // as it is made.
  const auto largest = static_cast<double>(std::max(start_, capacity()));
  const auto space = static_cast<Bytes>(largest * host_.address_factor);
  absl::StatusOr<std::unique_ptr<Arena>> arena = Arena::Create(
      {absl::StrCat("hmm:", name(), ":", tenant), RoundUp(space, chunk_), chunk_, pages_.pages});
  if (!arena.ok()) return NoMemory(name(), space, arena.status());
  if (host_.numa_node >= 0 && numa_note_.empty()) {
    NoteBinding((*arena)->Bind(host_.numa_node));
  }
  segments_.emplace(segment, tenant);
  return &homes_.emplace(tenant, Home{segment, *std::move(arena)}).first->second;
}

absl::StatusOr<SegmentId> HostTier::FreshSegment() {
  for (std::uint32_t tried = 0; tried < kOrdinalMax; ++tried) {
    last_ordinal_ = last_ordinal_ % kOrdinalMax + 1;
    const SegmentId segment = (static_cast<SegmentId>(host_.id) << 16) | last_ordinal_;
    if (!segments_.contains(segment)) return segment;
  }
  return Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
               absl::StrCat("tier ", name(), " serves ", kOrdinalMax, " tenants already"));
}

Bytes HostTier::Trim(Bytes keep) {
  Bytes given = 0;
  for (const auto& [tenant, home] : homes_) {
    while (ledger()[ByteState::kCommittedFree] > keep && home.arena->PunchEmpty()) {
      mutable_ledger().Transfer(ByteState::kCommittedFree, ByteState::kFree, chunk_);
      given += chunk_;
    }
  }
  return given;
}

std::optional<Tier::Window> HostTier::EmptiestWindow(Bytes bytes,
                                                     const std::vector<Window>& skip) const {
  if (bytes == 0 || bytes > capacity()) return std::nullopt;
  const std::size_t chunks = (bytes + chunk_ - 1) / chunk_;
  std::size_t spare = ledger()[ByteState::kFree] / chunk_;
  spare += EmptyChunks();
  std::optional<Arena::Window> best;
  SegmentId segment = 0;
  for (const auto& [tenant, home] : homes_) {
    const std::optional<Arena::Window> window =
        home.arena->EmptiestWindow(chunks, spare, RangesIn(home.segment, skip));
    if (!window.has_value() || (best.has_value() && !window->Beats(*best))) continue;
    best = window;
    segment = home.segment;
  }
  if (!best.has_value()) return std::nullopt;
  return Window{segment, best->first * chunk_, best->chunks * chunk_};
}

std::vector<Range> HostTier::RangesIn(SegmentId segment, const std::vector<Window>& windows) {
  std::vector<Range> ranges;
  for (const Window& window : windows) {
    if (window.segment == segment) ranges.push_back({window.offset, window.length});
  }
  return ranges;
}

absl::StatusOr<Extent> HostTier::DoAllocateOutside(TenantId tenant, const Extent& from,
                                                   const std::vector<Window>& avoid) {
  const auto it = homes_.find(tenant);
  HMM_CHECK(it != homes_.end() && it->second.segment == from.segment);
  const auto range =
      it->second.arena->AllocateOutside({from.offset, from.length}, RangesIn(from.segment, avoid));
  if (!range.has_value()) return NoRoom(from.length);
  return Extent{it->second.segment, range->offset, range->length};
}

std::vector<Tier::Window> HostTier::Sparsest(std::size_t max, bool absorbed,
                                             const std::vector<Window>& skip) const {
  struct Found {
    Bytes used;
    Window window;
  };
  std::vector<Found> found;
  for (const auto& [tenant, home] : homes_) {
    for (const Arena::Sparse& sparse :
         home.arena->SparseChunks(max, absorbed, RangesIn(home.segment, skip))) {
      found.push_back({sparse.used, {home.segment, sparse.chunk * chunk_, chunk_}});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.used < b.used; });
  if (found.size() > max) found.resize(max);
  std::vector<Window> windows;
  for (const Found& one : found) windows.push_back(one.window);
  return windows;
}

std::vector<Tier::Window> HostTier::Obstacles(std::size_t max,
                                              const std::vector<Window>& skip) const {
  Bytes in_use = 0;
  for (const auto& [tenant, home] : homes_) {
    in_use += home.arena->committed_bytes() - home.arena->empty_chunks() * chunk_;
  }
  if (in_use <= limit()) return {};
  return Sparsest(std::min<std::size_t>(max, (in_use - limit()) / chunk_), false, skip);
}

std::vector<Tier::Window> HostTier::SparseRanges(std::size_t max,
                                                 const std::vector<Window>& skip) const {
  return Sparsest(max, true, skip);
}

absl::StatusOr<Bytes> HostTier::SizeFor(Bytes bytes) const {
  const Bytes rounded = RoundUpSaturated(bytes, chunk_);
  if (bytes == 0 || rounded > kCapacityMax) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("tier ", name(), " cannot have ", FormatBytes(bytes),
                              "; ask for 1 B to ", FormatBytes(kCapacityMax)));
  }
  for (const auto& [tenant, home] : homes_) {
    // Clients have mapped it, and it is sealed.
    if (rounded <= home.arena->bytes()) continue;
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kTooLarge,
                 absl::StrCat("tier ", name(), " cannot grow to ", FormatBytes(rounded),
                              " while it runs: its tenants have address space for ",
                              FormatBytes(home.arena->bytes()),
                              "; change the capacity in the configuration"));
  }
  return rounded;
}

absl::Status HostTier::DoResize(Bytes capacity) {
  const Bytes now = this->capacity();
  if (capacity > now && host_.may_commit && pages_.pages != ArenaPages::kHugetlb) {
    if (const absl::Status status = host_.may_commit(capacity - now); !status.ok()) {
      return NoMemory(name(), capacity - now, status);
    }
  }
  if (capacity < now && ledger()[ByteState::kFree] < now - capacity) return NoRoom(now - capacity);
  mutable_ledger().Resize(capacity);
  return absl::OkStatus();
}

std::vector<Tier::Excess> HostTier::Audit() {
  std::vector<Excess> found;
  for (const auto& [tenant, home] : homes_) {
    if (const Bytes bytes = home.arena->PunchHoles(); bytes > 0) found.push_back({tenant, bytes});
  }
  return found;
}

void HostTier::ForgetTenant(TenantId tenant) {
  const auto it = homes_.find(tenant);
  if (it == homes_.end()) return;
  HMM_CHECK(TenantBytes(tenant) == 0);
  while (it->second.arena->PunchEmpty()) {
    mutable_ledger().Transfer(ByteState::kCommittedFree, ByteState::kFree, chunk_);
  }
  HMM_CHECK(it->second.arena->committed_bytes() == 0);
  // A client that still maps it keeps the file alive: leave nothing in it.
  (void)it->second.arena->PunchHoles();
  segments_.erase(it->second.segment);
  homes_.erase(it);
}

absl::Status HostTier::Validate() const {
  Bytes committed = 0;
  Bytes used = 0;
  auto broken = [&](const char* what, Bytes counted, Bytes kept) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("tier ", name(), ": ", what, ": counted ", counted, ", kept ", kept));
  };
  for (const auto& [tenant, home] : homes_) {
    if (const absl::Status status = home.arena->Validate(); !status.ok()) {
      return Annotate(status, absl::StrCat("tier ", name(), ", tenant ", tenant));
    }
    committed += home.arena->committed_bytes();
    used += home.arena->used_bytes();
    if (home.arena->used_bytes() != TenantBytes(tenant)) {
      return broken("bytes of a tenant", home.arena->used_bytes(), TenantBytes(tenant));
    }
    const auto segment = segments_.find(home.segment);
    if (segment == segments_.end() || segment->second != tenant) {
      return broken("owner of a segment", tenant, home.segment);
    }
  }
  if (segments_.size() != homes_.size()) {
    return broken("segments", homes_.size(), segments_.size());
  }
  if (used != ledger().used()) return broken("used bytes", used, ledger().used());
  if (committed != capacity() - ledger()[ByteState::kFree]) {
    return broken("committed bytes", committed, capacity() - ledger()[ByteState::kFree]);
  }
  if (!ledger().Sums()) return broken("states that sum to the capacity", 0, capacity());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tier>> CreateHostTier(HostTierOptions options) {
  auto refuse = [&](const std::string& why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat("tier ", options.tier.name, ": ", why));
  };
  HMM_RETURN_IF_ERROR(CheckTierOptions(options.tier));
  const Bytes chunk = options.commit_chunk;
  HMM_ASSIGN_OR_RETURN(const Machine machine, DetectMachine());
  if (!std::has_single_bit(chunk) || chunk < kChunkMin || chunk % machine.page_size != 0) {
    return refuse(absl::StrCat("commit_chunk ", chunk,
                               " is no power of two of at least 64KiB and the system's page"));
  }
  const Bytes capacity = RoundDown(options.tier.capacity, chunk);
  if (capacity == 0 || capacity > kCapacityMax) {
    return refuse(absl::StrCat("capacity ", options.tier.capacity,
                               " is less than one commit_chunk (", chunk,
                               ") or beyond any address space"));
  }
  if (!(options.address_factor >= 1 && options.address_factor <= kAddressFactorMax)) {
    return refuse("address_factor is not between 1 and 64");
  }
  if (options.tier.reserve >= capacity) return refuse("the reserve takes all of the capacity");
  PageChoice pages = ChoosePages(options, capacity, machine);
  return std::make_unique<HostTier>(std::move(options), capacity, std::move(pages));
}

}  // namespace hmm::tier
