#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the row of Tenstorrent's fma against the maker's model, which this script does not fetch:
#
#     git clone --depth 1 https://github.com/tenstorrent/tt-isa-documentation
#     tests/tenstorrent_fma.sh tt-isa-documentation/Miscellaneous/FMA/fma.c [CASES]
#
# CASES: 100,000,000 unless given. Exit status 1 where a result differs.
set -euo pipefail
model=$(realpath "${1:?give the path of fma.c}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -O2 -c "$model" -o "$folder/fma.o"
c++ -std=c++20 -O2 -Iinclude tests/core/devices_tenstorrent_test.cpp "$folder/fma.o" -o "$folder/devices_tenstorrent_test"
"$folder/devices_tenstorrent_test" "${2:-100000000}"
