// SPDX-License-Identifier: Apache-2.0
#include "hmm/swap_many_op.h"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "hmm/bring_op.h"

namespace hmm::core {
namespace {

constexpr std::size_t kBatch = 256;
constexpr std::size_t kLooksPerStep = 8192;

// Keeps the first of equal ones, in order: earlier ones go first where not all find room.
template <typename T, typename IdOf>
void DropRepeated(std::vector<T>& named, IdOf id_of) {
  absl::flat_hash_set<std::decay_t<decltype(id_of(named.front()))>> seen;
  std::erase_if(named, [&](const T& one) { return !seen.insert(id_of(one)).second; });
}

}  // namespace

Selection::Selection(TenantId tenant, TensorSelector selector)
    : tenant_(tenant), selector_(std::move(selector)) {
  DropRepeated(selector_.handles, [](Handle handle) { return handle.Pack(); });
  DropRepeated(selector_.keys, [](const std::string& key) { return key; });
}

std::vector<Handle> Selection::Next(const Core& core, std::size_t max, std::size_t looks) {
  std::vector<Handle> found;
  if (!selector_.handles.empty()) {
    while (at_ < selector_.handles.size() && found.size() < max) {
      found.push_back(selector_.handles[at_++]);
    }
    done_ = at_ >= selector_.handles.size();
    return found;
  }
  if (!selector_.keys.empty()) {
    while (at_ < selector_.keys.size() && found.size() < max) {
      const TensorIndex index = core.store.FindKey(tenant_, selector_.keys[at_++]);
      if (index == kNoIndex) {
        ++unknown_;
      } else {
        found.push_back(core.store[index].handle());
      }
    }
    done_ = at_ >= selector_.keys.size();
    return found;
  }
  const std::size_t end = core.store.slots_used(tenant_);
  for (; at_ < end && found.size() < max && looks > 0; ++at_, --looks) {
    const TensorIndex index = core.store.at_slot(tenant_, static_cast<std::uint32_t>(at_));
    if (index == kNoIndex) continue;
    const Tensor& tensor = core.store[index];
    if (tensor.state == TensorState::kDoomed || tensor.lost || tensor.hidden) continue;
    if (tensor.ahead) continue;  // nobody has it yet
    if (selector_.kind.has_value() && tensor.kind != *selector_.kind) continue;
    if (!tensor.key().starts_with(selector_.key_prefix)) continue;
    found.push_back(tensor.handle());
  }
  done_ = at_ >= end;
  return found;
}

SwapManyOp::SwapManyOp(Core& core, const CallContext& call, Selection selection, TierId target,
                       Callback<SwapManyResult> done)
    : Op(core, call),
      selection_(std::move(selection)),
      target_(target),
      done_(std::move(done)),
      shared_(std::make_shared<Shared>()) {}

SwapManyOp::~SwapManyOp() = default;

void SwapManyOp::Fail(const absl::Status& why, std::uint64_t count) {
  shared_->result.failed += count;
  if (shared_->result.first_error.ok()) shared_->result.first_error = why;
}

bool SwapManyOp::IsThere(TensorIndex index) const {
  if (index == kNoIndex || core_.store.home_tier(index) != target_) return false;
  return core_.store[index].state != TensorState::kMoving ||
         core_.relocator.Destination(index) == target_;
}

void SwapManyOp::Recount(std::size_t looks) {
  SwapManyResult& out = shared_->result;
  for (; recounted_ < shared_->met.size() && looks > 0; ++recounted_, --looks) {
    const Met& met = shared_->met[recounted_];
    const TensorIndex index = core_.store.Find(selection_.tenant(), met.handle);
    if (!IsThere(index)) {
      ++out.left;
    } else if (met.came) {
      ++out.tensors;
      out.moved_bytes += core_.store[index].bytes;
    } else {
      ++out.there;
    }
  }
}

void SwapManyOp::Launch(std::vector<Handle> handles) {
  BringArgs bring;
  bring.target = target_;
  bring.pin = false;
  bring.cause = MoveCause::kAdminSwap;
  bring.tenant = selection_.tenant();
  for (const Handle handle : handles) {
    if (IsThere(core_.store.Find(*bring.tenant, handle))) {
      shared_->met.push_back({.handle = handle, .came = false});
    } else {
      bring.handles.push_back(handle);
    }
  }
  if (bring.handles.empty()) return;
  shared_->running = true;
  const std::size_t count = bring.handles.size();
  const OpId batch = core_.Launch(std::make_unique<BringOp>(
      core_, call_, std::move(bring),
      [core = &core_, shared = shared_, count](absl::StatusOr<BringResult> brought) {
        shared->running = false;
        SwapManyResult& out = shared->result;
        if (!brought.ok()) {
          out.failed += count;
          if (out.first_error.ok()) out.first_error = brought.status();
        }
        for (std::size_t i = 0; brought.ok() && i < brought->items.size(); ++i) {
          const BringItem& item = brought->items[i];
          if (item.done) {
            shared->met.push_back({.handle = item.handle, .came = true});
          } else if (ReasonOf(item.error) == Reason::kPinned) {
            ++out.pinned;
          } else {
            ++out.failed;
            if (out.first_error.ok()) out.first_error = item.error;
          }
        }
        core->Kick();
      }));
  shared_->batch = shared_->running ? batch : 0;
}

bool SwapManyOp::Step() {
  if (shared_->running) return false;
  if (!selection_.done()) {
    Launch(selection_.Next(core_, kBatch, kLooksPerStep));
    if (const std::size_t unknown = selection_.unknown() - unknown_counted_; unknown > 0) {
      unknown_counted_ = selection_.unknown();
      Fail(Error(absl::StatusCode::kNotFound, Reason::kNotFound, "no tensor has this key"),
           unknown);
    }
    if (!shared_->running) core_.Kick();
    return false;
  }
  Recount(kLooksPerStep);
  if (recounted_ < shared_->met.size()) {
    core_.Kick();
    return false;
  }
  std::move(done_)(shared_->result);
  return true;
}

void SwapManyOp::End(const absl::Status& why) {
  if (shared_->running) {
    core_.Cancel(shared_->batch, why.ok() ? Error(absl::StatusCode::kDeadlineExceeded,
                                                  Reason::kDeadline, "the deadline passed")
                                          : why);
  }
  if (why.ok()) {
    Recount(std::numeric_limits<std::size_t>::max());  // at once: an answer is due
    std::move(done_)(shared_->result);
  } else {
    std::move(done_)(why);
  }
}

}  // namespace hmm::core
