// SPDX-License-Identifier: Apache-2.0
// Takes codes of elementwise formats straight from the sums of the fast forms (kernels/rounding/fast.hpp), a vector at a time.
//
// A sum's bits are those of c * K plus the rounded element counted in steps of its binade. So the code of a float is that count, plus 2^m
// for each binade above the lowest; the mantissa carries into the exponent by itself. encode_elements' tiles do what the fast forms cannot.
#pragma once

#include "qk/codec/encode/byte_codes.hpp"
#include "qk/codec/layout/bits.hpp"
#include "qk/codec/layout/code.hpp"
#include "qk/codec/layout/compile_time_facts.hpp"
#include "qk/codec/layout/narrow_codes.hpp"
#include "qk/formats/integer/fast.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/kernels/lanes/streaming.hpp"

namespace qk::detail {

/// Puts the signs of `bits` where the code has them: at bit width - 1.
template <class Arch>
QK_INLINE kernels::vi<Arch> with_sign(kernels::vi<Arch> code, kernels::vi<Arch> bits, int width) noexcept {
    using V = kernels::vi<Arch>;
    return code | (kernels::as_int<Arch>(kernels::as_unsigned<Arch>(bits) >> (32 - width)) & V(1 << (width - 1)));
}

/// Makes codes of small floats from the sum of magnitudes, t = |x| + c * K.
template <class Arch>
struct grid_codes {
    int shift, width;
    kernels::vi<Arch> offset, highest;
    bool lone_zero;  ///< the format has no -0

    explicit grid_codes(floating f) noexcept
        : shift(23 - f.mantissa_bits),
          width(bits(f)),
          offset(((23 - f.mantissa_bits) << 23) | kernels::half_bit),
          highest(static_cast<std::int32_t>(code_of(f, static_cast<float>(max_value(f))))),
          lone_zero(!has_negative_zero(f)) {}

    /// Returns the codes of x. `least` is the c of the lowest binade.
    QK_INLINE kernels::vi<Arch> operator()(kernels::vf<Arch> x, kernels::vi<Arch> least, kernels::vf<Arch> magic) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x);
        const V code = of_magnitude(kernels::as_float<Arch>(u & V(kernels::magnitude_bits)), least, magic);
        if (lone_zero) return select(code > V(0), with_sign<Arch>(code, u, width), code);
        return with_sign<Arch>(code, u, width);
    }
    /// Returns the codes of a >= 0.
    QK_INLINE kernels::vi<Arch> of_magnitude(kernels::vf<Arch> a, kernels::vi<Arch> least, kernels::vf<Arch> magic) const noexcept {
        using V = kernels::vi<Arch>;
        const V c = max(kernels::as_int<Arch>(a) & V(kernels::exponent_mask), least);
        const V sum = kernels::as_int<Arch>(fma(kernels::as_float<Arch>(c), magic, a));
        return min((sum + ((c >> shift) - c)) - (offset + (least >> shift)), highest);
    }
};

/// Elementwise coders: prepare() divides four vectors by the scale; the tile test looks at these, and the result of code() is stored.
template <class Arch>
struct floating_coder {
    kernels::fast_floating<Arch> fast;
    grid_codes<Arch> grid;
    bytes_if_any<Arch, grid_bytes> packed;
    kernels::fast_divisor<Arch> over_scale;
    bool scaled;

    floating_coder(floating f, const semantics& how, const kernels::fast_floating<Arch>& q, float scale) noexcept
        : fast(q), grid(f), packed(f), over_scale(scale, fast.tie_bits), scaled(scale != 1.0f) {
        if (how.rounding != rounding::half_even) fast.limit = kernels::no_value;
    }
    bool usable() const noexcept { return fast.limit != kernels::no_value && grid.width <= 16; }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = over_scale(x[k]); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept { return grid(x, fast.least, fast.magic); }
    /// Returns the codes of four vectors, if the width is at most 8.
    QK_INLINE auto bytes(const kernels::vf<Arch>* x) const noexcept requires(has_byte_codes<Arch>()) {
        const kernels::vf<Arch> magic = packed.magic_of(fast.least);
        return packed(
            x, [&](int) QK_INLINE_CALL { return fast.least; }, [&](int) QK_INLINE_CALL { return magic; });
    }
    QK_INLINE bool serves_bytes() const noexcept requires(has_byte_codes<Arch>()) { return grid.width <= 8 && packed.serves(); }
};

