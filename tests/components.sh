#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds qk without each component that may be left out, quantizes and searches with what remains, and asks for what is missing.
#
#     tests/components.sh BUILD_FOLDER [--tests]
#
# It compiles the graph module three times (a quarter of an hour on two cores), so it belongs to the exhaustive tests. --tests also builds and
# runs the tests of what is left, without each component of src (.github/workflows/deep.yml); those of the core are the same programs in every
# build, which ./dev test runs. CMAKE_ARGUMENTS holds more options of cmake.
set -euo pipefail
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$1
tests=${2:-}
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

configure() { # configure COMPONENT...: a build folder of the preset quick without them; with --tests the tests of what is left pass
    build=$work/without_$1
    local component options=(-DQK_BUILD_TESTS=OFF)
    if [ "$tests" = --tests ]; then options=(-DQK_BUILD_TESTS=ON); fi
    for component in "$@"; do options+=("-DQK_BUILD_${component^^}=OFF"); done
    # shellcheck disable=SC2086  # several options in one variable
    cmake -S "$source_folder" --preset quick -B "$build" -DQK_DISPATCH_ISAS=native -DQK_BUILD_BENCH=OFF "${options[@]}" ${CMAKE_ARGUMENTS:-} >/dev/null
    if [ "$tests" != --tests ]; then return; fi
    local folder
    for folder in disk hardware systems checkpoint learn graph; do
        if [ ! -e "$build/tests/$folder/CTestTestfile.cmake" ]; then continue; fi
        cmake --build "$build" -j "$(nproc)" --target "tests/$folder/all" >/dev/null
        ctest --test-dir "$build/tests/$folder" -LE exhaustive -j "$(nproc)" --output-on-failure --no-tests=error | tail -n 30
    done
}

without() { # without COMPONENT...: builds the command without them
    configure "$@"
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
# The command reads checkpoints and knows other systems, so it is left out with either.
for component in checkpoint systems; do
    configure $component
    if [ -e "$work/without_$component/qk" ]; then
        echo "a command without $component" >&2
        exit 1
    fi
done
echo "built without hardware and learn, without hardware, without learn; each quantizes and searches. Configured without checkpoint, without systems"
