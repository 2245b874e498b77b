#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk search --ranking gradient` and `auto` with `measured`: cost of the mix, evaluations and seconds (needs numpy and onnx).

    python3 bench/guided_searches.py QK SHARED_DIR [--only NAME]

The target lies midway between the wide and the narrow model's error. `cost` is the mix's cost as a share of the wide model's.
"""
import argparse
import json
import subprocess
import tempfile

import networks

SAMPLES = {"resnet20": 256, "squeezenet1.1": 16, "kwt1": 32, "magika": 64, "decoder": 16}
PAIRS = (("int16/int8", "int8/int8"), ("int8/int8", "int8/int4"), ("mxfp8_e4m3/mxfp8_e4m3", "mxfp4/mxfp4"))


def search(tool, model, inputs, pair, *more):
    line = [tool, "search", model, "--inputs", inputs, "--wide", pair[0], "--narrow", pair[1], "--json", *more]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("shared")
    parser.add_argument("--only")
    a = parser.parse_args()
    print("| network, samples | formats | ranking | cost | of measured's | evaluations | seconds |")
    print("|---|---|---|---|---|---|---|")
    worse = []
    with tempfile.TemporaryDirectory() as folder:
        for name, samples in SAMPLES.items():
            if a.only and a.only != name:
                continue
            model, inputs = networks.make(name, a.shared, folder, samples)
            for pair in PAIRS:
                ends = search(a.tool, model, inputs, pair, "--target-l2", "1e9")
                middle = (ends["baseline_metric"] + ends["metric"]) / 2
                known = None
                for ranking in ("measured", "gradient", "auto"):
                    r = search(a.tool, model, inputs, pair, "--target-l2", repr(middle), "--ranking", ranking)
                    if r["metric"] > middle:
                        raise SystemExit(f"{name} {pair} {ranking}: {r['metric']} breaks the target {middle}")
                    known = known or r
                    ratio = r["cost"] / known["cost"]
                    if ratio > 1.02:
                        worse.append(f"{name} {pair} {ranking}")
                    print(f"| {name}, {samples} | {pair[0]} to {pair[1]} | {ranking} | {r['cost'] / r['wide_cost']:.3f} | {ratio:.3f} | {r['evaluations']} "
                          f"| {r['seconds']:.2f} |", flush=True)
    print(f"more than 2 % above measured: {', '.join(worse) or 'none'}")


if __name__ == "__main__":
    main()
