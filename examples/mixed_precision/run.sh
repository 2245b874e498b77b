#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every request file of this folder on the shipped digits. Usage: run.sh [path of qk]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
qk=${1:-$here/../../build/release/qk}
digits=$here/../digits
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

quantize() { "$qk" quantize "$digits/digits.onnx" --calibration "$digits/train_images.npy" "$@"; }

# Quark: element-wise pairs both ways, layer-wise BFP16, tensors, dual nodes. AIMET: leaf, group, type, input, output. INC: by type and name.
for plan in elementwise_a8w16 elementwise_a16w8 layerwise_bfp16 tensorwise_pow2 tensorwise_bfp16 dual aimet inc; do
    echo "== $plan"
    quantize --plan "$here/$plan.json" --save-plan "$out/$plan.json" --log "$out/$plan.txt"
    "$qk" evaluate "$digits/digits.onnx" --inputs "$digits/test_images.npy" --labels "$digits/test_labels.npy" --plan "$out/$plan.json"
done

# INC: the three approaches from the command line.
for approach in static dynamic weight_only; do
    echo "== $approach"
    quantize --activation int8 --weight int8 --per-channel --approach "$approach" --save-plan "$out/$approach.json"
done

search() { "$qk" search "$digits/digits.onnx" --inputs "$digits/test_images.npy" --labels "$digits/test_labels.npy" --calibration "$digits/train_images.npy" "$@"; }

# Quark: automatic mixed precision to a top-1 target with percentile calibration, and to an L2 target from the wide model's outputs.
echo "== AutoMixprecision: Top1AccTarget"
search --wide int16/int8 --narrow int8/int8 --calibration-method percentile --percentile 99.9999 --target-top1-drop 0.01 -o "$out/top1.onnx" --report "$out/top1.html"
echo "== AutoMixprecision: L2Target"
search --wide bf16/bf16 --narrow bfp16/bfp16 --op-types Conv,Gemm --baseline wide --output-index 0 --target-l2 0.5 -o "$out/l2.onnx"
# INC: accuracy-aware tuning with its strategies, within a number of trials and a time.
for strategy in basic mse bayesian random exhaustive; do
    echo "== TuningCriterion: $strategy"
    search --wide fp32/fp32 --narrow int8/int8,int8/int4 --per-channel --strategy "$strategy" --target-top1-drop 0.01 --max-trials 20 --time-limit 60 --seed 9527 --samples 100
done
# AIMET: the list of accuracy against cost.
search --wide int16/int16 --narrow int8/int8,int8/int4 --strategy pareto --metric sqnr --samples 100 --report "$out/front.html"

# AIMET: encodings out and in again.
quantize --activation uint8 --weight int8 --per-channel --encodings "$out/digits.encodings"
quantize --plan "$out/digits.encodings" --save-plan "$out/again.json"

# A stock onnxruntime model of integers, with the report that says why each tensor is what it is.
quantize --activation int8 --weight int8 --target onnxruntime -o "$out/int8.onnx" --report "$out/int8.html"
"$qk" explain "$digits/digits.onnx" relu.out --activation int8 --weight int8 --calibration "$digits/train_images.npy"

# Wrong requests: one sentence, status 2, nothing written.
if quantize --plan "$here/inc.json" --strict --activation int9 --save-plan "$out/never.json"; then exit 1; fi
[ ! -e "$out/never.json" ]
