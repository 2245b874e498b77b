#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the digits in formats, exports them, and compares the file in onnxruntime with what was trained.

    PYTHONPATH=build/release/python/package trained_digits.py [--epochs N]     # tests/peers.sh torch

The network of examples/digits/train.py learns in float32 first; then its BatchNorms are folded, its layers get formats, and it learns on. Each
row: top-1 of 600 images before the export and after, with onnxruntime's optimizer on and off; of how many images an output differs by more than
a hundred-thousandth of the largest, and by how much (a sum that lies at a tie of the next layer's format goes either way). Exit status 1 where
a file has another top-1 than the training.
"""
import argparse
import copy
import os
import pathlib
import sys
import tempfile
import time
import warnings

import numpy as np
import onnxruntime
import torch
from torch.nn import functional as F

import qk
import qk.torch as formats

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "digits"
sys.path.insert(0, str(DIGITS))
from train import Digits, augment  # noqa: E402

FORMATS = [("mxfp4", "mxfp8_e4m3"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("int4", "int8"), ("int8", "int8"), ("int8", "uint8")]


def learn(network, images, labels, epochs, rate):
    steps = epochs * (len(images) // 64)
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images))[: len(images) // 64 * 64].split(64):
            loss = F.cross_entropy(network(augment(images[batch])), labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def in_onnxruntime(file, images, optimized):
    how = onnxruntime.SessionOptions()
    if not optimized:
        how.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(file, how, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=16, help="in float32; in formats a quarter of it")
    epochs = parser.parse_args().epochs
    torch.manual_seed(1)
    np.random.seed(1)
    torch.set_num_threads(1)
    images, labels, test, classes = (torch.from_numpy(np.load(DIGITS / f"{part}_{what}.npy")) for part in ("train", "test") for what in ("images", "labels"))
    labels, classes = labels.long(), classes.numpy()
    floats = formats.fold_batch_norm(learn(Digits(), images, labels, epochs, 6e-3))
    top1 = lambda y: float((y.argmax(1) == classes).mean())  # noqa: E731
    print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}; float32: {top1(floats(test).detach().numpy()):.4f}")
    print("| weight | activation | top-1 trained | in onnxruntime | optimizer off | largest output | images that differ | by at most | file, bytes | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for weight, activation in FORMATS:
            start = time.monotonic()
            network = formats.quantize_layers(copy.deepcopy(floats), weight, activation)
            network = learn(network, images, labels, max(1, epochs // 4), 1e-3)
            with torch.no_grad():
                trained = network(test).numpy()
            file = os.path.join(folder, "trained.onnx")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", qk.Remark)
                formats.export(network, test[:2], file, overwrite=True)
            on, off = (in_onnxruntime(file, test.numpy(), optimized) for optimized in (True, False))
            largest, apart = np.abs(trained).max(), np.maximum(np.abs(on - trained), np.abs(off - trained)).max(1)
            wrong += not top1(trained) == top1(on) == top1(off)
            print(f"| {weight} | {activation} | {top1(trained):.4f} | {top1(on):.4f} | {top1(off):.4f} | {largest:.3g} | {np.sum(apart > 1e-5 * largest)} | {apart.max():.2g} | {os.path.getsize(file)} | "
                  f"{time.monotonic() - start:.0f} |", flush=True)
    print("failed" if wrong else "passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
