# SPDX-License-Identifier: Apache-2.0
"""What `qk emit` writes: goldens in C and Python close the loop `qk gen | golden | qk ver`, SystemVerilog is clean for Verilator and proved by
yosys; coverage counts what `qk cover` counts."""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, qk

import pytest

FORMATS = [("fp8_e5m2",), ("fp8_e4m3fn", "--overflow", "ieee"), ("fp6_e3m2", "--rounding", "toward-zero"), ("bf16",), ("int8", "--scale", "0.0625", "--zero-point", "3"),
           ("nf4",), ("fp8_e4m3fn", "--decode"), ("fp8_e5m2", "--input", "fp16")]
BLOCKS = [("mxfp4",), ("mxfp6_e3m2", "--input", "fp16"), ("mxfp4", "--decode"), ("mx9",), ("bfp16", "--rounding", "stochastic")]
SUMS = [("--device", "nvidia.volta.mma.f32.f16.f16.f32"), ("--device", "amd.cdna3.mfma.f32_4x4x4_16b_bf16"), ("--device", "x86.avx512_vnni.vpdpbusds"), ("--device", "x86.fma.vfmadd231pd"),
        ("--device", "nvidia.rtx_blackwell.mma_block_scale.block16.f32.e2m1.e2m1.f32.ue4m3"), ("--device", "arm.bf16.bfdot"),
        ("--accumulator", "sum=exact,result=fp16,c=fp16", "--a-format", "fp8_e5m2", "--b-format", "fp8_e4m3fn", "--k", "6"),
        ("--accumulator", "sum=exact", "--a-format", "fp8_e5m2", "--b-format", "fp8_e4m3fn", "--k", "2", "--c-format", "none")]
COVERED_LINES = [("mx6",), ("--accumulator", "sum=exact,result=fp8_e4m3fn,c=bf16", "--a-format", "fp6_e2m3", "--b-format", "fp4_e2m1", "--k", "2"), ("mxfp4", "--decode"),
                 ("--device", "arm.bf16.bfdot"), ("--accumulator", "align=24,cut=down", "--a-format", "fp8_e5m2", "--b-format", "fp8_e5m2", "--k", "3", "--c-format", "none")]


def done(*words, **how):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **how)


def golden_in_c(folder, words, form="check"):
    """Emits and compiles, and returns the program."""
    source, made = folder / "golden.c", folder / "golden"
    qk("emit", *words, "--language", "c", "--as", form, "-o", source, "--overwrite")
    built = done("cc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-Wconversion", source, "-o", made)
    assert built.returncode == 0, built.stderr
    return made


