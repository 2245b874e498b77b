# SPDX-License-Identifier: Apache-2.0
"""The package in a process: the order of imports, fork and spawn, sub-interpreters, the command, growth of memory."""

import ctypes
import gc
import importlib.util
import itertools
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import DIGITS

import qk

USES = {
    "qk": "qk.quantize(MODEL, np.zeros((2, 1, 8, 8), np.float32), activation='int8', weight='int8')",
    "onnx": "onnx.checker.check_model(onnx.load(MODEL))",
    "onnxruntime": "onnxruntime.InferenceSession(MODEL).run(None, {'image': np.zeros((2, 1, 8, 8), np.float32)})",
    "google.protobuf": "from google.protobuf import json_format, struct_pb2\n"
                       "message = json_format.Parse('{\"a\": [1, true]}', struct_pb2.Struct())\n"
                       "assert struct_pb2.Struct.FromString(message.SerializeToString()) == message",
    "openvino": "openvino.compile_model(openvino.Core().read_model(MODEL), 'CPU')([np.zeros((2, 1, 8, 8), np.float32)])",
    "torch": "torch.nn.Conv2d(1, 2, 3)(torch.zeros(1, 1, 8, 8))",
}


def run(code, *arguments, **more):
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code, *arguments], capture_output=True, text=True, timeout=300, **more)


def present():
    there = []
    for name in USES:
        try:
            if importlib.util.find_spec(name) is not None:
                there.append(name)
        except ModuleNotFoundError:
            pass
    return there


def test_any_order_of_import():
    names = present()
    assert "onnx" in names and "onnxruntime" in names
    orders = list(itertools.permutations(names)) if len(names) <= 3 else [
        order for i in range(len(names)) for order in (names[i:] + names[:i], (names[i:] + names[:i])[::-1])]
    for order in orders:
        imports = "".join(f"import {n}\n" for n in order)
        uses = "".join(f"{USES[n]}\n" for n in order)
        done = run(f"import numpy as np\nMODEL = {os.fspath(DIGITS / 'digits.onnx')!r}\n{imports}{uses}{uses}print('well')")
        assert done.returncode == 0 and done.stdout.strip() == "well", (order, done.stderr[-2000:], done.returncode)


def test_the_module_shows_one_symbol():
    module = sys.modules["qk._qk"].__file__
    listed = subprocess.run(["nm", "-D", "--defined-only", "--extern-only", module], capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("skipped: no nm")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["PyInit__qk"]


def child(seed):
    x = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
    return qk.fake_quantize(x, "mxfp4").sum(), qk.quantize(DIGITS / "digits.onnx", x[:2].reshape(2, 1, 8, 8), activation="int8", weight="int8")["quantized_edges"]


@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes(way):
    if way == "fork":  # the parent has used its threads already
        child(0)
    with multiprocessing.get_context(way).Pool(2) as pool:
        assert pool.map(child, [1, 2]) == [child(1), child(2)]


def test_sub_interpreters_are_refused_in_words():
    code = """
import sys
try:
    import _interpreters as s  # 3.13
except ImportError:
    import _xxsubinterpreters as s
i = s.create()
try:
    failed = s.run_string(i, "import sys; sys.path[:] = " + repr(sys.path) + "; import qk")
    if failed:  # 3.13 returns it
        raise ImportError(failed.msg)
except Exception as e:
    print(type(e).__name__, e)
else:
    print("imported")
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "not in a sub-interpreter: use threads" in done.stdout, done.stdout


def test_the_command_is_the_same(command):
    done = run("import sys; sys.argv = ['qk', *sys.argv[1:]]; from qk._command import main; sys.exit(main())", "formats", "--json")
    assert done.returncode == 0
    import json

    assert json.loads(done.stdout) == command("formats", "--json")
    wrong = run("import sys; sys.argv = ['qk', *sys.argv[1:]]; from qk._command import main; sys.exit(main())", "nothing")
    assert wrong.returncode == 2 and "there is no verb" in wrong.stderr


class Allocated(ctypes.Structure):
    """What glibc's mallinfo2 tells."""

    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def test_searches_do_not_grow(images, model):
    """What is allocated and not freed is the same after many searches, on one thread and on two; stress.py has the long form."""
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        pytest.skip("skipped: this C library has no mallinfo2")
    tell.restype = Allocated

    def held():
        gc.collect()
        return tell().uordblks + tell().hblkhd

    measure = lambda outputs: float(abs(outputs[0]).sum())  # noqa: E731

    def search(count):
        for i in range(count):
            goal = {"target_l2": 0.5} if i % 2 else {"metric": measure, "target_metric": 1e9}
            qk.search(model, images[:4], narrow="int8/int4", max_trials=3, threads=1 + i % 3, **goal)

    search(12)
    before = held()
    search(36)
    assert held() - before < 256 << 10  # a leak of a run's threads would be 1 MB here
