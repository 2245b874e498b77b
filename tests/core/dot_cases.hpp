// SPDX-License-Identifier: Apache-2.0
// Dot products that find mistakes, of every kind of accumulator: the kinds, their inputs, and the comparison with the oracle.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/reference/dot.hpp"
#include "test_inputs.hpp"

struct dot_kind {
    const char* name;
    qk::format a, b;
    qk::accumulator how;
};

inline std::vector<dot_kind> dot_kinds() {
    using namespace qk;
    const auto changed = [](accumulator a, auto change) {
        change(a);
        return a;
    };
    const accumulator hopper = devices::nvidia_hopper_mma_f32_f16_f16_f32.accumulator,
                      fp8 = devices::nvidia_hopper_wgmma_f32_e4m3_e4m3.accumulator;
    return {
        {"exact fp32", fp32, fp32, accumulators::exact},
        {"exact fp16 to fp16", fp16, fp16, {.addend = fp16, .partial = fp16, .result = fp16}},
        {"exact mxfp4 x mxfp8", mxfp4, mxfp8_e4m3, accumulators::exact},
        {"exact nvfp4 x bf16, down", nvfp4, bf16, {.round = rounding::down}},
        {"exact bfp16 x mx9, groups", bfp16, mx9, {.groups = 16, .partial = bf16, .result = bf16, .round = rounding::half_away}},
        {"exact int8 x fp8, after",
         int8,
         fp8_e5m2,
         {.groups = 4, .place = place::after, .partial_round = rounding::up, .zero = zero_rule::exact_positive}},
        {"loop fp32", fp32, fp32, accumulators::loop_fp32},
        {"fma fp32", fp32, fp32, accumulators::sequential_fp32},
        {"fma mxfp8", mxfp8_e5m2, mxfp8_e4m3, accumulators::sequential_fp32},
        {"pairwise bf16", bf16, bf16, accumulators::pairwise_fp32},
        {"sequential tf32, truncated",
         fp16,
         fp8_e4m3fn,
         {.sum = summation::sequential, .partial = tf32, .result = tf32, .partial_round = rounding::toward_zero}},
        {"sequential fp16, saturating",
         fp16,
         fp16,
         {.sum = summation::sequential, .fused = false, .addend = fp16, .partial = fp16, .result = fp16, .overflow = too_large::saturate}},
        {"lanes of bf16", bf16, bf16, devices::tiles_of_bf16},
        {"reversed pairs of bf16", bf16, bf16, devices::pairs_of_bf16},
        {"pairwise lanes, down",
         mxint8,
         mxfp6_e3m2,
         {.sum = summation::pairwise,
          .groups = 8,
          .lanes = 2,
          .place = place::after,
          .partial = bf16,
          .result = fp32,
          .partial_round = rounding::down}},
        {"volta", fp16, fp16, devices::nvidia_volta_mma_f32_f16_f16_f32.accumulator},
        {"turing fp16", fp16, fp16, devices::nvidia_turing_mma_f16_f16_f16_f16.accumulator},
        {"ampere bf16", bf16, bf16, devices::nvidia_ampere_mma_f32_bf16_bf16_f32.accumulator},
        {"ampere tf32", fp32, fp32, devices::nvidia_ampere_mma_f32_tf32_tf32_f32.accumulator},
        {"hopper fp8", fp8_e4m3fn, fp8_e5m2, fp8},
        {"hopper fp32 operands, ieee", fp32, fp32,
         changed(hopper, [](accumulator& a) { a.zero = zero_rule::ieee, a.overflow = too_large::ieee, a.cut = rounding::down; })},
        {"blackwell mxfp8", mxfp8_e4m3, mxfp8_e5m2,
         devices::nvidia_rtx_blackwell_mma_block_scale_block32_f32_e4m3_e5m2_f32_ue8m0.accumulator},
        {"blackwell nvfp4", nvfp4, nvfp4, devices::nvidia_rtx_blackwell_mma_block_scale_block16_f32_e2m1_e2m1_f32_ue4m3.accumulator},
        {"cdna1 fp16", fp16, fp16, devices::amd_cdna1_mfma_f32_f16.accumulator},
        {"cdna2 bf16", bf16, bf16, devices::amd_cdna2_mfma_f32_bf16_1k.accumulator},
        {"cdna3 bf16", bf16, bf16, devices::amd_cdna3_mfma_f32_bf16.accumulator},
        {"cdna3 fp8", fp8_e4m3fnuz, fp8_e5m2fnuz, devices::amd_cdna3_mfma_f32_fp8_bf8.accumulator},
        {"cdna3 xf32", fp32, fp32, devices::amd_cdna3_mfma_f32_xf32.accumulator},
        {"aligned after, wide",
         mxint8,
         bfp16,
         {.sum = summation::aligned, .groups = 8, .lanes = 4, .place = place::after, .align = 45, .cut = rounding::down}},
        {"fma fp64", fp64, fp64, accumulators::fma_fp64},
    };
}

