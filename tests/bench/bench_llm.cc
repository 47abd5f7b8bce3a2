// SPDX-License-Identifier: Apache-2.0
//
// A model's decoding with its memory in hmmd, against the same program with plain memory, in turns
// within one run. Starts daemons of its own.
//
//   bench_llm [all|decode|weights|resume [MODEL]]
//                          MODEL: a checkpoint; without, one of 51 million parameters is made
//
//   decode    token by token, KV cache in HBM that holds it all, against local memory: the ratio of
//             the medians; bar 1.03
//   weights   a prompt in chunks of 64 tokens, HBM for three layers, the others streamed from DDR:
//             time that computing stood still, as a share of the run; bar 0.05
//   resume    a suspended sequence back from DDR and from flash into HBM, against computing its
//             prompt, by its length; the crossover, from which on it is quicker; bar 1 at 512
//             tokens
//
// Scratch files (the model, flash) lie in $HMM_BENCH_DIR, or the directory of temporary files.
#include <fcntl.h>
#include <hmm/client.h>
#include <hmm/kv_cache.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/examples/llm/checkpoint.h"
#include "client/examples/llm/digest.h"
#include "client/examples/llm/generation.h"
#include "client/examples/llm/hmm_kv.h"
#include "client/examples/llm/hmm_weights.h"
#include "client/examples/llm/local_kv.h"
#include "client/examples/llm/make_model.h"
#include "client/examples/llm/model.h"

