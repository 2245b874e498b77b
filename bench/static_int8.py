# SPDX-License-Identifier: Apache-2.0
"""Compares static int8 of `qk quantize` with onnxruntime's quantize_static, accuracy and speed in one run (needs numpy, onnx, onnxruntime).

    python bench/static_int8.py build/release/qk ../shared [--draws 5] [--only resnet20] [--held-out] [--no-speed]

Every draw chooses new calibration samples, the same for both sides. Theirs (onnxruntime): min-max, percentile and entropy, per tensor and
per channel, the best of each draw by top-1. Ours (qk): --activation int8 --weight int8 --per-channel; the same with --calibration-method
best, which also chooses by top-1; and the same with compensated rounding of weights. Both sides choose on all samples and report top-1 on
all, which flatters both; with --held-out they choose on every other sample and report on the rest, and the other way round. Beside top-1
stands the signal-to-noise ratio of the outputs against float32's over all samples: ours, and the highest of their six. Both run in
onnxruntime, optimised, on one thread. Speed: one sample a run, in turns; medians, and the median ratio theirs / ours within a turn.
"""
import argparse
import contextlib
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

logging.disable(logging.WARNING)
ort.set_default_logger_severity(3)


def cifar(shared):
    x = np.load(shared / "data/cifar10_2000_images_u8_nhwc.npy").astype(np.float32) / 255
    x = (x - np.float32([.485, .456, .406])) / np.float32([.229, .224, .225])
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.load(shared / "data/cifar10_2000_labels_i64.npy")


def imagenet(shared):
    x = np.load(shared / "data/imagenet150_images_227_u8_nhwc.npy").astype(np.float32)[..., ::-1] - np.float32([104, 117, 123])
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.load(shared / "data/imagenet150_labels_i64.npy")


def files(shared):
    return np.load(shared / "data/magika152_inputs_i32.npy"), np.load(shared / "data/magika152_labels_i64.npy")


NETWORKS = {"resnet20": ("resnet20_cifar10_folded", cifar, 100), "squeezenet1.1": ("squeezenet1.1_imagenet", imagenet, 30), "magika": ("magika_v3_3", files, 50)}
METHODS = {"min-max": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile, "entropy": CalibrationMethod.Entropy}


class Samples(CalibrationDataReader):
    def __init__(self, name, x):
        self.rest = iter([{name: x[i:i + 1]} for i in range(len(x))])

    def get_next(self):
        return next(self.rest, None)


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    s = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return s, s.get_inputs()[0].name


def outputs(path, x, batch=25):
    s, name = session(path)
    return np.concatenate([s.run(None, {name: x[i:i + batch]})[0] for i in range(0, len(x), batch)]).reshape(len(x), -1)


def score(y, plain, labels):
    """Returns top-1 and decibels."""
    with np.errstate(divide="ignore"):
        return float((y.argmax(1) == labels.ravel()).mean()), float(10 * np.log10((plain.astype(np.float64) ** 2).sum() / ((y - plain).astype(np.float64) ** 2).sum()))


def theirs_of(ready, name, x, calibration, folder, draw):
    """Yields (outputs, file, description) of each of onnxruntime's six models."""
    for per_channel in (False, True):
        for method, chosen in METHODS.items():
            out = folder / f"theirs_{draw}_{method}_{per_channel}.onnx"
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    quantize_static(str(ready), str(out), Samples(name, calibration), quant_format=QuantFormat.QDQ, per_channel=per_channel, activation_type=QuantType.QUInt8,
                                    weight_type=QuantType.QInt8, calibrate_method=chosen)
                yield outputs(out, x), out, method + (", per channel" if per_channel else "")
            except Exception as failed:  # some of onnxruntime's calibrators cannot read integer inputs
                print(f"    theirs {method}{', per channel' if per_channel else ''}: {type(failed).__name__}", file=sys.stderr)


def turn_by_turn(paths, x, seconds):
    """Returns the median seconds of one sample for each model, and the median ratio first / second within a turn, since other work changes
    the machine's pace between turns."""
    sessions = [session(p) for p in paths]
    times = [[] for _ in paths]
    for s, name in sessions:
        s.run(None, {name: x[:1]})
    start, i = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or i < 10:
        for t, (s, name) in list(zip(times, sessions))[::1 if i % 2 == 0 else -1]:
            began = time.perf_counter()
            s.run(None, {name: x[i % len(x):i % len(x) + 1]})
            t.append(time.perf_counter() - began)
        i += 1
    return [float(np.median(t)) for t in times], float(np.median(np.array(times[0]) / np.array(times[1])))


