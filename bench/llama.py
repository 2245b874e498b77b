# SPDX-License-Identifier: Apache-2.0
"""Compares qk and onnxruntime on a decoder of several hundred million weights: seconds and peak memory.

usage: python bench/llama.py QK [--folder DIR] [--hidden 1024] [--layers 32] [--transposed] [--fp16] [--only WORD ...]    (needs numpy, onnx, onnxruntime)

The script makes the model: grouped heads, a cache, an embedding tied to the output, random weights in a file beside it. 1024 x 32 gives
318 M weights, 1.27 GB. Every row is a process of its own; its peak is VmHWM, which includes the program and its libraries. "of the
weights": peak / (4 bytes a weight). "processor": seconds of all processors together, which other work changes less than elapsed seconds.
Rows "load" let onnxruntime load what qk has written and run it once.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "tool"))
import language_models as models  # noqa: E402

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("qk")
parser.add_argument("--folder")
parser.add_argument("--hidden", type=int, default=1024)
parser.add_argument("--layers", type=int, default=32)
parser.add_argument("--vocabulary", type=int, default=32000)
parser.add_argument("--transposed", action="store_true")
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--only", nargs="*", default=[])
asked = parser.parse_args()
held = tempfile.TemporaryDirectory()
folder = asked.folder or held.name
GROUPS, WIDTH, TOKENS, SAMPLES = 4, asked.hidden // 16, 64, 4
dtype = np.float16 if asked.fp16 else np.float32
float_model = os.path.join(folder, "llama.onnx")
if not os.path.exists(float_model):
    subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {sys.path[0]!r}); import numpy as np, language_models as m; "
                    f"m.llama({float_model!r}, vocabulary={asked.vocabulary}, hidden={asked.hidden}, layers={asked.layers}, count=16, groups={GROUPS}, "
                    f"longest=256, dtype=np.{np.dtype(dtype).name}, outside=True, transposed={asked.transposed})"], check=True)
graph = onnx.load(float_model, load_external_data=False).graph
weights = sum(int(np.prod(t.dims)) for t in graph.initializer)
print(f"{weights / 1e6:.0f} M weights, {4 * weights / 1e9:.2f} GB as float32\n\n| | seconds | processor | peak, GB | of the weights | on disk, GB |\n|---|---|---|---|---|---|", flush=True)
rng = np.random.default_rng(5)
inputs = {"input_ids": rng.integers(0, asked.vocabulary, (SAMPLES, TOKENS)), "position_ids": np.tile(np.arange(TOKENS), (SAMPLES, 1))}
inputs.update(models.cache(asked.layers, GROUPS, WIDTH, SAMPLES, 0, dtype))
data = os.path.join(folder, "x.npz")
np.savez(data, **inputs)
one = os.path.join(folder, "one.npz")
np.savez(one, **{k: v[:1] for k, v in inputs.items()})
LOAD = """
import sys, time, numpy as np, onnxruntime as o
start = time.time(); options = o.SessionOptions(); options.intra_op_num_threads = 2; options.log_severity_level = 3
session = o.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]); loaded = time.time() - start
x = dict(np.load(sys.argv[2])); runs = [{k: v[i:i+1] for k, v in x.items()} for i in range(len(x["input_ids"]))]; session.run(None, runs[0])
if len(runs) > 1:
    start = time.time(); [session.run(None, r) for r in runs]; loaded = time.time() - start
print("seconds", loaded)
"""


def sizes(path):
    return sum(os.path.getsize(p) for p in (path, path + ".data") if os.path.exists(p)) / 1e9


def row(what, command, written=None):
    if asked.only and not any(w in what for w in asked.only):
        return None
    out = os.path.join(folder, "out.txt")
    start = time.time()
    with open(out, "w") as text:
        child = subprocess.Popen(command, stdout=text, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    seconds, peak = time.time() - start, usage.ru_maxrss / 1e6
    text = open(out).read()
    for line in text.splitlines():
        seconds = float(line.split()[1]) if line.startswith("seconds ") else seconds
    held = ""
    if "peak_bytes" in text and text.lstrip().startswith("{"):
        got = json.loads(text)
        held = f" (peak_bytes {got['peak_bytes'] / 1e9:.2f} GB, {got['seconds']:.1f} s running)"
    failed = "" if status == 0 else f" FAILED: {text[-300:]}"
    disk = f"{sizes(written):.2f}" if written else ""
    print(f"| {what}{held}{failed} | {seconds:.1f} | {usage.ru_utime + usage.ru_stime:.1f} | {peak:.2f} | {1000 * peak / (4 * weights / 1e6):.2f} | {disk} |", flush=True)
    return text


def load(what, path, run=False):
    row(f"onnxruntime {'runs' if run else 'loads'} {what}", [sys.executable, "-c", LOAD, path, data if run else one], path)


load("the float model", float_model)
load("the float model, 4 x 64 tokens", float_model, run=True)
row("qk inspect", [asked.qk, "inspect", float_model])
row("qk evaluate, 4 x 64 tokens", [asked.qk, "evaluate", float_model, "--inputs", data, "--json"])
W4 = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"]
CASES = {"int4 weights, portable": [*W4, "--export", "portable"], "int4 weights, nbits": [*W4, "--export", "nbits"], "int4 weights, qdq": [*W4, "--export", "qdq"],
         "int8/int8, qdq": ["--activation", "int8", "--weight", "int8", "--calibration", data, "--export", "qdq"],
         "mxfp4/mxfp4, portable": ["--activation", "mxfp4", "--weight", "mxfp4", "--export", "portable"],
         "fp16, floats": ["--activation", "fp32", "--weight", "fp16", "--export", "portable", "--weights", "float"]}
for what, options in CASES.items():
    path = os.path.join(folder, "q.onnx")
    for p in (path, path + ".data"):
        if os.path.exists(p):
            os.remove(p)
    row(f"qk quantize {what}", [asked.qk, "quantize", "--recipe", "fast", float_model, "-o", path, "--overwrite", *options], path)
    if os.path.exists(path):
        load(what, path)
row("qk evaluate int4 weights", [asked.qk, "evaluate", float_model, "--inputs", data, "--json", *W4])
row("qk evaluate mxfp4/mxfp4", [asked.qk, "evaluate", float_model, "--inputs", data, "--json", "--activation", "mxfp4", "--weight", "mxfp4"])
row("qk sensitivity mxfp4, first 2 layers", [asked.qk, "sensitivity", float_model, "--inputs", one, "--json", "--activation", "mxfp4", "--weight", "mxfp4", "--layers", "layers0/q_proj", "--layers", "layers0/k_proj"])
