// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "digest.h"
#include "hmm_kv.h"

namespace llm {

namespace {

// What the daemon says of a tier that `option` names. Before anything is computed: some of them are
// asked for late, or never.
absl::Status CheckTier(hmm::Client& client, const char* option, const std::string& tier,
                       bool readable) {
  if (tier.empty()) return absl::OkStatus();
  const std::string key = "hmm-llm: no tensor";
  const absl::Status said = client.Lookup({&key, 1}, {.tier = tier}).status();
  if (absl::IsInvalidArgument(said) && !readable) return absl::OkStatus();
  if (!absl::IsInvalidArgument(said) && !absl::IsNotFound(said)) return said;
  return {said.code(), absl::StrCat(option, ": ", said.message())};
}

absl::Status CheckTiers(hmm::Client& client, const Args& args) {
  absl::Status status;
  if (args.kv == KvKind::kHmm) {
    status.Update(CheckTier(client, "--kv-tier", args.kv_tier, true));
    status.Update(CheckTier(client, "--suspend-to", args.suspend_to, false));
  }
  if (args.offload_weights) {
    status.Update(CheckTier(client, "--weight-tier", args.weight_tier, true));
  }
  return status;
}

}  // namespace

std::unique_ptr<Kv> Engine::OpenKv(const Args& args) {
  return hmm_cache != nullptr ? OpenHmmKv(*hmm_cache, args.suspend_to) : local_cache->Open();
}

absl::Status Engine::NameTiers(const absl::Status& status) {
  if (client == nullptr || !absl::IsResourceExhausted(status)) return status;
  const auto tiers = client->Tiers();
  if (!tiers.ok()) return status;
  std::string states;
  for (const hmm::Client::Tier& tier : *tiers) {
    if (tier.state != "online") absl::StrAppend(&states, "; tier ", tier.name, " is ", tier.state);
  }
  absl::Status named(status.code(), absl::StrCat(status.message(), states));
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

absl::StatusOr<Engine> MakeEngine(const Args& args, const Checkpoint& checkpoint) {
  const ModelShape& shape = checkpoint.shape();
  Engine engine;
  // 1. The daemon. One Client serves the whole process.
  const bool kv_in_hmm = args.kv == KvKind::kHmm;
  if (kv_in_hmm || args.offload_weights) {
    auto client = hmm::Client::Connect({.dir = args.dir, .device = args.device});
    if (!client.ok()) return client.status();
    engine.client = *std::move(client);
    if (absl::Status tiers = CheckTiers(*engine.client, args); !tiers.ok()) return tiers;
    const auto tiers = engine.client->Tiers();
    if (!tiers.ok()) return tiers.status();
    for (const hmm::Client::Tier& tier : *tiers) engine.tier_kinds[tier.name] = tier.kind;
  }
  // 2. Who are we: all that is shared is shared under the SHA-256 of the model.
  std::string digest;
  if (engine.client != nullptr) digest = DigestOf(checkpoint);
  // 3. The weights.
  if (args.offload_weights) {
    auto weights = HmmWeights::Open(*engine.client, checkpoint, digest, args.weight_tier);
    if (!weights.ok()) return weights.status();
    engine.hmm_weights = weights->get();
    engine.weights = *std::move(weights);
  } else {
    if (absl::Status finite = checkpoint.CheckFinite(); !finite.ok()) return finite;
    engine.weights = std::make_unique<FileWeights>(checkpoint);
  }
  // 4. The KV cache.
  if (kv_in_hmm) {
    auto cache = hmm::KvCache::Create(
        *engine.client, {.layers = static_cast<std::uint32_t>(shape.layers),
                         .block_tokens = static_cast<std::uint32_t>(args.block_tokens),
                         .token_bytes = shape.token_bytes(),
                         .model_digest = digest,
                         .salt = args.salt,
                         .tier = args.kv_tier,
                         .window_bytes = args.window});
    if (!cache.ok()) return cache.status();
    engine.hmm_cache = *std::move(cache);
  } else {
    engine.local_cache = std::make_unique<LocalCache>(shape, args.block_tokens, args.kv_budget);
  }
  engine.model = std::make_unique<Model>(shape, args.block_tokens, *engine.weights);
  return engine;
}

}  // namespace llm