/// Codes of one row: ordinary, any bits, few large among small, small, cancelling, special.
class dot_inputs {
  public:
    explicit dot_inputs(std::uint64_t seed) : g_{seed} {}

    qk::reference::dot_row row(const qk::format& f, std::size_t k, unsigned mood) {
        qk::reference::dot_row r;
        std::visit([&](const auto& form) { fill(form, k, mood, r); }, f);
        return r;
    }
    /// C: far or near, small or special; a value of f.
    double c(qk::floating f, unsigned mood) {
        const std::uint64_t code = floating_code(f, mood);
        return qk::detail::value_of_register(f, code);
    }
    generator& random() { return g_; }

  private:
    std::uint64_t floating_code(qk::floating f, unsigned mood) {
        const int m = f.mantissa_bits, e = f.exponent_bits;
        const std::uint64_t any = std::uint64_t{g_.word()} << 32 | g_.word(),
                            all = (std::uint64_t{1} << (qk::is_signed(f) ? e + m + 1 : e + m)) - 1;
        if (f.specials == qk::specials::e8m0) return any & 0xff;
        const std::uint64_t sign = (any >> 63) << (e + m), mantissa = any & ((std::uint64_t{1} << m) - 1);
        const auto top = std::uint64_t{1} << e;
        switch (mood) {
            case 0: return any & all;  // any bits, specials too
            case 1:
                return sign | (top / 2 - 1 - g_.below(std::min<std::uint32_t>(4, static_cast<std::uint32_t>(top / 2)))) << m |
                       mantissa;                                                                                        // ordinary
            case 2: return g_.below(5) == 0 ? sign | (top - 2) << m | mantissa : sign | (top / 2 - 1) << m | mantissa;  // few large
            case 3:
                return sign | (std::uint64_t{g_.below(2)} << m) |
                       mantissa >> g_.below(static_cast<std::uint32_t>(m + 1));  // small, subnormal, zero
            case 4:
                return g_.below(3) == 0 ? sign
                                        : sign | (top / 2 - 1) << m | std::uint64_t{g_.below(2)} << (m - (m > 0));  // sparse, few bits
            default: return sign | std::uint64_t{g_.below(static_cast<std::uint32_t>(top - 1))} << m | mantissa;    // every exponent
        }
    }
    void elements(qk::floating f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        for (std::size_t i = 0; i < k; ++i) r.elements.push_back(mood == 6 ? floating_code(f, g_.below(6)) : floating_code(f, mood));
    }
    void words(int width, std::size_t k, qk::reference::dot_row& r) {
        for (std::size_t i = 0; i < k; ++i) r.elements.push_back(g_.below(6) == 0 ? 0 : g_.word() & qk::detail::low_bits(width));
    }
    void scales(int width, int block, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        const std::uint32_t middle = 1u << (width - 1);
        for (std::size_t i = 0; i < k; i += static_cast<std::size_t>(block)) {
            r.scales.push_back(mood == 0 ? g_.word() & qk::detail::low_bits(width) : middle - 4 + g_.below(mood == 2 ? 40 : 8));
        }
    }
    void fill(qk::floating f, std::size_t k, unsigned mood, qk::reference::dot_row& r) { elements(f, k, mood, r); }
    void fill(qk::integer f, std::size_t k, unsigned, qk::reference::dot_row& r) { words(f.bits, k, r); }
    void fill(const qk::block_float& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        words(1 + f.mantissa_bits, k, r);
        scales(f.exponent_bits, f.block_size, k, mood, r);
    }
    void fill(const qk::microexponent& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        words(1 + f.mantissa_bits, k, r);
        scales(8, f.block_size, k, mood, r);
        r.shifts.resize(qk::detail::divide_up(k, f.block_size) * qk::reference::sub_blocks(f));
        for (std::uint32_t& s : r.shifts) s = g_.word() & qk::detail::low_bits(f.shift_bits);
    }
    void fill(const qk::microscaling& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        if (qk::has_integer_elements(f)) words(f.integer_bits, k, r);
        else elements(f.element, k, mood, r);
        scales(8, f.block_size, k, mood, r);
    }
    void fill(const qk::nvfloat& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        elements(f.element, k, mood, r);
        for (std::size_t i = 0; i < k; i += static_cast<std::size_t>(f.block_size))
            r.scales.push_back(static_cast<std::uint32_t>(floating_code(f.scale, mood)) & 0x7fu);
    }
    generator g_;
};

