// SPDX-License-Identifier: Apache-2.0
//
// make_scripts OUT: writes the seeds of the targets whose inputs are scripts, OUT/<target>/<name>.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "fuzz/require.h"
#include "fuzz/rpc_script.h"

namespace {

namespace fs = std::filesystem;
using namespace hmm;

// Every byte of most scripts means something, so that any bytes are a good start.
std::vector<std::string> RandomScripts(unsigned seed) {
  constexpr std::size_t kScripts = 24;
  std::mt19937 rng(seed);
  std::vector<std::string> scripts;
  while (scripts.size() < kScripts) {
    std::string script(std::size_t{64} << (scripts.size() % 5), '\0');
    for (char& byte : script) byte = static_cast<char>(rng());
    scripts.push_back(std::move(script));
  }
  return scripts;
}

void Write(const fs::path& folder, const std::vector<std::string>& scripts) {
  fs::create_directories(folder);
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    const fs::path path = folder / ("script" + std::to_string(i));
    std::ofstream file(path, std::ios::binary);
    file << scripts[i];
    file.close();
    fuzz::Require(file.good(), path.string() + " is written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("make_scripts OUT\n", stderr);
    return 2;
  }
  const fs::path out(argv[1]);
  Write(out / "page", RandomScripts(1));
  Write(out / "session", RandomScripts(2));
  Write(out / "greeting", RandomScripts(3));
  Write(out / "rpc", fuzz::RpcSeeds());
  return 0;
}
