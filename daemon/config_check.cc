// SPDX-License-Identifier: Apache-2.0
//
// Configuration against itself and against the machine.
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "daemon/config.h"
#include "daemon/config_tenants.h"
#include "daemon/text.h"
#include "policy/watermark.h"
#include "share/session_wire.h"
#include "tier/tier_order.h"

namespace hmm::daemon {
namespace {

constexpr Bytes kChunkMin = 64 * kKiB;
constexpr Bytes kFlashUnit = 4096;
constexpr Bytes kMessageMin = 64 * kKiB;
constexpr Bytes kMessageMax = 1 * kGiB;  // gRPC counts in int

std::string At(const Config& config, std::size_t line) {
  return config.file.empty() ? "built-in configuration" : Cat(config.file, ":", line);
}

absl::Status Refuse(const Config& config, const TierConfig& tier, std::string_view key,
                    std::string_view what,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const std::string name = tier.name.empty() ? "tier" : Cat("tier ", tier.name);
  return Error(code, Reason::kBadConfig,
               Cat(At(config, tier.line), ": ", name, ": ", key, ": ", what));
}

TierKind KindOf(std::string_view kind) {
  if (kind == "hbm") return TierKind::kHbm;
  return kind == "ddr" ? TierKind::kDdr : TierKind::kFlash;
}

absl::Status CheckNames(const Config& config) {
  std::set<std::string_view> names;
  for (const TierConfig& tier : config.tiers) {
    if (tier.name.empty())
      return Refuse(config, tier, "name", "missing; write for example \"ddr0\"");
    if (tier.name.size() > share::kTierNameMax ||
        tier.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
      return Refuse(config, tier, "name",
                    Cat("at most ", share::kTierNameMax, " of a-z, 0-9 and _"));
    }
    if (!names.insert(tier.name).second) {
      return Refuse(config, tier, "name", "another tier has this name; each needs its own");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKinds(Config& config) {
  TierKind last = TierKind::kHbm;
  for (TierConfig& tier : config.tiers) {
    if (tier.kind.empty()) {
      return Refuse(config, tier, "kind", "missing; write \"hbm\", \"ddr\" or \"flash\"");
    }
    tier.tier_kind = KindOf(tier.kind);
    if (tier.tier_kind < last) {
      return Refuse(config, tier, "kind",
                    Cat(tier.kind, " stands after ", TierKindName(last),
                        "; order the tiers hbm, ddr, flash"));
    }
    last = tier.tier_kind;
    const bool hbm = tier.tier_kind == TierKind::kHbm;
    if (hbm && !tier.emulated && tier.numa_node < 0) {
      return Refuse(
          config, tier, "emulated",
          "this build reaches HBM only as host memory: write emulated = true, or name the "
          "numa_node that is HBM");
    }
    if (tier.tier_kind == TierKind::kFlash && tier.emulated) {
      return Refuse(config, tier, "emulated", "a flash tier cannot be; remove the key");
    }
    if (tier.tier_kind == TierKind::kDdr && tier.emulated && tier.link_bandwidth == 0) {
      return Refuse(config, tier, "emulated",
                    "an emulated ddr tier stands for a slower pool: give its link_bandwidth, or "
                    "remove the key");
    }
    if (!tier.emulated && tier.link_bandwidth > 0) {
      return Refuse(config, tier, "link_bandwidth",
                    "only an emulated tier has one; real ones are measured. Write emulated = true, "
                    "or remove the key");
    }
    if (tier.tier_kind != TierKind::kFlash && !tier.path.empty()) {
      return Refuse(config, tier, "path", "only a flash tier has one; remove the key");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDaemon(const Config& config) {
  const auto refuse = [&](std::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 Cat(config.file.empty() ? "configuration" : config.file, ": ", what));
  };
  if (config.message_max < kMessageMin || config.message_max > kMessageMax) {
    return refuse(Cat("limits.message_max: ", FormatBytes(config.message_max), " is not from ",
                      FormatBytes(kMessageMin), " to ", FormatBytes(kMessageMax)));
  }
  constexpr std::string_view kLongestSocket = "/session.sock";
  const std::size_t room = sizeof(sockaddr_un::sun_path) - 1 - kLongestSocket.size();
  if (config.dir.size() > room) {
    return refuse(
        Cat("daemon.dir: ", config.dir, " is too long for its sockets: at most ", room, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const Config& config) {
  const auto refuse = [&](std::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 Cat(At(config, 1), ": tier: ", what));
  };
  if (config.tiers.empty()) return refuse("there is none; write at least one [[tier]] block");
  if (config.tiers.size() > share::kMaxTiers) {
    return refuse(Cat(config.tiers.size(), " tiers; at most ", share::kMaxTiers));
  }
  const bool mappable = std::any_of(config.tiers.begin(), config.tiers.end(), [](const auto& tier) {
    return tier.tier_kind != TierKind::kFlash;
  });
  if (!mappable) return refuse("only flash; clients need an hbm or ddr tier to map");
  return absl::OkStatus();
}

std::vector<tier::TierPlace> PlacesOf(const Config& config) {
  std::vector<tier::TierPlace> places;
  for (const TierConfig& tier : config.tiers) {
    places.push_back({tier.name, tier.tier_kind, static_cast<int>(tier.numa_node),
                      tier.link_bandwidth, tier.demote_to});
  }
  return places;
}

// Orders the tiers, so that each stands before where it demotes to.
absl::Status ResolvePaths(Config& config) {
  const std::vector<tier::TierPlace> places = PlacesOf(config);
  if (const auto fault = tier::CheckPaths(places); fault.has_value()) {
    return Refuse(config, config.tiers[fault->tier], "demote_to", fault->what);
  }
  const tier::TierOrder order = tier::OrderTiers(places, config.topology);
  std::vector<TierId> id_of(places.size());
  for (std::size_t i = 0; i < order.order.size(); ++i) {
    id_of[order.order[i]] = static_cast<TierId>(i);
  }
  std::vector<TierConfig> ordered;
  for (const std::size_t i : order.order) {
    TierConfig& tier = ordered.emplace_back(std::move(config.tiers[i]));
    tier.rank = order.ranks[i];
    tier.below.reset();
    if (order.demote_to[i].has_value()) tier.below = id_of[*order.demote_to[i]];
  }
  config.tiers = std::move(ordered);
  return absl::OkStatus();
}

absl::Status CheckNode(Config& config, const TierConfig& tier, const tier::Machine& machine) {
  if (tier.numa_node < 0) return absl::OkStatus();
  const auto id = static_cast<int>(tier.numa_node);
  const auto& nodes = config.topology.nodes;
  if (nodes.empty()) {
    if (id < machine.numa_nodes) return absl::OkStatus();
    return Refuse(config, tier, "numa_node",
                  Cat("this machine has ", machine.numa_nodes, "; nodes count from 0"));
  }
  const tier::MemoryNode* const node = config.topology.Find(id);
  if (node == nullptr) {
    const std::string known = absl::StrJoin(
        nodes, ", ", [](std::string* out, const tier::MemoryNode& n) { Append(*out, n.id); });
    return Refuse(config, tier, "numa_node",
                  Cat("this machine has no node ", id, "; it has ", known));
  }
  if (!node->allowed) {
    config.warnings.push_back(
        Cat(tier.name, ": the cpuset of this process forbids NUMA node ", id,
            "; its memory comes from any node. Mend it with AllowedMemoryNodes= or cpuset.mems"));
  }
  return absl::OkStatus();
}

absl::Status CheckBacking(Config& config, const TierConfig& tier, const tier::Machine& machine) {
  const Bytes chunk = tier.commit_chunk;
  if (chunk < kChunkMin || (chunk & (chunk - 1)) != 0) {
    return Refuse(config, tier, "commit_chunk",
                  Cat(FormatBytes(chunk), " is no power of two from 64KiB on"));
  }
  HMM_RETURN_IF_ERROR(CheckNode(config, tier, machine));
  if (tier.pages == "hugetlb" && tier.capacity_bytes > machine.huge_pages_free) {
    return Refuse(
        config, tier, "pages",
        Cat("hugetlb needs ", FormatBytes(tier.capacity_bytes), " of free huge pages, there are ",
            FormatBytes(machine.huge_pages_free), "; raise vm.nr_hugepages or write \"auto\""),
        absl::StatusCode::kResourceExhausted);
  }
  return absl::OkStatus();
}

// Percentages become bytes; the marks must make sense.
absl::Status Resolve(const Config& config, Bytes whole, TierConfig& tier) {
  if (tier.capacity.bytes == 0 && tier.capacity.ratio == 0) {
    return Refuse(config, tier, "capacity", "missing or 0; write for example \"8GiB\" or \"50%\"");
  }
  const bool flash = tier.tier_kind == TierKind::kFlash;
  const Bytes unit = flash ? kFlashUnit : tier.commit_chunk;
  tier.capacity_bytes = RoundDown(tier.capacity.Of(whole), unit);
  if (tier.capacity_bytes == 0) {
    return Refuse(config, tier, "capacity", Cat("less than one unit of ", FormatBytes(unit)));
  }
  // A share is rounded; a size is what was asked for, as by `watermark set`.
  const Bytes reserve = tier.reserve.Of(tier.capacity_bytes);
  tier.reserve_bytes = tier.reserve.ratio > 0 ? RoundDown(reserve, unit) : reserve;
  const bool hbm = tier.tier_kind == TierKind::kHbm;
  if (tier.high == 0) tier.high = hbm ? 0.85 : 0.90;
  if (tier.low == 0) tier.low = hbm ? 0.75 : 0.80;
  const absl::Status marks = policy::ValidateWatermarks(tier.name, {.capacity = tier.capacity_bytes,
                                                                    .high = tier.high,
                                                                    .low = tier.low,
                                                                    .reserve = tier.reserve_bytes});
  if (!marks.ok()) return Refuse(config, tier, "high, low, reserve", MessageOf(marks));
  return absl::OkStatus();
}

absl::Status ResolveMemory(Config& config, const Resources& resources) {
  const tier::Machine& machine = resources.machine;
  const Bytes usable = machine.memory_available > config.commit_headroom
                           ? machine.memory_available - config.commit_headroom
                           : 0;
  Bytes sum = 0;
  for (TierConfig& tier : config.tiers) {
    if (tier.tier_kind == TierKind::kFlash) continue;
    HMM_RETURN_IF_ERROR(Resolve(config, usable, tier));
    HMM_RETURN_IF_ERROR(CheckBacking(config, tier, machine));
    if (tier.pages == "hugetlb") continue;  // set aside already
    // In this order so that the sum cannot wrap.
    if (tier.capacity_bytes > usable || sum > usable - tier.capacity_bytes) {
      return Refuse(config, tier, "capacity",
                    Cat("the memory tiers up to here ask for ",
                        FormatBytes(sum + std::min(tier.capacity_bytes, ~sum)),
                        "; available now, less commit_headroom, are ", FormatBytes(usable)),
                    absl::StatusCode::kResourceExhausted);
    }
    sum += tier.capacity_bytes;
  }
  return absl::OkStatus();
}

absl::Status ResolveDisk(Config& config, const Resources& resources) {
  std::map<std::uint64_t, Bytes> asked;  // by file system
  std::set<std::string_view> paths;
  for (TierConfig& tier : config.tiers) {
    if (tier.tier_kind != TierKind::kFlash) continue;
    if (tier.path.empty()) {
      tier.path = Cat(config.state_dir, "/", tier.name, ".tier");
    } else {
      const absl::Status usable = resources.path(tier.path);
      if (!usable.ok()) return Refuse(config, tier, "path", MessageOf(usable));
    }
    if (!paths.insert(tier.path).second) {
      return Refuse(config, tier, "path", "another tier has this file; each needs its own");
    }
    const absl::StatusOr<Resources::Disk> disk = resources.disk(tier.path);
    if (!disk.ok()) return Refuse(config, tier, "path", MessageOf(disk.status()));
    HMM_RETURN_IF_ERROR(Resolve(config, disk->available, tier));
    Bytes& sum = asked[disk->device];
    if (tier.capacity_bytes > disk->available || sum > disk->available - tier.capacity_bytes) {
      return Refuse(config, tier, "capacity",
                    Cat(FormatBytes(tier.capacity_bytes), " asked for, ",
                        FormatBytes(disk->available - std::min(sum, disk->available)),
                        " left on the file system of ", tier.path),
                    absl::StatusCode::kResourceExhausted);
    }
    sum += tier.capacity_bytes;
  }
  return absl::OkStatus();
}

// A typing error in a path must neither make directories nor empty a file.
absl::Status CheckPath(const std::string& given) {
  const auto refuse = [](const std::string& path, std::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, Cat(path, what));
  };
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(given, error);
  const auto status = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return refuse(path.string(), " is not a regular file");
  }
  if (!std::filesystem::is_directory(path.parent_path(), error)) {
    return refuse(path.parent_path().string(), " is not a directory");
  }
  return absl::OkStatus();
}

absl::StatusOr<Resources::Disk> DiskAt(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  Bytes overwritten = 0;
  struct stat status {};
  if (stat(at.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    overwritten = static_cast<Bytes>(status.st_blocks) * 512;
  }
  do {
    at = at.parent_path();
  } while (stat(at.c_str(), &status) != 0 && at.has_relative_path());
  HMM_ASSIGN_OR_RETURN(const Bytes available, tier::DiskFree(at.string()));
  return Resources::Disk{.device = status.st_dev, .available = available + overwritten};
}

}  // namespace

absl::StatusOr<Resources> DetectResources() {
  HMM_ASSIGN_OR_RETURN(tier::Machine machine, tier::DetectMachine());
  return Resources{.machine = std::move(machine),
                   .topology = tier::ReadTopology(),
                   .disk = DiskAt,
                   .path = CheckPath};
}

absl::Status CheckConfig(Config& config, const Resources& resources) {
  HMM_RETURN_IF_ERROR(CheckDaemon(config));
  HMM_RETURN_IF_ERROR(CheckNames(config));
  HMM_RETURN_IF_ERROR(CheckKinds(config));
  HMM_RETURN_IF_ERROR(CheckShape(config));
  HMM_RETURN_IF_ERROR(CheckTenants(config));
  config.warnings.clear();
  if (resources.topology.ok()) {
    config.topology = *resources.topology;
  } else {
    config.warnings.push_back(
        Cat(MessageOf(resources.topology.status()), "; NUMA nodes are taken to be equal"));
  }
  HMM_RETURN_IF_ERROR(ResolvePaths(config));
  HMM_RETURN_IF_ERROR(ResolveMemory(config, resources));
  HMM_RETURN_IF_ERROR(resources.directory(config.dir));
  return ResolveDisk(config, resources);
}

bool ChooseTiers(Config& config, const Resources& resources) {
  if (!config.tiers.empty()) return false;
  const Bytes memory = resources.machine.memory_available;
  const absl::StatusOr<Resources::Disk> disk = resources.disk(config.state_dir + "/flash0.tier");
  // A small machine keeps most of what it has; whole chunks, and at least a few of them.
  const auto modest = [](Bytes most, Bytes part) {
    return Share{.bytes = std::max(16 * kMiB, RoundDown(std::min(most, part), 2 * kMiB))};
  };
  TierConfig hbm;
  hbm.name = "hbm0";
  hbm.kind = "hbm";
  hbm.emulated = true;
  hbm.capacity = modest(1 * kGiB, memory / 16);
  TierConfig ddr;
  ddr.name = "ddr0";
  ddr.kind = "ddr";
  ddr.capacity = modest(4 * kGiB, memory / 8);
  config.tiers = {hbm, ddr};
  if (disk.ok()) {
    TierConfig flash;
    flash.name = "flash0";
    flash.kind = "flash";
    flash.capacity = modest(16 * kGiB, disk->available / 4);
    config.tiers.push_back(flash);
  }
  for (TierConfig& tier : config.tiers) {
    for (const char* key : {"tier.name", "tier.kind", "tier.capacity", "tier.emulated"}) {
      tier.sources[key] = "chosen for this machine";
    }
  }
  return true;
}

std::string Summary(const Config& config) {
  std::string out;
  for (const TierConfig& tier : config.tiers) {
    Append(out, out.empty() ? "" : ", ", tier.name, " ", FormatBytes(tier.capacity_bytes),
           tier.emulated ? " (emulated)" : "");
  }
  return out;
}

tier::PageMode PageModeOf(const TierConfig& tier) {
  if (tier.pages == "hugetlb") return tier::PageMode::kHugetlb;
  if (tier.pages == "transparent") return tier::PageMode::kTransparent;
  if (tier.pages == "small") return tier::PageMode::kSmall;
  HMM_CHECK(tier.pages == "auto");
  return tier::PageMode::kAuto;
}

}  // namespace hmm::daemon
