// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without libFuzzer, where another compiler builds it: all seeds and crashers,
// then inputs made of them, always the same ones.
//
//   fuzz_NAME MUTATIONS BYTES_MAX FOUND PATH...    PATH: a file, or a folder of them
//   fuzz_NAME PATH...                              those alone
//
// An input that breaks the target is written to FOUND. Nothing here looks at coverage: to look for
// new inputs is libFuzzer's work (preset fuzz); this sees that what was found stays mended.
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Of those targets alone whose inputs are messages.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                                                     std::size_t size,
                                                                     std::size_t size_max,
                                                                     unsigned seed);

namespace {

namespace fs = std::filesystem;
using Input = std::vector<std::uint8_t>;

constexpr unsigned kInputSecondsMax = 60;  // for whole models, on a busy machine

// What a signal handler finds: libFuzzer's interface has no other place to keep them.
const Input* running = nullptr;
const char* found = nullptr;
std::mt19937& Rng() {
  static std::mt19937 rng(1);
  return rng;
}
std::size_t Pick(std::size_t n) { return n == 0 ? 0 : Rng()() % n; }

void KeepInput() {
  if (running == nullptr || found == nullptr) return;
  const int fd = open(found, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  (void)!write(fd, running->data(), running->size());
  close(fd);
  running = nullptr;
  std::fprintf(stderr, "the input is %s\n", found);
}
void OnSignal(int signal) {
  KeepInput();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Run(const Input& input) {
  running = &input;
  alarm(kInputSecondsMax);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  alarm(0);
  running = nullptr;
}

Input Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> FilesBelow(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (fs::is_regular_file(path)) files.push_back(path);
    if (!fs::is_directory(path)) continue;  // no crashers yet
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      const bool words = entry.path().extension() == ".md" || entry.path().filename() == "LICENSE";
      if (entry.is_regular_file() && !words) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// One change of bytes. REQUIRES: size <= size_max, size_max > 0.
std::size_t MutateBytes(std::uint8_t* data, std::size_t size, std::size_t size_max) {
  constexpr std::array<std::uint8_t, 6> kEdges = {0, 1, 0x7f, 0x80, 0xfe, 0xff};
  const std::size_t at = Pick(size);
  const std::size_t span = 1 + Pick(std::min<std::size_t>(std::max<std::size_t>(size - at, 1), 16));
  switch (size == 0 ? 0 : Pick(6)) {
    case 0: {  // a few bytes more
      const std::size_t more = std::min(size_max - size, 1 + Pick(8));
      std::memmove(data + at + more, data + at, size - at);
      for (std::size_t i = 0; i < more; ++i) data[at + i] = static_cast<std::uint8_t>(Rng()());
      return size + more;
    }
    case 1:  // fewer
      std::memmove(data + at, data + at + span, size - at - span);
      return size - span;
    case 2:  // a part again, elsewhere
      std::memmove(data + Pick(size - span + 1), data + at, span);
      return size;
    case 3:
      data[at] = kEdges[Pick(kEdges.size())];
      return size;
    case 4:
      data[at] = static_cast<std::uint8_t>(data[at] ^ (1u << Pick(8)));
      return size;
    default:
      data[at] = static_cast<std::uint8_t>(Rng()());
      return size;
  }
}

void Mutate(Input& input, std::size_t size_max) {
  std::size_t size = std::min(input.size(), size_max);
  input.resize(size_max);
  for (std::size_t n = 1 + Pick(4); n > 0; --n) {
    size =
        LLVMFuzzerCustomMutator != nullptr
            ? LLVMFuzzerCustomMutator(input.data(), size, size_max, static_cast<unsigned>(Rng()()))
            : MutateBytes(input.data(), size, size_max);
  }
  input.resize(size);
}

bool ParseNumber(std::string_view word, std::size_t& number) {
  const auto end = std::from_chars(word.data(), word.data() + word.size(), number);
  return end.ec == std::errc{} && end.ptr == word.data() + word.size();
}

}  // namespace

// What custom mutators call.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t size_max) {
  return size_max == 0 ? 0 : MutateBytes(data, std::min(size, size_max), size_max);
}

int main(int argc, char** argv) {
  std::size_t mutations = 0;
  std::size_t size_max = 0;
  int first = 1;
  if (argc > 4 && ParseNumber(argv[1], mutations) && ParseNumber(argv[2], size_max)) {
    found = argv[3];
    first = 4;
    fs::create_directories(fs::path(found).parent_path());
  }
  const std::vector<fs::path> files =
      FilesBelow(std::vector<fs::path>(argv + std::min(first, argc), argv + argc));
  if (files.empty()) {
    std::fputs("fuzz_NAME [MUTATIONS BYTES_MAX FOUND] PATH...: there is no input\n", stderr);
    return 2;
  }
  __sanitizer_set_death_callback(KeepInput);
  for (const int signal : {SIGABRT, SIGALRM}) std::signal(signal, OnSignal);
  std::vector<Input> known;
  for (const fs::path& path : files) {
    Input input = Read(path);
    Run(input);
    if (input.size() <= size_max) known.push_back(std::move(input));
  }
  if (known.empty()) known.emplace_back();
  // Changes add up. But what no reader takes any more hardly ever gets better by them: most begin
  // anew.
  std::vector<Input> changed = known;
  for (std::size_t i = 0; i < mutations; ++i) {
    Input input = Pick(4) == 0 ? changed[Pick(changed.size())] : known[Pick(known.size())];
    Mutate(input, size_max);
    Run(input);
    if (Pick(4) == 0) changed[Pick(changed.size())] = std::move(input);
  }
  std::printf("%zu seeds and crashers, %zu inputs made of them\n", files.size(), mutations);
  return 0;
}
