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
    {"daemon", "log_format", kChoice, HMM_SLOT(log_format), "text|json", "",
     "How log lines look on standard error: text for people, or one JSON object a line."},
    {"daemon", "log_level", kChoice, HMM_SLOT(log_level),
     "trace|debug|info|warn|error|critical|off", "",
     "Least severity that is logged (to standard error)."},
    {"daemon", "socket_mode", kMode, HMM_SLOT(socket_mode), "", "",
     "File mode of hmm.sock and session.sock; \"0660\" leaves it to the directory's group. "
     "admin.sock "
     "is always 0600."},
    {"daemon", "stop_timeout", kTime, HMM_SLOT(stop_timeout), "", "",
     "How long calls and copies under way may take to end after SIGTERM. A second later the daemon "
     "ends without those that are stuck."},
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
     "Calls that wait for room or moves, over all sessions; one tenant may have three quarters."},
    {"limits", "waiting_elements_max", kCount, HMM_SLOT(limits.waiting_elements_max), kAny, "",
     "Elements of the batches of those calls, together; a batch that waits alone may have any "
     "size."},
    {"limits", "calls_remembered_max", kCount, HMM_SLOT(limits.calls_remembered_max), kAny, "",
     "Pinning calls per session that Release can still undo."},
    {"limits", "session_pinned_max", kRatio, HMM_SLOT(limits.session_pinned_max), "", "",
     "Share of a tier's capacity that one session may hold pinned."},
    {"limits", "tenant_resident_max", kRatio, HMM_SLOT(limits.tenant_resident_max), "", "",
     "Share of a tier's capacity that one tenant may hold there."},
    {"limits", "ahead_max", kCount, HMM_SLOT(limits.ahead_max), "0..1048576", "",
     "Tensors that one session may have allocated ahead for its client's magazines; 0: none."},
    {"limits", "ahead_bytes_max", kSize, HMM_SLOT(limits.ahead_bytes_max), "", "",
     "And their bytes. They are given back when others need the room."},
    {"limits", "events_kept", kCount, HMM_SLOT(limits.events_kept), "256..1048576", "",
     "Events kept for watchers that lag, over all of them; whoever falls further behind is cut "
     "off."},
    {"limits", "moves_kept", kCount, HMM_SLOT(limits.moves_kept), "256..1048576", "",
     "Last moves, over all tensors, that `hmmctl explain` can tell of."},
    {"limits", "connections_max", kCount, HMM_SLOT(connections_max), kAny, "",
     "Open connections to hmm.sock, over all tenants; one tenant may have three quarters."},
    {"limits", "session_connections_max", kCount, HMM_SLOT(session_connections_max), kAny, "",
     "Open connections to session.sock; one tenant may have three quarters."},
    {"limits", "handshakes_max", kCount, HMM_SLOT(handshakes_max), kAny, "",
     "Of those, connections that have not said Hello; one tenant may have three quarters."},
    {"limits", "handshake_timeout", kTime, HMM_SLOT(handshake_timeout), "", "",
     "Within which a connection to session.sock must say Hello."},
    {"limits", "armed_max", kCount, HMM_SLOT(armed_max), "1..1024", "",
     "Requests of each method that are taken in ahead."},
    {"limits", "message_max", kSize, HMM_SLOT(message_max), "", "", "Size of one request."},
    {"limits", "regions_max", kCount, HMM_SLOT(limits.jobs.regions_max), kAny, "",
     "Regions, over all sessions; one tenant may have three quarters."},
    {"limits", "regions_per_session_max", kCount, HMM_SLOT(limits.jobs.regions_per_session_max),
     kAny, "", "Regions of one session."},
    {"limits", "attached_max", kSize, HMM_SLOT(limits.jobs.attached_bytes_max), "", "",
     "Memory of its own that one session may attach as regions. It costs no tier anything, but "
     "jobs "
     "may commit what of it was never touched."},
    {"limits", "jobs_per_session_max", kCount, HMM_SLOT(limits.jobs.jobs_per_session_max), kAny, "",
     "Jobs of one session, those that ended included until their verdicts are taken."},
    {"limits", "fragments_per_key_max", kCount, HMM_SLOT(limits.jobs.fragments_per_key_max), kAny,
     "", "Fragments of one key of a job."},
    {"limits", "fragments_per_job_max", kCount, HMM_SLOT(limits.jobs.fragments_per_job_max), kAny,
     "", "Fragments of all keys of one job."},
    {"limits", "fragments_max", kCount, HMM_SLOT(limits.jobs.fragments_max), kAny, "",
     "Fragments of jobs under way, over all sessions; one tenant may have three quarters."},

    {"move", "threads", kCount, HMM_SLOT(copy_threads), "1..64", "",
     "Threads that copy between tiers."},
    {"move", "io_unit", kSize, HMM_SLOT(copy_io_unit), "", "",
     "Largest single read or write of a flash tier."},
    {"move", "queued_max", kCount, HMM_SLOT(limits.mover.queued_max), kAny, "",
     "Moves that wait, per pair of tiers."},
    {"move", "running_max", kCount, HMM_SLOT(limits.mover.running_max), "1..1024", "",
     "Moves under way at once, per pair of tiers. To and from flash by io_uring more of them are, "
     "while they are small: up to twice daemon.flash_depth, of 16 MiB together."},
    {"move", "job_keys_running_max", kCount, HMM_SLOT(limits.jobs.keys_under_way_max), "1..4096",
     "", "Keys of one job that wait or are copied at once."},
    {"move", "victims_per_batch", kCount, HMM_SLOT(limits.victims_per_batch), "1..4096", "",
     "Tensors demoted between two looks at the watermark."},
    {"move", "rescan", kTime, HMM_SLOT(limits.rescan), "", "",
     "How often a call that waits looks again for room: giving a pin back is silent."},
    {"move", "audit", kTime, HMM_SLOT(limits.audit), "", "",
     "How often pins and memory of tenants are compared with the books."},

    {"calibration", "at_start", kChoice, HMM_SLOT(calibrate), "cached|always|never", "",
     "Whether the links are measured at start. With cached it is done once and kept in state_dir, "
     "until the machine or the tiers change."},
    {"calibration", "budget", kTime, HMM_SLOT(limits.calibration.budget), "", "",
     "How long a measurement takes, about, over all links."},
};

