// SPDX-License-Identifier: Apache-2.0
// repack(): codes, scales and zero points from one layout to another, and what changes on the way.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/layout/planes.hpp"

namespace qk {

struct layout_changes;

namespace layout_parts {
inline namespace QK_ISA {
constexpr void add_change(layout_changes& c, std::string_view sentence, bool still_exact, bool of_data);
}  // namespace QK_ISA
}  // namespace layout_parts

/// What two layouts do not share. Views are of literals.
struct layout_changes {
    bool possible = true;  ///< the codes mean the same, and the groups of one divide those of the other
    bool exact = true;     ///< every matrix keeps its numbers; else repack() counts what does not fit
    std::array<std::string_view, 8> says{};
    std::array<bool, 8> by_data{};  ///< the sentence is true of some matrices: what repack() counts tells of which
    int count = 0;
    std::string_view refusal{};  ///< the first sentence that says why it is not possible

    QK_INLINE constexpr void add(std::string_view sentence, bool still_exact, bool of_data = false) {
        layout_parts::add_change(*this, sentence, still_exact, of_data);
    }
    QK_INLINE constexpr void refuse(std::string_view sentence) {
        if (possible) refusal = sentence;
        possible = false;
        add(sentence, false);
    }
};

/// What repack() did.
struct repack_result {
    bool done = false;
    std::size_t scales_rounded = 0;  ///< scales that the other type does not have
    std::size_t zeros_lost = 0;      ///< zero points that it cannot hold, with whatever codes
    std::size_t biases_rounded = 0;  ///< zero points times scales that the type of biases does not have
    float scale_error = 0;           ///< the largest of the rounded scales, as a part of the scale
    float bias_error = 0;            ///< the largest of the rounded biases, in steps of a code
    bool global_rounded = false;     ///< the reciprocal of the global scale is not exact
    bool global_dropped = false;     ///< the other layout has none: keep it beside (ggml's NAME.scale)

