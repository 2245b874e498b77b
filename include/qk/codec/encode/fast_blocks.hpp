// SPDX-License-Identifier: Apache-2.0
// The fast form of `encode` for blocks that lie in a row: uses the tiles of kernels/drivers/block_rows.hpp, but stores codes instead of
// values. The code is the count of steps that the sum of the fast form holds.
#pragma once

#include "qk/codec/encode/fast_codes.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/formats/codes.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/kernels/drivers/block_rows.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

// The classes below make codes: code<Grid>(i, x, shared, form) is that of element x at position i of the array; `shared` is its block's.

/// Rounds half-even elements that have the step of their block, to sign and magnitude or two's complement.
template <class Arch>
struct step_codes {
    int width;
    bool complement;
    kernels::vi<Arch> most, mask;
    kernels::vi<Arch> magnitude = kernels::opaque<Arch>(kernels::vi<Arch>(kernels::magnitude_bits));  ///< kept, not made for each tile
    bytes_if_any<Arch, step_bytes> packed;

    step_codes(int w, bool twos_complement) noexcept
        : width(w),
          complement(twos_complement),
          most(static_cast<std::int32_t>(low_bits(w - 1))),
          mask(static_cast<std::int32_t>(low_bits(w))),
          packed(w, twos_complement) {}
    template <bool, class Form>
    QK_INLINE kernels::vi<Arch> code(std::size_t, kernels::vf<Arch> x, const kernels::block_shared<Arch>& b, const Form&) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x), zero = kernels::as_int<Arch>(b.base);
        if (complement) {
            const V steps = kernels::as_int<Arch>(x + b.base) - zero;
            return min(max(steps, V(0) - most), most) & mask;
        }
        const V steps = kernels::as_int<Arch>(kernels::as_float<Arch>(u & magnitude) + b.base) - zero;
        return with_sign<Arch>(min(steps, most), u, width);
    }
    static constexpr bool serves() noexcept { return true; }
    /// Returns the codes of four vectors; own[k] is what the block of vector k shares. The width is at most 8.
    template <class Form>
    QK_INLINE auto bytes(const kernels::vf<Arch>* x, const kernels::block_shared<Arch>* own, const Form&) const noexcept {
        return packed(x, [&](auto k) QK_INLINE_CALL { return own[k].base; });
    }
};

/// Rounds half-even to small floats.
template <class Arch>
struct element_codes_of {
    grid_codes<Arch> grid;
    bytes_if_any<Arch, grid_bytes> packed;

    explicit element_codes_of(floating f) noexcept : grid(f), packed(f) {}
    bool serves() const noexcept {
        if constexpr (has_byte_codes<Arch>()) return grid.width > 8 || packed.serves();
        else return true;
    }

    template <bool, class Form>
    QK_INLINE kernels::vi<Arch> code(std::size_t, kernels::vf<Arch> x, const typename Form::shared_type& b,
                                     const Form& form) const noexcept {
        if constexpr (requires { form.ratio_of(x, b); })
            return grid(kernels::clamp_magnitude<Arch>(form.ratio_of(x, b), form.largest), form.least, form.magic);
        else return grid(x, kernels::as_int<Arch>(b.base), form.magic);
    }
    template <class Form>
    QK_INLINE auto bytes(const kernels::vf<Arch>* x, const typename Form::shared_type* own, const Form& form) const noexcept {
        if constexpr (requires { form.ratio_of(x[0], own[0]); }) {  // magnitudes beyond the largest, Inf too, have codes beyond the highest
            kernels::vf<Arch> q[4];
            kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { q[k] = form.ratio_of(x[k], own[k]); });
            const kernels::vf<Arch> magic = packed.magic_of(form.least);
            return packed(
                q, [&](int) QK_INLINE_CALL { return form.least; }, [&](int) QK_INLINE_CALL { return magic; });
        } else {
            return packed(
                x, [&](auto k) QK_INLINE_CALL { return kernels::as_int<Arch>(own[k].base); },
                [&](auto k) QK_INLINE_CALL { return own[k].magic; });
        }
    }
};

