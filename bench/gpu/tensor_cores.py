#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a case on real tensor cores, as a device for `qk compare --dot --command` and `qk dot --case`, which compare it bit for bit with qk.

    nvcc -O2 -std=c++17 -arch=native bench/gpu/tensor_cores.cu -o tensor_cores
    qk vectors --device nvidia.hopper.mma.f32.f16.f16.f32 --out made
    python3 bench/gpu/tensor_cores.py ./tensor_cores f16 made/case.npz answer.npz
    qk dot --case answer.npz --device nvidia.hopper.mma.f32.f16.f16.f32
    qk compare --dot --command 'python3 bench/gpu/tensor_cores.py ./tensor_cores f16' --a-format fp16 --b-format fp16 --k 16

answer.npz holds the case with the card's answers in d; stored under the device's name it is a golden file. k is that of one instruction:
16, or 32 for e4m3 and e5m2. qk builds and tests without this script. It compiles for sm_90 but has not run on a card yet, so check the
first golden file.
"""
import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def padded(a, rows, columns):
    return np.pad(a, ((0, -a.shape[0] % rows), (0, -a.shape[1] % columns)))


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("program")
    options.add_argument("kind", choices=["f16", "bf16", "e4m3", "e5m2"])
    options.add_argument("case", type=Path)
    options.add_argument("answer", type=Path)
    given = options.parse_args()
    case = dict(np.load(given.case))
    a, b = case["a"], case["b"]
    c = case.get("c", np.zeros((a.shape[0], b.shape[1]), np.uint32))
    k = 16 if given.kind in ("f16", "bf16") else 32
    if a.shape[1] != k or b.shape[0] != k or c.dtype.itemsize != 4:
        raise SystemExit(f"a has shape {a.shape}, b {b.shape} and c {c.dtype}; one instruction takes k = {k} and float32's codes in c")
    codes = np.uint16 if k == 16 else np.uint8
    with tempfile.TemporaryDirectory() as place:
        files = [str(Path(place) / name) for name in ("a", "b", "c", "d")]
        parts = [padded(a, 16, 1).astype(codes), padded(b, 1, 8).astype(codes), padded(c, 16, 8).astype(np.uint32)]
        for file, part in zip(files, parts):
            part.tofile(file)
        m, n = parts[2].shape
        subprocess.run([given.program, given.kind, str(m), str(n), *files], check=True)
        d = np.fromfile(files[3], np.uint32).reshape(m, n)[: a.shape[0], : b.shape[1]]
    np.savez(given.answer, **{**case, "d": d})


main()
