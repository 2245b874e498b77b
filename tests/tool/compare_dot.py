# SPDX-License-Identifier: Apache-2.0
"""`qk compare --dot --command` runs a device, here a numpy program, on its questions and names the device's accumulator."""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import qk, qk_json

import pytest

DEVICE = """
import sys
import numpy as np
case = np.load(sys.argv[1])
a, b = case["a"].view(np.float16).astype(np.float32), case["b"].view(np.float16).astype(np.float32)
d = case["c"].view(np.float32).copy()
with np.errstate(all="ignore"):
    for l in range(a.shape[1]):
        d = d + a[:, l : l + 1] * b[l : l + 1]  # products of two float16 are exact: one rounding each
np.savez(sys.argv[2], d=d.view(np.uint32))
"""

TFLITE = """
import sys
import numpy as np
case = np.load(sys.argv[1])
a, b = case["a"].view(np.int8).astype(np.int64), case["b"].view(np.int8).astype(np.int64)
x = (a @ b + case["c"].view(np.int32)).astype(np.int32).astype(np.int64)
product = x * 1350000000
high = np.where(product >= 0, product + (1 << 30), product + 1 - (1 << 30))
high = np.where(high >= 0, high >> 31, -(-high >> 31))  # doubling high multiply, toward zero after the nudge
low = (high >> 7) + ((high & 127) > 63 + (high < 0))  # rounding shift
np.savez(sys.argv[2], d=np.clip(low - 11, -128, 127).astype(np.int8).view(np.uint8))
"""

# Products and C, cut below at 30 bits under the largest exponent: a sum that is nearly exact.
CUT = """
import sys
import numpy as np
case = np.load(sys.argv[1])
a, b = case["a"].view(np.float16).astype(np.float64), case["b"].view(np.float16).astype(np.float64)
c = case["c"].view(np.float32).astype(np.float64)

def exponents(x, least):
    finite = np.isfinite(x) & (x != 0)
    return np.where(finite, np.maximum(np.frexp(np.where(finite, x, 1.0))[1] - 1, least), np.where(x == 0, -126, 0))

with np.errstate(all="ignore"):
    terms = [a[:, l : l + 1] * b[l : l + 1] for l in range(a.shape[1])] + [c]
    places = [exponents(a[:, l : l + 1], -14) + exponents(b[l : l + 1], -14) for l in range(a.shape[1])] + [exponents(c, -126)]
    top = np.max(places, axis=0)
    total = sum(np.floor(np.ldexp(np.where(np.isfinite(t), t, 0.0), BITS - top)) for t in terms)
    special = sum(np.where(np.isfinite(t), 0.0, t) for t in terms)
    d = np.where(special == 0, np.ldexp(total, top - BITS) + 0.0, special).astype(np.float32)
np.savez(sys.argv[2], d=d.view(np.uint32))
"""


def found(device, a_format, k):
    return qk_json("compare", "--dot", "--command", f"{sys.executable} {device}", "--a-format", a_format, "--b-format", a_format, "--k", k)


def test_a_sequential_device(folder):
    device = folder / "device.py"
    device.write_text(DEVICE)
    told = found(device, "fp16", 8)
    assert told["accumulator"] == "sum=sequential", told
    assert told["complete"] and told["unexplained"] == 0 and told["questions"] <= 10000, told
    text = qk("compare", "--dot", "--command", f"{sys.executable} {device}", "--a-format", "fp16", "--b-format", "fp16", "--k", 8, "--accumulator", "sum=pairwise", status=1)
    assert text.stdout.splitlines()[-1] == "sum=sequential", text


@pytest.mark.parametrize("bits", (30, 33))
def test_cut_products(folder, bits):
    (folder / "device.py").write_text(CUT.replace("BITS", str(bits)))
    cut = found(folder / "device.py", "fp16", 8)
    assert cut["complete"] and cut["questions"] <= 10000, cut
    assert f"align={bits}" in cut["accumulator"] and "cut=down" in cut["accumulator"], cut


def test_a_quantized_device(folder):
    (folder / "device.py").write_text(TFLITE)
    tflite = found(folder / "device.py", "int8", 16)
    assert tflite["complete"] and tflite["questions"] <= 10000, tflite
    assert "requantize=gemmlowp" in tflite["accumulator"] and "shift=-7,zero-point=-11" in tflite["accumulator"], tflite


def test_devices_that_do_not_answer():
    assert "failed with status 1" in qk("compare", "--dot", "--command", "false", "--a-format", "fp16", "--b-format", "fp16", status=2).stderr
    assert "--command" in qk("compare", "--dot", status=2).stderr


if __name__ == "__main__":
    evidence.main()
