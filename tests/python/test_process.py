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


ENDS = {
    "arrays": ["qk.fake_quantize(a, 'mxfp4')", "qk.fake_quantize(a, 'nvfp4', threads=2)", "qk.encode(a, 'int8', scale=0.1)", "packed.decode()",
               "qk.fake_quantize_backward(a, a, 'mxfp4')", "qk.fake_quantize(a.astype('float16'), 'int8', scale=0.1)"],
    "verbs": ["qk.quantize(m, x, activation='int8', weight='mxfp4')", "qk.evaluate(m, x, outputs=True)", "qk.calibrate(m, iter([x, x]))", "qk.inspect(m)",
              "qk.search(m, x, narrow='int8/int4', target_l2=0.5, max_trials=3)", "qk.gradient(m, x, labels=[0, 1, 2, 3])"],
    "functions": ["qk.search(m, x, narrow='int8/int4', metric=lambda o: float(abs(o[0]).sum()), target_metric=1e9, max_trials=3)",
                  "qk.search(m, x, narrow='int8/int4', eval_func=lambda b: float(len(bytes(b))), target_metric=1e9, max_trials=3)",
                  "qk.sensitivity(m, x, narrow='int8/int4', metric=lambda o, r, l: time.sleep(0.001) or 1.0)",
                  "qk.search(m, x, narrow='int8/int4', target_l2=0.5, max_trials=3, progress=lambda *s: time.sleep(0.001))"],
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_process_ends_while_its_threads_are_inside(kind):
    """Threads that are daemons ask for the interpreter's lock when there is none to have any more: Python ends them there."""
    code = f"""
import sys, threading, time
import numpy as np
import qk, qk._models
m = {os.fspath(DIGITS / 'digits.onnx')!r}
a, x = np.ones((700, 700), np.float32), np.load({os.fspath(DIGITS / 'test_images.npy')!r})[:4]
packed = qk.encode(a, "mxfp4")
def forever(call):
    while True:
        call()
for call in [{', '.join('lambda: ' + c for c in ENDS[kind])}]:
    call()
    threading.Thread(target=forever, args=(call,), daemon=True).start()
time.sleep(float(sys.argv[1]))
"""
    for seconds in (0.0, 0.05, 0.1, 0.2, 0.3):
        done = run(code, str(seconds))
        assert (done.returncode, done.stderr) == (0, ""), (seconds, done)


def test_what_is_left_of_a_call_lets_a_process_end():
    """A call whose verb goes on in a thread of its own, held by a traceback until the interpreter takes its modules apart."""
    code = f"""
import time, numpy as np, qk
def slow(outputs):
    time.sleep(0.05)
    return 1.0
def impatient(*state):
    raise RuntimeError("enough")
try:
    qk.search({os.fspath(DIGITS / 'digits.onnx')!r}, np.zeros((4, 1, 8, 8), np.float32), narrow="int8/int4", metric=slow, target_metric=1e9, progress=impatient)
except RuntimeError as e:
    kept = e
"""
    done = run(code)
    assert done.returncode == 0, done


def test_free_threaded_python_is_refused_in_words():
    done = run("import sys; sys.abiflags = 't'\ntry: import qk\nexcept ImportError as e: print(e)")
    assert "does not support free-threaded Python" in done.stdout, done


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
