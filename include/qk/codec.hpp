// SPDX-License-Identifier: Apache-2.0
// encode and decode: tensors at their true width. Layout version 1 says what lies where: docs/reference/layouts.md.
//
// The law: for every format and input, decode(encode(x)) == fake_quantize(x), bit for bit (NaN equals NaN).
//
// Contract, for every overload:
//   - `packed` has at least packed_bytes(format, shape) bytes, or the planes have what layout_of says; every bit of them is written,
//     unused ones as 0. x and y are float, float16 or bfloat16, of any length and alignment, and do not overlap `packed`.
//   - Parameters: along_axis (where blocks run), affine (one scale; NVFP4's tensor scale), per_channel, per_block: codec_parameters. A
//     format without a tensor scale holds none: who encodes with one passes it to decode, too.
//   - Nothing is allocated or thrown; one thread; re-entrant. Preconditions as in fake_quantize.hpp, asserted likewise, the lengths of
//     `packed` among them (the run-time encode answers encode_status::too_small instead). no_format encodes to no_code and decodes to NaN.
//   - A semantics that gives results without a code (NaN or Inf passed through, -0 in an integer, an MX scale beyond E8M0) cannot
//     be encoded: it does not compile, or at run time gives encode_status::no_code, and nothing is written.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/codec/decode/blocks.hpp"
#include "qk/codec/decode/elements.hpp"
#include "qk/codec/decode/ggml_blocks.hpp"
#include "qk/codec/decode/registers.hpp"
#include "qk/codec/encode/encodable.hpp"
#include "qk/codec/encode/fast_columns.hpp"
#include "qk/codec/encode/large_blocks.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/isa.hpp"
#include "qk/preconditions.hpp"
#include "qk/wrong_use.hpp"

