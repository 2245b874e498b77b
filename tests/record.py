#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes down what qk gives today, one row a result and one hash a row, so that a change that moves code can show that it moved nothing else.

    python tests/record.py build/release --out before.txt       before the change
    python tests/record.py build/release --against before.txt   after it: prints the rows that differ, and exits with 1 if there are any

Rows:
    kernel ISA FORMAT WHAT      fake_quantize, encode and decode of every format of the catalogue on every instruction set that this machine
                                has: float32, halves, axes, odd lengths, special values; other semantics and roundings on the best set
    device NAME                 a product of matrices, as the device makes it
    outputs NETWORK             what qk evaluate gives for a float network of the tests
    export NETWORK STYLE FORMAT the written file without the name and version of its producer
    plan NETWORK FORMAT         the saved plan without the version
    evaluate NETWORK FORMAT     outputs of that plan
The networks are those of the tests and, where it lies beside the project, of ../shared. `--only WORD` takes the rows of one kind.
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import evidence
import numpy as np
import onnx
from evidence import of_many_magnitudes, qk_json, run

SETS = ("sse2", "avx2", "avx512", "avx512_vnni", "neon")
STYLES = ("qdq", "portable", "amd", "qoperator", "qinteger", "nbits")
PAIRS = (("int8", "int8"), ("int8", "int4"), ("mxfp8_e4m3", "mxfp4"), ("nvfp4", "nvfp4"), ("bfp16", "mx9"), ("fp8_e4m3", "int8"))


def short(*parts):
    """A hash of arrays, bytes and texts."""
    made = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            made.update(f"{part.dtype}{part.shape}".encode())
            part = np.ascontiguousarray(part).tobytes()
        made.update(part if isinstance(part, bytes) else str(part).encode())
    return made.hexdigest()[:16]


def told(call):
    """What a call gives: a row says also that it is refused, and why."""
    try:
        return call()
    except Exception as refused:
        return f"{type(refused).__name__}: {refused}"


def kernels_of(isa, best):
    """Prints rows. It runs in a process of its own, whose kernels are those of one instruction set."""
    import qk
    inputs = {"64x96": of_many_magnitudes((64, 96), 1), "7x77": of_many_magnitudes((7, 77), 2), "3x32x5": of_many_magnitudes((3, 32, 5), 3),
              "1000": of_many_magnitudes(1000, 4), "0x16": np.zeros((0, 16), np.float32)}
    for format in [f.name for f in qk.formats()]:
        def row(what, call):
            given = told(call)
            print(f"kernel {isa} {format} {what}\t{short(*(given if isinstance(given, tuple) else (given,)))}")

        def packed(x, **how):
            p = qk.encode(x, format, **how)
            return p.elements, p.scales, p.shifts, p.tensor_scale, p.decode()

        for name, x in inputs.items():
            for axis in range(-1, -x.ndim - 1, -1):
                row(f"fake_quantize {name} axis {axis}", lambda: qk.fake_quantize(x, format, axis=axis))
                row(f"encode {name} axis {axis}", lambda: packed(x, axis=axis))
        x = inputs["64x96"]
        row("fake_quantize float16", lambda: qk.fake_quantize(x.astype(np.float16), format))
        if not best:
            continue
        for semantics in qk.semantics():
            row(f"fake_quantize {semantics}", lambda: qk.fake_quantize(x, format, semantics=semantics))
            row(f"encode {semantics}", lambda: packed(x, semantics=semantics))
        for rounding in qk.roundings():
            row(f"fake_quantize {rounding}", lambda: qk.fake_quantize(x, format, rounding=rounding))
        row("backward", lambda: qk.fake_quantize_backward(x, of_many_magnitudes(x.shape, 5), format))


def kernels(folder):
    def python(isa, *words):
        environment = {**os.environ, "QK_ARCH": isa, "PYTHONPATH": os.fspath(evidence.build() / "python" / "package"), "PYTHONWARNINGS": "ignore"}
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, env=environment).stdout.splitlines()

    sets = [isa for isa in SETS if python(isa, "-c", "import qk; print(qk.architecture())") == [isa]]
    for isa in sets:
        for line in python(isa, __file__, evidence.build(), "--kernels-of", isa, *(["--best"] if isa == sets[-1] else [])):
            yield line.split("\t")