constexpr Key<TierConfig> kTierKeys[] = {
    {"tier", "name", kText, HMM_SLOT(name), "", "\"ddr0\"",
     "Unique; at most 15 of a-z, 0-9, _. Required."},
    {"tier", "kind", kChoice, HMM_SLOT(kind), "hbm|ddr|flash", "\"ddr\"",
     "Tiers stand in the order hbm, ddr, flash; several of a kind are fine. Required."},
    {"tier", "capacity", kShare, HMM_SLOT(capacity), "", "\"8GiB\"",
     "A size, or a percentage of the memory or disk that is available at start (of a disk less "
     "than "
     "100%: its file system keeps some for itself). Required."},
    {"tier", "emulated", kFlag, HMM_SLOT(emulated), "", "",
     "HBM, or a remote DDR pool, made of host memory, and every report says so. An hbm tier is "
     "emulated or on a numa_node."},
    {"tier", "link_bandwidth", kRate, HMM_SLOT(link_bandwidth), "", "\"16GiB/s\"",
     "Of an emulated tier: what moves to and from it reach, each way. Default: as fast as memory "
     "goes. An emulated ddr tier needs it."},
    {"tier", "demote_to", kText, HMM_SLOT(demote_to), "", "\"ddr0\"",
     "hbm, ddr: the tier that takes what leaves this one, of its own or a slower kind. Default: "
     "the "
     "next slower one, by the machine's topology."},
    {"tier", "high", kRatio, HMM_SLOT(high), "", "0.9",
     "Used share of the capacity at which demotion starts. Default 0.85 for hbm, 0.9 for others."},
    {"tier", "low", kRatio, HMM_SLOT(low), "", "0.8",
     "And at which it stops. Default 0.75 for hbm, 0.8 for others."},
    {"tier", "reserve", kShare, HMM_SLOT(reserve), "", "",
     "Kept free for moves that somebody waits for; at least your largest tensor, at most half of "
     "the capacity. A size or a percentage of the capacity."},
    {"tier", "commit_chunk", kSize, HMM_SLOT(commit_chunk), "", "",
     "hbm, ddr: unit in which memory is backed and given back. A power of two, 64KiB or more."},
    {"tier", "pages", kChoice, HMM_SLOT(pages), "auto|hugetlb|transparent|small", "",
     "hbm, ddr: pages that back it."},
    {"tier", "numa_node", kInteger, HMM_SLOT(numa_node), "-1..1023", "",
     "hbm, ddr: NUMA node the memory comes from; -1: any."},
    {"tier", "path", kPath, HMM_SLOT(path), "", "\"/var/lib/hmm/flash0.tier\"",
     "flash: its file, overwritten at start. Default <state_dir>/<name>.tier."},
};

