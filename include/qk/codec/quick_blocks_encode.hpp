// SPDX-License-Identifier: Apache-2.0
// The short form of `encode` for blocks that lie in a row: the tiles of kernels/block_tiles.hpp with codes instead of values as what
// becomes of an element. The code is the count of steps that the sum of the short form holds.
#pragma once

#include "qk/codec/layout.hpp"
#include "qk/codec/quick_codes.hpp"
#include "qk/kernels/block_tiles.hpp"
#include "qk/kernels/quick_roundings.hpp"

namespace qk::detail {

// What makes the code of an element x at position i of the array, with what its block shares: code<Grid>(i, x, shared, form).

/// Half-even, of an element that has the step of its block: sign and magnitude, or two's complement.
template <class Arch>
struct step_codes {
    int width;
    bool complement;
    kernels::vi<Arch> most, mask;

    step_codes(int w, bool twos_complement) noexcept
        : width(w), complement(twos_complement), most(static_cast<std::int32_t>(low_bits(w - 1))), mask(static_cast<std::int32_t>(low_bits(w))) {}
    template <bool, class Form>
    QK_INLINE kernels::vi<Arch> code(std::size_t, kernels::vf<Arch> x, const kernels::quick_shared<Arch>& b, const Form&) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x), zero = kernels::as_int<Arch>(b.base);
        if (complement) {
            const V steps = kernels::as_int<Arch>(x + b.base) - zero;
            return xsimd::min(xsimd::max(steps, V(0) - most), most) & mask;
        }
        const V steps = kernels::as_int<Arch>(kernels::as_float<Arch>(u & V(kernels::magnitude_bits)) + b.base) - zero;
        return with_sign<Arch>(xsimd::min(steps, most), u, width);
    }
};

/// Half-even, of small floats.
template <class Arch>
struct element_codes_of {
    grid_codes<Arch> grid;

    template <bool, class Form>
    QK_INLINE kernels::vi<Arch> code(std::size_t, kernels::vf<Arch> x, const kernels::quick_shared<Arch>& b, const Form& form) const noexcept {
        if constexpr (requires { form.ratio_of(x, b); }) return grid(kernels::clamp_magnitude<Arch>(form.ratio_of(x, b), form.largest), form.least, form.magic);
        else return grid(x, kernels::as_int<Arch>(b.base), form.magic);
    }
};

/// In any rounding, with any sign of zero: the count of steps, plus 2^m for each binade above the lowest.
template <class Arch, class Rounded>
struct rounded_codes {
    Rounded rounded;
    int width;
    bool complement;
    kernels::vi<Arch> most;  ///< the largest magnitude's

    template <bool Grid, class Form>
    QK_INLINE kernels::vi<Arch> code(std::size_t i, kernels::vf<Arch> x, const kernels::quick_shared<Arch>& b, const Form& form) const noexcept {
        using V = kernels::vi<Arch>;
        const kernels::counted<Arch> c = rounded.template count<Grid>(i, x, b);
        V code = xsimd::to_int(c.steps);
        if constexpr (requires { form.least; }) code = code + ((c.binade - form.least) >> (23 - rounded.mantissa_bits));
        else if constexpr (Grid) code = code + ((c.binade - kernels::as_int<Arch>(b.base)) >> (23 - form.mantissa_bits));
        const V negative = c.sign >> 31;  // all bits
        if (!complement) return with_sign<Arch>(xsimd::min(code, most), c.sign, width);
        code = xsimd::min(code, rounded.uses_lowest ? most - negative : most);
        return ((code ^ negative) - negative) & V(static_cast<std::int32_t>(low_bits(width)));
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

    /// Of a block, by its largest magnitude; of a sub-block, by its block's and its own.
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
        const kernels::vi<Arch> code = elements.template code<Grid>(i, x, b, form);
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
        if constexpr (std::same_as<Format, microexponent>) clear_shifts_of_zeros(first, amax);
        if (writer.waits()) writer.put_waiting(out.elements.data() + writer.bytes(first * static_cast<std::size_t>(format.block_size)), waiting, tile_values());
    }

