// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <cmath>

#include "qk/reference.hpp"

namespace qk::compare {
namespace {

element_grid of_float(floating f) {
    return {.mantissa = f.mantissa_bits, .least_exponent = min_exponent(f), .largest = max_value(f), .lowest = -max_value(f)};
}

/// Returns whether the magnitude is rounded up. `rest` is its fraction of a step above `floor` steps.
bool goes_up(const element_rules& r, rounding how, bool negative, double floor, double rest) {
    const bool odd = std::fmod(floor, 2) != 0;
    if (r.odd_truncated && odd) return false;
    if (r.away_from_zero) return rest > 0;
    if (rest == 0.5 && r.ties != element_rules::as_asked) return r.ties == element_rules::to_odd && !odd;
    switch (how) {
        case rounding::half_even: return rest > 0.5 || (rest == 0.5 && odd);
        case rounding::half_away: return rest >= 0.5;
        case rounding::half_up: return negative ? rest > 0.5 : rest >= 0.5;
        case rounding::up: return rest > 0 && !negative;
        case rounding::down: return rest > 0 && negative;
        default: return false;
    }
}

/// Returns |q| rounded to the grid, before the range is applied.
double on_grid(const element_grid& g, const element_rules& r, rounding how, double q) {
    const bool negative = std::signbit(q);
    double a = std::abs(q);
    const bool subnormal = !g.fixed && a < g.least_normal();
    if (subnormal) a *= r.subnormal_factor;
    const double step = g.step_at(a), steps = a / step;
    const double floor = std::floor(steps);
    double rest = steps - floor;
    if (subnormal && r.denormalizing_loses) {
        const double kept = std::ldexp(1.0, 23 - g.mantissa);
        rest = std::floor(rest * kept) / kept;
    }
    for (const int bits : {r.guard_bits, subnormal ? r.subnormal_guard_bits : 0})
        if (bits > 0) rest = std::floor(std::ldexp(rest, bits)) * std::ldexp(1.0, -bits);
    double m = floor;
    if (!(subnormal && r.subnormals_truncated) && goes_up(r, how, negative, floor, rest)) {
        const bool carries = !g.fixed && std::fmod(floor + 1, std::ldexp(1.0, g.mantissa)) == 0 && floor + 1 >= std::ldexp(1.0, g.mantissa);
        if (!carries || r.carry == element_rules::right) m = floor + 1;
        else if (r.carry == element_rules::lost) m = floor + 1 - std::ldexp(1.0, g.mantissa);
    }
    if (r.lowest_bit_lost) m = std::floor(m / 2) * 2;
    return m * step;
}

/// Returns what a number beyond the largest becomes, if that is not what was asked for.
double beyond_largest(const element_rules& r, double v) {
    if (r.beyond == element_rules::nan) return std::numeric_limits<double>::quiet_NaN();
    return std::copysign(r.beyond == element_rules::nought ? 0.0 : std::numeric_limits<double>::infinity(), v);
}

float float_of(const conversion& c, const element_grid& g, const element_rules& r, float q, float unit) {
    const auto f = std::get_if<floating>(&c.format);
    const double v = std::copysign(on_grid(g, r, c.how.rounding, static_cast<double>(q)), static_cast<double>(q));
    if (std::abs(v) <= g.largest) return static_cast<float>(v * static_cast<double>(unit));
    if (r.beyond != element_rules::held_back) return static_cast<float>(beyond_largest(r, v));
    if (f != nullptr) return reference::overflow(*f, static_cast<double>(q), c.how) * unit;
    return static_cast<float>(std::clamp(v, g.lowest, g.largest) * static_cast<double>(unit));
}

/// Returns the zero point that a code is encoded with.
double zero_point_used(const element_rules& r, double z) {
    switch (r.zero_point) {
        case element_rules::left_out: return 0;
        case element_rules::negated: return -z;
        case element_rules::one_more: return z + 1;
        case element_rules::one_less: return z - 1;
        default: return z;
    }
}

/// Returns the position in the channel before or behind of the value whose scale or zero point value i uses; at the ends i itself.
std::size_t neighbour_of(const conversion& c, std::size_t i, int channels) {
    const along_axis a = c.scale_blocks;
    const std::size_t channel = i / a.inner % a.length;
    if (channels < 0 ? channel == 0 : channel + 1 == a.length) return i;
    return channels < 0 ? i - a.inner : i + a.inner;
}

float integer_of(const integer& f, const conversion& c, const element_grid& g, const element_rules& r, float x, float unit, std::size_t i) {
    const float divisor = r.scale_of == 0 ? unit : scale_of(c, neighbour_of(c, i, r.scale_of));
    float q = c.how.integer_mode == integer_mode::division ? reference::divide(x, divisor)
                                                           : reference::multiply(x, reference::divide(1.0f, divisor));
    const double z = static_cast<double>(zero_point_of(c, i));
    const double used =
        r.zero_point_of == 0 ? zero_point_used(r, z) : static_cast<double>(zero_point_of(c, neighbour_of(c, i, r.zero_point_of)));
    if (c.how.zero_point_before) q = static_cast<float>(static_cast<double>(q) + used);
    double code = std::copysign(on_grid(g, r, c.how.rounding, static_cast<double>(q)), static_cast<double>(q));
    if (!c.how.zero_point_before) code += used;
    const auto lowest = static_cast<double>(qmin(f)), highest = static_cast<double>(qmax(f));
    if (r.wraps && std::abs(code) < 0x1p52) {
        const double codes = std::ldexp(1.0, f.bits);
        code -= std::floor((code - lowest) / codes) * codes;
    } else if (r.beyond != element_rules::held_back && (code < lowest || code > highest)) {
        return static_cast<float>(beyond_largest(r, code));
    } else {
        code = std::clamp(code, lowest, highest);
    }
    return static_cast<float>((code - z) * static_cast<double>(unit));
}

/// Converts a finite value whose block or scale is finite, too. `y` is what the kernels make of it.
float element_of(const conversion& c, const element_grid& g, const element_rules& r, float x, float y, float unit, std::size_t i) {
    if (c.how.flush_inputs && std::abs(x) < 0x1p-126f) x = std::copysign(0.0f, x);
    const bool signed_zeros = std::holds_alternative<nvfloat>(c.format);  // zeros keep their sign under every scale but 0
    if (x == 0 && signed_zeros) return x;
    if (x == 0 && r.zero_point == element_rules::given && r.zero_point_of == 0) return y;
    if (std::holds_alternative<microexponent>(c.format) && std::abs(x) < 0x1p-126f) return y;
    float v;
    if (const integer* f = std::get_if<integer>(&c.format)) {
        v = integer_of(*f, c, g, r, x, unit, i);
    } else if (std::holds_alternative<floating>(c.format) || std::holds_alternative<nvfloat>(c.format)) {
        v = float_of(c, g, r, unit == 1 ? x : reference::divide(x, unit), unit);
    } else {  // a power of two: the quotient is exact as a double, though perhaps not as a float
        const double q = static_cast<double>(x) / static_cast<double>(unit);
        const double magnitude = std::copysign(on_grid(g, r, c.how.rounding, q), q);
        const bool beyond = magnitude < g.lowest || magnitude > g.largest;
        v = beyond && r.beyond != element_rules::held_back
                ? static_cast<float>(beyond_largest(r, magnitude))
                : static_cast<float>(std::clamp(magnitude, g.lowest, g.largest) * static_cast<double>(unit));
    }
    if (c.how.flush_outputs &&
        (std::abs(v) < 0x1p-126f || (!g.fixed && std::abs(v) < static_cast<float>(g.least_normal() * static_cast<double>(unit)))))
        v = std::copysign(0.0f, v);
    return v == 0 && y == 0 && !signed_zeros ? y : v;
}

}  // namespace

std::optional<element_grid> element_grid::of(const conversion& c) {
    if (const auto* f = std::get_if<floating>(&c.format)) {
        if (*f == fp32 || f->specials == specials::e8m0) return std::nullopt;
        return of_float(*f);
    }
    if (const auto* f = std::get_if<nvfloat>(&c.format)) return of_float(f->element);
    if (const auto* f = std::get_if<integer>(&c.format))
        return element_grid{.fixed = true, .largest = static_cast<double>(qmax(*f)), .lowest = static_cast<double>(qmin(*f))};
    if (const auto* f = std::get_if<microscaling>(&c.format)) {
        if (!has_integer_elements(*f)) return of_float(f->element);
        const double step = power_of_two(2 - f->integer_bits), most = (power_of_two(f->integer_bits - 1) - 1) * step;
        return element_grid{.fixed = true, .step = step, .largest = most, .lowest = c.how.mxint_uses_lowest ? -most - step : -most};
    }
    const auto* b = std::get_if<block_float>(&c.format);
    const double most = power_of_two(b != nullptr ? b->mantissa_bits : std::get<microexponent>(c.format).mantissa_bits) - 1;
    return element_grid{.fixed = true, .largest = most, .lowest = b != nullptr && b->bump ? -most - 1 : -most};
}

double element_grid::least_normal() const { return fixed ? 0 : power_of_two(least_exponent); }
double element_grid::step_at(double magnitude) const {
    if (fixed) return step;
    const int e = magnitude > 0 ? std::max(std::ilogb(magnitude), least_exponent) : least_exponent;
    return std::ldexp(1.0, e - mantissa);
}

bool element_facts::subnormal(float y) const {
    return grid != nullptr && y != 0 && static_cast<double>(std::abs(y)) < grid->least_normal() * static_cast<double>(unit);
}

std::string sentence_of(const mistake& m, const problem& p) {
    std::string s = m.sentence;
    const std::size_t at = s.find('#');
    if (at != std::string::npos && m.asked != nullptr) s.replace(at, 1, m.asked(p));
    return s;
}

predictor::predictor(const problem& p, std::vector<std::size_t> at) : p_(p), at_(std::move(at)) {}

const predictor::front& predictor::front_of(const mistake_set& set) {
    mistake_set key;
    for (const int k : set) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.settings != nullptr || m.input != nullptr || m.scales != nullptr) key.push_back(k);
    }
    for (const auto& [k, f] : fronts_) {
        if (k == key) return f;
    }
    front f{.c = p_.asked, .x = {}, .y = {}, .unit = {}, .modelled = {}, .other_scales = false, .grid = std::nullopt};
    std::vector<float> x(p_.x.begin(), p_.x.end());
    for (const bool systems : {true, false}) {  // the rules of another system first: other settings override them
        for (const int k : key) {
            const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
            if (m.settings != nullptr && (m.about == topic::semantics) == systems) m.settings(f.c, p_);
        }
    }
    for (const int k : key) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.input != nullptr) std::transform(x.begin(), x.end(), x.begin(), m.input);
        f.other_scales = f.other_scales || m.scales != nullptr;
    }
    std::vector<float> y(x.size());
    fake_quantize(f.c, x, y);
    // Special values that pass through leave their block its scale.
    std::vector<float> unit = units_of(f.c, x), finite(x.size());
    const bool passes = f.c.how.mx_specials == block_specials::pass_through && f.c.how.bfp_specials == block_specials::pass_through;
    if (passes && is_block_format(f.c.format)) {
        std::transform(x.begin(), x.end(), finite.begin(), [](float v) { return std::isfinite(v) ? v : 0.0f; });
        unit = units_of(f.c, finite);
    }
    for (const int k : key) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.scales != nullptr) m.scales(p_, f.c, x, unit);
    }
    f.grid = element_grid::of(f.c);
    for (const std::size_t i : at_) {
        f.x.push_back(x[i]);
        f.y.push_back(y[i]);
        f.unit.push_back(unit[i]);
        f.modelled.push_back(std::isfinite(x[i]) && unit[i] > 0 && (!is_block_format(f.c.format) || std::isfinite(y[i])));
    }
    const std::size_t room = std::max<std::size_t>(2, (std::size_t{24} << 20) / (sizeof(float) * 3 * (at_.size() + 1)));
    if (fronts_.size() >= room) fronts_.erase(fronts_.begin() + 1, fronts_.end());
    fronts_.emplace_back(std::move(key), std::move(f));
    return fronts_.back().second;
}