/// The coder of formats with the exponents of float32.
template <class Arch>
struct truncated_coder {
    kernels::fast_truncation<Arch> fast;
    kernels::vf<Arch> scale;
    bool scaled;

    truncated_coder(const kernels::fast_floating<Arch>& q, float s) noexcept : fast(q), scale(s), scaled(s != 1.0f) {}
    bool usable() const noexcept { return true; }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = kernels::quotient<Arch>(x[k], scale); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept {
        const kernels::vi<Arch> u = kernels::as_int<Arch>(x);
        return kernels::as_int<Arch>(kernels::as_unsigned<Arch>(u + fast.below_half + ((u >> fast.shift) & fast.one)) >> fast.shift);
    }
};

/// The coder of e8m0: a code is the exponent field of the nearest power of two.
template <class Arch>
struct power_coder {
    kernels::fast_power_of_two<Arch> fast;
    kernels::vf<Arch> scale;
    bool scaled;

    power_coder(floating f, const semantics& how, float s) noexcept : fast(kernels::rules_of(f, how)), scale(s), scaled(s != 1.0f) {}
    bool usable() const noexcept { return fast.usable(); }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE kernels::vi<Arch> tested(kernels::vf<Arch> x) const noexcept { return fast.tested(x); }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = kernels::quotient<Arch>(x[k], scale); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x);
        return select(u < V(0), V(255), (u + V(kernels::half_bit)) >> 23);
    }
};

template <class Arch>
struct integer_coder {
    kernels::fast_integer<Arch> fast;
    kernels::vi<Arch> offset, mask;
    bytes_if_any<Arch, integer_bytes> packed;
    kernels::fast_divisor<Arch> over_scale;
    kernels::fast_scale<Arch> by;

    integer_coder(integer f, const semantics& how, bool one_scale, float scale, std::int64_t zero) noexcept
        : fast(kernels::rules_of(f, how, one_scale)),
          offset(static_cast<std::int32_t>(static_cast<std::uint32_t>(zero) -
                                           std::bit_cast<std::uint32_t>(kernels::fast_integer<Arch>::middle))),
          mask(static_cast<std::int32_t>(low_bits(f.bits))),
          packed(f, zero),
          over_scale(scale, f.bits < 20 ? f.bits + 1 : 0) {
        const auto lowest = static_cast<float>(qmin(f) - zero), highest = static_cast<float>(qmax(f) - zero);
        const bool may_be_fast = how.rounding == rounding::half_even && f.bits <= 16;
        const kernels::vf<Arch> s(scale);
        using V = kernels::vi<Arch>;
        by = {s,
              kernels::quotient<Arch>(kernels::vf<Arch>(1.0f), s),
              s,
              V(fast.sum_of(lowest)),
              V(fast.sum_of(highest)),
              may_be_fast ? fast.limit_of(scale, lowest, highest) : kernels::no_value};
    }
    bool usable() const noexcept { return by.limit != kernels::no_value; }
    std::int32_t limit() const noexcept { return by.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>*) const noexcept {}
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept {
        return ((fast.multiply ? fast.template sum<true>(x, by) : fast.clamped(over_scale(x), by)) + offset) & mask;
    }
    QK_INLINE auto bytes(const kernels::vf<Arch>* x) const noexcept requires(has_byte_codes<Arch>()) {
        kernels::vi<Arch> sums[4];
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
            const kernels::vf<Arch> t = fast.multiply ? kernels::opaque<Arch>(x[k] * by.high) : over_scale(x[k]);
            sums[k] = kernels::as_int<Arch>(t + kernels::vf<Arch>(fast.middle));
        });
        return packed(sums);
    }
    QK_INLINE bool serves_bytes() const noexcept requires(has_byte_codes<Arch>()) { return packed.serves(); }
};

/// Packs `n` codes (a multiple of 8) of any width below 8, given a byte each, from a whole byte of a plane on.
template <class Arch>
QK_APART void join_any(int width, const std::uint8_t* codes, std::size_t n, std::byte* to) noexcept {
    with_width<any_width>(width, [&](auto each) { join_codes<decltype(each)::value>(codes, n, to); });
}

/// Writes vectors of codes. `Known` is their width, or any_width.
template <class Arch, int Known>
struct code_writer {
    static constexpr bool in_registers = has_narrow_codes<Arch>() && may_be_narrow(Known);
    /// Narrow codes wait until more of them are packed together, where a vector of them need not end at a whole byte.
    static constexpr bool may_wait = may_be_narrow(Known) && !has_narrow_codes<Arch>();