OURS = {"default": [], "best": ["--calibration-method", "best"], "compensated": ["--weight-rounding", "compensated"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qk")
    parser.add_argument("shared", type=Path)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--held-out", action="store_true", help="choose on every other sample, report top-1 on the rest, and the other way round")
    parser.add_argument("--no-speed", action="store_true")
    a = parser.parse_args()
    columns = ["network (images)", "float32", "quantize_static, best of six", *(f"qk, {o}" for o in OURS), "mean difference of " + ", ".join(OURS), "standard error of a top-1",
               "dB, highest of their six", *(f"dB, {o}" for o in OURS), "ms theirs", "ms qk", "speed"]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for network, (file, data, count) in NETWORKS.items():
        if a.only not in (None, network):
            continue
        model = a.shared / "models" / (file + ".onnx")
        x, labels = data(a.shared)
        every = np.arange(len(x))
        folds = [(every[::2], every[1::2]), (every[1::2], every[::2])] if a.held_out else [(every, every)]  # (choose on, report on)
        plain, name = outputs(model, x), session(model)[1]
        top1 = lambda y, part: score(y[part], plain[part], labels[part])[0]
        decibels = lambda y: score(y, plain, labels)[1]
        theirs, ours, their_noise, noise, pair = [], {o: [] for o in OURS}, [], {o: [] for o in OURS}, None
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            ready = folder / "ready.onnx"
            quant_pre_process(str(model), str(ready), skip_symbolic_shape=True)
            for fold, (choose, _) in enumerate(folds):
                np.save(folder / f"choose_{fold}.npy", x[choose])
                np.save(folder / f"labels_{fold}.npy", labels.ravel()[choose])
            for draw in range(a.draws):
                calibration = x[np.random.default_rng(draw).choice(len(x), count, replace=False)]
                np.save(folder / "calibration.npy", calibration)
                for kind, options in OURS.items():
                    got = []
                    for fold, (_, report) in enumerate(folds):
                        out = folder / f"qk_{draw}_{kind}.onnx"
                        said = subprocess.run([a.qk, "quantize", "--recipe", "fast", model, "-o", out, "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", folder / "calibration.npy",
                                               "--inputs", folder / f"choose_{fold}.npy", "--labels", folder / f"labels_{fold}.npy", *options],
                                              check=True, capture_output=True, text=True).stdout
                        y = outputs(out, x)
                        got.append((top1(y, report), decibels(y)))
                        print(f"  {network}, draw {draw}, qk {kind}: {got[-1][0]:.4f}, {got[-1][1]:.2f} dB; {said.splitlines()[0]}", file=sys.stderr)
                    ours[kind].append(np.mean([g[0] for g in got]))
                    noise[kind].append(np.mean([g[1] for g in got]))
                six = list(theirs_of(ready, name, x, calibration, folder, draw))
                for y, out, what in six:
                    print(f"    theirs {what}: {top1(y, every):.4f}, {decibels(y):.2f} dB", file=sys.stderr)
                best = [max(six, key=lambda s: top1(s[0], choose)) for choose, _ in folds]
                theirs.append(np.mean([top1(b[0], report) for b, (_, report) in zip(best, folds)]))
                their_noise.append(max(decibels(s[0]) for s in six))
                if pair is None:  # for speed: a model with int8 weights on both sides
                    (folder / "signed.json").write_text('{"name": "signed", "int8_weights": "signed"}')
                    subprocess.run([a.qk, "quantize", "--recipe", "fast", model, "-o", folder / "signed.onnx", "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration",
                                    folder / "calibration.npy", "--target", folder / "signed.json"], check=True, capture_output=True)
                    pair = (best[0][1], folder / "signed.onnx")
            speed, ratio = ([float("nan")] * 2, float("nan")) if a.no_speed else turn_by_turn(pair, x, a.seconds)
        p = np.mean(ours["default"])
        error = 100 * np.sqrt(p * (1 - p) / len(x))
        listed = lambda v, digits=4: " ".join(f"{t:.{digits}f}" for t in v)
        row = [f"{network} ({len(x)})", f"{top1(plain, every):.4f}", listed(theirs), *(listed(v) for v in ours.values()),
               ", ".join(f"{100 * (np.mean(v) - np.mean(theirs)):+.2f}" for v in ours.values()), f"{error:.2f}", listed(their_noise, 1), *(listed(v, 1) for v in noise.values()),
               f"{1e3 * speed[0]:.3f}", f"{1e3 * speed[1]:.3f}", f"{ratio:.2f}"]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
