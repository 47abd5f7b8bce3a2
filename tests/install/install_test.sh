#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD_DIR SOURCE_DIR CXX LIBDIR
# Installs the build into a temporary prefix, builds one consumer by CMake's find_package and one by
# pkg-config, and runs both without a daemon and against the installed one.
set -eu
build=$1 source=$2 cxx=$3 libdir=$4

work=$(mktemp -d "${TMPDIR:-/tmp}/hmm-install.XXXXXX")
daemon=
cleanup() {
  if [ -n "$daemon" ]; then
    kill -TERM "$daemon" 2>/dev/null || :
    wait "$daemon" 2>/dev/null || :
  fi
  rm -rf "$work"
}
trap cleanup EXIT
prefix=$work/prefix

step() { printf '== %s\n' "$*"; }

step install
# Everything below the prefix: configuration that belongs into /etc goes to a staging directory.
DESTDIR=$work/stage cmake --install "$build" --prefix "$prefix" >"$work/install.log" || {
  cat "$work/install.log"; exit 1; }
cp -a "$work/stage$prefix" "$prefix"

step "consumer by find_package"
cmake -S "$source/cmake_consumer" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCONSUMER_SOURCE="$source/consumer.cc" >"$work/cmake.log" || {
  cat "$work/cmake.log"; exit 1; }
cmake --build "$work/cmake" >"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }

step "consumer by pkg-config"
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"
# Words on purpose: flags are split at spaces.
# shellcheck disable=SC2046
"$cxx" -std=c++20 "$source/consumer.cc" -o "$work/plain" $(pkg-config --cflags --libs hmm_client) \
  -Wl,-rpath,"$prefix/$libdir"

step "the library shows its own interface alone"
shown=$(nm -DC --defined-only "$prefix/$libdir/libhmm_client.so" | grep -v ' hmm::\| HMM_0$' || :)
if [ -n "$shown" ]; then
  printf 'exports what is not of hmm/client.h:\n%s\n' "$shown"
  exit 1
fi
if grep -rn 'grpc\|protobuf' "$prefix/include"; then
  echo "installed headers name gRPC or protobuf"
  exit 1
fi

step "without a daemon"
mkdir "$work/empty"
"$work/cmake/consumer" "$work/empty" none
"$work/plain" "$work/empty" none

if [ ! -x "$prefix/bin/hmmd" ]; then
  echo "no hmmd in this build: the rest needs one"
  exit 1
fi
step "manual pages and completions"
for text in man/man1/hmmctl.1 man/man8/hmmd.8 man/man5/hmmd.toml.5 \
    bash-completion/completions/hmmctl zsh/site-functions/_hmmctl \
    fish/vendor_completions.d/hmmctl.fish; do
  [ -s "$prefix/share/$text" ] || { echo "$text is missing or empty"; exit 1; }
done
step "against the installed daemon"
for consumer in "$work/cmake/consumer" "$work/plain"; do
  dir=$(mktemp -d "$work/run.XXXXXX")
  cat >"$dir/hmmd.toml" <<'TOML'
[daemon]
commit_headroom = "16MiB"
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "8MiB"
pages = "small"
[[tier]]
name = "ddr0"
kind = "ddr"
capacity = "16MiB"
pages = "small"
TOML
  "$prefix/bin/hmmd" --config "$dir/hmmd.toml" --dir "$dir" 2>"$dir/log" &
  daemon=$!
  # The client itself waits for the daemon.
  "$consumer" "$dir" daemon || { cat "$dir/log"; exit 1; }
  kill -TERM "$daemon"
  wait "$daemon" || { cat "$dir/log"; exit 1; }
  daemon=
done
echo ok
