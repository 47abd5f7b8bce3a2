// SPDX-License-Identifier: Apache-2.0
#include "client/lib/kv_keys.h"

#include <openssl/evp.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace hmm::client_internal {
namespace {

constexpr std::size_t kKeyBytes = 20;  // of a digest's 32

class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new()) {
    HMM_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  Hasher& Bytes(const void* data, std::size_t size) {
    HMM_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
    return *this;
  }
  // Little endian on every machine.
  Hasher& Number(std::uint64_t value) {
    unsigned char bytes[8];
    for (unsigned char& byte : bytes) {
      byte = static_cast<unsigned char>(value & 0xff);
      value >>= 8;
    }
    return Bytes(bytes, sizeof(bytes));
  }
  // With its length before it, so that no two lists of fields read the same.
  Hasher& Field(const std::string& text) {
    return Number(text.size()).Bytes(text.data(), text.size());
  }
  KvDigest Finish() {
    KvDigest digest;
    unsigned size = 0;
    HMM_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1 &&
              size == digest.size());
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

KvDigest Sha256(absl::Span<const std::byte> bytes) {
  return Hasher().Bytes(bytes.data(), bytes.size()).Finish();
}

std::string HexOf(const KvDigest& digest, std::size_t bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), bytes));
}

KvDigest IdentityOf(const KvCacheOptions& options) {
  return Hasher()
      .Field("hmm kv cache 1")
      .Field(options.model_digest)
      .Field(options.dtype)
      .Field(options.layout)
      .Number(options.rank)
      .Number(options.ranks)
      .Field(options.salt)
      .Finish();
}

KvDigest ChainStart(const KvDigest& identity, const KvCacheOptions& options) {
  return Hasher()
      .Bytes(identity.data(), identity.size())
      .Number(options.layers)
      .Number(options.block_tokens)
      .Number(options.token_bytes)
      .Finish();
}

KvDigest ChainNext(const KvDigest& before, absl::Span<const std::int32_t> tokens) {
  Hasher hasher;
  hasher.Bytes(before.data(), before.size());
  for (const std::int32_t token : tokens) hasher.Number(static_cast<std::uint32_t>(token));
  return hasher.Finish();
}

std::string BlockKey(const KvDigest& link, std::size_t layer) {
  return absl::StrCat("kv:", HexOf(link, kKeyBytes), ":", layer);
}

std::string FormatKey(const KvDigest& identity) {
  return absl::StrCat("kvformat:", HexOf(identity, kKeyBytes));
}

}  // namespace hmm::client_internal
