// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/printer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace hmm::ctl {
namespace {

// "TENSOR_KIND_KV_CACHE" -> "kv_cache"; a number of a newer daemon stays a number.
std::string Word(const std::string& name, const char* prefix, int number) {
  if (name.empty()) return std::to_string(number);
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

}  // namespace

std::unique_ptr<Printer> MakePrinter(Format format, const TableStyle& style) {
  return format == Format::kJson ? MakeJsonPrinter() : MakeTablePrinter(style);
}

std::string KindWord(v1::TierKind kind) {
  return Word(v1::TierKind_Name(kind), "TIER_KIND_", static_cast<int>(kind));
}

std::string KindWord(v1::TensorKind kind) {
  return Word(v1::TensorKind_Name(kind), "TENSOR_KIND_", static_cast<int>(kind));
}

std::string StateWord(v1::TensorState state) {
  return Word(v1::TensorState_Name(state), "TENSOR_STATE_", static_cast<int>(state));
}

}  // namespace hmm::ctl
