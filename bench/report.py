#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one table (Markdown, standard output) and one SVG plot from bench/kernels and bench/peers.

    build/release/bench/kernels --benchmark_repetitions=5 --benchmark_out=kernels.json --benchmark_out_format=json
    python3 bench/peers.py > peers.json
    python3 bench/report.py kernels.json peers.json --svg docs/results/kernels.svg
"""
import argparse
import json
import statistics
from collections import defaultdict

SIZES = [("256 KiB", 262144), ("8 MiB", 8388608), ("256 MiB", 268435456)]


def medians(path):
    """Returns {name: bytes per second}, the median over repetitions."""
    rates = defaultdict(list)
    # Sorts by order of registration, since random interleaving shuffles benchmarks.
    for b in sorted(json.load(open(path))["benchmarks"], key=lambda b: b.get("family_index", 0)):
        if b.get("run_type", "iteration") == "iteration" and "bytes_per_second" in b:
            rates[b["name"].split("/repeats")[0]].append(b["bytes_per_second"])
    return {name: statistics.median(v) for name, v in rates.items()}


def table(kernels, peers):
    copy = {size: kernels["copy_nt/" + str(size) if size == SIZES[2][1] else "copy/" + str(size)] for _, size in SIZES}
    lines = ["GB/s (and the ratio to the copy). The copy of each column: " +
             ", ".join(f"{copy[size] / 1e9:.0f}" for _, size in SIZES) + ".", ""]
    kinds = ["fake_quantize", "fake_quantize_axis", "encode", "decode"]
    lines.append("| format | " + " | ".join(f"{kind} {label}" for kind in kinds for label, _ in SIZES) + " | best peer, 8 MiB |")
    lines.append("|---|" + "---|" * (len(kinds) * len(SIZES) + 1))
    formats = list(dict.fromkeys(name.split("/")[1] for name in kernels if name.startswith("fake_quantize/")))  # in the catalogue's order
    for f in formats:
        cells = []
        for kind in kinds:
            for _, size in SIZES:
                v = kernels.get(f"{kind}/{f}/{size}")
                cells.append("" if v is None else f"{v / 1e9:.1f} ({v / copy[size]:.2f})")
        rivals = [(v, name.split(":")[0]) for name, v in peers.items() if name.split(":")[1].split("/")[0] == f and name.endswith(f"/{SIZES[1][1]}")]
        best = max(rivals, default=None)
        cells.append("" if best is None else f"{best[0] / 1e9:.2f} ({best[1]})")
        lines.append(f"| {f} | " + " | ".join(cells) + " |")
    return "\n".join(lines), formats, copy


def svg(kernels, peers, formats, copy, path):
    """Draws bars of fake_quantize at 8 MiB and of the best peer, on a logarithmic scale from 0.1 GB/s."""
    import math

    size, row, left, width = SIZES[1][1], 18, 140, 520
    scale = lambda v: max(0.0, math.log10(v / 1e8)) / math.log10(copy[size] * 1.5 / 1e8) * width
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{row * (len(formats) + 3)}" font-family="sans-serif" font-size="11">',
             f'<text x="{left}" y="14">fake_quantize, 8 MiB, one thread, GB/s (logarithmic); dark: qk, light: best peer, line: copy</text>']
    for i, f in enumerate(formats):
        y = row * (i + 1) + 8
        v = kernels.get(f"fake_quantize/{f}/{size}", 0)
        rival = max([p for name, p in peers.items() if name.split(":")[1].split("/")[0] == f and name.endswith(f"/{size}")], default=0)
        beside = f'<rect x="{left}" y="{y + 8}" width="{scale(rival):.0f}" height="5" fill="#9dbbe0"/>' if rival else ""
        parts.append(f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{f}</text><rect x="{left}" y="{y}" width="{scale(v):.0f}" height="8" fill="#28588c"/>{beside}'
                     f'<text x="{left + scale(v) + 4:.0f}" y="{y + 9}">{v / 1e9:.1f}{f" / {rival / 1e9:.2f}" if rival else ""}</text>')
    x = left + scale(copy[size])
    parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="20" y2="{row * (len(formats) + 2)}" stroke="#a33"/></svg>')
    open(path, "w").write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels")
    parser.add_argument("peers", nargs="?")
    parser.add_argument("--svg")
    given = parser.parse_args()
    kernels, peers = medians(given.kernels), medians(given.peers) if given.peers else {}
    text, formats, copy = table(kernels, peers)
    print(text)
    if given.svg:
        svg(kernels, peers, formats, copy, given.svg)


if __name__ == "__main__":
    main()
