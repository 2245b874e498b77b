// SPDX-License-Identifier: Apache-2.0
// fake_quantize compiled for one instruction set. Every symbol of a file that is compiled for one must carry the instruction set in its
// name (a template on Arch) or be inlined: a function shared by two such files could be linked from the wrong one.
#pragma once

#include "qk/fake_quantize.hpp"
#include "table.hpp"

namespace qk::dispatch {

template <class Arch>
struct fake_quantizers_on {
    static std::span<const float> from(arrays a) noexcept { return {a.x, a.size}; }
    static std::span<float> to(arrays a) noexcept { return {a.y, a.size}; }

    /// Runs blocks in a row by kernels that know their size when compiling, if it is the usual one of the family, and returns whether it
    /// did. With four vectors a block these kernels are a third faster.
    template <class Format>
    static bool usual_blocks([[maybe_unused]] const Format& f, [[maybe_unused]] arrays a, [[maybe_unused]] along_axis axis,
                             [[maybe_unused]] float scale, [[maybe_unused]] const semantics& how) noexcept {
        if constexpr (kernels::is_block_family<Format>) {
            if (is_searched(how.scale_rule)) return false;  // weights belong to positions of a row
            constexpr int size = Format{}.block_size;
            const along_axis all = kernels::resolve(axis, a.size);
            if (f.block_size != size || all.inner != 1 || (all.outer != 1 && all.length % size != 0)) return false;
            const auto run = [&]<kernels::element_step Step>() {
                kernels::run_block_format<Arch, kernels::block_shape{size, Step, true}>(f, a.x, a.y, {1, a.size, 1}, scale, how);
                return true;
            };
            if constexpr (detail::under_power_scales<Format>) {
                if (has_integer_elements(f)) return run.template operator()<kernels::element_step::block>();
            }
            return run.template operator()<kernels::shape_of(Format{}).step>();
        } else {
            return false;
        }
    }
    static void whole(const format& f, arrays a, const semantics& how) noexcept { qk::fake_quantize<Arch>(f, from(a), to(a), how); }
    static void scaled(const format& f, arrays a, affine s, const semantics& how) noexcept {
        qk::fake_quantize<Arch>(f, from(a), to(a), s, how);
    }
    static void along(const format& f, arrays a, along_axis axis, const semantics& how) noexcept {
        detail::with_family(f, [&](const auto& g) {
            if (!usual_blocks(g, a, axis, 0.0f, how)) detail::run<Arch>(g, from(a), to(a), axis, detail::no_scale(g), how);
        });
    }
    static void along_scaled(const format& f, arrays a, along_axis axis, affine s, const semantics& how) noexcept {
        detail::with_family(f, [&](const auto& g) {
            if (!usual_blocks(g, a, axis, s.scale, how)) detail::run<Arch>(g, from(a), to(a), axis, s, how);
        });
    }
    static void by_channel(const format& f, arrays a, const per_channel& p, const semantics& how) noexcept {
        qk::fake_quantize<Arch>(f, from(a), to(a), p, how);
    }
    static void by_block(const format& f, arrays a, const per_block& p, const semantics& how) noexcept {
        qk::fake_quantize<Arch>(f, from(a), to(a), p, how);
    }
};

template <>
fake_quantizers fake_quantizers_of<isa::QK_DISPATCH_ISA>() noexcept {
    using on = fake_quantizers_on<native>;
    return {on::whole, on::scaled, on::along, on::along_scaled, on::by_channel, on::by_block};
}

}  // namespace qk::dispatch