namespace hmm::bench {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr std::size_t kBlockTokens = 16;
constexpr const char* kMadeModel = "12,512,8,4,32000,2048";

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Ends the program: a benchmark has nothing to recover. By an exception, so that daemons and
// scratch files go.
struct Failed {
  absl::Status status;
};
void Must(const absl::Status& status) {
  if (!status.ok()) throw Failed{status};
}
template <typename Value>
Value Must(absl::StatusOr<Value> value) {
  Must(value.status());
  return *std::move(value);
}

// A directory of our own, gone at the end.
class Scratch {
 public:
  Scratch() {
    const char* parent = std::getenv("HMM_BENCH_DIR");
    path_ = (parent != nullptr ? std::string(parent) : fs::temp_directory_path().string()) +
            "/hmm_bench.XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) Must(absl::ErrnoToStatus(errno, path_));
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// hmmd with tiers of these sizes, stopped at the end.
class Daemon {
 public:
  Daemon(std::uint64_t hbm, std::uint64_t ddr, std::uint64_t flash) {
    std::ofstream config(scratch_.File("hmmd.toml"));
    const auto tier = [&](const char* name, const char* kind, std::uint64_t bytes) {
      config << "[[tier]]\nname = \"" << name << "\"\nkind = \"" << kind << "\"\ncapacity = \""
             << bytes / 1024 << "KiB\"\n";
    };
    tier("hbm0", "hbm", hbm);
    config << "emulated = true\nhigh = 1.0\nlow = 0.95\n";
    tier("ddr0", "ddr", ddr);
    tier("flash0", "flash", flash);
    config << "path = \"" << scratch_.File("flash") << "\"\n";
    config.close();
    // Should this process be killed, the daemon must not stay behind.
    std::vector<std::string> words = {"setpriv",   "--pdeathsig",  "KILL",
                                      HMMD_BINARY, "--config",     scratch_.File("hmmd.toml"),
                                      "--dir",     scratch_.path()};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, scratch_.File("log").c_str(),
                                     O_WRONLY | O_CREAT, 0600);
    if (posix_spawnp(&pid_, words[0].c_str(), &files, nullptr, argv.data(), environ) != 0) {
      Must(absl::NotFoundError("setpriv"));
    }
    posix_spawn_file_actions_destroy(&files);
    client_ = Must(
        Client::Connect({.dir = scratch_.path(), .connect_timeout = std::chrono::seconds(60)}));
  }
  ~Daemon() {
    client_.reset();
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Client& client() { return *client_; }

 private:
  Scratch scratch_;
  pid_t pid_ = -1;
  std::unique_ptr<Client> client_;
};

struct Subject {
  const llm::Checkpoint& checkpoint;
  std::string digest;
  const llm::ModelShape& shape() const { return checkpoint.shape(); }
  std::uint64_t kv_bytes(std::size_t tokens) const {
    return shape().token_bytes() * shape().layers * tokens;
  }
  std::unique_ptr<KvCache> Cache(Client& client, const std::string& tier) const {
    return Must(KvCache::Create(client, {.layers = static_cast<std::uint32_t>(shape().layers),
                                         .block_tokens = kBlockTokens,
                                         .token_bytes = shape().token_bytes(),
                                         .model_digest = digest,
                                         .tier = tier,
                                         .window_bytes = std::uint64_t{256} << 20}));
  }
};

std::vector<int> Prompt(std::size_t tokens, int seed) {
  std::vector<int> prompt = {1};
  for (std::size_t i = 1; i < tokens; ++i) {
    prompt.push_back(3 + static_cast<int>((i * 7 + static_cast<std::size_t>(seed)) % 200));
  }
  return prompt;
}

llm::Generation Begin(std::vector<int> prompt, std::unique_ptr<llm::Kv> kv) {
  return {std::move(prompt), std::move(kv), kBlockTokens, 64, llm::Sampler(0, 1)};
}

int Judge(const char* row, double value, double bar) {
  std::printf("%-8s ratio %.4f  bar %.2f  %s\n", row, value, bar, value <= bar ? "met" : "MISSED");
  std::fflush(stdout);
  return value <= bar ? 0 : 1;
}

// --- decode -------------------------------------------------------------------------------------

int Decode(const Subject& subject) {
  constexpr std::size_t kTokens = 100;
  Daemon daemon(subject.kv_bytes(1024) * 2, 64 << 20, 64 << 20);
  const auto cache = subject.Cache(daemon.client(), "hbm0");
  llm::LocalCache local_cache(subject.shape(), kBlockTokens, 0);
  llm::FileWeights weights(subject.checkpoint);
  llm::Model model(subject.shape(), kBlockTokens, weights);
  llm::Generation local = Begin(Prompt(300, 1), local_cache.Open());
  llm::Generation tiered = Begin(Prompt(300, 1), llm::OpenHmmKv(*cache));
  Must(local.Next(model).status());
  Must(tiered.Next(model).status());
  std::vector<double> plain;
  std::vector<double> ours;
  for (std::size_t i = 0; i < kTokens; ++i) {
    for (const bool first : {i % 2 == 0, i % 2 != 0}) {
      const auto begin = Clock::now();
      Must((first ? local : tiered).Next(model).status());
      (first ? plain : ours).push_back(MillisecondsSince(begin));
    }
  }
  if (local.tokens() != tiered.tokens()) Must(absl::InternalError("the tokens differ"));
  std::printf("decode   %zu tokens each after 300: %.3f ms a token local, %.3f ms in hmmd\n",
              kTokens, Median(plain), Median(ours));
  return Judge("decode", Median(ours) / Median(plain), 1.03);
}

// --- weights ------------------------------------------------------------------------------------

int Weights(const Subject& subject) {
  const std::uint64_t layer = subject.shape().layer_floats() * sizeof(float);
  const std::uint64_t globals = subject.shape().global_floats() * sizeof(float);
  // The globals stay in DDR: HBM has room for three layers, a fourth is its reserve.
  Daemon daemon(layer * 4 + (8 << 20),
                layer * (subject.shape().layers + 4) + globals * 2 + (64 << 20), 64 << 20);
  auto weights =
      Must(llm::HmmWeights::Open(daemon.client(), subject.checkpoint, subject.digest, "hbm0"));
  llm::LocalCache local_cache(subject.shape(), kBlockTokens, 0);
  llm::Model model(subject.shape(), kBlockTokens, *weights);
  llm::Generation warm = Begin(Prompt(64, 7), local_cache.Open());
  Must(warm.Next(model).status());
  const llm::WeightStats before = weights->stats();
  const auto begin = Clock::now();
  llm::Generation text = Begin(Prompt(1024, 2), local_cache.Open());
  Must(text.Next(model).status());
  const double run = MillisecondsSince(begin);
  const auto& after = weights->stats();
  const double wait = std::chrono::duration<double, std::milli>(after.wait - before.wait).count();
  const double layers = 16.0 * static_cast<double>(subject.shape().layers);
  std::printf(
      "weights  %.0f layers of %.1f MiB in %.0f ms: %.2f ms each; moved %.0f MiB, waited "
      "%.1f ms\n",
      layers, static_cast<double>(layer) / (1 << 20), run, run / layers,
      static_cast<double>(after.brought_bytes - before.brought_bytes) / (1 << 20), wait);
  for (const auto& [tier, count] : after.hits) {
    const auto was = before.hits.find(tier);
    std::printf(
        "weights  found in %s: %llu\n", tier.c_str(),
        static_cast<unsigned long long>(count - (was == before.hits.end() ? 0 : was->second)));
  }
  return Judge("weights", wait / run, 0.05);
}

// --- resume -------------------------------------------------------------------------------------

struct ResumeTimes {
  double resume = 0;
  double compute = 0;
};

// Medians for a text of `length` tokens that is computed, suspended to `tier` and brought back.
ResumeTimes ResumeOnce(const std::string& tier, std::size_t length, KvCache& cache,
                       llm::Model& model) {
  std::vector<double> resume;
  std::vector<double> compute;
  for (int round = 0; round < (length <= 64 ? 5 : 3); ++round) {
    llm::Generation text =
        Begin(Prompt(length, static_cast<int>(length) + round), llm::OpenHmmKv(cache, tier));
    auto begin = Clock::now();
    Must(text.Next(model).status());
    if (text.skipped() > 0) Must(absl::InternalError("a prompt was cached"));
    compute.push_back(MillisecondsSince(begin));
    Must(text.kv().Suspend());
    const std::uint64_t before = cache.stats().brought_bytes + cache.stats().prefetched_bytes;
    begin = Clock::now();
    Must(text.kv().Resume());
    resume.push_back(MillisecondsSince(begin));
    // All of it had left, and all of it is back.
    const std::size_t blocks = (length + kBlockTokens - 1) / kBlockTokens;
    const std::uint64_t bytes = cache.options().token_bytes * cache.options().layers *
                                cache.options().block_tokens * blocks;
    if (cache.stats().brought_bytes + cache.stats().prefetched_bytes - before < bytes) {
      Must(absl::InternalError("a sequence had not left whole, or is not back whole"));
    }
  }
  return {Median(resume), Median(compute)};
}

int Resume(const Subject& subject, const std::string& tier) {
  // Room for the texts of all lengths together: where others have to leave first, some of a resumed
  // one is read where it lies, and the figure would be of a part.
  const std::uint64_t room = subject.kv_bytes(4096);
  Daemon daemon(room, room, room + (64 << 20));
  const auto cache = subject.Cache(daemon.client(), "hbm0");
  llm::FileWeights weights(subject.checkpoint);
  llm::Model model(subject.shape(), kBlockTokens, weights);
  Must(Begin(Prompt(64, 9999), llm::OpenHmmKv(*cache)).Next(model).status());  // reads the weights
  std::size_t crossover = 0;  // resuming is quicker from here on
  std::size_t below = 0;      // the longest at which it is not
  double ratio = 0;
  for (const std::size_t length : {1u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 512u}) {
    const ResumeTimes times = ResumeOnce(tier, length, *cache, model);
    ratio = times.resume / times.compute;
    if (ratio >= 1) below = length;
    if (ratio >= 1 || crossover == 0) crossover = ratio < 1 ? length : 0;
    std::printf("resume   %4zu tokens from %-6s %8.2f ms, computed again %8.2f ms, ratio %.4f\n",
                length, tier.c_str(), times.resume, times.compute, ratio);
  }
  std::printf("resume   crossover of %s: ", tier.c_str());
  if (crossover == 0) {
    std::printf("none up to %zu tokens\n", below);
  } else if (below == 0) {
    std::printf("%zu token, the shortest there is\n", crossover);
  } else {
    std::printf("%zu tokens; with %zu computing is quicker\n", crossover, below);
  }
  return Judge("resume", ratio, 1.0);
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Scratch scratch;
  const std::string row = argc > 1 ? argv[1] : "all";
  const auto wanted = [&](const char* name) { return row == "all" || row == name; };
  if (!wanted("decode") && !wanted("weights") && !wanted("resume")) {
    std::fprintf(stderr, "bench_llm: no row %s; all, decode, weights or resume\n", row.c_str());
    return 2;
  }
  const std::string path = argc > 2 ? argv[2] : scratch.File("model.bin");
  if (argc <= 2) Must(llm::MakeModel(Must(llm::ParseModelSpec(kMadeModel)), 1, path));
  const auto checkpoint = Must(llm::Checkpoint::Open(path));
  Subject subject{checkpoint, llm::DigestOf(checkpoint)};
  const llm::ModelShape& shape = checkpoint.shape();
  std::printf(
      "model    %.1f million parameters, %zu layers, dim %zu, %zu bytes of KV a token\n",
      static_cast<double>(shape.layers * shape.layer_floats() + shape.global_floats()) / 1e6,
      shape.layers, shape.dim, shape.token_bytes() * shape.layers);
  int missed = 0;
  if (wanted("decode")) missed += Decode(subject);
  if (wanted("weights")) missed += Weights(subject);
  if (wanted("resume")) missed += Resume(subject, "ddr0") + Resume(subject, "flash0");
  return missed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace hmm::bench

int main(int argc, char** argv) {
  try {
    return hmm::bench::Main(argc, argv);
  } catch (const hmm::bench::Failed& failed) {
    std::fprintf(stderr, "bench_llm: %s\n", failed.status.ToString().c_str());
    return 1;
  }
}
