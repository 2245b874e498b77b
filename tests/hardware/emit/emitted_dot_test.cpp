// SPDX-License-Identifier: Apache-2.0
// The emitted C of units that multiply and add equals qk::dot's kernels, which other tests hold against the oracle: ten devices and some
// accumulators, and with QK_TEST_WHOLE every device of the catalogue on 10^5 cases. Its functions in SystemVerilog and Python come from the
// same circuits; tests/tool/emitted.py runs them.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <set>

#include "cases.hpp"
#include "dot.hpp"
#include "emitted_library.hpp"
#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/parse.hpp"

namespace {

using namespace qk;
using emitted_case = void (*)(const std::uint64_t*, std::uint64_t, std::uint64_t*);

std::uint64_t low_bits(int width) { return width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1; }

/// Returns a code; by `kind` ordinary numbers, any bits, large among small, subnormal, of many magnitudes, sums that cancel.
std::uint64_t made_code(const format& f, int width, std::size_t kind, std::mt19937_64& random) {
    const std::uint64_t any = random();
    const floating* g = number_float(f);
    if (g == nullptr) g = element_float(f);
    if (g == nullptr || width < 8 || kind % 7 == 1) return any & low_bits(width);
    const int m = g->mantissa_bits, e = g->exponent_bits;
    const std::uint64_t sign = (any >> 63) << (e + m), mantissa = any >> 3 & low_bits(m), middle = low_bits(e - 1);
    const auto with = [&](std::uint64_t field, std::uint64_t low) { return (sign | (field & low_bits(e)) << m | low) & low_bits(width); };
    switch (kind % 7) {
        case 0: return with(middle - (any & 3), mantissa);
        case 2: return with((any >> 5 & 28) == 0 ? low_bits(e) - 1 : middle - (any & 1), mantissa);
        case 3: return with(any & 1, mantissa);
        case 4: return with(middle - (any >> 40) % 30 % middle, mantissa & any >> 20);
        case 5:
            return (any & 0xf00) == 0    ? any >> 20 & low_bits(width)
                   : (any & 0xf000) == 0 ? sign
                                         : with(middle + (any >> 40) % 12 - 8, mantissa);
        default: return with(middle, mantissa >> (m - 1) << (m - 1));
    }
}

struct operand {
    std::vector<std::uint64_t> codes, scales;
    std::vector<std::byte> elements, packed_scales;
    packed_matrix matrix() const { return {.planes = {elements, packed_scales, {}, {}}, .zero_point = 0}; }
};
operand made_operand(const format& f, std::size_t k, std::size_t kind, std::mt19937_64& random) {
    const packed_layout l = layout_of(f, along_axis{1, k, 1});
    operand o;
    o.codes.resize(k), o.scales.resize(l.scales.count);
    for (std::uint64_t& c : o.codes) c = made_code(f, l.elements.bits, kind, random);
    for (std::uint64_t& s : o.scales) {
        const std::uint64_t any = random(), middle = has_floating_scales(f) ? 0x38 : std::uint64_t{1} << (l.scales.bits - 1);
        s = any % 16 == 0 ? any >> 8 & low_bits(l.scales.bits) : middle - 4 + (any >> 8) % 8;
    }
    const auto packed = [](const std::vector<std::uint64_t>& codes, int width) {
        std::vector<std::byte> p((codes.size() * static_cast<std::size_t>(width) + 7) / 8);
        for (std::size_t i = 0; i < codes.size(); ++i) {
            if (width == 64) std::memcpy(p.data() + 8 * i, &codes[i], 8);
            else put_code(p, i, width, static_cast<std::uint32_t>(codes[i]));
        }
        return p;
    };
    o.elements = packed(o.codes, l.elements.bits);
    if (!o.scales.empty()) o.packed_scales = packed(o.scales, l.scales.bits);
    return o;
}

/// Compares `cases` sums with the kernels.
void hold(const emit::multiplier& m, std::size_t cases, std::size_t most_lines) {
    std::vector<emit::function> all = emit::functions_of(m);
    std::string text;
    int widest = 0;
    std::size_t lines = 0;
    for (const emit::function& f : all) text += emit::in_c(f), widest = std::max(widest, emit::widest_word(f));
    for (const char c : text) lines += c == '\n';
    CHECK_MESSAGE(lines <= most_lines, m.name << " has " << lines << " lines");
    const emit::case_shape shape = emit::shape_of(emit::unit(m));
    test::library c(m.name);
    c.add(emit::wide_words_in_c(text, widest) + text + emit::case_in_c(shape) + "void " + m.name +
          "_case(const uint64_t *in, uint64_t index, uint64_t *out);\nvoid " + m.name +
          "_case(const uint64_t *in, uint64_t index, uint64_t *out)\n{\n    golden(in, index, out);\n}\n");
    c.make();
    void* found = c.find(m.name + "_case");
    REQUIRE(found != nullptr);
    const auto f = reinterpret_cast<emitted_case>(found);
    const auto k = static_cast<std::size_t>(m.k), side = static_cast<std::size_t>(std::sqrt(static_cast<double>(cases))) + 1;
    const bool wholes = m.how.sum == summation::integer;
    const int c_width = emit::addend_width(m.how), own = wholes ? c_width : bits(m.how.addend), d_width = emit::result_width(m.how);
    std::mt19937_64 random(k);
    std::vector<operand> a, b;
    for (std::size_t i = 0; i < side; ++i) a.push_back(made_operand(m.a, k, i, random)), b.push_back(made_operand(m.b, k, i * 5, random));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < side; ++i) {
        for (std::size_t j = 0; j < side && wrong == 0; ++j) {
            const std::uint64_t code =
                wholes ? random() & low_bits(random() % 3 == 0 ? 32 : 14) : made_code(m.how.addend, own, i + j, random);
            std::vector<std::uint64_t> in;
            for (const auto* part : {&a[i].codes, &a[i].scales, &b[j].codes, &b[j].scales}) in.insert(in.end(), part->begin(), part->end());
            in.push_back(code);
            std::uint64_t addend =
                wholes && c_width == 32 ? static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(code)}) : code;
            std::uint64_t right = 0, given = 0;
            matrix_multiply_add(m.a, m.b, m.how, {1, 1, k}, a[i].matrix(), b[j].matrix(), std::span(&addend, 1), std::span(&right, 1));
            right &= low_bits(d_width);
            f(in.data(), 0, &given);
            const floating stored = d_width == 32 ? fp32 : m.how.result;
            const bool both_nan = !wholes && device_sums::is_nan_code(stored, given) && device_sums::is_nan_code(stored, right);
            if (given == right || both_nan) continue;
            ++wrong;
            FAIL_CHECK(m.name << ": " << to_text(m.how).view() << " gives " << std::hex << given << ", right is " << right << ", c is "
                              << code << ", row " << std::dec << i << ", column " << j);
        }
    }
    c.close();
}

}  // namespace

