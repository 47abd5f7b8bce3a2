# SPDX-License-Identifier: Apache-2.0
# Everything comes from Debian's packages (deploy/install-deps.sh). Protobuf before gRPC: Debian's
# gRPC config wants its targets to exist.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)  # libcrypto, for SHA-256; gRPC brings it anyway
find_package(ONNX 1.12 CONFIG REQUIRED)  # wants protobuf::libprotobuf; target onnx brings ONNX_NAMESPACE, ONNX_ML
pkg_check_modules(NUMA REQUIRED IMPORTED_TARGET numa)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing>=2.3)
if(HMM_BUILD_TESTS)
  find_package(Catch2 2 REQUIRED)
endif()
