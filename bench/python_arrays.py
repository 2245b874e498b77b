#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times qk.fake_quantize beside the C++ kernel that it calls, and beside other packages, in one run on one thread.

    PYTHONPATH=build/release/python/package python3 bench/python_arrays.py [--turns 5]

The first table is of an array of 4 KiB and one of 64 MiB: the kernel alone (a program that a C++ compiler makes from build/release), and
Python's call, into an array of the caller's (out=) and into a new one. Kernel and Python take turns; the least of the medians counts. The
second table is of 64 MiB: qk beside those packages of bench/peers.py and NumKong that are installed, with their versions. Megabytes are those
that are read and written, 10^6 a second.
"""
import argparse
import importlib.metadata
import os
import pathlib
import subprocess
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

import peers
import qk

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATS = ["mxfp4", "mxfp8_e4m3", "fp8_e4m3fn", "bf16", "int8", "nvfp4", "bfp16"]
SIZES = [1 << 10, 1 << 24]  # values
KERNEL = """
#include <qk/dispatch.hpp>
#include <qk/formats/parse.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>
int main(int, char** a) {
    const qk::format f = qk::parse_format(a[1]).value;
    const std::size_t n = std::strtoull(a[2], nullptr, 10);
    std::vector<float> x(n), y(n);
    std::ifstream(a[3], std::ios::binary).read(reinterpret_cast<char*>(x.data()), static_cast<std::streamsize>(4 * n));
    const auto run = [&] { qk::dispatch::fake_quantize(f, x, y); };
    using clock = std::chrono::steady_clock;
    std::vector<double> times;
    const std::size_t each = n < 100000 ? 2000 : 1;
    for (const auto end = clock::now() + std::chrono::milliseconds(400); times.size() < 5 || clock::now() < end;) {
        const auto start = clock::now();
        for (std::size_t i = 0; i < each; ++i) run();
        times.push_back(std::chrono::duration<double>(clock::now() - start).count() / each);
    }
    std::sort(times.begin(), times.end());
    std::printf("%.9g", times[times.size() / 2]);
}
"""


def seconds(run, n):
    """Returns the median of the times of one call."""
    each, times = 2000 if n < 100000 else 1, []
    end = time.perf_counter() + 0.4
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(each):
            run()
        times.append((time.perf_counter() - start) / each)
    return sorted(times)[len(times) // 2]


def beside_the_kernel(turns):
    print("| format | values | kernel, µs | `out=`, µs | new array, µs | `out=` over the kernel |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        source, program, data = (os.path.join(folder, n) for n in ("kernel.cpp", "kernel", "x.bin"))
        pathlib.Path(source).write_text(KERNEL)
        subprocess.run([os.environ.get("CXX", "c++"), "-O2", "-std=c++20", "-I", ROOT / "include", source, "-o", program,
                        ROOT / "build/release/src/dispatch/libqk_dispatch.a", "-pthread"], check=True)
        for n in SIZES:
            x = np.random.default_rng(1).standard_normal(n, dtype=np.float32)
            y = np.zeros_like(x)
            x.tofile(data)
            for name in FORMATS:
                best = [float("inf")] * 3
                for _ in range(turns):
                    own = (float(subprocess.run([program, name, str(n), data], capture_output=True, text=True, check=True).stdout),
                           seconds(lambda: qk.fake_quantize(x, name, out=y), n), seconds(lambda: qk.fake_quantize(x, name), n))
                    best = [min(a, b) for a, b in zip(best, own)]
                k, into, new = (1e6 * s for s in best)
                more = f"+{into - k:.2f} µs" if n < 100000 else f"{100 * (into / k - 1):+.1f} %"
                print(f"| {name} | {n} | {k:.2f} | {into:.2f} | {new:.2f} | {more} |", flush=True)


def numkong_peers(x, y):
    import numkong

    for name, dtype in {"bf16": "bf16", "fp16": "float16", "fp8_e4m3fn": "e4m3", "fp8_e5m2": "e5m2", "fp6_e2m3": "e2m3", "fp6_e3m2": "e3m2"}.items():
        yield f"numkong:{name}", lambda dtype=dtype: numkong.astype(numkong.astype(x, dtype), "float32", out=y)


def beside_others():
    x = np.random.default_rng(1).standard_normal(1 << 24, dtype=np.float32)
    y = np.zeros_like(x)
    total, rates = 2 * x.nbytes, {}
    for find in (peers.ml_dtypes_peers, peers.torch_peers, peers.torchao_peers, peers.onnxruntime_peers, numkong_peers):
        try:
            for name, run in find(x, y):
                try:
                    rates[name] = peers.rate(run, total)
                except Exception as problem:  # a type that this version lacks
                    print(f"left out: {name}: {str(problem)[:80]}")
        except ImportError as missing:
            print(f"left out: {missing}")
    print("\n| format | qk, MB/s | others, MB/s |\n|---|--:|---|")
    for name in sorted({n.split(":")[-1] for n in rates}):
        own = peers.rate(lambda: qk.fake_quantize(x, name, out=y), total)
        others = sorted(((n.rsplit(":", 1)[0], r) for n, r in rates.items() if n.endswith(":" + name)), key=lambda r: -r[1])
        print(f"| {name} | {own / 1e6:.0f} | {', '.join(f'{n} {r / 1e6:.0f}' for n, r in others)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    a = parser.parse_args()
    versions = [f"qk {qk.__version__} ({qk.architecture()})"]
    for name in ("numpy", "torch", "torchao", "ml_dtypes", "onnxruntime", "numkong"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    print(", ".join(versions) + "\n")
    beside_the_kernel(a.turns)
    beside_others()


if __name__ == "__main__":
    main()
