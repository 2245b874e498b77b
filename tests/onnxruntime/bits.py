# SPDX-License-Identifier: Apache-2.0
"""Compares each quantizer of whole networks, bit for bit: as a function in onnxruntime (optimizer off), as an operator of qk's library on 1, 2 and 4
threads, and in qk evaluate. Every format of the catalogue, activations and weights.

    python tests/onnxruntime/bits.py build/release/qk ../shared [--only kwt1] [--formats mxfp4,nf4]

The values that a quantizer reads are those that the float32 network has at its place for one sample, so every runtime quantizes the same ones; weights
are what the file holds. Prints a row for each network. Needs numpy, onnx, onnxruntime, and libqk_onnxruntime.so beside the command.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QK_COMMAND", sys.argv[1] if len(sys.argv) > 1 else "")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "tool"), str(ROOT / "bench")]
import numpy as np
import onnx
import onnxruntime as ort

import language_models
from onnxruntime_operators import vit

ort.set_default_logger_severity(4)
SHARED = ("mnist-8", "kwt1_mfcc", "resnet20_cifar10_folded", "resnet20_cifar10", "magika_v3_3", "squeezenet1.1_imagenet", "ultraface_version-RFB-320_simplified")
MADE = {"gpt": lambda path: language_models.gpt(str(path), hidden=64, layers=2), "llama": lambda path: language_models.llama(str(path), dtype=np.float32, transposed=False),
        "vit": lambda path: vit(path, size=64, hidden=48, layers=2)}


def session(model, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL, library=None, threads=1):
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads, options.log_severity_level = level, threads, 4
    if library:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"])


def feed_of(s):
    r = np.random.default_rng(1)
    feed = {}
    for i in s.get_inputs():
        shape = [d if isinstance(d, int) and d > 0 else 8 if d in ("S", "P", "L") else 1 for d in i.shape]
        if i.type == "tensor(float)":
            feed[i.name] = r.standard_normal(shape).astype(np.float32)
        else:
            feed[i.name] = (np.ones(shape) if "mask" in i.name else np.arange(int(np.prod(shape))).reshape(shape) % 32).astype(np.int64 if i.type == "tensor(int64)" else np.int32)
    return feed


def with_outputs(model, names):
    m = onnx.ModelProto()
    m.CopyFrom(model)
    given = {o.name for o in m.graph.output}
    m.graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in given)
    return m.SerializeToString()


def calls_alone(file, values):
    """Returns a model of the file's calls of qk's functions, each on what the float network has there, the names of their results, and the inputs."""
    m = onnx.load(file)
    held = {t.name: t for t in m.graph.initializer}
    nodes, inputs, used, results = [], {}, {}, []
    for n in m.graph.node:
        if n.domain != "qk":
            continue
        if n.input[0] not in held and n.input[0] not in values:
            continue  # behind a node that the export made: a Flatten before its rows
        if n.input[0] not in held:
            inputs[n.input[0]] = values[n.input[0]]
        used.update({i: held[i] for i in n.input if i in held})
        nodes.append(n)
        results.append(n.output[0])
    nodes = [n for n in nodes]
    graph = onnx.helper.make_graph(nodes, "calls", [onnx.helper.make_tensor_value_info(k, 1, list(v.shape)) for k, v in inputs.items()],
                                   [onnx.helper.make_tensor_value_info(r, 1, None) for r in results], list(used.values()))
    alone = onnx.helper.make_model(graph, opset_imports=m.opset_import, functions=[f for f in m.functions if f.name in {n.op_type for n in nodes}], ir_version=m.ir_version)
    return alone, results, inputs


def same(a, b):
    return a.shape == b.shape and bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("qk", type=Path)
    p.add_argument("shared", type=Path)
    p.add_argument("--only")
    p.add_argument("--formats")
    a = p.parse_args()
    library = subprocess.run([a.qk, "--onnxruntime-library"], capture_output=True, text=True, check=True).stdout.strip()
    listed = json.loads(subprocess.run([a.qk, "formats", "--json"], capture_output=True, text=True, check=True).stdout)["formats"]
    formats = a.formats.split(",") if a.formats else [f["name"] for f in listed if f["name"] not in ("fp32", "e8m0")]
    wrong = 0
    print("| network | formats | calls | values of each runtime | calls that differ |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name in (*MADE, *SHARED):
            if a.only not in (None, name):
                continue
            model = folder / f"{name}.onnx"
            if name in MADE:
                MADE[name](model)
            else:
                model = a.shared / "models" / f"{name}.onnx"
            proto = onnx.load(model)
            every = [o for n in proto.graph.node for o in n.output if o]
            plain = session(with_outputs(proto, every))
            feed = feed_of(plain)
            names = [o.name for o in plain.get_outputs()]
            values = {k: v for k, v in zip(names, plain.run(None, feed)) if isinstance(v, np.ndarray) and v.dtype == np.float32}
            values.update({k: v for k, v in feed.items() if v.dtype == np.float32})
            np.savez(folder / "calibration.npz", **feed)
            calls = count = differ = 0
            done = []
            for f in formats:
                out = folder / "out.onnx"
                run = subprocess.run([a.qk, "quantize", model, "-o", out, "--activation", f, "--weight", f, "--calibration", folder / "calibration.npz", "--recipe", "fast",
                                      "--overwrite"], capture_output=True, text=True)
                if run.returncode:
                    print(f"{name}, {f}: {run.stderr.strip()[:200]}", file=sys.stderr)
                    wrong += 1
                    continue
                alone, results, inputs = calls_alone(out, values)
                if not results:
                    continue  # pairs alone, which are onnxruntime's own
                done.append(f)
                alone = alone.SerializeToString()
                expected = session(alone).run(results, inputs)
                got = {f"operators, {t} threads": session(alone, library=library, threads=t).run(results, inputs) for t in (1, 2, 4)}
                (folder / "alone.onnx").write_bytes(alone)
                if inputs:
                    np.savez(folder / "x.npz", **inputs)
                    subprocess.run(["rm", "-rf", folder / "y"], check=True)
                    run = subprocess.run([a.qk, "evaluate", folder / "alone.onnx", "--inputs", folder / "x.npz", "--output-dir", folder / "y", "--threads", "1", "--json"],
                                         capture_output=True, text=True)
                    if run.returncode:
                        print(f"{name}, {f}: qk evaluate: {run.stderr.strip()[:300]}", file=sys.stderr)
                        wrong += 1
                    else:
                        files = json.loads(run.stdout).get("files", {})
                        got["qk evaluate"] = [np.load(folder / "y" / files.get(r, r + ".npy")).reshape(e.shape) for r, e in zip(results, expected)]
                calls, count = calls + len(results), count + sum(e.size for e in expected)
                for how, values_of in got.items():
                    for r, y, e in zip(results, values_of, expected):
                        if not same(y, e):
                            differ += 1
                            print(f"{name}, {f}, {how}: '{r}' differs", file=sys.stderr)
            print(f"| {name} | {len(done)} | {calls} | {count} | {differ} |", flush=True)
            wrong += differ
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
