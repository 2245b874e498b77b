#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a bar chart as SVG from a file of rows: {"title": ..., "unit": ..., "bars": [["who", "value", "note"], [label, value, note], ...]}; the first
bar is qk's.

    python3 bench/bars.py docs/results/data/search_peers.json docs/results/search.svg
"""
import sys
from html import escape

import rows


def main():
    source, target = sys.argv[1:3]
    chart = rows.read(source)
    bars = chart["bars"][1:]
    most = max(value for _, value, _ in bars)
    lines = [f'<text x="12" y="24" font-weight="bold">{escape(chart["title"])}</text>']
    for i, (label, value, note) in enumerate(bars):
        y = 44 + 30 * i
        width = 430 * value / most
        lines += [f'<text x="150" y="{y + 15}" text-anchor="end">{escape(label)}</text>',
                  f'<rect x="160" y="{y}" width="{max(width, 1):.1f}" height="20" rx="2" fill="{"#c0552b" if i == 0 else "#4a6fa5"}"/>',
                  f'<text x="{168 + width:.1f}" y="{y + 15}">{value:g} {escape(chart["unit"])}{", " + escape(note) if note else ""}</text>']
    height = 54 + 30 * len(bars)
    with open(target, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" font-family="sans-serif" font-size="14">\n'
                   f'<rect width="820" height="{height}" fill="#fff"/>\n' + "\n".join(lines) + "\n</svg>\n")


if __name__ == "__main__":
    main()
