// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "math.h"

namespace llm {
namespace {

// Bounds that no model of this format reaches and whose products fit 64 bits.
constexpr std::size_t kWidthMax = 1u << 20;
constexpr std::size_t kLayersMax = 1u << 12;
constexpr std::size_t kVocabMax = 1u << 24;
constexpr std::size_t kContextMax = 1u << 24;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status CheckField(const char* name, std::size_t value, std::size_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return Bad(absl::StrCat(name, " is ", static_cast<std::int64_t>(value), ", not 1 to ", most));
}

// A length of what follows, in 8 bytes, then JSON. One byte of it would not do: our header has
// n_layers there, and a model of 123 layers has a '{'.
bool IsSafetensors(const std::byte* data, std::size_t size) {
  std::uint64_t json = 0;
  if (size < sizeof(json) + 2) return false;
  std::memcpy(&json, data, sizeof(json));
  return json <= size - sizeof(json) && std::memcmp(data + sizeof(json), "{\"", 2) == 0;
}

// What other formats begin with, so that a mix-up is called by its name.
std::string ForeignFormat(const std::byte* data, std::size_t size) {
  const std::string_view head(reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 16));
  if (head.starts_with("GGUF") || head.starts_with("tjgg")) return "a GGUF file";
  if (head.starts_with("24ka")) return "a llama2.c file of version 1 or later (magic ak42)";
  if (head.starts_with("PK\x03\x04")) return "a zip archive (a PyTorch checkpoint?)";
  if (IsSafetensors(data, size)) return "a safetensors file";
  return {};
}

std::string FileId(const struct stat& file) {
  const auto time = [](const struct timespec& at) {
    return absl::StrCat(at.tv_sec, ".", absl::Dec(at.tv_nsec, absl::kZeroPad9));
  };
  return absl::StrCat("size ", file.st_size, " inode ", file.st_ino, " mtime ", time(file.st_mtim),
                      " ctime ", time(file.st_ctim));
}

}  // namespace

absl::Status CheckRegularFile(const char* what, const std::string& path) {
  struct stat info {};
  const std::string name = absl::StrCat(what, " ", path);
  if (::stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, name);
  if (S_ISDIR(info.st_mode)) return Bad(absl::StrCat(name, ": is a directory"));
  if (!S_ISREG(info.st_mode)) return Bad(absl::StrCat(name, ": is a pipe or device, not a file"));
  return info.st_size > 0 ? absl::OkStatus() : Bad(absl::StrCat(name, ": is empty"));
}

std::size_t ModelShape::layer_floats() const {
  return 2 * dim + 2 * dim * dim + 2 * kv_dim() * dim + 3 * hidden * dim;
}

std::size_t ModelShape::global_floats() const {
  return (shared_classifier ? 1 : 2) * vocab * dim + dim;
}

absl::Status CheckShape(const ModelShape& shape) {
  for (const absl::Status& status :
       {CheckField("dim", shape.dim, kWidthMax), CheckField("hidden_dim", shape.hidden, kWidthMax),
        CheckField("n_layers", shape.layers, kLayersMax),
        CheckField("n_heads", shape.heads, kWidthMax),
        CheckField("n_kv_heads", shape.kv_heads, kWidthMax),
        CheckField("vocab_size", shape.vocab, kVocabMax),
        CheckField("seq_len", shape.context, kContextMax)}) {
    if (!status.ok()) return status;
  }
  if (shape.dim % shape.heads != 0) {
    return Bad(absl::StrCat("dim is ", shape.dim, ", no multiple of n_heads, ", shape.heads));
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Bad(
        absl::StrCat("n_heads is ", shape.heads, ", no multiple of n_kv_heads, ", shape.kv_heads));
  }
  if (shape.head_size() % 2 != 0) {
    return Bad(absl::StrCat("dim / n_heads is ", shape.head_size(), ": odd, RoPE turns pairs"));
  }
  return absl::OkStatus();
}

