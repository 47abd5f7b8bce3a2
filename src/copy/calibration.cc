// SPDX-License-Identifier: Apache-2.0
//
// Scratch lies in one extent on either side of a link, halved: the first halves exchange moves from
// a to b, the second ones from b to a. A half is cut into slots of a run's size; no slot is in two
// moves at a time. All scratch holds one pattern of 4 KiB, so that every slot of a size has the
// same checksum.
#include "copy/calibration.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "copy/memory_copy.h"

namespace hmm::copy {
namespace {

using tier::ByteState;
using tier::Extent;
using tier::Tier;

constexpr Bytes kPattern = 4 * kKiB;
constexpr Bytes kLatencySize = kPattern;
constexpr std::array<Bytes, 4> kSizes = {64 * kKiB, 256 * kKiB, kMiB, 2 * kMiB};
constexpr Bytes kEngineSize = 256 * kKiB;
constexpr Bytes kScratchMin = 2 * kSizes[0];
constexpr Bytes kFillStep = kMiB;  // fresh pages are slow, and others wait for the executor
constexpr double kReached = 0.9;
constexpr std::size_t kSteady = 4;  // times the depth: moves after which a link is in its stride
constexpr int kDirections = 2;
constexpr char kNotMeasured[] = "not measured: ";
constexpr char kOutOfTime[] = "the time was over";
// Runs of a link, about: what the budget is divided by.
constexpr int kRunsOfLink = 22;
// Each is measured so often, a while apart, and the best counts: others use the machine too.
constexpr int kRounds = 3;
// Times the budget: a link's share is over, once its scratch is ready; and all is.
constexpr double kLinkPatience = 2.5;
constexpr int kPatience = 4;

using Tiers = std::vector<std::unique_ptr<Tier>>;

enum class What { kWarm, kLatency, kEngines, kCurve, kDuplex };

struct Run {
  What what{};
  int direction = 0;  // of kDuplex: both
  Bytes size = 0;
  unsigned depth = 1;
  bool everywhere = false;  // kWarm: both halves
};

// One direction of a run.
struct Lane {
  bool active = false;
  unsigned under_way = 0;
  unsigned deepest = 0;     // most that were under way
  std::deque<Bytes> slots;  // offsets into the scratch of those in no move
  std::uint64_t started = 0;
  std::uint64_t ended = 0;
  std::uint64_t wanted = 0;  // kWarm: how many
  TimePoint last{};
  std::vector<Duration> times;
};

class Calibrator final : public Calibration, public std::enable_shared_from_this<Calibrator> {
 public:
  Calibrator(const Tiers& tiers, std::vector<LinkEnds> links, Copier& copier, Executor& executor,
             const Clock& clock, const CalibrationOptions& options, std::weak_ptr<void> alive,
             CalibrationDone done)
      : tiers_(tiers),
        links_(std::move(links)),
        groups_(ContentionGroups(tiers, links_)),
        copier_(copier),
        executor_(executor),
        clock_(clock),
        options_(options),
        slice_(options.budget / (kRounds * kRunsOfLink * std::max<std::size_t>(links_.size(), 1))),
        end_(clock.Now() + kPatience * options.budget),
        alive_(std::move(alive)),
        done_(std::move(done)) {}

  void Stop() override {
    stopped_ = true;
    if (under_way() == 0) FreeScratch();
  }

  // Goes on with the next step, later.
  void Continue(void (Calibrator::*step)()) {
    executor_.Post([self = shared_from_this(), step] {
      if (self->alive_.expired() || self->stopped_) return;
      (self.get()->*step)();
    });
  }

  void NextLink();

 private:
  Tier& a() const { return *tiers_[links_[link_].a]; }
  Tier& b() const { return *tiers_[links_[link_].b]; }
  Tier& From(int direction) const { return direction == 0 ? a() : b(); }
  Tier& To(int direction) const { return direction == 0 ? b() : a(); }
  const Extent& Scratch(const Tier& tier) const { return &tier == &a() ? scratch_a_ : scratch_b_; }
  LinkModel& Result(int direction) {
    return results_[kDirections * link_ + static_cast<std::size_t>(direction)];
  }
  unsigned under_way() const { return lanes_[0].under_way + lanes_[1].under_way; }
  Bytes half() const { return scratch_bytes_ / 2; }

