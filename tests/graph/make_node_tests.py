#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes ONNX's backend node tests from the pinned package onnx, in the folders that onnx_node_tests reads, and compares them with node_tests.txt.

    build/venv/bin/python tests/graph/make_node_tests.py FOLDER [--update] [--compare OTHER]

onnx's wheel holds the code of the tests and none of their files. FOLDER gets test_NAME/model.onnx and test_NAME/test_data_set_0/*.pb; what
lies there from a run with the same list is kept. node_tests.txt has a line for each test: a hash of its model, its inputs and the outputs that
are not floats, its name, and a weighted sum of each output of floats, which may differ by rounding from one C library to the next. Exit
status 1 if a test is another than is listed. --update writes the list. --compare says in which tests OTHER, a folder of node tests, differs.

Numpy's seed is fixed, protobuf serialises in one order, and numpy, OpenBLAS and the C library may use only instructions that every x86-64
has, since their faster code rounds some results otherwise.
"""
import hashlib
import os
import shutil
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

PLAIN = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR", "OPENBLAS_CORETYPE": "PRESCOTT", "OPENBLAS_NUM_THREADS": "1",
         "PYTHONHASHSEED": "0", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX2_Usable,-FMA,-FMA_Usable,-FMA4,-FMA4_Usable"}
ROUNDED_INPUTS = {"test_log"}  # np.exp makes its input
LIST = Path(__file__).with_name("node_tests.txt")
PACKAGES = ("onnx", "numpy", "ml_dtypes")


def stamp():
    """Says what the files are made of."""
    return " ".join(f"{p} {version(p)}" for p in PACKAGES)


def serialised(value, info):
    """Returns the bytes of an input or output whose ValueInfoProto is info."""
    import onnx
    from onnx import numpy_helper
    if info.type.HasField("map_type"):
        value = numpy_helper.from_dict(value, info.name)
    elif info.type.HasField("sequence_type"):
        value = numpy_helper.from_list(value, info.name)
    elif info.type.HasField("optional_type"):
        value = numpy_helper.from_optional(value, info.name)
    elif not isinstance(value, onnx.TensorProto):
        value = numpy_helper.from_array(value, info.name)
    return value.SerializeToString(deterministic=True)


def weighted_sum(x):
    """Returns a sum of x's elements with weights that depend on their places, and how far rounding may move it."""
    import numpy as np
    v = np.nan_to_num(x.astype(np.float64).ravel(), nan=1.75, posinf=1e30, neginf=-1e30).clip(-1e30, 1e30)
    terms = v * np.cos(0.7 * np.arange(v.size) + 0.3)
    return terms.sum(), np.abs(terms).sum() * (2e-3 if x.dtype.itemsize == 2 else 1e-5) + 1e-30


def collected():
    """Yields (name, {file: bytes}, {file: floats that rounding may move}) of every test."""
    warnings.filterwarnings("ignore")  # the tests divide by zero on purpose
    import ml_dtypes
    import numpy as np
    floats = [np.dtype(d) for d in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)]
    np.random.seed(0)
    from onnx.backend.test.case.node import collect_testcases
    for case in sorted(collect_testcases(), key=lambda c: c.name):
        files = {"model.onnx": case.model.SerializeToString(deterministic=True)}
        rounded = {}
        for k, sets in enumerate(case.data_sets):
            for what, values, infos in zip(("input", "output"), sets, (case.model.graph.input, case.model.graph.output)):
                for i, value in enumerate(values):
                    file = f"test_data_set_{k}/{what}_{i}.pb"
                    files[file] = serialised(value, infos[i])
                    if (what == "output" or case.name in ROUNDED_INPUTS) and isinstance(value, (np.ndarray, np.generic)) and value.dtype in floats:
                        rounded[file] = np.asarray(value)
        yield case.name, files, rounded


def digest(files, rounded):
    h = hashlib.sha256()
    for name in sorted(files):
        floats = rounded.get(name)
        h.update(f"{name} {len(files[name])}\n".encode() + (files[name] if floats is None else f"{floats.dtype} {floats.shape}".encode()))
    return h.hexdigest()[:16]


