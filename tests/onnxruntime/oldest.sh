#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of qk's operators in the oldest onnxruntime that they serve, 1.17.3, in an environment of its own (numpy below 2).
#
#   tests/onnxruntime/oldest.sh [QK]        e.g. tests/onnxruntime/oldest.sh build/release/qk
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
qk=$(realpath "${1:-build/release/qk}")
folder=build/onnxruntime_1.17
if [ ! -e "$folder/ready" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet "onnxruntime==1.17.3" "numpy<2" "onnx<1.17" pytest
    touch "$folder/ready"
fi
QK_PYTHON="$PWD/$folder/bin/python" exec "$folder/bin/python" tests/onnxruntime/operators.py "$qk"
