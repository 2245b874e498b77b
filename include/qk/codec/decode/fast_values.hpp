// SPDX-License-Identifier: Apache-2.0
// Turns codes of at most 8 bits, or of 16, into values a vector at a time: the fast form of `decode`. It handles every code. Only the ends
// of a plane, and codes that do not start at a whole byte, are left to the tiles of elements.hpp and blocks.hpp.
#pragma once

#include <cmath>
#include <limits>

#include "qk/codec/decode/byte_values.hpp"
#include "qk/codec/decode/sixteen_values.hpp"
#include "qk/codec/decode/word_values.hpp"
#include "qk/codec/layout/compile_time_facts.hpp"
#include "qk/formats/codes.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/formats/codes/groups.hpp"
#include "qk/formats/codes/unpack.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/memory/bits.hpp"
#include "qk/memory/narrow_codes.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Unpacks `n` codes (rounded up to a multiple of 8) of any width below 8, a byte each.
template <class Arch>
QK_APART void part_any(int width, const std::byte* in, const std::byte* end, std::size_t n, std::uint8_t* codes) noexcept {
    with_width<any_width>(width, [&](auto each) {
        for (std::size_t k = 0; k < n; k += 8, in += decltype(each)::value) {
            const std::uint64_t eight = eight_codes<decltype(each)::value>(in, end);
            std::memcpy(codes + k, &eight, 8);
        }
    });
}

/// Reads vectors of codes. `Known` is their width, or any_width.
template <class Arch, int Known>
struct code_reader {
    static constexpr bool in_registers = has_narrow_codes<Arch>() && may_be_narrow(Known);

    int given;
    const std::byte* end;  ///< nothing is read from here on
    int from = 0;          ///< the bit of a byte at which narrow codes start: 0 where has_narrow_codes() is false
    std::conditional_t<in_registers, narrow_reader<Arch>, nothing> narrow{given, from};

    QK_INLINE int width() const noexcept { return Known > 0 ? Known : given; }
    QK_INLINE std::size_t bytes(std::size_t codes) const noexcept { return codes * static_cast<std::size_t>(width()) / 8; }

    /// Reads `Count` codes (a multiple of 8 and of the lanes) from byte `in` on, a lane each.
    template <std::size_t Count>
    QK_INLINE void read(const std::byte* in, kernels::vi<Arch>* code) const {
        constexpr std::size_t w = kernels::lanes<Arch>, vectors = Count / w;
        if (may_be_wide(Known, 8) && width() == 8) {
            kernels::unrolled<vectors>(
                [&](auto k) QK_INLINE_CALL { code[k] = kernels::load_codes<Arch>(reinterpret_cast<const std::uint8_t*>(in) + k * w); });
        } else if (may_be_wide(Known, 16) && width() == 16) {
            kernels::unrolled<vectors>(
                [&](auto k) QK_INLINE_CALL { code[k] = kernels::load_codes<Arch>(reinterpret_cast<const std::uint16_t*>(in) + k * w); });
        } else if constexpr (in_registers) {
            kernels::unrolled<vectors>([&](auto k) QK_INLINE_CALL { code[k] = narrow.load(in + bytes(k * w), end); });
        } else {
            alignas(16) std::uint8_t apart[Count];
            part_any<Arch>(width(), in, end, Count, apart);
            kernels::unrolled<vectors>([&](auto k) QK_INLINE_CALL { code[k] = kernels::load_codes<Arch>(apart + k * w); });
        }
    }
    /// Reads `Count` codes likewise and calls put(k, codes from number k on) for each vector.
    template <std::size_t Count, class Put>
    QK_INLINE void each_vector(const std::byte* in, const Put& put) const {
        constexpr std::size_t w = kernels::lanes<Arch>, together = w % 8 == 0 && Known % 8 == 0 && Known > 0 ? w : Count;
        kernels::unrolled<Count / together>([&](auto g) QK_INLINE_CALL {
            kernels::vi<Arch> code[together / w];
            read<together>(in + bytes(g * together), code);
            kernels::unrolled<together / w>([&](auto k) QK_INLINE_CALL { put(g * together + k * w, code[k]); });
        });
    }
};

