#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy with the checks of .clang-tidy over all headers at once and, if asked, over the sources.

    python3 tests/house/tidy_test.py SOURCE_FOLDER                  # the headers, as one translation unit
    python3 tests/house/tidy_test.py SOURCE_FOLDER --sources BUILD  # also what it compiles of src, tools

Prints each finding, and exits with 1 if there is one.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ["-std=c++20", "-DONNX_ML=1", "-DONNX_NAMESPACE=onnx", "-DQK_GRAPH_DISPATCH", '-DQK_VERSION="0"', "-isystem", "/usr/include/eigen3"]


def tidy(root, file):
    done = subprocess.run(["clang-tidy", "--quiet", str(file), "--", *FLAGS, f"-I{root}/include", f"-I{root}/src", f"-I{root}/tools"], cwd=root, capture_output=True, text=True)
    places = {line for line in done.stdout.split("\n") if re.search(r": (warning|error): ", line)}
    if done.returncode != 0 and not places:
        places = {f"{file}: clang-tidy: {done.stderr.strip()[-500:]}"}
    return {line.replace(str(root) + "/", "") for line in places}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=lambda p: Path(p).resolve())
    parser.add_argument("--sources", type=Path, metavar="BUILD")
    options = parser.parse_args()
    if shutil.which("clang-tidy") is None:
        print("skipped: no clang-tidy here (./dev test installs it)")
        return 0
    headers = sorted([*(options.root / "include/qk").rglob("*.hpp"), *(f for room in ("graph", "learn", "hardware/devices") for f in (options.root / "src" / room).rglob("*.hpp"))])
    headers.remove(options.root / "include/qk/lanes/scalar.hpp")  # it stands in the place of registers.hpp
    if not headers:
        sys.exit("no headers found: nothing was checked")
    sources = []
    if options.sources:
        compiled = json.loads((options.sources / "compile_commands.json").read_text())
        sources = sorted({entry["file"] for entry in compiled if re.match(rf"{re.escape(str(options.root))}/(src|tools)/", entry["file"])})
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        everything = Path(folder) / "everything.cpp"
        everything.write_text("".join(f'#include "{h}"\n' for h in headers))
        shutil.copy(options.root / ".clang-tidy", folder)
        found = set().union(*pool.map(lambda file: tidy(options.root, file), [everything, *sources]))
    print("\n".join(sorted(found)))
    print(f"{len(headers)} headers, {len(sources)} sources, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
