// SPDX-License-Identifier: Apache-2.0
//
// The presets' numbers come from data sheets and public reports; none was measured here, and each
// says so in `assumptions`.
#include "plan/machine.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hmm::plan {
namespace {

constexpr double kGbPerUs = 1e3;           // 1 GB/s in bytes per microsecond
constexpr double kGibPerUs = 1073.741824;  // 1 GiB/s in bytes per microsecond
constexpr std::uint32_t kHostGroup = 1, kFlashGroup = 2;

// A rate that small transfers do not reach: half of it at 256 KiB, all of it from 16 MiB on.
std::vector<BandwidthPoint> Rising(double bytes_per_us) {
  return {{64 * kKiB, bytes_per_us * 0.25},
          {256 * kKiB, bytes_per_us * 0.5},
          {2 * kMiB, bytes_per_us * 0.85},
          {16 * kMiB, bytes_per_us}};
}

std::vector<Link> Links(double host, double host_duplex, double flash_write, double flash_read) {
  return {
      {TierKind::kHbm, TierKind::kDdr, 1, 10, Rising(host), host_duplex, kHostGroup},
      {TierKind::kDdr, TierKind::kHbm, 1, 10, Rising(host), host_duplex, kHostGroup},
      {TierKind::kDdr, TierKind::kFlash, 4, 100, Rising(flash_write), 0.8, kFlashGroup},
      {TierKind::kFlash, TierKind::kDdr, 4, 100, Rising(flash_read), 0.8, kFlashGroup},
  };
}

Machine H100() {
  Machine m;
  m.name = "h100";
  m.assumptions =
      "assumed, not measured: 600 TFLOP/s sustained bf16, 3.35 TB/s HBM (data sheet), 55 GB/s per "
      "direction over PCIe 5 x16 (0.9 of it in duplex), flash 6/12 GB/s write/read";
  m.flops_per_us = 600e6;
  m.hbm_bytes_per_us = 3350 * kGbPerUs;
  m.launch_us = 3;
  m.hbm_bytes = 80 * kGiB;
  m.ddr_bytes = 512 * kGiB;
  m.flash_bytes = 4096 * kGiB;
  m.links = Links(55 * kGbPerUs, 0.9, 6 * kGbPerUs, 12 * kGbPerUs);
  return m;
}

Machine Gh200() {
  Machine m = H100();
  m.name = "gh200";
  m.assumptions =
      "assumed, not measured: 600 TFLOP/s sustained bf16, 4 TB/s HBM (data sheet), 370 GB/s per "
      "direction over NVLink-C2C (0.8 of it in duplex), flash 6/12 GB/s write/read";
  m.hbm_bytes_per_us = 4000 * kGbPerUs;
  m.hbm_bytes = 96 * kGiB;
  m.ddr_bytes = 480 * kGiB;
  m.links = Links(370 * kGbPerUs, 0.8, 6 * kGbPerUs, 12 * kGbPerUs);
  return m;
}

Machine AscendSuperNode() {
  Machine m;
  m.name = "ascend-supernode";
  m.assumptions =
      "assumed, not measured: 140 TFLOP/s sustained, 1.6 TB/s HBM, 16 GiB/s per direction to DDR "
      "(placeholders public planners use for this die), flash 3/6 GB/s write/read";
  m.flops_per_us = 140e6;
  m.hbm_bytes_per_us = 1600 * kGbPerUs;
  m.launch_us = 5;
  m.hbm_bytes = 64 * kGiB;
  m.ddr_bytes = 1024 * kGiB;
  m.flash_bytes = 4096 * kGiB;
  m.links = Links(0, 1, 3 * kGbPerUs, 6 * kGbPerUs);
  for (Link& link : m.links) {
    if (link.from != TierKind::kFlash && link.to != TierKind::kFlash) {
      link.curve = {{kMiB, 16 * kGibPerUs}};  // the assumption names no curve
    }
  }
  return m;
}

}  // namespace

const Link* FindLink(const Machine& machine, TierKind from, TierKind to) {
  for (const Link& link : machine.links) {
    if (link.from == from && link.to == to) return &link;
  }
  return nullptr;
}

double BandwidthAt(const Link& link, Bytes bytes) {
  HMM_CHECK(!link.curve.empty());
  const auto above =
      std::find_if(link.curve.begin(), link.curve.end(),
                   [bytes](const BandwidthPoint& point) { return point.bytes >= bytes; });
  if (above == link.curve.begin()) return above->bytes_per_us;
  const auto below = above - 1;
  if (above == link.curve.end()) return below->bytes_per_us;
  const double low = std::log(static_cast<double>(below->bytes));
  const double high = std::log(static_cast<double>(above->bytes));
  const double at = (std::log(static_cast<double>(bytes)) - low) / (high - low);
  return below->bytes_per_us + at * (above->bytes_per_us - below->bytes_per_us);
}

double TransferUs(const Link& link, Bytes bytes) {
  return link.latency_us / static_cast<double>(std::max(1U, link.engines)) +
         static_cast<double>(bytes) / BandwidthAt(link, bytes);
}

std::optional<Machine> MachinePreset(std::string_view name) {
  if (name == "h100") return H100();
  if (name == "gh200") return Gh200();
  if (name == "ascend-supernode") return AscendSuperNode();
  return std::nullopt;
}

const std::vector<std::string_view>& MachinePresetNames() {
  static const std::vector<std::string_view> kNames = {"h100", "gh200", "ascend-supernode"};
  return kNames;
}

}  // namespace hmm::plan
