# SPDX-License-Identifier: Apache-2.0
"""Compares the evaluator with onnxruntime's optimised float32, which take turns in one run (needs numpy and onnxruntime).

    python bench/evaluate.py build/release/bench/evaluate MODELS_DIR [--rounds 3] [--seconds 1]

Prints a table of images per second (the best round of each) and the ratio qk / onnxruntime, and its geometric mean.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

NETWORKS = ["resnet20_cifar10_folded", "squeezenet1.1_imagenet", "kwt1_mfcc", "magika_v3_3", "ultraface_version-RFB-320_simplified"]


def onnxruntime_rate(path, threads, batch, seconds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    feed = {}
    for i in session.get_inputs():
        fixed = isinstance(i.shape[0], int)  # ultraface runs one image at a time
        batch = 1 if fixed else batch
        shape = [batch] + i.shape[1:]
        feed[i.name] = rng.integers(0, 257, shape).astype(np.int32) if "int32" in i.type else rng.standard_normal(shape, dtype=np.float32)
    session.run(None, feed)
    runs, start = 0, time.perf_counter()
    while runs < 3 or time.perf_counter() - start < seconds:
        session.run(None, feed)
        runs += 1
    return runs * batch / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("models", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    a = parser.parse_args()
    print("| network | threads, batch | qk | onnxruntime | ratio |\n|---|---|---|---|---|")
    for threads, batch in [(1, 1), (os.cpu_count(), 16)]:
        ratios = []
        for name in NETWORKS:
            path = a.models / (name + ".onnx")
            if not path.exists():
                print(f"skipped: {path} is missing", file=sys.stderr)
                continue
            ours = theirs = 0
            for _ in range(a.rounds):
                line = subprocess.run([a.program, a.models, "--only", name, "--threads", str(threads), "--batch", str(batch), "--seconds", str(a.seconds)],
                                      check=True, capture_output=True, text=True).stdout
                ours = max(ours, json.loads(line)["images_per_second"])
                theirs = max(theirs, onnxruntime_rate(path, threads, batch, a.seconds))
            ratios.append(ours / theirs)
            print(f"| {name} | {threads}, {batch} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} |", flush=True)
        if ratios:
            print(f"| geometric mean | {threads}, {batch} | | | {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} |")


if __name__ == "__main__":
    main()