namespace qk {

inline namespace QK_ISA {

/// Format and semantics known when compiling: `encode<qk::mxfp4>(x, packed)`, `encode<qk::int8>(x, packed, qk::affine{.scale = 0.1f})`.
template <auto Format, semantics How = semantics::ocp, class Arch = kernels::native>
void encode(values_in x, std::span<std::byte> packed, const codec_parameters& p = {}) noexcept;
template <auto Format, class Arch = kernels::native>
void decode(std::span<const std::byte> packed, values_out y, const codec_parameters& p = {}) noexcept;

/// Format or semantics known when running; the same bytes.
template <class Arch = kernels::native>
[[nodiscard]] encode_status encode(const format& f, values_in x, std::span<std::byte> packed, const codec_parameters& p = {},
                                   const semantics& how = semantics::ocp) noexcept;
template <class Arch = kernels::native>
void decode(const format& f, std::span<const std::byte> packed, values_out y, const codec_parameters& p = {}) noexcept;

/// The same with each plane where the caller wants it, as checkpoints keep scales apart from codes. The spans are as long as layout_of
/// says.
template <auto Format, semantics How = semantics::ocp, class Arch = kernels::native>
void encode(values_in x, planes packed, const codec_parameters& p = {}) noexcept;
template <auto Format, class Arch = kernels::native>
void decode(const_planes packed, values_out y, const codec_parameters& p = {}) noexcept;
template <class Arch = kernels::native>
[[nodiscard]] encode_status encode(const format& f, values_in x, planes packed, const codec_parameters& p = {},
                                   const semantics& how = semantics::ocp) noexcept;
template <class Arch = kernels::native>
void decode(const format& f, const_planes packed, values_out y, const codec_parameters& p = {}) noexcept;

/// Decodes into registers: visit(first, values, n) gets the values from number `first` on in a vector, kernels::vf<Arch>, of which the
/// first n lanes count; n is less than its size only at ends. Each value comes once, in the tensor's order where blocks lie in rows.
///
///   float sum = 0;
///   qk::decode_to<qk::mxfp4>(planes, n, {}, [&](std::size_t first, auto v, std::size_t n) { ... });
///
/// (Where a tile in the cache is enough, or the format is known when running: decode into a values_sink.)
template <auto Format, class Arch = kernels::native, class Visit>
void decode_to(const_planes packed, std::size_t n, const codec_parameters& p, Visit&& visit) noexcept;
template <auto Format, class Arch = kernels::native, class Visit>
void decode_to(std::span<const std::byte> packed, std::size_t n, const codec_parameters& p, Visit&& visit) noexcept {
    decode_to<Format, Arch>(planes_of(layout_of(Format, resolved(p.axis, n)), packed), n, p, visit);
}

/// Every other call does not compile, and says why (wrong_use.hpp; values_in and values_out do so for the numbers).
template <auto Format, semantics How = semantics::ocp, class Arch = kernels::native, class X, class B, class... P>
requires(!detail::is_plane_to_write<B>) void encode(X&&, B&&, P&&...) { wrong_use::of_packed<B>(); }
template <auto Format, class Arch = kernels::native, class B, class Y, class... P>
requires(!detail::is_plane_to_read<B>) void decode(B&&, Y&&, P&&...) { wrong_use::of_packed<B>(); }
template <class Arch = kernels::native, class F, class X, class B, class... P>
requires(!detail::format_value<F> || !detail::is_plane_to_write<B>) encode_status encode(F&&, X&&, B&&, P&&...) {
    if constexpr (!detail::format_value<F>) wrong_use::of_format<F>();
    else wrong_use::of_packed<B>();
    return encode_status::too_small;
}
template <class Arch = kernels::native, class F, class B, class Y, class... P>
requires(!detail::format_value<F> || !detail::is_plane_to_read<B>) void decode(F&&, B&&, Y&&, P&&...) {
    if constexpr (!detail::format_value<F>) wrong_use::of_format<F>();
    else wrong_use::of_packed<B>();
}

}  // namespace QK_ISA

// ---- implementation

namespace detail {
inline namespace QK_ISA {

/// Clears the last byte of each plane, whose bits behind the last code stay 0.
template <class Arch>
void clear_ends(planes out) noexcept {
    for (const std::span<std::byte> plane : {out.elements, out.scales, out.shifts, out.tensor}) {
        if (!plane.empty()) plane.back() = std::byte{0};
    }
}

/// A block format's coder with its fast forms: the one place where `encode` uses what is known of a format when compiling.
template <class Arch, compile_time_facts Known, class Format>
class coder_of final : public family_coder<Arch, Format> {
  public:
    using family_coder<Arch, Format>::family_coder;

    void long_block(values_in x, planes out, along_axis a, std::size_t o, std::size_t l, std::size_t i,
                    const semantics& how) const noexcept override {
        if constexpr (Known.blocks.size == 0 || Known.blocks.size > static_cast<int>(tile))
            encode_long_block<Arch>(this->format_, *this, x, out, a, o, l, i, how);
    }
    std::size_t fast(const semantics& how, values_in x, planes out, const fast_task& walk) const noexcept override {
        if (has_elements<Format> && is_searched(how.scale_rule)) return 0;
        alignas(64) std::uint8_t waiting[code_writer<Arch, Known.width>::may_wait ? largest_tile : 1];
        return with_block_codes<Arch, Known>(
            this->format_, this->step(how), out, waiting, [&]<kernels::element_step OfElement>(const auto& form, const auto& codes) {
                if (walk.columns == nullptr)
                    return encode_row_of_blocks<Arch, Known, OfElement>(form, codes, x.floats(), walk.blocks, *walk.row);
                encode_columns<Arch, Known, OfElement>(this->packed, form, codes, x, walk.axis, *walk.columns);
                return std::size_t{1};
            });
    }
};

template <class Arch, compile_time_facts Known = compile_time_facts{}, class Format>
void encode_family(const Format& f, values_in x, planes out, const codec_parameters& p, const semantics& how) noexcept {
    clear_ends<Arch>(out);
    if constexpr (has_zero_points<Format>) {
        encode_elements<Arch>(f, x, out, p, how, integers_encoders_of<Arch, Known.width>());
    } else if constexpr (is_float<Format>) {
        encode_elements<Arch, Known.kind>(f, x, out, p, how, floats_encoders_of<Arch, Known.width>());
    } else if constexpr (has_listed_values<Format>) {
        encode_elements<Arch>(f, x, out, p, how);
    } else {
        float tensor = p.has_one ? p.one.scale : 0.0f;
        if constexpr (under_floating_scales<Format>) {
            if (tensor == 0) tensor = f.tensor_scale ? kernels::tensor_scale_of(f, largest_finite<Arch>(x), how) : 1.0f;
            if (f.tensor_scale) std::memcpy(out.tensor.data(), &tensor, sizeof tensor);
        }
        encode_tensor<Arch>(coder_of<Arch, Known, Format>(f, tensor), x, out, resolved(p.axis, x.size()), how);
    }
}

template <class Arch, compile_time_facts Known = compile_time_facts{}, class Format>
void decode_family(const Format& f, const_planes packed, values_out y, const codec_parameters& p) noexcept {
    if constexpr (is_float<Format>) {
        if (f == no_format) {
            constexpr float nan = std::numeric_limits<float>::quiet_NaN();
            for (std::size_t i = 0; i < y.size(); ++i) y.template copy<Arch>(&nan, i, 1);
            return;
        }
    }
    if constexpr (is_ggml_blocks<Format>) {
        decode_ggml_blocks<Arch>(f, packed.elements, y, resolved(p.axis, y.size()));
    } else if constexpr (kernels::is_block_family<Format>) {
        float tensor = 1;
        if constexpr (under_floating_scales<Format>) {
            if (f.tensor_scale) std::memcpy(&tensor, packed.tensor.data(), sizeof tensor);
            else if (p.has_one && p.one.scale != 0) tensor = p.one.scale;
        }
        decode_blocks<Arch>(decoder_of<Arch, Known, Format>(f, tensor), packed, y, resolved(p.axis, y.size()));
    } else {
        decode_elements<Arch>(f, packed, y, p, fast_decoders_of<Arch, Known.width, Format>());
    }
}

}  // namespace QK_ISA
}  // namespace detail

namespace wrong_use {

/// Is true when every result of this format and semantics has a code; else a static_assert says that some have none.
template <auto Format, semantics How>
QK_INLINE constexpr bool has_codes() {
    if constexpr (is_no_fault_of<Format>()) {
        constexpr bool all_have_codes = encodable(Format, How);
        static_assert(
            all_have_codes,
            "this semantics gives NaN, Inf or scales for which the format has no code; use fake_quantize, or encode with semantics::ocp");
        return all_have_codes;
    }
    return false;
}

}  // namespace wrong_use

inline namespace QK_ISA {

template <auto Format, semantics How, class Arch>
void encode(values_in x, std::span<std::byte> packed, const codec_parameters& p) noexcept {
    if constexpr (wrong_use::has_codes<Format, How>()) {
        const packed_layout l = layout_of(Format, resolved(p.axis, x.size()));
        detail::expect_packed(l, packed);
        detail::expect_numbers(Format, x, packed, p);
        detail::expect_words(How, x.size());
        detail::encode_family<Arch, detail::known_of(Format)>(Format, x, planes_of(l, packed), p, How);
    }
}
template <auto Format, class Arch>
void decode(std::span<const std::byte> packed, values_out y, const codec_parameters& p) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format, true>()) {
        const packed_layout l = layout_of(Format, resolved(p.axis, y.size()));
        detail::expect_packed(l, packed);
        detail::expect_numbers(Format, y, packed, p);
        detail::decode_family<Arch, detail::known_of(Format)>(Format, planes_of(l, packed), y, p);
    }
}