TEST_CASE("the emitted C of devices equals the kernels") {
    // One of each way to add, and with QK_TEST_WHOLE all.
    const std::set<std::string_view> ten{"nvidia.volta.mma.m8n8k4.f16.f16.f16.f16",
                                         "nvidia.ampere.mma.m16n8k8.f32.tf32.tf32.f32",
                                         "nvidia.hopper.wgmma.m64n8k32.f32.e4m3.e4m3",
                                         "nvidia.rtx_blackwell.mma_block_scale.m16n8k64.block16.f32.e2m1.e2m1.f32.ue4m3",
                                         "nvidia.rtx_blackwell.mma_block_scale.m16n8k32.block32.f32.e4m3.e5m2.f32.ue8m0",
                                         "amd.cdna2.mfma.f32_16x16x16bf16_1k",
                                         "amd.cdna3.mfma.f32_16x16x32_fp8_bf8",
                                         "amd.cdna3.mfma.f64_4x4x4_4b_f64",
                                         "amd.cdna3.mfma.f32_4x4x4_16b_bf16",
                                         "tenstorrent.blackhole.sfpmad",
                                         "x86.amx.tdpbf16ps",
                                         "x86.avx512_bf16.vdpbf16ps",
                                         "x86.avx512_vnni.vpdpbusds"};
    std::size_t seen = 0;
    devices::each([&](const device& d) {
        if (!test::whole() && !ten.contains(d.name)) return;
        ++seen;
        INFO(d.name);
        hold({d.a, d.b, d.accumulator, 2 * d.k, "unit" + std::to_string(seen)}, test::whole() ? 100000 : 2500, 250);
    });
    CHECK(seen >= ten.size());
}

