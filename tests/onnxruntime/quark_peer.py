# SPDX-License-Identifier: Apache-2.0
"""Compares qk's operators of AMD Quark's names with Quark's own library for the CPU, bit for bit, and times both on Quark's files.

    python tests/onnxruntime/quark_peer.py build/release/libqk_onnxruntime.so $(tests/onnxruntime/quark_library.sh) [QUARK_MODELS]

QUARK_MODELS is a folder of files that Quark wrote (../shared/quark_models). Needs numpy, onnx and onnxruntime. NaN is NaN, whatever its bits.
"""
import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tool")]
import numpy as np
import onnxruntime as ort

from quark_cases import quark, quark_operators

ort.set_default_logger_severity(4)


def session(model, *libraries, threads=1):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    for library in libraries:
        options.register_custom_ops_library(str(library))
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def differences(a, b):
    bits = np.uint16 if a.dtype == np.float16 else np.uint32
    return int((~((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b)))).sum())


def values(seed, shape, specials):
    r = np.random.default_rng(seed)
    x = (r.standard_normal(shape) * 2.0 ** r.integers(-60, 12, shape)).astype(np.float32)
    any_bits = r.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.where(r.random(shape) < 0.1, np.where(np.isfinite(any_bits), any_bits, 1), x)
    ties = (r.integers(-2048, 2048, shape) * 2.0 ** r.integers(-8, 3, shape)).astype(np.float32)
    x = np.where(r.random(shape) < 0.2, ties, x)
    x = np.where(r.random(shape) < 0.05, np.float32(0) * np.sign(x), x)
    if specials:
        x = np.where(r.random(shape) < 0.02, r.choice(np.array([np.nan, np.inf, -np.inf], np.float32), shape), x)
    return x.astype(np.float32)


def medians(sessions, feed, seconds=1.0):
    times, start = [[] for _ in sessions], time.perf_counter()
    while len(times[0]) < 5 or time.perf_counter() - start < seconds:
        for s, own in zip(sessions, times):
            begin = time.perf_counter()
            s.run(None, feed)
            own.append(time.perf_counter() - begin)
    return [1e3 * float(np.median(own[1:])) for own in times]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("own", type=Path)
    p.add_argument("peer", type=Path)
    p.add_argument("models", type=Path, nargs="?")
    a = p.parse_args()
    wrong = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "quark.onnx"
        cases = list(quark_operators())
        for i, (kind, how) in enumerate(cases):
            for shape in ((6, 33, 5), (4, 64, 3)):
                if how.get("zero") is not None and np.size(how["zero"]) > 1 and shape[1] != 33:
                    continue
                quark(model, kind, **how)
                x = values(i, shape, True)
                if how.get("dtype") == np.float16:
                    x = np.clip(x, -60000, 60000).astype(np.float16)
                (mine,), (theirs,) = session(model, a.own).run(None, {"x": x}), session(model, a.peer).run(None, {"x": x})
                n = differences(mine, theirs)
                wrong, compared = wrong + n, compared + mine.size
                if n:
                    at = tuple(np.argwhere((mine != theirs) & ~(np.isnan(mine) & np.isnan(theirs)))[:1].reshape(-1))
                    print(f"{kind} {how} {shape}: {n} of {mine.size} differ", f"x {x[at]!r} gives {mine[at]!r}, Quark {theirs[at]!r}" if at else "in signs of zeros")
        print(f"{len(cases)} operators by name and attributes, {compared} values: {wrong} differ from Quark's library.")
        try:
            session(quark(model, "MXQuantizeDequantize"), a.own, a.peer)
            print("Both libraries in one session: no sentence")
            wrong += 1
        except Exception as said:
            print("Both libraries in one session:", str(said).split("\n")[0][:200])
    if a.models:
        print("\n| file | values that differ | Quark's library, ms | qk's, ms |\n|---|---|---|---|")
        for f in sorted(a.models.glob("*.onnx")):
            runs = [session(f, a.own), session(f, a.peer)]
            inputs = runs[0].get_inputs()[0]
            x = np.random.default_rng(1).standard_normal([1 if not isinstance(d, int) else d for d in inputs.shape]).astype(np.float32)
            mine, theirs = (r.run(None, {inputs.name: x}) for r in runs)
            n = sum(differences(m, t) for m, t in zip(mine, theirs))
            own, peer = medians(runs, {inputs.name: x})
            print(f"| {f.stem} | {n} of {sum(m.size for m in mine)} | {peer:.3g} | {own:.3g} |")
            wrong += n
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
