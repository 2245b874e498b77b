// SPDX-License-Identifier: Apache-2.0
// The body of each kernels_ISA.cpp, which is compiled for that instruction set. Every name that comes out of such a file must carry
// the instruction set (a template on Arch) or be inlined: a function shared by two of them could be linked from the wrong one.
#pragma once

#include "qk/codec.hpp"
#include "qk/fake_quantize.hpp"
#include "table.hpp"

namespace qk::dispatch {

template <class Arch>
struct entry {
    static std::span<const float> from(arrays a) noexcept { return {a.x, a.size}; }
    static std::span<float> to(arrays a) noexcept { return {a.y, a.size}; }
    static void whole(const format& f, arrays a, const semantics& how) noexcept { qk::fake_quantize<Arch>(f, from(a), to(a), how); }
    static void scaled(const format& f, arrays a, affine s, const semantics& how) noexcept { qk::fake_quantize<Arch>(f, from(a), to(a), s, how); }
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
    static void encode(const format& f, values_in x, planes out, const codec_parameters& p, const semantics& how) noexcept {
        detail::with_family(f, [&](const auto& g) { detail::encode_family<Arch>(g, x, out, p, how); });
    }
    static void decode(const format& f, const_planes in, values_out y, const codec_parameters& p) noexcept {
        detail::with_family(f, [&](const auto& g) { detail::decode_family<Arch>(g, in, y, p); });
    }
    static constexpr kernel_table table{whole, scaled, along, along_scaled, by_channel, by_block, encode, decode};
};

}  // namespace qk::dispatch