TEST_CASE("the emitted C of accumulators equals the kernels") {
    struct row {
        const char *text, *a, *b;
        int k;
    };
    const row rows[] = {{"sum=exact", "fp8_e4m3fn", "fp8_e5m2", 24},
                        {"sum=exact,groups=8,place=after,result=fp16,round=down,zero=positive", "fp16", "fp16", 16},
                        {"sum=exact,groups=4,result=fp8_e4m3fn", "fp6_e2m3", "fp4_e2m1", 10},
                        {"sum=exact,result=fp8_e4m3fnuz,overflow=saturate", "fp8_e4m3fnuz", "fp8_e4m3fnuz", 8},
                        {"sum=exact", "mxfp4", "mxfp8_e4m3", 64},
                        {"sum=exact,groups=32", "bf16", "fp32", 4},
                        {"align=20,cut=to-odd,groups=6", "fp16", "bf16", 13},
                        {"align=24,cut=down,round=to-odd,zero=ieee", "bf16", "bf16", 12},
                        {"groups=4,align=26,cut=to-odd,lost-is-zero,product-range", "bf16", "bf16", 8},
                        {"align=24,product-range", "mxfp8_e4m3", "mxfp8_e5m2", 32},
                        {"groups=8,lanes=2,place=after,align=24,join=26,product-overflow,product-range", "bf16", "tf32", 8},
                        {"align=12,groups=8,place=after,partial=e8m13", "fp8_e5m2", "fp8_e5m2", 16},
                        {"sum=sequential,fused=0,partial=bf16,c=bf16,result=bf16", "bf16", "bf16", 9},
                        {"sum=sequential,groups=8,lanes=4,chunked,place=after,round=up", "fp16", "fp16", 24},
                        {"sum=pairwise,partial=fp16,result=fp32", "fp8_e4m3fn", "fp16", 11},
                        {"sum=pairwise,groups=8,lanes=2,place=after,round=toward-zero", "fp32", "fp32", 16},
                        {"sum=sequential,partial=fp32,result=fp16,round=half-away,zero=exact-positive", "fp16", "fp16", 7},
                        {"width=18,groups=8", "int8", "int8", 16},
                        {"width=20,saturate,groups=4,place=after", "uint8", "int8", 16},
                        {"width=48", "int16", "int16", 16}};
    int n = 0;
    for (const row& r : rows) {
        INFO(r.text);
        const auto how = parse_accumulator(r.text);
        REQUIRE_MESSAGE(how, std::string(how.error.view()));
        hold({*parse_format(r.a), *parse_format(r.b), *how, r.k, "sum" + std::to_string(++n)}, test::whole() ? 40000 : 4000, 300);
    }
}

TEST_CASE("what has no circuit is refused in a sentence") {
    const auto refused = [](const char* text, const char* a, int k) {
        emit::multiplier m{*parse_format(a), *parse_format(a), *parse_accumulator(text), k, "unit"};
        CHECK_THROWS_AS(emit::functions_of(m), std::invalid_argument);
    };
    refused("requantize=scale,scale=0.5", "int8", 4);
    refused("sum=exact", "nf4", 4);
    refused("align=24,groups=16,bundle=4", "fp16", 16);
}
