// SPDX-License-Identifier: Apache-2.0
//
// The manager's steering verbs that came with inspection: another size, compaction, moves of a
// tenant's tensors. SetWatermarks, Evict and Drain are in manager.cc.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "hmm/compact_op.h"
#include "hmm/core.h"
#include "hmm/manager.h"
#include "hmm/resize_op.h"
#include "hmm/swap_many_op.h"

namespace hmm::core {
namespace {

CallContext Until(TimePoint deadline) {
  CallContext call;
  call.deadline = deadline;
  return call;
}

absl::Status CheckSelector(const Core& core, const TensorSelector& selector) {
  if (!selector.handles.empty() && !selector.keys.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "give handles or keys, not both");
  }
  const bool named = !selector.handles.empty() || !selector.keys.empty();
  if (named && (!selector.key_prefix.empty() || selector.kind.has_value())) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
        "key_prefix and kind choose among all tensors; leave them out beside handles or keys");
  }
  return core.CheckBatch(selector.handles.size() + selector.keys.size());
}

// Whole characters of a prefix that may be any length, so that the rest of the arguments is kept.
std::string Shortened(std::string_view text) {
  constexpr std::size_t kShown = 96;
  if (text.size() <= kShown) return std::string(text);
  std::size_t end = 0;
  while (const std::size_t length = Utf8Length(text.substr(end))) {
    if (end + length > kShown) break;
    end += length;
  }
  return absl::StrCat(std::string(text.substr(0, end)), "...");
}

std::string SelectorText(const TensorSelector& selector) {
  if (!selector.handles.empty())
    return absl::StrCat(selector.tenant, ", ", selector.handles.size(), " handles");
  if (!selector.keys.empty())
    return absl::StrCat(selector.tenant, ", ", selector.keys.size(), " keys");
  std::string text = selector.tenant;
  if (selector.kind.has_value()) {
    absl::StrAppend(&text, ", kind ", std::string(TensorKindName(*selector.kind)));
  }
  if (!selector.key_prefix.empty()) {
    absl::StrAppend(&text, ", key prefix '", Shortened(selector.key_prefix), "'");
  }
  if (!selector.kind.has_value() && selector.key_prefix.empty()) text += ", all";
  return text;
}

}  // namespace

Manager::OpId Manager::ResizeTier(std::string_view name, Bytes bytes, TimePoint deadline,
                                  Callback<ResizeResult> done) {
  const std::string arguments = absl::StrCat(std::string(name), ", ", bytes, " bytes");
  auto answer = [&](const absl::Status& why) {
    core_->EmitAdmin("ResizeTier", arguments, why);
    std::move(done)(why);
    return OpId{0};
  };
  auto tier = core_->TierByName(name);
  if (!tier.ok()) return answer(tier.status());
  tier::Tier& medium = *core_->tiers[*tier];
  auto size = medium.SizeFor(bytes);
  if (!size.ok()) return answer(size.status());
  // The bound of ValidateWatermarks, which the new size has to keep.
  if (medium.options().reserve > *size / 2) {
    return answer(Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                        absl::StrCat("tier ", std::string(name), ": ", FormatBytes(*size),
                                     " are less than twice its reserve of ",
                                     FormatBytes(medium.options().reserve), "; lower that first")));
  }
  if (medium.limit() < medium.capacity()) {
    return answer(
        WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                        absl::StrCat("tier ", std::string(name), " is being resized already")),
                  std::chrono::milliseconds(1000)));
  }
  return core_->Launch(std::make_unique<ResizeOp>(
      *core_, Until(deadline), *tier, *size,
      [core = core_.get(), arguments,
       done = std::move(done)](absl::StatusOr<ResizeResult> result) mutable {
        core->EmitAdmin("ResizeTier", arguments, result.status());
        std::move(done)(std::move(result));
      }));
}

