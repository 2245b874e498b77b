# SPDX-License-Identifier: Apache-2.0
"""`qk compare --dot --command` runs a device, here a numpy program, on its questions and names the device's accumulator.

    compare_dot.py QK
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

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


def main():
    qk = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as place:
        device = Path(place) / "device.py"
        device.write_text(DEVICE)
        command = [qk, "compare", "--dot", "--command", f"{sys.executable} {device}", "--a-format", "fp16", "--b-format", "fp16", "--k", "8"]
        asked = subprocess.run([*command, "--json"], capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
        found = json.loads(asked.stdout)
        assert found["accumulator"] == "sum=sequential", found
        assert found["complete"] and found["unexplained"] == 0 and found["questions"] <= 10000, found
        text = subprocess.run([*command, "--accumulator", "sum=pairwise"], capture_output=True, text=True)
        assert text.returncode == 1 and text.stdout.splitlines()[-1] == "sum=sequential", text
        for bits in (30, 33):
            device.write_text(CUT.replace("BITS", str(bits)))
            asked = subprocess.run([*command, "--json"], capture_output=True, text=True)
            assert asked.returncode == 0, asked.stderr
            cut = json.loads(asked.stdout)
            assert cut["complete"] and cut["questions"] <= 10000, cut
            assert f"align={bits}" in cut["accumulator"] and "cut=down" in cut["accumulator"], cut
        device.write_text(TFLITE)
        integers = [qk, "compare", "--dot", "--command", f"{sys.executable} {device}", "--a-format", "int8", "--b-format", "int8", "--k", "16"]
        codes = subprocess.run([*integers, "--json"], capture_output=True, text=True)
        assert codes.returncode == 0, codes.stderr
        tflite = json.loads(codes.stdout)
        assert tflite["complete"] and tflite["questions"] <= 10000, tflite
        assert "requantize=gemmlowp" in tflite["accumulator"] and "shift=-7,zero-point=-11" in tflite["accumulator"], tflite
        broken = subprocess.run([qk, "compare", "--dot", "--command", "false", "--a-format", "fp16", "--b-format", "fp16"], capture_output=True, text=True)
        assert broken.returncode == 2 and "failed with status 1" in broken.stderr, broken
        nothing = subprocess.run([qk, "compare", "--dot"], capture_output=True, text=True)
        assert nothing.returncode == 2 and "--command" in nothing.stderr, nothing
    print("the accumulator of a numpy program: sum=sequential,", found["questions"], "questions; of a quantized one:", tflite["accumulator"])


main()
