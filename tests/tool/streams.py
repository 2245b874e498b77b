# SPDX-License-Identifier: Apache-2.0
"""`qk gen FORMAT | device | qk ver FORMAT` with devices written in numpy: right ones pass, each wrong case is counted."""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import qk, qk_json, run

evidence.needs("ml_dtypes")

import ml_dtypes
import numpy as np


def gen(*arguments):
    return [line.split() for line in qk("gen", *arguments).stdout.splitlines()]


def ver(lines, *arguments):
    return run("ver", *arguments, input="".join(" ".join(words) + "\n" for words in lines))


def passes(lines, *arguments):
    done = ver(lines, *arguments)
    assert done.returncode == 0 and done.stdout == f"{len(lines)} cases, 0 differ\n", (arguments, done)


def differ(lines, count, *arguments):
    done = ver(lines, *arguments)
    shown = done.stdout.splitlines()
    assert done.returncode == 1 and shown[-1] == f"{len(lines)} cases, {count} differ", (arguments, count, shown[-1:], done.stderr)
    assert len(shown) == 1 + min(20, count) and " expected " in shown[0] and " device " in shown[0], shown
    as_json = json.loads(ver(lines, *arguments, "--json").stdout)
    assert as_json == {"cases": len(lines), "differ": count}, as_json


def fails(words, *arguments, text=""):
    done = qk(*arguments, input=text, status=2)
    assert words in done.stderr, (arguments, done)


def floats(lines):
    return np.array([[int(w, 16) for w in words] for words in lines], np.uint32).view(np.float32)


def appended(lines, columns, digits):
    return [words + [f"{int(v):0{digits}x}" for v in row] for words, row in zip(lines, columns)]


