#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps what a benchmark printed in docs/results/data/measurements.json, where the tables behind docs/results/performance.md stand: by title its text,
commands and tables, with a row a line.

    python3 bench/static_int8.py build/release/qk ../shared | python3 bench/keep_measurement.py "Static int8 beside onnxruntime's quantize_static"

A title that is there already is replaced, and stays in its place. docs/results/remake.md says which command makes which.
"""
import re
import sys
from pathlib import Path

import rows

DATA = Path(__file__).resolve().parent.parent / "docs" / "results" / "data" / "measurements.json"


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def blocks(text):
    """Cuts Markdown into paragraphs {"text"}, commands {"run"} and tables: {"columns"}, then each row as a list."""
    found = []
    for part in re.split(r"\n\s*\n", text):
        lines = [line for line in part.strip("\n").split("\n") if line.strip() and not line.startswith("```")]
        while lines:
            table = []
            while lines and lines[0].lstrip().startswith("|"):
                table.append(cells(lines.pop(0)))
            if table:
                found += [{"columns": table[0]}, *(row for row in table[1:] if not all(re.fullmatch(r":?-+:?", cell) for cell in row))]
            plain = []
            while lines and not lines[0].lstrip().startswith("|"):
                plain.append(lines.pop(0))
            if plain and all(line.startswith("    ") for line in plain):
                found.append({"run": "\n".join(line.strip() for line in plain)})
            elif plain:
                found.append({"text": " ".join(line.strip() for line in plain)})
    return found


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    found = blocks(sys.stdin.read())
    if not found:
        sys.exit("nothing was printed; nothing was kept")
    rows.write(DATA, (rows.read(DATA) if DATA.exists() else {}) | {sys.argv[1]: found})


main()
