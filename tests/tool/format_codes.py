# SPDX-License-Identifier: Apache-2.0
"""Tests qk formats --codes: every code with its value, for formats of the catalogue and for IEEE P3109's by their rule."""
import json
import os
import sys
from pathlib import Path
from fractions import Fraction

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, qk, qk_json

import numpy as np

def listed(*names):
    # Numbers that float64 lacks are numbers in JSON, too: they are read as exact decimals here.
    return json.loads(qk("formats", *names, "--codes", "--json").stdout, parse_float=Fraction)["formats"]


def drafted(width, precision, signed, extended):
    """Every code's value by the text of P3109."""
    exponents = width - precision + (0 if signed else 1)
    bias, binade, magnitudes = 1 << (exponents - 1), 1 << (precision - 1), 1 << (width - 1 if signed else width)
    values = []
    for code in range(1 << width):
        magnitude, minus = code % magnitudes, code >= magnitudes
        if code == (magnitudes if signed else magnitudes - 1):
            values.append("nan")
        elif extended and magnitude == magnitudes - (1 if signed else 2):
            values.append("-inf" if minus else "inf")
        else:
            field, digits = divmod(magnitude, binade)
            value = Fraction(digits + (binade if field else 0)) * Fraction(2) ** (max(field, 1) - bias - precision + 1)
            values.append(-value if minus else value)
    return values


def near(given, wanted):
    if isinstance(wanted, str) or isinstance(given, str):
        return given == wanted
    exact = wanted == 0 or 2.0**-1000 < abs(wanted) < 2.0**1000
    return float(given) == float(wanted) if exact else abs(Fraction(given) / wanted - 1) < Fraction(1, 10**15)


def test_catalogue():
    formats = qk_json("formats")["formats"]
    catalogue = [f["name"] for f in formats]
    for name in ("ue5m3", "ue4m3", "amdfp4", "nvfp4_e5m3", "fp4_e3m0", "fp4_e1m2", "mxfp4_e3m0", "mxfp4_e1m2", "nvfp4_e3m0", "nvfp4_e1m2"):
        check(name in catalogue, f"{name} is in the catalogue")
    narrow = [f["name"] for f in formats if f["bits_per_value"] <= 16]
    for f in listed(*narrow):
        codes = [pair[0] for pair in f["codes"]]
        check(codes == list(range(len(codes))) and len(codes).bit_count() == 1, f"{f['name']} lists its codes in order")
        numbers = [float(v) for _, v in f["codes"] if not isinstance(v, str)]
        if f["block_size"] == 0:
            check(max(numbers) == float(f["largest"]) and min(numbers) == float(f["lowest"]), f"{f['name']} reaches from its lowest to its largest")
            check(("nan" in (v for _, v in f["codes"])) == f["nan"], f"{f['name']} has NaN or has it not")
        else:
            check(len(f["scale_codes"]) >= 4, f"{f['name']} lists the codes of its scales")


def test_p3109():
    for width in (3, 5, 8, 11, 15):
        for precision in range(1, width + 1, 1 if width <= 8 else 5):
            for sign in "su":
                for domain in "ef":
                    if sign == "s" and precision == width:
                        continue
                    name = f"binary{width}p{precision}{sign}{domain}"
                    (f,) = listed(name)
                    check(f["name"] == name, f"{name} is called by its name")
                    wanted = drafted(width, precision, sign == "s", domain == "e")
                    wrong = sum(not near(value, w) for (_, value), w in zip(f["codes"], wanted))
                    check(len(f["codes"]) == len(wanted) and wrong == 0, f"{name}: {wrong} codes have other values")
                    # Numbers that float64 lacks are text here, so that readers of float64 see no Inf.
                    numbers = sorted(w for w in wanted if not isinstance(w, str))
                    for key, number in (("largest", numbers[-1]), ("lowest", numbers[0]), ("smallest_subnormal", next(n for n in numbers if n > 0))):
                        check(near(Fraction(f[key]), number), f"{name}: {key} is {f[key]}")


