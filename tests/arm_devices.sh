#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the rows of Arm's dot product instructions against qemu's: compiles tests/core/devices_arm_test.cpp for aarch64 and runs it there.
# Debian's packages: g++-aarch64-linux-gnu libc6-dev-arm64-cross libxsimd-dev qemu-user. Exit status 1 where a result differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/include"
ln -s "${XSIMD:-/usr/include/xsimd}" "$folder/include/xsimd"
aarch64-linux-gnu-g++ -std=c++20 -O1 -static -march=armv8.6-a -Wno-maybe-uninitialized -Wno-psabi -Iinclude -isystem "$folder/include" \
    tests/core/devices_arm_test.cpp -o "$folder/devices_arm_test"
qemu-aarch64 -cpu max "$folder/devices_arm_test"
