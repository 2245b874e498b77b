#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configures the preset release in a copy of the sources, with a new source in every folder of src/graph, and reads compile_commands.json.

    python3 tests/house/build_rules_test.py SOURCE_FOLDER

Nothing of ours may be compiled at -O0, -O1 or -Og, and each new source gets -O2 or -O3 although no CMake list names it.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COPIED = ["CMakeLists.txt", "CMakePresets.json", "cmake", "src", "include", "tools", "tests", "bench", "examples", "python", "LICENSE"]


def level(command):
    """Returns the optimisation level that wins: the last on the command line."""
    found = re.findall(r"\s-O(\S*)", command)
    return found[-1] if found else ""


def main():
    root = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "qk"
        copy.mkdir()
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name)
            elif (root / name).exists():
                shutil.copy(root / name, copy / name)
        added = [place / "added_by_a_test.cpp" for place in sorted((copy / "src/graph").rglob("*")) if place.is_dir()]
        for source in added:
            source.write_text("// SPDX-License-Identifier: Apache-2.0\n")
        done = subprocess.run(["cmake", "--preset", "release", "-DQK_TOGETHER=1"], cwd=copy, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"cmake --preset release failed:\n{done.stderr}")
        commands = json.loads((copy / "build/release/compile_commands.json").read_text())
    levels = {entry["file"]: level(entry["command"]) for entry in commands}
    wrong = [f"{file}: -O{of}" for file, of in sorted(levels.items()) if of not in ("2", "3") and not file.endswith(".c")]
    wrong += [f"{source}: not compiled" for source in map(str, added) if source not in levels]
    print("\n".join(w.replace(str(copy) + "/", "") for w in wrong))
    print(f"{len(commands)} compilations, {len(added)} sources added, {len(wrong)} wrong")
    sys.exit(1 if wrong or not added else 0)


if __name__ == "__main__":
    main()