@pytest.mark.parametrize("words", FORMATS + BLOCKS + SUMS, ids=" ".join)
def test_the_loop_in_c(folder, words):
    golden = golden_in_c(folder, words)
    assert done(golden, stdin=subprocess.DEVNULL).returncode == 0, "its own cases"
    asked = qk("gen", *words).stdout
    answered = done(golden, input=asked)
    assert answered.returncode == 0, answered.stderr
    told = qk("ver", *words, input=answered.stdout).stdout
    check("0 differ" in told, f"{words}: {told}")
    check(done(golden, input=answered.stdout).returncode == 0, f"{words}: lines with results are judged")
    lines = answered.stdout.splitlines()
    last = lines[len(lines) // 2].split()
    last[-1] = f"{int(int(last[-1], 16) == 0):0{len(last[-1])}x}"  # no NaN, which is as right as another
    lines[len(lines) // 2] = " ".join(last)
    check(done(golden, input="\n".join(lines) + "\n").returncode == 1, f"{words}: a wrong result ends with 1")


@pytest.mark.parametrize("words", FORMATS[:3] + FORMATS[6:7] + BLOCKS[:3] + SUMS[:4], ids=" ".join)
def test_the_loop_in_python(folder, words):
    qk("emit", *words, "--language", "python", "--as", "check", "-o", folder / "golden.py", "--overwrite")
    asked = "".join(qk("gen", *words).stdout.splitlines(keepends=True)[:4000 if words in FORMATS else 300])
    answered = done(sys.executable, folder / "golden.py", input=asked)
    assert answered.returncode == 0, answered.stderr
    told = qk("ver", *words, input=answered.stdout).stdout
    check("0 differ" in told, f"{words}: {told}")
    check("import" not in [w for line in qk("emit", *words, "--language", "python").stdout.splitlines() for w in line.split()[:1]], "the functions import nothing")


def test_same_bytes_and_refusals(folder):
    twice = [qk("emit", "mxfp4", "--language", language).stdout for language in ("c", "sv", "python") for _ in range(2)]
    check(twice[0::2] == twice[1::2] and len(set(twice)) == 3, "the same command writes the same bytes")
    qk("emit", "mxfp4", "--language", "c", "-o", folder / "m.c")
    check((folder / "m.c").read_text() == twice[0], "-o writes what standard output has")
    for words, part in ((("nvfp4", "--language", "c"), "nvfp4"), (("int8", "--scale", "0.3", "--language", "c"), "power of two"), (("fp8_e5m3", "--language", "c"), "fp8_e5m3")):
        refused = qk("emit", *words, status=2)
        check(part in refused.stderr and not refused.stdout, f"{words}: {refused.stderr}")


@pytest.mark.skipif(shutil.which("verilator") is None, reason="skipped: no verilator here")
def test_verilator_has_no_warning(folder):
    for words in (*FORMATS, *BLOCKS, *SUMS):
        file = folder / "golden.sv"
        qk("emit", *words, "--language", "sv", "-o", file, "--overwrite")
        wrapped = folder / "linted.sv"
        wrapped.write_text("module linted;\n" + file.read_text() + "\nendmodule\n")
        linted = done("verilator", "--lint-only", "-Wall", "-Wno-DECLFILENAME", wrapped)
        check(linted.returncode == 0 and not linted.stderr, f"{words}: {linted.stderr[:600]}")


@pytest.mark.skipif(shutil.which("yosys") is None, reason="skipped: no yosys here")
def test_miter_of_a_sum(folder):
    """A sum of one product, as a device whose source is the golden, is equal; with one bit of the result inverted it is refuted."""
    words = ("--accumulator", "sum=exact,result=fp8_e4m3fn,c=fp16", "--a-format", "fp4_e2m1", "--b-format", "fp4_e2m1", "--k", "2", "--language", "sv")
    qk("emit", *words, "--as", "miter", "-o", folder / "miter.sv", "--overwrite")
    qk("emit", *words, "-o", folder / "golden.svh", "--overwrite")
    ports = next(line for line in (folder / "miter.sv").read_text().splitlines() if "module unit_device(" in line).lstrip("/ ")
    for change, status in (("", 0), (" ^ 8'd1", 1)):
        (folder / "device.sv").write_text(ports + "\n" + (folder / "golden.svh").read_text().replace("unit_", "theirs_") + f"  assign d = theirs_dot(a, b, c){change};\nendmodule\n")
        proved = done("yosys", "-q", "miter.ys", cwd=folder)
        check((proved.returncode != 0) == bool(status), f"{change}: {proved.stdout[-400:]}{proved.stderr[-400:]}")


@pytest.mark.skipif(shutil.which("yosys") is None, reason="skipped: no yosys here")
def test_yosys_proves(folder):
    """The golden is equal to the C file's table of intervals on all 2^32 words; a table with one code changed is refuted."""
    golden = golden_in_c(folder, ("fp4_e2m1",))
    table = done(golden, "--intervals")
    assert table.returncode == 0 and table.stdout, table.stderr
    qk("emit", "fp4_e2m1", "--language", "sv", "--as", "miter", "-o", folder / "miter.sv", "--overwrite")
    check((folder / "miter.ys").exists() and (folder / "miter.sby").exists(), "the scripts stand beside the miter")
    device = "module fp4_e2m1_device(input logic [31:0] x, output logic [3:0] y);\n" + table.stdout + "  logic [31:0] code;\n  assign code = table_code(x);\n  assign y = code[3:0];\nendmodule\n"
    (folder / "device.sv").write_text(device)
    proved = done("yosys", "-q", "miter.ys", cwd=folder)
    check(proved.returncode == 0, f"equal: {proved.stdout[-400:]}{proved.stderr[-400:]}")
    wrong = device.replace("32'h00000003", "32'h00000002", 1)
    assert wrong != device, device[:400]
    (folder / "device.sv").write_text(wrong)
    check(done("yosys", "-q", "miter.ys", cwd=folder).returncode != 0, "a wrong code is refuted")


# What is changed in the golden of fp4_e2m1, and what that is.
MUTANTS = [("shifted[23:0] != 24'd0", "shifted[23:4] != 20'd0", "the lowest sticky bit of a normal number is lost"), (" || below[0]", "", "ties go toward zero"),
           (" || below[0]", " || !below[0]", "ties go to odd"), ("shifted[24] && beyond_half", "shifted[24]", "ties go away from zero"),
           ("shifted[24] && beyond_half", "1'b0", "truncates"), ("low ? (8'h7f - exponent)", "low ? (8'h7e - exponent)", "subnormal numbers are shifted by a place too few"),
           ("8'd3 ? 2'd3", "8'd3 ? 2'd2", "the shift stops too early"), ("rounded > 9'd7", "rounded > 9'd8", "the first number beyond the largest wraps"),
           (": too_large ? {negative, 3'd7}", ": too_large ? {negative, 3'd6}", "what is too large becomes the number below the largest"),
           ("31'h7f800000 ? {negative, 3'd7}", "31'h7f800000 ? {negative, 3'd0}", "Inf becomes zero"), ("!= 23'd0 ? 4'd0", "!= 23'd0 ? 4'd7", "NaN becomes the largest number"),
           (": {negative, rounded[2:0]}", ": {negative && rounded[2:0] != 3'd0, rounded[2:0]}", "-0 becomes 0")]


@pytest.mark.skipif(shutil.which("yosys") is None, reason="skipped: no yosys here")
def test_mutants_are_refuted(folder):
    """Each of twelve mutants of a golden is refuted by the miter, and the input that yosys finds hits a bin that `qk cover` names."""
    qk("emit", "fp4_e2m1", "--language", "sv", "--as", "miter", "-o", folder / "miter.sv", "--overwrite")
    golden = qk("emit", "fp4_e2m1", "--language", "sv").stdout
    ports = next(line for line in (folder / "miter.sv").read_text().splitlines() if "module fp4_e2m1_device(" in line).lstrip("/ ")
    for before, after, what in MUTANTS:
        assert golden.count(before) == 1, f"{what}: the golden has {golden.count(before)} of {before}"
        mutant = golden.replace(before, after).replace("fp4_e2m1_", "mutant_")
        (folder / "device.sv").write_text(ports + "\n" + mutant + "  assign y = mutant_encode(x);\nendmodule\n")
        proved = done("yosys", "-q", "-l", "log.txt", "miter.ys", cwd=folder)
        found = re.search(r"\\x\s+-?\d+\s+([0-9a-f]+)\s", (folder / "log.txt").read_text())
        assert proved.returncode != 0 and found is not None, f"{what}: {proved.stderr[-400:]}"
        hit = json.loads(qk("cover", "fp4_e2m1", "--json", input=f"{int(found[1], 16):08x}\n", status=1).stdout)
        check(hit["hit"] > 0, f"{what}: no bin is hit by {found[1]}")


def report_of(text):
    """What a report says of each kind of bins: how many are hit, how many there are, and which are empty."""
    kinds = {}
    for line in text.splitlines():
        if line.startswith("  empty: "):
            kinds[about][2].append(line.removeprefix("  empty: "))
        elif counted := re.fullmatch(r"(.*\S)\s+(\d+) of (\d+)", line):
            about = counted[1]
            kinds[about] = (int(counted[2]), int(counted[3]), [])
    return {kind: (hit, bins, sorted(empty)) for kind, (hit, bins, empty) in kinds.items()}


def covered(words, lines):
    """The same of `qk cover`, and its exit status."""
    done = evidence.run("cover", *words, "--json", input=lines)
    return {k["about"]: (k["hit"], k["bins"], sorted(k["empty"])) for k in json.loads(done.stdout)["kinds"]}, done.returncode


def streams(words):
    """All lines of level 1, and every seventh of them."""
    lines = qk("gen", *words).stdout.splitlines(keepends=True)
    return "".join(lines), "".join(lines[::7])


@pytest.mark.parametrize("words", [("fp8_e5m2",), ("int8", "--scale", "0.0625", "--zero-point", "3"), ("nf4",), ("fp6_e3m2", "--rounding", "stochastic"), ("fp4_e2m1", "--input", "fp16"), ("fp8_e4m3fn", "--decode"), *COVERED_LINES], ids=" ".join)
def test_coverage_is_that_of_cover(folder, words):
    made = golden_in_c(folder, words, "coverage")
    qk("emit", *words, "--language", "python", "--as", "coverage", "-o", folder / "covered.py", "--overwrite")
    for lines in streams(words)[0 if words in FORMATS else 1:]:  # a long stream is a matter of C
        right, status = covered(words, lines)
        for program in ((made,), (sys.executable, folder / "covered.py")):
            told = done(*program, input=lines)
            check(report_of(told.stdout) == right and told.returncode == status, f"{words}, {program[-1]}: status {told.returncode} of {status}, {told.stdout[-300:]}")
    check(done(made, input="123456789\n").returncode == 2, f"{words}: a word that is too wide ends with 2")


def test_coverage_that_the_command_counts():
    wide = "float:exponent=4,mantissa=3,bias=140"
    refused = qk("emit", wide, "--language", "c", "--as", "coverage", status=2)
    check("qk cover FORMAT LINES" in refused.stderr and not refused.stdout, f"{wide}: {refused.stderr}")


@pytest.mark.skipif(shutil.which("verilator") is None, reason="skipped: no verilator here")
@pytest.mark.parametrize("words", [("fp4_e2m1",), ("nf4",), ("fp8_e5m2", "--decode"), *COVERED_LINES[:3]], ids=" ".join)
def test_coverage_in_verilator(folder, words):
    file = folder / "covered.sv"
    qk("emit", *words, "--language", "sv", "--as", "coverage", "-o", file, "--overwrite")
    top = re.search(r"^module (\w+_cover);", file.read_text(), re.M)[1]
    linted = done("verilator", "--lint-only", "-Wall", "--top-module", top, file)
    check(linted.returncode == 0 and not linted.stderr, f"{words}: {linted.stderr[:600]}")
    lines = streams(words)[1]
    (folder / "lines.hex").write_text(lines)
    built = done("verilator", "--binary", "-O0", "-CFLAGS", "-O0", "--Mdir", folder / "obj", "-o", "bench", "--top-module", top, f'-GCASES="{folder / "lines.hex"}"', f"-GCOUNT={lines.count(chr(10))}", file)
    assert built.returncode == 0, built.stderr[-600:]
    ran = done(folder / "obj" / "bench")
    right, status = covered(words, lines)
    check(report_of(ran.stdout) == right and (ran.returncode != 0) == (status != 0), f"{words}: status {ran.returncode}, {ran.stdout[-400:]}")


if __name__ == "__main__":
    evidence.main()