LayerWeights LayerAt(const ModelShape& s, const float* packed) {
  LayerWeights w;
  const float* at = packed;
  const auto take = [&at](std::size_t floats) { return std::exchange(at, at + floats); };
  w.rms_att = take(s.dim);
  w.wq = take(s.dim * s.dim);
  w.wk = take(s.kv_dim() * s.dim);
  w.wv = take(s.kv_dim() * s.dim);
  w.wo = take(s.dim * s.dim);
  w.rms_ffn = take(s.dim);
  w.w1 = take(s.hidden * s.dim);
  w.w2 = take(s.dim * s.hidden);
  w.w3 = take(s.hidden * s.dim);
  return w;
}

GlobalWeights GlobalsAt(const ModelShape& s, const float* packed) {
  GlobalWeights w;
  w.embedding = packed;
  w.rms_final = packed + s.vocab * s.dim;
  w.classifier = s.shared_classifier ? w.embedding : w.rms_final + s.dim;
  return w;
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path) {
  // 1. Map the file.
  if (absl::Status file = CheckRegularFile("model", path); !file.ok()) return file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("model ", path));
  }
  struct stat info {};
  Checkpoint made;
  made.path_ = path;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    void* mapped =
        ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped != MAP_FAILED) {
      made.data_ = static_cast<const std::byte*>(mapped);
      made.size_ = static_cast<std::size_t>(info.st_size);
      made.file_id_ = FileId(info);
    }
  }
  ::close(fd);
  const auto bad = [&](const auto&... words) {
    return Bad(absl::StrCat("model ", path, ": ", words...));
  };
  constexpr std::size_t kHeaderBytes = kHeaderInts * sizeof(std::int32_t);
  if (made.size_ < kHeaderBytes) {
    return bad("it has ", made.size_, " bytes, less than a header (", kHeaderBytes, ")");
  }
  if (const std::string foreign = ForeignFormat(made.data_, made.size_); !foreign.empty()) {
    return bad("this is ", foreign, "; only llama2.c's first format (no magic) is read");
  }

  // 2. The header.
  std::int32_t header[kHeaderInts];
  std::memcpy(header, made.data_, kHeaderBytes);
  ModelShape& s = made.shape_;
  const auto field = [&](std::size_t i) { return static_cast<std::size_t>(header[i]); };
  s.dim = field(0);
  s.hidden = field(1);
  s.layers = field(2);
  s.heads = field(3);
  s.kv_heads = field(4);
  s.shared_classifier = header[5] > 0;
  s.vocab = header[5] > 0 ? field(5) : std::size_t{0} - field(5);
  s.context = field(6);
  if (const absl::Status status = CheckShape(s); !status.ok()) return bad(status.message());

  // 3. The arrays, which must end where the file does.
  std::size_t at = 0;
  const auto take = [&at](std::size_t floats) { return std::exchange(at, at + floats); };
  Arrays& a = made.at_;
  a.embedding = take(s.vocab * s.dim);
  a.rms_att = take(s.layers * s.dim);
  a.wq = take(s.layers * s.dim * s.dim);
  a.wk = take(s.layers * s.kv_dim() * s.dim);
  a.wv = take(s.layers * s.kv_dim() * s.dim);
  a.wo = take(s.layers * s.dim * s.dim);
  a.rms_ffn = take(s.layers * s.dim);
  a.w1 = take(s.layers * s.hidden * s.dim);
  a.w2 = take(s.layers * s.hidden * s.dim);
  a.w3 = take(s.layers * s.hidden * s.dim);
  a.rms_final = take(s.dim);
  take(2 * s.context * (s.head_size() / 2));  // two tables of angles that nobody uses any more
  a.classifier = s.shared_classifier ? a.embedding : take(s.vocab * s.dim);
  const std::size_t needed = kHeaderBytes + at * sizeof(float);
  if (made.size_ != needed) {
    return bad("it has ", made.size_, " bytes, its header makes ", needed, ": ",
               made.size_ < needed ? "truncated" : "not this format");
  }
  return made;
}

