#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tables of the kernels on all measured machines, side by side.

    build/release/bench/kernels --benchmark_out=run.json --benchmark_out_format=json
    python3 bench/machines.py run.json ...

Each run (of bench/kernels, or of bench/kernels_avx2, which has the AVX2 kernels for any x86-64) becomes a small file in
docs/results/data/machines, one for each processor and instruction set; a newer run replaces an older one. Then writes
docs/results/machines.md from all of those files; without arguments it does only that.
"""
import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
DATA = RESULTS / "data" / "machines"
LIMITS = "operations"
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
            "limits": {n: round(statistics.median(v), 2) for n, v in rates.items() if n.startswith(LIMITS)},
            "rates": {n: round(statistics.median(v), 2) for n, v in rates.items() if not n.startswith(LIMITS)}}


def keep(s):
    slug = re.sub(r"[^a-z0-9]+", "_", f"{s['processor']} {s['instruction_set']}".lower()).strip("_")
    path = DATA / (slug + ".json")
    if path.exists() and json.loads(path.read_text())["date"] > s["date"]:
        print(f"{path.name} is newer than this run, and stays")
        return
    DATA.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(s, indent=1) + "\n")


def copy_of(machine, size):
    """Returns the rate of the copy; beyond the caches, that of the copy which bypasses them."""
    rates = machine["rates"]
    return rates.get(f"copy_nt/{size}" if size == max(SIZES) else f"copy/{size}")


def cell(rate, copy):
    return "" if rate is None or not copy else f"{rate:.1f} ({rate / copy:.2f})"


def table(machines, rows):
    """Returns a table's lines; rows are (label, function from a machine to (rate, copy))."""
    lines = ["| | " + " | ".join(m["title"] for m in machines) + " |", "|---|" + "---|" * len(machines)]
    for label, of in rows:
        cells = [cell(*of(m)) for m in machines]
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def page(machines):
    for m in machines:
        m["title"] = f"{m['processor']}, {m['instruction_set']}"
    lines = ["# The kernels on every machine measured", "",
             "Made by `python3 bench/machines.py` from [data/machines](data/machines); nobody writes a figure here by hand. GB/s of input plus output (and the "
             "ratio to the copy of the same run), one thread. `operations/N` is a copy that does N vector operations of no use with every vector: what the "
             "machine allows.", "",
             "| machine | caches | compiler | run | command |", "|---|---|---|---|---|"]
    for m in machines:
        lines.append(f"| {m['title']} ({m['processors']} threads) | {', '.join(m['caches'])} | {m['compiler']} | {m['date'][:10]} | `{m['command']}` |")
    for size, label in SIZES.items():
        here = [m for m in machines if copy_of(m, size)]
        if not here:
            continue
        lines += ["", f"## {label}", ""]
        limits = sorted({n for m in here for n in m["limits"] if n.endswith(f"/{size}")}, key=lambda n: int(n.split("/")[1]))
        lines += table(here, [("copy", lambda m: (copy_of(m, size), copy_of(m, size)))] +
                       [(n.rsplit("/", 1)[0], lambda m, n=n: (m["limits"].get(n), copy_of(m, size))) for n in limits])
        for kind in KINDS:
            formats = list(dict.fromkeys(n.split("/")[1] for m in here for n in m["rates"] if n.startswith(kind + "/") and n.endswith(f"/{size}")))
            if formats:
                lines += ["", f"### {kind}, {label}", ""]
                lines += table(here, [(f, lambda m, f=f, kind=kind: (m["rates"].get(f"{kind}/{f}/{size}"), copy_of(m, size))) for f in formats])
    return "\n".join(lines) + "\n"


def main():
    for path in sys.argv[1:]:
        if path.startswith("-"):
            sys.exit(__doc__)
        keep(summary(path))
    machines = [json.loads(p.read_text()) for p in sorted(DATA.glob("*.json"))]
    if not machines:
        sys.exit(f"{DATA}: no run yet; give one")
    (RESULTS / "machines.md").write_text(page(machines))
    print(RESULTS / "machines.md")


if __name__ == "__main__":
    main()
