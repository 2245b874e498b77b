# SPDX-License-Identifier: Apache-2.0
"""`qk compare --dot --command` finds accumulators that no table has: units of one's own, drawn from seeds and computed by numpy.

    own_accumulators.py QK [--exhaustive] [--show] [--results FOLDER] [-k 'unit[NUMBER]']

Registers of any width, groups of any size, either order, trees of two levels, widths that saturate or wrap, requantization that drops bits,
truncates, and clamps at zero or at minus the largest; results of 3 to 8 bits, and bare multipliers. A few are asked; with --exhaustive all
of them. What is found is tried on a case of its own. --results asks all and writes FOLDER/accumulators.md.
"""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, run

evidence.needs("ml_dtypes")

import ml_dtypes
import numpy as np
import pytest

TYPES = {"fp16": (np.uint16, np.float16), "bf16": (np.uint16, ml_dtypes.bfloat16), "fp8_e4m3fn": (np.uint8, ml_dtypes.float8_e4m3fn), "fp8_e5m2": (np.uint8, ml_dtypes.float8_e5m2)}
LEAST = {"fp16": -14, "bf16": -126, "fp8_e4m3fn": -6, "fp8_e5m2": -14}
# Results of 3 to 8 bits: exponent and mantissa bits, and whether the code of all ones is NaN.
NARROW = {"fp8_e4m3fn": (4, 3, True), "fp6_e2m3": (2, 3, False), "fp4_e2m1": (2, 1, False), "e2m0finite": (2, 0, False), "e3m3fn": (3, 3, True)}
ASKED = 36
QUICK = (0, 7, 13, 20, 24, 30, 34)


# ---- units


def rounded(v, register, mode):
    """Rounds doubles that add_to_odd made into a register of e exponent and m mantissa bits."""
    e, m = register
    largest, least = (1 << e - 1) - 1, 2 - (1 << e - 1)
    finite = np.isfinite(v)
    a = np.where(finite, np.abs(v), 0.0)
    at = np.maximum(np.where(a > 0, np.frexp(a)[1] - 1, least), least) - m
    q = np.ldexp(a, -at)
    q = np.rint(q) if mode == "half-even" else np.floor(q)
    y = np.ldexp(q, at)
    top = (2.0 - 2.0**-m) * 2.0**largest
    y = np.where(y > top, np.inf if mode == "half-even" else top, y)
    return np.where(finite, np.copysign(y, v), v)


def add_to_odd(x, y):
    s = x + y
    part = s - x
    lost = (x - (s - part)) + (y - part)
    bits = s.view(np.int64)
    fix = np.isfinite(s) & np.isfinite(lost) & (lost != 0) & (bits & 1 == 0)
    return np.where(fix, (bits + np.where((lost > 0) == (s > 0), 1, -1)).view(np.float64), s)


def tree(v, add):
    while len(v) > 1:
        v = [add(v[i], v[i + 1]) if i + 1 < len(v) else v[i] for i in range(0, len(v), 2)]
    return v[0]


def chain(v, add):
    s = v[0]
    for t in v[1:]:
        s = add(s, t)
    return s


