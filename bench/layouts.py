#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares bench/kernels of two checkouts over many layouts of the same code.

    python3 bench/layouts.py --before ../old --filter '^fake_quantize/int8/262144$'
    python3 bench/layouts.py --before ../old --filter '/(262144|8388608)$' --below 0.96     # prints only rows that became slower
    python3 bench/layouts.py --before ../old --flags '-mavx2 -mfma' --layouts 4 --turns 3

A loop that moves data at the speed of a cache may be 20 % faster or slower where the linker puts it, which one program does not show. So
each checkout's benchmark is compiled once and linked with its functions in several random orders (by lld: apt-get install lld), and all
programs run in turn. For each row it prints the median of every layout, sorted, and before / after of the geometric means: above 1, the
code became faster.
"""
import argparse
import csv
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent


def build(source, folder, options):
    """Returns the programs of all layouts."""
    folder.mkdir()
    print(f"compiling bench/kernels.cpp of {source}", file=sys.stderr, flush=True)
    subprocess.run([options.compiler, "-std=gnu++20", "-O3", "-DNDEBUG", "-falign-loops=64", "-ffunction-sections", *options.flags.split(), "-Iinclude",
                    "-c", "bench/kernels.cpp", "-o", folder / "kernels.o"], cwd=source, check=True)
    programs = []
    for layout in range(1, options.layouts + 1):
        programs.append(folder / f"kernels_{layout}")
        subprocess.run([options.compiler, "-fuse-ld=lld", f"-Wl,--shuffle-sections=.text*={layout}", folder / "kernels.o", "-lbenchmark", "-lpthread",
                        "-o", programs[-1]], check=True)
    return programs


def add_times(program, options, times):
    """Appends the nanoseconds of every row to times[row]."""
    lines = subprocess.run([program, f"--benchmark_filter={options.filter}", f"--benchmark_min_time={options.seconds}", "--benchmark_format=csv"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith("name,")), len(lines))
    for row in csv.DictReader(lines[start:]):
        times.setdefault(row["name"], []).append(float(row["cpu_time"]))


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True, help="a checkout to compare with")
    parser.add_argument("--after", type=pathlib.Path, default=HERE, help="the other one (default: this)")
    parser.add_argument("--filter", default="/262144$", help="rows, a regular expression (default: those of 256 KiB)")
    parser.add_argument("--layouts", type=int, default=8)
    parser.add_argument("--turns", type=int, default=1, help="runs of every program")
    parser.add_argument("--seconds", default="0.03", help="least time of a row in a run")
    parser.add_argument("--flags", default="-march=native")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--below", type=float, default=math.inf, help="print only rows whose ratio is below this")
    options = parser.parse_args()
    if shutil.which("ld.lld") is None:
        sys.exit("layouts.py: ld.lld was not found; it orders the functions: apt-get install lld")
    for source in (options.before, options.after):
        if not (source / "bench" / "kernels.cpp").is_file():
            sys.exit(f"layouts.py: {source} has no bench/kernels.cpp; name a checkout")
    with tempfile.TemporaryDirectory() as folder:
        sides = [(build(source, pathlib.Path(folder) / name, options), [{} for _ in range(options.layouts)])
                 for name, source in (("before", options.before), ("after", options.after))]
        for turn in range(options.turns):
            for layout in range(options.layouts):
                for programs, times in sides:
                    add_times(programs[layout], options, times[layout])
            print(f"turn {turn + 1} of {options.turns}", file=sys.stderr, flush=True)
    ratios = []
    for row in sides[0][1][0]:
        medians = [sorted(statistics.median(layout[row]) for layout in times) for _, times in sides if row in times[0]]
        if len(medians) < 2:
            continue
        ratios.append(mean(medians[0]) / mean(medians[1]))
        if ratios[-1] < options.below:
            print(f"{row}  {ratios[-1]:.3f}")
            for name, values in zip(("before", "after"), medians):
                print(f"  {name:7}", *(f"{v:.0f}" for v in values), "ns")
    if not ratios:
        sys.exit(f"layouts.py: no row that both have matches {options.filter}")
    print(f"{len(ratios)} rows, geometric mean {mean(ratios):.3f}")


if __name__ == "__main__":
    main()
