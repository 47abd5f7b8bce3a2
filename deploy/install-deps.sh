#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building and testing hmmd needs, from Debian 12's own packages. Root installs; others
# are told what to run. Does nothing, and asks the network nothing, when all is there.
# --pages: also what tests/page and tests/runtime need, a browser and Node.js with npm.
set -euo pipefail

packages=(
  # build
  g++ cmake ninja-build pkg-config ccache mold git ca-certificates python3
  # libraries
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev libabsl-dev libspdlog-dev
  libhwloc-dev libnuma-dev liburing-dev libboost1.81-dev libtomlplusplus-dev libcli11-dev
  libsystemd-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev libssl-dev libonnx-dev
  # tests: catch2 and benchmark; spin for tests/model; coinor-cbc for the planner's exact optimum;
  # clang-format and systemd-analyze for tests/lint
  catch2 libbenchmark-dev spin coinor-cbc clang-format systemd
)

fail() {
  printf 'install-deps: %s\n' "$@" >&2
  exit 1
}

command -v dpkg-query >/dev/null || fail 'this is not Debian; it needs, in the versions of Debian 12:' \
  "${packages[*]}"

# These may be there from elsewhere than Debian, newer.
if [ "${1:-}" = --pages ]; then
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then packages+=(nodejs npm); fi
  if ! command -v chromium >/dev/null; then packages+=(chromium); fi
elif [ $# -gt 0 ]; then
  fail "unknown argument $1; only --pages"
fi

declare -A installed=()
while read -r package status; do
  if [ "$status" = installed ]; then installed[$package]=1; fi
done < <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" libboost1.74-dev 2>/dev/null)

missing=()
for package in "${packages[@]}"; do
  [ -n "${installed[$package]:-}" ] || missing+=("$package")
done

if [ "${#missing[@]}" -gt 0 ]; then
  # The two exclude each other, and apt-get -y would silently remove the one that is there.
  if [ -n "${installed[libboost1.74-dev]:-}" ]; then
    fail 'libboost1.74-dev is installed and excludes libboost1.81-dev, which hmmd needs.' \
      'Nothing was changed. If nothing else here needs it, remove it and start again:' \
      '  apt-get remove libboost1.74-dev'
  fi
  if [ "$(id -u)" -ne 0 ]; then
    fail "missing: ${missing[*]}" 'As root, run:' "  $(realpath "$0") $*"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update
  apt-get -q install -y --no-install-recommends --no-remove -o DPkg::Lock::Timeout=120 \
    "${missing[@]}" ||
    fail 'apt-get could not install what is missing (its reason stands above).' \
      'If it would have had to remove a package, see what and why with:' \
      "  apt-get install --simulate --no-install-recommends ${missing[*]}"
fi

version=$(sed -n 's/^#define BOOST_VERSION \([0-9]*\)$/\1/p' /usr/include/boost/version.hpp)
[ "${version:-0}" -ge 108100 ] ||
  fail "Boost 1.81 is needed, /usr/include/boost is ${version:-none}. As root, run:" \
    '  apt-get install --reinstall libboost1.81-dev'
