// SPDX-License-Identifier: Apache-2.0
//
// BlockStore over libhmm_client: blocks are droppable kv_cache tensors, asked for in HBM and taken
// lower down where it has no room. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/ctl/block_store.h"
#include "hmm/client.h"

namespace hmm::ctl {

class ClientBlockStore final : public BlockStore {
 public:
  // `tier`: name of the tier hits are brought to; empty: the session's HBM for what is new, any
  // tier that is mapped for hits. `client` outlives the store and its blocks.
  ClientBlockStore(Client& client, std::string tier) : client_(client), tier_(std::move(tier)) {}

  absl::StatusOr<std::vector<FoundBlock>> Lookup(absl::Span<const std::string> keys,
                                                 std::chrono::milliseconds timeout) override;
  absl::StatusOr<std::vector<absl::StatusOr<std::unique_ptr<PinnedBlock>>>> Allocate(
      absl::Span<const std::string> keys, Bytes bytes, std::chrono::milliseconds timeout) override;
  absl::Status Touch(absl::Span<const std::string> keys) override;
  absl::StatusOr<std::vector<absl::Status>> Seal(
      std::vector<std::unique_ptr<PinnedBlock>> blocks) override;

 private:
  Client& client_;
  const std::string tier_;
};

}  // namespace hmm::ctl