def stepped(unit, terms, c):
    """Sums that are rounded at every step."""
    keep = lambda v: rounded(v, unit["register"], unit["round"])
    add = lambda x, y: keep(add_to_odd(x, y))
    terms = [t if unit["fused"] else keep(t) for t in terms]
    if unit["kind"] == "chunks":
        size = -(-len(terms) // unit["chunks"])
        level = tree if unit["tree"] else chain
        first = (lambda v: level([keep(t) for t in v], add)) if unit["tree"] else lambda v: level([keep(v[0]), *v[1:]], add)
        return add(c, level([first(terms[i : i + size]) for i in range(0, len(terms), size)], add))
    for i in range(0, len(terms), unit["groups"]):
        part = terms[i : i + unit["groups"]]
        for t in reversed(part) if unit["reverse"] else part:
            c = add(c, t)
    return c


def exponents(x, least):
    return np.where(np.isfinite(x) & (x != 0), np.maximum(np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1, least), np.where(x == 0, -126, 0))


def aligned(unit, a, b, c):
    """Groups of products and the sum so far, cut at `align` bits below the largest exponent."""
    e, m = unit["register"]
    for i in range(0, a.shape[1], unit["groups"]):
        terms = [a[:, j : j + 1] * b[j : j + 1] for j in range(i, min(a.shape[1], i + unit["groups"]))]
        places = [exponents(a[:, j : j + 1], LEAST[unit["a"]]) + exponents(b[j : j + 1], LEAST[unit["b"]]) for j in range(i, min(a.shape[1], i + unit["groups"]))]
        own = exponents(c, 2 - (1 << e - 1) if i else -126)
        top = np.maximum(np.max(places, axis=0), own)
        total = sum(np.trunc(np.ldexp(np.where(np.isfinite(t), t, 0.0), unit["align"] - top)) for t in [*terms, c])
        special = sum(np.where(np.isfinite(t), 0.0, t) for t in [*terms, c])
        c = np.where(special == 0, rounded(np.ldexp(total, top - unit["align"]) + 0.0, unit["register"], unit["round"]), special)
    return c


def whole(unit, a, b, c):
    half = 1 << unit["width"] - 1
    keep = (lambda v: np.clip(v, -half, half - 1)) if unit["saturate"] else (lambda v: (v + half & 2 * half - 1) - half)
    c = keep(c)
    for i in range(0, a.shape[1], unit["groups"]):
        c = keep(c + a[:, i : i + unit["groups"]] @ b[i : i + unit["groups"]])
    if "multiplier" not in unit:
        return c & 0xFFFFFFFF
    product, shift = c * unit["multiplier"], unit["down"]
    code = {"down": product >> shift, "toward-zero": np.where(product < 0, -(-product >> shift), product >> shift), "half-up": product + (1 << shift - 1) >> shift}[unit["requantize"]]
    code = code + unit["zero"]
    low = {"relu": unit["zero"], "symmetric": -127, "plain": -128}[unit["clamp"]]
    return np.clip(code, low, 127) & 0xFF


def stored(unit, y):
    """Returns the codes of a register: its own where it has 16 bits at most, float32 where it has more."""
    e, m = unit["register"]
    if 1 + e + m > 16:
        return y.astype(np.float32).view(np.uint32)
    least = 2 - (1 << e - 1)
    a = np.where(np.isfinite(y), np.abs(y), 0.0)
    at = np.maximum(np.where(a > 0, np.frexp(a)[1] - 1, least), least)
    code = (at - least).astype(np.int64) * (1 << m) + np.ldexp(a, m - at).astype(np.int64)
    code = np.where(np.isnan(y), ((1 << e) - 1) * (1 << m) + 1, np.where(np.isinf(y), ((1 << e) - 1) * (1 << m), code))
    return (code + np.signbit(y) * (1 << e + m)).astype(np.uint8 if 1 + e + m <= 8 else np.uint16)


def narrow_codes(name, v, saturates):
    """Rounds doubles half to even to codes of a few bits."""
    e, m, has_nan = NARROW[name]
    bias, count = (1 << e - 1) - 1, (1 << e + m) - int(has_nan)
    code = np.arange(count + 1)
    numbers = np.where(code >> m == 0, np.ldexp(code * 1.0, 1 - bias - m), np.ldexp((code & (1 << m) - 1) + (1 << m) * 1.0, (code >> m) - bias - m))
    middle = (numbers[1:] + numbers[:-1]) / 2
    a = np.where(np.isnan(v), 0.0, np.abs(v))
    at = np.searchsorted(middle, a, side="left")
    at = np.where((at < count) & (middle[np.minimum(at, count - 1)] == a) & (at % 2 == 1), at + 1, at)
    beyond = at >= count
    at = np.minimum(at, count - 1) + np.signbit(v) * (1 << e + m)
    top = (1 << e + m) - 1
    at = np.where(beyond & (has_nan and not saturates), top, at)
    return np.where(np.isnan(v), top, at).astype(np.uint8)


def answer(unit, case):
    if unit["kind"] == "integer":
        a, b = (case[x].view(np.int8).astype(np.int64) for x in "ab")
        d = whole(unit, a, b, case["c"].view(np.int32).astype(np.int64))
        return d.astype(np.uint8 if "multiplier" in unit else np.uint32)
    a, b = (case[x].view(TYPES[unit[x]][1]).astype(np.float64) for x in "ab")
    c = case["c"].view(np.float32).astype(np.float64)
    if unit["kind"] == "multiplier":  # it has no C
        with np.errstate(all="ignore"):
            return narrow_codes(unit["result"], a * b, unit["saturate"])
    with np.errstate(all="ignore"):
        if unit["kind"] == "aligned":
            return stored(unit, aligned(unit, a, b, c))
        y = stepped(unit, [a[:, j : j + 1] * b[j : j + 1] for j in range(a.shape[1])], np.broadcast_to(c, (a.shape[0], b.shape[1])).copy())
        y = rounded(y, unit["register"], unit["round"])
        return narrow_codes(unit["result"], y, unit["saturate"]) if "result" in unit else stored(unit, y)


def drawn(number):
    """Returns unit `number`; what it is follows from the number alone."""
    r = np.random.default_rng(5200 + number)
    pick = lambda *v: v[int(r.integers(len(v)))]
    unit = {"a": pick("fp16", "bf16", "fp8_e4m3fn", "fp8_e5m2"), "k": int(r.integers(9, 21)), "fused": bool(r.integers(2)), "reverse": False}
    unit["b"] = unit["a"]
    wide = lambda: [int(r.integers(6, 9)), int(r.integers(11, 23))]
    unit["round"] = pick("half-even", "toward-zero")
    if number < 7:  # one after the other, in groups, in either order
        unit |= {"kind": "chain", "groups": int(r.integers(2, 9)), "register": wide(), "reverse": number % 2 == 1}
    elif number < 13:
        unit |= {"kind": "chunks", "chunks": int(r.integers(2, 7)), "tree": number % 2 == 1, "register": wide()}
    elif number < 19:
        unit |= {"kind": "aligned", "groups": int(r.integers(3, 12)), "align": int(r.integers(14, 29)), "register": [8, int(r.integers(14, 24))]}
    elif number >= 30:  # results of 3 to 8 bits
        unit |= {"a": "fp8_e4m3fn", "b": "fp8_e4m3fn", "kind": "chain", "groups": 1, "register": [8, 23], "round": "half-even"}
        unit |= {"result": list(NARROW)[number % 5], "saturate": number == 35}
        if number >= 34:
            unit |= {"kind": "multiplier", "k": 1}
    elif number < 21:  # registers of 16 bits and fewer, which keep their own codes
        unit |= {"kind": "chain", "groups": 1, "register": [[6, 9], [5, 2]][number - 19]}
    else:
        unit = {"a": "int8", "b": "int8", "kind": "integer", "k": unit["k"], "groups": int(r.integers(1, 9)), "width": int(r.integers(17, 31)), "saturate": bool(r.integers(2))}
        if number >= 24:
            unit |= {"width": 32, "saturate": False, "multiplier": int(r.integers(1 << 30, 1 << 31)), "down": int(r.integers(36, 44)), "zero": int(r.integers(-20, 21))}
            unit["requantize"], unit["clamp"] = [("down", "plain"), ("toward-zero", "plain"), ("half-up", "relu"), ("half-up", "symmetric"), ("down", "relu"), ("toward-zero", "symmetric")][number - 24]
            unit["zero"] = 0 if unit["clamp"] == "symmetric" else unit["zero"]
    return unit


# ---- the test


def fresh_case(unit, random):
    m, k, n = 24, unit["k"], 24
    if unit["kind"] == "integer":
        a, b = random.integers(0, 256, (m, k), dtype=np.uint8), random.integers(0, 256, (k, n), dtype=np.uint8)
        return {"a": a, "b": b, "c": (random.integers(-(2**31), 2**31, (m, n)) >> random.integers(0, 31, (m, n))).astype(np.int32).view(np.uint32)}
    of = lambda shape, name: random.standard_normal(shape).astype(np.float32).astype(TYPES[name][1]).view(TYPES[name][0])
    return {"a": of((m, k), unit["a"]), "b": of((k, n), unit["b"]), "c": random.standard_normal((m, n)).astype(np.float32).view(np.uint32)}


def ask(number, place):
    unit = drawn(number)
    bare = ["--c-format", "none"] if unit["kind"] == "multiplier" else []
    words = ["compare", "--dot", "--command", f"{sys.executable} {Path(__file__).resolve()} --device {number}", "--a-format", unit["a"], "--b-format", unit["b"], "--k", str(unit["k"]), "--json", *bare]
    done = run(*words)
    assert done.stdout, (unit, done.stderr)
    found = json.loads(done.stdout)
    if "--show" in sys.argv:
        print(number, unit, found["accumulator"], found["questions"], found["unexplained"], flush=True)
    if not check(found["complete"], f"{number}: {unit}: {found['accumulator']} leaves {found['unexplained']} of {found['questions']}"):
        return
    assert found["questions"] <= 10000, found
    case = fresh_case(unit, np.random.default_rng(number))
    d = answer(unit, case)
    if bare:
        case.pop("c")  # where a sum has one term, none is -0
    np.savez(place / "case.npz", **case, d=d)
    again = run("dot", "--case", place / "case.npz", "--accumulator", found["accumulator"], "--a-format", unit["a"], "--b-format", unit["b"])
    if check(again.returncode == 0, f"{number}: {unit}: {found['accumulator']} fails on other operands: {again.stdout} {again.stderr}"):
        FOUND.append((number, unit, found["accumulator"], found["questions"]))


FOUND = []


def write_results(folder):
    """Writes what was found as a page."""
    lines = [
        "# Accumulators of one's own",
        "",
        "Units that no table has, drawn from seeds by `tests/tool/own_accumulators.py` and computed by numpy: `qk compare --dot --command` asks each, and what it names gives every answer,",
        "and every element of a case that it has not seen. They are sums in registers and codes of integers; those from 30 on, where listed, have results of 3 to 8 bits or are bare multipliers, which",
        "are asked with c = -0.",
        "",
        "| unit | what it is | found | questions |",
        "|---|---|---|---|",
    ]
    for number, unit, text, questions in FOUND:
        words = ", ".join(f"{k} {v}" for k, v in unit.items() if v is not False and k not in ("b", "kind"))
        lines.append(f"| {number} | {unit['kind']}: {words} | `{text}` | {questions} |")
    lines += ["", f"{len(FOUND)} found; {max(q for *_, q in FOUND)} questions at most. Remade by `python3 tests/tool/own_accumulators.py build/release/qk --results docs/results`.", ""]
    (folder / "accumulators.md").write_text("\n".join(lines))


RESULTS = Path(evidence.option("--results")) if "--results" in sys.argv else None


@pytest.mark.parametrize("number", range(ASKED) if "--exhaustive" in sys.argv or RESULTS else QUICK)
def test_unit(folder, number):
    ask(number, folder)


def test_page_of_results():
    if RESULTS:
        assert len(FOUND) == ASKED
        write_results(RESULTS)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--device"]:
        case = np.load(sys.argv[3])
        np.savez(sys.argv[4], d=answer(drawn(int(sys.argv[2])), case))
    else:
        evidence.main("--exhaustive", "--show", "--results=")