constexpr Key<TenantConfig> kTenantKeys[] = {
    {"tenant", "name", kText, HMM_SLOT(name), "", "\"pod-a\"",
     "Unique; at most 32 of a-z, 0-9, _ and -. Or \"uid:1000\": that user on the common sockets, "
     "who needs a block only for a share of his own. Required."},
    {"tenant", "dir", kPath, HMM_SLOT(dir), "", "\"/run/hmm/pod-a\"",
     "Where its hmm.sock and session.sock are made; mount this directory into the pod, read-only. "
     "Default <daemon.dir>/<name>."},
    {"tenant", "socket_mode", kMode, HMM_SLOT(socket_mode), "", "",
     "File mode of its two sockets."},
    {"tenant", "connections_max", kCount, HMM_SLOT(connections_max), "0..1048576", "",
     "Open connections to its hmm.sock, of limits.connections_max; 0: up to all of them."},
    {"tenant", "resident_max", kShares, HMM_SLOT(resident_max), "",
     "{ hbm0 = \"25%\", ddr0 = \"8GiB\" }",
     "What it may hold: of every tier, as in \"25%\", or by the tier's name. Default "
     "limits.tenant_resident_max."},
};

#undef HMM_SLOT

constexpr Section kSections[] = {
    {"daemon", false, "The daemon and what it is made of."},
    {"limits", false, "Bounds. What is past one is refused, with a delay where waiting helps."},
    {"move", false, "What copies between tiers."},
    {"calibration", false,
     "How the links between tiers are measured, for every estimate of a time."},
    {"tier", true,
     "One block for each tier, fastest first. Without any, hmmd looks at the machine and makes an "
     "emulated hbm0, a ddr0 and a flash0 of modest size."},
    {"tenant", true,
     "One block for each tenant with sockets of its own: whoever comes through them is that "
     "tenant, whatever his uid (a pod). Everybody else is told apart by uid."},
};

// Exactly, in the largest unit that divides: "2MiB", as ParseBytes reads it.
std::string SizeText(Bytes bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes == 0) return "0";
  std::size_t unit = 0;
  while (bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return Cat(bytes, kUnits[unit]);
}

std::string TimeText(Duration span) {
  using namespace std::chrono;
  if (span % seconds(1) == Duration(0)) return Cat(span / seconds(1), "s");
  if (span % milliseconds(1) == Duration(0)) return Cat(span / milliseconds(1), "ms");
  return Cat(span / microseconds(1), "us");
}

std::string RatioText(double ratio) { return absl::StrFormat("%.12g", ratio); }

// A TOML basic string.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::span<const Key<Config>> ConfigKeys() { return kConfigKeys; }
std::span<const Key<TierConfig>> TierKeys() { return kTierKeys; }
std::span<const Key<TenantConfig>> TenantKeys() { return kTenantKeys; }
std::span<const Section> Sections() { return kSections; }

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
    case kShares:
      return "a share such as \"25%\" or \"8GiB\", or one for each tier: { ddr0 = \"25%\" }";
    case kRate:
      return "a bandwidth in quotes, such as \"512MiB/s\", \"16GiB/s\"";
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
      if (type == kRate) return Quoted(SizeText(*value) + "/s");
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
    std::string operator()(const TierShares* value) const {
      if (value->by_tier.empty()) return (*this)(&value->all);
      std::string out;
      for (const auto& [tier, share] : value->by_tier) {
        Append(out, out.empty() ? "{ " : ", ", tier, " = ", (*this)(&share));
      }
      return out + " }";
    }
  };
  return std::visit(Visitor{type}, slot);
}

}  // namespace hmm::daemon
