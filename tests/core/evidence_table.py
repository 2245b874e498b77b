# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that compare numbers, and writes what they compared into docs/results/data/evidence.json, and a summary of it into
docs/results/evidence.md.

usage: evidence_table.py BUILD_FOLDER [--exhaustive] [--from ROWS.tsv ...]
  --exhaustive   also runs the sweeps over all 2^32 floats
  --from         adds rows that an earlier run recorded (of any test with QK_EVIDENCE=ROWS.tsv in its environment)
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from rows import table, write  # noqa: E402

BEGIN, END = "<!-- evidence: begin -->\n", "<!-- evidence: end -->\n"
ISAS = ["scalar", "SSE2", "SSE4.2", "AVX2+FMA", "-O2 -mfma", "AVX2+FMA, clang", "AVX-512", "NEON"]
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results" / "evidence.md"
DATA = DOCUMENT.parent / "data" / "evidence.json"
COLUMNS = ["evidence", "formats", "inputs", "mismatches"]


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


def read(files, names):
    """Returns the rows, in the catalogue's order: {"evidence", "formats", "inputs": {instruction set: number, of each format}, "mismatches"}. Formats on which
    the same was done share a row."""
    rows = {}
    for file in files:
        for line in pathlib.Path(file).read_text().splitlines():
            name, evidence, isa, inputs, mismatches = line.split("\t")
            if name not in names and not name.startswith("float:... "):
                name = "others"
            row = rows.setdefault((name, evidence), {"format": name, "evidence": evidence, "inputs": {}, "mismatches": 0})
            row["inputs"][isa] = row["inputs"].get(isa, 0) + int(inputs)
            row["mismatches"] += int(mismatches)
    order = {name: i for i, name in enumerate(names)}
    shared = {}
    for row in sorted(rows.values(), key=lambda row: (order.get(row["format"], 1000), row["format"], row["evidence"])):
        same = (row["evidence"], *sorted(row["inputs"].items()), row["mismatches"])
        shared.setdefault(same, {"evidence": row["evidence"], "formats": [], "inputs": row["inputs"], "mismatches": row["mismatches"]})["formats"].append(row["format"])
    return sorted(shared.values(), key=lambda row: row["evidence"])


def summary(rows):
    """Returns a table with a row for each kind of evidence: on how many formats, on which instruction sets, how many inputs."""
    kinds = {}
    for row in rows:
        kind = kinds.setdefault(row["evidence"], [set(), set(), 0, 0])
        kind[0].update(row["formats"])
        kind[1].update(row["inputs"])
        kind[2] += sum(row["inputs"].values()) * len(row["formats"])
        kind[3] += row["mismatches"] * len(row["formats"])
    lines = ["| compared with | formats | by | inputs | mismatches |", "|---|---:|---|---:|---:|"]
    for evidence, (formats, isas, inputs, wrong) in sorted(kinds.items(), key=lambda item: -item[1][2]):
        by = [isa for isa in ISAS if isa in isas] + sorted(isas - set(ISAS))
        lines.append(f"| {evidence} | {len(formats)} | {', '.join(by)} | {human(inputs)} | {wrong} |")
    total = sum(kind[2] for kind in kinds.values())
    return "\n".join(lines) + f"\n\n{total:,} comparisons, {sum(kind[3] for kind in kinds.values())} mismatches.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--from", dest="recorded", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.tsv")
        status = run_tests(options.build, options.exhaustive, rows)
        found = read([rows, *options.recorded], catalogue(options.build))
    write(DATA, {"rows": table(found, COLUMNS)})
    wrong = sum(row["mismatches"] for row in found)
    document = DOCUMENT.read_text()
    head, rest = document.split(BEGIN)
    tail = rest.split(END)[1]
    DOCUMENT.write_text(head + BEGIN + summary(found) + END + tail)
    return 1 if status or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