Manager::OpId Manager::Compact(std::string_view name, TimePoint deadline,
                               Callback<CompactResult> done) {
  const std::string arguments = name.empty() ? "all tiers" : std::string(name);
  std::vector<TierId> tiers;
  if (name.empty()) {
    for (std::size_t i = core_->tiers.size(); i-- > 0;) tiers.push_back(static_cast<TierId>(i));
  } else {
    auto tier = core_->TierByName(name);
    if (!tier.ok()) {
      core_->EmitAdmin("Compact", arguments, tier.status());
      std::move(done)(tier.status());
      return 0;
    }
    tiers.push_back(*tier);
  }
  return core_->Launch(std::make_unique<CompactOp>(
      *core_, Until(deadline), std::move(tiers),
      [core = core_.get(), arguments,
       done = std::move(done)](absl::StatusOr<CompactResult> result) mutable {
        core->EmitAdmin("Compact", arguments, result.status());
        std::move(done)(std::move(result));
      }));
}

Manager::OpId Manager::SwapMany(TensorSelector selector, std::string_view tier, TimePoint deadline,
                                Callback<SwapManyResult> done) {
  const std::string arguments = absl::StrCat(SelectorText(selector), ", to ", std::string(tier));
  auto answer = [&](const absl::Status& why) {
    core_->EmitAdmin("Swap", arguments, why);
    std::move(done)(why);
    return OpId{0};
  };
  if (auto fits = CheckSelector(*core_, selector); !fits.ok()) return answer(fits);
  auto tenant = core_->TenantFor(std::nullopt, selector.tenant);
  if (!tenant.ok()) return answer(tenant.status());
  auto target = core_->TierByName(tier);
  if (!target.ok()) return answer(target.status());
  return core_->Launch(std::make_unique<SwapManyOp>(
      *core_, Until(deadline), Selection(*tenant, std::move(selector)), *target,
      [core = core_.get(), arguments,
       done = std::move(done)](absl::StatusOr<SwapManyResult> result) mutable {
        core->EmitAdmin("Swap", arguments, result.status());
        std::move(done)(std::move(result));
      }));
}

absl::StatusOr<PrefetchManyResult> Manager::PrefetchMany(TensorSelector selector,
                                                         std::string_view tier) {
  const std::string arguments = absl::StrCat(SelectorText(selector), ", to ", std::string(tier));
  auto result = DoPrefetchMany(std::move(selector), tier);
  core_->EmitAdmin("Prefetch", arguments, result.status());
  return result;
}

absl::StatusOr<PrefetchManyResult> Manager::DoPrefetchMany(TensorSelector selector,
                                                           std::string_view tier) {
  HMM_RETURN_IF_ERROR(CheckSelector(*core_, selector));
  HMM_ASSIGN_OR_RETURN(const TenantId tenant, core_->TenantFor(std::nullopt, selector.tenant));
  std::optional<TierId> target;
  HMM_RETURN_IF_ERROR(core_->MappableByName(tier, target));
  PrefetchManyResult result;
  auto dropped = [&](std::uint64_t count, const absl::Status& why) {
    result.dropped += count;
    if (result.first_error.ok()) result.first_error = why;
  };
  // It never waits, so it is bounded: one batch of hints, and a look at so many slots.
  constexpr std::size_t kSlotLooks = 1u << 17;
  Selection selection(tenant, std::move(selector));
  const std::vector<Handle> handles = selection.Next(*core_, core_->options.batch_max, kSlotLooks);
  const MoveJournal::Because why(core_->journal, MoveCause::kAdminPrefetch);
  for (const Handle handle : handles) {
    const absl::Status status =
        core_->PrefetchOne(core_->store.Find(tenant, handle), target.value_or(0), TimePoint::max());
    if (status.ok()) {
      ++result.taken;
    } else {
      dropped(1, status);
    }
  }
  if (selection.unknown() > 0) {
    dropped(selection.unknown(),
            Error(absl::StatusCode::kNotFound, Reason::kNotFound, "no tensor has this key"));
  }
  if (!selection.done() && result.first_error.ok()) {
    result.first_error = Error(
        absl::StatusCode::kUnavailable, Reason::kDropped,
        absl::StrCat("only the first ", handles.size(), " tensors were hinted; narrow the choice"));
  }
  core_->Kick();
  return result;
}

void Manager::NoteAdmin(std::string_view action, std::string_view arguments,
                        const absl::Status& outcome) {
  core_->EmitAdmin(action, arguments, outcome);
}

}  // namespace hmm::core