/// Is true when the fast form handles codes of this width that start at whole bytes, in the current floating-point environment.
template <class Arch>
bool decodes_fast(int width) noexcept {
    if (kernels::lanes<Arch> == 1 && width % 8 != 0) return false;  // four codes need not fill whole bytes
    return (width <= 8 || width == 16) && kernels::default_environment<Arch>();
}

/// Is true when this architecture decodes some codes 32 at a time.
template <class Arch>
constexpr bool decodes_in_groups() noexcept {
    return has_byte_values<Arch>() || has_half_values<Arch>() || has_sixteen_values<Arch>();
}

/// Decodes 32 codes at a time by each(in, put), while so many are left: y = factor * value. Returns how many were done.
template <class Arch, class Each, class Factors>
QK_INLINE std::size_t decode_groups_by(const Each& each, std::size_t step, const std::byte* in, float* y, std::size_t n,
                                       const Factors& factors, bool streaming) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    const Factors by = factors;
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32, in += step) {
        const auto factor = by.of_tile(i);
        each(in, [&](std::size_t k, kernels::vf<Arch> v) QK_INLINE_CALL { kernels::put<Arch>(y + i + k, v * factor(k / w), streaming); });
    }
    return i;
}

/// Decodes codes of 4 bits likewise, by the 16 numbers that they stand for. (By itself, so that tables and constants have all registers.)
template <class Arch, class Factors>
QK_APART std::size_t decode_by_sixteen(const float* numbers, const std::byte* in, float* y, std::size_t n, const Factors& factors,
                                       bool streaming) noexcept {
    const sixteen_values<Arch> values(numbers);
    const auto each = [&](const std::byte* from, const auto& put) QK_INLINE_CALL { values.each(from, put); };
    return decode_groups_by<Arch>(each, 16, in, y, n, factors, streaming);
}

/// Decodes codes of 8 bits likewise, if their values need no lower half. Returns how many were done.
template <class Arch, class Values, class Factors>
QK_APART std::size_t decode_by_words(const Values& of, const std::byte* in, float* y, std::size_t n, const Factors& factors,
                                     bool streaming) noexcept {
    const word_values<Arch> values(of);
    if (!values.usable()) return 0;
    const auto each = [&](const std::byte* from, const auto& put) QK_INLINE_CALL { values.each(from, put); };
    return decode_groups_by<Arch>(each, 32, in, y, n, factors, streaming);
}

/// Decodes codes that half_values, byte_values, sixteen_values or word_values supports, 32 at a time. Returns how many were done.
template <class Arch, int Known, class Factors>
QK_APART std::size_t decode_32_at_a_time(const floating_values<Arch>& values, const std::byte* in, float* y, std::size_t n,
                                         const Factors& factors, bool streaming) noexcept {
    std::size_t done = 0;
    [[maybe_unused]] const int width = bits(values.format);
    [[maybe_unused]] const auto step = static_cast<std::size_t>(4 * width);
    if constexpr (has_half_values<Arch>()) {
        const float unit = half_unit(values.format);
        if (half_form_of(values.format) != half_form::none && factors.takes(unit)) {
            half_values<Arch>(values.format).template with_form<Known>([&](const auto& each) QK_INLINE_CALL {
                done = decode_groups_by<Arch>(each, step, in, y, n, factors.times(unit), streaming);
            });
            return done;
        }
    }
    if constexpr (has_byte_values<Arch>() && Known <= 8) {
        if (!in_bytes(values.format)) return 0;
        byte_values<Arch> bytes;
        bytes.fill(values.format, values);
        bytes.template with_kind<Known>(
            width, [&](const auto& each) QK_INLINE_CALL { done = decode_groups_by<Arch>(each, step, in, y, n, factors, streaming); });
    } else if constexpr (has_sixteen_values<Arch>() && may_be_wide(Known, 4)) {
        if (width == 4) return decode_by_sixteen<Arch>(sixteen_numbers<Arch>(values).number, in, y, n, factors, streaming);
    }
    if constexpr (has_word_values<Arch>() && may_be_wide(Known, 8)) {
        if (width == 8 && n >= least_for_words && !values.power_of_two) return decode_by_words<Arch>(values, in, y, n, factors, streaming);
    }
    return done;
}
template <class Arch, int Known, class Factors>
std::size_t decode_32_at_a_time(const listed_values<Arch>& values, const std::byte* in, float* y, std::size_t n, const Factors& factors,
                                bool streaming) noexcept {
    if constexpr (has_sixteen_values<Arch>() && may_be_wide(Known, 4)) {
        if (values.size > 8 && values.size <= 16) return decode_by_sixteen<Arch>(values.numbers, in, y, n, factors, streaming);
    }
    if constexpr (has_word_values<Arch>() && may_be_wide(Known, 8)) {
        if (values.size > 128 && n >= least_for_words) return decode_by_words<Arch>(values, in, y, n, factors, streaming);
    }
    return 0;
}
template <class Arch, int Known, class Factors>
std::size_t decode_32_at_a_time(const integer_values<Arch>& values, const std::byte* in, float* y, std::size_t n, const Factors& factors,
                                bool streaming) noexcept {
    if constexpr (has_sixteen_values<Arch>() && may_be_wide(Known, 4)) {
        if (values.up == 32 - 4) return decode_by_sixteen<Arch>(sixteen_numbers<Arch>(values).number, in, y, n, factors, streaming);
    }
    return 0;
}

