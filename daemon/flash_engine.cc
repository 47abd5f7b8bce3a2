// SPDX-License-Identifier: Apache-2.0
#include "daemon/flash_engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "copy/routing_copier.h"
#include "copy/uring_copier.h"
#include "copy/worker_copier.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

constexpr std::string_view kWorkers = "worker threads";
// Of one link, handed to the ring: what a fast drive has under way and as much again, so that a
// slot that comes free is filled without a word from the executor; and little enough that a move
// that somebody waits for is not long behind it.
constexpr Bytes kRunningBytes = 16 * kMiB;

}  // namespace

FlashEngine CreateFlashEngine(const Config& config, Executor& executor, copy::UnderWay& under_way) {
  FlashEngine engine;
  engine.copier =
      copy::CreateWorkerCopier(executor, {.threads = static_cast<unsigned>(config.copy_threads),
                                          .io_unit = config.copy_io_unit,
                                          .under_way = &under_way});
  engine.note = kWorkers;
  const bool flash =
      std::any_of(config.tiers.begin(), config.tiers.end(),
                  [](const TierConfig& tier) { return tier.tier_kind == TierKind::kFlash; });
  if (!flash || config.flash_engine == "workers") return engine;
  copy::UringCopierOptions options;
  options.depth = static_cast<unsigned>(config.flash_depth);
  options.io_unit = config.copy_io_unit;
  options.under_way = &under_way;
  absl::StatusOr<std::unique_ptr<copy::Copier>> ring =
      copy::CreateUringCopier(executor, std::move(options));
  if (!ring.ok()) {
    engine.note = Cat(MessageOf(ring.status()), ", ", kWorkers);
    engine.degraded = config.flash_engine == "io_uring";
    spdlog::warn("{}", engine.note);
    return engine;
  }
  engine.copier = copy::CreateRoutingCopier(std::move(engine.copier), *std::move(ring));
  engine.note = "io_uring";
  engine.running_max = 2 * config.flash_depth;
  engine.running_bytes = kRunningBytes;
  return engine;
}

}  // namespace hmm::daemon
