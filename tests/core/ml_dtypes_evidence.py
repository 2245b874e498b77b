# SPDX-License-Identifier: Apache-2.0
"""Compares the oracle with ml_dtypes and numpy: the value of every code, and the codes of many floats.

    ml_dtypes_evidence.py ORACLE_TOOL    # build/release/tests/oracle_tool

The floats are every value, every middle between neighbours, the floats beside those, and 2^22 random bit patterns.
QK_EVIDENCE names a file that gets a row for each comparison.
"""
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, program, same_bits as same

evidence.needs("ml_dtypes")

import ml_dtypes
import numpy as np
import pytest

TYPES = {
    "fp16": np.float16, "bf16": "bfloat16", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "fp8_e4m3": "float8_e4m3", "fp8_e3m4": "float8_e3m4", "fp8_e4m3b11fnuz": "float8_e4m3b11fnuz",
    "e8m0": "float8_e8m0fnu", "fp6_e3m2": "float6_e3m2fn", "fp6_e2m3": "float6_e2m3fn", "fp4_e2m1": "float4_e2m1fn",
}


def oracle(verb, name, data=b"", dtype=np.float32):
    done = subprocess.run([program("oracle_tool"), verb, name, "ml_dtypes"], input=data, stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, dtype)


def inputs(values):
    finite = np.unique(values[np.isfinite(values)].astype(np.float64))
    middles = (finite[1:] + finite[:-1]) / 2
    with np.errstate(over="ignore"):
        edges = np.concatenate([finite, middles, -finite, [2 * finite[-1], 1.5 * finite[-1]]]).astype(np.float32)
    beside = [edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))]
    bits = np.random.default_rng(1).integers(0, 2**32, 2**22, dtype=np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([*beside, bits, special])


def report(name, evidence, count, mismatches, examples=""):
    check(mismatches == 0, f"{name}: {evidence}: {count} compared, {mismatches} mismatches{examples}")
    if "QK_EVIDENCE" in os.environ:
        with open(os.environ["QK_EVIDENCE"], "a") as file:
            file.write(f"{name}\t{evidence}\tscalar\t{count}\t{mismatches}\n")


@pytest.mark.parametrize("name, dtype", TYPES.items())
def test_format(name, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype) if isinstance(dtype, str) else dtype)
    ours = oracle("values", name)
    word = np.uint16 if dtype.itemsize == 2 else np.uint8
    theirs = np.arange(len(ours), dtype=word).view(dtype).astype(np.float32)
    report(name, "ml_dtypes / numpy: the value of every code", len(ours), int(np.count_nonzero(~same(ours, theirs))))

    x = inputs(ours)
    if name == "e8m0":  # ml_dtypes rounds subnormal floats up, and 0 to the smallest power of two
        x = x[(x >= 2.0**-126) | (x < 0) | np.isnan(x)]
    if np.isnan(ours).sum() == 0:  # no code for NaN: ml_dtypes gives the zero of the opposite sign, semantics::ml_dtypes always -0
        x = x[~(np.isnan(x) & np.signbit(x))]
    with np.errstate(all="ignore"):
        their_codes = x.astype(dtype).view(word).astype(np.uint32)
    our_codes = oracle("codes", name, x.tobytes(), np.uint32)
    differ = (their_codes != our_codes) & ~(np.isnan(theirs[their_codes]) & np.isnan(ours[our_codes]))
    examples = "".join(f"\n  x {float(x[i]).hex()} ml_dtypes {their_codes[i]:#x} oracle {our_codes[i]:#x}" for i in np.flatnonzero(differ)[:4])
    report(name, "ml_dtypes / numpy: codes of every boundary and 2^22 floats", len(x), int(np.count_nonzero(differ)), examples)


@pytest.mark.parametrize("name, bits", {"tf32": 19, "fp24": 24}.items())
def test_upper_bits(name, bits):
    """The upper bits of a float32 are its code: an integer sum rounds to nearest even, over into Inf."""
    drop = 32 - bits
    codes = np.arange(2**bits, dtype=np.uint32)
    ours = oracle("values", name)
    report(name, "numpy: the value of every code", len(ours), int(np.count_nonzero(~same(ours, (codes << drop).view(np.float32)))))

    middles = ((codes << drop) + (1 << (drop - 1))).astype(np.uint32)
    random = np.random.default_rng(1).integers(0, 2**32, 2**22, dtype=np.uint32)
    words = np.concatenate([middles, middles - 1, middles + 1, random])
    words = words[~np.isnan(words.view(np.float32))]
    wide = words.astype(np.int64)
    rounded = (wide + (1 << (drop - 1)) - 1 + (wide >> drop & 1)) >> drop
    our_codes = oracle("codes", name, words.tobytes(), np.uint32)
    report(name, "numpy: codes of every middle and 2^22 floats", len(words), int(np.count_nonzero(rounded != our_codes)))


if __name__ == "__main__":
    evidence.main()
