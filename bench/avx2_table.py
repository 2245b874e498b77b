#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two versions of qk on AVX2, row by row in one run, even if the processor has more (needs numpy and onnx).

    ninja -C build/release qk_tool bench_kernels_avx2      in the folder of each version
    python3 bench/avx2_table.py BEFORE AFTER SHARED [--native] [--onnxruntime PYTHON] [--preload SO] [--rounds 3] [--rows ROW ...]

BEFORE and AFTER are build folders. Rates of kernels are shares of the copy in the same run, at 256 KiB of input plus output
(bench/kernels_avx2; a version without that program has no such rows). All other rows run the command `qk` under QK_ARCH=avx2 and
ONEDNN_MAX_CPU_ISA=AVX2 on two threads, each version in turn: the evaluator (samples a second, the best round; float32 and int8 with Q/DQ
pairs) beside onnxruntime, and the processor seconds of searches (medians). onnxruntime has no such switch: --onnxruntime is a Python whose
onnxruntime sees no more than AVX2, --preload a library that hides the rest from it; without them it uses what the machine has. --native
runs both versions with all that the processor has (bench/kernels). Other programs that run meanwhile slow what is measured then.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import networks
import numpy as np

KERNELS = {"fake_quantize": ["bf16", "fp8_e4m3fn", "int8", "mxint8", "bfp16", "mxfp8_e4m3", "mxfp4", "mx9", "nvfp4"],
           "decode": ["fp8_e4m3fn", "mxfp8_e4m3", "mxfp4", "nvfp4"],
           "encode": ["fp8_e4m3fn", "mx9", "mx6", "mx4", "mxfp4", "nvfp4"]}
EVALUATED = {"resnet20 (norms folded)": ("resnet20", 1500), "squeezenet1.1": ("squeezenet1.1", 128), "kwt1": ("kwt1", 600), "magika": ("magika", 300)}
SEARCHES = {"midway (l2 0.68)": "0.68", "everything narrowed (l2 10)": "10"}
BYTES, BATCH = 262144, 16
ONLY_AVX2 = {"QK_ARCH": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

ONNXRUNTIME = """
import sys, time, numpy as np, onnxruntime as ort
path, inputs, batch, seconds = sys.argv[1], np.load(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
o = ort.SessionOptions()
o.intra_op_num_threads, o.log_severity_level = 2, 3
s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
feed = {s.get_inputs()[0].name: inputs[:batch]}
s.run(None, feed)
runs, start = 0, time.perf_counter()
while time.perf_counter() - start < seconds:
    s.run(None, feed)
    runs += 1
print(runs * len(inputs[:batch]) / (time.perf_counter() - start))
"""


def run(command, **more):
    environment = {**os.environ, **ONLY_AVX2, **more}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def kernel_rates(folder, rounds):
    program = folder / "bench" / ("kernels_avx2" if ONLY_AVX2 else "kernels")
    if not program.exists():
        return {}
    wanted = "|".join(f"^{kind}/({'|'.join(formats)})/{BYTES}$" for kind, formats in KERNELS.items())
    out = run([program, f"--benchmark_filter={wanted}|^copy/{BYTES}$", f"--benchmark_repetitions={rounds}", "--benchmark_enable_random_interleaving=true",
               "--benchmark_format=json"])
    rates = {}
    for b in json.loads(out)["benchmarks"]:
        if b.get("run_type") == "iteration":
            rates.setdefault(b["name"].split("/repeats")[0], []).append(b["bytes_per_second"])
    return {name: statistics.median(of) for name, of in rates.items()}


def kernels(a):
    before, after = kernel_rates(a.before, a.rounds), kernel_rates(a.after, a.rounds)
    for kind, formats in KERNELS.items():
        for f in formats:
            key, copy = f"{kind}/{f}/{BYTES}", f"copy/{BYTES}"
            shares = ["%.2f" % (r[key] / r[copy]) if key in r else "" for r in (before, after)]
            yield f"{kind} {f}, of the copy", *shares, ""


def evaluated(a, name, model, inputs):
    best = [0.0, 0.0, 0.0]
    for _ in range(a.rounds):
        for i, folder in enumerate((a.before, a.after)):
            report = json.loads(run([folder / "qk", "evaluate", model, "--inputs", inputs, "--threads", 2, "--json"]))
            best[i] = max(best[i], report["items_per_second"])
        if a.onnxruntime:
            more = {"LD_PRELOAD": a.preload} if a.preload else {}
            best[2] = max(best[2], float(run([a.onnxruntime, "-c", ONNXRUNTIME, model, inputs, BATCH, 1], **more)))
    shares = "%.2f -> %.2f" % (best[0] / best[2], best[1] / best[2]) if best[2] else ""
    return f"evaluate {name}, samples a second", "%.0f" % best[0], "%.0f" % best[1], f"onnxruntime {best[2]:.0f}: {shares}" if shares else ""


def repeated(inputs, samples):
    """Repeats the inputs to `samples` samples, so that a run's preparation does not count."""
    x = np.load(inputs)
    np.save(inputs, np.resize(x, (samples, *x.shape[1:])))


def evaluator(a):
    for name, (network, samples) in EVALUATED.items():
        model, inputs = networks.make(network, a.shared, a.folder, samples)
        repeated(inputs, samples)
        yield evaluated(a, name, model, inputs)


def int8(a):
    model, inputs = networks.make("squeezenet1.1", a.shared, a.folder, 32)
    quantized = f"{a.folder}/squeezenet_int8.onnx"
    run([a.after / "qk", "quantize", "--recipe", "fast", model, "-o", quantized, "--activation", "uint8", "--weight", "int8", "--per-channel", "--inputs", inputs])
    repeated(inputs, 128)
    yield evaluated(a, "squeezenet1.1 in int8 (Q/DQ)", quantized, inputs)


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def search(a):
    model, inputs = networks.make("resnet20", a.shared, a.folder, 256)
    for name, target in SEARCHES.items():
        seconds = [[], []]
        for _ in range(a.rounds):
            for i, folder in enumerate((a.before, a.after)):
                formats = ["--wide", "int16/int8", "--narrow", "int8/int8", "--target-l2", target]
                seconds[i].append(processor_seconds([folder / "qk", "search", model, "--inputs", inputs, *formats, "--threads", 2, "--json"]))
        old, new = (statistics.median(s) for s in seconds)
        yield f"search of resnet20, {name}, processor seconds", "%.2f" % old, "%.2f" % new, "%.2f of before" % (new / old)


ROWS = {"kernels": kernels, "evaluator": evaluator, "int8": int8, "search": search}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("shared", type=Path, help="the folder of models and data")
    parser.add_argument("--native", action="store_true", help="with all instructions that the processor has")
    parser.add_argument("--onnxruntime", metavar="PYTHON")
    parser.add_argument("--preload", metavar="SO")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    a = parser.parse_args()
    if a.native:
        ONLY_AVX2.clear()
    elif a.onnxruntime and not a.preload:
        print("onnxruntime uses all that this processor has, unless its Python hides it.\n")
    print("| | before | after | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as a.folder:
        for name in a.rows:
            for row in ROWS[name](a):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
