#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times qk.fake_quantize beside the C++ kernel that it calls, and beside other packages, in one run on one thread.

    PYTHONPATH=build/release/python/package python3 bench/python_arrays.py [--turns 5] [--json docs/results/data/python_arrays.json --page docs/results/python_arrays.md]

The first table is of an array of 4 KiB and one of 64 MiB: the kernel alone (a program that a C++ compiler makes from build/release), and
Python's call, into an array of the caller's (out=) and into a new one. The second is of other arrays of as many values as 4 KiB of float32 has.
The third is of 64 MiB: qk beside those packages of bench/peers.py and NumKong that are installed, with their versions. What is compared takes
turns, and the least time counts, since other work on the machine only adds time. Megabytes are those that are read and written, 10^6 a second.
"""
import argparse
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

import peers
import qk
import rows
from machine import processor

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATS = ["mxfp4", "mxfp8_e4m3", "fp8_e4m3fn", "bf16", "int8", "nvfp4", "bfp16"]
SIZES = [1 << 10, 1 << 24]  # values
TABLES = {"kernel": ["format", "values", "kernel", "out", "new"], "arrays": ["array", "format", "new"], "peers": ["format", "qk", "others"]}
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
    const std::size_t each = n < 100000 ? 100 : 1;
    run();
    for (const auto end = clock::now() + std::chrono::milliseconds(100); times.size() < 5 || clock::now() < end;) {
        const auto start = clock::now();
        for (std::size_t i = 0; i < each; ++i) run();
        times.push_back(std::chrono::duration<double>(clock::now() - start).count() / each);
    }
    std::printf("%.9g", *std::min_element(times.begin(), times.end()));
}
"""


def seconds(run, n):
    """Returns the least time of one call."""
    each, least = 100 if n < 100000 else 1, float("inf")
    run()
    end, turns = time.perf_counter() + 0.1, 0
    while turns < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(each):
            run()
        least, turns = min(least, (time.perf_counter() - start) / each), turns + 1
    return least


def beside_the_kernel(turns):
    """Yields {format, values, kernel, out, new}, in microseconds."""
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
                for _ in range(3 * turns):
                    own = (float(subprocess.run([program, name, str(n), data], capture_output=True, text=True, check=True).stdout),
                           seconds(lambda: qk.fake_quantize(x, name, out=y), n), seconds(lambda: qk.fake_quantize(x, name), n))
                    best = [min(a, b) for a, b in zip(best, own)]
                yield {"format": name, "values": n, **dict(zip(("kernel", "out", "new"), (round(1e6 * s, 3) for s in best)))}


def small_arrays():
    """Yields (what it is, a call of qk.fake_quantize) for arrays of 1024 values."""
    x = np.random.default_rng(1).standard_normal((32, 32), dtype=np.float32)
    scale = np.full(32, 0.05, np.float32)
    for name in ("mxfp4", "int8"):
        yield "numpy float32", name, lambda: qk.fake_quantize(x, name)
        yield "numpy float32, axis=0", name, lambda: qk.fake_quantize(x, name, axis=0)
        yield "numpy float32, transposed", name, lambda: qk.fake_quantize(x.T, name)
        yield "numpy float16", name, lambda h=x.astype(np.float16): qk.fake_quantize(h, name)
        try:
            import ml_dtypes

            yield "ml_dtypes bfloat16", name, lambda h=x.astype(ml_dtypes.bfloat16): qk.fake_quantize(h, name)
        except ImportError as missing:
            print(f"left out: {missing}")
        try:
            import torch

            torch.set_num_threads(1)
            yield "torch float32", name, lambda h=torch.from_numpy(x): qk.fake_quantize(h, name)
            yield "torch bfloat16", name, lambda h=torch.from_numpy(x).to(torch.bfloat16): qk.fake_quantize(h, name)
        except ImportError as missing:
            print(f"left out: {missing}")
    yield "numpy float32, a scale", "int8", lambda: qk.fake_quantize(x, "int8", scale=0.05)
    yield "numpy float32, 32 scales", "int8", lambda: qk.fake_quantize(x, "int8", scale=scale, scale_axis=0)


def numkong_peers(x, y):
    import numkong

    for name, dtype in {"bf16": "bf16", "fp16": "float16", "fp8_e4m3fn": "e4m3", "fp8_e5m2": "e5m2", "fp6_e2m3": "e2m3", "fp6_e3m2": "e3m2"}.items():
        yield f"numkong:{name}", lambda dtype=dtype: numkong.astype(numkong.astype(x, dtype), "float32", out=y)


