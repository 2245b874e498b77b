// SPDX-License-Identifier: Apache-2.0
// The short form of `encode` for blocks that lie in a row: the tiles of kernels/block_tiles.hpp with codes instead of values as what
// becomes of an element. The code is the count of steps that the sum of the short form holds.
#pragma once

#include "qk/codec/layout.hpp"
#include "qk/codec/quick_codes.hpp"
#include "qk/kernels/block_tiles.hpp"

namespace qk::detail {

/// Code of an element that has the step of its block: sign and magnitude, or two's complement.
template <class Arch>
struct step_codes {
    int width;
    bool complement;
    kernels::vi<Arch> most, mask;

    step_codes(int w, bool twos_complement) noexcept
        : width(w), complement(twos_complement), most(static_cast<std::int32_t>(low_bits(w - 1))), mask(static_cast<std::int32_t>(low_bits(w))) {}
    QK_INLINE kernels::vi<Arch> operator()(kernels::vf<Arch> x, kernels::vf<Arch> base) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x), zero = kernels::as_int<Arch>(base);
        if (complement) {
            const V steps = kernels::as_int<Arch>(x + base) - zero;
            return xsimd::min(xsimd::max(steps, V(0) - most), most) & mask;
        }
        const V steps = kernels::as_int<Arch>(kernels::as_float<Arch>(u & V(kernels::magnitude_bits)) + base) - zero;
        return with_sign<Arch>(xsimd::min(steps, most), u, width);
    }
};

/// Codes of the shared exponents.
template <class Arch, class Form>
kernels::vi<Arch> scale_codes(const block_float& f, kernels::vi<Arch> amax, const Form&) noexcept {
    using V = kernels::vi<Arch>;
    const int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 2;
    return xsimd::min(xsimd::max((amax >> 23) + V(bias - 127), V(0)), V(top));
}
template <class Arch, class Form>
kernels::vi<Arch> scale_codes(const microexponent&, kernels::vi<Arch> amax, const Form&) noexcept {
    return amax >> 23;
}
template <class Arch, class Form>
kernels::vi<Arch> scale_codes(const microscaling& f, kernels::vi<Arch> amax, const Form& form) noexcept {
    using V = kernels::vi<Arch>;
    const V code = ((amax + form.add) >> 23) - V(element_max_exponent(f));
    return xsimd::select(amax == V(0), V(0), xsimd::min(xsimd::max(code, V(0)), V(254)));
}

/// Where the codes of blocks go; `Elements` makes those of the elements.
template <class Arch, int Known, class Format, class Elements>
struct codes_of_blocks {
    static constexpr bool flat = false;
    Format format;
    Elements elements;
    planes out;
    std::uint8_t* waiting;  ///< codes of a tile on their way into a plane that is narrower than they are
    code_writer<Arch, Known> writer;
    std::conditional_t<std::same_as<Format, nvfloat>, grid_codes<Arch>, nothing> scales;  ///< codes of NVFP4's scales

    /// Of an element, with what its block shares; of a block, by its largest magnitude; of a sub-block, by its block's and its own.
    template <bool Grid, class Form>
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x, const kernels::quick_shared<Arch>& b, const Form& form) const noexcept {
        if constexpr (std::same_as<Format, nvfloat>)
            return elements(kernels::clamp_magnitude<Arch>(form.ratio_of(x, b), form.largest), form.least, form.magic);
        else if constexpr (Grid)
            return elements(x, kernels::as_int<Arch>(b.base), form.magic);
        else
            return elements(x, b.base);
    }
    template <class Form>
    QK_INLINE kernels::vi<Arch> scale_code(kernels::vi<Arch> amax, const Form& form) const noexcept {
        if constexpr (std::same_as<Format, nvfloat>) {
            const kernels::vi<Arch> zero(0);
            return xsimd::select(amax == zero, zero, scales(form.ratio(amax), form.scale_least, form.scale_magic));
        } else {
            return scale_codes<Arch>(format, amax, form);
        }
    }
    QK_INLINE kernels::vi<Arch> shift_code(kernels::vi<Arch> amax, kernels::vi<Arch> own) const noexcept {
        return xsimd::min((amax >> 23) - (own >> 23), kernels::vi<Arch>(static_cast<std::int32_t>(low_bits(shift_width()))));
    }
    int shift_width() const noexcept {
        if constexpr (std::same_as<Format, microexponent>) return format.shift_bits;
        else return 0;
    }

    template <bool Grid, class Form>
    QK_INLINE void put(std::size_t i, kernels::vf<Arch> x, const kernels::quick_shared<Arch>& b, const Form& form) const noexcept {
        const kernels::vi<Arch> code = this->template code<Grid>(x, b, form);
        if (writer.waits())
            kernels::store_codes<Arch>(waiting + (i & (tile_values() - 1)), code);
        else
            writer.put(out.elements.data() + writer.bytes(i), code);
    }
    QK_INLINE void pairs(std::size_t i, kernels::vi<Arch> exponents, kernels::vi<Arch> least) const noexcept {
        if constexpr (std::same_as<Format, microexponent>) {
            constexpr std::size_t bits_each = kernels::lanes<Arch> / 2;
            // `least` is one binade below the block's exponent: the pairs that do not reach above it are shifted.
            const std::uint32_t bits = kernels::bits_of_pairs<Arch>(exponents <= least);
            const std::size_t at = i / 2;
            auto* p = reinterpret_cast<std::uint8_t*>(out.shifts.data()) + at / 8;
            if constexpr (bits_each == 8)
                *p = static_cast<std::uint8_t>(bits);
            else
                *p = static_cast<std::uint8_t>((at % 8 == 0 ? 0u : *p) | bits << at % 8);
        }
    }
    template <class Form>
    QK_INLINE void finish(std::size_t first, kernels::vi<Arch> amax, const Form& form) const noexcept {
        kernels::store_codes<Arch>(reinterpret_cast<std::uint8_t*>(out.scales.data()) + first, scale_code(amax, form));
        if (writer.waits()) writer.put_waiting(out.elements.data() + writer.bytes(first * static_cast<std::size_t>(format.block_size)), waiting, tile_values());
    }

    /// A power of two: run_row_of_blocks has no other tiles.
    std::size_t tile_values() const noexcept { return kernels::lanes<Arch> * static_cast<std::size_t>(format.block_size); }
};

