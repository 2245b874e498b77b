# SPDX-License-Identifier: Apache-2.0
"""Exports every format of the catalogue on resnet20, and four on two more networks of the folders of data (../shared, build/PRESET/test_data), by `qk quantize --export portable`; compares ONNX
Runtime with `qk evaluate --plan`.

usage: portable.py QK FOLDER... [--samples N] [--formats A,B,...] [--networks A,B,...] [--weights packed|float] [--optimizer]
Prints a Markdown table: top-1 of both, their differences, size of the file, what ONNX Runtime did with it. Exit status 1 if one disagrees.
A sample's error is its largest difference over the largest reference output, D that of the quantized from the float outputs. The median may
be max(1e-3, D / 2) (resnet20: 1e-3), the maximum max(5e-2, D); top-1 must be equal on 97 % of 100 samples or more; 8-bit integers may lose
1 dB more with the optimizer than without it.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
try:
    import onnxruntime
    from evidence import runtimes as onnxruntime_runs
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

NETWORKS = {
    "resnet20_cifar10_folded": {"images": "cifar10_2000_images_u8_nhwc.npy", "labels": "cifar10_2000_labels_i64.npy",
                                "prepare": lambda x: (x[..., :].astype(np.float32) / 255 - np.array([0.485, 0.456, 0.406], np.float32)) / np.array([0.229, 0.224, 0.225], np.float32)},
    "squeezenet1.1_imagenet": {"images": "imagenet150_images_227_u8_nhwc.npy", "labels": "imagenet150_labels_i64.npy",
                               "prepare": lambda x: x[..., ::-1].astype(np.float32) - np.array([104, 117, 123], np.float32)},
    "resnet20_made_folded": {"images": None},
    "kwt1_mfcc": {"images": "speech_mfcc_119x98x40_f32.npy", "labels": None, "prepare": None},
}
FEW = ["int8", "bfp16", "mxfp8_e4m3", "mx6"]


def qk(*arguments):
    done = subprocess.run([options.qk, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("qk " + " ".join(map(str, arguments)) + "\n" + done.stdout + done.stderr)
    return done.stdout


def evaluate(model, data, folder, *more):
    qk("evaluate", model, "--inputs", data, "--output-dir", folder, *more)
    (name,) = os.listdir(folder)
    y = np.load(os.path.join(folder, name))
    os.remove(os.path.join(folder, name))
    return y.reshape(y.shape[0], -1)


def run_onnxruntime(model, x):
    settings = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if options.optimizer else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    start = time.perf_counter()
    y = np.concatenate([session.run(None, {name: x[i : i + 50]})[0] for i in range(0, len(x), 50)])
    return y.reshape(y.shape[0], -1), time.perf_counter() - start


def errors(a, b):
    return np.abs(a - b).max(1) / max(np.abs(b).max(), 1e-30)


def network(data_folder, name, formats, folder):
    spec = NETWORKS[name]
    model = os.path.join(data_folder, "models", name + ".onnx")
    if spec["images"] is None:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data"))
        from make_networks import pictures
        x = pictures(np.random.default_rng(1), options.samples, 3, 32, 32)
    else:
        x = np.load(os.path.join(data_folder, "data", spec["images"]))
    if spec.get("prepare"):
        x = np.ascontiguousarray(spec["prepare"](x).transpose(0, 3, 1, 2))
    every_tenth = x[::10]
    every = max(1, len(x) // options.samples)
    x = x[::every][: options.samples]
    labels = np.load(os.path.join(data_folder, "data", spec["labels"]))[::every][: len(x)] if spec.get("labels") else None
    data, calibration, plan, exported = (os.path.join(folder, n) for n in ("x.npy", "calibration.npy", "plan.json", "quantized.onnx"))
    np.save(data, x)
    np.save(calibration, every_tenth)
    out = os.path.join(folder, "out")
    float_output = evaluate(model, data, out)
    failures = 0
    score = "top-1" if labels is not None else "agreement with float"
    print(f"\n{name}, {len(x)} samples; float32: {os.path.getsize(model):,} bytes" + (f", top-1 {(float_output.argmax(1) == labels).mean():.4f}" if labels is not None else ""))
    print(f"\n| format | bytes | ONNX Runtime loads | opset | {score}: ONNX Runtime | qk evaluate --plan | same class | median error | largest | D | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for f in formats:
        notes = json.loads(qk("quantize", "--recipe", "fast", model, "-o", exported, "--activation", f, "--weight", f, "--calibration", calibration, "--save-plan", plan, "--export", "portable",
                              "--weights", options.weights, "--json"))
        ours = evaluate(model, data, out, "--plan", plan)
        again = evaluate(exported, data, out)
        try:
            theirs, seconds = run_onnxruntime(exported, x)
        except Exception as e:  # the runtime's error goes into the table
            failures += 1
            print(f"| {f} | {os.path.getsize(exported):,} | **no: {str(e)[:120]}** |")
            continue
        if f in ("int8", "uint8"):  # with and without the optimizer, which alone brings integer kernels
            kept, said = onnxruntime_runs.keeps(*(onnxruntime_runs.run(exported, x, level, 50).reshape(len(x), -1) for level in ("on", "off")), float_output)
            failures += not kept
            if not kept:
                print(f"{f}: {said}")
        d, e = errors(ours, float_output).max(), errors(theirs, ours)
        target = labels if labels is not None else float_output.argmax(1)
        same = (ours.argmax(1) == theirs.argmax(1)).mean()
        fine = np.median(e) <= (1e-3 if name.startswith("resnet20") else max(1e-3, d / 2)) and e.max() <= max(5e-2, d) and (same >= 0.97 or len(x) < 100)
        fine = fine and errors(again, ours).max() <= max(5e-2, d)
        failures += not fine
        print(f"| {f} | {os.path.getsize(exported):,} | yes | {notes['opset']} | {(theirs.argmax(1) == target).mean():.4f} | {(ours.argmax(1) == target).mean():.4f} | {same:.4f} "
              f"| {np.median(e):.1e} | {e.max():.1e} | {d:.1e} | {seconds:.1f} |" + ("" if fine else " **disagrees**"), flush=True)
    return failures


def main():
    formats = [f["name"] for f in json.loads(qk("formats", "--json"))["formats"] if f["name"] != "e8m0"]
    if options.formats:
        formats = options.formats.split(",")
    wanted = options.networks.split(",") if options.networks else list(NETWORKS)
    there = [(f, n) for f in options.folders for n in wanted if os.path.exists(os.path.join(f, "models", n + ".onnx"))]
    if not there:
        print(f"none of {', '.join(wanted)} is in {', '.join(options.folders)}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        failures = sum(network(f, n, formats if n.startswith("resnet20") or options.formats else FEW, folder) for f, n in there)
    print(f"\n{failures} failures")
    return 1 if failures else 0


parser = argparse.ArgumentParser()
parser.add_argument("qk")
parser.add_argument("folders", nargs="+")
parser.add_argument("--samples", type=int, default=2000)
parser.add_argument("--formats")
parser.add_argument("--networks")
parser.add_argument("--weights", default="packed")
parser.add_argument("--optimizer", action="store_true")
options = parser.parse_args()
onnxruntime.set_default_logger_severity(3)
sys.exit(main())
