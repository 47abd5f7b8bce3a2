// SPDX-License-Identifier: Apache-2.0
//
// Every list and string is preceded by its length, so that no two graphs read alike. Numbers are
// hashed as eight bytes, the least first.
#include "graph/fingerprint.h"

#include <xxhash.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace hmm::graph {
namespace {

class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), &XXH3_freeState) {
    HMM_CHECK(state_ != nullptr && XXH3_64bits_reset(state_.get()) == XXH_OK);
  }

  void Number(std::uint64_t value) {
    std::array<unsigned char, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void Text(std::string_view text) {
    Number(text.size());
    XXH3_64bits_update(state_.get(), text.data(), text.size());
  }
  void List(const std::vector<std::uint32_t>& list) {
    Number(list.size());
    for (const std::uint32_t value : list) Number(value);
  }
  std::uint64_t Digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

std::uint64_t Flags(const plan::Storage& storage) {
  return (storage.persistent ? 1U : 0U) | (storage.input ? 2U : 0U) | (storage.output ? 4U : 0U) |
         (storage.pinned ? 8U : 0U) | (storage.recomputable ? 16U : 0U);
}

}  // namespace

std::uint64_t Fingerprint(const plan::Graph& graph) {
  Hasher hash;
  hash.Number(graph.ops.size());
  for (const plan::Op& op : graph.ops) {
    hash.Text(op.name);
    hash.List(op.reads);
    hash.List(op.writes);
    hash.List(op.after);
    hash.Number(op.group.has_value() ? *op.group + std::uint64_t{1} : 0);
    hash.Number(op.workspace);
    hash.Number(op.stream);
  }
  hash.Number(graph.storages.size());
  for (const plan::Storage& storage : graph.storages) {
    hash.Text(storage.name);
    hash.Number(storage.aliases.size());
    for (const std::string& alias : storage.aliases) hash.Text(alias);
    hash.Number(storage.bytes);
    hash.Number(static_cast<std::uint64_t>(storage.kind));
    hash.Number(Flags(storage));
  }
  hash.Number(graph.groups.size());
  for (const plan::DataDependentGroup& group : graph.groups) {
    hash.Text(group.name);
    hash.List(group.members);
    hash.Number(group.k);
  }
  return hash.Digest();
}

}  // namespace hmm::graph
