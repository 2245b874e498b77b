# SPDX-License-Identifier: Apache-2.0
"""Compares qk and onnxruntime on BERT-, GPT-2-, Llama- and Whisper-like models with random weights: speed of one text, seconds and memory
of each verb, int8 in decibels.

usage: python bench/language_models.py QK [--tables speed memory int8] [--formats float int8] [--turns 7] [--models bert gpt llama whisper] [--without-vnni COMMAND]
       (needs numpy, onnx, onnxruntime)

speed: the least of several turns; the programs take turns, each in a process of its own. One thread: the processor time of a text (of
several texts, minus what a process takes anyway), which other work on the machine hardly changes. Two threads: the seconds of one text,
which it does change. int8: each runs its quantized model (qk: evaluate with the formats; onnxruntime: the file in Q/DQ).
memory: whole processes with everything that they load; the peak is VmHWM; "of the weights" counts weights as float32.
int8: int8/int8 as Q/DQ, calibrated on the measured texts, against onnxruntime's floats. --without-vnni: a command that starts a Python
whose onnxruntime sees AVX2 but no sums of bytes (on such a machine, or with the instructions hidden); ONEDNN_MAX_CPU_ISA tells qk.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "tool"))
import language_models as models  # noqa: E402

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("qk")
parser.add_argument("--tables", nargs="*", default=["speed", "memory", "int8"])
parser.add_argument("--models", nargs="*", default=["bert", "gpt", "llama", "whisper"])
parser.add_argument("--turns", type=int, default=7)
parser.add_argument("--formats", nargs="*", default=["float", "int8"])
parser.add_argument("--without-vnni", default="")
asked = parser.parse_args()
held = tempfile.TemporaryDirectory()
rng = np.random.default_rng(5)


def at(name):
    return os.path.join(held.name, name)


RUN = """
import sys, time, numpy as np, onnxruntime as o
options = o.SessionOptions(); options.intra_op_num_threads = int(sys.argv[3]); options.log_severity_level = 3
if sys.argv[4] == "off": options.graph_optimization_level = o.GraphOptimizationLevel.ORT_DISABLE_ALL
start = time.time(); session = o.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]); loaded = time.time() - start
x = dict(np.load(sys.argv[2])); count = len(x["input_ids"]); runs = [{k: v[i:i+1] for k, v in x.items()} for i in range(count)]
session.run(["logits"], runs[0]); start = time.time(); used = time.process_time(); y = [session.run(["logits"], r)[0] for r in runs]
print(loaded, (time.time() - start) / count, (time.process_time() - used) / count)
if len(sys.argv) > 5: np.save(sys.argv[5], np.concatenate(y))
"""


def run(command, **more):
    """Runs a process, with `more` added to its environment. Returns seconds, peak bytes, its output, and its processor time."""
    with open(at("out.txt"), "w") as text, open(at("err.txt"), "w") as words:
        start = time.time()
        child = subprocess.Popen(command, stdout=text, stderr=words, env={**os.environ, **more})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.time() - start
    text = open(at("out.txt")).read()
    if status != 0:
        sys.exit(f"{' '.join(command)}: {text[-500:]} {open(at('err.txt')).read()[-500:]}")
    return seconds, usage.ru_maxrss * 1024, text, usage.ru_utime + usage.ru_stime


def onnxruntime(model, data, threads=2, optimizer="on", to=None, python=(sys.executable,)):
    return run([*python, "-c", RUN, model, data, str(threads), optimizer, *([to] if to else [])])


def inputs(kind, shape, samples, tokens):
    x = {"input_ids": rng.integers(0, shape["vocabulary"], (samples, tokens))}
    if kind == "llama":
        x["position_ids"] = np.tile(np.arange(tokens), (samples, 1))
        x.update(models.cache(shape["layers"], shape["groups"], shape["hidden"] // shape["count"], samples, 0, np.float32))
    elif kind == "whisper":
        x["input_features"] = rng.standard_normal((samples, 80, 6 * tokens)).astype(np.float32)
    else:
        x["attention_mask"] = np.ones((samples, tokens), np.int64)
    if kind == "bert":
        x["token_type_ids"] = np.zeros((samples, tokens), np.int64)
    return x


def made(kind, shape):
    path = at(kind + ".onnx")
    more = {"llama": "dtype=np.float32, outside=True, transposed=False", "whisper": "mels=80"}.get(kind, "")
    # Makes the model in a process of its own, because a child's peak starts at its parent's memory.
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {sys.path[0]!r}); import numpy as np, onnx, language_models as m; "
                           f"m.{kind}({path!r}, longest=256, {', '.join(f'{k}={v}' for k, v in shape.items())}, {more}); "
                           f"print(sum(int(np.prod(t.dims)) for t in onnx.load({path!r}, load_external_data=False).graph.initializer))"],
                          check=True, capture_output=True, text=True)
    return path, int(done.stdout)


def remove(kind):
    for f in os.listdir(held.name):
        if f.startswith(kind) or f.endswith(".data") or f.startswith("q."):
            os.remove(at(f))


INT8 = ["--activation", "int8", "--weight", "int8", "--per-channel", "--calibration"]
if "speed" in asked.tables:
    print("| | qk, 1 thread, processor time | onnxruntime | qk, 2 threads, one text | onnxruntime |\n|---|---|---|---|---|")
    for kind, tokens, shape in (("bert", 128, {"vocabulary": 30522, "hidden": 256, "layers": 6, "count": 4}), ("gpt", 128, {"vocabulary": 50257, "hidden": 768, "layers": 12, "count": 12}),
                                ("llama", 256, {"vocabulary": 32000, "hidden": 512, "layers": 12, "count": 8, "groups": 4})):
        if kind not in asked.models:
            continue
        model, weights = made(kind, shape)
        few, many = 2, 8
        texts = inputs(kind, shape, many, tokens)
        np.savez(at("x.npz"), **texts)
        np.savez(at("one.npz"), **{k: v[:1] for k, v in texts.items()})
        for formats in asked.formats:
            options, theirs_model = [], model
            if formats == "int8":
                options, theirs_model = [*INT8, at("one.npz")], at("q.onnx")
                run([asked.qk, "quantize", "--recipe", "fast", model, "-o", theirs_model, "--overwrite", "--export", "qdq", *options])
            best = {}
            for _ in range(asked.turns):
                used = {n: run([asked.qk, "evaluate", model, *options, "--inputs", at("x.npz"), "--samples", str(n), "--threads", "1", "--json"])[3] for n in (few, many)}
                theirs = [float(v) for v in onnxruntime(theirs_model, at("x.npz"), 1)[2].split()]
                seen = {("qk", 1): (used[many] - used[few]) / (many - few), ("ort", 1): theirs[2],
                        ("qk", 2): json.loads(run([asked.qk, "evaluate", model, *options, "--inputs", at("one.npz"), "--threads", "2", "--json"])[2])["seconds"],
                        ("ort", 2): float(onnxruntime(theirs_model, at("one.npz"), 2)[2].split()[1])}
                best = {k: min(v, best.get(k, v)) for k, v in seen.items()}
            cells = " | ".join(f"{1000 * best[who, threads]:.1f} ms" for threads in (1, 2) for who in ("qk", "ort"))
            print(f"| {kind}, {shape['layers']} x {shape['hidden']}, {tokens} tokens, {weights / 1e6:.0f} M weights, {formats} | {cells} |", flush=True)
        remove(kind)
    print()

LARGE = {"bert": {"vocabulary": 30522, "hidden": 768, "layers": 12, "count": 12}, "gpt": {"vocabulary": 50257, "hidden": 768, "layers": 12, "count": 12},
         "llama": {"vocabulary": 32000, "hidden": 768, "layers": 16, "count": 16, "groups": 4},
         "whisper": {"vocabulary": 51865, "hidden": 512, "layers": 6, "count": 8}}
FORMATS = {"int8/int8, qdq": ["--activation", "int8", "--weight", "int8", "--per-channel", "--export", "qdq", "--calibration"],
           "int4 weights, nbits": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32", "--export", "nbits"],
           "mxfp4/mxfp4, portable": ["--activation", "mxfp4", "--weight", "mxfp4"]}
decibels = []
if "memory" in asked.tables or "int8" in asked.tables:
    if "memory" in asked.tables:
        print("| 4 texts of 64 tokens | seconds | peak, GB | of the weights |\n|---|---|---|---|")
    for kind, shape in LARGE.items():
        if kind not in asked.models:
            continue
        model, weights = made(kind, shape)
        np.savez(at("x.npz"), **inputs(kind, shape, 4, 64))

        def row(what, done):
            if "memory" in asked.tables:
                print(f"| {kind}, {weights / 1e6:.0f} M weights: {what} | {done[0]:.1f} | {done[1] / 1e9:.2f} | {done[1] / 4 / weights:.2f} |", flush=True)
            return done[2]

        row("onnxruntime loads it and runs", onnxruntime(model, at("x.npz"), to=at("float.npy")))
        row("qk evaluate", run([asked.qk, "evaluate", model, "--inputs", at("x.npz"), "--threads", "2", "--json"]))
        for what, options in FORMATS.items():
            if "memory" not in asked.tables and not what.startswith("int8"):
                continue
            calibrated = [at("x.npz")] if options[-1] == "--calibration" else []
            row(f"qk quantize {what}", run([asked.qk, "quantize", "--recipe", "fast", model, "-o", at("q.onnx"), "--overwrite", *options, *calibrated]))
            if what.startswith("int8"):
                row(f"onnxruntime loads {what}, and runs", onnxruntime(at("q.onnx"), at("x.npz"), to=at("on.npy")))
                onnxruntime(at("q.onnx"), at("x.npz"), optimizer="off", to=at("off.npy"))
                y = np.load(at("float.npy")).astype(np.float64)
                noise = {o: 10 * np.log10((y**2).sum() / ((np.load(at(o + ".npy")) - y) ** 2).sum()) for o in ("off", "on")}
                at_export = options.index("--export")
                own = json.loads(run([asked.qk, "evaluate", model, "--inputs", at("x.npz"), "--metric", "sqnr", "--json", *options[:at_export], *options[at_export + 2:], *calibrated])[2])["sqnr"]
                line = f"| {kind} | {own:.1f} dB | {noise['off']:.1f} dB | {noise['on']:.1f} dB |"
                if asked.without_vnni:
                    other = {}
                    for optimizer in ("off", "on"):
                        onnxruntime(at("q.onnx"), at("x.npz"), optimizer=optimizer, to=at("other.npy"), python=shlex.split(asked.without_vnni))
                        other[optimizer] = 10 * np.log10((y**2).sum() / ((np.load(at("other.npy")) - y) ** 2).sum())
                    own = json.loads(run([asked.qk, "evaluate", model, "--inputs", at("x.npz"), "--metric", "sqnr", "--json", *options[:at_export], *options[at_export + 2:],
                                          *calibrated], ONEDNN_MAX_CPU_ISA="AVX2")[2])["sqnr"]
                    line += f" {own:.1f} dB | {other['off']:.1f} dB | {other['on']:.1f} dB |"
                decibels.append(line)
            elif what.startswith("int4"):
                row(f"onnxruntime loads {what}, and runs", onnxruntime(at("q.onnx"), at("x.npz")))
        remove(kind)
if "int8" in asked.tables:
    more = " without VNNI: qk evaluate | optimizer off | optimizer on |" if asked.without_vnni else ""
    print(f"\n| int8/int8 | qk evaluate | onnxruntime, optimizer off | optimizer on |{more}\n|---|---|---|---|{'---|' * more.count('|')}\n" + "\n".join(decibels))
