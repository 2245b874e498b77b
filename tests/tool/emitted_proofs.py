#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves emitted SystemVerilog equal to the emitted C on all 2^32 words, by yosys: `emitted_proofs.py QK [FORMAT ...]`; by default every
element format of up to 8 bits. The C program writes where its codes change as a Verilog table; a miter holds table and golden. The words are
split by their exponent where the table's codes change, which keeps each proof small; together the parts are all words. Exit status 1 where a
proof fails."""
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def done(*words, cwd):
    return subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True)


def formats_up_to_8_bits(qk):
    listed = json.loads(subprocess.run([qk, "formats", "--json"], capture_output=True, text=True, check=True).stdout)
    rows = listed["formats"] if isinstance(listed, dict) else listed
    return [r["name"] for r in rows if r.get("bits_per_value", 99) <= 8 and r.get("block_size", 1) <= 1]


def table_of(qk, words, folder):
    """Returns the table of intervals that the C program of `words` writes."""
    made = done(qk, "emit", *words, "--language", "c", "--as", "check", "-o", "golden.c", "--overwrite", cwd=folder)
    assert made.returncode == 0, made.stderr
    built = done("cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-Wconversion", "golden.c", "-o", "golden", cwd=folder)
    assert built.returncode == 0, built.stderr
    return done("./golden", "--intervals", cwd=folder).stdout


def device_of(miter, table):
    """Returns a module around the table, with the ports that the miter says."""
    ports = re.search(r"module (\w+)_device\(.*output logic (\[\d+:0\] )?y\);", miter)
    top = ports[2].strip() if ports[2] else "[0:0]"
    return ports[0] + "\n" + table + f"  logic [31:0] code;\n  assign code = table_code(x);\n  assign y = code{top};\nendmodule\n"


def split_script(name, table):
    """Returns a wrapper and a script: one proof for the exponents below those at which codes change, one for those above, one for each between."""
    ends = [int(w, 16) & 0x7fffffff for w in re.findall(r"x <= 32'h([0-9a-f]+)", table)]
    fields = sorted({e >> 23 for e in ends if e < 0x7f800000 and e & 0x7fffff != 0x7fffff} | {(e + 1) >> 23 for e in ends if e < 0x7f7fffff} - {0})
    low, high = (fields[0], fields[-1]) if fields else (1, 1)
    wrapper = (f"module split(input logic [31:0] x, output logic below, output logic above);\n  logic same;\n  {name}_miter m(.x(x), .same(same));\n"
               f"  assign below = x[30:23] < 8'd{low};\n  assign above = x[30:23] > 8'd{high};\nendmodule\n")
    script = ["read_verilog -sv -formal miter.sv", "read_verilog -sv -formal device.sv", "read_verilog -sv -formal split.sv", "prep -flatten -top split", "opt -full"]
    prove = "sat -verify -prove-asserts -show-inputs"
    script += [f"{prove} -set {side} 1'b1 split" for side in ("below", "above")]
    script += [f"{prove} -set x[30:23] 8'd{field} split" for field in range(low, high + 1)]
    return wrapper, "\n".join(script) + "\n", high - low + 3


def prove(qk, words, folder):
    """Proves one format; returns how many intervals and parts there are, and yosys' failure."""
    table = table_of(qk, words, folder)
    made = done(qk, "emit", *words, "--language", "sv", "--as", "miter", "-o", "miter.sv", "--overwrite", cwd=folder)
    assert made.returncode == 0, made.stderr
    miter = (folder / "miter.sv").read_text()
    (folder / "device.sv").write_text(device_of(miter, table))
    name = re.search(r"module (\w+)_miter\(", miter)[1]
    wrapper, script, parts = split_script(name, table)
    (folder / "split.sv").write_text(wrapper)
    (folder / "split.ys").write_text(script)
    ran = done("yosys", "-q", "split.ys", cwd=folder)
    return table.count("else if"), parts, "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-600:]


def main():
    qk, names = sys.argv[1], sys.argv[2:]
    failed = 0
    for name in names or formats_up_to_8_bits(qk):
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time(), time.time()
            intervals, parts, failure = prove(qk, (name,), Path(folder))
            print(f"{name}: {'FAILED ' + failure if failure else 'equal on all 2^32 words'}, {intervals} intervals, {parts} proofs, {time.time() - started[1]:.0f} s", flush=True)
            failed += bool(failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
