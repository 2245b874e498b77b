#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds qk without each component that may be left out, quantizes and searches with what remains, and asks for what is missing.
#
#     tests/components.sh BUILD_FOLDER
#
# It compiles the graph module three times (a quarter of an hour on two cores), so it belongs to the exhaustive tests.
set -euo pipefail
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$1
digits=$source_folder/examples/digits

says() { # says TEXT COMMAND...: the command exits with 2 and its message holds the text
    local text=$1 message status=0
    shift
    message=$("$@" 2>&1 >/dev/null) || status=$?
    if [ "$status" -ne 2 ] || [[ $message != *"$text"* ]]; then
        echo "exit $status, '$message' instead of '$text': $*" >&2
        exit 1
    fi
}

without() { # without COMPONENT...: builds the command without them, in the preset quick
    local build=$work/without_$1 options=()
    local component
    for component in "$@"; do options+=("-DQK_BUILD_${component^^}=OFF"); done
    cmake -S "$source_folder" --preset quick -B "$build" -DQK_DISPATCH_ISAS=native -DQK_BUILD_TESTS=OFF -DQK_BUILD_BENCH=OFF "${options[@]}" >/dev/null
    cmake --build "$build" -j "$(nproc)" --target qk_tool >/dev/null
    qk=$build/qk
    "$qk" quantize "$digits/digits.onnx" -o "$build/int8.onnx" --inputs "$digits/train_images.npy" --activation int8 --weight int8 --overwrite >/dev/null
    "$qk" search "$digits/digits.onnx" --inputs "$digits/test_images.npy" --labels "$digits/test_labels.npy" --wide int16/int8 --narrow int8/int4 --metric top1 --target-drop 0.05 >/dev/null
}

without hardware learn
says "component hardware" "$qk" compare fp8_e4m3fn a.npy b.npy
says "component hardware" "$qk" dot a.npy b.npy
says "component hardware" "$qk" formats --devices
says "component hardware" "$qk" evaluate "$digits/digits.onnx" --inputs "$digits/train_images.npy" --accumulator "sum=exact"
says "component learn" "$qk" finetune "$digits/digits.onnx"
says "component learn" "$qk" quantize "$digits/digits.onnx" -o "$work/x.onnx" --calibration "$digits/train_images.npy" --activation int8 --weight int4 --weight-rounding adaround
without hardware
says "component hardware" "$qk" vectors fp8_e4m3fn
without learn
says "component learn" "$qk" quantize "$digits/digits.onnx" -o "$work/x.onnx" --calibration "$digits/train_images.npy" --activation int8 --weight int8 --rotation hadamard
echo "built without hardware and learn, without hardware, without learn; each quantizes and searches"