    /// A block of zeros has no shifts; pairs() may have set them where exponents are held to a lowest one.
    void clear_shifts_of_zeros(std::size_t first, kernels::vi<Arch> amax) const noexcept {
        const std::uint32_t zeros = kernels::bits_of<Arch>(amax == kernels::vi<Arch>(0));
        if (__builtin_expect(zeros == 0, 1)) return;
        const auto shifts = static_cast<std::size_t>(format.block_size) / 2;
        for (std::size_t b = 0; b < kernels::lanes<Arch>; ++b) {
            for (std::size_t k = 0; (zeros >> b & 1u) != 0 && k < shifts; ++k) put_code(out.shifts, (first + b) * shifts + k, 1, 0);
        }
    }
    /// A power of two: run_row_of_blocks has no other tiles.
    std::size_t tile_values() const noexcept { return kernels::lanes<Arch> * static_cast<std::size_t>(format.block_size); }
};

inline constexpr std::size_t largest_tile = 16 * 8 * 16;  ///< values: 16 blocks of 8 vectors of 16

/// Calls call.template operator()<element_step>(form, codes_of_blocks) with the short form that serves, half-even's or that of every rounding;
/// 0 where none does.
template <class Arch, known_codes Known, class Format, class Step, class Call>
std::size_t with_block_codes(const Format& f, const Step& step, planes out, std::uint8_t* waiting, const Call& call) noexcept {
    using kernels::element_step;
    const int width = element_width(f);
    if (scale_width(f) != 8 || (width > 8 && width != 16) || !kernels::default_environment<Arch>()) return 0;
    const auto with = [&]<element_step OfElement>(const auto& form, const auto& elements) {
        const auto scales = [&] {
            if constexpr (std::same_as<Format, nvfloat>) return grid_codes<Arch>(f.scale);
            else return nothing(0);
        };
        return call.template operator()<OfElement>(
            form, codes_of_blocks<Arch, Known.width, Format, std::remove_cvref_t<decltype(elements)>>{f, elements, out, waiting, {width}, scales()});
    };
    const auto half_even = kernels::quick_of<Arch>(step);
    /// `half_even_codes` are those of half-even; `most` is the code of the largest magnitude.
    const auto either = [&]<element_step OfElement>(const auto& half_even_codes, bool complement, std::uint32_t most) -> std::size_t {
        if (half_even.usable() && (complement || step.rules.zero == zero_sign::kept)) return with.template operator()<OfElement>(half_even, half_even_codes);
        const auto rounded = kernels::rounded_of<Arch>(step);
        if (!rounded.quick.usable()) return 0;
        const rounded_codes<Arch, std::remove_const_t<decltype(rounded)>> codes{rounded, width, complement, kernels::vi<Arch>(static_cast<std::int32_t>(most))};
        return with.template operator()<OfElement>(rounded.quick, codes);
    };
    if constexpr (std::same_as<Format, block_float>) {
        return either.template operator()<element_step::block>(step_codes<Arch>(width, false), false, low_bits(width - 1));
    } else if constexpr (std::same_as<Format, microexponent>) {
        return either.template operator()<element_step::pair>(step_codes<Arch>(width, false), false, low_bits(width - 1));
    } else {
        if constexpr (std::same_as<Format, microscaling> && (Known.blocks.step == element_step::unknown || Known.blocks.step == element_step::block)) {
            if (has_integer_elements(f)) return either.template operator()<element_step::block>(step_codes<Arch>(width, true), true, low_bits(width - 1));
        }
        if constexpr (Known.blocks.step != element_step::block) {
            return either.template operator()<element_step::element>(element_codes_of<Arch>{grid_codes<Arch>(f.element)}, false, code_of(f.element, static_cast<float>(max_value(f.element))));
        }
        return 0;
    }
}

/// `blocks` blocks in a row, which begin the planes; complete(first, count) does the blocks that are declined. Returns how many were done.
template <class Arch, known_codes Known, class Format, class Step, class Complete>
std::size_t encode_blocks_quickly(const Format& f, const Step& step, const float* x, planes out, std::size_t blocks, const Complete& complete) noexcept {
    if constexpr (std::same_as<Format, microexponent>) {
        if (f.shift_bits != 1) return 0;
    }
    alignas(64) std::uint8_t waiting[code_writer<Arch, Known.width>::may_wait ? largest_tile : 1];
    return with_block_codes<Arch, Known>(f, step, out, waiting, [&]<kernels::element_step OfElement>(const auto& form, const auto& codes) {
        constexpr kernels::block_shape shape{Known.blocks.size, OfElement};
        return kernels::run_row_of_blocks<Arch, shape>(x, blocks, static_cast<std::size_t>(f.block_size), form, codes, complete);
    });
}

}  // namespace qk::detail
