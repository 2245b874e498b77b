#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The matrix units in docs/reference/numerics.md, "Devices", in Python with exact fractions: makes cases of every algorithm, each
device; a; b; c; scale_a; scale_b; d.

    python3 bench/dot_python.py > tests/data/dot_goldens.txt
"""
import random
from fractions import Fraction
from math import floor, trunc

FORMATS = {  # exponent bits, mantissa bits, bias, special values
    "f16": (5, 10, 15, "ieee"), "bf16": (8, 7, 127, "ieee"), "f32": (8, 23, 127, "ieee"), "tf32": (8, 23, 127, "ieee"),
    "e4m3": (4, 3, 7, "fn"), "e5m2": (5, 2, 15, "ieee"), "fp8": (4, 3, 8, "fnuz"), "bf8": (5, 2, 16, "fnuz"), "e2m1": (2, 1, 1, "none"),
    "ue4m3": (4, 3, 7, "fn"), "tf19": (8, 10, 127, "ieee"),
}
NAN, INF = "nan", "inf"


def log2_floor(x):
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def decode(name, code):
    """Returns (value, exponent); the value is a Fraction, or NAN, INF or -INF as text."""
    if name == "ue8m0":
        return (NAN, 0) if code == 255 else (Fraction(2) ** (code - 127), code - 127)
    e, m, bias, special = FORMATS[name]
    sign = -1 if code >> (e + m) & 1 and name != "ue4m3" else 1
    field, mantissa = code >> m & ((1 << e) - 1), code & ((1 << m) - 1)
    if name == "tf32":
        mantissa &= ~0x1FFF
    if special == "ieee" and field == (1 << e) - 1:
        return (NAN if mantissa else (INF if sign > 0 else "-inf")), 0
    if special == "fn" and field == (1 << e) - 1 and mantissa == (1 << m) - 1:
        return NAN, 0
    if special == "fnuz" and sign < 0 and field == 0 and mantissa == 0:
        return NAN, 0
    value = sign * (Fraction(mantissa, 1 << m) + (1 if field else 0)) * Fraction(2) ** (max(field, 1) - bias)
    return value, max(field, 1) - bias if value else -126


def special_sum(products, c):
    """Returns NAN or an infinity if the sum of all terms is one, else None."""
    terms = products + [c]
    if NAN in terms or (INF in terms and "-inf" in terms):
        return NAN
    return INF if INF in terms else "-inf" if "-inf" in terms else None


def product(a, b):
    if a == NAN or b == NAN or (a in (INF, "-inf") and b == 0) or (b in (INF, "-inf") and a == 0):
        return NAN
    if isinstance(a, str) or isinstance(b, str):
        negative = (a == "-inf" or (not isinstance(a, str) and a < 0)) != (b == "-inf" or (not isinstance(b, str) and b < 0))
        return "-inf" if negative else INF
    return a * b


def cut(x, e, how):
    return how(x / Fraction(2) ** e) * Fraction(2) ** e


def round_half_even(x):
    low = floor(x)
    rest = x - low
    return low + (1 if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low & 1) else 0)


def encode(name, x, how, negative_zero=False, fraction=None):
    """Returns the code of x rounded by `how`; NVIDIA's truncation overflows to infinity as well."""
    e, m, bias, _ = FORMATS[name]
    if x == NAN:
        return ((1 << e) - 1) << m | 1 << (m - 1)
    if isinstance(x, str):
        return (1 << (e + m) if x == "-inf" else 0) | ((1 << e) - 1) << m
    sign = (1 << (e + m)) if x < 0 or (x == 0 and negative_zero) else 0
    if x == 0:
        return sign
    f = m if fraction is None else fraction
    at = max(log2_floor(x), 1 - bias) - f
    n = how(abs(x) / Fraction(2) ** at)
    if n == 0:
        return sign if negative_zero is not None else 0
    y = n * Fraction(2) ** at
    top = log2_floor(y)
    if top > bias:
        return sign | ((1 << e) - 1) << m
    if top < 1 - bias:
        return sign | int(y / Fraction(2) ** (1 - bias - m))
    return sign | (top + bias) << m | int((y / Fraction(2) ** top - 1) * (1 << m))


def aligned(terms, bits, how=trunc):
    e = max(x[1] for x in terms)
    return sum((cut(x, e - bits, how) for x, _ in terms), Fraction(0)), e


