# SPDX-License-Identifier: Apache-2.0
"""Times files in onnxruntime three ways, in turns of one run: the float32 model, the file's functions, and qk's operators in their place.

    python bench/onnxruntime_operators.py build/release/qk ../shared [--only resnet20] [--formats mxfp8_e4m3,mxfp4] [--seconds 2]

Activations and weights are in one format; one sample a run, one thread, the optimizer on; medians in milliseconds, and the operators' share of
float32's time. The digits network is shipped; the others lie in ../shared. Needs numpy, onnxruntime, and libqk_onnxruntime.so beside the command.
"""
import argparse
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

ROOT = Path(__file__).resolve().parents[1]
NETWORKS = {"digits": None, "resnet20": "resnet20_cifar10_folded", "squeezenet1.1": "squeezenet1.1_imagenet", "kwt1": "kwt1_mfcc"}
FORMATS = "int8,bfp16,mx9,mxint8,mxfp8_e4m3,mxfp6_e3m2,mxfp4,nvfp4"


def session(path, library=None):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if library:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed_of(s):
    r = np.random.default_rng(1)
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    return {i.name: r.standard_normal([d if isinstance(d, int) and d > 0 else 1 for d in i.shape]).astype(types[i.type]) for i in s.get_inputs()}


def medians(sessions, feed, seconds):
    """Takes turns, since the pace of a machine changes."""
    times = [[] for _ in sessions]
    start = time.perf_counter()
    while len(times[0]) < 5 or time.perf_counter() - start < seconds:
        for s, own in zip(sessions, times):
            begin = time.perf_counter()
            s.run(None, feed)
            own.append(time.perf_counter() - begin)
    return [1e3 * float(np.median(own[1:])) for own in times]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("qk", type=Path)
    p.add_argument("shared", type=Path)
    p.add_argument("--only", help="one of " + ", ".join(NETWORKS))
    p.add_argument("--formats", default=FORMATS)
    p.add_argument("--seconds", type=float, default=2)
    a = p.parse_args()
    library = subprocess.run([a.qk, "--onnxruntime-library"], capture_output=True, text=True, check=True).stdout.strip()
    processor = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.machine())
    print(f"One thread of {processor}, onnxruntime {ort.__version__}, one sample a run, milliseconds: medians of turns.\n")
    print(f"    python bench/onnxruntime_operators.py build/release/qk ../shared --seconds {a.seconds:g}\n")
    print("| network | format | float32 | functions | operators | operators / float32 |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, stem in NETWORKS.items():
            model = ROOT / "examples/digits/digits.onnx" if stem is None else a.shared / "models" / f"{stem}.onnx"
            if a.only not in (None, name) or not model.exists():
                continue
            plain = session(model)
            feed = feed_of(plain)
            np.savez(Path(folder) / "calibration.npz", **feed)
            for f in a.formats.split(","):
                out = Path(folder) / "out.onnx"
                done = subprocess.run([a.qk, "quantize", model, "-o", out, "--activation", f, "--weight", f, "--calibration", Path(folder) / "calibration.npz", "--overwrite"],
                                      capture_output=True, text=True)
                if done.returncode:
                    print(f"{name}, {f}: {done.stderr.strip()}", file=sys.stderr)
                    continue
                whole, functions, operators = medians([plain, session(out), session(out, library)], feed, a.seconds)
                print(f"| {name} | {f} | {whole:.3g} | {functions:.3g} | {operators:.3g} | {operators / whole:.2f} |", flush=True)


if __name__ == "__main__":
    main()