void predictor::predict(const mistake_set& set, std::span<const std::size_t> which, std::span<float> y) {
    const front& f = front_of(set);
    element_rules rules;
    for (const int k : set) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.element != nullptr) m.element(rules);
    }
    const bool modelled = f.grid && (f.other_scales || rules != element_rules{}) && f.c.how.rounding != rounding::stochastic;
    for (std::size_t n = 0; n < which.size(); ++n) {
        const std::size_t i = which[n];
        y[n] = f.y[i];
        if (modelled && f.modelled[i] != 0) {
            y[n] = element_of(f.c, *f.grid, rules, f.x[i], f.y[i], f.unit[i], at_[i]);
        } else if (f.other_scales && std::holds_alternative<nvfloat>(f.c.format) && f.unit[i] == 0 && std::isfinite(f.x[i])) {
            y[n] = 0;  // a scale of 0
        } else if (rules.beyond != element_rules::held_back && std::isinf(f.x[i]) && !is_block_format(f.c.format)) {
            y[n] = static_cast<float>(beyond_largest(rules, static_cast<double>(f.x[i])));
        } else if (rules.zero_point != element_rules::given && f.x[i] != f.x[i] && y[n] == y[n]) {  // NaN has a code, too
            const auto z = static_cast<double>(zero_point_of(f.c, at_[i]));
            y[n] += static_cast<float>((zero_point_used(rules, z) - z) * static_cast<double>(f.unit[i]));
        }
    }
    for (const int k : set) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.result == nullptr) continue;
        for (std::size_t n = 0; n < which.size(); ++n) {
            const std::size_t i = which[n];
            y[n] = m.result(y[n], element_facts{f.x[i], f.unit[i], f.grid ? &*f.grid : nullptr});
        }
    }
}

}  // namespace qk::compare
