// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <future>
#include <random>
#include <utility>

#include "base/open_files.h"
#include "base/status.h"
#include "copy/paced_copier.h"
#include "daemon/text.h"
#include "tier/file_tier.h"
#include "tier/host_tier.h"
#include "tier/machine.h"

namespace hmm::daemon {
namespace {

// How many connections the descriptor limit has room for. An RPC connection takes two (acceptor.h).
ConnectionBudget BudgetOf(const Config& config) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::error_code ignored;
  const auto open = static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd", ignored), {}));
  const std::size_t own = OpenFilesOfDaemon(open, config.tiers.size(), config.tenants.size());
  const std::size_t left = limit.rlim_cur > own ? limit.rlim_cur - own : 0;
  return {.admin = std::clamp<std::size_t>(left / 12, 2, 96),
          .rpc = std::min<std::size_t>(config.connections_max, std::max<std::size_t>(left / 6, 4)),
          .sessions = std::min<std::size_t>(config.session_connections_max,
                                            SessionsWithin(limit.rlim_cur, own))};
}

// The other half of a server's connections is for calls.
std::size_t WatchersMax(std::size_t connections_max) {
  return std::min<std::size_t>(64, connections_max / 2);
}

std::uint64_t RandomEpoch() {
  std::random_device device;
  const std::uint64_t epoch = (static_cast<std::uint64_t>(device()) << 32) | device();
  return epoch == 0 ? 1 : epoch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  HMM_RETURN_IF_ERROR(daemon->Claim());
  daemon->CreateServers();
  HMM_RETURN_IF_ERROR(daemon->CreateCore());
  HMM_RETURN_IF_ERROR(daemon->StartServers());
  daemon->KnowLinks();
  HMM_RETURN_IF_ERROR(daemon->OpenSockets());
  return daemon;
}

Daemon::Daemon(const Config& config) : config_(config), io_work_(io_.get_executor()) {}

Daemon::~Daemon() { Stop(); }

absl::Status Daemon::Claim() {
  HMM_RETURN_IF_ERROR(DirectoryError(MakeDirectory(config_.dir, 0755)));
  absl::StatusOr<LockFile> lock = LockFile::Take(config_.dir);
  if (!lock.ok()) return DirectoryError(lock.status());
  lock_.emplace(*std::move(lock));
  HMM_ASSIGN_OR_RETURN(adopted_, AdoptSystemdSockets());
  return absl::OkStatus();
}

void Daemon::CreateServers() {
  budget_ = BudgetOf(config_);
  if (budget_.rpc < config_.connections_max) {
    spdlog::warn("the file descriptor limit leaves room for {} connections and {} sessions",
                 budget_.rpc, budget_.sessions);
  }
  const std::uint32_t overflow_uid = OverflowUid();
  RpcServerOptions tenant;
  tenant.acceptor = {.role = Role::kTenant,
                     .connections_max = budget_.rpc,
                     .overflow_uid = overflow_uid,
                     .on_count = nullptr};
  tenant.armed_max = config_.armed_max;
  tenant.message_bytes_max = static_cast<int>(config_.message_max);
  RpcServerOptions admin = tenant;
  admin.acceptor.role = Role::kAdmin;
  admin.acceptor.connections_max = budget_.admin;
  admin.armed_max = 4;
  admin.park_when_idle = true;
  tenant_ = std::make_unique<RpcServer>(io_, std::move(tenant));
  admin_ = std::make_unique<RpcServer>(io_, std::move(admin));
}

absl::StatusOr<std::unique_ptr<tier::Tier>> Daemon::CreateTier(const TierConfig& tier, TierId id,
                                                               const FlashEngine& engine) const {
  tier::TierOptions options{.name = tier.name,
                            .kind = tier.tier_kind,
                            .emulated = tier.emulated,
                            .link_bandwidth = tier.link_bandwidth,
                            .capacity = tier.capacity_bytes,
                            .high = tier.high,
                            .low = tier.low,
                            .reserve = tier.reserve_bytes};
  if (tier.tier_kind == TierKind::kFlash) {
    HMM_RETURN_IF_ERROR(
        MakeDirectory(std::filesystem::path(tier.path).parent_path().string(), 0700));
    tier::FileTierOptions file;
    file.tier = std::move(options);
    file.id = id;
    file.path = tier.path;
    file.engine = engine.note;
    file.engine_degraded = engine.degraded;
    return tier::CreateFileTier(std::move(file));
  }
  tier::HostTierOptions host;
  host.tier = std::move(options);
  host.id = id;
  host.commit_chunk = tier.commit_chunk;
  host.pages = PageModeOf(tier);
  host.numa_node = static_cast<int>(tier.numa_node);
  for (const TierConfig& other : config_.tiers) {
    if (other.tier_kind != TierKind::kFlash) host.hugetlb_needed += other.capacity_bytes;
  }
  host.may_commit = [headroom = config_.commit_headroom](Bytes bytes) {
    return tier::MayCommit(bytes, headroom);
  };
  return tier::CreateHostTier(std::move(host));
}

absl::Status Daemon::CreateCore() {
  FlashEngine engine = CreateFlashEngine(config_, tenant_->executor(), under_way_);
  copier_ = std::move(engine.copier);
  const bool paced = std::any_of(config_.tiers.begin(), config_.tiers.end(),
                                 [](const TierConfig& tier) { return tier.link_bandwidth > 0; });
  fragments_ = copy::CreateWorkerFragmentCopier(tenant_->executor(),
                                                static_cast<unsigned>(config_.copy_threads));
  if (paced) {
    const auto links = std::make_shared<copy::PacedLinks>(clock_);
    copier_ = copy::CreatePacedCopier(std::move(copier_), links, tenant_->executor(), clock_);
    fragments_ =
        copy::CreatePacedFragmentCopier(std::move(fragments_), links, tenant_->executor(), clock_);
  }
  std::vector<std::unique_ptr<tier::Tier>> tiers;
  for (const TierConfig& config : config_.tiers) {
    absl::StatusOr<std::unique_ptr<tier::Tier>> tier =
        CreateTier(config, static_cast<TierId>(tiers.size()), engine);
    if (!tier.ok()) return Annotate(tier.status(), Cat("tier ", config.name));
    if (const std::string note = (*tier)->note(); !note.empty()) {
      spdlog::info("{}: {}", config.name, note);
    }
    tiers.push_back(*std::move(tier));
  }
  core::ManagerOptions options = config_.limits;
  options.tenant_limits = TenantLimitsOf(config_);
  options.mover.file_running_max = engine.running_max;
  options.mover.file_running_bytes = engine.running_bytes;
  options.boot_epoch = RandomEpoch();
  options.calibration.file_depth = static_cast<unsigned>(config_.flash_depth);
  core::TopologyFacts facts;
  facts.nodes = config_.topology.nodes;
  std::vector<std::string> names;
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const TierConfig& tier = config_.tiers[i];
    options.demote_to.push_back(tier.below);
    facts.tiers.push_back({.rank = tier.rank, .numa_node = static_cast<int>(tier.numa_node)});
    names.push_back(tier.name);
    notes.push_back(tiers[i]->note());
  }
  calibration_.emplace(Cat(config_.state_dir, "/calibration.json"),
                       FingerprintOf(config_, engine.note, notes), std::move(names));
  manager_ = std::make_unique<core::Manager>(options, std::move(tiers), *copier_,
                                             tenant_->executor(), clock_, fragments_.get());
  manager_->SetTopology(std::move(facts));
  return absl::OkStatus();
}

