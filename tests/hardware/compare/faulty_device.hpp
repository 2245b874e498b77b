// SPDX-License-Identifier: Apache-2.0
// A converter with mistakes, written without qk's code, for the tests of compare to explain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace faulty {

using values = std::vector<float>;

enum class round_to { even, away, zero, floor, ties_to_zero };

/// Rounds to `mantissa` bits from 2^least_exponent on. If least_exponent lies above every value, the grid is fixed.
struct element {
    int mantissa, least_exponent;
    double largest;
    round_to mode = round_to::even;
    int guard = 0;            ///< bits behind the mantissa that rounding looks at; 0: all
    int subnormal_shift = 0;  ///< error of the shift to a subnormal, in places, before rounding
    bool flush = false, flush_to_positive = false, lose_zero_sign = false, carry_lost = false, nan_beyond = false;
    std::function<bool(float)> only = [](float) { return true; };  ///< `mode` applies where this is true; other values round half-even

    double operator()(float x, double scale) const {
        const double q = static_cast<double>(x) / scale;
        if (q != q) return q;
        double a = std::abs(q);
        const auto sign = [&](double m) {
            if (m == 0 && (lose_zero_sign || (flush_to_positive && a != 0))) return 0.0;
            return std::copysign(m, q);
        };
        if (a == 0) return sign(0);
        const double normal = std::ldexp(1.0, least_exponent);
        if (a < normal) a = std::ldexp(a, -subnormal_shift);
        const double step = std::ldexp(1.0, std::max(a > 0 && !std::isinf(a) ? std::ilogb(a) : 0, least_exponent) - mantissa);
        const double floor = std::isinf(a) ? 0 : std::floor(a / step);
        double rest = std::isinf(a) ? 0 : a / step - floor;
        if (guard != 0) rest = std::floor(std::ldexp(rest, guard)) / std::ldexp(1.0, guard);
        const bool odd = std::fmod(floor, 2) != 0, negative = std::signbit(q);
        const round_to here = only(x) ? mode : round_to::even;
        const bool up = here == round_to::even    ? rest > 0.5 || (rest == 0.5 && odd)
                        : here == round_to::away  ? rest >= 0.5
                        : here == round_to::floor ? negative && rest > 0
                                                  : here == round_to::ties_to_zero && rest > 0.5;
        double m = std::isinf(a) ? std::numeric_limits<double>::infinity() : (floor + up) * step;
        if (carry_lost && up && std::fmod(floor + 1, std::ldexp(1.0, mantissa)) == 0 && floor > std::ldexp(1.0, mantissa))
            m = (floor + 1) / 2 * step;
        if (m > largest) return nan_beyond ? std::numeric_limits<double>::quiet_NaN() : sign(largest);
        if (flush && m < normal) m = 0;
        return sign(m);
    }
};

/// Converts blocks along rows of `length` with the scale 2^exponent_of(block). A NaN or Inf makes its block NaN.
struct blocks {
    std::size_t size, length;
    std::function<int(const values& block)> exponent_of;
    element part;
    values operator()(const values& x) const {
        values y(x.size());
        for (std::size_t row = 0; row < x.size(); row += length) {
            for (std::size_t b = 0; b < length; b += size) {
                const std::size_t n = std::min(size, length - b), first = row + b;
                const values v(x.begin() + static_cast<std::ptrdiff_t>(first), x.begin() + static_cast<std::ptrdiff_t>(first + n));
                const bool special = std::any_of(v.begin(), v.end(), [](float f) { return !std::isfinite(f); });
                const double scale = std::ldexp(1.0, exponent_of(v));
                for (std::size_t k = 0; k < n; ++k)
                    y[first + k] = special ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(part(v[k], scale) * scale);
            }
        }
        return y;
    }
};

inline float largest(const values& v) {
    float m = 0;
    for (const float f : v) m = std::max(m, std::abs(f));
    return m;
}
/// Returns OCP's rule for the exponent of a scale, for elements whose largest exponent is `top`.
inline std::function<int(const values&)> by_floor(int top) {
    return [top](const values& v) { return largest(v) == 0 ? -127 : std::clamp(std::ilogb(largest(v)) - top, -127, 127); };
}
inline std::function<int(const values&)> by_ceil(int top) {
    return [top](const values& v) {
        const float m = largest(v);
        return m == 0 ? -127 : std::clamp(std::ilogb(m) + int{std::ldexp(1.0f, std::ilogb(m)) < m} - top, -127, 127);
    };
}

inline values each(const values& x, const element& e) {
    values y;
    for (const float v : x) y.push_back(static_cast<float>(e(v, 1)));
    return y;
}

inline const element e4m3{3, -6, 448}, e5m2{2, -14, 57344}, e2m1{1, 0, 6}, e3m2{2, -2, 28};

}  // namespace faulty
