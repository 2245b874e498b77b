#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a table of products of one to many vectors: qk's over packed weights, ggml's, oneDNN's, torch's in float32, and reading as many bytes.

usage: vectors.py build/release/bench/vectors [--ggml FOLDER] [--torch PYTHON] [--size 2048x4096] [--copies 1] [--repetitions 20] [--rounds 3]
                  [FORMAT ...]

Milliseconds on one thread, the least of all repetitions of all rounds; the programs take turns, a round each. FOLDER holds libggml-base.so
and libggml-cpu.so; PYTHON is one that has torch. Two lines behind the table say where a product is above 1.25 of the larger of reading its
bytes and mxfp4's time, and where n vectors cost more than one and (n - 1) thirds of it.
"""
import argparse
import os
import re
import subprocess
import sys

from machine import processor

TORCH = """
import sys, time, torch
rows, columns, copies, repetitions = map(int, sys.argv[1:])
torch.set_num_threads(1)
w = [torch.full((rows, columns), 0.5) for _ in range(copies)]
print("| torch " + torch.__version__ + " float32 | |", end="")
for count in (1, 2, 4, 8, 32, 128):
    x, least = torch.randn(count, columns), 1e9
    for _ in range(max(repetitions // ((count + 7) // 8), 2) + 1):
        begin = time.perf_counter()
        for one in w: torch.nn.functional.linear(x, one)
        least = min(least, (time.perf_counter() - begin) * 1e3 / copies)
    print(f" {least:.2f} |", end="")
print()
"""
ROW = re.compile(r"\| (.*?) \| ?(.*?) ?\|((?: [0-9.]+ \|)+)")


def rows(command):
    """Returns {(weights, order): [milliseconds]} of what a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {(m[1], m[2]): [float(v) for v in m[3].replace("|", " ").split()] for m in map(ROW.fullmatch, done.stdout.splitlines()) if m and m[1] != "weights"}


def bits_of(name):
    """Returns the bits that a weight takes in the table's rows of reading, or None."""
    for word, bits in (("4", 4.25), ("8", 8.0), ("16", 16.0), ("fp32", 32.0)):
        if re.match(rf"(mxfp|nvfp|int|uint|mxint|fp|bf){word}(?![0-9])", name) or name == word:
            return bits
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ggml")
    parser.add_argument("--torch")
    parser.add_argument("--size", default="2048x4096")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("formats", nargs="*")
    o = parser.parse_intermixed_args()
    size = [*o.size.split("x"), str(o.copies), str(o.repetitions)]
    commands = [[o.program, *size, *(["--ggml", o.ggml] if o.ggml else []), *o.formats]]
    if o.torch:
        commands.append([o.torch, "-c", TORCH, *size])
    least = {}
    for _ in range(o.rounds):
        for command in commands:
            for key, times in rows(command).items():
                least[key] = [min(a, b) for a, b in zip(times, least.get(key, times))]
    print(f"{processor()}, one thread, {o.size}, {'the same matrix again and again' if o.copies == 1 else f'{o.copies} matrices in turn'}; milliseconds.\n")
    print("| weights | order | 1 | 2 | 4 | 8 | 32 | 128 |\n|---|---|" + "---|" * 6)
    for (weights, order), times in least.items():
        print(f"| {weights} | {order} | " + " | ".join(f"{t:.2f}" for t in times) + " |" + " |" * (6 - len(times)))
    own = {k: t for k, t in least.items() if k[1] in ("floats", "chains", "integers")}
    reading = {float(k[0].split()[0]): t[0] for k, t in least.items() if k[1] == "read"}
    slow, steep = [], []
    for (weights, order), times in own.items():
        if order == "floats" and (bits := bits_of(weights)) and ("mxfp4", "floats") in own:
            ratio = times[0] / max(reading[bits], own["mxfp4", "floats"][0])
            slow += [f"{weights} {ratio:.2f}"] if ratio > 1.25 else []
        ratios = [(n, t / (times[0] * (1 + (n - 1) / 3))) for n, t in zip((2, 4, 8), times[1:4])]
        if any(r > 1.0 for _, r in ratios):
            steep.append(f"{weights} {order} " + " ".join(f"{n}: {r:.2f}" for n, r in ratios if r > 1.0))
    print(f"\nOne vector above 1.25 of the larger of reading and mxfp4: {', '.join(slow) or 'none'}.")
    print(f"Vectors above one and a third for each more: {', '.join(steep) or 'none'}.")


if __name__ == "__main__":
    main()