  bool TakeScratch();
  void FreeScratch();
  void Fill();
  void PlanRuns();
  void NextRun();
  void StartRun(const Run& run);
  void OpenLane(int direction, const Run& run);
  bool Feeding(const Lane& lane) const;
  void Feed(int direction);
  void OnCopied(int direction, Bytes slot, TimePoint began, const CopyResult& result);
  void Learn(int direction, Lane& lane);
  void EndRun();
  void ChooseEngines(int direction);
  double RateOf(Lane& lane) const;
  void Give(const std::string& why);

  const Tiers& tiers_;
  const std::vector<LinkEnds> links_;
  const std::vector<std::uint32_t> groups_;
  Copier& copier_;
  Executor& executor_;
  const Clock& clock_;
  const CalibrationOptions options_;
  const Duration slice_;
  const TimePoint end_;
  const std::weak_ptr<void> alive_;
  CalibrationDone done_;
  bool stopped_ = false;
  std::vector<LinkModel> results_;
  std::size_t link_ = ~std::size_t{0};  // of the next: + 1

  // Of the link under way.
  bool has_scratch_ = false;
  Extent scratch_a_;
  Extent scratch_b_;
  Bytes scratch_bytes_ = 0;
  Bytes filled_ = 0;
  std::deque<Run> runs_;
  TimePoint over_{};  // its share of the time
  std::array<std::map<unsigned, double>, kDirections> by_depth_;
  std::array<double, kDirections> duplex_{};