def tensor_core(a, b, c, types, bits, group, fraction=None, scales=None):
    ta, tb, tc, td = types
    for i in range(0, len(a), group):
        x = [decode(ta, v) for v in a[i:i + group]]
        y = [decode(tb, v) for v in b[i:i + group]]
        z = decode(tc, c)
        sa, sb = scales or ((Fraction(1), 0), (Fraction(1), 0))
        if NAN in (sa[0], sb[0]):
            s = NAN
        else:
            s = special_sum([product(p[0], q[0]) for p, q in zip(x, y)], z[0])
        if s is None:
            s, _ = aligned([(p[0] * q[0] * sa[0] * sb[0], p[1] + q[1] + sa[1] + sb[1]) for p, q in zip(x, y)] + [z], bits)
        c, tc = encode(td, s, round_half_even if td == "f16" else trunc, None, fraction), td
        if td == "f32" and c == 0x80000000 or td == "f16" and c == 0x8000:
            c = 0
    return c


def block_fp4(a, b, c, scale_type, block, scale_a, scale_b):
    terms = [decode("f32", c)]
    scales = [(decode(scale_type, p), decode(scale_type, q)) for p, q in zip(scale_a, scale_b)]
    if terms[0][0] == NAN or any(NAN in (p[0], q[0]) for p, q in scales):
        return encode("f32", NAN, trunc)
    if isinstance(terms[0][0], str):
        return encode("f32", terms[0][0], trunc)
    for i in range(0, len(a), 16):
        s = sum(decode("e2m1", p)[0] * decode("e2m1", q)[0] for p, q in zip(a[i:i + 16], b[i:i + 16]))
        p, q = scales[i // block]
        terms.append((s * p[0] * q[0], p[1] + q[1]))
    s, _ = aligned(terms, 35)
    code = encode("f32", s, trunc, None)
    return 0 if code == 0x80000000 else code


def cdna3(a, b, c, types, group, fp8):
    for i in range(0, len(a), group):
        x = [decode(types[0], v) for v in a[i:i + group]]
        y = [decode(types[1], v) for v in b[i:i + group]]
        z = decode("f32", c)
        products = [product(p[0], q[0]) for p, q in zip(x, y)]
        s = special_sum(products, z[0])
        if s is None:
            s = special_sum([INF if p >= Fraction(2) ** 128 else "-inf" if p <= -Fraction(2) ** 128 else 0 for p in products], 0)
        negative_zero = False
        if s is None:
            terms = [(p, q[1] + r[1]) for p, q, r in zip(products, x, y)]
            if fp8:
                even, odd = aligned(terms[0::2], 24), aligned(terms[1::2], 24)
                e = max(even[1], odd[1])
                s = cut(even[0], e - 24, floor) + cut(odd[0], e - 24, floor)
            else:
                s, e = aligned(terms, 24)
            top = max(e, z[1])
            s = cut(s, top - 31, floor)
            if not fp8 or z[1] >= top - 25:
                s += cut(z[0], top - 24, floor)
        c = encode("f32", s, round_half_even, negative_zero)
    return c


# x86 without subnormals: a number is (value, is negative), which tells -0 from +0.

def number(name, code, flushed=False):
    value, _ = decode(name, code)
    e, m, _, _ = FORMATS[name]
    if flushed and not isinstance(value, str) and abs(value) < Fraction(2) ** -126:
        value = Fraction(0)
    return value, bool(code >> (e + m) & 1)


def times(x, y):
    return product(x[0], y[0]), x[1] != y[1]


def plus(x, y):
    """Rounds the sum half to even; what is below the smallest normal number then, exponents having no end, is zero of its sign."""
    s = special_sum([x[0]], y[0])
    if s is not None:
        return s, s == "-inf"
    v = x[0] + y[0]
    if v == 0:
        return v, x[1] and y[1]
    unit = Fraction(2) ** (log2_floor(v) - 23)
    r = round_half_even(abs(v) / unit) * unit
    if r >= Fraction(2) ** 128:
        return ("-inf" if v < 0 else INF), v < 0
    return (Fraction(0) if r < Fraction(2) ** -126 else r if v > 0 else -r), v < 0


def stored(x):
    return encode("f32", x[0], round_half_even, x[1])


def pairs(a, b, c, t, flushed):
    s = number("f32", c, True)
    for i in (1, 0):
        s = plus(times(number(t, a[i], flushed), number(t, b[i], flushed)), s)
    return stored(s)


def tiles(a, b, c, t, lanes, flushed, flushed_c):
    sums = [(Fraction(0), False)] * lanes
    for i, (x, y) in enumerate(zip(a, b)):
        sums[i % lanes] = plus(times(number(t, x, flushed), number(t, y, flushed)), sums[i % lanes])
    return stored(plus(number("f32", c, flushed_c), sums[0] if lanes == 1 else plus(*sums)))


def exact_tiles(a, b, c, ta, tb):
    terms = [times(number(ta, x), number(tb, y))[0] for x, y in zip(a, b)]
    s = special_sum(terms, Fraction(0))
    total = (s, s == "-inf") if s is not None else plus((sum(terms), sum(terms) < 0), (Fraction(0), False))
    return stored(plus(number("f32", c, True), total))


def outer(a, b, c):
    def rounded(x):
        return plus(x, (Fraction(0), x[1]))
    p, q = (rounded(times(number("bf16", x, True), number("bf16", y, True))) for x, y in zip(a, b))
    return stored(plus(number("f32", c, True), plus(p, q)))


# device: operand types, and the algorithm
DEVICES = {
    "nvidia.volta.mma.m8n8k4.f32.f16.f16.f32": ("f16", "f16", "f32", 4, lambda a, b, c: tensor_core(a, b, c, ("f16", "f16", "f32", "f32"), 23, 4)),
    "nvidia.turing.mma.m16n8k8.f16.f16.f16.f16": ("f16", "f16", "f16", 8, lambda a, b, c: tensor_core(a, b, c, ("f16", "f16", "f16", "f16"), 24, 8)),
    "nvidia.ampere.mma.m16n8k16.f32.bf16.bf16.f32": ("bf16", "bf16", "f32", 16, lambda a, b, c: tensor_core(a, b, c, ("bf16", "bf16", "f32", "f32"), 24, 8)),
    "nvidia.ampere.mma.m16n8k8.f32.tf32.tf32.f32": ("tf32", "tf32", "f32", 8, lambda a, b, c: tensor_core(a, b, c, ("tf32", "tf32", "f32", "f32"), 24, 4)),
    "nvidia.ada_lovelace.mma.m16n8k32.f32.e4m3.e5m2.f32":
        ("e4m3", "e5m2", "f32", 32, lambda a, b, c: tensor_core(a, b, c, ("e4m3", "e5m2", "f32", "f32"), 13, 16, 13)),
    "nvidia.hopper.mma.m16n8k16.f32.f16.f16.f32": ("f16", "f16", "f32", 16, lambda a, b, c: tensor_core(a, b, c, ("f16", "f16", "f32", "f32"), 25, 16)),
    "nvidia.hopper.wgmma.m64n8k32.f16.e4m3.e5m2": ("e4m3", "e5m2", "f16", 32, lambda a, b, c: tensor_core(a, b, c, ("e4m3", "e5m2", "f16", "f16"), 13, 32)),
    "amd.cdna3.mfma.f32_16x16x16_bf16": ("bf16", "bf16", "f32", 16, lambda a, b, c: cdna3(a, b, c, ("bf16", "bf16"), 8, False)),
    "amd.cdna3.mfma.f32_16x16x8_xf32": ("tf32", "tf32", "f32", 8, lambda a, b, c: cdna3(a, b, c, ("tf32", "tf32"), 4, False)),
    "amd.cdna3.mfma.f32_16x16x32_fp8_bf8": ("fp8", "bf8", "f32", 32, lambda a, b, c: cdna3(a, b, c, ("fp8", "bf8"), 16, True)),
}
X86 = {
    "x86.avx512_bf16.vdpbf16ps": ("bf16", "bf16", 2, lambda a, b, c: pairs(a, b, c, "bf16", True)),
    "x86.avx10_2.vdpphps": ("f16", "f16", 2, lambda a, b, c: pairs(a, b, c, "f16", False)),
    "x86.amx.tdpbf16ps": ("bf16", "bf16", 32, lambda a, b, c: tiles(a, b, c, "bf16", 2, True, True)),
    "x86.amx_fp16.tdpfp16ps": ("f16", "f16", 32, lambda a, b, c: tiles(a, b, c, "f16", 2, False, True)),
    "x86.amx_tf32.tmmultf32ps": ("tf19", "tf19", 16, lambda a, b, c: tiles(a, b, c, "tf19", 1, False, False)),
    "x86.amx_fp8.tdpbf8ps": ("e5m2", "e5m2", 64, lambda a, b, c: exact_tiles(a, b, c, "e5m2", "e5m2")),
    "x86.amx_fp8.tdphbf8ps": ("e4m3", "e5m2", 64, lambda a, b, c: exact_tiles(a, b, c, "e4m3", "e5m2")),
    "x86.ace.top2bf16ps": ("bf16", "bf16", 2, lambda a, b, c: outer(a, b, c)),
}
SCALED = {
    "nvidia.rtx_blackwell.mma_block_scale.m16n8k32.block32.f32.e4m3.e5m2.f32.ue8m0": ("e4m3", "e5m2", "ue8m0", 32, 32),
    "nvidia.rtx_blackwell.mma_block_scale.m16n8k64.block16.f32.e2m1.e2m1.f32.ue4m3": ("e2m1", "e2m1", "ue4m3", 64, 16),
    "nvidia.rtx_blackwell.mma_block_scale.m16n8k64.block32.f32.e2m1.e2m1.f32.ue8m0": ("e2m1", "e2m1", "ue8m0", 64, 32),
}


def codes(rng, name, n, mood):
    e, m, _, _ = FORMATS[name]
    out = []
    for _ in range(n):
        field = {0: rng.randrange(1 << e), 1: (1 << (e - 1)) - 1 - rng.randrange(2), 2: rng.choice([(1 << e) - 2, (1 << (e - 1)) - 1, 1]), 3: rng.randrange(2)}[mood]
        out.append(rng.randrange(2) << (e + m) | max(field, 0) << m | rng.randrange(1 << m))
    if mood == 2 and n > 1:
        out[1] = out[0] ^ 1 << (e + m)
    return out


def near_least(rng, name, n):
    """Codes whose products are near 2^-126 and 2^-150, where float32's exponents are to be had."""
    e, m, _, _ = FORMATS[name]
    if e != 8:
        return codes(rng, name, n, 3)
    return [rng.randrange(2) << (e + m) | (rng.choice([64, 52]) if n > 1 else 1) << m | rng.choice([0, 0, 1, 1 << (m - 1)]) for _ in range(n)]


def golden(count):
    rng = random.Random(7)
    line = lambda v: ",".join("%x" % x for x in v)
    for name, (ta, tb, tc, k, unit) in DEVICES.items():
        for i in range(count):
            a, b, c = codes(rng, ta, k, i % 4), codes(rng, tb, k, i % 4), codes(rng, tc, 1, (i + i // 4) % 4)[0]
            print(name, line(a), line(b), "%x" % c, "", "", "%x" % unit(a, b, c), sep=";")
    for name, (ta, tb, ts, k, block) in SCALED.items():
        for i in range(count):
            a, b, c = codes(rng, ta, k, i % 4), codes(rng, tb, k, i % 4), codes(rng, "f32", 1, 1)[0]
            scale = lambda: [rng.randrange(256) if i % 4 == 0 else (120 if ts == "ue8m0" else 0x38) + rng.randrange(16) for _ in range(k // block)]
            sa, sb = scale(), scale()
            if ta == "e2m1":
                d = block_fp4(a, b, c, ts, block, sa, sb)
            else:
                d = tensor_core(a, b, c, (ta, tb, "f32", "f32"), 25, 32, None, (decode(ts, sa[0]), decode(ts, sb[0])))
            print(name, line(a), line(b), "%x" % c, line(sa), line(sb), "%x" % d, sep=";")
    for name, (ta, tb, k, unit) in X86.items():
        for i in range(count):
            draw = near_least if i % 5 == 4 else lambda rng, name, n: codes(rng, name, n, i % 5)
            a, b, c = draw(rng, ta, k), draw(rng, tb, k), draw(rng, "f32", 1)[0]
            print(name, line(a), line(b), "%x" % c, "", "", "%x" % unit(a, b, c), sep=";")


if __name__ == "__main__":
    golden(16)
