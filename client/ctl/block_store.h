// SPDX-License-Identifier: Apache-2.0
//
// What replay needs of the client library, in the words of blocks: ClientBlockStore (the real one)
// and the tests' store in plain memory. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/units.h"

namespace hmm::ctl {

// A pinned block; destroying it gives the pin back.
class PinnedBlock {
 public:
  virtual ~PinnedBlock() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

struct FoundBlock {
  std::unique_ptr<PinnedBlock> block;
  std::string tier;  // name of the tier it was in when asked for
};

class BlockStore {
 public:
  virtual ~BlockStore() = default;
  // Pins the leading run of `keys` that is there.
  virtual absl::StatusOr<std::vector<FoundBlock>> Lookup(absl::Span<const std::string> keys,
                                                         std::chrono::milliseconds timeout) = 0;
  // Room for blocks, pinned for writing; an answer for each key.
  virtual absl::StatusOr<std::vector<absl::StatusOr<std::unique_ptr<PinnedBlock>>>> Allocate(
      absl::Span<const std::string> keys, Bytes bytes, std::chrono::milliseconds timeout) = 0;
  // Makes blocks of Allocate visible under their keys and gives their pins back; an answer for
  // each.
  virtual absl::StatusOr<std::vector<absl::Status>> Seal(
      std::vector<std::unique_ptr<PinnedBlock>> blocks) = 0;
  // Makes `keys` the ones used last, the first of them last of all. Those not there are skipped.
  virtual absl::Status Touch(absl::Span<const std::string> keys) = 0;
};

}  // namespace hmm::ctl
