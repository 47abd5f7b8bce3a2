// SPDX-License-Identifier: Apache-2.0
//
// The SHA-256 of a model file, under which all processes share what comes of it. Hashing a large
// file takes longer than starting, so PATH.sha256 keeps it, as `sha256sum` writes it and with a
// comment behind it that tells for which file: a file that took the name since is hashed again.
// Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint.h"

namespace llm {

// As recorded for this very file, else computed. A record of another file is replaced, one without
// the comment gets it if its digest is right; where there is none, none is made.
std::string DigestOf(const Checkpoint& checkpoint);

// Computes and records it. UNAVAILABLE when it cannot be written.
absl::Status RecordDigest(const Checkpoint& checkpoint);

}  // namespace llm
