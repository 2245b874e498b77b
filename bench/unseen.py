# SPDX-License-Identifier: Apache-2.0
"""Asks whether what `qk quantize` prints comes true on samples that it never saw (needs numpy, onnx, onnxruntime).

    python bench/unseen.py build/release/qk ../shared [--splits 4] [--only resnet20,kwt1] [--formats int8,mxfp4] [--given 32]

For each network, format and random split: `--given` samples quantize the network, once plainly and once with --recipe fast; both files run in
onnxruntime on the others. Printed per row: unseen decibels of both, the decibels and the spread that the plain command printed, whether the unseen
ones lie within it, and top-1 (without labels: agreement with the float network) of both with its standard error. The last lines count the rows in
which the unseen decibels lie within the printed spread, and those in which the plain command is more than half a decibel, or a standard error of
top-1, below fast. Networks: resnet20, squeezenet1.1, kwt1, magika, mnist-8 and ultraface (on crops) of ../shared, the digits of the examples, a
densenet121 and a transformer with random weights.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parent))
import networks  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
FORMATS = {"int8": ["--activation", "int8", "--weight", "int8"],
           "int8/int4": ["--activation", "int8", "--weight", "int4"],
           "int4 blocks": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"],
           "mxfp4": ["--activation", "mxfp4", "--weight", "mxfp4"],
           "nvfp4": ["--activation", "nvfp4", "--weight", "nvfp4"]}


def crops(data):
    """Crops of the ImageNet images as ultraface takes them: 240 x 320, of two images side by side."""
    x = np.load(data / "imagenet150_images_227_u8_nhwc.npy").astype(np.float32)
    wide = np.concatenate([x, np.roll(x, 1, axis=0)], axis=2)[:, :, :320]
    tall = np.concatenate([wide, wide[:, :13]], axis=1)
    return ((tall - 127) / 128).transpose(0, 3, 1, 2)


def network(name, shared, folder):
    """Returns the model's path, its samples (by input), and labels or None."""
    data = shared / "data"
    if name == "digits":
        here = ROOT / "examples" / "digits"
        return here / "digits.onnx", np.load(here / "test_images.npy"), np.load(here / "test_labels.npy")
    if name == "mnist-8":
        x = np.load(data / "mnist_t10k_2000_images_u8.npy").astype(np.float32).reshape(-1, 1, 28, 28)
        return shared / "models" / "mnist-8.onnx", x, np.load(data / "mnist_t10k_2000_labels_i64.npy")
    if name == "ultraface":
        return shared / "models" / "ultraface_version-RFB-320_simplified.onnx", crops(data), None
    model, inputs = networks.make(name, shared, folder, 2000)
    x = np.load(inputs)
    labels = {"resnet20": "cifar10_2000_labels_i64.npy", "squeezenet1.1": "imagenet150_labels_i64.npy"}.get(name)
    return Path(model), x, np.load(data / labels) if labels else None


def picked(x, which):
    if isinstance(x, np.lib.npyio.NpzFile):
        return {name: x[name][which] for name in x.files}
    return x[which]


def outputs(model, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    first = session.get_inputs()[0]
    feeds = x if isinstance(x, dict) else {first.name: x}
    count = len(next(iter(feeds.values())))
    fixed = isinstance(first.shape[0], int)
    step = first.shape[0] if fixed else 64
    parts = [session.run(None, {k: v[i:i + step] for k, v in feeds.items()}) for i in range(0, count, step)]
    types = [o.type for o in session.get_outputs()]
    which = next(i for i, t in enumerate(types) if "float" in t)
    return np.concatenate([p[which] for p in parts]).astype(np.float64)


def quantized(qk, model, data, out, how):
    done = subprocess.run([qk, "quantize", model, "-o", out, "--overwrite", "--calibration", data, "--json", *how], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, done.args))}: {done.stderr}")
    return json.loads(done.stdout)


def saved(x, path):
    if isinstance(x, dict):
        np.savez(path.with_suffix(".npz"), **x)
        return path.with_suffix(".npz")
    np.save(path.with_suffix(".npy"), np.ascontiguousarray(x, x.dtype if x.dtype == np.int32 else np.float32))
    return path.with_suffix(".npy")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("qk")
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("--splits", type=int, default=4)
    arguments.add_argument("--given", type=int, default=32)
    arguments.add_argument("--most", type=int, default=400, help="unseen samples at most")
    arguments.add_argument("--only", default="resnet20,squeezenet1.1,kwt1,magika,mnist-8,ultraface,digits,densenet121,decoder")
    arguments.add_argument("--formats", default=",".join(FORMATS))
    given = arguments.parse_args()
    within = rows = below = 0
    print("| network | format | fast, unseen dB | plain, unseen dB | printed (95 %) | within | top-1 fast | top-1 plain | steps |\n|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name in given.only.split(","):
            model, x, labels = network(name, given.shared, folder)
            count = len(x[x.files[0]]) if isinstance(x, np.lib.npyio.NpzFile) else len(x)
            for split in range(given.splits):
                order = np.random.default_rng(100 + split).permutation(count)
                seen, unseen = order[:given.given], order[given.given:given.given + given.most]
                data, others = saved(picked(x, seen), folder / "given"), picked(x, unseen)
                plain = outputs(model, others)
                choice = labels[unseen] if labels is not None else plain.reshape(len(unseen), -1).argmax(1)
                for text in given.formats.split(","):
                    files = {}
                    for recipe in ("fast", "plain"):
                        how = [*FORMATS[text], *(["--recipe", "fast"] if recipe == "fast" else [])]
                        told = quantized(given.qk, model, data, folder / f"{recipe}.onnx", how)
                        y = outputs(folder / f"{recipe}.onnx", others)
                        decibels = 10 * np.log10((plain ** 2).sum() / max(((y - plain) ** 2).sum(), 1e-300))
                        right = (y.reshape(len(unseen), -1).argmax(1) == choice).mean()
                        files[recipe] = decibels, right, told
                    (a, top_a, _), (b, top_b, told) = files["fast"], files["plain"]
                    said = told["measured"]
                    low, high = (said[k] if said[k] is not None else float("nan") for k in ("low", "high"))
                    inside = low <= b <= high
                    error = np.sqrt(max(top_a * (1 - top_a), 1e-9) / len(unseen))
                    worse = b < a - 0.5 or (name != "ultraface" and top_b < top_a - error)
                    rows, within, below = rows + 1, within + inside, below + worse
                    print(f"| {name} | {text} | {a:.2f} | {b:.2f}{' below' if worse else ''} | {said['sqnr']:.2f} ({low:.1f} to {high:.1f}) | "
                          f"{'yes' if inside else 'no'} | {top_a:.3f} | {top_b:.3f} | {'; '.join(told['recipe']['steps']) or 'none'} |", flush=True)
    print(f"\nwithin the printed spread: {within} of {rows}; plain below fast: {below} of {rows}")


if __name__ == "__main__":
    main()
