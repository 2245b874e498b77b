# SPDX-License-Identifier: Apache-2.0
"""Tests mixes for a two-point top-1 drop: are they smaller than uniform formats, and do no other orders beat the front? (needs numpy)

    python bench/mixes.py build/release/bench/mixes SHARED_DIR [--draws 3] [--only NAME] [--json FILE]

SHARED_DIR holds models/ and data/. Each draw splits the samples at random: the search sees one part, and the mix is measured on the other.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import networks


def cifar(data):
    return np.ascontiguousarray(networks.cifar(data), np.float32), np.load(data / "cifar10_2000_labels_i64.npy")


def imagenet(data):
    return np.ascontiguousarray(networks.imagenet(data), np.float32), np.load(data / "imagenet150_labels_i64.npy")


def magika(data):
    return networks.magika(data), np.load(data / "magika152_labels_i64.npy")


# Name, model, data, samples that the search sees (the rest is held out).
NETWORKS = [("resnet20", "resnet20_cifar10_folded.onnx", cifar, 500), ("squeezenet1.1", "squeezenet1.1_imagenet.onnx", imagenet, 100),
            ("magika", "magika_v3_3.onnx", magika, 100)]
PAIRS = [("int8/int8", "int8/int4"), ("mx9/mx9", "mx4/mx4")]


def kib(size):
    return f"{size / 1024:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("shared", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--drop", type=float, default=0.02)
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path, help="every figure, a list of objects")
    a = parser.parse_args()
    print("| network | formats | draw | float | smallest uniform, KiB | mix, KiB | its top-1 | held out: float, mix | Quark's order, KiB | random order, KiB | points of both beyond the front |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    everything = []
    for name, model, load, seen in NETWORKS:
        if a.only and a.only != name:
            continue
        x, y = load(a.shared / "data")
        for wide, narrow in PAIRS:
            for draw in range(a.draws):
                order = np.random.default_rng(draw).permutation(len(x))
                with tempfile.TemporaryDirectory() as folder:
                    files = []
                    for part in (order[:seen], order[seen:]):
                        for values in (x[part], y[part].astype(np.int64)):
                            files.append(f"{folder}/{len(files)}.npy")
                            np.save(files[-1], values)
                    run = subprocess.run([a.program, a.shared / "models" / model, *files, wide, narrow, str(a.drop), str(draw)], capture_output=True, text=True)
                if run.returncode:
                    sys.exit(run.stderr)
                r = json.loads(run.stdout)
                everything.append({"network": name, "wide": wide, "narrow": narrow, "draw": draw, **r})
                fits = {n: u["cost"] for n, u in r["uniform"].items() if u["metric"] >= r["target"]}
                uniform = min(fits, key=fits.get) if fits else None
                print(f"| {name} | {wide} to {narrow} | {draw + 1} | {r['float']:.3f} | {uniform + ': ' + kib(fits[uniform]) if uniform else 'none'} | {kib(r['mix']['cost'])} ({r['mix']['strategy']}) | "
                      f"{r['mix']['metric']:.3f} | {r['held_out']['float']:.3f}, {r['held_out']['mix']:.3f} | {kib(r['ascending']['cost'])} | {kib(r['random']['cost'])} | "
                      f"{r['ascending']['beyond_front']} and {r['random']['beyond_front']} of {r['ascending']['points']} |", flush=True)
    if a.json:
        a.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
