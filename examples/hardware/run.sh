#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Simulates the two benches of this folder with Verilator: run.sh LIBQK.so [WORK_FOLDER]. Exits with 1 where qk says something unexpected.
set -euo pipefail
library=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v verilator >/dev/null; then
    echo "skipped: no verilator here (Debian: apt-get install verilator make)"
    exit 0
fi
work=${2:-$(mktemp -d)}
mkdir -p "$work"
work=$(realpath "$work")
[ $# -gt 1 ] || trap 'rm -rf "$work"' EXIT

ln -sf "$library" "$work/libqk.so"  # verilator knows a library by the end of its name
# The package stands beside qk.h; QK_INCLUDE says where, if it is not in this source tree.
package=${QK_INCLUDE:-$here/../../include}/qk/qk_pkg.sv
simulate() {  # BENCH DEVICE
    verilator --binary --timing -Wno-fatal --Mdir "$work/$1" -o bench --top-module "$1" "$package" "$here/$2.sv" "$here/$1.sv" \
        "$work/libqk.so" -LDFLAGS "-Wl,-rpath,$(dirname "$library")" >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; exit 1; }
    "$work/$1/bench" | tee "$work/$1.txt"
}
expect() {  # BENCH LINE
    grep -qF -- "$2" "$work/$1.txt" || { echo "$1 did not say: $2"; exit 1; }
}

simulate converter_bench mx_converter
expect converter_bench "the converter: 0 differences"
expect converter_bench "likely cause: sticky bits dropped"
expect converter_bench "explains every difference"
simulate dot_bench block_dot
expect dot_bench "its own question: 42020000, expected 42020000, right"
expect dot_bench "the unit: 0 differences"
expect dot_bench "likely cause: cut=down where toward-zero is expected"
expect dot_bench "it gives every answer"
