// SPDX-License-Identifier: Apache-2.0
//
// Text to tokens and back, in llama2.c's tokenizer format: int32 max_token_length, then for each
// token a float32 score, an int32 length and its bytes. Byte pair encoding by best score.
//
// A value; once made, any thread may use it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace llm {

inline constexpr int kBos = 1;
inline constexpr int kEos = 2;

class Tokenizer {
 public:
  // For `vocab` tokens, no more and no less: INVALID_ARGUMENT names the file, token and field;
  // errno's code (NOT_FOUND) when it cannot be opened.
  static absl::StatusOr<Tokenizer> Open(const std::string& path, std::size_t vocab);
  // For generated models, which have no words: a byte is token 3 + byte (modulo the vocabulary);
  // tokens are written as numbers.
  static Tokenizer Numbers(std::size_t vocab);

  // Begins with BOS.
  std::vector<int> Encode(std::string_view text) const;
  // What `token` adds to a text after `previous`.
  std::string Decode(int previous, int token) const;

 private:
  std::size_t vocab_ = 0;
  std::vector<std::string> words_;  // empty: numbers
  std::vector<float> scores_;
  std::unordered_map<std::string, int> ids_;
};

}  // namespace llm
