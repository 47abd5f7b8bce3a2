// SPDX-License-Identifier: Apache-2.0
#include "daemon/region_convert.h"

#include <algorithm>
#include <chrono>

#include "base/status.h"
#include "daemon/convert.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

// A wait of a year is no deadline; the sum with the time must not overflow.
constexpr std::uint64_t kTimeoutMaxUs = 365ULL * 24 * 3600 * 1000 * 1000;

TimePoint DeadlineOf(std::uint64_t timeout_us, TimePoint now) {
  if (timeout_us == 0) return TimePoint::max();
  return now + std::chrono::microseconds(std::min(timeout_us, kTimeoutMaxUs));
}

std::vector<core::FragmentSpec> DecodeFragments(
    const google::protobuf::RepeatedPtrField<v1::Fragment>& fragments) {
  std::vector<core::FragmentSpec> out;
  out.reserve(static_cast<std::size_t>(fragments.size()));
  for (const v1::Fragment& fragment : fragments) {
    out.push_back({fragment.region(), fragment.offset(), fragment.bytes()});
  }
  return out;
}

}  // namespace

core::LeaseArgs Decode(const v1::LeaseRegionRequest& request) {
  return {.region = request.region(),
          .bytes = request.bytes(),
          .tier = request.tier(),
          .wait = request.wait()};
}

absl::StatusOr<core::JobArgs> Decode(const v1::StoreRequest& request, TimePoint now) {
  core::JobArgs args;
  args.kind = core::JobKind::kStore;
  args.job = request.job();
  args.deadline = DeadlineOf(request.timeout_us(), now);
  args.tier = request.tier();
  args.allow_lower = request.allow_lower();
  args.keys.reserve(static_cast<std::size_t>(request.keys_size()));
  for (int i = 0; i < request.keys_size(); ++i) {
    const v1::StoreRequest::Key& key = request.keys(i);
    if (!v1::TensorKind_IsValid(key.kind())) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kBadEnum,
                   Cat("keys[", i, "].kind: ", static_cast<int>(key.kind()),
                       " is no TensorKind of this daemon"));
    }
    core::JobKeySpec& spec = args.keys.emplace_back();
    spec.tensor.key = key.key();
    spec.tensor.kind = key.kind() == v1::TENSOR_KIND_UNSPECIFIED
                           ? TensorKind::kOther
                           : static_cast<TensorKind>(key.kind());
    spec.tensor.priority = key.priority();
    spec.tensor.recompute_us = key.recompute_us();
    spec.tensor.droppable = key.droppable();
    spec.fragments = DecodeFragments(key.fragments());
  }
  return args;
}

core::JobArgs Decode(const v1::LoadRequest& request, TimePoint now) {
  core::JobArgs args;
  args.kind = core::JobKind::kLoad;
  args.job = request.job();
  args.deadline = DeadlineOf(request.timeout_us(), now);
  args.keys.reserve(static_cast<std::size_t>(request.keys_size()));
  for (const v1::LoadRequest::Key& key : request.keys()) {
    core::JobKeySpec& spec = args.keys.emplace_back();
    spec.tensor.key = key.key();
    spec.fragments = DecodeFragments(key.fragments());
  }
  return args;
}

void Encode(const core::JobStatus& status, v1::JobState& out) {
  out.set_job(status.job);
  out.set_ended(status.ended);
  out.set_keys(static_cast<std::uint32_t>(status.keys));
  out.set_keys_ended(static_cast<std::uint32_t>(status.keys_ended));
  for (std::size_t i = 0; i < status.done.size(); ++i) {
    if (status.done[i].ok()) continue;
    v1::JobState::Verdict& verdict = *out.add_failed();
    verdict.set_key(static_cast<std::uint32_t>(i));
    EncodeError(status.done[i], *verdict.mutable_error());
  }
}

}  // namespace hmm::daemon
