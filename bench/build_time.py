#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures processor seconds (user and system) of building a target from scratch, in a new folder, without a compiler cache.

    python3 bench/build_time.py                                 # what `./dev demo` builds, and what `./dev test` builds
    python3 bench/build_time.py --target demo --source ../other # one of them, of another checkout
    python3 bench/build_time.py --sample 4                      # a quarter of the files, times four: an estimate in a quarter of the time
    python3 bench/build_time.py --includers                     # what a file that includes one kernel costs

Prints the sum, the twenty costliest files, and, as a unit for comparing machines, the seconds of one fixed reference file measured in the
same run. Every compiler and linker is timed by itself, so a busy machine changes the sum little.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
# Name: options added to the preset, and targets.
TARGETS = {
    "demo": (["-DQK_DISPATCH_ISAS=native"], ["qk_tool", "demo"]),
    "test": (["-DQK_DISPATCH_ISAS=all"], ["all"]),
}
REFERENCE = """#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main(int argc, char** argv) {
    std::map<std::string, std::vector<int>> words;
    const std::regex word("[a-z]+");
    for (int i = 1; i < argc; ++i)
        if (std::regex_match(argv[i], word)) words[argv[i]].push_back(i);
    for (auto& [name, places] : words) std::sort(places.begin(), places.end(), std::greater<>()), std::cout << name << places.size();
}
"""
CASES = {
    "the bare include": "",
    "run-time fake_quantize(format, ...)": "void f(const qk::format& g, std::span<const float> x, std::span<float> y) { qk::fake_quantize(g, x, y); }",
    "run-time encode and decode": "void f(const qk::format& g, std::span<const float> x, std::span<std::byte> c, std::span<float> y) {"
                                  " (void)qk::encode(g, x, c); qk::decode(g, c, y); }",
}
FORMATS = ["fp16", "fp8_e4m3fn", "fp4_e2m1", "int4", "int8", "bfp16", "mx9", "mxfp8_e4m3", "mxfp4", "mxint8", "nvfp4"]
for name in FORMATS:
    CASES[f"fake_quantize<{name}>"] = f"void f(std::span<const float> x, std::span<float> y) {{ qk::fake_quantize<qk::{name}>(x, y); }}"
    CASES[f"encode<{name}>"] = f"void f(std::span<const float> x, std::span<std::byte> y) {{ (void)qk::encode<qk::{name}>(x, y); }}"
    CASES[f"product<{name}>"] = f"void f(const qk::packed_weights& w, std::span<const float> x, std::span<float> y) {{ qk::product<qk::{name}>(w, {{x}}, {{y}}); }}"
    CASES[f"decode<{name}>"] = f"void f(std::span<const std::byte> x, std::span<float> y) {{ qk::decode<qk::{name}>(x, y); }}"

LAUNCHER = """#!/usr/bin/env python3
import json, os, resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
words = sys.argv[1:]
made = words[words.index("-o") + 1] if "-o" in words else words[-1]
with open(os.environ["QK_BUILD_TIME_LOG"], "a") as log:
    log.write(json.dumps([made, used.ru_utime + used.ru_stime]) + "\\n")
sys.exit(status)
"""


def seconds_of(command, **options):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def reference(compiler, folder):
    source = folder / "reference.cpp"
    source.write_text(REFERENCE)
    return min(seconds_of([compiler, "-std=c++20", "-O2", "-c", str(source), "-o", str(folder / "reference.o")]) for _ in range(3))


