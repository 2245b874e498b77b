#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs qk from a build tree and looks at the headers of the graph module as a user finds them.

    python3 tests/consumer/doors.py BUILD_FOLDER

Every installed header must be reachable from a door (a header directly in qk/graph), and every door must compile in a program that has
only the installed tree, by g++ and clang, as C++20 and C++23. A new door, or a new value in one, raises the two numbers below in the commit
that adds it; nothing else does: what is not reached from a door belongs to src/graph. The components above, which a build may leave out, are not counted.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = 98
LINES = 5220  # at most
ABOVE = re.compile(r"qk/graph/(learn|hardware)[./]")
STANDARDS = {"g++": ["-std=c++20", "-std=c++23"], "clang++": ["-std=c++20", "-std=c++2b"]}
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def included(header):
    return re.findall(r'^\s*#\s*include\s+[<"](qk/[^">]+)[">]', header.read_text(), re.M)


def reached(include, doors):
    seen, waiting = set(), list(doors)
    while waiting:
        name = waiting.pop()
        if name not in seen and (include / name).is_file():
            seen.add(name)
            waiting += included(include / name)
    return seen


def compiles(compiler, standard, program, include):
    command = [compiler, standard, *STRICT, "-fsyntax-only", "-DONNX_ML=1", "-DONNX_NAMESPACE=onnx", "-isystem", "/usr/include/eigen3", f"-I{include}", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{' '.join(command)}\n{done.stderr}"


def main():
    build, here = Path(sys.argv[1]), Path(__file__).parent
    wrong = []
    with tempfile.TemporaryDirectory() as prefix, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, capture_output=True)
        include = Path(prefix) / "include"
        installed = {str(h.relative_to(include)) for h in (include / "qk/graph").rglob("*.hpp")}
        doors = sorted(h for h in installed if h.count("/") == 2)
        wrong += [f"{h} is installed and reached from no door" for h in sorted(installed - reached(include, doors))]
        counted = [h for h in installed if not ABOVE.match(h)]
        lines = sum(len((include / h).read_text().splitlines()) for h in counted)
        print(f"{len(doors)} doors, {len(installed)} headers, {len(counted)} of the module itself, {lines} lines")
        if len(counted) != HEADERS or lines > LINES:
            wrong.append(f"{len(counted)} headers and {lines} lines are installed; this test says {HEADERS} and at most {LINES}")
        programs = {p.stem: p for p in (here / "doors").glob("*.cpp") if f"qk/graph/{p.stem}.hpp" in doors or not ABOVE.match(f"qk/graph/{p.stem}.hpp")}
        wrong += [f"door {Path(d).stem} has no program in tests/consumer/doors" for d in doors if Path(d).stem not in programs]
        for name, program in programs.items():
            if included(program) != [f"qk/graph/{name}.hpp"]:
                wrong.append(f"{program.name} includes {included(program)}: it may include its door alone")
        compilers = [c for c in STANDARDS if shutil.which(c)]
        wrong += [f"no {c} here (./dev test installs it)" for c in STANDARDS if c not in compilers]
        runs = [pool.submit(compiles, c, s, p, include) for c in compilers for s in STANDARDS[c] for p in programs.values()]
        wrong += [text for text in (run.result() for run in runs) if text]
        print(f"{len(runs)} compilations")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
