// SPDX-License-Identifier: Apache-2.0
// decode_to: values that are handed on in registers, without passing through memory, where the fast forms of `decode` have the format.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "qk/codec/decode/blocks.hpp"
#include "qk/codec/decode/elements.hpp"
#include "qk/codec/decode/fast_values.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Hands on values that are in memory.
template <class Arch, class Visit>
void visit_vectors(std::size_t first, std::span<const float> values, Visit& visit) {
    constexpr std::size_t w = kernels::lanes<Arch>;
    for (std::size_t k = 0; k < values.size(); k += w) {
        const std::size_t n = std::min(w, values.size() - k);
        visit(first + k, n == w ? kernels::load<Arch>(values.data() + k) : kernels::load_first<Arch>(values.data() + k, n), n);
    }
}

/// Hands on `groups` groups of 32 codes, whose halves have the factors by(g, 0) and by(g, 1): visit(number of the value, vector, lanes).
template <class Arch, compile_time_facts Known, class Values, class By, class Visit>
void visit_groups(const Values& values, const_planes p, int width, std::size_t groups, const By& by, Visit& visit) {
    constexpr std::size_t w = kernels::lanes<Arch>;
    const std::byte* in = p.elements.data();
    const auto step = static_cast<std::size_t>(width) * 4;
    const auto all = [&](const auto& each) QK_INLINE_CALL {
        for (std::size_t g = 0; g < groups; ++g, in += step) {
            const kernels::vf<Arch> factor[2] = {kernels::vf<Arch>(by(g, 0)), kernels::vf<Arch>(by(g, 1))};
            each(in, [&](std::size_t k, kernels::vf<Arch> v) QK_INLINE_CALL { visit(g * 32 + k, v * factor[k / 16], w); });
        }
    };
    if constexpr (has_byte_values<Arch>() && std::same_as<Values, floating_values<Arch>>) {
        if (in_bytes(values.format)) {
            byte_values<Arch> bytes;
            bytes.fill(values.format, values);
            return bytes.with_kind(bits(values.format), all);
        }
    }
    const code_reader<Arch, Known.width> codes{width, p.elements.data() + p.elements.size()};
    all([&](const std::byte* from, const auto& put) QK_INLINE_CALL {
        codes.template each_vector<32>(from, [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, values(code)); });
    });
}

/// Hands on what can be decoded in registers: blocks in one row, or values under one scale. Returns how many values that were, from the
/// first on: a multiple of 32.
template <class Arch, compile_time_facts Known, class Format, class Visit>
std::size_t visit_registers([[maybe_unused]] const Format& f, [[maybe_unused]] const_planes p, [[maybe_unused]] std::size_t n,
                            [[maybe_unused]] const codec_parameters& given, [[maybe_unused]] Visit& visit) {
    if constexpr (kernels::is_baseline<Arch> || kernels::lanes<Arch> < 4 || has_listed_values<Format> || has_sub_blocks<Format> ||
                  is_ggml_blocks<Format>) {
        return 0;
    } else if constexpr (kernels::is_block_family<Format>) {
        const along_axis a = resolved(given.axis, n);
        const auto block = static_cast<std::size_t>(f.block_size);
        if (a.inner != 1 || a.length % block != 0 || block % 16 != 0) return 0;
        float tensor = 1;
        if constexpr (under_floating_scales<Format>) {
            if (f.tensor_scale) std::memcpy(&tensor, p.tensor.data(), sizeof tensor);
            else if (given.has_one && given.one.scale != 0) tensor = given.one.scale;
        }
        return with_element_values<Arch, Known>(f, [&](const auto& values) {
            constexpr std::size_t together = 64;  // blocks whose factors are computed at once
            alignas(64) float factor[together];
            std::size_t held = 0, next = 0;  // factors of blocks `held` to `next` - 1
            const std::size_t groups = n / 32, blocks = (groups * 32 + block - 1) / block;
            const auto by = [&](std::size_t g, std::size_t half) QK_INLINE_CALL {
                const std::size_t b = (g * 32 + half * 16) / block;
                if (b == next) {
                    held = next, next = std::min(blocks, held + together);
                    factors_across<Arch>(f, p, held, 0, next - held, tensor, factor);
                }
                return factor[b - held];
            };
            visit_groups<Arch, Known>(values, p, element_width(f), groups, by, visit);
            return groups * 32;
        });
    } else {
        if (!given.one_scale() || !decodes_fast<Arch>(element_width(f))) return 0;
        const auto run = [&](const auto& values) {
            visit_groups<Arch, Known>(
                values, p, element_width(f), n / 32, [&](std::size_t, std::size_t) QK_INLINE_CALL { return given.one.scale; }, visit);
            return n / 32 * 32;
        };
        if constexpr (has_zero_points<Format>) return run(integer_values<Arch>(f, given.one.zero_point));
        else {
            const floating_values<Arch> values(f);
            return values.usable && f != fp32 ? run(values) : 0;
        }
    }
}

/// Return the planes, whose scales are bytes, and the parameters of what follows the first `done` values, which visit_registers handed on.
template <class Format>
const_planes planes_behind(const Format& f, const_planes p, std::size_t done) {
    const packing packed = packing_of(f);
    p.elements = p.elements.subspan(done * static_cast<std::size_t>(packed.element_width) / 8);
    if (packed.block_size != 0) p.scales = p.scales.subspan(done / static_cast<std::size_t>(packed.block_size));
    return p;
}
QK_INLINE codec_parameters parameters_behind(codec_parameters p) {
    p.axis = {};
    return p;
}

}  // namespace QK_ISA
}  // namespace qk::detail
