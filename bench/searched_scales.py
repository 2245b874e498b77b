# SPDX-License-Identifier: Apache-2.0
"""Measures what searched scales of weights are worth, on trained networks (needs numpy).

    python bench/searched_scales.py build/release/qk ../shared [--only resnet20,kwt1] [--formats nvfp4] [--samples 100] > docs/results/searched_scales.md

Weights alone are quantized, rounded to nearest, with compensation and by adaround, with the scales of the rule, of four over six (blocks that have it),
of the search by squared error, by magnitude, and weighted by what the layers read. Decibels of the output against float32's, and top-1
(agreement with float where there are no labels). Calibrated on the samples behind those that are scored. "decoder" is a GPT of random weights that
the script makes (needs onnx).
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "tests" / "tool")]
import networks  # noqa: E402

# Name: model, samples, labels, how many are scored, how many calibrate.
NETWORKS = {"resnet20": ("resnet20_cifar10_folded", networks.cifar, "cifar10_2000_labels_i64", 300, 64),
            "squeezenet1.1": ("squeezenet1.1_imagenet", networks.imagenet, "imagenet150_labels_i64", 40, 24),
            "kwt1": ("kwt1_mfcc", networks.speech, None, 60, 40),
            "magika": ("magika_v3_3", networks.magika, "magika152_labels_i64", 100, 40),
            "decoder": (None, None, None, 24, 12)}
FORMATS = {"nvfp4": ["--weight", "nvfp4"],
           "mxfp4": ["--weight", "mxfp4"],
           "mxfp6_e2m3": ["--weight", "mxfp6_e2m3"],
           "int4, blocks of 32": ["--weight", "int4", "--weight-block", "32"],
           "uint4, blocks of 32": ["--weight", "uint4", "--weight-block", "32", "--asymmetric-weights"],
           "int4, channels": ["--weight", "int4"],
           "fp4_e2m1, blocks of 32": ["--weight", "fp4_e2m1", "--weight-block", "32"]}
RULES = {"rule": [], "4/6": ["--scale-rule", "four_over_six"], "search": ["--scale-rule", "search"],
         "search, mae": ["--scale-rule", "search", "--scale-objective", "mae"],
         "search, weighted": ["--scale-rule", "search", "--scale-objective", "weighted"]}


def make_files(place, shared, name, count):
    """Returns model, inputs of `count` samples, calibration, and labels or None."""
    file, load, labelled, _, calibrating = NETWORKS[name]
    if name == "decoder":
        import language_models
        language_models.gpt(str(place / "gpt.onnx"), vocabulary=509, hidden=128, layers=4, longest=48)
        texts = np.random.default_rng(6).integers(0, 509, (count + calibrating, 48))
        for part, ids in (("x", texts[:count]), ("c", texts[count:])):
            np.savez(place / f"{part}.npz", input_ids=ids, attention_mask=np.ones_like(ids))
        return place / "gpt.onnx", place / "x.npz", place / "c.npz", None
    x = load(shared / "data")
    x = np.ascontiguousarray(x, x.dtype if x.dtype == np.int32 else np.float32)  # magika reads int32
    np.save(place / "x.npy", x[:count])
    np.save(place / "c.npy", x[-calibrating:])
    if labelled:
        np.save(place / "y.npy", np.load(shared / "data" / (labelled + ".npy"))[:count])
    return shared / "models" / (file + ".onnx"), place / "x.npy", place / "c.npy", place / "y.npy" if labelled else None


def measure(qk, network, arguments):
    model, inputs, calibration, labels = network
    second = "top1" if labels else "agreement"
    if inputs.suffix == ".npz":
        arguments = [*arguments, "--next-token"]
    line = [qk, "evaluate", model, "--inputs", inputs, "--calibration", calibration, "--metric", f"sqnr,{second}", "--approach", "weight_only", "--json", *arguments]
    done = subprocess.run([*map(str, line), *(["--labels", str(labels)] if labels else [])], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(" ".join(map(str, line)) + "\n" + done.stderr)
    found = json.loads(done.stdout)
    return found["sqnr"], 100 * found[second]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("qk")
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("--only", default=",".join(NETWORKS))
    arguments.add_argument("--formats", default=";".join(FORMATS), help="of those in the script, with ; between them")
    arguments.add_argument("--samples", type=int, default=0, help="at most so many of each network are scored")
    arguments.add_argument("--roundings", default="nearest,compensated,adaround")
    arguments.add_argument("--rules", default=";".join(RULES), help="of those in the script, with ; between them")
    arguments.add_argument("--iterations", type=int, default=200, help="steps of adaround for each layer")
    given = arguments.parse_args()
    names, forms, roundings = given.only.split(","), given.formats.split(";"), given.roundings.split(",")
    found = {}
    for name in names:
        count = min(NETWORKS[name][3], given.samples or NETWORKS[name][3])
        with tempfile.TemporaryDirectory() as place:
            network = make_files(Path(place), given.shared, name, count)
            for form in forms:
                for rounding in roundings:
                    for rule, options in RULES.items():
                        if rule not in given.rules.split(";") or rule == "4/6" and not form.startswith(("nv", "mx")):
                            continue
                        steps = ["--iterations", str(given.iterations)] if rounding == "adaround" else []
                        found[form, rounding, rule, name] = measure(given.qk, network, [*FORMATS[form], *options, "--weight-rounding", rounding, *steps])
                        print(name, form, rounding, rule, *found[form, rounding, rule, name], file=sys.stderr, flush=True)
    print("# Searched scales of weights\n\nMade by `python bench/searched_scales.py qk ../shared`: decibels of the output against float32's, and top-1 "
          "(kwt1, decoder: agreement with float), with\nweights alone quantized. The best decibels of a format, rounding and network are bold. "
          + "; ".join(f"{n}: {min(NETWORKS[n][3], given.samples or NETWORKS[n][3])} samples" for n in names)
          + (f"; adaround learned {given.iterations} steps a layer" if "adaround" in roundings else "") + ".\n")
    print("| format | rounding | scales | " + " | ".join(names) + " | mean, dB |\n|---|---|---|" + "---|" * (len(names) + 1))
    for form in forms:
        for rounding in roundings:
            rules = [r for r in RULES if (form, rounding, r, names[0]) in found]
            mean = {r: np.mean([found[form, rounding, r, n][0] for n in names]) for r in rules}
            for rule in rules:
                cells = []
                for n in names:
                    noise, share = found[form, rounding, rule, n]
                    bold = "**" if noise >= max(found[form, rounding, r, n][0] for r in rules) else ""
                    cells.append(f"{bold}{noise:.2f}{bold}, {share:.1f} %")
                bold = "**" if mean[rule] >= max(mean.values()) else ""
                print(f"| {form} | {rounding} | {rule} | " + " | ".join(cells) + f" | {bold}{mean[rule]:.2f}{bold} |")


if __name__ == "__main__":
    main()
