#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps what a benchmark printed in docs/results/data/measurements.json: by title its text, commands and tables.

    python3 bench/portable.py build/release/qk ../shared | python3 bench/keep_measurement.py "Every format in onnxruntime"
    python3 bench/keep_measurement.py --page PAGE.md     every heading of a page with what stands below it

A title that is there already is replaced, and stays in its place. docs/results/remake.md says which command makes which.
"""
import json
import re
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "docs" / "results" / "data" / "measurements.json"


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def blocks(text):
    """Cuts Markdown into paragraphs {"text"}, commands {"run"} and tables {"columns", "rows"}."""
    found = []
    for part in re.split(r"\n\s*\n", text):
        lines = [line for line in part.strip("\n").split("\n") if line.strip() and not line.startswith("```")]
        while lines:
            rows = []
            while lines and lines[0].lstrip().startswith("|"):
                rows.append(cells(lines.pop(0)))
            if rows:
                found.append({"columns": rows[0], "rows": [row for row in rows[1:] if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]})
            plain = []
            while lines and not lines[0].lstrip().startswith("|"):
                plain.append(lines.pop(0))
            if plain and all(line.startswith("    ") for line in plain):
                found.append({"run": "\n".join(line.strip() for line in plain)})
            elif plain:
                found.append({"text": " ".join(line.strip() for line in plain)})
    return found


def main():
    given = sys.argv[1:]
    if given[:1] == ["--page"] and len(given) == 2:
        parts = re.split(r"^#+ +(.+)\n", Path(given[1]).read_text(), flags=re.M)
        new = dict(zip(parts[1::2], parts[2::2]))
    elif len(given) == 1 and not given[0].startswith("-"):
        new = {given[0]: sys.stdin.read()}
    else:
        sys.exit(__doc__)
    kept = json.loads(DATA.read_text()) if DATA.exists() else {}
    for title, text in new.items():
        found = blocks(text)
        if not found:
            sys.exit(f"{title}: nothing stands below this title; nothing was kept")
        kept[title] = found
    DATA.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(new)} of {len(kept)} titles of {DATA} are new")


main()
