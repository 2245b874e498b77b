# SPDX-License-Identifier: Apache-2.0
"""Measures the four rules by which MX blocks choose their scales, on trained networks (needs numpy).

    python bench/scale_rules.py build/release/qk ../shared [--only resnet20,kwt1] [--formats mxfp4] [--samples 100] > docs/results/scale_rules.md

Runs each network with activations and weights in an MX format under each rule, and with weights alone, and compares with the float outputs:
decibels, and top-1 where there are labels (agreement with float where there are none). The page that is printed says which rule each format
has where a model names none; tests/graph/defaults_test.cpp holds the command to it.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import networks  # noqa: E402

RULES = ["floor", "ceil", "even", "rceil"]
FORMATS = ["mxint8", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"]


def digits(data):
    return np.load(data / "mnist_t10k_2000_images_u8.npy").reshape(-1, 1, 28, 28)


def pictures(data):
    """The photographs of another network, 240 x 320 by repeating pixels: pictures as the detector reads them, though few show a face."""
    x = np.load(data / "imagenet150_images_227_u8_nhwc.npy").astype(np.float32)
    return ((x[:, np.arange(240) * 227 // 240][:, :, np.arange(320) * 227 // 320] - 127) / 128).transpose(0, 3, 1, 2)


# Name: model, samples, labels, how many samples are run.
NETWORKS = {"resnet20": ("resnet20_cifar10_folded", networks.cifar, "cifar10_2000_labels_i64", 300),
            "squeezenet1.1": ("squeezenet1.1_imagenet", networks.imagenet, "imagenet150_labels_i64", 30),
            "kwt1": ("kwt1_mfcc", networks.speech, None, 60),
            "mnist-8": ("mnist-8", digits, "mnist_t10k_2000_labels_i64", 300),
            "ultraface": ("ultraface_version-RFB-320_simplified", pictures, None, 6),
            "magika": ("magika_v3_3", networks.magika, "magika152_labels_i64", 100)}


def measure(qk, model, inputs, labels, arguments):
    """Returns decibels, and top-1 or agreement in per cent."""
    second = "top1" if labels else "agreement"
    line = [qk, "evaluate", model, "--inputs", inputs, "--metric", f"sqnr,{second}", "--json", *arguments]
    done = subprocess.run([*map(str, line), *(["--labels", str(labels)] if labels else [])], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(" ".join(map(str, line)) + "\n" + done.stderr)
    found = json.loads(done.stdout)
    return found["sqnr"], 100 * found[second]


def table(title, found, names):
    """Prints a table of {format: {rule: {network: (dB, share)}}}; the best decibels of a row and network are bold."""
    print(f"\n## {title}\n\n| format | rule | " + " | ".join(names) + " | mean, dB |\n|---|---|" + "---|" * (len(names) + 1))
    for form, rules in found.items():
        mean = {rule: np.mean([rules[rule][n][0] for n in names]) for rule in RULES}
        for rule in RULES:
            cells = []
            for n in names:
                noise, share = rules[rule][n]
                best = noise >= max(rules[r][n][0] for r in RULES)
                cells.append(f"{'**' if best else ''}{noise:.2f}{'**' if best else ''}, {share:.1f} %")
            bold = "**" if mean[rule] >= max(mean.values()) else ""
            print(f"| {form} | {rule} | " + " | ".join(cells) + f" | {bold}{mean[rule]:.2f}{bold} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("qk")
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("--only", default=",".join(NETWORKS))
    arguments.add_argument("--formats", default=",".join(FORMATS))
    arguments.add_argument("--samples", type=int, default=0, help="at most so many of each network")
    given = arguments.parse_args()
    names, forms = given.only.split(","), given.formats.split(",")
    both, alone = ({f: {r: {} for r in RULES} for f in forms} for _ in range(2))
    for name in names:
        file, load, labelled, count = NETWORKS[name]
        count = min(count, given.samples or count)
        with tempfile.TemporaryDirectory() as place:
            x = load(given.shared / "data")[:count]
            inputs, labels = Path(place) / "x.npy", Path(place) / "y.npy" if labelled else None
            np.save(inputs, np.ascontiguousarray(x, x.dtype if x.dtype == np.int32 else np.float32))
            if labelled:
                np.save(labels, np.load(given.shared / "data" / (labelled + ".npy"))[:count])
            model = given.shared / "models" / (file + ".onnx")
            for form in forms:
                for rule in RULES:
                    how = [model, inputs, labels]
                    both[form][rule][name] = measure(given.qk, *how, ["--activation", form, "--weight", form, "--scale-rule", rule])
                    alone[form][rule][name] = measure(given.qk, *how, ["--approach", "weight_only", "--weight", form, "--scale-rule", rule])
                    print(name, form, rule, both[form][rule][name], alone[form][rule][name], file=sys.stderr, flush=True)
    print("# Rules for the scales of MX blocks\n\nMade by `python bench/scale_rules.py qk ../shared`: decibels of the output against float32's, and top-1 "
          "(kwt1 and ultraface: agreement with float).\nWhere a model's request names no rule, `mxfp4` and `mxfp6_e2m3` (elements of two exponent bits) take `even`, other MX floats "
          "`rceil`, and `mxint8` takes\n`floor`: the highest mean over the networks, or as high as the highest within 0.03 dB.")
    table("Activations and weights", both, names)
    table("Weights alone", alone, names)


if __name__ == "__main__":
    main()
