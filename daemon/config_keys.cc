// SPDX-License-Identifier: Apache-2.0
#include "daemon/config_keys.h"

#include <array>
#include <chrono>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

using enum KeyType;

#define HMM_SLOT(member) [](auto& owner) -> Slot { return &owner.member; }

constexpr std::string_view kAny = "1..18446744073709551615";

constexpr Key<Config> kConfigKeys[] = {
    {"daemon", "dir", kPath, HMM_SLOT(dir), "", "",
     "Runtime directory: hmm.sock, session.sock, admin.sock, hmmd.lock."},
    {"daemon", "state_dir", kPath, HMM_SLOT(state_dir), "", "",
     "Where flash tiers without a path keep their file."},
    {"daemon", "log_level", kChoice, HMM_SLOT(log_level), "trace|debug|info|warn|error|off", "",
     "Least severity that is logged (to standard error)."},
    {"daemon", "socket_mode", kMode, HMM_SLOT(socket_mode), "", "",
     "File mode of hmm.sock and session.sock; \"0660\" leaves it to the directory's group. "
     "admin.sock "
     "is always 0600."},
    {"daemon", "stop_timeout", kTime, HMM_SLOT(stop_timeout), "", "",
     "How long calls under way may take to end after SIGTERM."},
    {"daemon", "commit_headroom", kSize, HMM_SLOT(commit_headroom), "", "",
     "Memory that is left to the rest of the machine and of the cgroup; commits stop before it."},
    {"daemon", "flash_engine", kChoice, HMM_SLOT(flash_engine), "auto|io_uring|workers", "",
     "What reads and writes flash tiers: an io_uring, or the threads of [move]. With auto it is "
     "io_uring where the system allows it; a refusal is logged and stands in the tier's note."},
    {"daemon", "flash_depth", kCount, HMM_SLOT(flash_depth), "1..4096", "",
     "Reads and writes of io_uring under way at once, over all flash tiers."},

    {"limits", "max_tensors", kCount, HMM_SLOT(limits.max_tensors), "1..16777216", "",
     "Tensors of one tenant at a time."},
    {"limits", "batch_max", kCount, HMM_SLOT(limits.batch_max), "1..65536", "",
     "Elements of one call."},
    {"limits", "key_bytes_max", kCount, HMM_SLOT(limits.key_bytes_max), "1..4096", "",
     "Length of a tensor's key, in bytes."},
    {"limits", "sessions_max", kCount, HMM_SLOT(limits.sessions_max), kAny, "",
     "Attached processes, over all tenants."},
    {"limits", "sessions_per_tenant_max", kCount, HMM_SLOT(limits.sessions_per_tenant_max), kAny,
     "", "Attached processes of one tenant."},
    {"limits", "waiting_max", kCount, HMM_SLOT(limits.waiting_max), kAny, "",
     "Calls that wait for room or moves, over all sessions."},
    {"limits", "calls_remembered_max", kCount, HMM_SLOT(limits.calls_remembered_max), kAny, "",
     "Pinning calls per session that Release can still undo."},
    {"limits", "session_pinned_max", kRatio, HMM_SLOT(limits.session_pinned_max), "", "",
     "Share of a tier's capacity that one session may hold pinned."},
    {"limits", "tenant_resident_max", kRatio, HMM_SLOT(limits.tenant_resident_max), "", "",
     "Share of a tier's capacity that one tenant may hold there."},
    {"limits", "connections_max", kCount, HMM_SLOT(connections_max), kAny, "",
     "Open connections to hmm.sock."},
    {"limits", "session_connections_max", kCount, HMM_SLOT(session_connections_max), kAny, "",
     "Open connections to session.sock."},
    {"limits", "handshakes_max", kCount, HMM_SLOT(handshakes_max), kAny, "",
     "Of those, connections that have not said Hello."},
    {"limits", "handshake_timeout", kTime, HMM_SLOT(handshake_timeout), "", "",
     "Within which a connection to session.sock must say Hello."},
    {"limits", "armed_max", kCount, HMM_SLOT(armed_max), "1..1024", "",
     "Requests of each method that are taken in ahead."},
    {"limits", "message_max", kSize, HMM_SLOT(message_max), "", "", "Size of one request."},

    {"move", "threads", kCount, HMM_SLOT(copy_threads), "1..64", "",
     "Threads that copy between tiers."},
    {"move", "io_unit", kSize, HMM_SLOT(copy_io_unit), "", "",
     "Largest single read or write of a flash tier."},
    {"move", "queued_max", kCount, HMM_SLOT(limits.mover.queued_max), kAny, "",
     "Moves that wait, per pair of tiers."},
    {"move", "running_max", kCount, HMM_SLOT(limits.mover.running_max), "1..1024", "",
     "Moves under way at once, per pair of tiers."},
    {"move", "victims_per_batch", kCount, HMM_SLOT(limits.victims_per_batch), "1..4096", "",
     "Tensors demoted between two looks at the watermark."},
    {"move", "rescan", kTime, HMM_SLOT(limits.rescan), "", "",
     "How often a call that waits looks again for room: giving a pin back is silent."},
    {"move", "audit", kTime, HMM_SLOT(limits.audit), "", "",
     "How often pins and memory of tenants are compared with the books."},
};

