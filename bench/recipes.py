# SPDX-License-Identifier: Apache-2.0
"""Compares plain `qk quantize` and its recipes with onnxruntime's own quantizers (needs numpy, onnx, onnxruntime).

    python bench/recipes.py build/release/qk ../shared [--only resnet20] [--rows int8] [--recipes fast,balanced,best] [--no-theirs]

resnet20 is calibrated on 200 images and scored on 1,800 others; kwt1 and squeezenet1.1 have 119 and 150 samples, which serve both. Every file runs in
onnxruntime with its optimizer. Decibels: the float outputs' power over the error's; then top-1 (kwt1, squeezenet1.1: agreement with float). Theirs is the
best by decibels of the settings tried: quantize_static with min-max and percentile, per tensor and per channel, with and without
reduce_range (kwt1: min-max, MatMul and Gemm alone); quantize_dynamic likewise; MatMulNBitsQuantizer (if onnx_ir is there) with its
default algorithm, symmetric and not, and HQQ (if torch is there).
"""
import argparse
import contextlib
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import networks  # noqa: E402
from static_int8 import METHODS, Samples, outputs, session  # noqa: E402

from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static  # noqa: E402
from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: E402

logging.disable(logging.WARNING)
ROWS = {"int8": ["--activation", "int8", "--weight", "int8"],
        "int8, dynamic": ["--approach", "dynamic", "--activation", "uint8", "--weight", "int8"],
        "int8 activations, int4 weights": ["--activation", "int8", "--weight", "int4"],
        "int4 weights, blocks of 32": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"],
        "mxfp4": ["--activation", "mxfp4", "--weight", "mxfp4"]}


def score(y, plain, right):
    noise = 10 * np.log10((plain.astype(np.float64) ** 2).sum() / ((y - plain).astype(np.float64) ** 2).sum())
    return float(noise), float((y.argmax(1) == right).mean())


def static(model, x, weights, folder, network):
    """Yields (description, file) of quantize_static's settings. With reduce_range weights have 7 bits, so that no sum saturates without VNNI."""
    ready = folder / "ready.onnx"
    with contextlib.redirect_stdout(sys.stderr):
        quant_pre_process(str(model), str(ready), skip_symbolic_shape=True)
    transformer = network == "kwt1"  # its other operators lose much, and its histograms take long
    for method in ["min-max"] if transformer else ["min-max", "percentile"]:
        for per_channel in (False, True):
            for narrow in (False, True) if weights == QuantType.QInt8 else (False,):
                text = ", ".join([method, *["per channel"] * per_channel, *["reduce_range"] * narrow, *["MatMul alone"] * transformer])
                out = folder / f"theirs_{method}_{per_channel}_{narrow}.onnx"
                with contextlib.redirect_stdout(sys.stderr):
                    quantize_static(str(ready), str(out), Samples(session(ready)[1], x), quant_format=QuantFormat.QDQ, per_channel=per_channel, reduce_range=narrow,
                                    activation_type=QuantType.QUInt8, weight_type=weights, calibrate_method=METHODS[method],
                                    op_types_to_quantize=["MatMul", "Gemm"] if transformer else None)
                yield text, out


def dynamic(model, folder):
    """Yields (description, file) of quantize_dynamic's settings, for the products alone: qk quantizes no other operator."""
    for weights in (QuantType.QInt8, QuantType.QUInt8):
        for per_channel in (False, True):
            for narrow in (False, True):
                text = ", ".join([weights.name, *["per channel"] * per_channel, *["reduce_range"] * narrow])
                out = folder / f"theirs_{weights.name}_{per_channel}_{narrow}.onnx"
                with contextlib.redirect_stdout(sys.stderr):
                    quantize_dynamic(str(model), str(out), op_types_to_quantize=["MatMul", "Gemm"], per_channel=per_channel, reduce_range=narrow, weight_type=weights)
                yield text, out


