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
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
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


def values(shape, seed):
    """Floats of many magnitudes with zeros, subnormals, infinities and NaN among them."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal(shape) * np.exp2(random.integers(-20, 12, shape))).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -3e-39, 3.4e38, 448, 0.4375, 6, 0.25], np.float32)
    flat = x.reshape(-1)
    flat[random.choice(flat.size, min(special.size, flat.size // 8), replace=False)] = special[: min(special.size, flat.size // 8)]
    return x


def told(call):
    """What a call gives: a row says also that it is refused, and why."""
    try:
        return call()
    except Exception as refused:
        return f"{type(refused).__name__}: {refused}"


def kernels(isa, best):
    """Runs inside a process of its own, whose kernels are those of one instruction set."""
    import qk
    inputs = {"64x96": values((64, 96), 1), "7x77": values((7, 77), 2), "3x32x5": values((3, 32, 5), 3), "1000": values(1000, 4), "0x16": np.zeros((0, 16), np.float32)}
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
        row("fake_quantize float16", lambda: qk.fake_quantize(inputs["64x96"].astype(np.float16), format))
        if not best:
            continue
        x = inputs["64x96"]
        for semantics in qk.semantics():
            row(f"fake_quantize {semantics}", lambda: qk.fake_quantize(x, format, semantics=semantics))
            row(f"encode {semantics}", lambda: packed(x, semantics=semantics))
        for rounding in qk.roundings():
            row(f"fake_quantize {rounding}", lambda: qk.fake_quantize(x, format, rounding=rounding))
        row("backward", lambda: qk.fake_quantize_backward(x, values(x.shape, 5), format))


class Recorder:
    def __init__(self, release, only):
        self.release, self.only, self.rows = Path(release).resolve(), only, {}

    def wanted(self, kind):
        return self.only in (None, kind)

    def add(self, name, *parts):
        self.rows[name] = short(*parts)

    def qk(self, *words):
        done = subprocess.run([self.release / "qk", *map(str, words)], capture_output=True, text=True)
        return done.returncode, done.stderr

    def kernels(self):
        def environment(isa):
            return {**os.environ, "QK_ARCH": isa, "PYTHONPATH": os.fspath(self.release / "python" / "package"), "PYTHONWARNINGS": "ignore"}

        def taken(isa):
            return subprocess.run([sys.executable, "-c", "import qk; print(qk.architecture())"], capture_output=True, text=True, check=True, env=environment(isa)).stdout.strip()

        sets = [isa for isa in SETS if taken(isa) == isa]
        for isa in sets:
            lines = subprocess.run([sys.executable, __file__, os.fspath(self.release), "--kernels-of", isa] + (["--best"] if isa == sets[-1] else []),
                                   capture_output=True, text=True, check=True, env=environment(isa)).stdout.splitlines()
            self.rows.update(line.split("\t") for line in lines)

    def devices(self, folder):
        for name, seed in (("a", 8), ("b", 9)):
            np.save(folder / f"{name}.npy", np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32))
        listed = json.loads(subprocess.run([self.release / "qk", "formats", "--devices", "--json"], capture_output=True, text=True, check=True).stdout)
        for device in listed["devices"] if isinstance(listed, dict) else listed:
            status, said = self.qk("dot", folder / "a.npy", folder / "b.npy", folder / "d.npy", "--device", device["name"], "--overwrite")
            self.add(f"device {device['name']}", status, np.load(folder / "d.npy") if status == 0 else said)

    def networks(self, folder):
        for models in (self.release / "test_data" / "models", ROOT.parent / "shared" / "models"):
            for file in sorted(models.glob("*.onnx")):
                try:
                    self.network(file, folder)
                except ValueError as unusable:
                    self.add(f"unusable {file.name}", str(unusable))

    def network(self, file, folder):
        data = {}
        random = np.random.default_rng(7)
        for tensor in onnx.load(file, load_external_data=False).graph.input:
            lengths = [d.dim_value or 4 for d in tensor.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type)
            data[tensor.name] = random.standard_normal(lengths).astype(dtype) if np.issubdtype(dtype, np.floating) else random.integers(0, 4, lengths).astype(dtype)
        np.savez(folder / "x.npz", **data)
        name = file.stem
        self.add(f"outputs {name}", *self.evaluated(folder, file))
        for activation, weight in PAIRS:
            pair = f"{activation}/{weight}"
            asked = ["quantize", file, "--activation", activation, "--weight", weight, "--calibration", folder / "x.npz", "--recipe", "fast", "--overwrite"]
            status, said = self.qk(*asked, "-o", folder / "q.onnx", "--save-plan", folder / "plan.json")
            if status != 0:
                self.add(f"plan {name} {pair}", status, said.replace(os.fspath(folder), ""))
                continue
            plan = json.loads((folder / "plan.json").read_text())
            self.add(f"plan {name} {pair}", json.dumps({k: v for k, v in plan.items() if k not in ("version", "qk", "model")}, sort_keys=True))
            self.add(f"evaluate {name} {pair}", *self.evaluated(folder, file, "--plan", folder / "plan.json"))
            for style in STYLES:
                status, said = self.qk(*asked, "-o", folder / "q.onnx", "--export", style)
                self.add(f"export {name} {style} {pair}", status, said.replace(os.fspath(folder), "") if status else self.contents(folder / "q.onnx"))

    def evaluated(self, folder, model, *words):
        status, said = self.qk("evaluate", model, "--inputs", folder / "x.npz", "--output-dir", folder / "out", "--overwrite", *words)
        return (status, *(np.load(f) for f in sorted((folder / "out").glob("*.npy")))) if status == 0 else (status, said.replace(os.fspath(folder), ""))

    @staticmethod
    def contents(file):
        model = onnx.load(file)
        model.ClearField("producer_name")
        model.ClearField("producer_version")
        del model.metadata_props[:]
        return model.SerializeToString(deterministic=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", help="a build folder with qk and the Python package")
    parser.add_argument("--out", help="write the rows here")
    parser.add_argument("--against", help="rows of an earlier run")
    parser.add_argument("--only", choices=("kernel", "network", "device"))
    parser.add_argument("--kernels-of", help=argparse.SUPPRESS)
    parser.add_argument("--best", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.kernels_of is not None:
        return kernels(given.kernels_of, given.best)
    recorder = Recorder(given.release, given.only)
    with tempfile.TemporaryDirectory() as made:
        if recorder.wanted("kernel"):
            recorder.kernels()
        if recorder.wanted("device"):
            recorder.devices(Path(made))
        if recorder.wanted("network"):
            recorder.networks(Path(made))
    text = "".join(f"{name}\t{hash}\n" for name, hash in recorder.rows.items())
    if given.out:
        Path(given.out).write_text(text)
    print(f"{len(recorder.rows)} rows, {short(text)} over all")
    if given.against:
        before = dict(line.split("\t") for line in Path(given.against).read_text().splitlines())
        differ = [name for name in {**before, **recorder.rows} if before.get(name) != recorder.rows.get(name)]
        for name in differ:
            print("missing" if name not in recorder.rows else "new" if name not in before else "differs", name)
        print(f"{len(differ)} of {len(before)} rows differ")
        return 1 if differ else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