def beside_others(turns):
    """Yields {format, qk, others: {package: rate}}, in megabytes a second."""
    x = np.random.default_rng(1).standard_normal(1 << 24, dtype=np.float32)
    y = np.zeros_like(x)
    total, runs = 2 * x.nbytes, {}
    for find in (peers.ml_dtypes_peers, peers.torch_peers, peers.torchao_peers, peers.onnxruntime_peers, numkong_peers):
        try:
            for name, run in find(x, y):
                try:
                    run()
                    package, _, format = name.rpartition(":")
                    runs.setdefault(format, {})[package] = run
                except Exception as problem:  # a type that this version lacks
                    print(f"left out: {name}: {str(problem)[:80]}")
        except ImportError as missing:
            print(f"left out: {missing}")
    for format, others in sorted(runs.items()):
        all = {"qk": lambda: qk.fake_quantize(x, format, out=y), **others}
        best = dict.fromkeys(all, 0.0)
        for _ in range(turns):
            for name, run in all.items():
                start = time.perf_counter()
                run()
                best[name] = max(best[name], total / (time.perf_counter() - start))
        own = best.pop("qk")
        yield {"format": format, "qk": round(own / 1e6), "others": {n: round(r / 1e6) for n, r in sorted(best.items(), key=lambda b: -b[1])}}


def page(kept):
    """The measurements as a page of docs/results."""
    said = ["# Arrays in Python, measured", "",
            "`qk.fake_quantize` on one thread, as `bench/python_arrays.py` measures it: beside the C++ kernel that it calls, and beside other packages. The file",
            "[python_arrays.json](data/python_arrays.json) has the numbers.", "",
            f"{kept['machine']}, Python {kept['python']}; {', '.join(kept['versions'])}. All of a table took turns in one run, and the least time of each counts.",
            *([kept["note"]] if kept.get("note") else []), "",
            "## Beside the kernel", "",
            "What Python adds to a call is the same for any size: looking at the arrays, finding the format, giving the interpreter's lock away where the work is long.", "",
            "| format | values | kernel, µs | `out=`, µs | new array, µs | `out=` over the kernel |", "|---|--:|--:|--:|--:|--:|"]
    for r in kept["kernel"]:
        more = f"+{r['out'] - r['kernel']:.2f} µs" if r["values"] < 100000 else f"{100 * (r['out'] / r['kernel'] - 1):+.1f} %"
        said.append(f"| {r['format']} | {r['values']} | {r['kernel']:.2f} | {r['out']:.2f} | {r['new']:.2f} | {more} |")
    said += ["", "A new array of 64 MiB costs more than the rounding, since the system gives its pages one by one: `out=` saves that.", "",
             "## Other arrays", "", "1024 values, a new array for the result, microseconds.", "", "| array | mxfp4 | int8 |", "|---|--:|--:|"]
    for what in dict.fromkeys(r["array"] for r in kept["arrays"]):
        own = {r["format"]: f"{r['new']:.2f}" for r in kept["arrays"] if r["array"] == what}
        said.append(f"| {what} | {own.get('mxfp4', '')} | {own.get('int8', '')} |")
    said += ["", "## Beside other packages", "",
             "64 MiB of float32 into an array that is there, MB/s. Others round by a cast to the type and back, or with a function of their own; \"formula\" is what",
             "microxcaling and Quark compute, written in torch.", "", "| format | qk | others |", "|---|--:|---|"]
    said += [f"| {r['format']} | {r['qk']} | {', '.join(f'{n} {v}' for n, v in r['others'].items())} |" for r in kept["peers"]]
    return "\n".join(said) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", help="keep the numbers in this file")
    parser.add_argument("--page", help="write them as a page, too")
    parser.add_argument("--note", help="a sentence for the page on how it was measured")
    parser.add_argument("--small", action="store_true", help="only arrays of 4 KiB")
    a = parser.parse_args()
    if a.small:
        del SIZES[1:]
    versions = [f"qk {qk.__version__} ({qk.architecture()})"]
    for name in ("numpy", "torch", "torchao", "ml_dtypes", "onnxruntime", "numkong"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    kept = {"machine": processor(), "python": platform.python_version(), "versions": versions, "kernel": [], "arrays": [], "peers": []}
    kept["kernel"] = list(beside_the_kernel(a.turns))
    for _ in range(3 * a.turns):
        for i, (what, name, run) in enumerate(small_arrays()):
            new = round(1e6 * seconds(run, 1024), 3)
            if i == len(kept["arrays"]):
                kept["arrays"].append({"array": what, "format": name, "new": new})
            kept["arrays"][i]["new"] = min(kept["arrays"][i]["new"], new)
    if not a.small:
        kept["peers"] = list(beside_others(a.turns))
    if a.note:
        kept["note"] = a.note
    text = page(kept)
    print(text)
    if a.json:
        rows.write(a.json, kept | {name: rows.table(kept[name], columns) for name, columns in TABLES.items()})
    if a.page:
        pathlib.Path(a.page).write_text(text)


if __name__ == "__main__":
    main()