/// The same with a zero point for each run, which is taken from the numbers as a float.
template <class Arch, int Known, bool Whole, class Factors>
QK_APART std::size_t decode_32_at_a_time([[maybe_unused]] const integer_values_by_table<Arch, Whole>& values,
                                         [[maybe_unused]] const std::byte* in, [[maybe_unused]] float* y, [[maybe_unused]] std::size_t n,
                                         [[maybe_unused]] const Factors& factors, [[maybe_unused]] bool streaming) noexcept {
    std::size_t i = 0;
    if constexpr (has_sixteen_values<Arch>() && may_be_wide(Known, 4)) {
        constexpr std::size_t w = kernels::lanes<Arch>;
        if (values.of.up != 32 - 4 || !values.are_small()) return 0;
        const auto number = [&](kernels::vi<Arch> code) QK_INLINE_CALL { return to_float(values.of.number(code)); };
        const sixteen_values<Arch> sixteen(sixteen_numbers<Arch>(number).number);
        const Factors by = factors;
        for (; i + 32 <= n; i += 32, in += 16) {
            const auto factor = by.of_tile(i);
            const auto less = numbers_of_tile<Whole, kernels::vi<Arch>>(values.zero, values.at, i);
            sixteen.each(in, [&](std::size_t k, kernels::vf<Arch> v)
                                 QK_INLINE_CALL { kernels::put<Arch>(y + i + k, (v - to_float(less(k / w))) * factor(k / w), streaming); });
        }
    }
    return i;
}

/// Computes the values of `N` vectors of codes of a floating format, which branch often: for all N together where registers are many.
template <std::size_t N, class Arch>
QK_INLINE void values_of(const floating_values<Arch>& values, const kernels::vi<Arch>* code, kernels::vf<Arch>* to) noexcept {
    if constexpr (kernels::lanes<Arch> == 16) values.template each<N>(code, to);
    else kernels::unrolled<N>([&](auto k) QK_INLINE_CALL { to[k] = values(code[k]); });
}