    int given;
    std::conditional_t<in_registers, narrow_writer<Arch>, nothing> narrow{given};

    QK_INLINE int width() const noexcept { return Known > 0 ? Known : given; }
    QK_INLINE bool waits() const noexcept { return may_wait && width() < 8; }
    QK_INLINE std::size_t bytes(std::size_t codes) const noexcept {
        if constexpr (Known > 0 && Known % 8 == 0) return codes * (Known / 8);
        return codes * static_cast<std::size_t>(width()) / 8;
    }

#if defined(__AVX2__)
    /// Writes four vectors of codes of at most 8 bits, in the order of kernels::packed_bytes.
    QK_INLINE void put_packed(std::byte* to, __m256i codes) const noexcept {
        if constexpr (may_be_wide(Known, 8)) {
            if (width() == 8) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), kernels::in_order(codes));
        }
        if constexpr (in_registers) narrow.template store_packed<Known>(to, codes, given);
    }
    /// put_apart stores such codes a byte each; put_joined packs n of those (a multiple of 32) into the plane.
    QK_INLINE void put_apart(std::uint8_t* apart, __m256i codes) const noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(apart), codes);
    }
    QK_INLINE void put_joined(std::byte* to, const std::uint8_t* apart, std::size_t n) const noexcept {
#pragma GCC unroll 1
        for (std::size_t k = 0; k < n; k += 32) put_packed(to + bytes(k), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(apart + k)));
    }
#endif
    /// Writes vectors of codes from a whole byte on. Not called where codes wait (waits()).
    template <std::size_t Vectors>
    QK_INLINE void put(std::byte* to, const kernels::vi<Arch>* code) const noexcept {
        constexpr std::size_t w = kernels::lanes<Arch>;
#if defined(__AVX2__)
        if constexpr (has_byte_codes<Arch>() && Vectors == 4 && Known <= 8) {
            if (width() <= 8) return put_packed(to, kernels::packed_codes<Arch>(code));
        }
        if constexpr (has_byte_codes<Arch>() && Vectors == 4 && may_be_wide(Known, 16)) {
            if (width() == 16) {
                for (std::size_t k = 0; k < 4; k += 2) kernels::store_two<Arch>(reinterpret_cast<std::uint16_t*>(to) + k * w, code + k);
                return;
            }
        }
#endif
        if constexpr (may_be_wide(Known, 8)) {
            if (width() == 8)
                return kernels::unrolled<Vectors>(
                    [&](auto k) QK_INLINE_CALL { kernels::store_codes<Arch>(reinterpret_cast<std::uint8_t*>(to) + k * w, code[k]); });
        }
        if constexpr (may_be_wide(Known, 16)) {
            if (width() == 16)
                return kernels::unrolled<Vectors>(
                    [&](auto k) QK_INLINE_CALL { kernels::store_codes<Arch>(reinterpret_cast<std::uint16_t*>(to) + k * w, code[k]); });
        }
        if constexpr (in_registers)
            kernels::unrolled<Vectors>([&](auto k) QK_INLINE_CALL { narrow.template store<Known>(to + bytes(k * w), code[k], given); });
    }
    /// Packs `n` codes that waited, a byte each.
    QK_INLINE void put_waiting(std::byte* to, const std::uint8_t* codes, std::size_t n) const noexcept {
        if constexpr (may_wait && Known != any_width) join_codes<Known>(codes, n, to);
        else if constexpr (may_wait) join_any<Arch>(given, codes, n, to);
    }
};