  // Of the run under way.
  Run run_;
  std::array<Lane, kDirections> lanes_;
  TimePoint run_start_{};
  std::optional<std::uint64_t> expected_;
  std::string failed_;
};

// What may be taken of a tier: out of the reserve's reach and below the mark that starts demotion.
Bytes RoomIn(const Tier& tier) {
  const auto high = static_cast<Bytes>(static_cast<double>(tier.capacity()) * tier.options().high);
  const Bytes reserve = std::min(tier.options().reserve, tier.capacity());
  const Bytes most = std::min(high, tier.capacity() - reserve);
  return most - std::min(most, tier.ledger().used());
}

bool Calibrator::TakeScratch() {
  scratch_bytes_ = options_.scratch_max;
  while (scratch_bytes_ > std::min(RoomIn(a()), RoomIn(b())) / 4) scratch_bytes_ /= 2;
  for (; scratch_bytes_ >= kScratchMin; scratch_bytes_ /= 2) {
    auto first = a().Allocate(kCalibrationTenant, scratch_bytes_, ByteState::kReserved);
    if (!first.ok()) continue;
    auto second = b().Allocate(kCalibrationTenant, scratch_bytes_, ByteState::kReserved);
    if (!second.ok()) {
      a().Free(kCalibrationTenant, *first, ByteState::kReserved);
      continue;
    }
    scratch_a_ = *first;
    scratch_b_ = *second;
    has_scratch_ = true;
    return true;
  }
  for (Tier* tier : {&a(), &b()}) tier->ForgetTenant(kCalibrationTenant);
  return false;
}

void Calibrator::FreeScratch() {
  if (!std::exchange(has_scratch_, false)) return;
  a().Free(kCalibrationTenant, scratch_a_, ByteState::kReserved);
  b().Free(kCalibrationTenant, scratch_b_, ByteState::kReserved);
  for (Tier* tier : {&a(), &b()}) tier->ForgetTenant(kCalibrationTenant);
}

// Both directions of the link have nothing (more) to show for it.
void Calibrator::Give(const std::string& why) {
  for (int direction = 0; direction < kDirections; ++direction) {
    LinkModel& model = Result(direction);
    if (model.measured()) continue;
    model.note = absl::StrCat(kNotMeasured, why);
    model.latency = Duration(0);
    model.engines = 1;
  }
}

void Calibrator::NextLink() {
  FreeScratch();
  if (++link_ == links_.size()) return std::move(done_)(std::move(results_));
  for (int direction = 0; direction < kDirections; ++direction) {
    LinkModel model;
    model.from = direction == 0 ? links_[link_].a : links_[link_].b;
    model.to = direction == 0 ? links_[link_].b : links_[link_].a;
    model.contention_group = groups_[link_];
    results_.push_back(std::move(model));
  }
  const auto skip = [this](const std::string& why) {
    Give(why);
    Continue(&Calibrator::NextLink);
  };
  over_ = end_;
  if (clock_.Now() >= over_) return skip(kOutOfTime);
  HMM_CHECK(a().mappable());
  if (!TakeScratch()) {
    return skip(absl::StrCat("no room for scratch in ",
                             RoomIn(a()) < RoomIn(b()) ? a().name() : b().name()));
  }
  by_depth_ = {};
  duplex_ = {};
  filled_ = 0;
  Continue(&Calibrator::Fill);
}

void Calibrator::Fill() {
  std::array<std::byte, kPattern> pattern;
  std::uint64_t state = 0x9E3779B97F4A7C15;
  for (std::byte& byte : pattern) {  // no medium finds anything to compress in it
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    byte = static_cast<std::byte>(state);
  }
  std::byte* const data = a().Address(scratch_a_);
  const Bytes end = std::min(scratch_bytes_, filled_ + kFillStep);
  for (; filled_ < end; filled_ += kPattern) std::memcpy(data + filled_, pattern.data(), kPattern);
  if (filled_ < scratch_bytes_) return Continue(&Calibrator::Fill);
  PlanRuns();
  NextRun();
}

void Calibrator::PlanRuns() {
  runs_.clear();
  const Bytes largest =
      *std::find_if(kSizes.rbegin(), kSizes.rend(), [this](Bytes size) { return size <= half(); });
  const Bytes warm = std::min(largest, kMiB);
  runs_.push_back({What::kWarm, 0, warm, 4, true});
  runs_.push_back({What::kWarm, 1, warm, 4, false});
  const Bytes probe = std::min(largest, kEngineSize);
  const unsigned deepest = b().mappable() ? options_.memory_depth : options_.file_depth;
  for (int round = 0; round < kRounds; ++round) {
    for (int direction = 0; direction < kDirections; ++direction) {
      runs_.push_back({What::kLatency, direction, kLatencySize, 1, false});
      for (unsigned depth = 1; depth <= deepest && depth <= half() / probe; depth *= 2) {
        runs_.push_back({What::kEngines, direction, probe, depth, false});
      }
      for (const Bytes size : kSizes) {
        if (size <= largest) runs_.push_back({What::kCurve, direction, size, 0, false});
      }
    }
    runs_.push_back({What::kDuplex, 0, std::min(largest, kMiB), 0, false});
  }
}

void Calibrator::NextRun() {
  if (runs_.empty()) return Continue(&Calibrator::NextLink);
  if (clock_.Now() >= over_) {
    Give(kOutOfTime);
    return Continue(&Calibrator::NextLink);
  }
  const Run run = runs_.front();
  runs_.pop_front();
  if (run_.what == What::kWarm && run.what != What::kWarm) {
    const double share = kLinkPatience / static_cast<double>(links_.size());
    over_ = std::min(end_,
                     clock_.Now() + std::chrono::duration_cast<Duration>(share * options_.budget));
  }
  StartRun(run);
}

void Calibrator::OpenLane(int direction, const Run& run) {
  Lane& lane = lanes_[static_cast<std::size_t>(direction)];
  lane.active = true;
  const Bytes begin = direction == 0 || run.everywhere ? 0 : half();
  const Bytes end = direction == 1 || run.everywhere ? scratch_bytes_ : half();
  for (Bytes at = begin; at + run.size <= end; at += run.size) lane.slots.push_back(at);
  if (run.what == What::kWarm) lane.wanted = lane.slots.size();
}

void Calibrator::StartRun(const Run& run) {
  run_ = run;
  lanes_ = {};
  failed_.clear();
  for (int direction = 0; direction < kDirections; ++direction) {
    if (run.what == What::kDuplex || direction == run.direction) OpenLane(direction, run);
  }
  expected_ = Checksum(a().Address(scratch_a_), run.size);
  run_start_ = clock_.Now();
  for (int direction = 0; direction < kDirections; ++direction) Feed(direction);
}

bool Calibrator::Feeding(const Lane& lane) const {
  if (!lane.active || stopped_ || !failed_.empty()) return false;
  if (run_.what == What::kWarm) return lane.started < lane.wanted && clock_.Now() < over_;
  return lane.started == 0 || clock_.Now() - run_start_ < slice_;
}

void Calibrator::Feed(int direction) {
  Lane& lane = lanes_[static_cast<std::size_t>(direction)];
  const unsigned depth = run_.depth > 0 ? run_.depth : Result(direction).engines;
  while (Feeding(lane) && lane.under_way < depth && !lane.slots.empty()) {
    const Bytes slot = lane.slots.front();
    lane.slots.pop_front();
    lane.deepest = std::max(lane.deepest, ++lane.under_way);
    ++lane.started;
    const auto part = [&](Tier& tier) {
      const Extent& whole = Scratch(tier);
      return Extent{whole.segment, whole.offset + slot, run_.size};
    };
    CopyJob job;
    job.from = &From(direction);
    job.source = part(From(direction));
    job.to = &To(direction);
    job.target = part(To(direction));
    job.bytes = run_.size;
    if (!job.from->mappable()) job.expected_checksum = expected_;
    copier_.Submit(
        job, [self = shared_from_this(), direction, slot, began = clock_.Now()](CopyResult result) {
          if (!self->alive_.expired()) self->OnCopied(direction, slot, began, result);
        });
  }
}

void Calibrator::OnCopied(int direction, Bytes slot, TimePoint began, const CopyResult& result) {
  Lane& lane = lanes_[static_cast<std::size_t>(direction)];
  --lane.under_way;
  ++lane.ended;
  lane.slots.push_back(slot);
  lane.last = clock_.Now();
  lane.times.push_back(lane.last - began);
  if (!result.status.ok() && failed_.empty()) failed_ = std::string(result.status.message());
  if (stopped_) {
    if (under_way() == 0) FreeScratch();
    return;
  }
  Feed(direction);
  if (under_way() > 0) return;
  EndRun();
}

// Bytes by time; or, if that is more, what the move in the middle went at: others that use the
// machine for a while hold up a few moves for long, and those tell nothing of the link.
double Calibrator::RateOf(Lane& lane) const {
  // A clock that stood still: as if it had taken its finest step.
  const auto seconds = [](Duration span) {
    return std::max(std::chrono::duration<double>(span).count(), 1e-9);
  };
  const auto bytes = static_cast<double>(run_.size);
  const double all = static_cast<double>(lane.ended) * bytes / seconds(lane.last - run_start_);
  // An emulated link lets moves pass in bursts; its rate is what it was given.
  Bytes wire = 0;
  for (const Tier* tier : {&a(), &b()}) {
    const Bytes rate = tier->options().link_bandwidth;
    if (rate > 0) wire = wire == 0 ? rate : std::min(wire, rate);
  }
  if (wire > 0) return std::min(all, static_cast<double>(wire));
  // The first moves found the link idle.
  if (lane.times.size() < kSteady * lane.deepest) return all;
  const auto middle = lane.times.begin() + static_cast<std::ptrdiff_t>(lane.times.size() / 2);
  std::nth_element(lane.times.begin(), middle, lane.times.end());
  return std::max(all, lane.deepest * bytes / seconds(*middle));
}

void Calibrator::ChooseEngines(int direction) {
  const auto& rates = by_depth_[static_cast<std::size_t>(direction)];
  double best = 0;
  for (const auto& [depth, rate] : rates) best = std::max(best, rate);
  for (const auto& [depth, rate] : rates) {
    if (rate < kReached * best) continue;
    Result(direction).engines = depth;
    return;
  }
}

// What a run adds to what is known of a direction: the best of all rounds.
void Calibrator::Learn(int direction, Lane& lane) {
  LinkModel& model = Result(direction);
  const auto d = static_cast<std::size_t>(direction);
  switch (run_.what) {
    case What::kWarm:
      break;
    case What::kLatency: {
      const auto middle = lane.times.begin() + static_cast<std::ptrdiff_t>(lane.times.size() / 2);
      std::nth_element(lane.times.begin(), middle, lane.times.end());
      const bool first = model.latency == Duration(0);
      model.latency = first ? *middle : std::min(model.latency, *middle);
      break;
    }
    case What::kEngines: {
      double& best = by_depth_[d][run_.depth];
      best = std::max(best, RateOf(lane));
      ChooseEngines(direction);
      break;
    }
    case What::kCurve: {
      const auto at = std::find_if(model.curve.begin(), model.curve.end(),
                                   [this](const RatePoint& p) { return p.bytes == run_.size; });
      if (at == model.curve.end()) {
        model.curve.push_back({run_.size, RateOf(lane)});
      } else {
        at->bytes_per_second = std::max(at->bytes_per_second, RateOf(lane));
      }
      break;
    }
    case What::kDuplex:
      duplex_[d] = std::max(duplex_[d], RateOf(lane));
      // More than alone is noise, and so is next to nothing.
      model.duplex_factor = std::clamp(duplex_[d] / RateAt(model, run_.size), 0.01, 1.0);
      break;
  }
}

void Calibrator::EndRun() {
  if (!failed_.empty()) {
    Give(absl::StrCat("a move failed: ", failed_));
    return Continue(&Calibrator::NextLink);
  }
  for (int direction = 0; direction < kDirections; ++direction) {
    Lane& lane = lanes_[static_cast<std::size_t>(direction)];
    if (!lane.active) continue;
    Learn(direction, lane);
  }
  Continue(&Calibrator::NextRun);
}

}  // namespace

std::shared_ptr<Calibration> StartCalibration(const Tiers& tiers, std::vector<LinkEnds> links,
                                              Copier& copier, Executor& executor,
                                              const Clock& clock, const CalibrationOptions& options,
                                              std::weak_ptr<void> alive, CalibrationDone done) {
  auto calibrator = std::make_shared<Calibrator>(tiers, std::move(links), copier, executor, clock,
                                                 options, std::move(alive), std::move(done));
  calibrator->Continue(&Calibrator::NextLink);
  return calibrator;
}

bool OutOfTime(const LinkModel& link) {
  return link.note == absl::StrCat(kNotMeasured, kOutOfTime);
}

std::vector<std::uint32_t> ContentionGroups(const Tiers& tiers,
                                            const std::vector<LinkEnds>& links) {
  std::map<std::string, std::uint32_t> known;
  std::vector<std::uint32_t> groups;
  for (const LinkEnds& link : links) {
    std::string medium = "memory";
    for (const TierId id : {link.a, link.b}) {
      const Tier& tier = *tiers[id];
      struct stat info {};
      if (tier.options().link_bandwidth > 0) {
        medium = absl::StrCat("wire of ", tier.name());
      } else if (!tier.mappable() && fstat(tier.fd(), &info) == 0) {
        medium = absl::StrCat("drive ", info.st_dev);
      } else if (!tier.mappable()) {
        medium = absl::StrCat("file of ", tier.name());
      }
    }
    const auto next = static_cast<std::uint32_t>(known.size() + 1);
    groups.push_back(known.emplace(medium, next).first->second);
  }
  return groups;
}

}  // namespace hmm::copy
