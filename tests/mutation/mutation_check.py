# SPDX-License-Identifier: Apache-2.0
"""Plants one defect at a time in a copy of the kernels or the codec and reports which test cases of tests/core catch it: of codec_test.cpp
for the codec, product_test.cpp for products, stored_forms_test.cpp for memory of other kinds, kernel_forms_test.cpp and decode_values_test.cpp for 16-bit memory, kernel_test.cpp and kernel_scales_test.cpp for others.

usage: mutation_check.py SOURCE_FOLDER COMPILER [--jobs N] [--only TEXT] [--markdown FILE] [--look]
Exit status 1 when a defect survives, does not compile, or no longer applies to the source.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# (what it stands for, file below include/qk; text, replacement)
DEFECTS = [
    ("half-even ties go to the odd code", "steps/general.hpp", "((rest == half) & odd)", "((rest == half) & ~odd)"),
    ("half-away is half-up", "steps/general.hpp", "up = rest >= half; break;", "up = (rest > half) | ((rest == half) & ~negative); break;"),
    ("toward zero looks at the sign", "steps/general.hpp", "up = (rest > zero) & negative; break;", "up = (rest > zero) & ~negative; break;"),
    ("stochastic bits of the wrong element", "kernels/drivers/general.hpp", "g.position + j * g.element_stride, g.lane_stride", "g.position + j, g.lane_stride"),
    ("integers reach one code too high", "formats/integer/step.hpp", "high(static_cast<float>(r.highest - zero))", "high(static_cast<float>(r.highest + 1 - zero))"),
    ("integers multiply where they must divide", "formats/integer/step.hpp", ": quotient<Arch>(finite, scale)", ": opaque<Arch>(finite * quotient<Arch>(vf<Arch>(1.0f), scale))"),
    ("NaN in an integer is treated as Inf", "formats/integer/step.hpp", "bits == bits, rules.nan)", "bits == bits, rules.infinity)"),
    ("the last element of a tail is forgotten", "kernels/drivers/general.hpp", "store_some<Arch>(y + i, 1, n - i,", "store_some<Arch>(y + i, 1, n - i - 1,"),
    ("rows of another axis", "kernels/drivers/general.hpp", "const std::size_t at = (o * axis.length + begin) * axis.inner;", "const std::size_t at = (o + begin) * axis.inner;"),
    ("the short last block loses an element", "kernels/drivers/general.hpp", "axis.length, 1, axis.outer, rest, at}", "axis.length, 1, axis.outer, rest - 1, at}"),
    ("a block float does not saturate", "formats/block_float/step.hpp", "min(round(bits, b, random), limit(b, bits < V(0)))", "round(bits, b, random)"),
    ("a pair never shifts", "formats/block_float/step.hpp", "V(0)), V(largest_shift))", "V(0)), V(0))"),
    ("MX scales are one binade too small", "formats/microscaling/step.hpp", "exponent - V(127 + top_exponent)", "exponent - V(128 + top_exponent)"),
    ("Inf does not make its block NaN", "steps/blocks.hpp", "select(worst >= V(infinity_bits), V(nan_bits), y); break;", "select(worst > V(infinity_bits), V(nan_bits), y); break;"),
    ("zeros lose their sign", "steps/blocks.hpp", "case zero_sign::kept: break;", "case zero_sign::kept: zero = V(0); break;"),
    ("fast form: integers are not clamped", "formats/integer/fast.hpp", "min(max(as_int<Arch>(t + vf<Arch>(middle)), by.lowest), by.highest)", "as_int<Arch>(t + vf<Arch>(middle))"),
    ("fast form: every integer's quotient is a product", "steps/fast.hpp", "((near > V(32)) | (near == V(16)))", "(near >= V(0))"),
    ("fast form: the reciprocal is one float", "steps/fast.hpp", "fma<Arch>(x, r.high, x * r.low)", "x * r.high"),
    ("fast form: ties of truncated floats go up", "formats/floating/fast.hpp", "bits + below_half + ((bits >> shift) & one);", "bits + below_half + one;"),
    ("fast form: floats pass the largest value", "formats/floating/fast.hpp", "clamp_magnitude<Arch>(to_grid<Arch>(x, least, magic), largest)", "to_grid<Arch>(x, least, magic)"),
    ("fast form: Inf and NaN reach it", "kernels/drivers/rows.hpp", "any(most > V(p.limit))", "any(most > V(0x7fffffff))"),
    ("streamed lines: Inf and NaN reach the fast form", "kernels/drivers/rows.hpp", "any(most > vi<Arch>(scale_at(i).limit))", "any(most > vi<Arch>(0x7fffffff))"),
    ("fast form: the last element of a row is forgotten", "kernels/drivers/rows.hpp", "store_first<Arch>(y + i, count,", "store_first<Arch>(y + i, count - 1,"),
    ("fast form: a tile of columns is divided as its first one", "kernels/drivers/columns.hpp", "hold_to_least(scales.product);", "std::fill(scales.product + t, scales.product + end, scales.product[t]);"),
    ("fast form: a tile of columns has its first one's limit", "kernels/drivers/columns.hpp", "hold_to_least(scales.limit);", "std::fill(scales.limit + t, scales.limit + end, scales.limit[t]);"),
    ("fast form: the rest of short rows is forgotten", "kernels/drivers/columns.hpp", "if (rest != 0) run_panel", "if (rest > 1) run_panel"),
    ("fast form: subnormal blocks of microexponents count as zeros", "kernels/drivers/block_rows.hpp", "serves = serves && !holds_subnormal_block<Arch>(p, shape.each(), my_amax);", "{}"),
    ("fast form: what is declined of gathered blocks is overwritten", "kernels/drivers/block_rows.hpp", "p.length = 0;", ""),
    ("fast form: the last columns of blocks are forgotten", "kernels/drivers/block_columns.hpp", "Width == 1 ? i < p.columns :", "Width == 1 ? i + w <= p.columns :"),
    ("fast form: a panel takes the maxima of more rows than it has", "kernels/drivers/block_columns.hpp", "left >= rows ||", "left > 0 ||"),
    ("fast form: columns take the random bits of their first row", "kernels/drivers/block_columns.hpp", "return position + j * stride + i;", "return position + i;"),
    ("fast form: two's complement ends at its positive end", "steps/blocks.hpp", "(further & (u >> 31))", "vi<Arch>(0)"),
    ("fast form: half-even with other signs of zeros has steps twice as long", "steps/blocks.hpp", "V(23 << 23) - step_below", "V(24 << 23) - step_below"),
    ("fast form: zeros keep the sign of a lost quotient", "steps/counting.hpp", "lost(rule == zero_sign::underflow_positive ? -1 : 0)", "lost(-1)"),
    ("codes in other roundings forget their binade", "codec/encode/fast_blocks.hpp", "((c.binade - kernels::as_int<Arch>(b.base)) >> (23 - form.mantissa_bits))", "kernels::vi<Arch>(0)"),
    ("blocks of zeros have the code of their elements' largest exponent", "codec/encode/fast_blocks.hpp", "if (element_max_exponent(f) < 0) return 0;", ""),
    ("blocks of zeros have shifts", "codec/encode/fast_blocks.hpp", "if (__builtin_expect(zeros == 0, 1)) return;", "if (zeros < 0x10000u) return;"),
    ("columns: a pair's shift is its block's", "codec/encode/fast_blocks.hpp", "(amax >> 23) - (own >> 23)", "(amax >> 23) - (amax >> 23)"),
    ("columns: a row of codes lies where the first one does", "codec/encode/fast_columns.hpp", "return element + j * stride + i;", "return element + i;"),
    ("what fills a short block up is what was there", "codec/encode/blocks.hpp", "divide_up(piece.count, coder.packed.block_size) * g.size(), 0.0f);", "piece.count, 0.0f);"),
    ("gathered rows take the random bits of the first one", "codec/encode/blocks.hpp", "kernels::random_source(how), piece.at,", "kernels::random_source(how), 0,"),
    ("codes that start within a byte are read from its first bit", "memory/narrow_codes.hpp", "V(width) + V(from)", "V(width)"),
    ("columns: rows share the factors of the block's first", "codec/decode/blocks.hpp", "decoder.factors(p, a, o, l, i, n, factor);\n                    if", "decoder.factors(p, a, o, 0, i, n, factor);\n                    if"),
    ("16-bit floats: ties of subnormals go down", "lanes/code_lanes.hpp", "fraction + (whole & one) > half", "fraction > half"),
    ("subnormal maxima have no exponent", "formats/microscaling/step.hpp", "const V amax = normalised<Arch>(select(", "const V amax = (select("),
    ("to odd: odd codes go on to even ones", "steps/general.hpp", "case rounding::to_odd: up = (rest > zero) & ~odd;", "case rounding::to_odd: up = (rest > zero) & odd;"),
    ("P3109: SatPropagate saturates infinities", "formats/floating/step.hpp", "r.infinity = how.overflow == overflow_rule::propagate && has_infinity(f) ? infinity_bits : beyond;", "r.infinity = beyond;"),
    ("tables: the rule `lower` goes up", "formats/table/step.hpp", "case table_ties::lower: break;", "case table_ties::lower: tie_goes_up = true; break;"),
    ("searched scales: none above the rule's is tried", "kernels/drivers/scale_shortlist.hpp", "going = going & (now < load<Arch>(end.at));", "going = going & (now < load<Arch>(first.at));"),
    ("planes: longer ones are taken to their ends", "memory/planes.hpp", "p.scales.first(l.scales.bytes())", "p.scales"),
    ("scalar lanes: right shifts lose the sign", "lanes/scalar.hpp", "operator>>(batch a, batch n) noexcept { return T(a.data >> n.data); }", "operator>>(batch a, batch n) noexcept { return T(wrapping(a.data) >> n.data); }"),
    ("a row's second piece is decoded under the scales of its first", "codec/decode/elements.hpp", "s.fill(p, a, o, l, 0, n);\n            s.multiply(to, done)", "s.fill(p, a, o, 0, 0, n);\n            s.multiply(to, done)"),
    ("a row's codes begin at the first column's scale", "codec/encode/short_planes.hpp", "each_row ? scale + first + k : scale + l", "each_row ? scale + first + k : scale + k"),
    ("the last codes of a row across the axis are read a code too early", "codec/decode/fast_values.hpp", "groups(n - count, bit_of(n - count))", "groups(n - count, bit_of(n - count - 1))"),
    ("stored: each row of a block in two dimensions has scales of its own", "parameters.hpp", "(o / block_rows * ((a.length", "(o * ((a.length"),
    ("stored: scales in 16 bits are a tile's first one", "codec/layout/scales_of_tile.hpp", "own_scale_ + end, p.scale[entry]);", "own_scale_ + end, p.scale[at]);"),
    ("stored: zero points in bytes are the first one", "kernels/scaled_pieces.hpp", "p.zero_point[p.zero_point.empty() ? 0 : entry + k]", "p.zero_point[0]"),
    ("stored: rows with a pitch run on into the gap", "memory/values.hpp", "left = columns - i % columns", "left = pitch - i % columns"),
    ("stored: random bits are those of the piece", "kernels/scaled_pieces.hpp", "kernel(from, to, s, from_element(how, s.first));", "kernel(from, to, s, how);"),
    ("stored: columns take the random bits of their first row", "kernels/scaled_pieces.hpp", "first + j * a.inner, n, words + j * n);", "first, n, words + j * n);"),
    ("stored: gradients of all blocks go to a piece's first", "./backward.hpp", "total.scale : by.scale[piece.entry + entry]", "total.scale : by.scale[piece.entry]"),
    ("stored: vectors of a tile have the scale of its first", "formats/codes/groups.hpp", "after[k] = k * w >> shift;", "after[k] = 0 * (k * w >> shift);"),
    ("stored: the first scale of a piece begins there", "formats/codes/groups.hpp", "begun = l % p.group / at.values", "begun = l % p.group * 0"),
    ("runs' divisors always have a product", "formats/codes/groups.hpp", "select(fast, kernels::as_int<Arch>(r.high), nan)", "kernels::as_int<Arch>(r.high)"),
    ("stored: all runs have the zero point of the first", "formats/codes/groups.hpp", "zero[k] = static_cast<std::int32_t>(z[first + k]) + plus;", "zero[k] = static_cast<std::int32_t>(z[first]) + plus;"),
    ("stored: factors of float16 do not fit float32", "formats/codes/groups.hpp", "return !any(most >= V(kernels::infinity_bits));", "return true;"),
    ("stored: codes of 6 bits have their mantissa a bit too high", "codec/decode/half_values.hpp", "down = _mm_cvtsi32_si128(m);", "down = _mm_cvtsi32_si128(m - 1);"),
    ("stored: what is decoded as float16 lacks a power of two", "codec/decode/half_values.hpp", "exact_power(15 - f.bias)", "exact_power(14 - f.bias)"),
    ("stored: vectors of a group of 32 have the factor of the first", "codec/decode/fast_values.hpp", "v * factor(k / w), streaming); });\n    }\n    return i;", "v * factor(0), streaming); });\n    }\n    return i;"),
    ("stored: whole numbers of 8 bits are taken for those of 4", "codec/decode/fast_values.hpp", "values.up == 32 - 4", "values.up == 32 - 8"),
    ("groups of blocks have the factors of the first group", "codec/decode/fast_blocks.hpp", "factor_ + g % factors_together * w", "factor_ + 0 * g"),
    ("registers: the second half of a group has the factor of the first", "codec/decode/registers.hpp", "v * factor[k / 16]", "v * factor[0]"),
    ("products: the tree joins neighbours", "product/sums.hpp", "(s[0] + s[2]) + (s[1] + s[3])", "(s[0] + s[1]) + (s[2] + s[3])"),
    ("products: the last weight of a row is forgotten", "product/sums.hpp", "n - k < width ? n - k : width;", "n - k < width ? n - k - 1 : width;"),
    ("products: x is put into another order than the weights", "product/nibbles.hpp", "_mm256_fmadd_ps(of_x[m][0], even, s[r][m][0])", "_mm256_fmadd_ps(of_x[m][1], even, s[r][m][0])"),
    ("products: the second half of a group has the factor of the first", "product/floats.hpp", "const std::size_t half = k < 16 ? 0 : 1;", "const std::size_t half = 0 * k;"),
    ("products: factors take a power of two that is beyond a float", "product/floats.hpp", "if (any(largest > V(0x7f7fffff))) return false;", "if (any(largest < V(0))) return false;"),
    ("products: four vectors are the first one four times", "product/floats.hpp", "kernels::load<Arch>(x + m * x_stride + k)", "kernels::load<Arch>(x + 0 * m * x_stride + k)"),
    ("products: chains of few vectors take the first one's value", "product/chains.hpp", "kernels::vf<Arch>(of[m][k])", "kernels::vf<Arch>(of[0][k])"),
    ("products: vectors that come rounded are the first one", "product/integers.hpp", "x.q.data() + m * stride + k", "x.q.data() + 0 * m * stride + k"),
    ("products: scales across rows lose their zero points", "product/rows.hpp", "value_of(format_, code) - own.zero_point)", "value_of(format_, code))"),
    ("products: a long row meets the first piece of x again", "product/walk.hpp", "one_piece_ = n == whole;", "one_piece_ = true;"),
    ("products: the bias is that of a block's first rows", "product/ends.hpp", "s = s + o.bias[of];", "s = s + o.bias[r];"),
    ("products: vectors behind the sixty-fourth are written over the first", "product/ends.hpp", "chosen == nullptr ? first_vector_ + m : chosen->to", "chosen == nullptr ? m : chosen->to"),
    ("products: pieces of rows overlap", "product/pieces.hpp", "? last : first + (i + 1) * size", "? last : first + (i + 1) * size + 1"),
    ("products: rows of a cache are neighbours whatever their step", "product/ends.hpp", "c_.w.first_row + first_of_expert_ + r * c_.w.row_step", "c_.w.first_row + first_of_expert_ + r"),
    ("products: the factors of a head are those of the first one", "product/ends.hpp", "k += c_.w.first_column;", ""),
    ("products: an expert's scale is that of the first", "product/ends.hpp", "c_.experts->scale[chosen[i].expert]", "c_.experts->scale[0]"),
    ("products: the second page of a cache begins at 0", "product/weighted.hpp", "if (c_.options.begin.empty()) return;", "return;"),
    ("products: a short last tile of a cache's columns is left out", "product/weighted.hpp", "for (; c < columns_; c += w)", "for (; c + w <= columns_; c += w)"),
    ("products: x is rounded in pieces that begin at a row's rest", "product/ends.hpp", "std::size_t at = k / piece * piece;", "std::size_t at = k;"),
    ("products: gelu_tanh has a shorter constant", "product/activation.hpp", "0x1.9884533d43651p0", "0x1.98845p0"),
    ("products: unsigned bytes keep their offset", "product/integers.hpp", "adds_more = !Zero && Kind != integer_kind::signed_bytes;", "adds_more = !Zero && Kind != integer_kind::bytes && Kind != integer_kind::signed_bytes;"),
    ("products: whole numbers of a half block have the other's factor", "product/integers.hpp", "const std::size_t half = i < 2 ? 0 : factors - 1;", "const std::size_t half = i < 2 ? factors - 1 : 0;"),
    ("products: whole numbers of x beside the middle of two", "product/integers.hpp", "!any(farthest > V(std::bit_cast<std::int32_t>(near)))", "!any(farthest > V(std::bit_cast<std::int32_t>(1.0f)))"),
    ("products: NaN in x counts as a zero", "product/integers.hpp", "finite ? s[b] * unit : std::numeric_limits<float>::quiet_NaN();", "finite ? s[b] * unit : 0.0f;"),
    ("values: an Inf that is one code is a NaN", "formats/codes/unpack.hpp", "has_lone_infinity(f) ? special", "!has_lone_infinity(f) ? special"),
    ("values: an Inf that is one code has its neighbour's bits", "formats/floating/codes.hpp", "(code & magnitude) == special, V(", "(code & magnitude) > special, V("),
    ("AVX-512 values: codes from 64 on are looked up below", "codec/decode/word_values.hpp", "_mm512_set1_epi16(64)", "_mm512_set1_epi16(32)"),
    ("AVX-512 values: tables lose the lower halves of numbers", "codec/decode/word_values.hpp", "_mm512_set1_epi32(0xffff)) == 0", "_mm512_set1_epi32(0)) == 0"),
    ("AVX-512 products: x is put into another order than the codes of 4 bits", "product/nibbles.hpp", "_mm512_setr_epi32(0, 8, 2, 10,", "_mm512_setr_epi32(0, 8, 10, 2,"),
    ("AVX-512 products: looked-up bytes lose their sign", "product/permuted.hpp", "if constexpr (!Narrow) b =", "if constexpr (Narrow) b ="),
    ("AVX-512 products: codes that begin within a byte are read from its start", "product/permuted.hpp", "number_at(i / 8 * 8) * width % 8", "number_at(i / 8 * 8) * 0"),
    ("AVX-512 products: an odd last group of looked-up bytes is forgotten", "product/permuted.hpp", "if (g < p.groups) add(", "if (g > p.groups) add("),
    ("AVX-512 products: whole numbers forget an odd pair of blocks", "product/integers.hpp", "if (pairs % 2 != 0) add(", "if (pairs % 2 > 1) add("),
    ("AVX-512 products: whole numbers of a second pair have the first one's factors", "product/integers.hpp", "_mm512_extractf32x8_ps(by, 1)", "_mm512_extractf32x8_ps(by, 0)"),
    ("AVX-512 products: odd blocks of many vectors are those before them", "product/panels.hpp", "const __m512 scale = _mm512_load_ps(x.scale + b * lanes);", "const __m512 scale = _mm512_load_ps(x.scale + (b - parity) * lanes);"),
    ("AVX-512 products: the last of many vectors are left out", "product/panels.hpp", "std::min(lanes, c_.x.count - m)", "std::min(lanes, (c_.x.count - m) / 2 * 2)"),
]


def runs_here(what):
    """Is false for defects in forms that this processor cannot run."""
    if not what.startswith("AVX-512"):
        return True
    info = pathlib.Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.exists() else []
    return all(flag in flags for flag in ("avx512dq", "avx512vl", "avx512bw", "avx512_vnni", "avx512vbmi"))


def failed_cases(output):
    return sorted(set(re.findall(r"^TEST CASE:  (.*)$", output, re.MULTILINE)))


def path_of(file):
    return "include/qk/" + file


def check(defect, source, compiler, flags):
    what, file, old, new = defect
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        shutil.copytree(source / "include", copy / "include")
        path = copy / path_of(file)
        text = path.read_text()
        if old not in text:
            return what, "DOES NOT APPLY: the source has changed"
        path.write_text(text.replace(old, new, 1))
        program = copy / "kernel_test"
        if what.startswith("registers:"):
            names = ["../consumer/programs/registers"]
        elif what.startswith("stored:"):
            names = ["stored_forms_test"]
        elif what.startswith("searched scales:"):
            names = ["searched_scales_test"]
        elif what.removeprefix("AVX-512 ").startswith("values:"):
            names = ["decode_values_test"]
        elif file.endswith("scalar.hpp"):
            names, flags = ["lanes_test"], [*flags, "-DQK_SCALAR"]
        elif file.startswith(("codec/", "memory/", "formats/codes/")) or file.endswith("codes.hpp"):
            names = ["codec_test"]
        elif file.startswith("product/"):
            names = ["product_test", "product_attention_test"]
            if not what.startswith("AVX-512"):  # forms that AVX-512 replaces are tried on its processors, too
                flags = [*flags, "-mno-avx512f"]
        elif file.endswith("code_lanes.hpp"):
            names = ["kernel_forms_test", "decode_values_test"]
        else:
            names = ["kernel_test", "kernel_scales_test"]
        tests = [str(source / "tests" / name) for name in (*(f"core/{name}.cpp" for name in names), *(["doctest_main.cpp"] if "test" in names[0] else []))]
        built = subprocess.run([compiler, "-std=c++20", "-O1", *flags, f"-I{copy}/include", '-DQK_TEST_ISA="mutant"', "-DQK_TEST_SAMPLED=1", *tests, "-o", str(program)],
                               stderr=subprocess.DEVNULL, check=False)
        if built.returncode != 0:
            return what, "DOES NOT COMPILE"
        clean = {name: value for name, value in os.environ.items() if name != "QK_EVIDENCE"}  # what a defect does is no evidence
        run = subprocess.run([str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=900, check=False, env=clean)
        return what, [] if run.returncode == 0 else failed_cases(run.stdout) or ["crashed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("compiler")
    parser.add_argument("--flags", default="-march=native")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="defects whose description has this text")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--look", action="store_true", help="only look whether every defect still applies to the source: it stands there once")
    options = parser.parse_args()
    if options.look:
        stale = [what for what, file, old, _ in DEFECTS if (options.source / path_of(file)).read_text().count(old) != 1]
        print("\n".join(f"{what}: DOES NOT APPLY: the source has changed" for what in stale) or f"{len(DEFECTS)} defects apply")
        return 1 if stale else 0
    rows = ["| planted defect | caught by |", "|---|---|"]
    caught = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for what, cases in pool.map(lambda d: check(d, options.source, options.compiler, options.flags.split()), [d for d in DEFECTS if options.only in d[0] and runs_here(d[0])]):
            verdict = cases if isinstance(cases, str) else "; ".join(cases) or "SURVIVED"
            caught += bool(cases) and not isinstance(cases, str)
            print(f"{what}: {verdict}", flush=True)
            rows.append(f"| {what} | {verdict} |")
    defects = len(rows) - 2
    print(f"{defects} defects, {caught} caught")
    if options.markdown:
        options.markdown.write_text("\n".join(rows) + "\n")
    return 0 if caught == defects else 1


if __name__ == "__main__":
    sys.exit(main())