// The manager belongs to the executor's thread by now, which the copiers need to run.
void Daemon::KnowLinks() {
  OnExecutor([this] {
    manager_->OnCalibrated([this](const std::vector<copy::LinkModel>& links) {
      const std::int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count();
      manager_->SetMeasurement({.links = links, .unix_ms = now_ms});
      // One that lacks what more time would have given is no use for the next start.
      if (std::any_of(links.begin(), links.end(), copy::OutOfTime)) return;
      // A file is written by a thread that may wait for the disk.
      boost::asio::post(io_, [this, links, now_ms] {
        const absl::Status saved = calibration_->Save(links, now_ms);
        if (!saved.ok()) {
          spdlog::warn("the calibration is not kept for the next start: {}", MessageOf(saved));
        }
      });
    });
  });
  if (config_.calibrate == "never") return;
  if (config_.calibrate == "cached") {
    absl::StatusOr<core::LinkMeasurement> known = calibration_->Load();
    if (known.ok()) {
      OnExecutor([&] { manager_->SetMeasurement(*std::move(known)); });
      spdlog::info("links as measured before, from {}", calibration_->path());
      return;
    }
    if (absl::IsDataLoss(known.status())) {
      spdlog::warn("{}; it is ignored, and the links are measured anew", MessageOf(known.status()));
    } else {
      spdlog::info("the links are measured: {}", MessageOf(known.status()));
    }
  }
  Calibrate();
}