def listed():
    """Returns the packages of node_tests.txt and {test: (hash, sums)}."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    words = [line.split() for line in lines[1:]]
    return lines[0], {name: (code, [float(s) for s in sums]) for code, name, *sums in words}


def make(folder):
    """Writes the tests; returns {test: (hash, [(sum, how far rounding may move it)])}."""
    part = folder.with_name(folder.name + ".part")
    for old in (part, folder):
        shutil.rmtree(old, ignore_errors=True)
    made = {}
    for name, files, floats in collected():
        made[name] = digest(files, floats), [weighted_sum(x) for _, x in sorted(floats.items())]
        for file, data in files.items():
            path = part / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    part.rename(folder)
    return made


def others(made, wanted):
    """Returns a sentence for each test that is not the one listed."""
    said = [f"{name}: listed, not made" for name in wanted.keys() - made.keys()]
    for name, (code, sums) in made.items():
        listed_code, listed_sums = wanted.get(name, ("", []))
        if code != listed_code:
            said.append(f"{name}: {code}, listed {listed_code or 'nowhere'}")
        elif any(abs(a - b) > far for (a, far), b in zip(sums, listed_sums, strict=True)):
            said.append(f"{name}: its floats sum to {[float(a) for a, _ in sums]}, listed {listed_sums}")
    return sorted(said)


def compare(folder, other):
    """Prints which tests of two folders differ, and in what: the model, inputs, outputs, or the set of files."""
    import numpy as np
    from onnx import TensorProto, numpy_helper
    counts = {}
    mine, theirs = ({p.name for p in f.iterdir() if (p / "model.onnx").exists()} for f in (folder, other))
    for name in sorted(mine & theirs):
        files = [{str(p.relative_to(f / name)): p.read_bytes() for p in (f / name).rglob("*") if p.is_file()} for f in (folder, other)]
        if files[0] == files[1]:
            kind = "the same"
        elif files[0].keys() != files[1].keys():
            kind = "other files"
        else:
            kinds = {k.split("/")[-1].split("_")[0].split(".")[0] for k in files[0] if files[0][k] != files[1][k]}
            kind = "other " + " and ".join(sorted(kinds))
            if kinds == {"output"}:
                worst = 0
                for k in files[0]:
                    if files[0][k] != files[1][k]:
                        a, b = (numpy_helper.to_array(TensorProto.FromString(f[k])).astype(np.float64) for f in files)
                        worst = max(worst, np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
                kind += ", by less than 1e-5 of the largest" if worst < 1e-5 else ""
        counts.setdefault(kind, []).append(name)
    for kind, names in sorted(counts.items()):
        print(f"{len(names):5} {kind}" + ("" if kind == "the same" else ": " + " ".join(names)))
    print(f"{len(mine - theirs):5} only in {folder}; {len(theirs - mine)} only in {other}: {' '.join(sorted(theirs - mine))}")


def main():
    if any(os.environ.get(k) != v for k, v in PLAIN.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **PLAIN})
    try:
        made_of = stamp()
    except ImportError as missing:
        print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
        return 0
    folder = Path(sys.argv[1])
    if "--update" in sys.argv:
        lines = [" ".join([code, name, *(f"{s:.9g}" for s, _ in sums)]) for name, (code, sums) in make(folder).items()]
        LIST.write_text("# ONNX's backend node tests as make_node_tests.py makes them from the packages of the next line: hash, name, sums of floats.\n"
                        + "\n".join([made_of, *lines]) + "\n")
    packages, wanted = listed()
    done = folder / "made.txt"
    key = hashlib.sha256(LIST.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    if not done.exists() or done.read_text() != key:
        wrong = others(make(folder), wanted)
        if wrong:
            print("\n".join(wrong[:20]))
            print(f"{len(wrong)} tests are others than tests/graph/node_tests.txt lists; it was made with {packages}, here is {made_of}")
            return 1
        done.write_text(key)
    print(f"{len(wanted)} node tests of {packages} in {folder}")
    if "--compare" in sys.argv:
        compare(folder, Path(sys.argv[sys.argv.index("--compare") + 1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
