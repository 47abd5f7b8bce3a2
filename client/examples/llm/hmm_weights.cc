// SPDX-License-Identifier: Apache-2.0
#include "hmm_weights.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace llm {
namespace {

constexpr int kTriesMax = 5;

bool Gone(const absl::Status& status) {
  const std::string reason = hmm::ReasonOfStatus(status);
  return reason == "LOST" || reason == "NOT_FOUND" || reason == "CHECKSUM" || reason == "IO";
}

}  // namespace

HmmWeights::HmmWeights(hmm::Client& client, const Checkpoint& checkpoint, std::string digest,
                       std::string tier)
    : client_(client),
      checkpoint_(checkpoint),
      shape_(checkpoint.shape()),
      digest_(std::move(digest)),
      tier_(std::move(tier)),
      pieces_(shape_.layers + 1),
      hinted_(shape_.layers + 1) {}

absl::StatusOr<std::unique_ptr<HmmWeights>> HmmWeights::Open(hmm::Client& client,
                                                             const Checkpoint& checkpoint,
                                                             const std::string& digest,
                                                             const std::string& tier) {
  std::unique_ptr<HmmWeights> made(new HmmWeights(client, checkpoint, digest, tier));
  // One by one, and let go again: all of them may be more than a session may pin.
  for (std::size_t piece = 0; piece < made->pieces_.size(); ++piece) {
    absl::StatusOr<hmm::Held> held = made->FindOrLoad(piece);
    if (!held.ok()) return held.status();
    made->pieces_[piece] = held->tensor;
    if (piece == made->shape_.layers) made->globals_ = std::move(held->pin);
  }
  return made;
}

absl::StatusOr<hmm::Held> HmmWeights::FindOrLoad(std::size_t piece) {
  const bool global = piece == shape_.layers;
  const std::string key =
      absl::StrCat("weights:", digest_, ":", global ? "globals" : absl::StrCat(piece));
  const std::size_t bytes =
      (global ? shape_.global_floats() : shape_.layer_floats()) * sizeof(float);
  for (int attempt = 0;; ++attempt) {
    // 1. Somebody has loaded it: attach, wherever it is.
    auto found = client_.Lookup({&key, 1}, {.allow_lower = true});
    if (!found.ok()) return found.status();
    if (!found->empty() && found->front().pin.size() == bytes) return std::move(found->front());
    // 2. Nobody has: room, where they compute or below it, and the bytes from the checkpoint. They
    //    may be dropped: the checkpoint has them.
    if (!std::exchange(checked_, true)) {
      if (const absl::Status finite = checkpoint_.CheckFinite(); !finite.ok()) return finite;
    }
    auto held = client_.Allocate(
        {.bytes = bytes, .kind = hmm::Kind::kWeight, .key = key, .priority = 1, .droppable = true},
        {.tier = tier_, .allow_lower = true, .wait = true});
    if (held.ok()) {
      auto* out = reinterpret_cast<float*>(held->pin.data());
      global ? checkpoint_.PackGlobals(out) : checkpoint_.PackLayer(piece, out);
      stats_.loaded_bytes += bytes;
      // Sealed: immutable, and from now on everybody's who knows the digest. The pin is dropped,
      // and taken anew when the layer's turn comes.
      const absl::Status sealed = client_.Seal(held->tensor, hmm::Pin());
      if (sealed.ok()) return held;
      if (!Gone(sealed) || attempt >= kTriesMax) return sealed;
      continue;
    }
    // 3. Another process is loading it at this moment, or there is no room: again, a few times.
    const bool taken = hmm::ReasonOfStatus(held.status()) == "ALREADY_EXISTS";
    const auto pause = taken ? std::chrono::milliseconds(50) : hmm::RetryAfterOf(held.status());
    if (!pause || attempt >= (taken ? 200 : kTriesMax)) return held.status();
    std::this_thread::sleep_for(*pause);
  }
}

absl::StatusOr<hmm::Pin> HmmWeights::Get(std::size_t piece) {
  // 1. There already: nanoseconds, no RPC.
  if (std::optional<hmm::Pin> pin = pieces_[piece].TryPin(); pin && Usable(*pin)) {
    Count(piece, *pin);
    return *std::move(pin);
  }
  // 2. Lower down, or on its way: wait for it.
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<hmm::Pin> pin = absl::UnknownError("not asked");
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    pin = client_.Acquire(pieces_[piece], {.tier = tier_, .allow_lower = true});
    if (pin.ok()) break;
    if (const auto pause = hmm::RetryAfterOf(pin.status())) {
      std::this_thread::sleep_for(*pause);
    } else if (Gone(pin.status())) {
      // Dropped, or the daemon is another: from the checkpoint again.
      absl::StatusOr<hmm::Held> held = FindOrLoad(piece);
      if (!held.ok()) return held.status();
      pieces_[piece] = held->tensor;
    } else {
      break;
    }
  }
  stats_.wait += std::chrono::steady_clock::now() - begin;
  if (pin.ok()) Count(piece, *pin);
  return pin;
}

void HmmWeights::Count(std::size_t piece, const hmm::Pin& pin) {
  ++stats_.hits[std::string(pin.found_tier())];
  // Where it was found where it is, a hint had brought it; or there was no room above.
  const bool hinted = hinted_[piece];
  hinted_[piece] = false;
  if (pin.found_tier() != pin.tier() || (hinted && Usable(pin))) stats_.brought_bytes += pin.size();
}

absl::StatusOr<LayerWeights> HmmWeights::Layer(std::size_t index) {
  layer_ = hmm::Pin();  // the one before may go now
  absl::StatusOr<hmm::Pin> pin = Get(index);
  if (!pin.ok()) return pin.status();
  layer_ = *std::move(pin);
  // While this one computes, the next comes up; after the last, the first again.
  // The pin that looks must be gone by then: what is pinned lower down does not move.
  const std::size_t after = (index + 1) % shape_.layers;
  const hmm::Tensor& next = pieces_[after];
  std::optional<hmm::Pin> there = next.TryPin();
  const bool usable = there && Usable(*there);
  there.reset();
  if (shape_.layers > 1 && !usable && client_.Prefetch(next, {.tier = tier_}).ok()) {
    hinted_[after] = true;
  }
  return LayerAt(shape_, reinterpret_cast<const float*>(layer_.data()));
}

GlobalWeights HmmWeights::Globals() {
  return GlobalsAt(shape_, reinterpret_cast<const float*>(globals_.data()));
}

}  // namespace llm
