// SPDX-License-Identifier: Apache-2.0
//
// The KV cache in the node's memory: the model's Kv on hmm::KvSequence. This file and
// hmm_weights.cc are all that an engine has to write to use hmmd. One thread, as kv.h says; errors
// are those of hmm::KvSequence, which hmm/kv_cache.h names.
#pragma once

#include <hmm/kv_cache.h>

#include <memory>
#include <string>

#include "kv.h"

namespace llm {

// `suspend_to`: tier that Suspend moves a sequence to; empty: it only gives up its pins.
// `cache` must outlive it.
std::unique_ptr<Kv> OpenHmmKv(hmm::KvCache& cache, std::string suspend_to = {});

}  // namespace llm