def in_blocks(model, folder):
    """Yields (description, file) of MatMulNBitsQuantizer's settings for blocks of 32."""
    try:
        import onnx
        from onnxruntime.quantization import matmul_nbits_quantizer as nbits
    except ImportError as missing:  # it needs onnx_ir
        print(f"  MatMulNBitsQuantizer: {missing}", file=sys.stderr)
        return
    for text, config in (("default, symmetric", nbits.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True)),
                         ("default, asymmetric", nbits.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=False)),
                         ("HQQ", nbits.HQQWeightOnlyQuantConfig(block_size=32))):
        out = folder / (text.replace(", ", "_") + ".onnx")
        try:
            with contextlib.redirect_stdout(sys.stderr):
                q = nbits.MatMulNBitsQuantizer(onnx.load(str(model)), algo_config=config)
                q.process()
                q.model.save_model_to_file(str(out))
            yield text, out
        except Exception as failed:  # HQQ needs torch
            print(f"  {text}: {type(failed).__name__}: {failed}", file=sys.stderr)


def theirs(row, network, model, learn, folder):
    if row == "int8":
        yield from static(model, learn, QuantType.QInt8, folder, network)
    elif row == "int8, dynamic":
        if network == "kwt1":  # of resnet20 it would make ConvInteger, which onnxruntime has no fast kernel for
            yield from dynamic(model, folder)
    elif row == "int8 activations, int4 weights":
        yield from static(model, learn, QuantType.QInt4, folder, network)
    elif row.startswith("int4 weights") and network == "kwt1":  # it has no convolutions, which that quantizer leaves
        yield from in_blocks(model, folder)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("qk")
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("--only", default="resnet20,kwt1")
    arguments.add_argument("--rows", default=";".join(ROWS), help="separated by semicolons")
    arguments.add_argument("--recipes", default="fast,plain,best")
    arguments.add_argument("--no-theirs", action="store_true")
    given = arguments.parse_args()
    recipes = given.recipes.split(",")
    print("| network, formats | onnxruntime, best of its settings | " + " | ".join(f"qk, {r}" for r in recipes) + " |\n|---|---|" + "---|" * len(recipes))
    for network in given.only.split(","):
        file, load = networks.SHARED[network]
        model = given.shared / "models" / file
        x = np.ascontiguousarray(load(given.shared / "data"), np.float32)
        learn, judge = (x[:200], x[200:]) if network == "resnet20" else (x, x)
        plain = outputs(model, judge)
        right = np.load(given.shared / "data/cifar10_2000_labels_i64.npy")[200:] if network == "resnet20" else plain.argmax(1)
        for row in given.rows.split(";"):
            if row == "int8, dynamic" and network == "resnet20":
                continue
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                np.save(folder / "learn.npy", learn)
                found = []
                for text, out in [] if given.no_theirs else theirs(row, network, model, learn, folder):
                    found.append((*score(outputs(out, judge), plain, right), text))
                    print(f"  {network}, {row}, theirs {text}: {found[-1][0]:.2f} dB, {found[-1][1]:.4f}", file=sys.stderr, flush=True)
                best = max(found, default=None)
                cells = ["" if best is None else f"{best[0]:.1f} dB, {best[1]:.3f} ({best[2]})"]
                for recipe in recipes:
                    out, start = folder / f"{recipe}.onnx", time.perf_counter()
                    line = [given.qk, "quantize", model, "-o", out, *ROWS[row], "--calibration", folder / "learn.npy", *([] if recipe == "plain" else ["--recipe", recipe])]
                    done = subprocess.run([str(w) for w in line], capture_output=True, text=True)
                    if done.returncode != 0:
                        sys.exit(" ".join(map(str, line)) + "\n" + done.stderr)
                    seconds = time.perf_counter() - start
                    noise, share = score(outputs(out, judge), plain, right)
                    cells.append(f"{noise:.1f} dB, {share:.3f} ({seconds:.0f} s)")
                    print(f"  {network}, {row}, {recipe}: {noise:.2f} dB, {share:.4f}, {seconds:.1f} s\n{done.stdout}", file=sys.stderr, flush=True)
                print(f"| {network}, {row} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