/// Encodes n values from a whole byte of the plane on, four vectors at least. The last four vectors may overlap those before, and must
/// begin at a whole byte, too. Vectors that the coder cannot encode go to general(begin, count).
template <class Arch, int Known, class Coder>
QK_INLINE void encode_row(const Coder& given, const float* x, std::size_t n, std::byte* out, int width,
                          const kernels::range_call& general) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = 4 * w;
    using V = kernels::vi<Arch>;
    const Coder coder = given;
    const code_writer<Arch, Known> writer{width};
    const V limit = kernels::opaque<Arch>(V(coder.limit()));  // in a register
    [[maybe_unused]] bool in_bytes = false;
    if constexpr (requires { coder.serves_bytes(); }) in_bytes = coder.serves_bytes();
    const std::size_t last = n - count, ahead = kernels::distance_in_row(n);
    for (std::size_t i = 0, next = 0; next < n; next += count, i = std::min(next, last)) {
        kernels::vf<Arch> v[4];
        V most(INT32_MIN), codes[4];
        kernels::read_ahead<Arch, 4>(x + i, ahead);
        for (std::size_t k = 0; k < 4; ++k) v[k] = kernels::load_in_turn<Arch>(x + i + k * w);
        coder.prepare(v);
        for (std::size_t k = 0; k < 4; ++k) most = max(most, kernels::tested<Arch>(coder, v[k]));
        if (__builtin_expect(any(most > limit), 0)) {
            general(i, count);
            continue;
        }
#if defined(__AVX2__)
        if constexpr (has_byte_codes<Arch>() && Known <= 8 && requires { coder.bytes(v); }) {
            if (in_bytes) {
                writer.put_packed(out + writer.bytes(i), coder.bytes(v));
                continue;
            }
        }
#endif
        for (std::size_t k = 0; k < 4; ++k) codes[k] = coder.code(v[k]);
        if (writer.waits()) {
            std::uint8_t waiting[count];
            for (std::size_t k = 0; k < 4; ++k) kernels::store_codes<Arch>(waiting + k * w, codes[k]);
            writer.put_waiting(out + writer.bytes(i), waiting, count);
        } else {
            writer.template put<4>(out + writer.bytes(i), codes);
        }
    }
}

/// encode_row with a coder: takes (x, n, out, general).
using row_encoder = kernels::call_with<const float*, std::size_t, std::byte*, const kernels::range_call&>;

/// Encodes any number n of values from any bit of the plane on: makes their codes in a buffer beside it and copies the bits.
template <class Arch>
void encode_beside(const row_encoder& encode, const float* x, std::size_t first, std::size_t n, std::span<std::byte> plane, int width,
                   const kernels::range_call& general) noexcept {
    constexpr std::size_t count = 4 * kernels::lanes<Arch>, most = 8 * count;
    const auto bytes = [&](std::size_t codes) { return codes * static_cast<std::size_t>(width) / 8; };
    for (std::size_t at = 0; at < n; at += most) {
        const std::size_t some = std::min(most, n - at), whole = some - some % count;
        alignas(64) std::byte codes[2 * most];
        alignas(64) float last[count] = {};
        std::uint32_t declined = 0;
        const auto row = [&](const float* v, std::size_t from, std::size_t values) {
            const auto note = [&](std::size_t i, std::size_t) { declined |= 1u << (from + i) / count; };
            encode(v, values, codes + bytes(from), kernels::range_call(note));
        };
        if (whole != 0) row(x + at, 0, whole);
        if (whole < some) {
            std::memcpy(last, x + at + whole, (some - whole) * sizeof(float));
            row(last, whole, count);
        }
        copy_bits<Arch>(plane, (first + at) * static_cast<std::size_t>(width), codes, 0, some * static_cast<std::size_t>(width));
        for (std::size_t i = 0; declined != 0; i += count, declined >>= 1)
            if ((declined & 1u) != 0) general(at + i, std::min(count, some - i));
    }
}

/// Encodes a run that starts at value `first` of the plane. Returns false where the coder cannot.
template <class Arch, int Known, class Coder>
bool encode_fast(const Coder& coder, const float* x, std::size_t first, std::size_t n, std::span<std::byte> plane, int width,
                 const kernels::range_call& general) noexcept {
    const std::size_t bit = first * static_cast<std::size_t>(width);
    if (!coder.usable() || (width > 8 && width != 16) || !kernels::default_environment<Arch>()) return false;
    if (kernels::lanes<Arch> == 1 && width % 8 != 0) return false;  // four codes need not fill whole bytes
    constexpr std::size_t count = 4 * kernels::lanes<Arch>;
    const auto row = [&](const float* v, std::size_t values, std::byte* out, const kernels::range_call& declined)
                         QK_APART { encode_row<Arch, Known>(coder, v, values, out, width, declined); };
    const bool overlaps = n >= count && (n - count) * static_cast<std::size_t>(width) % 8 == 0;
    const std::size_t whole = bit % 8 != 0 ? 0 : overlaps ? n : n - n % count;
    if (whole != 0) row(x, whole, plane.data() + bit / 8, general);
    const auto behind = [&](std::size_t i, std::size_t some) { general(whole + i, some); };
    if (whole < n) encode_beside<Arch>(row_encoder(row), x + whole, first + whole, n - whole, plane, width, kernels::range_call(behind));
    return true;
}

}  // namespace qk::detail