void Daemon::Calibrate() {
  using Links = absl::StatusOr<std::vector<copy::LinkModel>>;
  std::promise<Links> measured;
  // A drive that hangs must not keep the daemon from starting.
  const Duration patience = 8 * config_.limits.calibration.budget + std::chrono::seconds(1);
  OnExecutor([&] {
    manager_->Calibrate(clock_.Now() + patience,
                        [&](Links links) { measured.set_value(std::move(links)); });
  });
  const Links links = measured.get_future().get();
  if (!links.ok()) {
    spdlog::warn("the links are not measured: {}", MessageOf(links.status()));
    return;
  }
  for (const copy::LinkModel& link : *links) {
    const std::string name = Cat(config_.tiers[link.from].name, "->", config_.tiers[link.to].name);
    if (!link.measured()) {
      spdlog::info("{}: {}", name, link.note);
      continue;
    }
    const copy::RatePoint& point = link.curve.back();
    spdlog::info("{}: {}/s at {}, {} us for 4 KiB, {} at once", name,
                 FormatBytes(static_cast<Bytes>(point.bytes_per_second)), FormatBytes(point.bytes),
                 std::chrono::duration_cast<std::chrono::microseconds>(link.latency).count(),
                 link.engines);
  }
}

absl::Status Daemon::StartServers() {
  const CoreGate inline_gate = CoreGate::Inline(tenant_->executor());
  const CoreGate hop = CoreGate::Hop(tenant_->executor(), admin_->executor());
  sessions_ = std::make_unique<Sessions>(
      io_, tenant_->executor(), *manager_,
      SessionsOptions{.connections_max = budget_.sessions,
                      .handshakes_max = config_.handshakes_max,
                      .handshake_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
                          config_.handshake_timeout),
                      .overflow_uid = OverflowUid()});
  manager_->OnTierOffline([this](TierId tier, std::string_view why) {
    spdlog::error("{} is offline until the next start: {}; what lay there is lost",
                  config_.tiers[tier].name, why);
  });
  manager_->OnExpel([sessions = sessions_.get()](SessionId session, std::string_view why) {
    sessions->Expel(session, why);
  });

  std::vector<std::unique_ptr<Service>> tenant;
  tenant.push_back(CreateMemoryService(*manager_, config_.limits));
  tenant.push_back(CreateRegionService(*manager_, config_.limits));
  tenant.push_back(CreateInspectionService(*manager_, inline_gate, /*tenant_view=*/true,
                                           WatchersMax(budget_.rpc)));
  tenant.push_back(CreateHealthService(*manager_, health_, inline_gate));
  std::vector<std::unique_ptr<Service>> admin;
  admin.push_back(CreateAdminService(*manager_, hop));
  admin.push_back(
      CreateInspectionService(*manager_, hop, /*tenant_view=*/false, WatchersMax(budget_.admin)));
  admin.push_back(CreateHealthService(*manager_, health_, hop));
  admin.push_back(
      CreateReflectionService({"hmm.v1.Admin", "hmm.v1.Inspection", "grpc.health.v1.Health",
                               "grpc.reflection.v1alpha.ServerReflection"}));

  // From here on the manager belongs to the executor's thread.
  const std::uint64_t epoch = manager_->boot_epoch();
  HMM_RETURN_IF_ERROR(tenant_->Start(std::move(tenant), epoch));
  HMM_RETURN_IF_ERROR(admin_->Start(std::move(admin), epoch));
  io_thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "hmmd-io");
    while (!io_.stopped()) {
      try {
        io_.run();
      } catch (const std::exception& error) {
        // Asio could not register a descriptor; that connection is gone, the others go on.
        spdlog::error("sockets: {}", error.what());
      }
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<Listener> Daemon::Open(const char* name, int type, unsigned mode) {
  if (const auto found = adopted_.find(name); found != adopted_.end()) {
    return Listener::Adopt(std::move(found->second));
  }
  return Listener::Bind(Cat(config_.dir, "/", name), type, mode);
}

absl::Status Daemon::OpenSockets() {
  // Before the common ones, so that who finds those finds all.
  for (const TenantConfig& tenant : config_.tenants) {
    if (!tenant.has_sockets()) continue;
    if (const absl::Status status = OpenTenantSockets(tenant); !status.ok()) {
      return Annotate(status, Cat("tenant ", tenant.name));
    }
  }
  const auto mode = static_cast<unsigned>(config_.socket_mode);
  HMM_ASSIGN_OR_RETURN(Listener memory, Open(kMemorySocket, SOCK_STREAM, mode));
  HMM_ASSIGN_OR_RETURN(Listener admin, Open(kAdminSocket, SOCK_STREAM, 0600));
  HMM_ASSIGN_OR_RETURN(Listener session, Open(kSessionSocket, SOCK_SEQPACKET, mode));
  OnIo([&] {
    tenant_->Listen(memory.TakeFd(), kMemorySocket);
    admin_->Listen(admin.TakeFd(), kAdminSocket);
    sessions_->Start(session.TakeFd(), /*tenant=*/"");
  });
  listeners_.push_back(std::move(memory));
  listeners_.push_back(std::move(admin));
  listeners_.push_back(std::move(session));
  return absl::OkStatus();
}

absl::Status Daemon::OpenTenantSockets(const TenantConfig& tenant) {
  HMM_RETURN_IF_ERROR(MakeDirectory(tenant.dir, 0755));
  // Below our own directory our lock speaks for it.
  if (!tenant.dir.starts_with(config_.dir + "/")) {
    HMM_ASSIGN_OR_RETURN(LockFile lock, LockFile::Take(tenant.dir));
    tenant_locks_.push_back(std::move(lock));
  }
  const auto mode = static_cast<unsigned>(tenant.socket_mode);
  const auto path = [&](const char* name) { return Cat(tenant.dir, "/", name); };
  HMM_ASSIGN_OR_RETURN(Listener memory, Listener::Bind(path(kMemorySocket), SOCK_STREAM, mode));
  HMM_ASSIGN_OR_RETURN(Listener session,
                       Listener::Bind(path(kSessionSocket), SOCK_SEQPACKET, mode));
  OnIo([&] {
    tenant_->Listen(memory.TakeFd(), Cat(kMemorySocket, " of ", tenant.name),
                    tenant.connections_max);
    sessions_->Start(session.TakeFd(), tenant.name);
  });
  listeners_.push_back(std::move(memory));
  listeners_.push_back(std::move(session));
  return absl::OkStatus();
}

void Daemon::OnExecutor(Task task) {
  std::promise<void> done;
  tenant_->executor().Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

void Daemon::OnIo(Task task) {
  std::promise<void> done;
  boost::asio::post(io_, [&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

void Daemon::Stop() {
  if (std::exchange(stopped_, true)) return;
  if (io_thread_.joinable()) {
    // 1. Nothing new: health says so, waiting calls end UNAVAILABLE, sockets go away.
    OnExecutor([this] {
      health_.stopping = true;
      manager_->Drain(true);
    });
    OnIo([this] {
      tenant_->StopListening();
      admin_->StopListening();
    });
    listeners_.clear();
    // 2. Calls under way end, all within one stop_timeout. The admin server first: its calls need
    // the core; a stuck one of them leaves tenants' calls the larger half.
    using std::chrono::milliseconds;
    const TimePoint until = clock_.Now() + config_.stop_timeout;
    const auto timeout = std::chrono::duration_cast<milliseconds>(config_.stop_timeout);
    admin_->Shutdown(std::min(timeout / 2, milliseconds(1000)));
    const auto left = std::chrono::duration_cast<milliseconds>(until - clock_.Now());
    tenant_->Shutdown(std::max(left, milliseconds(0)));
    // 3. Sessions and the io thread.
    OnIo([this] { sessions_->Stop(); });
    io_work_.reset();
    io_.stop();
    io_thread_.join();
  } else {
    if (admin_) admin_->Shutdown(std::chrono::milliseconds(0));
    if (tenant_) tenant_->Shutdown(std::chrono::milliseconds(0));
  }
  // 4. The executor runs nothing more. Copies end, then what they touch.
  sessions_.reset();
  copier_.reset();
  fragments_.reset();
  manager_.reset();
  admin_.reset();
  tenant_.reset();
  lock_.reset();
}

}  // namespace hmm::daemon
