# SPDX-License-Identifier: Apache-2.0
"""Limits the memory that evaluating and quantizing a model of 100 MB takes, and checks its files.

A peak is the VmHWM of a process minus that of the same command on a small model, which the program and its libraries take.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, qk, qk_json
from evidence.runtimes import session

import numpy as np
import onnx
import pytest

import language_models as models
from language_models import logits

rng = np.random.default_rng(11)
VOCABULARY, HIDDEN, LAYERS, GROUPS = 2000, 512, 11, 4
WIDTH = HIDDEN // 8
OUTPUTS = 2 * 2 * 8 * VOCABULARY * 4  # logits of two samples, once from the run and once joined
W4 = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"]
MX = ["--activation", "mxfp4", "--weight", "mxfp4"]
I8 = ["--activation", "int8", "--weight", "int8"]
LOAD = """
import sys, numpy as np, onnxruntime as o
options = o.SessionOptions(); options.intra_op_num_threads = 1; options.log_severity_level = 3
peak = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1]) / 1e3
before = peak(); s = o.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider']); loaded = peak() - before
x = dict(np.load(sys.argv[2])); x = {k: v[:1] for k, v in x.items()}; y = [s.run(['logits'], x)[0] for _ in range(3)][-1]
np.save(sys.argv[3], y); print(loaded, peak() - before)
"""


def data(name, vocabulary, layers, groups, width, samples=2, length=8):
    inputs = {"input_ids": rng.integers(0, vocabulary, (samples, length)), "position_ids": np.tile(np.arange(length), (samples, 1))}
    np.savez(name, **inputs, **models.cache(layers, groups, width, samples, 0, np.float32))
    return str(name)


def over(verb, model, given, base_model, base_given):
    """Returns the peak bytes beyond those of the small model."""
    peaks = [qk_json(verb, m, "--threads", 1, *g)["peak_bytes"] for m, g in ((model, given), (base_model, base_given))]
    return peaks[0] - peaks[1]


def loaded(model, x):
    done = subprocess.run([sys.executable, "-c", LOAD, model, x, at("y.npy")], capture_output=True, text=True, check=True)
    return [float(v) for v in done.stdout.split()], np.load(at("y.npy"))


@pytest.fixture(scope="module")
def made(shared):
    """A small model, two of 100 MB that differ in where their weights are, inputs for both, and the bytes of the weights."""
    small_x, x = data(shared / "small.npz", 61, 2, 2, 8), data(shared / "x.npz", VOCABULARY, LAYERS, GROUPS, WIDTH)
    small = models.llama(shared / "small.onnx", dtype=np.float32, longest=128)
    files = {}
    for name, outside, transposed in (("inside", False, False), ("outside", True, True)):
        files[name] = models.llama(shared / f"{name}.onnx", vocabulary=VOCABULARY, hidden=HIDDEN, layers=LAYERS, count=8, groups=GROUPS, longest=128, dtype=np.float32,
                                   outside=outside, transposed=transposed)
    weights = sum(4 * int(np.prod(t.dims)) for t in onnx.load(files["outside"], load_external_data=False).graph.initializer)
    return x, small_x, small, files, weights


def test_peaks(made):
    x, small_x, small, files, weights = made
    for name, model in files.items():
        for what, options in (("float", []), ("int4 weights", W4), ("mxfp4/mxfp4", MX)):
            more = over("evaluate", model, ["--inputs", x, *options], small, ["--inputs", small_x, *options])
            most = 1.6 if options == W4 else 1.35  # a block of int4 weights has a zero point of 64 bits, in the plan and its copies
            check(more <= most * weights + OUTPUTS, f"qk evaluate, {what}, weights {name}: {more / weights:.2f} of the weights ({most} and the outputs)")
        for what, options in (("int4 weights, portable", W4), ("int4 weights, nbits", W4 + ["--export", "nbits"]), ("mxfp4/mxfp4, portable", MX),
                              ("int8/int8, qdq", I8 + ["--export", "qdq", "--calibration"]), ("bf16 weights as floats", ["--activation", "fp32", "--weight", "bf16", "--weights", "float"])):
            calibrated = options[-1] == "--calibration"
            more = over("quantize", model, ["--recipe", "fast", *options, *([x] if calibrated else []), "-o", at("q.onnx")],
                        small, ["--recipe", "fast", *options, *([small_x] if calibrated else []), "-o", at("s.onnx")])
            most = 2.1 if calibrated else 1.6  # making int8 weights pair-safe takes several times a layer's weights
            check(more <= most * weights, f"qk quantize {what}, weights {name}: {more / weights:.2f} of the weights ({most})")


def test_texts_of_different_lengths(made):
    _, _, small, files, weights = made
    # Texts of different lengths, and two that run together: a product's weights are packed once, not once for every number of rows. A sample
    # needs its values, and its outputs (logits and caches) twice: from the run, and joined and padded to the longest.
    for what, count, lengths in (("2 x 64 tokens", 2, (64,)), ("texts of 64, 100 and 128 tokens", 1, (64, 100, 128))):
        long = ",".join(data(at(f"x{n}.npz"), VOCABULARY, LAYERS, GROUPS, WIDTH, samples=count, length=n) for n in lengths)
        short = ",".join(data(at(f"small{n}.npz"), 61, 2, 2, 8, samples=count, length=n) for n in lengths)
        samples, longest = count * len(lengths), max(lengths)
        sample = 2 * samples * longest * 4 * (VOCABULARY + 2 * LAYERS * GROUPS * WIDTH) + 4e6
        for formats, options in (("float", []), ("int4 weights", W4)):
            more = over("evaluate", files["outside"], ["--inputs", long, *options], small, ["--inputs", short, *options])
            most = 1.8 if formats.startswith("int4") else 1.3  # zero points of 64 bits, as above
            check(more <= most * weights + sample, f"qk evaluate, {formats}, {what}: {more / weights:.2f} of the weights ({most} and what a sample needs)")


def test_a_metric_keeps_sums():
    """A metric keeps sums of each sample, not outputs. These texts' logits, also the float model's, are several times as large as the weights."""
    wide = {"vocabulary": 16000, "hidden": 256, "layers": 2, "count": 8, "groups": 4}
    many = models.llama(at("many.onnx"), dtype=np.float32, outside=True, longest=128, **wide)
    wide_weights = sum(4 * int(np.prod(t.dims)) for t in onnx.load(many, load_external_data=False).graph.initializer)
    few, samples = 2, 40
    texts = data(at("many.npz"), wide["vocabulary"], 2, 4, 32, samples=samples, length=64)
    with np.load(texts) as arrays:
        np.savez(at("few.npz"), **{k: v[:few] for k, v in arrays.items()})
    logit_bytes = 64 * wide["vocabulary"] * 4  # bytes of a text's logits
    check((samples - few) * logit_bytes > 6 * wide_weights, f"{samples * logit_bytes / 1e6:.0f} MB of logits, {wide_weights / 1e6:.0f} MB of weights")
    for formats, metrics, options in (("float", "loss,perplexity,top1", []), ("int4 weights", "perplexity,kl,agreement,sqnr", W4)):
        asked = ["--next-token", "--metric", metrics, *options]
        more = over("evaluate", many, ["--inputs", texts, *asked], many, ["--inputs", at("few.npz"), *asked])
        check(more <= 0.3 * wide_weights + 16 * 2 ** 20, f"qk evaluate --metric {metrics}, {formats}, {samples} texts: {more / 1e6:.1f} MB more than {few}")
    planned, plain = (logits(many, texts, *more).astype(np.float64) for more in (W4, []))
    wanted = {"sqnr": 10 * np.log10((plain**2).sum() / ((planned - plain) ** 2).sum()), "agreement": (planned.argmax(-1) == plain.argmax(-1)).mean()}
    asked = ["--inputs", texts, "--metric", "sqnr,agreement", *W4]
    got = {threads: qk_json("evaluate", many, *asked, "--threads", threads) for threads in (1, 3)}
    check(all(got[1][n] == got[3][n] and abs(got[1][n] - v) < 1e-6 for n, v in wanted.items()), f"and these are the metrics of all of them: {wanted}")
    done = qk("evaluate", many, *asked, status=2, env={**os.environ, "TMPDIR": at("nowhere")})
    check("TMPDIR" in done.stderr, "a folder for temporary files that is none is said: " + done.stderr.strip()[-160:])


def test_outputs_do_not_depend_on_the_place(made):
    x, _, _, files, _ = made
    # Outputs do not depend on where the weights are stored, and agree with onnxruntime's.
    got = {}
    for name, model in files.items():
        got[name] = logits(model, x)
    runs = session(files["inside"])
    expected = np.concatenate([runs.run(["logits"], {k: v[i:i + 1] for k, v in np.load(x).items()})[0] for i in range(2)])
    check(np.abs(got["inside"] - expected).max() <= 1e-4 * np.abs(expected).max(), "logits are onnxruntime's")


def test_a_plan_of_blocks(made):
    x, _, _, files, weights = made
    # Scales of blocks are stored in a file beside a saved plan, so the plan is small; it is read back the same.
    qk("quantize", "--recipe", "fast", files["inside"], *W4, "-o", at("q.onnx"), "--save-plan", at("plan.json"), "--report", at("r.html"), "--overwrite")
    plan_bytes, report_bytes = os.path.getsize(at("plan.json")), os.path.getsize(at("r.json"))
    check(plan_bytes < 1e5 and report_bytes < 1e6, f"a plan of blocks has {plan_bytes} bytes, its report {report_bytes}")
    with np.load(at("plan.json.npz")) as arrays:
        count = sum(a.size for a in arrays.values())
    check(count >= weights / 4 / 32 * 0.9, f"its {count} scales are in plan.json.npz")
    first = qk_json("evaluate", files["inside"], "--inputs", x, "--metric", "sqnr", *W4)["sqnr"]
    again = qk_json("evaluate", files["inside"], "--inputs", x, "--metric", "sqnr", "--plan", at("plan.json"))["sqnr"]
    check(first == again, f"the saved plan is the plan: {first:.3f} dB, {again:.3f} dB")
    text = json.loads(open(at("plan.json")).read())
    reference = next(q["scale"] for q in [*text["tensors"].values(), *(e["quantizer"] for e in text["edges"])] if isinstance(q.get("scale"), dict))
    reference["file"] = "../" + reference["file"]
    open(at("bad.json"), "w").write(json.dumps(text))
    done = qk("evaluate", files["inside"], "--inputs", x, "--plan", at("bad.json"), status=2)
    check("bad.json:" in done.stderr and "without folders" in done.stderr, "arrays elsewhere are refused")


def test_packed_weights_in_onnxruntime(made):
    x, _, _, files, weights = made
    # Portable files with packed weights give the plan's results, and onnxruntime loads them in less memory than the float model.
    (float_load, float_run), _ = loaded(files["inside"], x)
    for what, options, packed in (("int4", W4, 0.2), ("mxfp4", ["--approach", "weight_only", "--weight", "mxfp4"], 0.2),
                                  ("mxfp6_e2m3", ["--approach", "weight_only", "--weight", "mxfp6_e2m3"], 0.25)):
        qk("quantize", "--recipe", "fast", files["inside"], *options, "-o", at("portable.onnx"), "--overwrite")
        (load, run), y = loaded(at("portable.onnx"), x)
        check(load <= 1.5 * float_load and run <= 1.5 * float_run, f"onnxruntime, {what}: {load:.0f} MB to load, {run:.0f} MB after three runs; the float model {float_load:.0f}, {float_run:.0f}")
        disk = os.path.getsize(at("portable.onnx"))
        check(disk < packed * weights, f"{what}: {disk / weights:.2f} of the float weights on disk")
        wanted = logits(files["inside"], x, *options)[:1]
        worst = np.abs(y - wanted).max() / np.abs(wanted).max()
        check(worst < 1e-3, f"onnxruntime computes what the plan of {what} says, with activations in float: {worst:.1e}")
        qk("inspect", at("portable.onnx"), "--save-plan", at("back.json"), "--save-float", at("back.onnx"), "--overwrite")
        back = qk_json("evaluate", at("back.onnx"), "--inputs", x, "--metric", "sqnr", "--plan", at("back.json"))["sqnr"]
        check(back is None or back > 120, f"the plan of {what} comes back from the file: its float model is on the plan's grid, {back} dB")


def test_a_file_above_2_gb():
    """A file above 2 GB, the limit of a protobuf message, is refused at once."""
    with open(at("huge.onnx"), "wb") as f:
        f.truncate(2 ** 31 + 10)
    done = qk("inspect", at("huge.onnx"), status=2)
    check(re.search(r"huge.onnx: larger than 2 GB; save it with external data", done.stderr) is not None, "a file above 2 GB is refused in words")


if __name__ == "__main__":
    evidence.main()
