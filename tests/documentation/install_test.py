# SPDX-License-Identifier: Apache-2.0
"""Does what README.md says about installing: find_package, FetchContent and pkg-config, from an installation that was moved.

    install_test.py SOURCE_FOLDER COMPILER

Installs the headers alone, which needs no build, into an empty folder; then builds a program by each of the README's blocks. FetchContent clones a
repository of these sources by the README's own lines.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
#include <qk/qk.hpp>
#include <vector>
int main() {
    std::vector<float> x(64, 0.3f), y(64);
    qk::fake_quantize<qk::mxfp4>(x, y);
    return y[0] > 0.2f && y[0] < 0.4f ? 0 : 1;
}
"""
PARTS = ("GRAPH", "LEARN", "DISPATCH", "HARDWARE", "C", "CHECKPOINT", "SYSTEMS", "PYTHON", "TOOL", "TESTS", "BENCH", "EXAMPLES")


def run(what, *words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{what}: {' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def repository(source, at):
    """Makes a repository at `at` that has these sources on main, whatever branch, depth and changes this checkout has."""
    for name in run("the project's files", "git", "ls-files", "-co", "--exclude-standard", "-z", cwd=source).split("\0"):
        if (source / name).is_file():
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, at / name)
    run("a repository", "git", "init", "--quiet", "--initial-branch=main", at)
    run("a repository", "git", "add", "--all", cwd=at)
    run("a repository", "git", "-c", "user.name=qk", "-c", "user.email=qk", "commit", "--quiet", "--message=all", cwd=at)
    return at


def main():
    source, compiler = Path(sys.argv[1]).resolve(), sys.argv[2]
    readme = (source / "README.md").read_text()
    blocks = re.findall(r"^```cmake\n(.*?)^```", readme, re.S | re.M)
    lines = re.findall(r"^```shell\n(.*?)^```", readme, re.S | re.M)
    if len(blocks) != 2 or len(lines) != 1:
        sys.exit(f"README.md has {len(blocks)} blocks of CMake and {len(lines)} of pkg-config; two and one were expected")
    version = ".".join(re.findall(r"^#define QK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", (source / "include/qk/version.hpp").read_text(), re.M))
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        run("configure", "cmake", "-S", source, "-B", at / "build", *generator, f"-DCMAKE_CXX_COMPILER={compiler}", *(f"-DQK_BUILD_{part}=OFF" for part in PARTS))
        run("install", "cmake", "--install", at / "build", "--prefix", at / "first")
        (at / "first").rename(at / "moved here")  # what was installed may be moved, and its place may have a space
        clone = repository(source, at / "clone")
        for number, block in enumerate(blocks):
            app = at / f"app{number}"
            app.mkdir()
            (app / "app.cpp").write_text(PROGRAM)
            head, _, link = block.rpartition("target_link_libraries")
            (app / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\nproject(app CXX)\n{head}add_executable(app app.cpp)\ntarget_link_libraries{link}")
            run(f"README's block {number + 1} of CMake", "cmake", "-S", app, "-B", app / "build", *generator, f"-DCMAKE_CXX_COMPILER={compiler}",
                f"-DCMAKE_PREFIX_PATH={at / 'moved here'}", f"-DQK_REPOSITORY={clone}")
            run(f"README's block {number + 1} of CMake", "cmake", "--build", app / "build")
            run(f"README's block {number + 1} of CMake", app / "build" / "app")
        if not shutil.which("pkg-config"):
            print("pkg-config is not installed: its line was not tried")
            return
        found = next((at / "moved here").rglob("qk.pc"))
        environment = {**os.environ, "PKG_CONFIG_PATH": str(found.parent)}
        said = run("pkg-config", "pkg-config", "--modversion", "qk", env=environment).strip()
        if said != version:
            sys.exit(f"qk.pc has version {said}, version.hpp {version}")
        if str(at / "first") in found.read_text():
            sys.exit("qk.pc names the folder in which qk was installed first")
        (at / "moved here").rename(at / "prefix")  # a shell that takes pkg-config's words apart at spaces
        (at / "app.cpp").write_text(PROGRAM)
        environment["PKG_CONFIG_PATH"] = str(next((at / "prefix").rglob("qk.pc")).parent)
        run("README's line of pkg-config", "bash", "-euc", lines[0].replace("g++", compiler).replace("-O3", "-O1"), cwd=at, env=environment)
        run("README's line of pkg-config", at / "app")
    print(f"version {version}: find_package, FetchContent and pkg-config found it where it was moved to")


main()
