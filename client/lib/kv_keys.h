// SPDX-License-Identifier: Apache-2.0
//
// Keys of KV blocks: a SHA-256 chain over what a block's bytes depend on. SHA-256 and nothing
// quicker, for prompts come from strangers: with a hash that can be steered, one user of a tenant
// could make another's prompt hit blocks of his own.
//
// Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "hmm/kv_cache.h"

namespace hmm::client_internal {

using KvDigest = std::array<unsigned char, 32>;

KvDigest Sha256(absl::Span<const std::byte> bytes);
std::string HexOf(const KvDigest& digest, std::size_t bytes);

// Of model, dtype, layout, rank and salt: what shares one geometry.
KvDigest IdentityOf(const KvCacheOptions& options);
// Where chains begin: identity and geometry.
KvDigest ChainStart(const KvDigest& identity, const KvCacheOptions& options);
// The link of a full block behind `before`.
KvDigest ChainNext(const KvDigest& before, absl::Span<const std::int32_t> tokens);

// Key of the tensor of `layer`, and of the record of an identity's geometry.
std::string BlockKey(const KvDigest& link, std::size_t layer);
std::string FormatKey(const KvDigest& identity);

}  // namespace hmm::client_internal
