#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a page of the kernels for each machine that was measured.

    build/release/bench/kernels --benchmark_out=run.json --benchmark_out_format=json
    python3 bench/machines.py run.json ...

Each run (of bench/kernels, or of bench/kernels_avx2, which has the AVX2 kernels for any x86-64) becomes a small file in
docs/results/data/machines, one for each processor and instruction set; a newer run replaces an older one. Then writes
docs/results/machines/NAME.md from each of those files; without arguments it does only that.
"""
import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import rows

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
DATA = RESULTS / "data" / "machines"
COPIES = ["copy", "copy_nt"]
KINDS = ["fake_quantize", "fake_quantize_axis", "encode", "decode"]
SIZES = {262144: "256 KiB", 8388608: "8 MiB", 268435456: "256 MiB"}


def cache(c):
    size = c["size"] // 1024
    return f"L{c['level']} {c['type'].lower()} {size // 1024} MiB" if size >= 1024 else f"L{c['level']} {c['type'].lower()} {size} KiB"


def summary(path):
    """Returns what is kept of a run: the machine, and the median rate of each benchmark in GB/s."""
    run = json.loads(Path(path).read_text())
    context, rates = run["context"], defaultdict(list)
    for name in ("processor", "instruction_set", "compiler", "command"):
        if name not in context:
            sys.exit(f"{path}: no '{name}' in its context: it is no run of bench/kernels of this version")
    for b in sorted(run["benchmarks"], key=lambda b: b.get("family_index", 0)):  # by registration: runs are shuffled
        if b.get("run_type", "iteration") == "iteration" and "bytes_per_second" in b:
            rates[b["name"].split("/repeats")[0]].append(b["bytes_per_second"] / 1e9)
    if not any(name.startswith("copy/") for name in rates):
        sys.exit(f"{path}: no copy was measured; --benchmark_filter has to let copy/ and operations/ through")
    return {"processor": context["processor"], "instruction_set": context["instruction_set"], "compiler": context["compiler"], "date": context["date"],
            "processors": context["num_cpus"], "caches": [cache(c) for c in context["caches"]], "command": context["command"],
            **tables({n: round(statistics.median(v), 2) for n, v in rates.items()})}


def tables(rates):
    """Rates by the benchmarks' names, as a table of the copies and one of the formats, both by size, and one of what N operations allow."""
    copies, limits, formats = {}, [], {}
    for name, rate in rates.items():
        kind, *of, size = name.split("/")
        size = int(size)
        if kind == "operations":
            limits.append({"operations": int(of[0]), "bytes": size, "rate": rate})
        elif kind in COPIES:
            copies.setdefault(size, {"bytes": size})[kind] = rate
        elif kind in KINDS:
            formats.setdefault((of[0], size), {"format": of[0], "bytes": size})[kind] = rate
    return {"copies": rows.table(list(copies.values()), ["bytes", *COPIES]), "limits": rows.table(limits, ["operations", "bytes", "rate"]),
            "rates": rows.table(list(formats.values()), ["format", "bytes", *KINDS])}


def slug(s):
    return re.sub(r"[^a-z0-9]+", "_", f"{s['processor']} {s['instruction_set']}".lower()).strip("_")


def keep(s):
    path = DATA / (slug(s) + ".json")
    if path.exists() and rows.read(path)["date"] > s["date"]:
        print(f"{path.name} is newer than this run, and stays")
        return
    DATA.mkdir(parents=True, exist_ok=True)
    rows.write(path, s)


def copy_of(machine, size):
    """Returns the rate of the copy; beyond the caches, that of the copy which bypasses them."""
    return next((copy.get("copy_nt" if size == max(SIZES) else "copy") for copy in rows.of(machine["copies"]) if copy["bytes"] == size), None)


def cell(rate, copy):
    return "" if rate is None or not copy else f"{rate:.1f} ({rate / copy:.2f})"


def page(m):
    """Returns a machine's page: its limits, then for each size a row a format."""
    title = f"{m['processor']}, {m['instruction_set']}"
    lines = [f"# {title}", "", f"{m['processors']} threads; {', '.join(m['caches'])}; {m['compiler']}; measured on {m['date'][:10]} by", "", f"    {m['command']}", "",
             f"Made by `python3 bench/machines.py` from [its run](../data/machines/{slug(m)}.json). GB/s of input plus output on one thread, and the ratio to the copy of "
             "the same run.", ""]
    for size, label in SIZES.items():
        copy = copy_of(m, size)
        if not copy:
            continue
        limits = {limit["operations"]: limit["rate"] for limit in rows.of(m["limits"]) if limit["bytes"] == size}
        lines += [f"## {label}", "", f"The copy: {copy:.1f} GB/s." + (" With N vector operations of no use for each vector, the most that this machine allows: " if limits else "") +
                  ", ".join(f"{n}: {rate / copy:.2f}" for n, rate in sorted(limits.items())) + ("." if limits else ""), ""]
        formats = [row for row in rows.of(m["rates"]) if row["bytes"] == size]
        kinds = [kind for kind in KINDS if any(kind in row for row in formats)]
        lines += ["| | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds)]
        lines += [f"| {row['format']} | " + " | ".join(cell(row.get(kind), copy) for kind in kinds) + " |" for row in formats]
        lines.append("")
    return "\n".join(lines)


def main():
    for path in sys.argv[1:]:
        if path.startswith("-"):
            sys.exit(__doc__)
        keep(summary(path))
    machines = [rows.read(p) for p in sorted(DATA.glob("*.json"))]
    if not machines:
        sys.exit(f"{DATA}: no run yet; give one")
    (RESULTS / "machines").mkdir(exist_ok=True)
    for m in machines:
        path = RESULTS / "machines" / (slug(m) + ".md")
        path.write_text(page(m))
        print(path)


if __name__ == "__main__":
    main()
