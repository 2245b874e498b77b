#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels and oracle as a consumer would with each flag that permits other sums, zeros or quotients, by g++ and by clang: they are
refused with a sentence that names the flag, or give the same bits.

    python3 math_flags.py SOURCE_FOLDER [all]     without `all` only one of the combinations that must be survived is tried
"""
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ASSOCIATIVE = "-fassociative-math -fno-signed-zeros -fno-trapping-math"
HARMLESS = "-fno-trapping-math -fno-math-errno -frounding-math -ffp-contract=off"
FLAGS = ["-ffast-math", "-Ofast", "-funsafe-math-optimizations", ASSOCIATIVE, "-fno-signed-zeros", "-freciprocal-math", "-ffinite-math-only", HARMLESS]
FLAGS_OF_GCC = ["-fsingle-precision-constant", "-mfpmath=387", "-mfpmath=sse+387"]
FLAGS_OF_CLANG = ["-funsafe-math-optimizations -fno-signed-zeros -freciprocal-math -fno-math-errno -ffp-contract=fast"]
# What must be refused, with the flag that the sentence names.
REFUSED = {"-ffast-math": "-ffast-math", "-Ofast": "-ffast-math", "-ffinite-math-only": "-ffinite-math-only"}
REFUSED_BY_GCC = {"-funsafe-math-optimizations": "-fassociative-math", ASSOCIATIVE: "-fassociative-math", "-fno-signed-zeros": "-fno-signed-zeros",
                  "-freciprocal-math": "-freciprocal-math", "-fsingle-precision-constant": "-fsingle-precision-constant",
                  "-mfpmath=387": "-mfpmath=387", "-mfpmath=sse+387": "-mfpmath=387"}
# clang survives these: the headers stay exact, and the consumer's own code behind them is optimised as asked.
REACHES_THE_CONSUMER = {"-funsafe-math-optimizations", ASSOCIATIVE, FLAGS_OF_CLANG[0]}


def attempt(compiler, flags, source, oracle, folder):
    """Returns what is wrong with a compiler under these flags, or an empty string."""
    is_clang = "clang" in os.path.basename(compiler)
    name = os.path.basename(compiler) + " " + flags
    refused = REFUSED.get(flags) or (None if is_clang else REFUSED_BY_GCC.get(flags))
    command = [compiler, "-std=c++20", "-O1", "-mavx2", "-mfma", *flags.split(), "-I" + source + "/include", source + "/tests/core/math_flags_kernels.cpp"]
    if refused:
        done = subprocess.run(command + ["-fsyntax-only"], capture_output=True, text=True)
        if done.returncode == 0:
            return f"{name}: compiles, and must be refused"
        said = [line for line in done.stderr.splitlines() if "error:" in line and "defined bit for bit, and" in line]
        return "" if said and refused in said[0] else f"{name}: refused without a sentence that names {refused}: {done.stderr[-500:]}"
    program = tempfile.mktemp(dir=folder)
    done = subprocess.run(command + ["-c", "-o", program + ".o"], capture_output=True, text=True)
    if done.returncode == 0:  # linked without the flags: with some of them clang would add code that flushes subnormals in all of the program
        done = subprocess.run([compiler, program + ".o", oracle, "-o", program], capture_output=True, text=True)
    if done.returncode != 0:
        return f"{name}: {done.stderr[-500:]}"
    ran = subprocess.run([program], capture_output=True, text=True)
    if ran.returncode != 0:
        return f"{name}: {ran.stdout}{ran.stderr}"
    reached = "the consumer's own code has the flags" in ran.stdout
    return "" if reached == (is_clang and flags in REACHES_THE_CONSUMER) else f"{name}: {ran.stdout}"


def main():
    source = os.path.abspath(sys.argv[1])
    if not all(flag in open("/proc/cpuinfo").read() for flag in ("avx2", "fma")):
        print("skipped: this CPU has no avx2 and fma")
        return
    compilers = [found for found in (shutil.which("g++"), shutil.which("clang++")) if found]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        oracle = folder + "/oracle.o"
        subprocess.run([compilers[0], "-std=c++20", "-O1", "-c", "-I" + source + "/include", source + "/tests/core/math_flags_oracle.cpp", "-o", oracle], check=True)
        survived = FLAGS_OF_CLANG[0] if "clang" in compilers[-1] else HARMLESS
        everything = sys.argv[2:] == ["all"]
        jobs = [(c, f) for c in compilers for f in FLAGS + (FLAGS_OF_CLANG if "clang" in c else FLAGS_OF_GCC)]
        if not everything:
            jobs = [(c, f) for c, f in jobs if f in REFUSED or (c == compilers[0] and f in REFUSED_BY_GCC) or (c == compilers[-1] and f == survived)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = [w for w in pool.map(lambda job: attempt(*job, source, oracle, folder), jobs) if w]
    print("\n".join(wrong))
    print(f"{len(jobs)} combinations of compiler and flags, {len(wrong)} wrong" + ("" if len(compilers) == 2 else "; no clang++ here"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