def devices(folder):
    for name, seed in (("a", 8), ("b", 9)):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32))
    for device in qk_json("formats", "--devices")["devices"]:
        done = run("dot", folder / "a.npy", folder / "b.npy", folder / "d.npy", "--device", device["name"], "--overwrite")
        yield f"device {device['name']}", short(done.returncode, np.load(folder / "d.npy") if done.returncode == 0 else done.stderr)


def networks(folder):
    for models in evidence.folders("models"):
        for file in sorted((models / "models").glob("*.onnx")):
            yield from network(file, folder)


def network(file, folder):
    name, data, random = file.stem, {}, np.random.default_rng(7)
    for tensor in onnx.load(file, load_external_data=False).graph.input:
        lengths = [d.dim_value or 4 for d in tensor.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type)
        data[tensor.name] = random.standard_normal(lengths).astype(dtype) if np.issubdtype(dtype, np.floating) else random.integers(0, 4, lengths).astype(dtype)
    np.savez(folder / "x.npz", **data)

    def outcome(words, made):
        """The hash of what made() reads after the command, or of why it is refused."""
        done = run(*words, "--overwrite")
        return done.returncode == 0, short(done.returncode, *(made() if done.returncode == 0 else [done.stderr.replace(os.fspath(folder), "")]))

    def outputs(*words):
        shutil.rmtree(folder / "out", ignore_errors=True)
        return outcome(["evaluate", file, "--inputs", folder / "x.npz", "--output-dir", folder / "out", *words],
                       lambda: [np.load(f) for f in sorted((folder / "out").glob("*.npy"))])[1]

    yield f"outputs {name}", outputs()
    for activation, weight in PAIRS:
        pair = f"{activation}/{weight}"
        asked = ["quantize", file, "--activation", activation, "--weight", weight, "--calibration", folder / "x.npz", "--recipe", "fast", "-o", folder / "q.onnx"]
        planned, plan = outcome([*asked, "--save-plan", folder / "plan.json"], lambda: [plan_without_version(folder / "plan.json")])
        yield f"plan {name} {pair}", plan
        if not planned:
            continue
        yield f"evaluate {name} {pair}", outputs("--plan", folder / "plan.json")
        for style in STYLES:
            yield f"export {name} {style} {pair}", outcome([*asked, "--export", style], lambda: [model_without_producer(folder / "q.onnx")])[1]


def plan_without_version(file):
    return json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key not in ("qk", "version")}, sort_keys=True)


def model_without_producer(file):
    model = onnx.load(file)
    model.ClearField("producer_name")
    model.ClearField("producer_version")
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


KINDS = {"kernel": kernels, "device": devices, "network": networks}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", help="a build folder with qk and the Python package")
    parser.add_argument("--out", help="write the rows here")
    parser.add_argument("--against", help="rows of an earlier run")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--kernels-of", help=argparse.SUPPRESS)
    parser.add_argument("--best", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["QK_COMMAND"] = os.path.join(given.release, "qk")
    if given.kernels_of is not None:
        return kernels_of(given.kernels_of, given.best)
    rows = {}
    for kind, made in KINDS.items():
        if given.only in (None, kind):
            with tempfile.TemporaryDirectory() as folder:
                rows.update(made(Path(folder)))
    text = "".join(f"{name}\t{hash}\n" for name, hash in rows.items())
    if given.out:
        Path(given.out).write_text(text)
    print(f"{len(rows)} rows, {short(text)} over all")
    if given.against:
        before = dict(line.split("\t") for line in Path(given.against).read_text().splitlines())
        differ = [name for name in {**before, **rows} if before.get(name) != rows.get(name)]
        for name in differ:
            print("missing" if name not in rows else "new" if name not in before else "differs", name)
        print(f"{len(differ)} of {len(before)} rows differ")
        return 1 if differ else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
