#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The samples of AMD Quark's, AIMET's and Intel Neural Compressor's pages, one after the other, in qk's words: docs/guide/mixed_precision.md lists them.
# On the network that is shipped and, where ../shared is at hand, on resnet20 with BatchNormalization as it was exported.
# Usage: run.sh [path of qk [digits|resnet20]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
qk=${1:-$here/../../build/release/qk}
shared=$here/../../../shared
if [ $# -lt 2 ]; then
    bash "$0" "$qk" digits
    if [ -f "$shared/models/resnet20_cifar10.onnx" ]; then bash "$0" "$qk" resnet20; fi
    exit
fi
network=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Names are those of the file: a weight and the output of the Conv before its BatchNormalization, which folding renames and removes.
if [ "$network" = resnet20 ]; then
    model=$shared/models/resnet20_cifar10.onnx
    samples=(--inputs "$shared/data/cifar10_2000_images_u8_nhwc.npy" --preprocess "layout=nhwc,scale=0.00392156862745098,mean=0.485:0.456:0.406,std=0.229:0.224:0.225" --samples 64)
    labels=(--labels "$shared/data/cifar10_2000_labels_i64.npy")
    declare -A name=([WEIGHT1]=conv1.weight [ACTIVATION1]=conv1_o [WEIGHT2]=layer3.2.conv2.weight [ACTIVATION2]=layer2.0.conv1_o [LEAF]=layer1.0.conv1 [GROUP]=layer2.0 [INNER]=layer2.0.conv2 [STEM]=conv1)
else
    model=$here/../digits/digits.onnx
    samples=(--inputs "$here/../digits/test_images.npy" --samples 200)
    labels=(--labels "$here/../digits/test_labels.npy")
    declare -A name=([WEIGHT1]=stem.weight [ACTIVATION1]=stem.out [WEIGHT2]=block3.pointwise.weight [ACTIVATION2]=block2.depthwise.out [LEAF]=block1.pointwise [GROUP]=block2 [INNER]=block2.pointwise [STEM]=stem)
fi
"$qk" calibrate "$model" "${samples[@]}" -o "$out/ranges.json" > "$out/calibrate.txt"
data=(--calibration "$out/ranges.json")

fail() { echo "run.sh: $*" >&2; exit 1; }
sample() { echo; echo "== $network: $1"; }
# A requests file of this folder with the network's names in place of the words in capitals.
requests() {
    local text word
    text=$(cat "$here/$1.json")
    for word in "${!name[@]}"; do text=${text//\"$word\"/\"${name[$word]}\"}; done
    echo "$text" > "$out/$1.json"
    echo "$out/$1.json"
}
# Runs a command whose errors and remarks go to console.txt, too, which is whole when the command has ended.
kept() {
    local status=0
    "$@" 2> "$out/console.txt" || status=$?
    cat "$out/console.txt" >&2
    return "$status"
}
# Model, log and page of a sample, and the accuracy under its plan. What the console says is kept in console.txt.
quantize() {
    kept "$qk" quantize "$model" "${data[@]}" -o "$out/model.onnx" --save-plan "$out/plan.json" --log "$out/log.txt" --report "$out/page.html" "$@"
    "$qk" evaluate "$model" "${samples[@]}" "${labels[@]}" --plan "$out/plan.json" | grep top1
}
search() { "$qk" search "$model" "${samples[@]}" "${labels[@]}" "${data[@]}" "$@"; }
said() { grep -q -e "$1" "$out/console.txt" "$out/log.txt" || fail "neither console nor log says '$1'"; }

sample "every name that a request may use, in network order"
"$qk" inspect "$model" --tensors > "$out/names.txt"
head -8 "$out/names.txt"
grep -q "${name[WEIGHT1]}" "$out/names.txt" || fail "${name[WEIGHT1]} is not listed"

sample "Quark 1, element-wise: activation_type=QBFP, weight_type=QBFloat16"
quantize --activation bfp16 --weight bf16

sample "Quark 2, element-wise: activation_type=QBFloat16, weight_type=QBFP"
quantize --activation bf16 --weight bfp16

sample "Quark 3, layer-wise: BFloat16, and TargetOpType=[Conv, ConvTranspose, Gemm, MatMul] in BFP16"
quantize --plan "$(requests quark_layerwise)"
said "^boundary: .*--dual"
[ "$(grep -c "^boundary" "$out/console.txt")" = 1 ] || fail "the console says more than a line of tensors between formats"

sample "Quark 4, layer-wise with DualQuantNodes"
quantize --plan "$(requests quark_layerwise_dual)"
quantize --plan "$(requests quark_layerwise)" --dual
if grep -q "^boundary" "$out/console.txt"; then fail "--dual leaves nothing between formats"; fi

sample "Quark 5, tensor-wise: MixedPrecisionTensor={QBFloat16: [weight, activation]}"
quantize --plan "$(requests quark_tensorwise)" --strict
said "tensor '${name[WEIGHT1]}': is '.*_folded_weight' now"
said "tensor '${name[ACTIVATION1]}': is '.*' now"

sample "Quark 6, tensor-wise: MixedPrecisionTensor={QBFloat16: [...], QInt16: [...]}"
quantize --plan "$(requests quark_tensorwise_two)"

sample "Quark 7, AutoMixprecision: QInt16/QInt8, TargetOpType, ActTargetQuantType=WeightTargetQuantType=QInt8, OutputIndex=0, L2Target=0.1"
kept search --wide int16/int8 --narrow int8/int8 --op-types Conv,ConvTranspose,Gemm,MatMul --output-index 0 --target-l2 0.1 --baseline wide \
    -o "$out/l2.onnx" --save-plan "$out/l2.plan.json" --report "$out/l2.html"
said "ConvTranspose: the model has no such layer"

sample "Quark tutorial 1: PowerOfTwoMethod.NonOverflow, QInt16/QInt8, MixedPrecisionTensor of two types"
quantize --plan "$(requests quark_pow2)"

sample "Quark tutorial 2, AutoMixprecision: Percentile, QInt16/QInt8 to QInt8/QInt8, OutputIndex=0, Top1AccTarget=0.1"
search --calibration-method percentile --wide int16/int8 --narrow int8/int8 --output-index 0 --target-top1-drop 0.1 -o "$out/top1.onnx" --report "$out/top1.html"

sample "AIMET: set_precision of a leaf, a non-leaf, a leaf in that (the latest request overrides) and a type, model input and output, apply(log_file, strict=True)"
quantize --plan "$(requests aimet)" --strict
said "^overridden: .*${name[INNER]}"
head -3 "$out/log.txt"

sample "AIMET: encodings out and in again"
quantize --activation uint8 --weight int8 --per-channel --encodings "$out/model.encodings"
quantize --plan "$out/model.encodings"

for approach in static dynamic weight_only; do
    sample "INC: quantization.fit(model, calib_dataloader), approach $approach"
    "$qk" quantize "$model" "${data[@]}" --activation uint8 --weight int8 --per-channel --approach "$approach" -o "$out/$approach.onnx"
done

sample "INC: op_type_dict and op_name_dict"
quantize --plan "$(requests inc)"

sample "INC: quantization.fit(model, calib_dataloader, eval_func), accuracy-aware tuning"
for strategy in basic bayesian hawq_v2; do
    search --wide fp32/fp32 --narrow uint8/int8 --per-channel --strategy "$strategy" --metric top1 --target-relative 0.01 --max-trials 10 --time-limit 60 --seed 9527 --json | grep -E '"(status|metric)"'
done

sample "Quark fast finetune, AIMET AdaRound: weights that learn their rounding, and corrected biases"
for rounding in adaround adaquant; do
    "$qk" evaluate "$model" "${samples[@]}" "${labels[@]}" --activation int8 --weight int4 --per-channel --weight-rounding "$rounding" --bias-correction --iterations 200 | grep top1
done

sample "INC: the tuning space, lists of methods, schemes and granularities by type"
search --plan "$here/inc_tuning_space.json" --wide fp32/fp32 --strategy basic --target-top1-drop 0.01 --max-trials 40 --json > "$out/tuned.json"
grep -E '"(status|metric)"' "$out/tuned.json"
grep -q '"uint8@\(min_max\|entropy\)@\(sym\|asym\)/int8@per_\(tensor\|channel\)"' "$out/tuned.json" || fail "no layer has a choice of the lists"
awk -F'[:,]' '/"cost":/ {cost = $2} /"wide_cost":/ {wide = $2} END {exit !(cost < wide / 2)}' "$out/tuned.json" || fail "the mix that tuning returns saves less than half"

sample "a request that ends up with no effect: a remark with the nearest names, status 2 under --strict"
echo '{"default": {"activation": "int8", "weight": "int8"}, "requests": [{"layer": "*relu*", "activation": "int16"}]}' > "$out/nothing.json"
quantize --plan "$out/nothing.json"
said "has no effect"
if "$qk" quantize "$model" "${data[@]}" --plan "$out/nothing.json" --strict --save-plan "$out/never.json"; then fail "--strict takes what has no effect"; fi
[ ! -e "$out/never.json" ]

sample "why a tensor is what it is, by its name in the file"
"$qk" explain "$model" "${name[WEIGHT1]}" --activation int8 --weight int8 "${data[@]}"
