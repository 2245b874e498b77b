#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a table of products over packed weights beside those of ggml, oneDNN, Eigen and onnxruntime, on one thread.

usage: products.py build/release/bench/products [--ggml FOLDER] [--repetitions N]

FOLDER holds libggml-base.so.0 and libggml-cpu.so.0, as a wheel of pywhispercpp does (`pip download pywhispercpp`, then unzip it). Every
figure is the best of N short repetitions, turn by turn in one program; onnxruntime, which needs a program of its own, is left out of ratios.
"""
import argparse
import ctypes
import os
import subprocess
import sys
import time

from machine import processor

os.environ.setdefault("OMP_NUM_THREADS", "1")


def rows(program, *arguments):
    out = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=True).stdout
    return [(name, float(rate), float(read)) for name, rate, read in (line.split("\t") for line in out.splitlines())]


def matmul_nbits(bits_rows, columns, level, vectors, repetitions):
    """Returns 10^9 multiply-adds a second of MatMulNBits with weights of 4 bits in blocks of 32."""
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(1)
    codes = random.integers(0, 256, (bits_rows, columns // 32, 16), dtype=np.uint8)
    scales = random.uniform(0.01, 0.02, bits_rows * columns // 32).astype(np.float32)
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=columns, N=bits_rows, bits=4, block_size=32,
                            accuracy_level=level)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [vectors, columns])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [vectors, bits_rows])],
                              [numpy_helper.from_array(codes, "w"), numpy_helper.from_array(scales, "s")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = random.standard_normal((vectors, columns)).astype(np.float32)
    best = 1e30
    for _ in range(repetitions):
        begin = time.perf_counter()
        session.run(None, {"x": x})
        best = min(best, time.perf_counter() - begin)
    return bits_rows * columns * vectors / best * 1e-9


def ggml_version(folder):
    base = ctypes.CDLL(os.path.join(folder, "libggml-base.so.0"))
    base.ggml_version.restype = ctypes.c_char_p
    return base.ggml_version().decode()


def table(first, found, unit):
    print(f"| {first} | {unit} | GB of weights a second |\n|---|---|---|")
    for name, rate, read in found:
        print(f"| {name} | {rate:.1f} | {read:.1f} |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ggml")
    parser.add_argument("--repetitions", type=int, default=300)
    o = parser.parse_args()
    ggml = [o.ggml] if o.ggml else []
    print(f"{processor()}, one thread. Rows of 4096 columns; the best of {o.repetitions} repetitions in L2. x is rounded "
          "in each call where a kernel wants whole numbers. Eigen's float32 shows how fast memory is read." + (f" ggml {ggml_version(o.ggml)}." if o.ggml else "") + "\n")
    table("One vector, 256 KiB of packed weights", rows(o.program, "one", 262144, o.repetitions, *ggml), "10^9 weights a second")
    table("One vector, 64 MiB of packed weights", rows(o.program, "one", 1 << 26, max(o.repetitions // 10, 5), *ggml), "10^9 weights a second")
    for vectors in (64, 256):
        found = rows(o.program, "many", vectors, max(o.repetitions * 8 // vectors, 12))
        table(f"{vectors} vectors, 256 rows", found, "10^9 multiply-adds a second")
    try:
        import onnxruntime
    except ImportError:
        return print("onnxruntime is not here.", file=sys.stderr)
    print(f"| onnxruntime {onnxruntime.__version__}, MatMulNBits of 4 bits | 10^9 multiply-adds a second |\n|---|---|")
    for shape, vectors in (((120, 4096), 1), ((256, 4096), 64)):
        for level in (0, 4):
            rate = matmul_nbits(*shape, level, vectors, max(o.repetitions // vectors, 3))
            print(f"| {shape[0]} rows, {vectors} vector{'s' if vectors > 1 else ''}, accuracy level {level} | {rate:.1f} |")


if __name__ == "__main__":
    main()