/// What blocks of small floats share when codes are made in bytes: grid_bytes' K instead of the largest magnitude.
template <class Arch>
struct coded_shared {
    kernels::vf<Arch> base{}, magic{};
    static constexpr kernels::vf<Arch> coded_shared::*parts[] = {&coded_shared::base, &coded_shared::magic};
};
/// The fast form of such blocks.
template <class Arch>
struct coded_block : kernels::fast_block<Arch> {
    using shared_type = coded_shared<Arch>;
    bytes_if_any<Arch, grid_bytes> packed;

    coded_block(const kernels::fast_block<Arch>& form, floating element) noexcept : kernels::fast_block<Arch>(form), packed(element) {}
    template <std::size_t Sub>
    QK_INLINE bool share(kernels::vi<Arch> amax, kernels::vf<Arch> ratio, shared_type& b) const noexcept {
        kernels::block_shared<Arch> of_block;
        const bool served = kernels::fast_block<Arch>::template share<Sub>(amax, ratio, of_block);
        b = {of_block.base, packed.magic_of(kernels::as_int<Arch>(of_block.base))};
        return served;
    }
};

/// Rounds in any mode, with any sign of zero. A code is the count of steps, plus 2^m for each binade above the lowest. With `OneStep`, all
/// elements of a block have the same step.
template <class Arch, class Rounded, bool OneStep>
struct rounded_codes {
    Rounded rounded;
    int width;
    bool complement;
    std::int32_t largest;  ///< the code of the largest magnitude
    kernels::vi<Arch> most{largest};

    QK_INLINE void make_words(std::uint32_t* to, std::size_t i, std::size_t n) noexcept { rounded.rounds.make_words(to, i, n); }
    /// Returns a code without its sign, not clamped.
    template <class Form>
    QK_INLINE kernels::vi<Arch> magnitude(const kernels::counted<Arch, true>& c, const typename Form::shared_type& b,
                                          const Form& form) const noexcept {
        const kernels::vi<Arch> code = c.steps;
        if constexpr (OneStep) return code;
        else if constexpr (requires { form.least; }) return code + ((c.binade - form.least) >> (23 - rounded.mantissa_bits));
        else return code + ((c.binade - kernels::as_int<Arch>(b.base)) >> (23 - form.mantissa_bits));  // 0 where a block has one step
    }
    template <bool, class Form>
    QK_INLINE kernels::vi<Arch> code(std::size_t i, kernels::vf<Arch> x, const typename Form::shared_type& b,
                                     const Form& form) const noexcept {
        using V = kernels::vi<Arch>;
        const kernels::counted<Arch, true> c = rounded.template count<OneStep, false, true>(i, x, b);
        const V code = magnitude(c, b, form);
        // A quotient by a floating scale is clamped before it is rounded.
        if constexpr (requires { form.least; }) return with_sign<Arch>(code, c.sign, width);
        const V negative = c.sign >> 31;  // all ones where negative
        if (!complement) return with_sign<Arch>(min(code, most), c.sign, width);
        const V held = min(code, rounded.uses_lowest ? most - negative : most);
        return ((held ^ negative) - negative) & V(static_cast<std::int32_t>(low_bits(width)));
    }
#if QK_HAS(BYTE_SHUFFLES)
    /// Returns the codes of four vectors, the first at position i. The width is at most 8.
    template <class Form>
    QK_INLINE __m256i bytes(std::size_t i, const kernels::vf<Arch>* x, const typename Form::shared_type* own,
                            const Form& form) const noexcept {
        kernels::vi<Arch> codes[4], signs[4];
        const auto count = [&](auto signless) QK_INLINE_CALL {
            kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
                const kernels::counted<Arch, true> c =
                    rounded.template count<OneStep, decltype(signless)::value, true>(i + k * kernels::lanes<Arch>, x[k], own[k]);
                codes[k] = magnitude(c, own[k], form);
                signs[k] = c.sign;
            });
        };
        complement ? count(std::true_type()) : count(std::false_type());  // two's complement has one zero
        const auto byte = [](int v) QK_INLINE_CALL { return _mm256_set1_epi8(static_cast<char>(v)); };
        const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), kernels::packed_bytes<Arch>(signs));
        const __m256i magnitudes = kernels::packed_codes<Arch>(codes);
        if (!complement)
            return _mm256_or_si256(_mm256_min_epu8(magnitudes, byte(largest)), _mm256_and_si256(negative, byte(1 << (width - 1))));
        const __m256i limit = rounded.uses_lowest ? _mm256_sub_epi8(byte(largest), negative) : byte(largest);
        const __m256i held = _mm256_sub_epi8(_mm256_xor_si256(_mm256_min_epu8(magnitudes, limit), negative), negative);
        return _mm256_and_si256(held, byte(static_cast<int>(low_bits(width))));
    }
