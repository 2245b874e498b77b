# SPDX-License-Identifier: Apache-2.0
"""Compares ways to round weights, and training with the quantizers in place: noise, top-1 and seconds (needs numpy, onnxruntime).

    python bench/roundings.py build/release/qk ../shared [--only resnet20] [--formats int4] [--ways adaround,finetune] [--learn N] [--epochs 8]

Learns from the first half of the samples without labels, reports on the other half. Formats: weights alone in int4 (a scale for each
channel), mxfp4 and mx4; everything in int8 and int4.
Decibels: the float outputs' power over the error's. Top-1 in percent. Seconds: the command that learns, calibration included.
"""
import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from static_int8 import cifar, imagenet, outputs, score  # noqa: E402

NETWORKS = {"resnet20": ("resnet20_cifar10_folded", cifar), "squeezenet1.1": ("squeezenet1.1_imagenet", imagenet)}
ALONE = ["--approach", "weight_only", "--weight"]
FORMATS = {"int4": ("weights int4", [*ALONE, "int4", "--per-channel"]), "mxfp4": ("weights mxfp4", [*ALONE, "mxfp4"]), "mx4": ("weights mx4", [*ALONE, "mx4"]),
           "int8/int8": ("int8/int8", ["--activation", "int8", "--weight", "int8", "--per-channel"]),
           "int4/int4": ("int4/int4", ["--activation", "int4", "--weight", "int4", "--per-channel"])}
WAYS = ["nearest", "compensated", "adaround", "adaquant", "finetune"]


def run(line):
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(" ".join(map(str, line)) + "\n" + done.stderr)


def rounded(tool, model, learn, options, way, epochs, folder):
    """Returns the quantized model and the seconds it took."""
    out, start = folder / "quantized.onnx", time.perf_counter()
    written = ["-o", out, "--weights", "float", "--overwrite"]
    if way == "finetune":
        run([tool, "finetune", model, "--inputs", learn, *options, "--epochs", epochs, "-o", folder / "learned.onnx", "--save-plan", folder / "plan.json", "--overwrite"])
        run([tool, "quantize", "--recipe", "fast", folder / "learned.onnx", "--plan", folder / "plan.json", *written])
    else:
        run([tool, "quantize", "--recipe", "fast", model, *options, "--weight-rounding", way, "--calibration", learn, *written])
    return out, time.perf_counter() - start


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tool")
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("--only", default=",".join(NETWORKS))
    arguments.add_argument("--formats", default=",".join(FORMATS))
    arguments.add_argument("--ways", default=",".join(WAYS))
    arguments.add_argument("--learn", type=int, default=0, help="samples to learn from, instead of half of them")
    arguments.add_argument("--epochs", type=int, default=8)
    given = arguments.parse_args()
    ways = given.ways.split(",")
    print("| network, formats | " + " | ".join(ways) + " |\n|---|" + "---|" * len(ways))
    better = rows = 0
    for network in given.only.split(","):
        name, data = NETWORKS[network]
        x, labels = data(given.shared)
        half, model = len(x) // 2, given.shared / "models" / (name + ".onnx")
        plain = outputs(model, x[half:])
        print(f"| {network}, float32 | " + " | ".join([f"{100 * score(plain, plain, labels[half:])[0]:.1f} %"] + [""] * (len(ways) - 1)) + " |", flush=True)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            np.save(folder / "learn.npy", x[:given.learn or half])
            for key in given.formats.split(","):
                text, options = FORMATS[key]
                found = {}
                for way in ways:
                    out, seconds = rounded(given.tool, model, folder / "learn.npy", options, way, given.epochs, folder)
                    found[way] = (*score(outputs(out, x[half:]), plain, labels[half:]), seconds)
                print(f"| {network}, {text} | " + " | ".join(f"{d:.1f} dB, {100 * t:.1f} %, {s:.0f} s" for t, d, s in found.values()) + " |", flush=True)
                if "compensated" in found:
                    rows += 1
                    better += max((d for way, (_, d, _) in found.items() if way not in ("nearest", "compensated")), default=-np.inf) > found["compensated"][1]
    if rows:
        print(f"\nThe best that learns is above compensated in {better} of {rows} rows.")


if __name__ == "__main__":
    main()