def test_converters():
    lines = gen("fp8_e4m3fn")
    with np.errstate(all="ignore"):
        codes = floats(lines).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert len(lines) > 5000
    passes(appended(lines, codes, 2), "fp8_e4m3fn", "--overflow", "ieee")
    wrong = codes.copy()
    wrong[np.arange(0, len(wrong), 50)] ^= 1
    is_nan = lambda c: (c & 0x7F) == 0x7F
    differ(appended(lines, wrong, 2), int(((wrong != codes) & ~(is_nan(wrong) & is_nan(codes))).sum()), "fp8_e4m3fn", "--overflow", "ieee")
    halves = gen("fp8_e5m2", "--input", "fp16", "--level", "exhaustive")
    assert len(halves) == 65536
    x = np.array([int(w[0], 16) for w in halves], np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        codes = x.astype(ml_dtypes.float8_e5m2).view(np.uint8)[:, None]
    passes(appended(halves, codes, 2), "fp8_e5m2", "--input", "fp16", "--overflow", "ieee")
    assert len(gen("bf16", "--level", "2")) > 10 * len(lines)


def test_nan_without_a_guard():
    """A converter that rounds NaN like a number makes Inf of it where the payload is dropped, and a number where a carry passes the exponent: level 1 has both."""
    for name, mantissa in (("bf16", 7), ("fp16", 10), ("fp8_e5m2", 2), ("fp8_e4m3fn", 3)):
        for kind, bits, has in (("fp32", 32, 23), ("fp16", 16, 10)):
            if has <= mantissa:
                continue
            x = np.array([int(words[0], 16) for words in gen(name, "--input", kind)], np.int64)
            payload, ones, dropped = x & ((1 << has) - 1), (1 << (bits - 1 - has)) - 1, has - mantissa
            nan = ((x >> has) & ones == ones) & (payload != 0)
            for what in (payload >> dropped == 0, payload & ((1 << dropped) - 1) == 0, payload == (1 << has) - 1):
                assert set(x[nan & what] >> (bits - 1)) == {0, 1}, (name, kind, "a kind of NaN is missing")
    lines = gen("bf16")
    x = floats(lines).view(np.uint32)[:, 0].astype(np.int64)
    unguarded, nan = (x + 0x7FFF + (x >> 16 & 1)) >> 16 & 0xFFFF, x & 0x7FFFFFFF > 0x7F800000
    passes(appended(lines, np.where(nan, 0x7FC0, unguarded)[:, None], 4), "bf16")
    lost = nan & (unguarded & 0x7FFF <= 0x7F80)
    assert lost.sum() >= 6
    differ(appended(lines, unguarded[:, None], 4), int(lost.sum()), "bf16")


def encoded_mxfp4(x):
    """Returns the codes of blocks of 32, elements and then the scale."""
    most = np.abs(x).max(axis=1).astype(np.float64)
    e = np.where(most > 0, np.clip(np.floor(np.log2(np.where(most > 0, most, 1))) - 2, -127, 127), -127)
    q = np.abs(x.astype(np.float64)) / 2.0 ** e[:, None]
    step = 2.0 ** (np.clip(np.floor(np.log2(np.where(q > 0, q, 1))), 0, 2) - 1)
    r = np.minimum(np.rint(q / step) * step, 6)
    code = np.searchsorted([0, 0.5, 1, 1.5, 2, 3, 4, 6], r) | np.signbit(x) * 8
    codes = np.concatenate([code, e[:, None] + 127], axis=1).astype(np.int64)
    codes[~np.isfinite(x).all(axis=1), 32] = 255
    return codes


def test_blocks():
    lines = gen("mxfp4")
    codes = encoded_mxfp4(floats(lines))
    assert all(len(words) == 32 for words in lines)
    rows = [words + [f"{c:x}" for c in row[:32]] + [f"{row[32]:02x}"] for words, row in zip(lines, codes)]
    passes(rows, "mxfp4")
    finite = [i for i, row in enumerate(codes) if row[32] < 200 and (row[:32] & 7).any()][:30]
    for i in finite:
        rows[i][64] = f"{codes[i][32] + 1:02x}"
    differ(rows, 30, "mxfp4")
    coded = gen("mxfp4", "--decode", "--level", "2")
    w = np.array([[int(v, 16) for v in words] for words in coded])
    assert set(w[:, 32]) == set(range(256))
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[w[:, :32] & 7] * np.where(w[:, :32] & 8, -1.0, 1.0)
    with np.errstate(all="ignore"):
        y = (values * 2.0 ** (w[:, 32:] - 127)).astype(np.float32)
    y[w[:, 32] == 255] = np.nan
    passes(appended(coded, y.view(np.uint32), 8), "mxfp4", "--decode")
    every = gen("fp8_e5m2", "--decode", "--level", "exhaustive")
    y = np.array([int(words[0], 16) for words in every], np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float32)
    assert len(every) == 256
    passes(appended(every, y.view(np.uint32)[:, None], 8), "fp8_e5m2", "--decode")


def test_products():
    for name, dtype in (("fp8_e4m3fn", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2)):
        lines = gen("fp8_e4m3fn", "--pairs", name)
        assert len(lines) == 65536
        codes = np.array([[int(v, 16) for v in words] for words in lines], np.uint8)
        with np.errstate(all="ignore"):
            p = codes[:, 0].copy().view(ml_dtypes.float8_e4m3fn).astype(np.float32) * codes[:, 1].copy().view(dtype).astype(np.float32)
        passes(appended(lines, p.view(np.uint32)[:, None], 8), "fp8_e4m3fn", "--pairs", name)
    lines = gen("int8", "--pairs", "uint8")
    codes = np.array([[int(v, 16) for v in words] for words in lines], np.uint8)
    p = codes[:, 0].view(np.int8).astype(np.int32) * codes[:, 1].astype(np.int32)
    passes(appended(lines, p.view(np.uint32)[:, None], 8), "int8", "--pairs", "uint8")
    p[100] += 1
    differ(appended(lines, p.view(np.uint32)[:, None], 8), 1, "int8", "--pairs", "uint8")


def test_devices(folder):
    for name, k, types in (("amd.cdna3.mfma.f32_f16", None, (np.uint16, np.uint16)), ("nvidia.hopper.wgmma.f32.e4m3.e4m3", None, (np.uint8, np.uint8))):
        lines = gen("--device", name, "--seed", "3")
        k = (len(lines[0]) - 1) // 2
        lines = lines[:: len(lines) // 32][:32]  # rows of a, columns of b: the diagonal answers them
        w = np.array([[int(v, 16) for v in words] for words in lines], np.uint64)
        np.savez(folder / "case.npz", a=w[:, :k].astype(types[0]), b=w[:, k : 2 * k].T.astype(types[1]).copy(), c=np.repeat(w[:, 2 * k :], 32, axis=1).astype(np.uint32))
        qk("dot", "--case", folder / "case.npz", "--device", name, "-o", folder / "d.npz", "--overwrite")
        d = np.load(folder / "d.npz")["d"].diagonal().reshape(-1, 1).copy()
        passes(appended(lines, d, 8), "--device", name)
        finite = next(i for i in range(32) if d[i] & 0x7f800000 != 0x7f800000)
        d[finite] ^= 1
        differ(appended(lines, d, 8), 1, "--device", name)


def covered(lines, *arguments):
    return run("cover", *arguments, "--json", input="".join(" ".join(words) + "\n" for words in lines))


def test_bins(folder):
    """Level 1 hits every bin, with results behind the operands or without; what a part of it leaves empty, --missing fills."""
    kinds = [[name] for name in ("fp8_e5m2", "fp16", "bf16", "mxfp4", "nvfp4", "bfp16", "int8", "nf4", "e8m0")] + [["fp8_e4m3fn", "--input", "bf16"], ["mxfp8_e4m3", "--decode"], ["fp4_e2m1", "--pairs", "int8"][:2] + ["fp6_e2m3"]]
    kinds += [["--device", "x86.avx512_vnni.vpdpbusd"], ["--accumulator", "sum=sequential", "--a-format", "bf16", "--b-format", "bf16", "--k", "4"],
              ["--accumulator", "sum=exact", "--a-format", "int8", "--b-format", "uint8", "--k", "4"], ["tf32"], ["fp24", "--decode"]]
    for words in kinds:
        lines = gen(*words, "--seed", "5") if "--pairs" not in words else gen(*words)
        done = covered(lines, *words)
        told = json.loads(done.stdout)
        assert done.returncode == 0 and told["cases"] == len(lines) and told["hit"] == told["bins"] > 20, (words, told)
    some = gen("fp8_e5m2")[:400]
    (folder / "some.hex").write_text("".join(" ".join(words) + " 00\n" for words in some))
    done = qk("cover", "fp8_e5m2", folder / "some.hex", "--missing", folder / "more.hex", status=1)
    assert "empty: " in done.stdout and done.stdout.splitlines()[-1].startswith("400 cases hit "), done
    more = [line.split() for line in (folder / "more.hex").read_text().splitlines()]
    assert covered(some + more, "fp8_e5m2").returncode == 0
    fails("line 1 has 3 words", "cover", "fp8_e5m2", text="00000000 00 00\n")
    fails("line 2: operand 1 is no word", "cover", "fp8_e5m2", "--decode", text="00\n100\n")


def test_single_sticky_bits():
    """An encoder whose sticky bit leaves out one bit below the guard is wrong on some line of level 1, whatever the bit."""
    lines = gen("fp8_e5m2")
    x = floats(lines).view(np.uint32)[:, 0].astype(np.int64)
    with np.errstate(all="ignore"):
        right = floats(lines)[:, 0].astype(ml_dtypes.float8_e5m2).view(np.uint8)
        for bit in range(20):
            normal = (x >> 23 & 255 >= 113) & (x >> 23 & 255 < 142)
            seen = np.where(normal & (x >> 20 & 1 == 1), x & ~(1 << bit), x).astype(np.uint32).view(np.float32).astype(ml_dtypes.float8_e5m2).view(np.uint8)
            assert (seen != right).any(), bit


def test_nan_that_meets_zeros_alone():
    """A multiplier that skips zeros, and sums of eight that wrap at 18 bits, are wrong on some line of level 1."""
    name = "nvidia.hopper.wgmma.f32.e4m3.e4m3"
    words = np.array([[int(v, 16) for v in line] for line in gen("--device", name)], np.int64)
    k = (words.shape[1] - 1) // 2
    nan, zero = words[:, : 2 * k] & 0x7F == 0x7F, words[:, : 2 * k] & 0x7F == 0
    for here, there in ((slice(0, k), slice(k, 2 * k)), (slice(k, 2 * k), slice(0, k))):
        assert (nan[:, here].any(axis=1) & ~(nan[:, here] & ~zero[:, there]).any(axis=1)).sum() >= k
    words = np.array([[int(v, 16) for v in line] for line in gen("--accumulator", "sum=integer", "--a-format", "int8", "--b-format", "int8")], np.int64)
    a, b = ((words[:, s] ^ 128) - 128 for s in (slice(0, 32), slice(32, 64)))
    assert ((a * b).reshape(len(words), -1, 8).sum(axis=2) >= 1 << 17).any()


def test_units_without_c(folder):
    """A multiplier alone: its lines have no C, and a product is right to the sign of its zero."""
    unit = ["--accumulator", "sum=exact", "--a-format", "fp8_e5m2", "--b-format", "fp8_e5m2", "--k", "1", "--c-format", "none"]
    lines = gen(*unit)
    codes = np.array([[int(v, 16) for v in words] for words in lines], np.uint8)
    assert codes.shape[1] == 2
    values = codes.view(ml_dtypes.float8_e5m2).astype(np.float32)
    with np.errstate(all="ignore"):
        d = (values[:, :1] * values[:, 1:]).view(np.uint32)
    assert (d == 0x80000000).any()
    passes(appended(lines, d, 8), *unit)
    d[np.flatnonzero(d[:, 0] == 0x80000000)[0]] = 0
    differ(appended(lines, d, 8), 1, *unit)
    told = json.loads(covered(lines, *unit).stdout)
    assert told["hit"] == told["bins"] > 20 and not any("C" in bin.get("name", "").split() for bin in told.get("empty", [])), told
    qk("vectors", *unit, "--out", folder / "vectors")
    assert len((folder / "vectors/cases.hex").read_text().splitlines()[0].split()) == 3
    qk("dot", "--case", folder / "vectors/case.npz", *unit[:6])
    fails("--c-format", "gen", "fp8_e5m2", "--c-format", "none")


def test_elements_that_are_others():
    """mx:element=fp8_e4m3 has IEEE's special values, mxfp8_e4m3 the largest number 448: the command says so, once."""
    said = qk("gen", "mx:element=fp8_e4m3", "--decode").stderr
    assert said.count("mxfp8_e4m3") == 1 and "240" in said and "448" in said, said
    for format in ("mxfp8_e4m3", "mx:element=fp8_e4m3fn", "mx:element=fp8_e5m2", "mx:element=int8", "mx:element=float:exponent=3,mantissa=3"):
        assert not qk("gen", format, "--decode").stderr, format


def test_memories(folder):
    lines = gen("fp8_e4m3fn", "--decode")
    y = np.array([int(words[0], 16) for words in lines], np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32).view(np.uint32)
    (folder / "in.hex").write_text("// codes\n@0\n" + " ".join(words[0] for words in lines) + "\n")
    out = [f"{int(v):08x}" for v in y]
    (folder / "out.hex").write_text("@00000000\n" + "\n".join(f"{v[:4]}_{v[4:]}" for v in out) + "\n")
    files = ["ver", "fp8_e4m3fn", "--decode", "--file", folder / "in.hex", "--results", folder / "out.hex"]
    assert qk(*files).stdout == "256 cases, 0 differ\n"
    out[7] = "xxxxxxxx"  # a simulator that drives nothing there
    (folder / "out.hex").write_text("\n".join(out))
    done = qk(*files, status=1)
    assert "device xxxxxxxx" in done.stdout and done.stdout.endswith("256 cases, 1 differ\n"), done
    (folder / "out.hex").write_text("\n".join(out[:-1]))
    fails("256 words and", *files)
    fails("no list of all cases", "gen", "mxfp4", "--level", "exhaustive")
    fails("exclude each other", "gen", "int8", "--decode", "--pairs", "int8")
    fails("line 2 has 3 words", "ver", "int8", text="3f800000 01\n3f800000 01 02\n")
    fails("operand 1 is no word", "ver", "fp8_e4m3fn", "--decode", text="100 00000000\n")
    fails("nothing was checked", "ver", "int8")
    fails("no hexadecimal word", "ver", "int8", text="3f800000 one\n")
    fails("line 2: '3f800000000000000' has more than 64 bits", "ver", "int8", text="3f800000 01\n3f800000000000000 01\n")
    passes(appended(lines, y[:, None], 8), "fp8_e4m3fn", "--decode", "--level", "exhaustive", "--seed", "3")  # the words of gen


def test_compared(folder):
    """`qk compare` reads float32 words and codes, of values and of blocks."""
    for name, codes in (("fp8_e5m2", None), ("mxfp4", encoded_mxfp4)):
        lines = [words for words in gen(name) if np.isfinite(floats([words])).all()]
        x = floats(lines)
        (folder / "x.hex").write_text("".join(" ".join(words) + "\n" for words in lines))
        if codes is None:
            y = np.clip(x, -57344, 57344).astype(ml_dtypes.float8_e5m2).view(np.uint8)
            y[::40] ^= 1
            text = "".join(f"{c:02x}\n" for c in y[:, 0])
        else:
            y = codes(x)
            y[::40, 0] ^= 8
            text = "".join("".join(f"{c:x}\n" for c in row[:32]) + f"{row[32]:02x}\n" for row in y)
        (folder / "y.hex").write_text(text)
        report = qk_json("compare", folder / "x.hex", folder / "y.hex", "--format", name, status=1)
        assert report["values"] == x.size and 0 < report["mismatches"] <= len(y[::40]), report["mismatches"]
    (folder / "y.hex").write_text("1\n2\n")
    fails("has 2 words; for", "compare", folder / "x.hex", folder / "y.hex", "--format", "mxfp4")


def decoder_of_floats(e_bits, m_bits, has_nan, **fault):
    """Returns a decoder of sign, exponent and mantissa with the bias of IEEE 754, and with the faults that are named."""
    bias = (1 << e_bits - 1) - 1 + fault.get("bias", 0)

    def decode(code):
        code = (code | fault.get("ones", 0)) & ~fault.get("zeros", 0)
        sign, e, m = code >> e_bits + m_bits & 1, code >> m_bits & (1 << e_bits) - 1, code & (1 << m_bits) - 1
        below = e == 0
        hidden = np.where(below & (fault.get("subnormal") != "hidden"), 0, 1 << m_bits)
        least = 0 if fault.get("subnormal") == "field" else 1
        v = (hidden + m) * 2.0 ** (np.where(below, least if fault.get("subnormal") != "hidden" else 0, e) - bias - m_bits)
        v = np.where(below, 0.0, v) if fault.get("subnormal") == "flushed" else v
        v = np.where(sign & (fault.get("signs", 1) == 1), -v, v)
        if fault.get("zero") == "unsigned":
            v = np.where(v == 0, 0.0, v)
        if has_nan and fault.get("nan") != "number":
            v = np.where(code & 0x7F == 0x7F, np.nan, v)
        return v

    return decode


DECODERS = (
    ("fp8_e4m3fn", dict(subnormal="flushed"), ["flushed to zero"]),
    ("fp8_e4m3fn", dict(subnormal="hidden"), ["with the hidden bit"]),
    ("fp8_e4m3fn", dict(subnormal="field", zero="unsigned"), ["binade too small", "sign of zero"]),
    ("fp8_e4m3fn", dict(bias=1, nan="number"), ["one too large", "NaN is read as the number"]),
    ("fp8_e4m3fn", dict(zeros=4, subnormal="flushed"), ["bit 2 of an element's code is stuck at 0", "flushed to zero"]),
    ("mxfp4", dict(subnormal="hidden"), ["with the hidden bit"]),
    ("mxfp4", dict(scale=1), ["power of two too high"]),
    ("mxfp4", dict(special="number", zero="unsigned"), ["scale code that means NaN", "sign of zero"]),
    ("mxfp4", dict(lanes="swapped"), ["neighbouring elements are swapped"]),
    ("mxfp4", dict(lane=(5, 8)), ["bit 3 of an element's code is stuck at 1", "the position in the block is 5"]),
    ("mxfp4", dict(scale_bit=16), ["bit 4 of the scale's code is stuck at 0"]),
    ("mxfp4", dict(results="flushed"), ["subnormal float32 are flushed"]),
)


def test_decoders_diagnosed(folder):
    """Faults of decoders are named, in what `compare --decode` reads: .hex and .npy."""
    for name, fault, sentences in DECODERS:
        lines = gen(name, "--decode", "--level", "2")
        w = np.array([[int(v, 16) for v in words] for words in lines])
        if name == "mxfp4":
            codes, scales = w[:, :32].copy(), w[:, 32:]
            if fault.get("lanes") == "swapped":
                codes = codes[:, np.arange(32) ^ 1]
            if "lane" in fault:
                codes[:, fault["lane"][0]] |= fault["lane"][1]
            scales = scales & ~fault.get("scale_bit", 0)
            with np.errstate(all="ignore"):
                y = (decoder_of_floats(2, 1, False, **fault)(codes) * 2.0 ** (scales - 127 + fault.get("scale", 0))).astype(np.float32)
            if fault.get("special") != "number":
                y[scales[:, 0] == 255] = np.nan
        else:
            y = decoder_of_floats(4, 3, True, **fault)(w).astype(np.float32)
        if fault.get("results") == "flushed":
            y = np.where(np.abs(y) < 2.0**-126, np.copysign(np.float32(0), y), y)
        (folder / "codes.hex").write_text("".join(" ".join(words) + "\n" for words in lines))
        (folder / "values.hex").write_text("".join(f"{v:08x}\n" for v in np.ascontiguousarray(y, np.float32).view(np.uint32).ravel()))
        np.save(folder / "codes.npy", w.astype(np.uint8))
        np.save(folder / "values.npy", y.astype(np.float32))
        reports = []
        for kind in ("hex", "npy"):
            reports.append(qk_json("compare", folder / f"codes.{kind}", folder / f"values.{kind}", "--format", name, "--decode", status=1))
        assert reports[0] == reports[1] and reports[0]["mismatches"] > 0 and reports[0]["unexplained"] == 0, (name, fault, reports[0])
        said = [k["sentence"] + " " + k["where"] for k in reports[0]["causes"]]
        for k in sentences:
            assert any(k in s for s in said + reports[0]["alternatives"]), (name, fault, said, reports[0]["alternatives"])
        assert len(said) == (1 if "lane" in fault else len(sentences)), (name, fault, said)
    right = [words[0] for words in gen("fp8_e4m3fn", "--decode")]
    (folder / "codes.hex").write_text("\n".join(right))
    y = np.array([int(v, 16) for v in right], np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.save(folder / "values.npy", y)
    qk("compare", folder / "codes.hex", folder / "values.npy", "--format", "fp8_e4m3fn", "--decode")
    np.save(folder / "values.npy", np.random.default_rng(1).standard_normal(256).astype(np.float32))
    noise = qk("compare", folder / "codes.hex", folder / "values.npy", "--format", "fp8_e4m3fn", "--decode", status=1)
    assert noise.stdout.startswith("no known mistake explains it"), noise
    fails("a decoder gives a value for each", "compare", folder / "codes.npy", folder / "values.npy", "--format", "mxfp4", "--decode")
    fails("is no code of 4 bits", "compare", folder / "codes.hex", folder / "values.npy", "--format", "fp4_e2m1", "--decode")


def test_narrow_inputs(folder):
    """Inputs of 16 bits as .hex, and codes of one byte each as .npy."""
    for kind, dtype in (("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        words = [w[0] for w in gen("fp8_e5m2", "--input", kind)]
        x = np.array([int(w, 16) for w in words], np.uint16).view(dtype)
        finite = np.isfinite(x.astype(np.float32))
        (folder / "x.hex").write_text("\n".join(w for w, good in zip(words, finite) if good))
        with np.errstate(all="ignore"):
            codes = np.clip(x[finite].astype(np.float32), -57344, 57344).astype(ml_dtypes.float8_e5m2).view(np.uint8)
        np.save(folder / "y.npy", codes)
        qk("compare", folder / "x.hex", folder / "y.npy", "--format", "fp8_e5m2", "--input", kind)
        fails("words of 8 digits (--input fp32)", "compare", folder / "x.hex", folder / "y.npy", "--format", "fp8_e5m2")


def test_random_words(folder):
    """A unit's own random words, as .npy and as text: the same bits; words that come one value late are named."""
    random = np.random.default_rng(4)
    x, words = random.standard_normal((64, 32)).astype(np.float32), random.integers(0, 1 << 32, (64, 32), dtype=np.uint32)
    np.save(folder / "x.npy", x)
    np.save(folder / "w.npy", words)
    np.save(folder / "late.npy", np.roll(words.ravel(), 1))
    (folder / "w.hex").write_text("// of the unit\n" + "".join(f"{w:08x}\n" for w in words.ravel()))
    stochastic = ["--format", "mxfp8_e5m2", "--rounding", "stochastic", "--random-words"]

    for name in ("w.npy", "w.hex", "late.npy"):
        qk("convert", "x.npy", f"{name}.out.npy", *stochastic, name, "--overwrite", cwd=folder)
    y = np.load(folder / "w.npy.out.npy")
    assert np.array_equal(y, np.load(folder / "w.hex.out.npy")) and (y != x).any()
    qk("compare", "x.npy", "w.npy.out.npy", *stochastic, "w.hex", cwd=folder)
    late = qk("compare", "x.npy", "late.npy.out.npy", *stochastic, "w.hex", cwd=folder, status=1)
    assert late.stdout.startswith("likely cause: its random words come one value late"), late
    (folder / "few.hex").write_text("01234567\n")
    for words_of, rounding, sentence in (("few.hex", "stochastic", "has 1 words"), ("w.npy", "half-even", "is for --rounding stochastic"), ("x.npy", "stochastic", "are uint32")):
        bad = qk("compare", "x.npy", "w.npy.out.npy", "--format", "mxfp8_e5m2", "--rounding", rounding, "--random-words", words_of, cwd=folder, status=2)
        assert sentence in bad.stderr, bad


def test_unknown_words(folder):
    """Stochastic rounding whose words nobody knows: right units pass, and each fault is told by what it does."""
    random = np.random.default_rng(8)
    n = 1 << 16
    x = random.standard_normal(n).astype(np.float32)
    np.save(folder / "x.npy", x)
    fair = random.integers(0, 1 << 32, n, dtype=np.uint64)
    state, lfsr = 1, []
    for _ in range(n):  # 10 bits, x^10 + x^7 + 1
        state = (state >> 1) ^ (0x240 if state & 1 else 0)
        lfsr.append(state << 22)
    biased = np.maximum(fair, random.integers(0, 1 << 32, n, dtype=np.uint64))
    units = (
        (fair, None),
        (np.zeros(n), "it truncates"),
        (fair >> 27 << 27, "have 5 bits"),
        (np.array(lfsr), "repeat after 1023"),
        (np.repeat(fair[: n // 8], 8), "8 neighbouring values share"),
        (biased, "are biased"),
    )
    for number_format in ("fp8_e5m2", "mxfp8_e4m3"):
        for words, sentence in units:
            np.save(folder / "w.npy", words.astype(np.uint32))
            common = ["--format", number_format, "--rounding", "stochastic", "--random-words"]
            qk("convert", folder / "x.npy", folder / "y.npy", *common, folder / "w.npy", "--overwrite")
            report = qk_json("compare", folder / "x.npy", folder / "y.npy", *common, "unknown", status=int(sentence is not None))
            assert report["plausible"] == (sentence is None), (number_format, sentence, report)
            if sentence:
                assert sentence in report["found"][0]["sentence"] and report["found"][0]["error_probability"] < 1e-6, (sentence, report)
        qk("convert", folder / "x.npy", folder / "y.npy", "--format", number_format, "--overwrite")
        done = qk("compare", folder / "x.npy", folder / "y.npy", *common, "unknown", status=1)
        assert done.stdout.startswith("it rounds half-even"), done
    # Where the words are known, the bits tell.
    n = 1 << 12
    np.save(folder / "x.npy", x[:n])
    fair = fair[:n]
    for rounding in ("stochastic", "stochastic-b", "stochastic-c"):
        known = ["--format", "fp8_e5m2", "--rounding", rounding, "--random-words"]
        for words, sentence in ((np.resize(fair[:127], n), "repeat after 127"), (fair | 1 << 31, "bit 31 of its random words is stuck at 1"), (np.roll(fair, 1), "come one value late")):
            np.save(folder / "w.npy", words.astype(np.uint32))
            np.save(folder / "right.npy", fair.astype(np.uint32))
            qk("convert", folder / "x.npy", folder / "y.npy", *known, folder / "w.npy", "--overwrite")
            told = qk("compare", folder / "x.npy", folder / "y.npy", *known, folder / "right.npy", status=1)
            assert sentence in told.stdout.splitlines()[0], (rounding, sentence, told.stdout[:300])


if __name__ == "__main__":
    evidence.main()