absl::Status Checkpoint::CheckFinite() const {
  const ModelShape& s = shape_;
  struct Array {
    const char* name;
    std::size_t at;
    std::size_t floats;  // of one layer, or of all where there are none
    bool layered;
  };
  const Arrays& a = at_;
  for (const Array& array :
       {Array{"token_embedding", a.embedding, s.vocab * s.dim, false},
        Array{"rms_att", a.rms_att, s.dim, true}, Array{"wq", a.wq, s.dim * s.dim, true},
        Array{"wk", a.wk, s.kv_dim() * s.dim, true}, Array{"wv", a.wv, s.kv_dim() * s.dim, true},
        Array{"wo", a.wo, s.dim * s.dim, true}, Array{"rms_ffn", a.rms_ffn, s.dim, true},
        Array{"w1", a.w1, s.hidden * s.dim, true}, Array{"w2", a.w2, s.hidden * s.dim, true},
        Array{"w3", a.w3, s.hidden * s.dim, true}, Array{"rms_final", a.rms_final, s.dim, false},
        Array{"classifier", a.classifier, s.vocab * s.dim, false}}) {
    const std::size_t all = array.floats * (array.layered ? s.layers : 1);
    const float* floats = Floats(array.at);
    const std::size_t odd = FirstNotFinite(floats, all);
    if (odd == all) continue;
    return Bad(absl::StrCat(
        "model ", path_, ": ", array.name,
        array.layered ? absl::StrCat(" of layer ", odd / array.floats) : std::string(),
        ", element ", odd % array.floats, ", is ", floats[odd], "; weights must be finite"));
  }
  return absl::OkStatus();
}

Checkpoint::Checkpoint(Checkpoint&& other) noexcept
    : shape_(other.shape_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      file_id_(std::move(other.file_id_)),
      at_(other.at_) {}

Checkpoint::~Checkpoint() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

const float* Checkpoint::Floats(std::size_t at) const {
  return reinterpret_cast<const float*>(data_ + kHeaderInts * sizeof(std::int32_t)) + at;
}

LayerWeights Checkpoint::layer(std::size_t i) const {
  const ModelShape& s = shape_;
  LayerWeights w;
  w.rms_att = Floats(at_.rms_att + i * s.dim);
  w.wq = Floats(at_.wq + i * s.dim * s.dim);
  w.wk = Floats(at_.wk + i * s.kv_dim() * s.dim);
  w.wv = Floats(at_.wv + i * s.kv_dim() * s.dim);
  w.wo = Floats(at_.wo + i * s.dim * s.dim);
  w.rms_ffn = Floats(at_.rms_ffn + i * s.dim);
  w.w1 = Floats(at_.w1 + i * s.hidden * s.dim);
  w.w2 = Floats(at_.w2 + i * s.hidden * s.dim);
  w.w3 = Floats(at_.w3 + i * s.hidden * s.dim);
  return w;
}

GlobalWeights Checkpoint::globals() const {
  return {Floats(at_.embedding), Floats(at_.rms_final), Floats(at_.classifier)};
}

void Checkpoint::PackLayer(std::size_t index, float* out) const {
  const ModelShape& s = shape_;
  const LayerWeights w = layer(index);
  const auto put = [&out](const float* from, std::size_t floats) {
    std::memcpy(out, from, floats * sizeof(float));
    out += floats;
  };
  put(w.rms_att, s.dim);
  put(w.wq, s.dim * s.dim);
  put(w.wk, s.kv_dim() * s.dim);
  put(w.wv, s.kv_dim() * s.dim);
  put(w.wo, s.dim * s.dim);
  put(w.rms_ffn, s.dim);
  put(w.w1, s.hidden * s.dim);
  put(w.w2, s.dim * s.hidden);
  put(w.w3, s.hidden * s.dim);
}

void Checkpoint::PackGlobals(float* out) const {
  const ModelShape& s = shape_;
  const GlobalWeights w = globals();
  std::memcpy(out, w.embedding, s.vocab * s.dim * sizeof(float));
  std::memcpy(out + s.vocab * s.dim, w.rms_final, s.dim * sizeof(float));
  if (s.shared_classifier) return;
  std::memcpy(out + (s.vocab + 1) * s.dim, w.classifier, s.vocab * s.dim * sizeof(float));
}

}  // namespace llm