#endif
};

template <class Format>
constexpr int shift_width(const Format& f) {
    if constexpr (has_sub_blocks<Format>) return f.shift_bits;
    else return 0;
}

template <class Elements>
concept rounds_in_any_way = requires(const Elements& e) {
    e.rounded;
};

/// Writes the codes of blocks. `Elements` makes the codes of elements, `Scales` those of scales and shared exponents.
template <class Arch, int Known, class Elements, class Scales>
struct codes_of_blocks {
    static constexpr kernels::output_traits traits{
        .unrolls = kernels::is_baseline<Arch> ? kernels::unrolled_part::nothing : kernels::unrolled_part::two_vectors,
        .any_rounding = rounds_in_any_way<Elements>,
        .in_fours = has_byte_codes<Arch>(),
        .reads_ahead = true};
    using elements_type = Elements;
    Elements elements;
    Scales scales;
    planes out;
    std::uint8_t* waiting;  ///< codes of a tile, a byte each, before they are packed into a plane
    code_writer<Arch, Known> writer;
    std::size_t block_size;
    int shift_bits;  ///< 0: no sub-blocks

    QK_INLINE kernels::vi<Arch> shift_code(kernels::vi<Arch> amax, kernels::vi<Arch> own) const noexcept {
        return min((amax >> 23) - (own >> 23), kernels::vi<Arch>(static_cast<std::int32_t>(low_bits(shift_bits))));
    }
    template <bool Grid, bool, class Form>
    QK_INLINE void put(std::size_t i, bool, kernels::vf<Arch> x, const typename Form::shared_type& b, const Form& form) const noexcept {
        const kernels::vi<Arch> code = elements.template code<Grid>(i, x, b, form);
        if (writer.waits()) kernels::store_codes<Arch>(waiting + (i & (tile_values() - 1)), code);
        else writer.template put<1>(out.elements.data() + writer.bytes(i), &code);
    }
    /// Stores the random words of n values from number i on in `to` (kernels::fast_rounding).
    QK_INLINE void make_words(std::uint32_t* to, std::size_t i, std::size_t n) noexcept { elements.make_words(to, i, n); }
    /// Writes four vectors, from position i on. Codes narrower than a byte are left in `apart` for put_joined: the instructions that join
    /// them would wait for all the work before them and fill the processor's queues meanwhile.
    template <bool Grid, class Form>
    QK_INLINE void put_four(std::size_t i, const kernels::vf<Arch>* x, const typename Form::shared_type* own, const Form& form,
                            [[maybe_unused]] std::uint8_t* apart) const noexcept {
        std::byte* to = out.elements.data() + writer.bytes(i);
        if constexpr (Known <= 8) {
            if (writer.width() <= 8) {
                const auto codes = [&]() QK_INLINE_CALL {
                    if constexpr (traits.any_rounding) return elements.bytes(i, x, own, form);
                    else return elements.bytes(x, own, form);
                }();
                if (writer.width() < 8) return writer.put_apart(apart, codes);
                return writer.put_packed(to, codes);
            }
        }
        kernels::vi<Arch> code[4];
        kernels::unrolled<4>(
            [&](auto k) QK_INLINE_CALL { code[k] = elements.template code<Grid>(i + k * kernels::lanes<Arch>, x[k], own[k], form); });
        writer.template put<4>(to, code);
    }
    /// Writes the n codes that put_four left, from position i on.
    QK_INLINE void put_joined(std::size_t i, [[maybe_unused]] const std::uint8_t* apart, std::size_t n) const noexcept {
        if constexpr (has_byte_codes<Arch>() && may_be_narrow(Known)) {
            if (writer.width() < 8) writer.put_joined(out.elements.data() + writer.bytes(i), apart, n);
        }
    }
#if QK_HAS(BYTE_SHUFFLES)
    /// Writes the shifts of four vectors.
    QK_INLINE void pairs(std::size_t i, const kernels::vi<Arch>* exponents, const kernels::vi<Arch>* least) const noexcept {
        const std::uint16_t bits = kernels::bits_of_pairs_of_four<Arch>(exponents, least);
        std::memcpy(out.shifts.data() + i / 16, &bits, 2);
    }
#endif
    QK_INLINE void pairs(std::size_t i, kernels::vi<Arch> exponents, kernels::vi<Arch> least) const noexcept {
        constexpr std::size_t bits_each = kernels::lanes<Arch> / 2;
        // `least` is one binade below the block's exponent: the pairs that do not reach above it are shifted.
        const std::uint32_t bits = kernels::bits_of_pairs<Arch>(exponents <= least);
        const std::size_t at = i / 2;
        auto* p = reinterpret_cast<std::uint8_t*>(out.shifts.data()) + at / 8;
        if constexpr (bits_each == 8) *p = static_cast<std::uint8_t>(bits);
        else *p = static_cast<std::uint8_t>((at % 8 == 0 ? 0u : *p) | bits << at % 8);
    }
    /// Writes what the blocks of a tile share; the tile starts at block `first`.
    template <class Form>
    QK_INLINE void put_shared(std::size_t first, kernels::vi<Arch> amax, kernels::vf<Arch> ratio, const Form& form) const noexcept {
        kernels::store_codes<Arch>(reinterpret_cast<std::uint8_t*>(out.scales.data()) + first, scales.code(amax, ratio, form));
    }
    template <class Form>
    QK_INLINE void finish(std::size_t first, kernels::vi<Arch> amax, kernels::vf<Arch> ratio, const Form& form) const noexcept {
        if constexpr (!traits.in_fours) put_shared(first, amax, ratio, form);
        if (shift_bits != 0) clear_shifts_of_zeros(first, amax);
        if (writer.waits()) writer.put_waiting(out.elements.data() + writer.bytes(first * block_size), waiting, tile_values());
    }

