#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests of the Python package on a module that AddressSanitizer watches.

    python tests/python/asan.py [--all] [--also REGEX] [PYTEST ARGUMENTS ...]     (tests/python/test_arrays.py if there are none)

The module's own sources, and those of qk whose path matches REGEX, are compiled with -fsanitize=address into build/asan; the rest comes from
build/release, where ./dev build makes it. --all takes everything from the preset `sanitize`, which compiles for an hour, with
UndefinedBehaviorSanitizer too. Python's own memory comes from malloc, so that arrays are watched as well.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE, FOLDER = ROOT / "build" / "release", ROOT / "build" / "asan"


def watched_module(also):
    """Makes build/asan/package from the commands of the release build; returns the folder."""
    lines = subprocess.run(["ninja", "-C", RELEASE, "-t", "commands", "_qk"], capture_output=True, text=True, check=True).stdout.splitlines()
    lines = [line for line in lines if not line.startswith("ninja:")]
    link = next(line for line in reversed(lines) if re.search(r" -o python/package/qk/_qk\S*\.so ", line))
    link = link.split("&&")[1]  # behind it stand the copies of third parties' libraries, which are there
    objects = []
    for line in lines:
        source = re.search(r" -c (\S+\.c(?:pp|xx))$", line)  # .cxx: several sources together
        if source is None or not ("/python/src/" in source[1] or also and re.search(also, os.path.relpath(source[1], ROOT))):
            continue
        target = re.search(r" -o (\S+\.o) ", line)[1]
        made = FOLDER / target.replace("/", "_")
        if not made.exists() or made.stat().st_mtime < pathlib.Path(source[1]).stat().st_mtime:
            words = [w for w in shlex.split(line) if not w.startswith("-O")]
            words[words.index("-o") + 1] = os.fspath(made)
            print("compiling", os.path.relpath(source[1], ROOT), flush=True)
            subprocess.run([*words, "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address"], cwd=RELEASE, check=True)
        objects.append((target, made))
    words = [os.fspath(dict(objects).get(w, w)) for w in shlex.split(link)]
    at = words.index("-o")
    words[at + 1] = os.fspath(FOLDER / "package" / "qk" / pathlib.Path(words[at + 1]).name)
    own = [os.fspath(made) for _, made in objects if os.fspath(made) not in words]  # ahead of the archives that have them unwatched
    subprocess.run([*words[: at + 2], *own, *words[at + 2 :], "-fsanitize=address"], cwd=RELEASE, check=True)
    return FOLDER / "package"


def main(arguments):
    also, package = None, None
    while arguments and arguments[0] in ("--all", "--also"):
        if arguments.pop(0) == "--also":
            also = arguments.pop(0)
        else:
            subprocess.run(["cmake", "--preset", "sanitize", "-DQK_BUILD_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"], cwd=ROOT, check=True)
            subprocess.run(["cmake", "--build", "build/sanitize", "--target", "_qk"], cwd=ROOT, check=True)
            package = ROOT / "build" / "sanitize" / "python" / "package"
    if package is None:
        there = FOLDER / "package" / "qk"
        there.mkdir(parents=True, exist_ok=True)
        for file in (RELEASE / "python" / "package" / "qk").iterdir():
            if not file.name.startswith("_qk."):
                shutil.copy(file, there / file.name)
        package = watched_module(also)
    preload = [subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
               for name in ("libasan.so", "libubsan.so", "libstdc++.so")]  # libstdc++ early: exceptions are found in it
    environment = {**os.environ, "PYTHONPATH": os.fspath(package), "LD_PRELOAD": " ".join(preload), "PYTHONMALLOC": "malloc",
                   "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "halt_on_error=1"}
    tests = arguments or [os.fspath(ROOT / "tests" / "python" / "test_arrays.py")]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
