// SPDX-License-Identifier: Apache-2.0
//
// config/hmmd.toml, written from the table of keys, so that the file cannot lie. `hmmd
// --default-config` prints it; a test compares.
#include "absl/strings/str_split.h"
#include "daemon/config_keys.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kWidth = 92;

// Comment lines of at most kWidth characters.
void AppendComment(std::string_view text, std::string& out) {
  std::string line = "#";
  for (const absl::string_view word : absl::StrSplit(ToAbsl(text), ' ')) {
    if (line.size() + 1 + word.size() > kWidth) {
      Append(out, line, "\n");
      line = "#";
    }
    Append(line, " ", word);
  }
  Append(out, line, "\n");
}

template <typename Owner>
void AppendKey(const Key<Owner>& key, Owner& defaults, std::string& out) {
  out.push_back('\n');
  std::string doc(key.doc);
  if (key.type == KeyType::kChoice) Append(doc, " Takes ", Expected(key.type, key.accepts), ".");
  AppendComment(doc, out);
  const std::string value =
      key.example.empty() ? Literal(key.type, key.slot(defaults)) : std::string(key.example);
  Append(out, "#", key.name, " = ", value, "\n");
}

}  // namespace

std::string DefaultConfigText() {
  std::string out =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "#\n"
      "# hmmd.toml: every key, commented out, at its default. Sizes are base 1024 (B, KiB, MiB,\n"
      "# GiB, TiB); ratios lie between 0 and 1; an unknown key refuses to start. Check a file "
      "with\n"
      "#   hmmd --check-config --config FILE\n"
      "# and see what it comes to, and what comes from where, with --print-config.\n"
      "# Written by `hmmd --default-config`.\n";
  Config config;
  std::string_view section;
  for (const Key<Config>& key : ConfigKeys()) {
    if (key.section != section) {
      section = key.section;
      Append(out, "\n#[", section, "]\n");
    }
    AppendKey(key, config, out);
  }
  TierConfig tier;
  TenantConfig tenant;
  for (const Section& block : Sections()) {
    if (!block.repeated) continue;
    out.push_back('\n');
    AppendComment(block.doc, out);
    Append(out, "#[[", block.name, "]]\n");
    if (block.name == "tier") {
      for (const Key<TierConfig>& key : TierKeys()) AppendKey(key, tier, out);
    } else {
      for (const Key<TenantConfig>& key : TenantKeys()) AppendKey(key, tenant, out);
    }
  }
  return out;
}

}  // namespace hmm::daemon