template <auto Format, semantics How, class Arch>
void encode(values_in x, planes packed, const codec_parameters& p) noexcept {
    if constexpr (wrong_use::has_codes<Format, How>()) {
        const packed_layout l = layout_of(Format, resolved(p.axis, x.size()));
        detail::expect_planes(l, packed);
        detail::expect_numbers(Format, x, packed.elements, p);
        detail::expect_words(How, x.size());
        detail::encode_family<Arch, detail::known_of(Format)>(Format, x, cut_to(l, packed), p, How);
    }
}
template <auto Format, class Arch>
void decode(const_planes packed, values_out y, const codec_parameters& p) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format, true>()) {
        const packed_layout l = layout_of(Format, resolved(p.axis, y.size()));
        detail::expect_planes(l, packed);
        detail::expect_numbers(Format, y, packed.elements, p);
        detail::decode_family<Arch, detail::known_of(Format)>(Format, cut_to(l, packed), y, p);
    }
}

template <class Arch>
QK_APART encode_status encode(const format& f, values_in x, planes packed, const codec_parameters& p, const semantics& how) noexcept {
    if (!encodable(f, how)) return encode_status::no_code;
    const packed_layout l = layout_of(f, resolved(p.axis, x.size()));
    if (!holds(packed, l)) return encode_status::too_small;
    detail::expect_format(f);
    detail::expect_numbers(f, x, packed.elements, p);
    detail::expect_words(how, x.size());
    detail::with_family(f, [&](const auto& g) { detail::encode_family<Arch>(g, x, cut_to(l, packed), p, how); });
    return encode_status::done;
}
template <class Arch>
encode_status encode(const format& f, values_in x, std::span<std::byte> packed, const codec_parameters& p, const semantics& how) noexcept {
    const packed_layout l = layout_of(f, resolved(p.axis, x.size()));
    if (packed.size() < l.bytes()) return encode_status::too_small;
    return encode<Arch>(f, x, planes_of(l, packed), p, how);
}
template <class Arch>
QK_APART void decode(const format& f, const_planes packed, values_out y, const codec_parameters& p) noexcept {
    detail::expect_format(f);
    const packed_layout l = layout_of(f, resolved(p.axis, y.size()));
    detail::expect_planes(l, packed);
    detail::expect_numbers(f, y, packed.elements, p);
    detail::with_read_family(f, [&](const auto& g) { detail::decode_family<Arch>(g, cut_to(l, packed), y, p); });
}
template <class Arch>
void decode(const format& f, std::span<const std::byte> packed, values_out y, const codec_parameters& p) noexcept {
    const packed_layout l = layout_of(f, resolved(p.axis, y.size()));
    detail::expect_packed(l, packed);
    decode<Arch>(f, planes_of(l, packed), y, p);
}

template <auto Format, class Arch, class Visit>
void decode_to(const_planes packed, std::size_t n, const codec_parameters& p, Visit&& visit) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format, true>()) {
        detail::expect_parameters(Format, n, p);
        const packed_layout l = layout_of(Format, resolved(p.axis, n));
        detail::expect_planes(l, packed);
        packed = cut_to(l, packed);
        const std::size_t done = detail::visit_registers<Arch, detail::known_of(Format)>(Format, packed, n, p, visit);
        if (done == n) return;
        const auto behind = [&](std::size_t first, std::span<const float> values) {
            detail::visit_vectors<Arch>(done + first, values, visit);
        };
        detail::decode_family<Arch, detail::known_of(Format)>(Format, detail::planes_behind(Format, packed, done),
                                                              values_sink(n - done, behind), done == 0 ? p : detail::parameters_behind(p));
    }
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