    /// Clears the shifts of blocks of zeros: pairs() may have set them where exponents are clamped to a lowest one.
    void clear_shifts_of_zeros(std::size_t first, kernels::vi<Arch> amax) const noexcept {
        const std::uint32_t zeros = kernels::bits_of<Arch>(amax == kernels::vi<Arch>(0));
        if (__builtin_expect(zeros == 0, 1)) return;
        const std::size_t shifts = block_size / 2;
        for (std::size_t b = 0; b < kernels::lanes<Arch>; ++b) {
            for (std::size_t k = 0; (zeros >> b & 1u) != 0 && k < shifts; ++k) put_code(out.shifts, (first + b) * shifts + k, 1, 0);
        }
    }
    /// A power of two: run_row_of_blocks has no other tiles.
    std::size_t tile_values() const noexcept { return kernels::lanes<Arch> * block_size; }
};

inline constexpr std::size_t largest_tile = 16 * 8 * 16;  ///< values: 16 blocks of 8 vectors of 16

/// Returns what is known of a format when the code for these elements is compiled. Roundings other than half-even of elements with steps of
/// their own are rare and slower, so they are compiled once for all widths.
template <class Elements, kernels::element_step OfElement>
constexpr compile_time_facts known_to(compile_time_facts known) {
    return rounds_in_any_way<Elements> && OfElement != kernels::element_step::block ? compile_time_facts{any_width, known.blocks} : known;
}

