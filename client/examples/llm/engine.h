// SPDX-License-Identifier: Apache-2.0
//
// What a run needs, made from the command line: the model, where its weights come from, where its
// KV cache lies. One thread.
#pragma once

#include <hmm/client.h>
#include <hmm/kv_cache.h>

#include <memory>

#include "absl/status/statusor.h"
#include "args.h"
#include "checkpoint.h"
#include "hmm_weights.h"
#include "kv.h"
#include "local_kv.h"
#include "model.h"
#include "weights.h"

namespace llm {

// In the order in which they are made.
struct Engine {
  std::unique_ptr<hmm::Client> client;  // null: all in this process
  std::unique_ptr<WeightSource> weights;
  HmmWeights* hmm_weights = nullptr;        // `weights`, if they lie in hmmd
  std::unique_ptr<hmm::KvCache> hmm_cache;  // one of
  std::unique_ptr<LocalCache> local_cache;  // these two
  std::unique_ptr<Model> model;
  TierKinds tier_kinds;

  std::unique_ptr<Kv> OpenKv(const Args& args);  // of a new sequence
  // The same; where it is RESOURCE_EXHAUSTED, with the daemon's tiers that are not online, for they
  // may be why.
  absl::Status NameTiers(const absl::Status& status);
};

// `checkpoint` must outlive it.
absl::StatusOr<Engine> MakeEngine(const Args& args, const Checkpoint& checkpoint);

}  // namespace llm
