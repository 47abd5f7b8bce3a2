// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.h"

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint.h"

namespace llm {
namespace {

constexpr int kFirstByte = 3;  // token of the byte 0; before it <unk>, BOS and EOS
constexpr std::int32_t kTokenBytesMax = 1 << 16;

template <typename Value>
bool Read(std::istream& in, Value& value) {
  return static_cast<bool>(in.read(reinterpret_cast<char*>(&value), sizeof(value)));
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Open(const std::string& path, std::size_t vocab) {
  if (absl::Status file = CheckRegularFile("tokenizer", path); !file.ok()) return file;
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::ErrnoToStatus(errno, absl::StrCat("tokenizer ", path));
  const auto bad = [&](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer ", path, ": ", words...));
  };
  std::int32_t longest = 0;
  if (!Read(in, longest)) return bad("truncated: less than the 4 bytes of max_token_length");
  if (longest < 1 || longest > kTokenBytesMax) {
    return bad("max_token_length is ", longest, ", not 1 to ", kTokenBytesMax);
  }
  if (vocab < kFirstByte + 256) {
    return bad("the model's vocab_size is ", vocab, ", too few for a token of each byte");
  }
  Tokenizer made;
  made.vocab_ = vocab;
  for (std::size_t token = 0; token < vocab; ++token) {
    float score = 0;
    std::int32_t length = 0;
    if (!Read(in, score) || !Read(in, length)) {
      return bad("it ends after ", token, " tokens; the model's vocab_size is ", vocab);
    }
    if (std::isnan(score)) return bad("token ", token, ": score is nan");  // it orders nothing
    if (length < 0 || length > longest) {
      return bad("token ", token, ": length is ", length, ", not 0 to max_token_length, ", longest);
    }
    std::string word(static_cast<std::size_t>(length), '\0');
    if (!in.read(word.data(), length)) return bad("token ", token, ": truncated");
    made.ids_.emplace(word, static_cast<int>(token));
    made.words_.push_back(std::move(word));
    made.scores_.push_back(score);
  }
  if (in.peek() != std::ifstream::traits_type::eof()) {
    return bad("it has more tokens than the model's vocab_size, ", vocab);
  }
  return made;
}

Tokenizer Tokenizer::Numbers(std::size_t vocab) {
  Tokenizer made;
  made.vocab_ = vocab;
  return made;
}

std::vector<int> Tokenizer::Encode(std::string_view text) const {
  std::vector<int> tokens = {kBos};
  if (words_.empty()) {
    for (const char c : text) {
      const auto token = kFirstByte + static_cast<std::size_t>(static_cast<unsigned char>(c));
      tokens.push_back(static_cast<int>(token % vocab_));
    }
    return tokens;
  }
  const auto find = [&](const std::string& word) {
    const auto at = ids_.find(word);
    return at == ids_.end() ? -1 : at->second;
  };
  // 1. Characters, of one to four bytes; those that are no token, byte by byte. Before any text
  //    stands a space, as in training.
  if (!text.empty()) {
    if (const int space = find(" "); space >= 0) tokens.push_back(space);
  }
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (end < text.size() && end < i + 4 && (text[end] & '\xC0') == '\x80') ++end;
    const std::string character(text.substr(i, end - i));
    if (const int token = find(character); token >= 0) {
      tokens.push_back(token);
    } else {
      for (const char c : character) tokens.push_back(static_cast<unsigned char>(c) + kFirstByte);
    }
    i = end;
  }
  // 2. Merge the pair with the best score, until none is a token.
  for (;;) {
    float best = -1e10f;
    std::size_t where = 0;
    int merged = -1;
    for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
      const int token = find(words_[static_cast<std::size_t>(tokens[i])] +
                             words_[static_cast<std::size_t>(tokens[i + 1])]);
      if (token >= 0 && scores_[static_cast<std::size_t>(token)] > best) {
        best = scores_[static_cast<std::size_t>(token)];
        where = i;
        merged = token;
      }
    }
    if (merged < 0) return tokens;
    tokens[where] = merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

std::string Tokenizer::Decode(int previous, int token) const {
  if (words_.empty()) return absl::StrCat(token, " ");
  std::string word = words_[static_cast<std::size_t>(token)];
  if (previous == kBos && word.starts_with(' ')) word.erase(0, 1);
  unsigned byte = 0;
  if (std::sscanf(word.c_str(), "<0x%02X>", &byte) == 1) return {static_cast<char>(byte)};
  return word;
}

}  // namespace llm