    /// Every code means the same number in both.
    QK_INLINE constexpr bool exact() const {
        return done && scales_rounded == 0 && zeros_lost == 0 && biases_rounded == 0 && !global_rounded && !global_dropped;
    }
    /// Rounding has moved the numbers by so little that codes made anew would be further away: scales by no more than types of 8 bits of
    /// precision round, biases by no more than a quarter of a step.
    QK_INLINE constexpr bool close() const { return done && zeros_lost == 0 && scale_error <= 0x1p-8f && bias_error <= 0.25f; }
};

namespace layout_parts {
inline namespace QK_ISA {

constexpr void add_change(layout_changes& c, std::string_view sentence, bool still_exact, bool of_data) {
    const auto at = static_cast<std::size_t>(c.count);
    if (at < c.says.size()) c.by_data[at] = of_data, c.says[at] = sentence, ++c.count;
    c.exact = c.exact && still_exact;
}

/// A block type whose codes and scales other layouts have, too, as a layout of planes with the same numbers.
constexpr layout planes_of(const layout& l) {
    if (l.order != code_order::ggml_blocks) return l;
    layout p = l;
    p.codes = element::unsigned_integer, p.scale = scale_type::f16;
    switch (l.block) {
        case ggml_type::q4_0: p.bits = 4, p.group_columns = 32, p.offset = 8; return p;
        case ggml_type::q5_0: p.bits = 5, p.group_columns = 32, p.offset = 16; return p;
        case ggml_type::q8_0: p.codes = element::signed_integer, p.bits = 8, p.group_columns = 32; return p;
        case ggml_type::q4_1: p.bits = 4, p.group_columns = 32, p.zero = zero_type::bias; return p;
        case ggml_type::q5_1: p.bits = 5, p.group_columns = 32, p.zero = zero_type::bias; return p;
        case ggml_type::q2_0: p.bits = 2, p.group_columns = 64, p.offset = 1; return p;
        case ggml_type::tq2_0:
        case ggml_type::tq1_0: p.bits = 2, p.group_columns = 256, p.offset = 1; return p;
        case ggml_type::mxfp4: p.codes = element::e2m1, p.bits = 4, p.group_columns = 32, p.scale = scale_type::e8m0; return p;
        case ggml_type::nvfp4: p.codes = element::e2m1, p.bits = 4, p.group_columns = 16, p.scale = scale_type::ue4m3; return p;
        default: return l;
    }
}
constexpr unsigned scale_byte(ggml_type t) {
    using enum ggml_type;
    return t == tq1_0 ? 52u : t == tq2_0 ? 64u : 0u;
}

inline std::uint32_t block_scale(const layout& planes, matrix_shape s, std::span<const std::byte> codes, std::size_t row, std::size_t g,
                                 bool bias) {
    const ggml_facts f = facts_of(planes.block);
    const std::size_t in_block = f.values / static_cast<std::size_t>(planes.group_columns),
                      width = static_cast<std::size_t>(bits_of(planes.scale) / 8);
    const auto* block = raw(codes) + (row * (s.columns / f.values) + g / in_block) * f.bytes;
    std::uint32_t v = 0;
    std::memcpy(&v, block + scale_byte(planes.block) + g % in_block * width + (bias ? 2 : 0), width);
    return v;
}
inline void put_block_scale(const layout& planes, matrix_shape s, std::span<std::byte> codes, std::size_t row, std::size_t g, bool bias,
                            std::uint32_t v) {
    const ggml_facts f = facts_of(planes.block);
    const std::size_t in_block = f.values / static_cast<std::size_t>(planes.group_columns),
                      width = static_cast<std::size_t>(bits_of(planes.scale) / 8);
    auto* block = raw(codes) + (row * (s.columns / f.values) + g / in_block) * f.bytes;
    std::memcpy(block + scale_byte(planes.block) + g % in_block * width + (bias ? 2 : 0), &v, width);
}

/// The bits of the nearest value that a scale's type has, and whether it is `x` itself.
struct stored_scale {
    std::uint32_t bits;
    bool exact;
};
inline stored_scale store_scale(scale_type t, float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    switch (t) {
        case scale_type::f32: return {u, true};
        case scale_type::bf16: return {narrow<bfloat16>(x).bits, round_to_bfloat(x) == x};
        case scale_type::f16: return {narrow<float16>(x).bits, round_to_half(x) == x};
        case scale_type::e8m0:
            if (u - 0x00800000u < 0x7f000000u) {  // a normal number: the power below or above it, the even code on a tie
                const std::uint32_t below = u >> 23, part = u & 0x7fffffu;
                const bool up = below < 254 && (part > 0x400000u || (part == 0x400000u && below % 2 != 0));
                return {below + (up ? 1u : 0u), part == 0};
            }
            [[fallthrough]];
        case scale_type::e4m3:
        case scale_type::ue4m3: {  // few codes: the nearest, the even one on a tie
            std::uint32_t best = 0;
            float least = -1;
            for (std::uint32_t c = 0; c < (t == scale_type::e8m0 ? 255u : 127u); ++c) {
                const float d = std::fabs(scale_value(t, c) - x);
                if (least < 0 || d < least || (d == least && best % 2 != 0)) best = c, least = d;
            }
            return {best, least == 0};
        }
        default: return {0, x == 1};
    }
}

/// Whether every scale of type `a` has a value in type `b`.
constexpr bool holds_all(scale_type a, scale_type b) {
    using enum scale_type;
    if (a == b || b == f32) return true;
    if (b == bf16) return a == e8m0 || a == e4m3 || a == ue4m3;
    if (b == f16) return a == e4m3 || a == ue4m3;
    return a == ue4m3 && b == e4m3;
}

/// Interleaves ggml's blocks of several rows, or takes them apart again.
inline void exchange_rows(const layout& rows, matrix_shape s, const std::uint8_t* in, std::uint8_t* out, bool apart) {
    const ggml_facts f = facts_of(rows.block);
    const auto n = static_cast<std::size_t>(rows.interleaved), turn = static_cast<std::size_t>(rows.interleaved_bytes);
    const std::size_t blocks = s.columns / f.values, head = rows.block == ggml_type::mxfp4 ? 1 : 2, body = f.bytes - head;
    const std::uint8_t flip = rows.block == ggml_type::q4_0 ? 0x88 : 0;  // ggml's repacked q4_0 has signed nibbles
    for (std::size_t band = 0; band < s.rows / n; ++band)
        for (std::size_t x = 0; x < blocks; ++x) {
            const std::size_t together = (band * blocks + x) * n * f.bytes;
            const auto single = [&](std::size_t row) { return ((band * n + row) * blocks + x) * f.bytes; };
            for (std::size_t row = 0; row < n; ++row)
                for (std::size_t k = 0; k < head; ++k)
                    if (apart) out[single(row) + k] = in[together + row * head + k];
                    else out[together + row * head + k] = in[single(row) + k];
            for (std::size_t i = 0; i < n * body; ++i) {
                const std::size_t part = i / turn, row = part % n, byte = part / n * turn + i % turn;
                if (apart) out[single(row) + head + byte] = in[together + n * head + i] ^ flip;
                else out[together + n * head + i] = in[single(row) + head + byte] ^ flip;
            }
        }
}

constexpr bool is_integer(const layout& l) { return l.codes == element::unsigned_integer || l.codes == element::signed_integer; }
/// What is added to a code to count from 0, and the largest code that is counted so.
constexpr int base_of(const layout& planes) { return planes.codes == element::signed_integer ? 1 << (planes.bits - 1) : 0; }
constexpr int top_code(const layout& planes) {
    return planes.order == code_order::ggml_blocks && planes.block == ggml_type::tq1_0 ? 2 : (1 << planes.bits) - 1;
}
/// Whether a layout has a place for a zero point that is counted from 0.
constexpr bool holds_zero(const layout& planes, int zero) {
    if (planes.zero == zero_type::none) return zero == base_of(planes) + planes.offset;
    if (planes.zero == zero_type::bias) return false;
    const int stored = zero - (planes.zero == zero_type::int8              ? planes.offset + base_of(planes)
                               : planes.zero == zero_type::packed_words_m1 ? 1
                                                                           : 0);
    return planes.zero == zero_type::int8 ? stored >= -128 && stored <= 127 : stored >= 0 && stored < 1 << planes.bits;
}

/// Moves one group of codes after the other with its scale and zero point. Between begin_row and end_row integers count from 0, and the
/// codes of a group may be moved together with its zero point: by what a layout without zero points asks for, else by the least that
/// makes zero point or bias fit.
class group_mover {
  public:
    group_mover(const layout& a, const layout& b, matrix_shape s, const matrix_planes& in, const mutable_planes& out, repack_result& made)
        : a_(a), b_(b), s_(s), in_(in), out_(out), made_(made), integers_(is_integer(a)) {}

    void begin_row(std::size_t row, std::span<std::uint8_t> codes) {
        row_ = row;
        r_in_ = a_.group_rows == 0 ? 0 : row / static_cast<std::size_t>(a_.group_rows);
        r_ = b_.group_rows == 0 ? 0 : row / static_cast<std::size_t>(b_.group_rows);
        first_ = b_.group_rows == 0 ? row == 0 : row % static_cast<std::size_t>(b_.group_rows) == 0;
        flip(codes, base_of(a_));
    }
    void end_row(std::span<std::uint8_t> codes) const { flip(codes, base_of(b_)); }

    void move(std::size_t g, std::span<std::uint8_t> codes) {
        const std::size_t width = b_.group_columns == 0 ? s_.columns : static_cast<std::size_t>(b_.group_columns);
        const std::size_t g_in = a_.group_columns == 0 ? 0 : g * width / static_cast<std::size_t>(a_.group_columns);
        if (!integers_ && !first_) return;
        const float before = value(g_in, false), after = move_scale(g, before, scale_of(g_in, false));
        if (!integers_) return;
        int by = 0;
        if (a_.zero == zero_type::bias && b_.zero == zero_type::bias) keep_bias(g, scale_of(g_in, true), after);
        else {
            const std::optional<int> zero = zero_of(g_in, before);
            if (!zero) made_.zeros_lost += first_;
            else by = b_.zero == zero_type::bias ? put_bias(g, *zero, after, codes) : put_zero_point(g, *zero, codes);
        }
        if (by != 0)
            for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(code + by);
    }

  private:
    void flip(std::span<std::uint8_t> codes, int base) const {
        if (base != 0 && integers_)
            for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(code ^ static_cast<unsigned>(base));
    }
    std::uint32_t scale_of(std::size_t g_in, bool bias) const {
        if (a_.scale == scale_type::none) return 0;
        if (a_.order == code_order::ggml_blocks) return block_scale(a_, s_, in_.codes, row_, g_in, bias);
        return scale_bits(a_, s_, bias ? in_.zeros : in_.scales, r_in_, g_in);
    }
    float value(std::size_t g_in, bool bias) const {
        return a_.scale == scale_type::none ? 1.0f : scale_value(a_.scale, scale_of(g_in, bias));
    }
    void put(std::size_t g, bool bias, std::uint32_t bits) {
        if (!first_ || b_.scale == scale_type::none) return;
        if (b_.order == code_order::ggml_blocks) put_block_scale(b_, s_, out_.codes, row_, g, bias, bits);
        else put_scale_bits(b_, s_, bias ? out_.zeros : out_.scales, r_, g, bits);
    }
    /// Returns the scale as it is stored.
    float move_scale(std::size_t g, float before, std::uint32_t bits) {
        stored_scale stored{bits, true};
        if (a_.scale != b_.scale) stored = store_scale(b_.scale, before);
        const float after = scale_value(b_.scale, stored.bits);
        put(g, false, stored.bits);
        if (first_ && !stored.exact) {
            ++made_.scales_rounded;
            const float error = std::fabs(after - before) / std::fabs(before);
            made_.scale_error = std::max(made_.scale_error, error >= 0 ? error : std::numeric_limits<float>::infinity());
        }
        return after;
    }
    void keep_bias(std::size_t g, std::uint32_t bits, float scale) {
        const stored_scale stored = a_.scale == b_.scale ? stored_scale{bits, true} : store_scale(b_.scale, scale_value(a_.scale, bits));
        put(g, true, stored.bits);
        note_bias(static_cast<double>(scale_value(a_.scale, bits)), stored, scale);
    }
    void note_bias(double wanted, const stored_scale& stored, float scale) {
        if (!first_ || stored.exact) return;
        ++made_.biases_rounded;
        const double error = std::fabs((static_cast<double>(scale_value(b_.scale, stored.bits)) - wanted) / static_cast<double>(scale));
        made_.bias_error = std::max(made_.bias_error, error >= 0 ? static_cast<float>(error) : std::numeric_limits<float>::infinity());
    }
    /// The zero point of a group, counted from 0; of a bias it is the whole number that times the scale is that bias, if there is one.
    std::optional<int> zero_of(std::size_t g_in, float scale) const {
        if (a_.zero != zero_type::bias) return zero_at(a_, s_, in_.zeros, r_in_, g_in) + base_of(a_);
        const double bias = static_cast<double>(value(g_in, true)),
                     zero = bias == 0 ? 0 : std::nearbyint(-bias / static_cast<double>(scale));
        if (!(std::fabs(zero) < 1024) || zero * static_cast<double>(scale) != -bias) return std::nullopt;
        return static_cast<int>(zero);
    }
    /// How far the codes may go down and up.
    struct room {
        int down, up;
    };
    room room_of(std::span<const std::uint8_t> codes) const {
        const auto [low, high] = std::minmax_element(codes.begin(), codes.end());
        return codes.empty() ? room{0, 0} : room{-int{*low}, top_code(b_) - int{*high}};
    }
    int put_bias(std::size_t g, int zero, float scale, std::span<const std::uint8_t> codes) {
        const auto at = [&](int by) {
            const double bias = 0.0 - static_cast<double>(zero + by) * static_cast<double>(scale);
            stored_scale stored = store_scale(b_.scale, static_cast<float>(bias));
            stored.exact = static_cast<double>(scale_value(b_.scale, stored.bits)) == bias;
            return stored;
        };
        stored_scale stored = at(0);
        int by = 0;
        if (!stored.exact && b_.group_rows == 1) {
            const room r = room_of(codes);
            for (int k = 1; k <= std::max(-r.down, r.up) && by == 0; ++k)
                for (const int step : {k, -k})
                    if (by == 0 && step >= r.down && step <= r.up && at(step).exact) by = step;
            stored = at(by);
        }
        put(g, true, stored.bits);
        note_bias(0.0 - static_cast<double>(zero + by) * static_cast<double>(scale), stored, scale);
        return by;
    }
    int put_zero_point(std::size_t g, int zero, std::span<const std::uint8_t> codes) {
        int by = 0;
        bool fits = holds_zero(b_, zero);
        if (b_.zero == zero_type::none) by = b_.offset + base_of(b_) - zero;
        if (!fits || by != 0 || top_code(a_) > top_code(b_)) {
            const room r = room_of(codes);
            if (!fits && b_.zero != zero_type::none && b_.group_rows == 1)
                for (int k = 1; k < 256 && !fits; ++k)
                    for (const int step : {k, -k})
                        if (!fits && holds_zero(b_, zero + step)) by = step, fits = true;
            fits = holds_zero(b_, zero + by) && by >= r.down && by <= r.up;
        }
        if (!fits) {
            ++made_.zeros_lost;
            return 0;
        }
        if (first_) put_zero(b_, s_, out_.zeros, r_, g, zero + by - base_of(b_));
        return by;
    }

    layout a_, b_;
    matrix_shape s_;
    matrix_planes in_;
    mutable_planes out_;
    repack_result& made_;
    bool integers_, first_ = true;
    std::size_t row_ = 0, r_in_ = 0, r_ = 0;
};
}  // namespace QK_ISA
}  // namespace layout_parts

inline namespace QK_ISA {

/// Says whether matrices can go from one layout to the other code by code, and what is not the same in both.
constexpr layout_changes compare_layouts(const layout& from, const layout& to) {
    layout_changes c;
    if (from == to) return c;
    const bool rows = from.order == code_order::ggml_rows || to.order == code_order::ggml_rows;
    if (rows) {
        if (from.block != to.block || from.codes != element::ggml || to.codes != element::ggml)
            c.refuse("repacked rows of ggml come from blocks of the same type, and go back to them");
        return c;
    }
    const layout a = layout_parts::planes_of(from), b = layout_parts::planes_of(to);
    if (a.codes == element::ggml || b.codes == element::ggml) {
        if (from.block != to.block || from.codes != to.codes) c.refuse("this block type's codes exist in no other layout");
        return c;
    }
    const bool integers = (a.codes == element::unsigned_integer || a.codes == element::signed_integer) &&
                          (b.codes == element::unsigned_integer || b.codes == element::signed_integer);
    if (integers && a.bits > b.bits) c.refuse("the codes are wider than those of the other layout");
    else if (!integers && (a.codes != b.codes || a.bits != b.bits)) c.refuse("the codes are of different formats");
    if (a.group_rows != b.group_rows && !(a.group_rows > 1 && b.group_rows == 1)) c.refuse("a scale covers other rows");
    if (a.group_columns != b.group_columns && (b.group_columns == 0 || (a.group_columns != 0 && a.group_columns % b.group_columns != 0)))
        c.refuse("a scale covers more values than before");
    else if (a.group_columns != b.group_columns || a.group_rows != b.group_rows) c.add("scales are repeated for smaller groups", true);
    if (!layout_parts::holds_all(a.scale, b.scale)) c.add("scales are rounded where the other type does not have them", false, true);
    if (b.zero == zero_type::bias && a.zero != zero_type::bias)
        c.add("zero points become floats that are added after scaling, and are rounded where their type does not have them", false, true);
    else if (a.zero == zero_type::bias && b.zero != zero_type::bias)
        c.add("floats that are added after scaling must be whole multiples of the scale to become zero points", false, true);
    else if (a.zero != b.zero || layout_parts::base_of(a) + a.offset != layout_parts::base_of(b) + b.offset ||
             layout_parts::top_code(a) > layout_parts::top_code(b))
        c.add("zero points must fit the other layout",
              a.zero == zero_type::none && layout_parts::holds_zero(b, layout_parts::base_of(a) + a.offset), true);
    if (a.global != b.global) {
        if (a.global == global_type::none) c.add("the global scale is 1", true);
        else if (b.global == global_type::none) c.add("the global scale stays outside", false);
        else c.add("the global scale becomes its reciprocal", false);
    }
    if (a.positive_zero != b.positive_zero || from.codes != to.codes) {
        if (a.codes == element::e2m1) c.add("the code of -0 means +0 in one of them", true);
    }
    if (a.product != b.product) c.add("the readers multiply in different number types", true);
    return c;
}

/// Moves a matrix from one layout to another. `out` has the sizes of sizes_of(to, shape) and is overwritten; `scratch` has a byte for each
/// column. `done` is false where compare_layouts says that it is impossible; where a scale, zero point or bias does not fit, it is counted.
/// Named groups (`in.group_of`) keep their numbers: the caller takes the names along.
inline repack_result repack(const layout& from, matrix_shape s, const matrix_planes& in, const layout& to, const mutable_planes& out,
                            std::span<std::uint8_t> scratch) {
    repack_result made;
    if (!compare_layouts(from, to).possible) return made;
    made.done = true;
    const auto copy = [](std::span<const std::byte> a, std::span<std::byte> b) {
        if (!a.empty()) std::memcpy(b.data(), a.data(), a.size() < b.size() ? a.size() : b.size());
    };
    if (out.global != nullptr) *out.global = in.global;
    if (from == to || layout_parts::planes_of(from).codes == element::ggml) {
        const bool apart = from.order == code_order::ggml_rows;
        if (from.order == to.order) copy(in.codes, out.codes), copy(in.scales, out.scales), copy(in.zeros, out.zeros);
        else layout_parts::exchange_rows(apart ? from : to, s, layout_parts::raw(in.codes), layout_parts::raw(out.codes), apart);
        return made;
    }
    if (from.order == code_order::ggml_rows || to.order == code_order::ggml_rows) {
        const bool apart = from.order == code_order::ggml_rows;
        layout_parts::exchange_rows(apart ? from : to, s, layout_parts::raw(in.codes), layout_parts::raw(out.codes), apart);
        return made;
    }
    const layout a = layout_parts::planes_of(from), b = layout_parts::planes_of(to);
    for (std::span<std::byte> plane : {out.codes, out.scales, out.zeros})
        if (!plane.empty()) std::memset(plane.data(), 0, plane.size());
    if (out.global != nullptr && a.global != b.global && a.global != global_type::none && b.global != global_type::none) {
        *out.global = 1 / in.global;
        made.global_rounded = 1 / *out.global != in.global || !(std::fma(*out.global, in.global, -1.0f) == 0);
    }
    made.global_dropped = a.global != global_type::none && b.global == global_type::none && in.global != 1;
    layout_parts::group_mover mover(a, b, s, in, out, made);
    const std::size_t groups = groups_of(b, s), width = b.group_columns == 0 ? s.columns : static_cast<std::size_t>(b.group_columns);
    for (std::size_t row = 0; row < s.rows; ++row) {
        unpack_row(from, s, in.codes, row, scratch.data());
        mover.begin_row(row, scratch.first(s.columns));
        for (std::size_t g = 0; g < groups; ++g) mover.move(g, scratch.subspan(g * width, std::min(width, s.columns - g * width)));
        mover.end_row(scratch.first(s.columns));
        pack_row(to, s, scratch.data(), row, out.codes);
    }
    return made;
}

}  // namespace QK_ISA

}  // namespace qk
