#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many of the project's lines the tests ran, by room: the folder of a source or header.

    cmake --workflow --preset coverage               # builds, and runs the tests: lines are counted
    python3 tests/coverage.py build/coverage [--files ROOM] [--json FILE]

--files lists the files of one room with their figures and the first lines that never ran. Uses gcov, which comes with g++. A line counts if
some object has code for it; it ran if it did in one of them.
"""
import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ("include/", "src/", "tools/")


def of_object(data):
    """Yields (file, line, ran) of what one object counted."""
    done = subprocess.run([options.gcov, "--json-format", "--stdout", str(data.resolve())], cwd=data.parent, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{options.gcov} {data}: {done.stderr}")
    for text in done.stdout.splitlines():
        report = json.loads(text)
        for file in report["files"]:
            path = os.path.normpath(os.path.join(report["current_working_directory"], file["file"]))
            name = os.path.relpath(path, ROOT)
            if name.startswith(KEPT):
                for line in file["lines"]:
                    yield name, line["line_number"], line["count"] > 0


def room(name):
    """Returns the room of a file: include/qk/graph/ops/gemm.hpp and src/graph/ops/math.cpp are of graph/ops."""
    parts = list(Path(name).parent.parts[1:])
    return "/".join(parts[1:] if parts[:1] == ["qk"] else parts)[:40] or Path(name).parts[0]


def main():
    objects = sorted(Path(options.build).rglob("*.gcda"))
    if not objects:
        sys.exit(f"no .gcda below {options.build}: build the preset coverage and run its tests first")
    lines = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda o: list(of_object(o)), objects):
            for name, line, ran in found:
                of_file = lines.setdefault(name, {})
                of_file[line] = of_file.get(line, False) or ran
    figures = {}
    for name, of_file in lines.items():
        f = figures.setdefault(room(name), [0, 0])
        f[0] += sum(of_file.values())
        f[1] += len(of_file)
    total = [sum(f[k] for f in figures.values()) for k in (0, 1)]
    print("| room | lines | ran |\n|---|---:|---:|")
    for name, (ran, count) in sorted(figures.items()):
        print(f"| {name} | {count} | {100 * ran / count:.1f} % |")
    print(f"| **all** | {total[1]} | {100 * total[0] / total[1]:.1f} % |")
    if options.files:
        for name, of_file in sorted(lines.items()):
            if room(name) == options.files:
                never = [line for line, ran in sorted(of_file.items()) if not ran]
                print(f"{name}: {100 - 100 * len(never) / len(of_file):.1f} % of {len(of_file)}" + (f", never: {' '.join(map(str, never[:20]))}" if never else ""))
    if options.json:
        Path(options.json).write_text(json.dumps({name: {"lines": count, "ran": ran} for name, (ran, count) in sorted(figures.items())}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--files", metavar="ROOM")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--gcov", default="gcov")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    main()
