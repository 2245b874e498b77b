#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk gradient` on one thread with the evaluator's forward pass: milliseconds a sample, and peak memory (needs numpy and onnx).

    python3 bench/gradient_speed.py QK SHARED_DIR [--turns 3]

Runs of few and of many samples take turns. The difference of their least times gives the time of a sample, without one-time preparation.
The peak includes the samples and the file.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import networks

SAMPLES = {"resnet20": (64, 256), "squeezenet1.1": (4, 16), "kwt1": (16, 112), "densenet121": (2, 8)}


def peak_memory(line):
    """Returns the peak memory of a command in MiB; its seconds are measured without this wrapper."""
    done = subprocess.run(["/usr/bin/env", "python3", "-c", "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
                           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)", *line], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("shared")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only")
    a = parser.parse_args()
    print("| network | evaluator | forward with a tape | backward | backward / evaluator | backward / forward with a tape | peak memory, MB, one sample at a time |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (few, many) in SAMPLES.items():
            if a.only and a.only != name:
                continue
            model, inputs = networks.make(name, a.shared, folder, many)
            vector = str(Path(folder) / "v.npy")
            shared = [model, "--inputs", inputs, "--threads", "1", "--json"]
            outputs = json.loads(subprocess.run([a.tool, "inspect", model, "--json"], capture_output=True, text=True, check=True).stdout)["outputs"][0]["shape"][1:]

            def run(verb, samples, key):
                line = [a.tool, verb, *shared, "--samples", str(samples)]
                if verb == "gradient":
                    np.save(vector, np.random.default_rng(0).normal(size=(samples, *outputs)).astype(np.float32))
                    line += ["--vector", vector, "-o", str(Path(folder) / "g.npz"), "--overwrite"]
                found = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
                return [found[k] for k in key], line

            best = {}
            for _ in range(a.turns):
                for samples in (few, many):
                    for verb, keys in (("evaluate", ["seconds"]), ("gradient", ["forward_seconds", "backward_seconds"])):
                        seconds, _ = run(verb, samples, keys)
                        for key, value in zip(keys, seconds):
                            best[key, samples] = min(value, best.get((key, samples), value))
            each = {key: 1000 * (best[key, many] - best[key, few]) / (many - few) for key in ("seconds", "forward_seconds", "backward_seconds")}
            e, f, b = each.values()
            memory = peak_memory(run("gradient", few, ["seconds"])[1])
            print(f"| {name} | {e:.2f} ms | {f:.2f} ms | {b:.2f} ms | {b / e:.1f} | {b / f:.1f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
