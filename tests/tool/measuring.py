# SPDX-License-Identifier: Apache-2.0
"""Runs `qk bench` on small tensors: what it measures, how often, in which words and files. No time is asserted."""
import csv
import io
import json
import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, qk_json, run

OWN = "bfp:block=16,exponent=8,mantissa=5"
SMALL = ("--bytes", "4096,65536", "--seconds", "0")


def bench(*words):
    return run("bench", *words)


def rows(*words):
    done = bench(*words, *SMALL, "--json")
    check(done.returncode == 0, f"{words}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else {"rates": []}


def measured(*words, names, operations):
    """Each format and operation has a row, after memcpy's, with a figure for each size."""
    found = rows(*words)
    want = [("memcpy", "memcpy")] + [(name, operation) for name in names for operation in operations]
    check([(r["name"], r["operation"]) for r in found["rates"]] == want, f"{words}: rows {[(r['name'], r['operation']) for r in found['rates']]}")
    for r in found["rates"]:
        for key in ("bytes_per_second", "of_memcpy", "spread"):
            values = r[key]
            check(len(values) == 2 and all(math.isfinite(v) and v >= 0 for v in values), f"{words}: {r['name']} {r['operation']} {key}: {values}")
        check(all(v > 0 for v in r["bytes_per_second"]), f"{words}: {r['name']}: a rate of 0")
        for rate, copy, share in zip(r["bytes_per_second"], found["rates"][0]["bytes_per_second"], r["of_memcpy"]):
            check(math.isclose(share, rate / copy, rel_tol=1e-9), f"{words}: {r['name']}: {share} is not {rate} of {copy}")
    return found


EVERY = ["fake_quantize", "encode", "decode"]


def test_rates():
    found = measured("mxfp4", "int8", "fp16", OWN, "nvfp4", names=["mxfp4", "int8", "fp16", OWN, "nvfp4"], operations=EVERY)
    check(found["working_sets"] == [4096, 65536] and found["memory"] == "float32" and found["axis"] is None and found["scales"] is None, f"settings: {found}")
    bits = {r["name"]: r["bits_per_value"] for r in found["rates"]}
    check(bits == {"memcpy": 0, "mxfp4": 4.25, "int8": 8, "fp16": 16, OWN: 6.5, "nvfp4": 4.5}, f"bits of a value: {bits}")
    measured("fp16", "--operation", "decode", names=["fp16"], operations=["decode"])
    found = measured("mxfp4", "mx9", "fp8_e4m3fn", "nvfp4", "int4", "--axis", "8x4", names=["mxfp4", "mx9", "fp8_e4m3fn", "nvfp4", "int4"], operations=EVERY)
    check(found["axis"] == "8x4", f"axis: {found['axis']}")
    for scales in ("tensor", "channel", "7"):
        found = measured("int8", "fp8_e4m3fn", "--axis", "30x7", "--scales", scales, names=["int8", "fp8_e4m3fn"], operations=EVERY)
        check(found["scales"] == scales, f"scales: {found['scales']}")
    measured("int8", "--scales", "32", names=["int8"], operations=EVERY)
    for memory in ("float16", "bfloat16"):
        found = measured("int8", "mxfp8_e4m3", "--memory", memory, names=["int8", "mxfp8_e4m3"], operations=["encode", "decode"])
        check(found["memory"] == memory, f"memory: {found['memory']}")


def test_the_catalogue():
    """Every format of the catalogue can be measured, or is an error that says what can."""
    catalogue = [row["name"] for row in qk_json("formats")["formats"]]
    check(len(catalogue) > 25, f"{len(catalogue)} formats in the catalogue")
    for name in catalogue:
        done = bench(name, "--bytes", "4096", "--seconds", "0", "--csv")
        check(done.returncode == 0 or (done.returncode == 2 and f"FORMAT '{name}' has no codes" in done.stderr), f"{name}: {done.stderr}")
        check(bench(name, "--operation", "fake_quantize", "--bytes", "4096", "--seconds", "0", "--csv").returncode == 0, f"{name}: fake_quantize")


def test_tables():
    done = bench("mxfp4", OWN, *SMALL, "--csv")
    table = list(csv.reader(io.StringIO(done.stdout)))
    check(table[0] == ["format", "operation", "bits_per_value", "working_set", "bytes_per_second", "of_memcpy", "spread"], f"the columns of --csv: {table[0]}")
    check(len(table) == 1 + 2 * (1 + 2 * 3) and all(len(row) == 7 for row in table), f"{len(table)} lines of --csv")
    check({row[0] for row in table[1:]} == {"memcpy", "mxfp4", OWN}, "the names in --csv")
    check(all(float(row[4]) > 0 for row in table[1:]), "a rate of 0 in --csv")
    done = bench("mxfp4", *SMALL)
    check(done.returncode == 0 and "bits" in done.stdout and "64 KiB" in done.stdout and "4.25" in done.stdout and len(done.stdout.splitlines()) == 6, done.stdout)


def test_products():
    """Products: every kind of scale, beside the speed of reading."""
    for scales in ((), ("--scales", "32"), ("--scales", "channel")):
        names = ["int8", "fp8_e4m3fn"] if scales else ["mxfp4", "int8", OWN, "nvfp4", "mx9", "bf16"]
        done = bench(*names, *SMALL, *scales, "--product", "--vectors", "3", "--json")
        found = json.loads(done.stdout)
        check(found["vectors"] == 3 and [(r["name"], r["operation"]) for r in found["rates"]] == [("read", "read")] + [(n, "product") for n in names], f"products: {found}")
        check(all(v > 0 and math.isfinite(v) for r in found["rates"] for v in r["bytes_per_second"] + r["of_read"]), f"products: {found}")
    table = list(csv.reader(io.StringIO(bench("mxfp4", *SMALL, "--product", "--csv").stdout)))
    check(table[0][5] == "of_read" and [row[1] for row in table[1:]] == ["read"] * 2 + ["product"] * 2, f"products in --csv: {table}")
    check("1 vectors of 4096" in bench("mxfp4", *SMALL, "--product").stdout, "products for people")


def test_wrong_words():
    for words, sentence in (
            (("mxpf4",), "did you mean mxfp4"),
            (("--csv", "--json"), "give one of them"),
            (("int8", "--memory", "float16", "--operation", "fake_quantize"), "fake_quantize works on float32"),
            (("int8", "--memory", "float8"), "--memory 'float8' is none of"),
            (("int8", "--operation", "encod"), "Did you mean 'encode'"),
            (("int8", "--scales", "channel"), "say with --axis"),
            (("int8", "--scales", "0"), "--scales '0': give tensor, channel"),
            (("mxfp4", "--axis", "8x4", "--scales", "channel"), "the blocks of FORMAT 'mxfp4' have scales of their own"),
            (("int8", "--axis", "8"), "--axis '8': give LENGTHxINNER"),
            (("int8", "--axis", "8x4x2"), "--axis '8x4x2': give LENGTHxINNER"),
            (("int8", "--axis", "640x49", "--bytes", "4096"), "are more than --bytes 4096 holds"),
            (("int8", "--bytes", "many"), "--bytes 'many': give a number of bytes"),
            (("int8", "--product", "--memory", "float16"), "leave --operation, --axis and --memory out"),
            (("int8", "--vectors", "2"), "--vectors is for --product"),
            (("int8", "--product", "--vectors", "0"), "give a number of vectors"),
            (("int8", "--seconds", "-1"), "--seconds")):
        done = bench(*words)
        check(done.returncode == 2 and sentence in done.stderr, f"{words}: status {done.returncode}: {done.stderr}")


if __name__ == "__main__":
    evidence.main()