/// Decodes n values from number `first` on: y = factor * values(code). Returns how many were done.
template <class Arch, int Known, class Values, class Factors>
std::size_t decode_row(const Values& given, std::span<const std::byte> plane, std::size_t first, float* y, std::size_t n, int width,
                       const Factors& factors, bool streaming) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = 4 * w;
    QK_TRACE("rows", first, n, Values);
    const std::byte* in = plane.data() + first * static_cast<std::size_t>(width) / 8;
    std::size_t i = 0;
    if constexpr (decodes_in_groups<Arch>() && requires { decode_32_at_a_time<Arch, Known>(given, in, y, n, factors, streaming); })
        i = decode_32_at_a_time<Arch, Known>(given, in, y, n, factors, streaming);
    const Values values = given;
    const Factors by = factors;
    const code_reader<Arch, Known> codes{width, plane.data() + plane.size()};
    in += codes.bytes(i);
    for (; i + count <= n; i += count, in += codes.bytes(count)) {
        const auto factor = by.of_tile(i);
        const auto put = [&](std::size_t k, kernels::vf<Arch> v)
                             QK_INLINE_CALL { kernels::put<Arch>(y + i + k, v * factor(k / w), streaming); };
        if constexpr (std::same_as<Values, floating_values<Arch>>) {
            kernels::vi<Arch> code[4];
            kernels::vf<Arch> v[4];
            codes.template read<count>(in, code);
            values_of<4, Arch>(values, code, v);
            kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { put(k * w, v[k]); });
        } else if constexpr (requires { values.of_tile(i); }) {
            const auto value = values.of_tile(i);
            codes.template each_vector<count>(in,
                                              [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, value(code, k / w)); });
        } else {
            codes.template each_vector<count>(in, [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, values(code)); });
        }
    }
    return i;
}

/// Decodes `rows` of n values, `stride` apart, from number `first` on, which need not be at a whole byte. Column k has a factor of its own:
/// y = factor[k] * values(code).
template <class Arch, int Known, class Values>
void decode_columns(const Values& given, std::span<const std::byte> plane, std::size_t first, float* y, std::size_t rows,
                    std::size_t stride, std::size_t n, int width, const float* factor) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = std::max<std::size_t>(w, 8);
    constexpr std::size_t together = w == 16 ? 4 : w == 8 ? 2 : 1;  // vectors of a floating format, which branches often
    const Values values = given;
    // Decodes whole groups from value i on and returns where they end.
    const auto groups = [&](std::size_t i, std::size_t bit) QK_INLINE_CALL {
        const code_reader<Arch, Known> codes{width, plane.data() + plane.size(), static_cast<int>(bit % 8)};
        const std::byte* in = plane.data() + bit / 8;
        const auto put = [&](std::size_t k, kernels::vf<Arch> v)
                             QK_INLINE_CALL { kernels::store<Arch>(y + i + k, v * kernels::load<Arch>(factor + i + k)); };
        if constexpr (std::same_as<Values, floating_values<Arch>> && together != 1) {
            for (; i + together * w <= n; i += together * w, in += codes.bytes(together * w)) {
                kernels::vi<Arch> code[together];
                kernels::vf<Arch> v[together];
                codes.template read<together * w>(in, code);
                values.template each<together>(code, v);
                kernels::unrolled<together>([&](auto k) QK_INLINE_CALL { put(k * w, v[k]); });
            }
        }
        for (; i + count <= n; i += count, in += codes.bytes(count))
            codes.template each_vector<count>(in, [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, values(code)); });
        return i;
    };
    for (std::size_t j = 0; j < rows; ++j, first += stride, y += stride) {
        QK_TRACE("rows", first, n, Values);
        const auto bit_of = [&](std::size_t i) { return (first + i) * static_cast<std::size_t>(width); };
        const auto at_any = [&](std::size_t i) { return bit_of(i) % 8 == 0 || has_narrow_codes<Arch>(); };
        std::size_t i = at_any(0) ? groups(0, bit_of(0)) : 0;
        if (i < n && i != 0 && at_any(n - count)) i = groups(n - count, bit_of(n - count));  // some once more
        for (; i < n; i += w) {
            alignas(64) std::uint32_t code[w] = {};
            const std::size_t some = std::min(w, n - i);
            get_codes<Arch>(plane, first + i, some, width, code);
            const kernels::vf<Arch> value = values(kernels::load<Arch>(reinterpret_cast<const std::int32_t*>(code)));
            kernels::store_first<Arch>(y + i, some, value * kernels::load_first<Arch>(factor + i, some));
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