/// Calls call.template operator()<element_step>(form, codes_of_blocks) with the fast form that applies, for half-even or for every
/// rounding. Returns 0 where none applies.
template <class Arch, compile_time_facts Known, class Format, class Step, class Call>
std::size_t with_block_codes(const Format& f, const Step& step, planes out, std::uint8_t* waiting, const Call& call) noexcept {
    using kernels::element_step;
    const int width = element_width(f);
    if (scale_width(f) != 8 || (width > 8 && width != 16) || !kernels::default_environment<Arch>()) return 0;
    if constexpr (under_power_scales<Format>) {
        if (element_max_exponent(f) < 0) return 0;  // exponent_codes has a code above 0 for blocks of zeros then
    }
    const auto with = [&]<element_step OfElement, class Elements>(const auto& form, const Elements& elements) {
        const auto scales = scale_codes_of<Arch>(f, form);
        return call.template operator()<OfElement>(
            form, codes_of_blocks<Arch, known_to<Elements, OfElement>(Known).width, Elements, std::remove_const_t<decltype(scales)>>{
                      elements, scales, out, waiting, {width}, static_cast<std::size_t>(f.block_size), shift_width(f)});
    };
    const auto half_even = kernels::fast_of<Arch>(step);
    /// `half_even_codes` makes the codes for half-even; `most` is the code of the largest magnitude.
    const auto either = [&]<element_step OfElement>(const auto& form, const auto& half_even_codes, bool complement,
                                                    [[maybe_unused]] std::uint32_t most) -> std::size_t {
        if (form.usable() && half_even_codes.serves() && (complement || step.rules.zero == zero_sign::kept))
            return with.template operator()<OfElement>(form, half_even_codes);
        if constexpr (!kernels::is_baseline<Arch>) {
            const auto rounded = kernels::rounded_of<Arch>(step);
            if (!rounded.fast.usable()) return 0;
            const rounded_codes<Arch, std::remove_const_t<decltype(rounded)>, OfElement == element_step::block> codes{
                rounded, width, complement, static_cast<std::int32_t>(most)};
            return with.template operator()<OfElement>(rounded.fast, codes);
        }
        return 0;
    };
    if constexpr (!has_elements<Format>) {
        return either.template operator()<kernels::shape_of(Format{}).step>(half_even, step_codes<Arch>(width, false), false,
                                                                            low_bits(width - 1));
    } else {
        if constexpr (under_power_scales<Format> &&
                      (Known.blocks.step == element_step::unknown || Known.blocks.step == element_step::block)) {
            if (has_integer_elements(f))
                return either.template operator()<element_step::block>(half_even, step_codes<Arch>(width, true), true, low_bits(width - 1));
        }
        if constexpr (Known.blocks.step != element_step::block) {
            const std::uint32_t most = code_of(f.element, static_cast<float>(max_value(f.element)));
            const auto with_form = [&](const auto& form) {
                return either.template operator()<element_step::element>(form, element_codes_of<Arch>(f.element), false, most);
            };
            if constexpr (has_byte_codes<Arch>() && under_power_scales<Format>) return with_form(coded_block<Arch>(half_even, f.element));
            else return with_form(half_even);
        }
        return 0;
    }
}

/// Encodes `blocks` blocks in a row, from the start of the planes on. Blocks that the fast form cannot encode go to general(first, count).
/// Returns how many were done.
template <class Arch, compile_time_facts Known, kernels::element_step OfElement, class Form, class Codes>
std::size_t encode_row_of_blocks(const Form& form, const Codes& codes, const float* x, std::size_t blocks,
                                 const kernels::range_call& general) noexcept {
    if (codes.shift_bits > 1) return 0;
    QK_TRACE("block_rows", 0, blocks * codes.block_size, Form, typename Codes::elements_type);
    constexpr kernels::block_shape shape{known_to<typename Codes::elements_type, OfElement>(Known).blocks.size, OfElement};
    return kernels::run_row_of_blocks<Arch, shape>(x, blocks, codes.block_size, form, codes, general);
}

}  // namespace QK_ISA
}  // namespace qk::detail