/// The row's codes in its planes.
struct packed_dot_row {
    std::vector<std::byte> elements, scales, shifts;
    std::size_t size = 0;
    packed_dot_row(const qk::format& f, const qk::reference::dot_row& r) : size(r.elements.size()) {
        const auto put = [](std::vector<std::byte>& plane, const auto& codes, int width) {
            plane.resize((codes.size() * static_cast<std::size_t>(width) + 7) / 8);
            for (std::size_t i = 0; i < codes.size(); ++i) {
                if (width == 64) std::memcpy(plane.data() + 8 * i, &codes[i], 8);
                else qk::detail::put_code(plane, i, width, static_cast<std::uint32_t>(codes[i]));
            }
        };
        std::visit(
            [&](const auto& g) {
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(g)>, qk::floating>)
                    put(elements, r.elements, g == qk::fp64 ? 64 : qk::bits(g));
                else put(elements, r.elements, qk::detail::element_width(g));
                if constexpr (qk::detail::has_blocks<std::remove_cvref_t<decltype(g)>>) put(scales, r.scales, qk::detail::scale_width(g));
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(g)>, qk::microexponent>) {
                    std::vector<std::uint32_t> own;  // a short last block has fewer sub-blocks; they are the last ones
                    const auto block = static_cast<std::size_t>(g.block_size);
                    for (std::size_t i = 0; i < size; i += static_cast<std::size_t>(g.sub_block_size))
                        own.push_back(
                            r.shifts[i / block * qk::reference::sub_blocks(g) + i % block / static_cast<std::size_t>(g.sub_block_size)]);
                    put(shifts, own, g.shift_bits);
                }
            },
            f);
    }
    qk::packed_matrix matrix() const { return {{elements, scales, shifts, {}}}; }
};

/// `count` dot products of a kind; how many differ from the oracle.
inline std::size_t compare_dots(const dot_kind& kind, std::size_t count, std::uint64_t seed) {
    using namespace qk;
    std::size_t mismatches = 0;
    dot_inputs inputs(seed);
    const accumulator& how = kind.how;
    for (std::size_t n = 0; n < count; ++n) {
        const std::size_t k = n % 512 == 511 ? inputs.random().below(600) : inputs.random().below(n % 16 == 15 ? 40 : 10);
        const unsigned mood = inputs.random().below(7), other = inputs.random().below(3) == 0 ? inputs.random().below(7) : mood;
        reference::dot_row a = inputs.row(kind.a, k, mood), b = inputs.row(kind.b, k, other);
        double c = inputs.c(how.addend, inputs.random().below(6));
        if (inputs.random().below(4) == 0 && k > 1) {  // pairs that cancel, and C against the sum of the others
            for (std::size_t i = 0; i + 1 < k; i += 2) a.elements[i + 1] = a.elements[i];
            if (const auto* f = std::get_if<floating>(&kind.a); f != nullptr && is_signed(*f)) {
                for (std::size_t i = 0; i + 1 < k; i += 2) a.elements[i + 1] ^= std::uint64_t{1} << (f->exponent_bits + f->mantissa_bits);
            }
            if (inputs.random().below(2) == 0) b.elements.assign(k, b.elements[0]);
            const double s = reference::dot(kind.a, kind.b, how, a, b, 0);
            if (inputs.random().below(2) == 0 && how.result == how.addend && std::isfinite(s)) c = -s;
        }
        const packed_dot_row pa(kind.a, a), pb(kind.b, b);
        detail::events ignored;
        const std::uint64_t start =
            how.addend == fp64
                ? std::bit_cast<std::uint64_t>(c)
                : detail::stored_code(how.addend, detail::round_to(how.addend, rounding::half_even, accumulator{}, c, ignored));
        std::uint64_t code = 0;
        dot_counts counts;
        matrix_multiply_add(kind.a, kind.b, how, {1, 1, k}, pa.matrix(), pb.matrix(), std::span<const std::uint64_t>(&start, 1),
                            std::span<std::uint64_t>(&code, 1), n % 2 == 0 ? nullptr : &counts);
        const double expected = reference::dot(kind.a, kind.b, how, a, b, c);
        const double actual = how.result == fp64       ? std::bit_cast<double>(code)
                              : bits(how.result) <= 16 ? static_cast<double>(value_of(how.result, static_cast<std::uint32_t>(code)))
                                                       : static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(code)));
        const bool same =
            std::bit_cast<std::uint64_t>(expected) == std::bit_cast<std::uint64_t>(actual) || (expected != expected && actual != actual);
        if (same || mismatches++ >= 3) continue;
        std::fprintf(stderr, "%s, number %zu, k %zu, moods %u and %u: c %a expected %a actual %a\n", kind.name, n, k, mood, other, c,
                     expected, actual);
        for (std::size_t i = 0; i < k && k < 5; ++i)
            std::fprintf(stderr, "  a %llx b %llx\n", static_cast<unsigned long long>(a.elements[i]),
                         static_cast<unsigned long long>(b.elements[i]));
    }
    return mismatches;
}
