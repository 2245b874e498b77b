# SPDX-License-Identifier: Apache-2.0
"""Static int8: `qk quantize` beside onnxruntime's quantize_static, accuracy and speed in one run (needs numpy, onnx, onnxruntime).

    python bench/static_int8.py build/release/qk ../shared [--draws 5] [--only resnet20] [--no-speed]

Every draw chooses calibration samples anew; both sides get the same ones. Theirs: min-max, percentile and entropy, per tensor and per channel, the best of each draw
(chosen by the very top-1 that is reported, which flatters them). Ours: --activation int8 --weight int8 --per-channel with defaults, and the best of the same three methods,
as flattered, and compensated rounding of weights (the last of --qk-options). Beside top-1 stands the signal-to-noise ratio of the outputs over all samples, float32's being the signal: of the default, and the highest of their six. Both run in onnxruntime, optimised, on one thread. Speed: one sample a run, turn by turn; medians, and the median ratio theirs / ours within a turn.
"""
import argparse
import contextlib
import logging
import shlex
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
    """Top-1 and decibels."""
    with np.errstate(divide="ignore"):
        return float((y.argmax(1) == labels.ravel()).mean()), float(10 * np.log10((plain.astype(np.float64) ** 2).sum() / ((y - plain).astype(np.float64) ** 2).sum()))


def best_of_theirs(model, x, labels, plain, calibration, folder, draw, methods):
    ready = folder / "ready.onnx"
    if not ready.exists():
        quant_pre_process(str(model), str(ready), skip_symbolic_shape=True)
    name = session(model)[1]
    best, decibels = (-1.0, "", None), -np.inf
    for per_channel in (False, True):
        for method in methods:
            out = folder / f"theirs_{draw}_{method}_{per_channel}.onnx"
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    quantize_static(str(ready), str(out), Samples(name, calibration), quant_format=QuantFormat.QDQ, per_channel=per_channel, activation_type=QuantType.QUInt8,
                                    weight_type=QuantType.QInt8, calibrate_method=METHODS[method])
                got, clean = score(outputs(out, x), plain, labels)
            except Exception as failed:  # some of its calibrators cannot read integer inputs
                print(f"    theirs {method}{', per channel' if per_channel else ''}: {type(failed).__name__}", file=sys.stderr)
                continue
            print(f"    theirs {method}{', per channel' if per_channel else ''}: {got:.4f}, {clean:.2f} dB", file=sys.stderr)
            decibels = max(decibels, clean)
            best = max(best, (got, method + (", per channel" if per_channel else ""), out), key=lambda b: b[0])
    return *best, decibels


def turn_by_turn(paths, x, seconds):
    """Median seconds of one sample, of each model, and the median of first / second within a turn: a machine that others use changes its pace between turns."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qk")
    parser.add_argument("shared", type=Path)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--qk-options", default=";--calibration-method percentile;--calibration-method entropy;--weight-rounding compensated",
                        help="added to ours; several sets separated by ';' are all measured: the first, the last, and the best of all but the last")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="of theirs")
    parser.add_argument("--no-theirs", action="store_true")
    parser.add_argument("--no-speed", action="store_true")
    a = parser.parse_args()
    print("| network (images) | float32 | quantize_static, best of six, by draw | qk's default, by draw | qk, best of three | qk, compensated rounding | mean difference of the default, of the best, of compensated, points | dB of their six, highest, by draw | dB of the default, by draw | dB of compensated, by draw | standard error of a top-1 | ms theirs | ms qk | speed |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for network, (file, data, count) in NETWORKS.items():
        if a.only not in (None, network):
            continue
        model = a.shared / "models" / (file + ".onnx")
        x, labels = data(a.shared)
        plain = outputs(model, x)
        ours, best_ours, last, theirs, noise, last_noise, their_noise, pair = [], [], [], [], [], [], [], None
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for draw in range(a.draws):
                calibration = x[np.random.default_rng(draw).choice(len(x), count, replace=False)]
                np.save(folder / "calibration.npy", calibration)
                sets = a.qk_options.split(";")
                best_ours.append(0.0)
                for k, options in enumerate(sets):
                    out = folder / f"qk_{draw}_{k}.onnx"
                    subprocess.run([a.qk, "quantize", model, "-o", out, "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", folder / "calibration.npy",
                                    *shlex.split(options)], check=True, capture_output=True)
                    got, clean = score(outputs(out, x), plain, labels)
                    print(f"  {network}, draw {draw}, qk {options}: {got:.4f}, {clean:.2f} dB", file=sys.stderr)
                    if k < max(len(sets) - 1, 1):
                        best_ours[-1] = max(best_ours[-1], got)
                    if k == len(sets) - 1:
                        last.append(got)
                        last_noise.append(clean)
                    if k == 0:
                        ours.append(got)
                        noise.append(clean)
                if not a.no_theirs:
                    best = best_of_theirs(model, x, labels, plain, calibration, folder, draw, a.methods)
                    theirs.append(best[0])
                    their_noise.append(best[3])
                    pair = pair or (best[2], folder / f"qk_{draw}_0.onnx")
            speed, ratio = turn_by_turn(pair, x, a.seconds) if pair and not a.no_speed else ([float("nan")] * 2, float("nan"))
        p = np.mean(ours)
        error = 100 * np.sqrt(p * (1 - p) / len(x))
        listed = lambda v, digits=4: " ".join(f"{t:.{digits}f}" for t in v)
        difference = [100 * (np.mean(v) - np.mean(theirs)) if theirs else float("nan") for v in (ours, best_ours, last)]
        print(f"| {network} ({len(x)}) | {score(plain, plain, labels)[0]:.4f} | {listed(theirs)} | {listed(ours)} | {listed(best_ours)} | {listed(last)} | {difference[0]:+.2f}, {difference[1]:+.2f}, {difference[2]:+.2f} | {listed(their_noise, 1)} | {listed(noise, 1)} | {listed(last_noise, 1)} | {error:.2f} | {1e3 * speed[0]:.3f} | {1e3 * speed[1]:.3f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