inline constexpr std::size_t largest_tile = 16 * 8 * 16;  ///< values: 16 blocks of 8 vectors of 16

/// Does the short form make the codes of this format?
template <class Arch, class Format, class Form>
bool encodes_quickly(const Format& f, const Form& form) noexcept {
    const int width = element_width(f);
    return form.usable() && scale_width(f) == 8 && (width <= 8 || width == 16) && kernels::default_environment<Arch>();
}

/// call.template operator()<element_step>(codes_of_blocks): the one of format f.
template <class Arch, known_codes Known, class Format, class Call>
auto with_block_codes(const Format& f, planes out, std::uint8_t* waiting, const Call& call) noexcept {
    using kernels::element_step;
    const int width = element_width(f);
    const auto with = [&]<element_step OfElement>(const auto& elements) {
        const auto scales = [&] {
            if constexpr (std::same_as<Format, nvfloat>) return grid_codes<Arch>(f.scale);
            else return nothing(0);
        };
        return call.template operator()<OfElement>(
            codes_of_blocks<Arch, Known.width, Format, std::remove_cvref_t<decltype(elements)>>{f, elements, out, waiting, {width}, scales()});
    };
    if constexpr (std::same_as<Format, block_float>) {
        return with.template operator()<element_step::block>(step_codes<Arch>(width, false));
    } else if constexpr (std::same_as<Format, microexponent>) {
        return with.template operator()<element_step::pair>(step_codes<Arch>(width, false));
    } else if constexpr (std::same_as<Format, microscaling>) {
        if constexpr (Known.blocks.step == element_step::unknown || Known.blocks.step == element_step::block) {
            if (has_integer_elements(f)) return with.template operator()<element_step::block>(step_codes<Arch>(width, true));
        }
        return with.template operator()<element_step::element>(grid_codes<Arch>(f.element));
    } else {
        return with.template operator()<element_step::element>(grid_codes<Arch>(f.element));
    }
}

/// `blocks` blocks in a row, which begin the planes; complete(first, count) does the blocks that are declined. Returns how many were done.
template <class Arch, known_codes Known, class Format, class Step, class Complete>
std::size_t encode_blocks_quickly(const Format& f, const Step& step, const float* x, planes out, std::size_t blocks, const Complete& complete) noexcept {
    const auto form = kernels::quick_of<Arch>(step);
    if (!encodes_quickly<Arch>(f, form)) return 0;
    if constexpr (std::same_as<Format, microexponent>) {
        if (f.shift_bits != 1) return 0;
    }
    alignas(64) std::uint8_t waiting[code_writer<Arch, Known.width>::may_wait ? largest_tile : 1];
    return with_block_codes<Arch, Known>(f, out, waiting, [&]<kernels::element_step OfElement>(const auto& codes) {
        constexpr kernels::block_shape shape{Known.blocks.size, OfElement};
        return kernels::run_row_of_blocks<Arch, shape>(x, blocks, static_cast<std::size_t>(f.block_size), form, codes, complete);
    });
}

}  // namespace qk::detail