def test_tables_and_posits():
    (f,) = listed("table:values=0.5/nan/-1,ties=upper")
    check(f["codes"] == [[0, 0.5], [1, "nan"], [2, -1]], f"a table's codes are its values: {f['codes']}")
    check(f["family"] == "table" and f["bits_per_value"] == 2 and f["largest"] == 0.5 and f["lowest"] == -1, "and its facts follow from them")
    (f,) = listed("nf4")
    check([v for _, v in f["codes"]] == sorted(v for _, v in f["codes"]) and f["codes"][7] == [7, 0], "nf4 is in order, 0 is code 7")
    (f,) = listed("posit8")
    check(f["codes"][0x40] == [0x40, 1] and f["codes"][0x7F] == [0x7F, 2**24] and f["codes"][0x81] == [0x81, -(2**24)] and float(f["codes"][1][1]) == 2.0**-24, "posits")
    check("is no number of a table" in qk("formats", "table:values=1/x", "--codes", status=2).stderr, "a value that is no number")


def test_text():
    text = qk("formats", "binary15p1se", "binary14p2sf", "binary15p1uf", "binary12p1se").stdout
    for part in ("+-2^8190 ", " 2^-8191 ", "+-3*2^2046 ", "0 to 2^16382 ", " 2^-16383 ", "+-2^1022 ", " 2^-1023 "):
        check(part in text, f"the table has{part}exactly: {text}")
    (f,) = qk_json("formats", "binary15p1se")["formats"]
    check(f["largest"].endswith("e+2465") and f["lowest"] == "-" + f["largest"] and f["smallest_subnormal"].endswith("e-2466"), f"numbers beyond float64 are text: {f}")
    check(qk_json("formats", "binary12p1se")["formats"][0]["largest"] == 2.0**1022, "float64 has the numbers of 11 exponent bits")

    text = qk("formats", "fp4_e2m1", "--codes").stdout
    check("     7  0x7  0111  6" in text and "    15  0xf  1111  -6" in text, "a line for each code")
    check("by size" in text and "by exponent" in text and "7 numbers above 0" in text, "and a drawing of the numbers")
    check("binaryKpP" in qk("formats").stdout, "the catalogue's table names P3109's rule")
    check("up to 16 bits" in qk("formats", "fp32", "--codes", status=2).stderr, "32 bits are too many to list")
    check("codes of given formats" in qk("formats", "--codes", status=2).stderr, "without a format there is nothing to list")


def test_converting():
    x, y = at("x.npy"), at("y.npy")
    np.save(x, np.array([1.0, 1.0625, 1.25, 1.3, -1.3, 100.0, 1e9, -1e9, np.inf, 0.0], np.float32))
    for overflow, large in (("saturate", [49152, -49152, 49152]), ("propagate", [49152, -49152, np.inf]), ("ieee", [np.inf, -np.inf, np.inf])):
        qk("convert", x, y, "--format", "binary8p3se", "--rounding", "to-odd", "--overflow", overflow)
        wanted = np.array([1, 1.25, 1.25, 1.25, -1.25, 112, *large, 0], np.float32)
        check(np.array_equal(np.load(y), wanted), f"to odd, {overflow}: {np.load(y)}")
        os.remove(y)
    for ties, half in (("lower", [1, 1, 1]), ("upper", [1, 1, 1.5])):
        qk("convert", x, y, "--format", f"table:values=-1/1/1.5,ties={ties}")
        wanted = np.array([*half, 1.5, -1, 1.5, 1.5, -1, 1.5, {"lower": -1, "upper": 1}[ties]], np.float32)
        check(np.array_equal(np.load(y), wanted), f"table, ties {ties}: {np.load(y)}")
        os.remove(y)
    qk("convert", x, y, "--format", "ue5m3")
    check(np.array_equal(np.load(y), np.array([1, 1, 1.25, 1.25, 0, 96, 114688, 0, 114688, 0], np.float32)), f"unsigned: {np.load(y)}")


if __name__ == "__main__":
    evidence.main()
