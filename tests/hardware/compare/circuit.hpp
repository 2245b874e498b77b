// SPDX-License-Identifier: Apache-2.0
// A converter as a circuit of integers, written without qk's code: signals of each lane in their order, and faults in them.
//
//     float32 -> sign, exponent, significand -> the block's exponent -> shift -> kept bits, guard, sticky -> round -> code -> value
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace circuit {

using values = std::vector<float>;

/// What a converter converts to. Elements are floats of `mantissa` bits, or magnitudes of that many bits under a shared exponent.
struct target {
    const char* format;
    std::size_t block;  ///< 0: each value by itself
    bool fixed;
    int mantissa, least_exponent, top;  ///< exponents of the least normal element and of the largest
    std::int64_t largest_code;
    int least_scale;  ///< least exponent of a scale
};
inline const target targets[] = {{"mxfp8_e4m3", 32, false, 3, -6, 8, 126, -127}, {"mxfp8_e5m2", 32, false, 2, -14, 15, 123, -127},
                                 {"mxfp6_e3m2", 32, false, 2, -2, 4, 31, -127},  {"mxfp4", 32, false, 1, 0, 2, 7, -127},
                                 {"bfp16", 8, true, 7, 0, 6, 127, -133},         {"fp8_e4m3fn", 0, false, 3, -6, 8, 126, 0},
                                 {"fp8_e5m2", 0, false, 2, -14, 15, 123, 0}};

/// The signals of a lane. A fault is a change of one of them, at its stage.
struct lane {
    bool negative = false;
    int exponent = -1000;            ///< of the value's leading bit
    std::int64_t significand = 0;    ///< 24 bits, or 0
    int shift = 0;                   ///< places to the right that make code steps of the significand
    bool subnormal = false;          ///< the element is below the normal numbers before it is rounded
    std::int64_t kept = 0, cut = 0;  ///< the significand above and below the place of the shift
    bool guard = false, sticky = false, up = false;
    std::int64_t rounded = 0, code = 0;  ///< steps of the value's binade; magnitude
    double special = 0;                  ///< NaN, Inf: comes out in place of the code
};

/// Where in a block, and of what array, a signal lies.
struct place {
    std::size_t position, blocks, block;  ///< in the block; blocks of a row; the block in its row
};

enum class round_to { even, zero, away, floor, ceil, ties_to_zero, ties_to_odd, from_zero };
enum class beyond { held, next, never, nan, infinite, nought, lowest };

/// A converter: settings that mistakes change, and hooks at its stages for faults.
struct converter {
    target to;
    round_to how = round_to::even;
    std::function<bool(const lane&)> how_where = [](const lane&) { return true; };  ///< elsewhere it rounds half-even
    int sticky_bits = 64;        ///< bits below the kept ones that are looked at, the guard bit among them
    int first_shift_bits = 64;   ///< bits behind the mantissa that are left before a subnormal's shift
    int subnormal_shift = 0;     ///< error of that shift in places
    int first_rounded_bits = 0;  ///< rounded half-even to so many more bits first
    bool flush = false, flush_before = false, zero_sign_lost = false, carry_lost = false, carry_held = false, low_bit_lost = false;
    bool truncates_subnormals = false;
    beyond over = beyond::held;
    std::function<float(float)> input = [](float x) { return x; }, element = [](float x) { return x; };  ///< all; behind the scale
    std::function<int(const values& row, std::size_t first, std::size_t count)> block_exponent;          ///< default: of the largest
    int scale_before = 0, scale_after = 0;  ///< error of the scale's exponent before and after it is held within its range
    bool scale_of_last_block = false, least_scale_is_nan = false;
    std::function<std::size_t(std::size_t position, std::size_t count)> lane_of = [](std::size_t k, std::size_t) { return k; };
    std::function<int(int scale)> scale_fault = [](int s) { return s; };
    std::function<void(lane&, const place&)> after_input, after_shift, after_cut, after_round, after_code;

    explicit converter(const target& t) : to(t) {}
    values operator()(const values& x, std::size_t row) const {
        values y(x.size());
        for (std::size_t r = 0; r < x.size(); r += row) {
            values v(x.begin() + static_cast<std::ptrdiff_t>(r), x.begin() + static_cast<std::ptrdiff_t>(r + row));
            std::transform(v.begin(), v.end(), v.begin(), input);
            const std::size_t size = to.block == 0 ? row : to.block;
            int before = 0;
            for (std::size_t b = 0; b < row; b += size) {
                const int here = to.block == 0 ? 0 : scale_of(v, b, size);
                const int scale = scale_of_last_block && b != 0 ? before : here;
                before = here;
                for (std::size_t k = 0; k < size; ++k) {
                    const std::size_t from = lane_of(k, size);
                    const float f = from < size ? element(v[b + from]) : 0.0f;
                    y[r + b + k] = convert(f, scale, {k, row / size, b / size});
                }
            }
        }
        return y;
    }

    double largest() const { return value(to.largest_code); }

  private:
    int scale_of(const values& v, std::size_t first, std::size_t count) const {
        float most = 0;
        for (std::size_t k = first; k < first + count; ++k) most = std::max(most, std::abs(v[k]));
        int e = -1000;
        if (block_exponent) e = block_exponent(v, first, count);
        else if (most != 0) e = std::ilogb(most);
        return scale_fault(std::clamp(std::clamp(e - to.top + scale_before, to.least_scale, 127) + scale_after, to.least_scale, 127));
    }
    bool rounds_up(const lane& s) const {
        const bool odd = (s.kept & 1) != 0, tie = s.guard && !s.sticky, more = s.guard && s.sticky, any = s.guard || s.sticky;
        if (s.subnormal && truncates_subnormals) return false;
        switch (how_where(s) ? how : round_to::even) {
            case round_to::even: return more || (tie && odd);
            case round_to::zero: return false;
            case round_to::away: return s.guard;
            case round_to::floor: return any && s.negative;
            case round_to::ceil: return any && !s.negative;
            case round_to::ties_to_zero: return more;
            case round_to::ties_to_odd: return more || (tie && !odd);
            default: return any;
        }
    }
    float convert(float f, int scale, const place& at) const {
        if (f != f || (least_scale_is_nan && scale == to.least_scale)) return std::numeric_limits<float>::quiet_NaN();
        lane s;
        s.negative = std::signbit(f);
        if (f != 0) {
            s.exponent = std::ilogb(f);
            s.significand = static_cast<std::int64_t>(std::ldexp(std::abs(static_cast<double>(f)), 23 - s.exponent));
        }
        if (after_input) after_input(s, at);
        const int relative = s.exponent - scale;
        if (first_shift_bits < 23 - to.mantissa && !to.fixed) {
            const int dropped = 23 - to.mantissa - first_shift_bits;
            s.significand = s.significand >> dropped << dropped;
        }
        int field = 0;  // steps of the binades below
        if (to.fixed) {
            s.shift = 23 - relative;
        } else {
            s.subnormal = relative < to.least_exponent;
            s.shift = 23 - to.mantissa + (s.subnormal ? to.least_exponent - relative + subnormal_shift : 0);
            field = s.subnormal ? 0 : relative - to.least_exponent;
        }
        if (after_shift) after_shift(s, at);
        std::int64_t wide = s.significand << 8;  // a shift to the left of a few places, or to the right
        const int shift = std::clamp(s.shift + 8, 0, 62);
        if (first_rounded_bits != 0 && shift > first_rounded_bits) {
            const int drop = shift - first_rounded_bits;
            const std::int64_t low = wide & ((std::int64_t{1} << drop) - 1), half = std::int64_t{1} << (drop - 1);
            wide >>= drop;
            wide += low > half || (low == half && (wide & 1) != 0);
            wide <<= drop;
        }
        s.kept = wide >> shift;
        s.cut = wide & ((std::int64_t{1} << shift) - 1);
        s.guard = shift > 0 && (s.cut >> (shift - 1) & 1) != 0;
        const int looked_at = std::max(0, shift - sticky_bits);
        s.sticky = shift > 1 && ((s.cut & ((std::int64_t{1} << (shift - 1)) - 1)) >> looked_at) != 0;
        if (after_cut) after_cut(s, at);
        s.up = rounds_up(s);
        if (after_round) after_round(s, at);
        s.rounded = s.kept + s.up;
        const std::int64_t full = std::int64_t{1} << (to.mantissa + 1);
        if (!to.fixed && s.up && (s.rounded == full || (s.subnormal && s.rounded == full / 2))) {
            if (carry_held) s.rounded -= 1;
            if (carry_lost) s.rounded = s.subnormal ? 0 : full / 2;
        }
        if (low_bit_lost) s.rounded &= ~std::int64_t{1};
        s.code = (std::int64_t{field} << to.mantissa) + s.rounded;
        if (flush_before && s.subnormal) s.code = 0;
        if (flush && !to.fixed && s.code < std::int64_t{1} << to.mantissa) s.code = 0;
        const std::int64_t largest = to.largest_code - (over == beyond::never);
        if (s.code > largest) {
            s.code = over == beyond::next ? largest - 1 : over == beyond::nought ? 0 : largest;
            if (over == beyond::lowest && s.negative) s.code = largest + 1;
            if (over == beyond::nan) s.special = std::numeric_limits<double>::quiet_NaN();
            if (over == beyond::infinite) s.special = std::numeric_limits<double>::infinity();
        }
        if (after_code) after_code(s, at);
        if (s.special != 0) return std::copysign(static_cast<float>(s.special), s.negative ? -1.0f : 1.0f);
        const double v = std::ldexp(value(s.code), scale);
        return static_cast<float>(zero_sign_lost && v == 0 ? 0.0 : s.negative ? -v : v);
    }
    /// Decodes a magnitude.
    double value(std::int64_t code) const {
        if (to.fixed) return static_cast<double>(code);
        const std::int64_t field = code >> to.mantissa, low = code & ((std::int64_t{1} << to.mantissa) - 1);
        if (std::string(to.format).starts_with("mxfp8_e4m3") || std::string(to.format) == "fp8_e4m3fn") {
            if (code >= 127) return std::numeric_limits<double>::quiet_NaN();
        } else if (std::string(to.format).find("e5m2") != std::string::npos && field >= 31) {
            return low == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
        }
        if (field == 0) return std::ldexp(static_cast<double>(low), to.least_exponent - to.mantissa);
        return std::ldexp(static_cast<double>(low + (std::int64_t{1} << to.mantissa)),
                          static_cast<int>(field) - 1 + to.least_exponent - to.mantissa);
    }
};

}  // namespace circuit
