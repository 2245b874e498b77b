# SPDX-License-Identifier: Apache-2.0
# Counts the files that a reader of one call passes through: a build with -finstrument-functions notes which functions are entered, and
# the debug information says in which of our files they stand. Preconditions and formats count, too. With it, in how many files of
# include, src and tools the name of each family stands (comments and texts do not count).
#
#   python3 tests/house/walks.py .                     walks of every instruction set that this machine runs, and the names
#   python3 tests/house/walks.py . --files             with the names of the files
#   python3 tests/house/walks.py . --sets avx2 --all   more calls than the two that are a budget
#   python3 tests/house/walks.py . --names             the names alone, without a compiler
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FAMILIES = ["floating", "integer", "block_float", "microexponent", "microscaling", "nvfloat", "table"]
CALLS = {
    "fake_quantize<mxfp4>": "qk::fake_quantize<qk::mxfp4>(x, y);",
    "encode<mxfp4>": "qk::encode<qk::mxfp4>(x, codes);",
}
OTHER_CALLS = {
    "decode<mxfp4>": "qk::decode<qk::mxfp4>(std::span<const std::byte>(codes), y);",
    "fake_quantize<int8>": "qk::fake_quantize<qk::int8>(x, y, qk::affine{.scale = 0.05f});",
    "encode<int8>": "qk::encode<qk::int8>(x, codes, qk::affine{.scale = 0.05f});",
}
# name, flags of the compiler, what the processor must have
SETS = [
    ("scalar", ["-DQK_SCALAR"], None),
    ("sse2", ["-mno-sse3"], "sse2"),
    ("avx2", ["-mavx2", "-mfma", "-mf16c"], "avx2"),
    ("avx512", ["-march=x86-64-v4"], "avx512f"),
    ("avx512vbmi", ["-march=icelake-client"], "avx512_vbmi"),
]
PROGRAM = """
#include <cstdio>
#include <cstddef>
#include <span>
#include <vector>
#include "qk/codec.hpp"
#include "qk/fake_quantize.hpp"
#define APART __attribute__((no_instrument_function))
static bool on = false;
static void* entered[1 << 16];
extern "C" APART void __cyg_profile_func_enter(void* f, void*) {
    if (!on) return;
    for (std::size_t at = (reinterpret_cast<std::size_t>(f) >> 1) * 0x9e3779b97f4a7c15u >> 48; entered[at] != f; at = (at + 1) & 0xffff)
        if (entered[at] == nullptr) { entered[at] = f; break; }
}
extern "C" APART void __cyg_profile_func_exit(void*, void*) {}
APART int main() {
    std::vector<float> x(%d), y(x.size());
    std::vector<std::byte> codes(4 * x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7919 %% 4001) - 2000) * 0.001f;
    on = true;
    %s
    on = false;
    for (void* f : entered) if (f != nullptr) std::printf("%%p\\n", f);
}
"""


def without_comments(text):
    # A digit before ' is a separator in a number, not a text.
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)


def runs_here(feature):
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return feature is None
    return feature is None or re.search(rf"\b{feature}\b", flags) is not None


def files_entered(root, compiler, flags, call, values):
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "walk.cpp", pathlib.Path(folder) / "walk"
        source.write_text(PROGRAM % (values, call))
        subprocess.run([compiler, "-std=c++20", "-O0", "-g1", "-no-pie", "-w", "-finstrument-functions",
                        "-finstrument-functions-exclude-file-list=/usr/,walk.cpp", *flags, "-I", str(root / "include"), str(source), "-o", str(program)],
                       check=True)
        addresses = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        lines = subprocess.run(["addr2line", "-e", str(program)], input=addresses, check=True, capture_output=True, text=True).stdout
    found = set()
    for line in lines.splitlines():
        at = line.rpartition("/include/qk/")[2] if "/include/qk/" in line else None
        if at:
            found.add(at.partition(":")[0])
    return sorted(found)


def names_of_families(root):
    counts = {family: [] for family in FAMILIES}
    for folder in ("include", "src", "tools"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".hpp", ".cpp", ".h"):
                continue
            text = without_comments(path.read_text())
            for family in FAMILIES:
                if re.search(rf"\b{family}\b", re.sub(r"#include[^\n]*", "", text)):
                    counts[family].append(str(path.relative_to(root)))
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--compiler", default=shutil.which("g++") or "c++")
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--sets", nargs="+", choices=[name for name, _, _ in SETS], default=[name for name, _, _ in SETS])
    parser.add_argument("--all", action="store_true", help="more calls")
    parser.add_argument("--names", action="store_true", help="names of families alone")
    parser.add_argument("--values", type=int, default=1024, help="values of a call: whole tiles of every instruction set")
    options = parser.parse_args()
    root = options.root.resolve()
    for name, flags, feature in [] if options.names else SETS:
        if name not in options.sets:
            continue
        if not runs_here(feature):
            print(f"{name}: not on this processor")
            continue
        for call, code in {**CALLS, **(OTHER_CALLS if options.all else {})}.items():
            files = files_entered(root, options.compiler, flags, code, options.values)
            print(f"{name}: {call} enters functions of {len(files)} files")
            if options.files:
                print("".join(f"    {f}\n" for f in files), end="")
    for family, files in names_of_families(root).items():
        print(f"{family} is named in {len(files)} files")
        if options.files:
            print("".join(f"    {f}\n" for f in files), end="")


if __name__ == "__main__":
    sys.exit(main())
