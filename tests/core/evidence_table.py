# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that compare numbers, and writes what they compared into docs/results/evidence.md.

usage: evidence_table.py BUILD_FOLDER [--exhaustive] [--from ROWS.tsv ...]
  --exhaustive   also runs the sweeps over all 2^32 floats
  --from         adds rows that an earlier run recorded (of any test with QK_EVIDENCE=ROWS.tsv in its environment)
"""
import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- evidence: begin -->\n", "<!-- evidence: end -->\n"
ISAS = ["scalar", "SSE2", "SSE4.2", "AVX2+FMA", "-O2 -mfma", "AVX2+FMA, clang", "AVX-512", "NEON"]
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results" / "evidence.md"


def catalogue(build):
    """Returns the names of the catalogue in its order."""
    header = (DOCUMENT.parents[2] / "include/qk/formats/catalogue.hpp").read_text()
    return [line.split('"')[1] for line in header.splitlines() if line.startswith('    {"')]


def run_tests(build, exhaustive, rows):
    wanted = "goldens_test|kernel_test|ml_dtypes_evidence" + ("|exhaustive" if exhaustive else "")
    done = subprocess.run(["ctest", "--test-dir", str(build), "-R", f"^({wanted})", "-j", str(os.cpu_count())], env={**os.environ, "QK_EVIDENCE": rows}, check=False)
    return done.returncode


def human(count):
    if count >= 2**32 and count % 2**32 == 0:
        return "2^32" if count == 2**32 else f"{count // 2**32} x 2^32"
    return f"{count:,}"


def table(files, names):
    cells = collections.defaultdict(lambda: [0, 0])
    others = set()
    for file in files:
        for line in pathlib.Path(file).read_text().splitlines():
            name, evidence, isa, inputs, mismatches = line.split("\t")
            if name not in names and not name.startswith("float:... "):
                others.add(name)
                name = "others"
            cell = cells[name, evidence, isa]
            cell[0] += int(inputs)
            cell[1] += int(mismatches)
    isas = [isa for isa in ISAS if any(key[2] == isa for key in cells)] + sorted({key[2] for key in cells} - set(ISAS))
    order = {name: i for i, name in enumerate(names)}
    keys = sorted({key[:2] for key in cells}, key=lambda k: (order.get(k[0], 1000), k[0], k[1]))
    lines = ["| format | evidence | " + " | ".join(isas) + " | mismatches |", "|---|---|" + "---:|" * (len(isas) + 1)]
    for name, evidence in keys:
        row = [cells.get((name, evidence, isa)) for isa in isas]
        wrong = sum(cell[1] for cell in row if cell)
        lines.append(f"| {name} | {evidence} | " + " | ".join(human(cell[0]) if cell else "" for cell in row) + f" | {wrong} |")
    total = sum(cell[0] for cell in cells.values())
    wrong = sum(cell[1] for cell in cells.values())
    lines.append(f"\n{total:,} comparisons, {wrong} mismatches. `others`: {len(others)} formats beyond the catalogue (`tests/core/test_formats.hpp`).")
    return "\n".join(lines) + "\n", wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--from", dest="recorded", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.tsv")
        status = run_tests(options.build, options.exhaustive, rows)
        text, wrong = table([rows, *options.recorded], catalogue(options.build))
    document = DOCUMENT.read_text()
    head, rest = document.split(BEGIN)
    tail = rest.split(END)[1]
    DOCUMENT.write_text(head + BEGIN + text + END + tail)
    return 1 if status or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
