#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk gradient` of LSTM and GRU models with the standard's formulas in numpy, differentiated by complex steps in float64.

    python3 tests/graph/recurrent_gradient_evidence.py QK

f(x + i h) has the imaginary part h f'(x). No difference is taken, so the derivative is exact to the last digits of float64.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    print("skipped: no onnx")
    sys.exit(0)

LENGTH, BATCH, WIDTH, HIDDEN = 5, 2, 3, 4
LENGTHS = np.array([5, 3], np.int32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def over_time(p, direction, first, step):
    """Returns Y [length, batch, hidden] of one direction; `step(x, states)` returns the next states, the output first."""
    y = np.zeros((LENGTH, BATCH, HIDDEN), complex)
    for n in range(BATCH):
        states = [s[direction, n] for s in first]
        times = range(LENGTHS[n]) if direction == 0 else reversed(range(LENGTHS[n]))
        for t in times:
            states = step(p["x"][t, n], states)
            y[t, n] = states[0]
    return y


def lstm(p):
    def of(d):
        wb, rb = np.split(p["b"][d], 2)
        pi, po, pf = np.split(p["p"][d], 3)

        def step(x, states):
            h, c = states
            i, o, f, g = np.split(p["w"][d] @ x + p["r"][d] @ h + wb + rb, 4)
            i, f = sigmoid(i + pi * c), sigmoid(f + pf * c)
            c = f * c + i * np.tanh(g)
            return [sigmoid(o + po * c) * np.tanh(c), c]

        return over_time(p, d, [p["h"], p["c"]], step)

    return np.stack([of(0), of(1)], 1)


def gru(linear_first):
    def forward(p):
        def of(d):
            wb, rb = np.split(p["b"][d], 2)
            wz, wr, wh = np.split(p["w"][d], 3)
            rz, rr, rh = np.split(p["r"][d], 3)
            bz, br, bh = np.split(wb, 3)
            cz, cr, ch = np.split(rb, 3)

            def step(x, states):
                h = states[0]
                z, r = sigmoid(wz @ x + rz @ h + bz + cz), sigmoid(wr @ x + rr @ h + br + cr)
                inner = r * (rh @ h + ch) if linear_first else rh @ (r * h) + ch
                return [(1 - z) * np.tanh(wh @ x + inner + bh) + z * h]

            return over_time(p, d, [p["h"]], step)

        return np.stack([of(0), of(1)], 1)

    return forward


def check(tool, folder, name, forward, inputs, attributes):
    gates = {"LSTM": 4, "GRU": 3}[name.split()[0]]
    random = np.random.default_rng(3)
    shapes = {"x": (LENGTH, BATCH, WIDTH), "w": (2, gates * HIDDEN, WIDTH), "r": (2, gates * HIDDEN, HIDDEN), "b": (2, 2 * gates * HIDDEN),
              "h": (2, BATCH, HIDDEN), "c": (2, BATCH, HIDDEN), "p": (2, 3 * HIDDEN)}
    p = {k: random.uniform(-1, 1, shapes[k]).astype(np.float32).astype(complex) for k in inputs if k in shapes}
    v = random.uniform(-1, 1, (LENGTH, 2, BATCH, HIDDEN)).astype(np.float32)
    names = [k if k in p else "lengths" if k == "lengths" else "" for k in inputs]
    graph = helper.make_graph(
        [helper.make_node(name.split()[0], names, ["y"], hidden_size=HIDDEN, direction="bidirectional", **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes["x"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, v.shape)],
        [numpy_helper.from_array(p[k].real.astype(np.float32), k) for k in p if k != "x"] + [numpy_helper.from_array(LENGTHS, "lengths")])
    files = {k: str(Path(folder) / k) for k in ("m.onnx", "x.npy", "v.npy", "g.npz")}
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), files["m.onnx"])
    np.save(files["x.npy"], p["x"].real.astype(np.float32))
    np.save(files["v.npy"], v)
    done = subprocess.run([tool, "gradient", files["m.onnx"], "--inputs", files["x.npy"], "--vector", files["v.npy"], "-o", files["g.npz"],
                           "--overwrite"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    ours = np.load(files["g.npz"])
    worst = 0.0
    for k, value in p.items():
        exact = np.zeros(value.shape)
        for at in np.ndindex(value.shape):
            moved = dict(p)
            moved[k] = value.copy()
            moved[k][at] += 1e-30j
            exact[at] = np.sum(v * forward(moved).imag) / 1e-30
        worst = max(worst, np.linalg.norm(ours[k] - exact) / np.linalg.norm(exact))
    print(f"{name:32} {len(p)} arrays, worst relative error {worst:.1e}")
    return worst <= 1e-5


def main():
    with tempfile.TemporaryDirectory() as folder:
        good = [check(sys.argv[1], folder, "LSTM", lstm, ["x", "w", "r", "b", "lengths", "h", "c", "p"], {})]
        for linear_first in (0, 1):
            good.append(check(sys.argv[1], folder, f"GRU linear_before_reset={linear_first}", gru(linear_first),
                              ["x", "w", "r", "b", "lengths", "h"], {"linear_before_reset": linear_first}))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
