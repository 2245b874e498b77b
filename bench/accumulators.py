#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what accumulators cost a network: top-1 and signal to noise of the outputs, for formats and units (docs/results/remake.md).

    python3 bench/accumulators.py QK MODEL.onnx IMAGES_U8_NHWC.npy LABELS.npy [--samples 256] [--threads 2]

Images are normalized with ImageNet's means. dB: the outputs' power over that of their difference from float32's.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

FP8 = ["--activation", "fp8_e4m3fn", "--weight", "fp8_e4m3fn"]
INT8 = ["--activation", "int8", "--weight", "int8"]
BLOCK_SCALED = "nvidia.blackwell.tcgen05mma_block_scale."


def blocks(name):
    return ["--activation", name, "--weight", name]


CASES = [  # operands, accumulator
    ("fp8_e4m3fn", FP8, "sum=exact"), ("fp8_e4m3fn", FP8, "nvidia.blackwell.tcgen05mma.f32.e4m3.e4m3"), ("fp8_e4m3fn", FP8, "nvidia.hopper.wgmma.f32.e4m3.e4m3"),
    ("fp8_e4m3fn", FP8, "groups=32,align=10,partial=e8m10,result=e8m10,round=toward-zero"), ("fp8_e4m3fn", FP8, "groups=32,align=8,partial=e8m7,result=e8m7,round=toward-zero"),
    ("fp16", [], "nvidia.hopper.wgmma.f32.f16.f16"), ("fp16", [], "nvidia.hopper.wgmma.f16.f16.f16"), ("fp16", [], "nvidia.volta.mma.f32.f16.f16.f32"), ("bf16", [], "nvidia.hopper.wgmma.f32.bf16.bf16"),
    ("int8", INT8, "sum=integer,width=32"), ("int8", INT8, "sum=integer,width=20"), ("int8", INT8, "sum=integer,width=18"), ("int8", INT8, "sum=integer,width=16"),
    ("mxfp8_e4m3", blocks("mxfp8_e4m3"), BLOCK_SCALED + "m128n8k32.block32.f32.e4m3.e4m3.ue8m0"), ("mxfp4", blocks("mxfp4"), BLOCK_SCALED + "m128n8k64.block32.f32.e2m1.e2m1.ue8m0"),
    ("nvfp4", blocks("nvfp4"), BLOCK_SCALED + "m128n8k64.block16.f32.e2m1.e2m1.ue4m3"),
]


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("qk", "model", "images", "labels"):
        options.add_argument(name, type=Path)
    options.add_argument("--samples", type=int, default=256)
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    images, labels = np.load(given.images).astype(np.float32) / 255, np.load(given.labels)
    images = np.ascontiguousarray(((images - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])).transpose(0, 3, 1, 2))
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        np.save(place / "x.npy", images[: given.samples])
        np.save(place / "y.npy", labels[: given.samples])
        np.save(place / "c.npy", images[given.samples :][:64])

        def run(extra):
            out = place / "out"
            command = [given.qk, "evaluate", given.model, "--inputs", place / "x.npy", "--labels", place / "y.npy", "--threads", str(given.threads), "--json",
                       "--output-dir", out, "--overwrite", *(["--calibration", place / "c.npy"] if extra and "--activation" in extra else []), *extra]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            return json.loads(done.stdout), np.load(next(out.glob("*.npy"))).astype(np.float64)

        float_result, reference = run([])
        known = {}
        print("| operands | accumulator | top-1 | dB | seconds |\n|---|---|---|---|---|")
        print(f"| float32 | as the evaluator adds | {float_result['top1']:.3f} | | {float_result['seconds']:.1f} |")
        for name, formats, unit in CASES:
            if formats and name not in known:
                known[name] = run(formats)
                noise = ((known[name][1] - reference) ** 2).mean()
                print(f"| {name} | float32, as the evaluator adds | {known[name][0]['top1']:.3f} | {10 * np.log10((reference ** 2).mean() / noise):.1f} | {known[name][0]['seconds']:.1f} |")
            result, outputs = run([*formats, "--accumulator", unit])
            noise = ((outputs - reference) ** 2).mean()
            print(f"| {name} | `{unit}` | {result['top1']:.3f} | {10 * np.log10((reference ** 2).mean() / noise):.1f} | {result['seconds']:.1f} |", flush=True)


main()
