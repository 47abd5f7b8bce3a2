// SPDX-License-Identifier: Apache-2.0
//
// Models of any size with random weights, for trying out sizes that no real small model has. What
// they write is no text, but depends on all of the context, so that wrong KV shows. Any thread,
// one model at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint.h"

namespace llm {

// "layers,dim,heads,kv_heads,vocab[,context]"; hidden is 8/3 of dim, context 2,048 unless given.
// INVALID_ARGUMENT names the field and its value.
absl::StatusOr<ModelShape> ParseModelSpec(const std::string& spec);

// Writes such a model to `path`, and its SHA-256 to PATH.sha256 (digest.h). The same
// shape and seed give the same bytes. RESOURCE_EXHAUSTED, with nothing begun, where there is no
// room for them; errno's code when they cannot be written. What was there is left then, and nothing
// beside it, also when SIGHUP, SIGINT or SIGTERM ends the process meanwhile. REQUIRES:
// CheckShape(shape) is OK.
absl::Status MakeModel(const ModelShape& shape, std::uint64_t seed, const std::string& path);

}  // namespace llm
