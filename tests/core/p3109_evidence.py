# SPDX-License-Identifier: Apache-2.0
"""Compares the oracle with gfloat on the formats of IEEE P3109: codes of 3 to 15 bits, roundings of 3 to 8 bits.

    p3109_evidence.py ORACLE_TOOL    # build/release/tests/oracle_tool

Takes gfloat from this Python, or what it gave from ../shared/goldens2 (gfloat.p3109.*.npz): tables, roundings, stochastic roundings. What
gfloat does with negative values in formats without a sign, and where it raises an error (65535), is its own: the draft's text decides.
QK_EVIDENCE names a file that gets a row for each comparison.
"""
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, check, program, skip

import numpy as np
import pytest

try:
    import gfloat
    from gfloat.formats import format_info_p3109
    from gfloat.types import Domain, Signedness
except ImportError:
    gfloat = None
GOLDENS = ROOT.parent / "shared" / "goldens2"
SHARED = (GOLDENS / "gfloat.p3109.tables.npz").exists()
with_goldens = pytest.mark.skipif(not SHARED, reason="what gfloat gave is not beside the project")
if gfloat is None and not SHARED:
    skip("no gfloat in this Python")

MODES = ["toward-zero", "down", "up", "half-even", "half-away"]  # in the order of the goldens
STOCHASTIC = {"StochasticFastest": "stochastic", "StochasticFast": "stochastic-b", "Stochastic": "stochastic-c"}


def names(least, most):
    return [f"binary{k}p{p}{s}{d}" for k in range(least, most + 1) for p in range(1, k + 1) for s in "su" for d in "ef" if p < k or s == "u"]


def oracle(*arguments, data=b"", dtype=np.uint32):
    done = subprocess.run([program("oracle_tool"), *map(str, arguments)], input=data, stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, dtype)


def values(name):
    """Every code's value as a float64, or None where float64 has no such number."""
    rows = oracle("numbers", name, dtype=np.int32).reshape(-1, 4)
    def one(kind, negative, digits, exponent):
        if kind == 1:
            return np.nan
        sign = -1.0 if negative else 1.0
        if kind == 2:
            return sign * np.inf
        if digits != 0 and not -1074 <= exponent <= 1023 - int(digits).bit_length():
            return None
        return sign * np.ldexp(float(digits), int(exponent))
    return [one(*map(int, row)) for row in rows]


def report(name, evidence, count, mismatches):
    check(mismatches == 0, f"{name}: {evidence}: {count} compared, {mismatches} mismatches")
    if "QK_EVIDENCE" in os.environ:
        with open(os.environ["QK_EVIDENCE"], "a") as file:
            file.write(f"{name}\t{evidence}\tscalar\t{count}\t{mismatches}\n")


def differ(ours, theirs):
    return sum(1 for a, b in zip(ours, theirs) if a is not None and b is not None and not (a == b or (a != a and b != b)))


def of_package(name):
    k, rest = name[6:].split("p")
    p, s, d = int(rest[:-2]), rest[-2] == "s", rest[-1] == "e"
    info = format_info_p3109(int(k), p, Signedness.Signed if s else Signedness.Unsigned, Domain.Extended if d else Domain.Finite)

    def one(code):
        try:
            return gfloat.decode_float(info, code).fval
        except OverflowError:
            return None
    return [one(code) for code in range(1 << int(k))]


@pytest.mark.skipif(gfloat is None, reason="gfloat is not here; what it gave is compared")
def test_every_code():
    for name in names(3, 15):
        theirs = of_package(name)
        report(name, "gfloat: the value of every code", len(theirs), differ(values(name), theirs))


@with_goldens
@np.errstate(over="ignore")
def test_tables_and_roundings():
    tables = np.load(GOLDENS / "gfloat.p3109.tables.npz")
    roundings = np.load(GOLDENS / "gfloat.p3109.rounding.npz")
    assert sorted(tables.files) == sorted(names(3, 8))
    for name in tables.files:
        report(name, "gfloat: the value of every code", len(tables[name]), differ(values(name), tables[name]))
        x = roundings[name + ".x"]
        for mode, rounding in enumerate(MODES):
            for saturate, overflow in enumerate(["ieee", "saturate"]):
                theirs = roundings[name + ".codes"][mode, saturate]
                ours = oracle("project", name, rounding, overflow, data=x.tobytes())
                own = theirs == 65535
                if rounding == "half-away":  # its float64 sum delta + 0.5 takes the number just below a tie for the tie
                    beside = np.nextafter(x, np.copysign(np.inf, x))
                    own |= (x.astype(np.float32) != x) & (beside.astype(np.float32) == beside)
                if "u" in name[6:]:
                    own |= np.signbit(x) & (x != 0)
                report(name, f"gfloat: {rounding}, {overflow}", int((~own).sum()), int(((ours != theirs) & ~own).sum()))


@with_goldens
def test_stochastic_roundings():
    chances = np.load(GOLDENS / "gfloat.p3109.stochastic.npz")
    for key in chances.files:
        if not key.endswith(".codes"):
            continue
        name, variant, bits, _ = key.split(".")
        if variant not in STOCHASTIC:
            continue
        count, x, theirs = int(bits[4:]), chances[f"{name}.{bits}.x"], chances[key]
        for word in range(len(theirs)):
            ours = oracle("project", name, STOCHASTIC[variant], "ieee", count, word << (32 - count), data=x.tobytes())
            report(name, f"gfloat: {STOCHASTIC[variant]}, {count} bits", len(x), int((ours != theirs[word]).sum()))


if __name__ == "__main__":
    evidence.main()