constexpr Key<TierConfig> kTierKeys[] = {
    {"tier", "name", kText, HMM_SLOT(name), "", "\"ddr0\"",
     "Unique; at most 15 of a-z, 0-9, _. Required."},
    {"tier", "kind", kChoice, HMM_SLOT(kind), "hbm|ddr|flash", "\"ddr\"",
     "Tiers stand in the order hbm, ddr, flash; several of a kind are fine. Required."},
    {"tier", "capacity", kShare, HMM_SLOT(capacity), "", "\"8GiB\"",
     "A size, or a percentage of the memory or disk that is available at start. Required."},
    {"tier", "emulated", kFlag, HMM_SLOT(emulated), "", "",
     "HBM made of host memory, and every report says so. An hbm tier is emulated or on a "
     "numa_node."},
    {"tier", "high", kRatio, HMM_SLOT(high), "", "0.9",
     "Used share of the capacity at which demotion starts. Default 0.85 for hbm, 0.9 for others."},
    {"tier", "low", kRatio, HMM_SLOT(low), "", "0.8",
     "And at which it stops. Default 0.75 for hbm, 0.8 for others."},
    {"tier", "reserve", kShare, HMM_SLOT(reserve), "", "",
     "Kept free for moves that somebody waits for; at least your largest tensor. A size or a "
     "percentage of the capacity."},
    {"tier", "commit_chunk", kSize, HMM_SLOT(commit_chunk), "", "",
     "hbm, ddr: unit in which memory is backed and given back. A power of two, 64KiB or more."},
    {"tier", "pages", kChoice, HMM_SLOT(pages), "auto|hugetlb|transparent|small", "",
     "hbm, ddr: pages that back it."},
    {"tier", "numa_node", kInteger, HMM_SLOT(numa_node), "-1..1023", "",
     "hbm, ddr: NUMA node the memory comes from; -1: any."},
    {"tier", "path", kPath, HMM_SLOT(path), "", "\"/var/lib/hmm/flash0.tier\"",
     "flash: its file, overwritten at start. Default <state_dir>/<name>.tier."},
};

#undef HMM_SLOT

// The largest unit that divides: "2MiB", as ParseBytes reads it.
std::string SizeText(Bytes bytes) { return absl::StrReplaceAll(FormatBytes(bytes), {{" ", ""}}); }

std::string TimeText(Duration span) {
  using namespace std::chrono;
  if (span % seconds(1) == Duration(0)) return Cat(span / seconds(1), "s");
  if (span % milliseconds(1) == Duration(0)) return Cat(span / milliseconds(1), "ms");
  return Cat(span / microseconds(1), "us");
}

std::string RatioText(double ratio) { return absl::StrFormat("%g", ratio); }

std::string Quoted(std::string_view text) { return Cat("\"", text, "\""); }

}  // namespace

std::span<const Key<Config>> ConfigKeys() { return kConfigKeys; }
std::span<const Key<TierConfig>> TierKeys() { return kTierKeys; }

std::string Expected(KeyType type, std::string_view accepts) {
  switch (type) {
    case kText:
      return "a text in quotes";
    case kPath:
      return "a path in quotes";
    case kChoice:
      return Cat("one of \"", absl::StrReplaceAll(ToAbsl(accepts), {{"|", "\", \""}}), "\"");
    case kFlag:
      return "true or false";
    case kCount:
    case kInteger:
      return accepts == kAny ? "a whole number from 1 on" : Cat("a whole number ", accepts);
    case kMode:
      return "an octal file mode in quotes, such as \"0660\"";
    case kRatio:
      return "a ratio above 0, at most 1, such as 0.85";
    case kSize:
      return "a size in quotes, such as \"64KiB\", \"512MiB\", \"8GiB\"";
    case kShare:
      return "a size such as \"8GiB\" or a percentage such as \"80%\", in quotes";
    case kTime:
      return "a time in quotes, such as \"5s\", \"200ms\", \"50us\"";
  }
  return "";
}

std::string Literal(KeyType type, const Slot& slot) {
  struct Visitor {
    KeyType type;
    std::string operator()(const std::string* text) const { return Quoted(*text); }
    std::string operator()(const bool* flag) const { return *flag ? "true" : "false"; }
    std::string operator()(const std::uint64_t* value) const {
      if (type == kSize) return Quoted(SizeText(*value));
      if (type == kMode) return Quoted(absl::StrFormat("%04o", *value));
      return Cat(*value);
    }
    std::string operator()(const std::uint32_t* value) const { return Cat(*value); }
    std::string operator()(const std::int64_t* value) const { return Cat(*value); }
    std::string operator()(const double* value) const {
      const std::string text = RatioText(*value);
      // TOML keeps whole numbers and floats apart; the reader takes both.
      return text.find('.') == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const Duration* value) const { return Quoted(TimeText(*value)); }
    std::string operator()(const Share* value) const {
      if (value->ratio > 0) return Quoted(RatioText(value->ratio * 100) + "%");
      return Quoted(SizeText(value->bytes));
    }
  };
  return std::visit(Visitor{type}, slot);
}

}  // namespace hmm::daemon
