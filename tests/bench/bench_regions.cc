// SPDX-License-Identifier: Apache-2.0
//
// Load and Store of 4,096 fragments of 32 KiB through the client library and a daemon of its own,
// against a plain memcpy loop over the same list in the same process and run. The daemon copies
// with as many threads as the row says ([move] threads; 2 is the default).
//
// Every row runs the loop and the job in turn; `ratio` is the loop's seconds over the job's, the
// median of the pairs'. The bar is 0.8. `list_ms`: a job of as long a list of 64 bytes each, that
// is, what is paid for calls, list and wake-ups and not for bytes.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hmm/region.h"

extern char** environ;

namespace hmm::testing {
namespace {

constexpr std::size_t kPiece = 32 * 1024;
constexpr std::size_t kPieces = 4096;
constexpr std::size_t kTotal = kPiece * kPieces;

constexpr double kBar = 0.8;
constexpr char kTiers[] = R"([[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "64MiB"
[[tier]]
name = "ddr0"
kind = "ddr"
capacity = "768MiB"
high = 1.0
low = 0.9
)";

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "bench_regions: %s\n", value.status().ToString().c_str());
  std::exit(1);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <typename Body>
double Seconds(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// hmmd in a directory of its own, until this object goes. Who connects waits until it listens.
class OwnDaemon {
 public:
  explicit OwnDaemon(unsigned threads) {
    if (mkdtemp(dir_.data()) == nullptr) {
      std::perror("bench_regions: a directory");
      std::exit(1);
    }
    const std::string config = dir_ + "/bench.toml";
    std::ofstream(config) << "[daemon]\nstate_dir = \"" << dir_
                          << "\"\nlog_level = \"warn\"\n[move]\nthreads = " << threads << "\n"
                          << kTiers;
    std::vector<std::string> words{HMMD_BINARY, "--config", config, "--dir", dir_};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&pid_, HMMD_BINARY, nullptr, nullptr, arguments.data(), environ) != 0) {
      std::perror("bench_regions: hmmd");
      std::exit(1);
    }
  }
  ~OwnDaemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_ = std::filesystem::temp_directory_path().string() + "/hmm_bench.XXXXXX";
  pid_t pid_ = -1;
};

// A daemon, a region of all fragments in shuffled order, and for the loop a second one.
class World {
 public:
  explicit World(unsigned threads)
      : daemon_(threads),
        client_(Must(
            Client::Connect({.dir = daemon_.dir(), .connect_timeout = std::chrono::seconds(30)}))),
        regions_(*client_),
        region_(Must(regions_.Lease(kTotal, {.tier = "ddr0"}))),
        flat_(Must(regions_.Lease(kTotal, {.tier = "ddr0"}))) {
    std::mt19937_64 rng(1);
    for (std::size_t at = 0; at < kTotal; at += kPiece) offsets_.push_back(at);
    std::shuffle(offsets_.begin(), offsets_.end(), rng);
    for (const std::size_t at : offsets_) fragments_.push_back({&region_, at, kPiece});
    std::memset(region_.data(), 1, kTotal);
    std::memset(flat_.data(), 2, kTotal);
    Store();  // the first touches all that later ones reuse
    StoreList();
  }

  double GatherLoop() {
    return Seconds([&] {
      std::byte* to = flat_.data();
      for (const std::size_t at : offsets_) {
        std::memcpy(to, region_.data() + at, kPiece);
        to += kPiece;
      }
    });
  }
  double ScatterLoop() {
    return Seconds([&] {
      const std::byte* from = flat_.data();
      for (const std::size_t at : offsets_) {
        std::memcpy(region_.data() + at, from, kPiece);
        from += kPiece;
      }
    });
  }
  double Store() { return StoreOf("block", fragments_); }
  double Load() { return LoadOf("block", fragments_); }
  // The same lists of 64 bytes each.
  double StoreList() { return StoreOf("list", Short()); }
  double LoadList() { return LoadOf("list", Short()); }

 private:
  static void Check(const absl::Status& status) {
    if (!status.ok()) Must(absl::StatusOr<int>(status));
  }

  std::vector<Fragment> Short() const {
    std::vector<Fragment> fragments = fragments_;
    for (Fragment& fragment : fragments) fragment.bytes = 64;
    return fragments;
  }
  // Frees the last one first: the same room serves again.
  double StoreOf(const std::string& key, const std::vector<Fragment>& fragments) {
    const std::vector<std::string> keys{key};
    for (const Held& held : Must(client_->Lookup(keys))) {
      const Tensor old = held.tensor;
      Check(client_->Free(old));
    }
    const StoreItem item{.key = key, .fragments = fragments};
    return Seconds([&] {
      Job job = Must(regions_.Store({&item, 1}, {.tier = "ddr0"}));
      Check(Must(regions_.Wait(job)).done.at(0));
    });
  }
  double LoadOf(const std::string& key, const std::vector<Fragment>& fragments) {
    const LoadItem item{.key = key, .fragments = fragments};
    return Seconds([&] {
      Job job = Must(regions_.Load({&item, 1}));
      Check(Must(regions_.Wait(job)).done.at(0));
    });
  }

  OwnDaemon daemon_;
  std::unique_ptr<Client> client_;
  Regions regions_;
  Region region_;
  Region flat_;
  std::vector<std::size_t> offsets_;
  std::vector<Fragment> fragments_;
};

template <typename Loop, typename Job, typename List>
void Compare(benchmark::State& state, Loop loop, Job job, List list) {
  std::vector<double> loops, jobs, ratios, lists;
  for ([[maybe_unused]] auto _ : state) {
    loops.push_back(loop());
    jobs.push_back(job());
    ratios.push_back(loops.back() / jobs.back());
    lists.push_back(list());
    state.SetIterationTime(jobs.back());
  }
  const double ratio = Median(ratios);
  state.counters["loop_GB/s"] = kTotal / Median(loops) / 1e9;
  state.counters["GB/s"] = kTotal / Median(jobs) / 1e9;
  state.counters["list_ms"] = Median(lists) * 1e3;
  state.counters["ratio"] = ratio;
  char label[64];
  std::snprintf(label, sizeof label, "bar %.2f: %s", kBar, ratio >= kBar ? "met" : "MISSED");
  state.SetLabel(label);
}

void Store(benchmark::State& state) {
  World world(static_cast<unsigned>(state.range(0)));
  Compare(
      state, [&] { return world.GatherLoop(); }, [&] { return world.Store(); },
      [&] { return world.StoreList(); });
}
void Load(benchmark::State& state) {
  World world(static_cast<unsigned>(state.range(0)));
  Compare(
      state, [&] { return world.ScatterLoop(); }, [&] { return world.Load(); },
      [&] { return world.LoadList(); });
}

void Rows(benchmark::internal::Benchmark* row) {
  row->ArgName("threads")->Arg(2)->Arg(1)->Unit(benchmark::kMillisecond)->UseManualTime();
  row->Iterations(31);
}
BENCHMARK(Store)->Apply(Rows);
BENCHMARK(Load)->Apply(Rows);

}  // namespace

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace hmm::testing

int main(int argc, char** argv) { return hmm::testing::Main(argc, argv); }
