// SPDX-License-Identifier: Apache-2.0
#include "daemon/page_token.h"

#include <xxhash.h>

#include <charconv>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kDigits = 16;

// The cursor is part of what is hashed: a token is taken as a whole or not at all.
std::uint64_t Bind(std::string_view query, std::uint64_t epoch, std::uint64_t cursor) {
  return XXH3_64bits_withSeed(query.data(), query.size(), epoch ^ (cursor * 0x9e3779b97f4a7c15));
}

bool ReadHex(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string MakePageToken(std::string_view query, std::uint64_t epoch, std::uint64_t cursor) {
  return absl::StrFormat("%016x%016x", Bind(query, epoch, cursor), cursor);
}

absl::StatusOr<std::uint64_t> ReadPageToken(std::string_view token, std::string_view query,
                                            std::uint64_t epoch) {
  std::uint64_t bound = 0;
  std::uint64_t cursor = 0;
  const bool ours = token.size() == 2 * kDigits && ReadHex(token.substr(0, kDigits), bound) &&
                    ReadHex(token.substr(kDigits), cursor);
  if (ours && bound == Bind(query, epoch, cursor)) return cursor;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kPageToken,
               "page_token is none of this query in this start of the daemon; begin again without "
               "one, and pass next_page_token as it came, with the same filters");
}

}  // namespace hmm::daemon