def every_nth(source, tree, names, n):
    """Returns every n-th object of the targets in the order of their sources' sizes, so large and small files alike."""
    wanted = subprocess.run(["ninja", "-C", str(tree), "-t", "inputs", *names], check=True, capture_output=True, text=True).stdout.split()
    commands = json.loads((tree / "compile_commands.json").read_text())
    size = {}
    for c in commands:
        made = c.get("output") or c["command"].split(" -o ")[1].split()[0]
        generated = not os.path.exists(c["file"])  # made when it is built
        size[os.path.relpath(made, tree) if os.path.isabs(made) else made] = 0 if generated else os.path.getsize(c["file"])
    objects = sorted((o for o in size if o in set(wanted)), key=lambda o: (size[o], o))
    return objects[n // 2::n], len(objects)


def has_targets(source):
    """Returns whether a checkout builds less for the demo than for the tests; one from before QK_DISPATCH_ISAS builds everything for both."""
    return "QK_DISPATCH_ISAS" in (source / "src/dispatch/CMakeLists.txt").read_text()


def build(source, target, jobs, folder, sample):
    """Returns the seconds of all compilers, linkers and generators, and of each compiled file. With a sample of n only every n-th file is
    built and its time counts n times, without linking."""
    settings, names = TARGETS[target] if has_targets(source) else ([], ["all"])
    log = folder / f"{target}.log"
    log.unlink(missing_ok=True)
    launcher = folder / "timed"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    environment = {**os.environ, "QK_BUILD_TIME_LOG": str(log), "CCACHE_DISABLE": "1"}
    environment.pop("CMAKE_CXX_COMPILER_LAUNCHER", None)
    tree = folder / target
    subprocess.run(["cmake", "--preset", "release", "-B", str(tree), f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", *settings], cwd=source, env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if sample > 1:
        names, all_files = every_nth(source, tree, names, sample)
    total = seconds_of(["ninja", "-C", str(tree), "-j", str(jobs), *names], env=environment, stdout=subprocess.DEVNULL)
    files = [json.loads(line) for line in log.read_text().splitlines()]
    if sample > 1:  # generated sources and libraries that the sample needs do not count; precompiled headers do, once
        chosen = {os.path.normpath(tree / name) for name in names}
        once = sum(seconds for made, seconds in files if made.endswith(".gch"))
        files = [f for f in files if os.path.normpath(tree / f[0]) in chosen]
        total = once + sum(seconds for _, seconds in files) * all_files / len(names)
    shutil.rmtree(tree)
    return total, files


def includers(compiler, source, folder, flags, only):
    print(f"| one translation unit with (`{' '.join(flags)}`) | seconds | object, KiB |\n|---|---|---|")
    for name, text in CASES.items():
        if only not in name:
            continue
        file, made = folder / "one.cpp", folder / "one.o"
        file.write_text(("#include <qk/product.hpp>\n" if name.startswith("product") else "#include <qk/qk.hpp>\n") + text + "\n")
        command = [compiler, "-std=c++20", *flags, f"-I{source}/include", "-c", str(file), "-o", str(made)]
        least = min(seconds_of(command) for _ in range(2))
        size = int(subprocess.run(["size", str(made)], check=True, capture_output=True, text=True).stdout.splitlines()[1].split()[0])
        print(f"| {name} | {least:.2f} | {size / 1024:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="may be repeated; both if not given")
    parser.add_argument("--source", action="append", type=pathlib.Path, help="a checkout; may be repeated; this one if not given")
    parser.add_argument("--compiler", default=shutil.which("g++") or "c++")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="build every N-th file only and say N times its seconds")
    parser.add_argument("--includers", action="store_true", help="what one kernel costs whoever includes it, in place of a build")
    parser.add_argument("--only", default="", metavar="WORD", help="with --includers: the cases whose name has it, as '<mxfp4>'")
    parser.add_argument("--flags", default="-O2", help="with --includers")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    given = parser.parse_args()
    sources = [s.resolve() for s in given.source or [HERE]]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if given.includers:
            for source in sources:
                includers(given.compiler, source, folder, given.flags.split(), given.only)
            return
        unit = reference(given.compiler, folder)
        result = {"unit_seconds": unit, "builds": []}
        for source in sources:
            for target in given.target or sorted(TARGETS):
                if result["builds"] and result["builds"][-1]["source"] == str(source) and not has_targets(source):
                    result["builds"].append({**result["builds"][-1], "target": target})  # it builds the same
                    continue
                print(f"building {target} of {source}", file=sys.stderr)
                total, files = build(source, target, given.jobs, folder, given.sample)
                files.sort(key=lambda f: -f[1])
                result["builds"].append({"source": str(source), "target": target, "seconds": total, "units": total / unit, "files": len(files), "sample": given.sample, "costliest": files[:20]})
    if given.json:
        print(json.dumps(result, indent=1))
        return
    print(f"the reference file: {unit:.2f} s (the unit)")
    for b in result["builds"]:
        print(f"\n{b['target']} of {b['source']}: {b['seconds']:.0f} processor seconds, {b['units']:.0f} units, {b['files']} files"
              f"{' (an estimate from every ' + str(b['sample']) + 'th)' if b['sample'] > 1 else ''}; the costliest:")
        for made, seconds in b["costliest"]:
            print(f"  {seconds:7.1f} s  {made}")


if __name__ == "__main__":
    main()
