#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each header of a part, or each benchmark (./dev test does not build them), by itself, and names those that do not compile.

    python3 tests/self_contained.py FOLDER core|graph|ops|bench COMPILER

An empty file includes the header, which must not warn under the flags of strict projects. What takes the time are headers that hundreds of
others reach (HUBS): they are compiled once, and come first only where the header includes all of them by itself. This hides nothing: a header
that lacks an include before it reaches a hub includes another header first, and that one is checked here, too.
"""
import re
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

HUBS = ("xsimd/xsimd.hpp", "onnx/onnx_pb.h", "nlohmann/json.hpp", "dnnl.hpp", "qk/formats/format.hpp", "qk/kernels/choose.hpp", "qk/graph/plan/plan.hpp",
        "qk/graph/evaluate/evaluator.hpp", "qk/graph/calibrate/scales.hpp", "graph/base/kernel_calls.hpp", "graph/ops/dispatch.hpp")
WORTH = 5  # headers that reach the same hubs: compiling the hubs takes as long as some of them
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def headers_of(part, root):
    if part == "bench":
        return sorted((root / "bench").glob("*.cpp"))
    public = list((root / "include" / "qk").rglob("*.hpp"))
    if part == "core":
        return sorted(header for header in public if "graph" not in header.relative_to(root).parts)
    private = [header for folder in ("graph", "learn", "hardware/devices") for header in (root / "src" / folder).rglob("*.hpp")]
    graph = [header for header in public if "graph" in header.relative_to(root).parts] + private
    return sorted(header for header in graph if ("ops" in header.relative_to(root).parts) == (part == "ops"))


class Compiler:
    """The compiler with the project's options, and what it has compiled of the hubs."""

    def __init__(self, command, root, scratch):
        self.command = [command, "-std=c++20", "-DONNX_ML=1", "-DONNX_NAMESPACE=onnx", "-DQK_GRAPH_DISPATCH", f"-I{root / 'include'}", f"-I{root / 'src'}",
                        "-isystem", "/usr/include/eigen3"]
        self.folders = (root / "include", root / "src")
        self.scratch = scratch

    @cache
    def includes(self, file):
        """The hubs that a file names, and the headers of the project."""
        names = INCLUDE.findall(file.read_text())
        places = [[file.parent / name, *(folder / name for folder in self.folders)] for name in names]
        own = [next((path.resolve() for path in paths if path.is_file()), None) for paths in places]
        return {name for name in names if name in HUBS}, {path for path in own if path}

    @cache
    def hubs(self, file):
        """The hubs that a file includes, itself or by other headers of the project."""
        hubs, seen, ahead = set(), set(), [file]
        while ahead:
            header = ahead.pop()
            if header not in seen:
                seen.add(header)
                named, own = self.includes(header)
                hubs |= named
                ahead += own
        return frozenset(name for name in hubs if file not in [folder / name for folder in self.folders])

    def worth_compiling(self, files):
        """The sets of hubs that enough of the files reach."""
        return [hubs for hubs, count in Counter(map(self.hubs, files)).items() if count >= WORTH]

    @cache
    def compiled(self, hubs):
        """Options that include these hubs, compiled before."""
        if not hubs:
            return []
        header = self.scratch / f"hubs{len(list(self.scratch.glob('*.hpp')))}.hpp"
        header.write_text("".join(f"#include <{name}>\n" for name in sorted(hubs)))
        subprocess.run([*self.command, *STRICT, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
        return ["-include", str(header)]

    def faults(self, file, sets):
        """What the compiler says of a file by itself; nothing where it compiles. The largest of `sets` that the file reaches comes first."""
        if file.suffix == ".cpp":
            source = ["-x", "c++", str(file)]
        else:
            reached = max((hubs for hubs in sets if hubs <= self.hubs(file)), key=len, default=frozenset())
            source = [*self.compiled(reached), "-include", str(file), "-x", "c++", "/dev/null"]
        answer = subprocess.run([*self.command, *STRICT * (file.suffix != ".cpp"), "-fsyntax-only", *source], stderr=subprocess.PIPE, text=True, check=False)
        return (answer.stderr or "the compiler failed") if answer.returncode else ""


def main():
    root, part = Path(sys.argv[1]).resolve(), sys.argv[2]
    headers = headers_of(part, root)
    if not headers:
        sys.exit(f"no files in {root}: nothing was checked")
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        compiler = Compiler(sys.argv[3], root, Path(scratch))
        sets = [] if part == "bench" else compiler.worth_compiling(headers)
        for header in headers:
            text = compiler.faults(header, sets)
            if text:
                print(f"{header}:\n{text}", file=sys.stderr)
                failed.append(str(header))
    if failed:
        sys.exit(f"not self-contained: {', '.join(failed)}")
    print(f"{len(headers)} files")


if __name__ == "__main__":
    main()
