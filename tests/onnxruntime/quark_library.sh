#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Takes AMD Quark's package from PyPI (MIT, without what it depends on) and compiles the operators in it for the CPU, for comparing.
#
#   tests/onnxruntime/quark_library.sh [FOLDER]        prints the path of the library; FOLDER is build/quark_library
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:-build/quark_library}
library=$folder/libcustom_ops.so
if [ ! -e "$library" ]; then
    mkdir -p "$folder"
    python3 -m pip download --quiet --no-deps --dest "$folder" amd-quark
    python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$folder"/amd_quark-*.whl "$folder"
    own=$folder/quark/onnx/operators/custom_ops
    objects=()
    for source in "$own"/src/custom_op_*.cc "$own"/src/bfp/cpu/*.cc "$own"/src/mx/cpu/*.cc; do
        object=$folder/$(echo "${source#"$own"/src/}" | tr / _).o
        g++ -std=c++17 -O2 -fPIC -w -DNO_GPU -DONNX_NAMESPACE=onnx -I "$own/src" -I "$own/include" -I "$own/include/gsl-4.0.0" -I "$own/include/onnxruntime-1.17.0/onnxruntime" \
            -I "$own/include/onnxruntime-1.17.0/onnxruntime/core/session" -c "$source" -o "$object" >&2
        objects+=("$object")
    done
    g++ -shared -o "$library" "${objects[@]}" >&2
fi
realpath "$library"
