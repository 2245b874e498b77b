#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which share of each room's lines the tests ran, after

    cmake --preset coverage && cmake --build --preset coverage && ctest --preset coverage -LE exhaustive
    python3 tests/coverage.py build/coverage [--json] [--files ROOM]

A line counts as run if any program ran it; a line of a template that nobody instantiates does not count. --files lists a room's files, those
with the most lines that never ran first.
"""
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def room_of(path):
    """Returns include/qk/graph/ROOM and src/graph/ROOM as graph/ROOM, and other folders of include/qk, src and tools likewise."""
    parts = path.split("/")
    folders = parts[2:-1] if path.startswith("include/qk/") else parts[1:-1] if parts[0] in ("src", "tools") else None
    if folders is None:
        return None
    return parts[0] if parts[0] == "tools" else "/".join(folders[:2]) if folders[:1] in (["graph"], ["kernels"], ["codec"]) else "/".join(folders[:1]) or "core"


def counted(data):
    """Returns {path: {line: whether it ran}} of one object file's counts."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", data.name], cwd=data.parent, capture_output=True, text=True)
    found = {}
    for text in done.stdout.split("\n"):
        if not text.startswith("{"):
            continue
        for file in json.loads(text)["files"]:
            path = Path(file["file"])
            path = (data.parent / path).resolve() if not path.is_absolute() else path.resolve()
            if path.is_relative_to(SOURCE) and room_of(str(path.relative_to(SOURCE))):
                lines = found.setdefault(str(path.relative_to(SOURCE)), {})
                for line in file["lines"]:
                    lines[line["line_number"]] = lines.get(line["line_number"], False) or line["count"] > 0
    return found


def main():
    words = [w for w in sys.argv[1:] if w != "--json"]
    if not words or (len(words) != 1 and (len(words) != 3 or words[1] != "--files")):
        sys.exit(__doc__)
    counts = sorted(Path(words[0]).resolve().rglob("*.gcda"))
    if not counts:
        sys.exit(f"{words[0]}: no .gcda files: build the preset coverage and run its tests first")
    files = {}
    with ThreadPoolExecutor() as pool:
        for found in pool.map(counted, counts):
            for path, lines in found.items():
                into = files.setdefault(path, {})
                for line, ran in lines.items():
                    into[line] = into.get(line, False) or ran
    rows = {}
    for path, lines in sorted(files.items()):
        key = path if len(words) == 3 and room_of(path) == words[2] else room_of(path) if len(words) == 1 else None
        if key:
            row = rows.setdefault(key, [0, 0])
            row[0] += sum(lines.values())
            row[1] += len(lines)
    order = sorted(rows.items(), key=lambda r: r[1][0] - r[1][1]) if len(words) == 3 else sorted(rows.items())
    if "--json" in sys.argv:
        print(json.dumps([{"room": name, "ran": ran, "lines": all_} for name, (ran, all_) in order], indent=1))
        return
    total = [sum(r[0] for r in rows.values()), sum(r[1] for r in rows.values())]
    for name, (ran, all_) in [*order, ("together", total)]:
        print(f"{name:<48}{ran:>8} of {all_:>6}{100 * ran / max(1, all_):>8.1f} %")


main()
