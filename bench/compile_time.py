#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `#include <qk/qk.hpp>` with one kernel takes to compile, and how large its object code is: a table in Markdown.

    python3 bench/compile_time.py [--compiler g++] [--flags "-O2 -march=native"] [--runs 3]

Times are processor time of the compiler, the least of the runs; sizes are the text section of the object (`size`).
"""
import argparse
import pathlib
import resource
import shutil
import subprocess
import tempfile

KERNELS = {
    "nothing but the include": "",
    "fake_quantize<fp8_e4m3fn>": "void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::fp8_e4m3fn>(x, y); }",
    "fake_quantize<int8>": "void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::int8>(x, y, qk::affine{.scale = 0.1f}); }",
    "fake_quantize<bfp16>": "void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::bfp16>(x, y); }",
    "fake_quantize<mx9>": "void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::mx9>(x, y); }",
    "fake_quantize<mxfp4>": "void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::mxfp4>(x, y); }",
    "fake_quantize<nvfp4>": "void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::nvfp4>(x, y); }",
    "encode<mxfp4>": "void f(std::span<const float> x, std::span<std::byte> y) { qk::encode<qk::mxfp4>(x, y); }",
    "decode<mxfp4>": "void f(std::span<const std::byte> x, std::span<float> y) { qk::decode<qk::mxfp4>(x, y); }",
}


def compiled(compiler, flags, text, folder):
    """(seconds of processor time, bytes of code)"""
    source, target = folder / "one.cpp", folder / "one.o"
    source.write_text("#include <qk/qk.hpp>\n" + text + "\n")
    include = pathlib.Path(__file__).resolve().parent.parent / "include"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([compiler, "-std=c++20", *flags, f"-I{include}", "-c", str(source), "-o", str(target)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    listing = subprocess.run(["size", str(target)], check=True, capture_output=True, text=True).stdout.splitlines()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, int(listing[1].split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=shutil.which("g++") or "c++")
    parser.add_argument("--flags", action="append", help="may be repeated")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    columns = given.flags or ["-O2 -march=native", "-O3 -march=native", "-O2"]
    print("| one translation unit with | " + " | ".join(f"`{c}`" for c in columns) + " |")
    print("|---|" + "---|" * len(columns))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in KERNELS.items():
            cells = []
            for flags in columns:
                runs = [compiled(given.compiler, flags.split(), text, pathlib.Path(folder)) for _ in range(given.runs)]
                cells.append(f"{min(t for t, _ in runs):.2f} s, {runs[0][1] / 1024:.0f} KiB")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
