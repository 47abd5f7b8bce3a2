// SPDX-License-Identifier: Apache-2.0
#include "make_model.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "digest.h"
#include "tokenizer.h"

namespace llm {
namespace {

// xorshift64*: the same numbers everywhere, which <random>'s distributions do not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  // Uniform in [-1, 1).
  float Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const auto top = static_cast<std::uint32_t>((state_ * 0x2545F4914F6CDD1DULL) >> 40);
    return static_cast<float>(top) / static_cast<float>(1u << 23) - 1.0f;
  }

 private:
  std::uint64_t state_;
};

// Of the file, as Checkpoint::Open counts them.
std::uint64_t FileBytes(const ModelShape& s) {
  const std::size_t angles = 2 * s.context * (s.head_size() / 2);
  return kHeaderInts * sizeof(std::int32_t) +
         (s.global_floats() + s.layers * s.layer_floats() + angles) * sizeof(float);
}

std::string Size(std::uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// Before hours of writing, not at their end. Where nobody says what is free, writing finds out.
absl::Status CheckRoom(const ModelShape& shape, const std::string& path) {
  std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  struct statvfs there {};
  if (::statvfs(directory.c_str(), &there) != 0) return absl::OkStatus();
  const std::uint64_t free = std::uint64_t{there.f_bavail} * there.f_frsize;
  const std::uint64_t needed = FileBytes(shape);
  if (needed <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write the model to ", path, ": it takes ", Size(needed), ", and ",
                   directory.string(), " has ", Size(free), " free"));
}

// While it lives, a signal that ends the process removes the unfinished file first. One at a time.
class Unfinished {
 public:
  explicit Unfinished(std::string path) {
    path_ = std::move(path);
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) continue;  // as nohup left it
      struct sigaction remove {};
      remove.sa_handler = Remove;
      remove.sa_flags = static_cast<int>(SA_RESETHAND);
      ::sigaction(kSignals[i], &remove, nullptr);
    }
  }
  ~Unfinished() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      ::sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  static constexpr int kSignals[] = {SIGHUP, SIGINT, SIGTERM};
  // Async-signal-safe. The handler was reset, so the signal now does what it does without one.
  static void Remove(int signal) {
    ::unlink(path_.c_str());
    ::raise(signal);
  }
  static inline std::string path_;
  struct sigaction before_[std::size(kSignals)]{};
};

}  // namespace

absl::StatusOr<ModelShape> ParseModelSpec(const std::string& spec) {
  static constexpr const char* kNames[] = {"layers",   "dim",   "heads",
                                           "kv_heads", "vocab", "context"};
  const std::vector<std::string> words = absl::StrSplit(spec, ',');
  if (words.size() != 5 && words.size() != 6) {
    return absl::InvalidArgumentError(
        absl::StrCat("--make-model ", spec, ": wants layers,dim,heads,kv_heads,vocab[,context]"));
  }
  std::size_t values[6] = {0, 0, 0, 0, 0, 2048};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), values[i]);
    if (error != std::errc() || end != word.data() + word.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--make-model ", spec, ": ", kNames[i], " is \"", word, "\", no number"));
    }
  }
  ModelShape shape;
  shape.layers = values[0];
  shape.dim = values[1];
  shape.heads = values[2];
  shape.kv_heads = values[3];
  shape.vocab = values[4];
  shape.context = values[5];
  shape.hidden = (shape.dim * 8 / 3 + 31) / 32 * 32;
  if (const absl::Status status = CheckShape(shape); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--make-model ", spec, ": ", status.message()));
  }
  return shape;
}

absl::Status MakeModel(const ModelShape& s, std::uint64_t seed, const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("model ", path, ": is there, and no file"));
  }
  if (const absl::Status room = CheckRoom(s, path); !room.ok()) return room;
  // Beside it, and renamed when whole: engines may have the old file mapped, and it stays if this
  // one cannot be written.
  const std::string beside = absl::StrCat(path, ".", ::getpid(), ".part");
  const auto failed = [&] {
    const int error = errno != 0 ? errno : EIO;
    std::remove(beside.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat("cannot write the model to ", path));
  };
  std::optional<Unfinished> unfinished(beside);
  errno = 0;
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  if (!out) return failed();
  const std::int32_t header[kHeaderInts] = {
      static_cast<std::int32_t>(s.dim),      static_cast<std::int32_t>(s.hidden),
      static_cast<std::int32_t>(s.layers),   static_cast<std::int32_t>(s.heads),
      static_cast<std::int32_t>(s.kv_heads), static_cast<std::int32_t>(s.vocab),
      static_cast<std::int32_t>(s.context)};
  out.write(reinterpret_cast<const char*>(header), sizeof(header));
  Random random(seed);
  std::vector<float> row;
  const auto matrix = [&](std::size_t rows, std::size_t columns, float scale) {
    const float width = scale * std::sqrt(3.0f / static_cast<float>(columns));
    row.resize(columns);
    for (std::size_t r = 0; r < rows && out; ++r) {
      for (float& value : row) value = width * random.Next();
      out.write(reinterpret_cast<const char*>(row.data()),
                static_cast<std::streamsize>(columns * sizeof(float)));
    }
  };
  const auto constants = [&](std::size_t count, float value) {
    row.assign(count, value);
    out.write(reinterpret_cast<const char*>(row.data()),
              static_cast<std::streamsize>(count * sizeof(float)));
  };
  // At scale 1 activations keep their size. Embeddings no larger, for the classifier is the same
  // matrix and would only name the last token again; keys and queries wider, so that a head looks
  // at some tokens and not at the mean of all; then what it sees counts as much as the token
  // itself. So every token written depends on the whole context, as in a model that has learnt.
  constexpr float kSharp = 3.0f;
  constexpr float kLoud = 2.0f;
  for (std::size_t token = 0; token < s.vocab; ++token) {
    // The ends of a text are hardly ever the likeliest, lest it end anywhere.
    matrix(1, s.dim, token == kBos || token == kEos ? 0.125f : 1.0f);
  }
  constants(s.layers * s.dim, 1.0f);
  matrix(s.layers * s.dim, s.dim, kSharp);
  matrix(s.layers * s.kv_dim(), s.dim, kSharp);
  matrix(s.layers * s.kv_dim(), s.dim, kLoud);
  matrix(s.layers * s.dim, s.dim, kLoud);
  constants(s.layers * s.dim, 1.0f);
  matrix(s.layers * s.hidden, s.dim, 1.0f);
  matrix(s.layers * s.dim, s.hidden, 1.0f);
  matrix(s.layers * s.hidden, s.dim, 1.0f);
  constants(s.dim, 1.0f);
  constants(2 * s.context * (s.head_size() / 2), 0.0f);
  out.close();
  if (!out || std::rename(beside.c_str(), path.c_str()) != 0) return failed();
  unfinished.reset();

  const absl::StatusOr<Checkpoint> made = Checkpoint::Open(path);
  if (!made.ok()) return made.status();
  return RecordDigest(*made);
}

}  // namespace llm
