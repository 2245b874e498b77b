// SPDX-License-Identifier: Apache-2.0
// fake_quantize as one instruction set has it. Every name that comes out of a file that is compiled for one must carry the instruction
// set (a template on Arch) or be inlined: a function shared by two of them could be linked from the wrong one.
#pragma once

#include "qk/fake_quantize.hpp"
#include "table.hpp"

namespace qk::dispatch {

template <class Arch>
struct fake_quantizers_on {
    static std::span<const float> from(arrays a) noexcept { return {a.x, a.size}; }
    static std::span<float> to(arrays a) noexcept { return {a.y, a.size}; }
    static void whole(const format& f, arrays a, const semantics& how) noexcept { qk::fake_quantize<Arch>(f, from(a), to(a), how); }
    static void scaled(const format& f, arrays a, affine s, const semantics& how) noexcept {
        qk::fake_quantize<Arch>(f, from(a), to(a), s, how);
    }
    static void along(const format& f, arrays a, along_axis axis, const semantics& how) noexcept {
        qk::fake_quantize<Arch>(f, from(a), to(a), axis, how);
    }
    static void along_scaled(const format& f, arrays a, along_axis axis, affine s, const semantics& how) noexcept {
        qk::fake_quantize<Arch>(f, from(a), to(a), axis, s, how);
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
