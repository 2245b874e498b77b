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


def slug(s):
    return re.sub(r"[^a-z0-9]+", "_", f"{s['processor']} {s['instruction_set']}".lower()).strip("_")


def keep(s):
    path = DATA / (slug(s) + ".json")
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
        limits = {int(n.split("/")[1]): rate for n, rate in m["limits"].items() if n.endswith(f"/{size}")}
        lines += [f"## {label}", "", f"The copy: {copy:.1f} GB/s." + (" With N vector operations of no use for each vector, the most that this machine allows: " if limits else "") +
                  ", ".join(f"{n}: {rate / copy:.2f}" for n, rate in sorted(limits.items())) + ("." if limits else ""), ""]
        rates = {kind: {n.split("/")[1]: rate for n, rate in m["rates"].items() if n.startswith(kind + "/") and n.endswith(f"/{size}")} for kind in KINDS}
        kinds = [kind for kind in KINDS if rates[kind]]
        lines += ["| | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds)]
        for format in dict.fromkeys(f for kind in kinds for f in rates[kind]):
            lines.append(f"| {format} | " + " | ".join(cell(rates[kind].get(format), copy) for kind in kinds) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    for path in sys.argv[1:]:
        if path.startswith("-"):
            sys.exit(__doc__)
        keep(summary(path))
    machines = [json.loads(p.read_text()) for p in sorted(DATA.glob("*.json"))]
    if not machines:
        sys.exit(f"{DATA}: no run yet; give one")
    (RESULTS / "machines").mkdir(exist_ok=True)
    for m in machines:
        path = RESULTS / "machines" / (slug(m) + ".md")
        path.write_text(page(m))
        print(path)


if __name__ == "__main__":
    main()
