// SPDX-License-Identifier: Apache-2.0
#include "client/lib/kv_keys.h"

#include <set>
#include <string>
#include <vector>

#include "support/catch.h"

namespace hmm::client_internal {
namespace {

KvCacheOptions Options() {
  KvCacheOptions options;
  options.layers = 2;
  options.block_tokens = 4;
  options.token_bytes = 64;
  options.model_digest = "m";
  return options;
}
KvDigest StartOf(const KvCacheOptions& options) { return ChainStart(IdentityOf(options), options); }

TEST_CASE("Sha256 is SHA-256") {
  const std::string text = "abc";  // FIPS 180-4's example
  const KvDigest digest = Sha256({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  CHECK(HexOf(digest, 32) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("every option that bytes depend on changes all keys, the others none") {
  std::set<std::string> starts = {HexOf(StartOf(Options()), 32)};
  const auto changed = [&](auto change) {
    KvCacheOptions options = Options();
    change(options);
    return starts.insert(HexOf(StartOf(options), 32)).second;
  };
  using O = KvCacheOptions;
  CHECK(changed([](O& o) { o.layers = 3; }));
  CHECK(changed([](O& o) { o.block_tokens = 8; }));
  CHECK(changed([](O& o) { o.token_bytes = 65; }));
  CHECK(changed([](O& o) { o.model_digest = "n"; }));
  CHECK(changed([](O& o) { o.dtype = "f16"; }));
  CHECK(changed([](O& o) { o.layout = "v,k"; }));
  CHECK(changed([](O& o) { o.ranks = 2; }));
  CHECK(changed([](O& o) {
    o.ranks = 2;
    o.rank = 1;
  }));
  CHECK(changed([](O& o) { o.salt = "s"; }));
  CHECK_FALSE(changed([](O& o) { o.tier = "hbm0"; }));
  CHECK_FALSE(changed([](O& o) { o.window_bytes = 1; }));
  CHECK_FALSE(changed([](O& o) { o.priority = 3; }));
}

TEST_CASE("fields do not run into each other") {
  KvCacheOptions a = Options();
  KvCacheOptions b = Options();
  a.dtype = "f3";
  a.layout = "2k";
  b.dtype = "f32";
  b.layout = "k";
  CHECK(IdentityOf(a) != IdentityOf(b));
}

TEST_CASE("a link depends on every token before it, and a key on the layer too") {
  const KvDigest start = StartOf(Options());
  const std::vector<std::int32_t> x = {1, 2, 3, 4};
  const std::vector<std::int32_t> y = {1, 2, 3, -4};
  const KvDigest after_x = ChainNext(start, x);
  CHECK(after_x == ChainNext(start, x));
  CHECK(after_x != ChainNext(start, y));
  CHECK(ChainNext(after_x, x) != after_x);
  CHECK(ChainNext(after_x, x) != ChainNext(ChainNext(start, y), x));
  CHECK(BlockKey(after_x, 0) != BlockKey(after_x, 1));
  CHECK(BlockKey(after_x, 4095).size() <= 256);
  CHECK(FormatKey(IdentityOf(Options())) != FormatKey(start));
}

}  // namespace
}  // namespace hmm::client_internal
