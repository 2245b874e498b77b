#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles tests/core/processor_test.cpp for other processors and runs it there under an emulator: kernels, codes, dot products and products
# of matrices against the oracle. The last targets have vectors that xsimd of Debian 13 knows, and need its compilers.
#
#   tests/processors.sh [--install | --compile] [TARGET ...]
#
# Without targets all are tried. A target whose compiler or emulator is missing is skipped, and the script says which packages have it;
# --install installs them first (Debian, as root). --compile lets the compiler read everything and runs nothing. The exit status is 1 if a target that could be
# tried failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A target a line: name, packages, how to compile, how to run (`-`: this machine runs it; `nothing`: it is only compiled).
targets='
scalar | g++ | g++ -O1 -DQK_SCALAR | -
i386 | g++-12-multilib libc6-dev-i386 libxsimd-dev | g++-12 -O1 -m32 -msse2 -mfpmath=sse -idirafter /usr/include/x86_64-linux-gnu | -
i386_scalar | g++-12-multilib libc6-dev-i386 | g++-12 -O1 -m32 -msse2 -mfpmath=sse -idirafter /usr/include/x86_64-linux-gnu -DQK_SCALAR | -
riscv64 | g++-riscv64-linux-gnu qemu-user | riscv64-linux-gnu-g++ -O1 -static | qemu-riscv64
aarch64 | g++-aarch64-linux-gnu libc6-dev-arm64-cross libxsimd-dev qemu-user | aarch64-linux-gnu-g++ -O1 -static -Wno-maybe-uninitialized | qemu-aarch64
neon_on_sve | g++-aarch64-linux-gnu libc6-dev-arm64-cross libxsimd-dev qemu-user | aarch64-linux-gnu-g++ -O3 -static -march=armv8.2-a+sve -Wno-maybe-uninitialized | qemu-aarch64 -cpu max
cortex_m4 | gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib | arm-none-eabi-g++ -O1 -mcpu=cortex-m4 -mfloat-abi=hard -mthumb -fno-exceptions -fno-rtti -Wno-psabi -c | nothing
cortex_m0 | gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib | arm-none-eabi-g++ -O1 -mcpu=cortex-m0 -mthumb -fno-exceptions -fno-rtti -Wno-psabi -c | nothing
wasm32 | clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32 libc++-14-dev-wasm32 libc++abi-14-dev-wasm32 nodejs | clang++-14 -O1 --target=wasm32-wasi -fno-exceptions -Wno-unused-command-line-argument -Wl,-z,stack-size=1048576 | tests/run_wasm.mjs
sve256 | g++-aarch64-linux-gnu libc6-dev-arm64-cross libxsimd-dev qemu-user | aarch64-linux-gnu-g++ -O1 -static -march=armv8.2-a+sve -msve-vector-bits=256 -Wno-maybe-uninitialized -Wno-psabi | qemu-aarch64 -cpu max,sve256=on
sve512 | g++-aarch64-linux-gnu libc6-dev-arm64-cross libxsimd-dev qemu-user | aarch64-linux-gnu-g++ -O1 -static -march=armv8.2-a+sve -msve-vector-bits=512 -Wno-maybe-uninitialized -Wno-psabi | qemu-aarch64 -cpu max,sve512=on
rvv128 | clang-19 g++-riscv64-linux-gnu libxsimd-dev qemu-user | clang++-19 -O1 --target=riscv64-linux-gnu -static -march=rv64gcv_zvl128b -mrvv-vector-bits=zvl | qemu-riscv64 -cpu max,vlen=128
rvv256 | clang-19 g++-riscv64-linux-gnu libxsimd-dev qemu-user | clang++-19 -O1 --target=riscv64-linux-gnu -static -march=rv64gcv_zvl256b -mrvv-vector-bits=zvl | qemu-riscv64 -cpu max,vlen=256
wasm_simd128 | clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32 libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 libxsimd-dev nodejs | clang++-19 -O1 --target=wasm32-wasi -msimd128 -fno-exceptions -Wno-unused-command-line-argument -Wl,-z,stack-size=1048576 | tests/run_wasm.mjs
'

case "${1:-}" in -h | --help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
install=no run=yes
while [[ "${1:-}" == --* ]]; do
    case "$1" in
        --install) install=yes ;;
        --compile) run=no ;;
        *) echo "processors.sh: there is no $1; see --help" >&2; exit 2 ;;
    esac
    shift
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# xsimd's headers are the same for all processors, but a cross compiler does not look where this machine's are. XSIMD names another folder.
mkdir "$folder/include"
ln -s "${XSIMD:-/usr/include/xsimd}" "$folder/include/xsimd"
known=" " failed=0 tried=0
while IFS='|' read -r name packages compile runner; do
    read -r name <<<"$name"
    [ -n "$name" ] || continue
    known+="$name "
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    read -ra packages <<<"$packages"
    read -ra compile <<<"$compile"
    read -ra runner <<<"$runner"
    if [ "$install" = yes ]; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null || exit 2
    fi
    program=$folder/$name
    [[ "$name" != wasm* ]] || program=$program.wasm
    # A compiler may be there without the libraries of the target.
    if ! command -v "${compile[0]}" >/dev/null ||
        ! "${compile[@]}" -std=c++20 -fsyntax-only -include vector -include cmath -x c++ /dev/null 2>/dev/null; then
        echo "$name: skipped: no ${compile[0]} for it here (${packages[*]})"
        continue
    fi
    if [[ "$name" =~ ^(sve|rvv|wasm_) ]] && ! grep -qE "define XSIMD_VERSION_MAJOR (1[3-9]|[2-9][0-9])" "$folder/include/xsimd/config/xsimd_config.hpp"; then
        echo "$name: skipped: no xsimd 13 or later here"
        continue
    fi
    tried=$((tried + 1))
    output=(-o "$program")
    [ "$run" = yes ] || output=(-fsyntax-only)
    if ! "${compile[@]}" -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Iinclude -isystem "$folder/include" "${output[@]}" tests/core/processor_test.cpp; then
        echo "$name: FAILED to compile: ${compile[*]}"
        failed=1
        continue
    fi
    [ "${runner[0]}" != - ] || runner=()
    needed=${runner[0]:-}
    [[ "$needed" != *.mjs ]] || needed=node
    if [ "$run" = no ] || [ "${runner[*]}" = nothing ]; then
        echo "$name: compiles"
    elif [ -n "$needed" ] && ! command -v "$needed" >/dev/null; then
        echo "$name: compiles; not run: no $needed here (${packages[*]})"
    elif "${runner[@]}" "$program"; then
        echo "$name: passed"
    else
        echo "$name: FAILED: ${runner[*]}"
        failed=1
    fi
done <<<"$targets"
for name in "$@"; do
    [[ "$known" == *" $name "* ]] || { echo "processors.sh: there is no target $name; there are:$known" >&2; exit 2; }
done
[ "$tried" -ne 0 ] || echo "nothing was tried"
exit "$failed"
