#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk gradient` of LSTM and GRU models with the standard's formulas in numpy, differentiated by complex steps in float64.

f(x + i h) has the imaginary part h f'(x). No difference is taken, so the derivative is exact to the last digits of float64.
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, qk
from evidence.graphs import save

import numpy as np
import pytest
from onnx import helper

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


@pytest.mark.parametrize("name, forward, more, attributes", (
    ("LSTM", lstm, ["c", "p"], {}),
    *((f"GRU linear_before_reset={first}", gru(first), [], {"linear_before_reset": first}) for first in (0, 1))))
def test_gradients(name, forward, more, attributes):
    inputs = ["x", "w", "r", "b", "lengths", "h", *more]
    gates = {"LSTM": 4, "GRU": 3}[name.split()[0]]
    random = np.random.default_rng(3)
    shapes = {"x": (LENGTH, BATCH, WIDTH), "w": (2, gates * HIDDEN, WIDTH), "r": (2, gates * HIDDEN, HIDDEN), "b": (2, 2 * gates * HIDDEN),
              "h": (2, BATCH, HIDDEN), "c": (2, BATCH, HIDDEN), "p": (2, 3 * HIDDEN)}
    p = {k: random.uniform(-1, 1, shapes[k]).astype(np.float32).astype(complex) for k in inputs if k in shapes}
    v = random.uniform(-1, 1, (LENGTH, 2, BATCH, HIDDEN)).astype(np.float32)
    names = [k if k in p else "lengths" if k == "lengths" else "" for k in inputs]
    nodes = [helper.make_node(name.split()[0], names, ["y"], hidden_size=HIDDEN, direction="bidirectional", **attributes)]
    save(at("m.onnx"), nodes, {"x": shapes["x"]}, {"y": v.shape}, {**{k: p[k].real.astype(np.float32) for k in p if k != "x"}, "lengths": LENGTHS}, opset=14)
    np.save(at("x.npy"), p["x"].real.astype(np.float32))
    np.save(at("v.npy"), v)
    qk("gradient", at("m.onnx"), "--inputs", at("x.npy"), "--vector", at("v.npy"), "-o", at("g.npz"))
    ours = np.load(at("g.npz"))
    worst = 0.0
    for k, value in p.items():
        exact = np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            moved = dict(p)
            moved[k] = value.copy()
            moved[k][place] += 1e-30j
            exact[place] = np.sum(v * forward(moved).imag) / 1e-30
        worst = max(worst, np.linalg.norm(ours[k] - exact) / np.linalg.norm(exact))
    check(worst <= 1e-5, f"{name}: {len(p)} arrays, worst relative error {worst:.1e}")


if __name__ == "__main__":
    evidence.main()
