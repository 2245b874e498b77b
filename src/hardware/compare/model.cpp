// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "qk/reference.hpp"

namespace qk::compare {
namespace {

/// Is true for formats whose numbers, of either sign, are multiples of steps, ties by the count of steps.
bool has_plain_grid(floating f) { return f.is_signed && f.subnormals && !exceeds_float32(f) && f.mantissa_bits > 0; }

element_grid of_float(floating f) {
    return {.mantissa = f.mantissa_bits, .least_exponent = min_exponent(f), .largest = max_value(f), .lowest = -max_value(f)};
}

/// Returns 2^e, for exponents of normal doubles.
double power(int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }
/// Returns the exponent of a normal double.
int exponent(double a) { return static_cast<int>(std::bit_cast<std::uint64_t>(a) >> 52 & 0x7ffu) - 1023; }
bool is_odd(double whole) { return whole < 0x1p53 && (static_cast<std::int64_t>(whole) & 1) != 0; }

/// Returns whether the magnitude is rounded up. `rest` is its fraction of a step above `floor` steps.
bool goes_up(const element_rules& r, rounding how, bool negative, double floor, double rest) {
    const bool odd = is_odd(floor);
    if (r.odd_truncated && odd) return false;
    if (r.away_from_zero) return rest > 0;
    if (rest == 0.5 && r.ties != element_rules::as_asked) return r.ties == element_rules::to_odd && !odd;
    switch (how) {
        case rounding::half_even: return rest > 0.5 || (rest == 0.5 && odd);
        case rounding::half_away: return rest >= 0.5;
        case rounding::half_up: return negative ? rest > 0.5 : rest >= 0.5;
        case rounding::up: return rest > 0 && !negative;
        case rounding::down: return rest > 0 && negative;
        case rounding::to_odd: return rest > 0 && !odd;
        default: return false;
    }
}

/// Returns |q| rounded to the grid, before the range is applied.
double on_grid(const element_grid& g, const element_rules& r, rounding how, double q) {
    const bool negative = std::signbit(q);
    double a = std::abs(q);
    const bool subnormal = !g.fixed && a < g.least_normal();
    if (r.significand_bits != 0 && !g.fixed && a > 0) {
        const double kept = power(exponent(a) - g.mantissa - r.significand_bits);
        a = std::floor(a / kept) * kept;
    }
    if (subnormal && r.flushes_before) return 0;
    if (subnormal) a *= r.subnormal_factor;
    if (r.shift_wraps != 0 && a > 0) {
        const int below = (g.fixed ? exponent(g.largest) : g.least_exponent) - exponent(a), cut = r.whole_shift ? 23 - g.mantissa : 0;
        if (below > 0 && below + cut >= r.shift_wraps) a *= power((below + cut) / r.shift_wraps * r.shift_wraps);
    }
    if (subnormal && r.own_mantissa_first && a > 0) {
        const double own = power(exponent(a) - g.mantissa);
        a = std::nearbyint(a / own) * own;
    }
    const double step = g.step_at(a);
    double steps = a / step;
    if (r.first_bits != 0 && steps < 0x1p40) steps = std::nearbyint(steps * power(r.first_bits)) * power(-r.first_bits);
    const double floor = std::floor(steps);
    double rest = steps - floor;
    if (subnormal && r.denormalizing_loses) {
        const double kept = power(23 - g.mantissa);
        rest = std::floor(rest * kept) / kept;
    }
    for (const int bits : {r.guard_bits, subnormal ? r.subnormal_guard_bits : 0})
        if (bits > 0) rest = std::floor(rest * power(bits)) * power(-bits);
    if (r.lost_sticky_bit > 1) {
        const double bits = std::floor(rest * power(r.lost_sticky_bit));
        if (is_odd(bits)) rest -= power(-r.lost_sticky_bit);
    }
    double m = floor;
    if (!(subnormal && r.subnormals_truncated) && goes_up(r, how, negative, floor, rest)) {
        const bool carries = r.carry != element_rules::right && !g.fixed && std::fmod(floor + 1, power(g.mantissa)) == 0;
        if (!carries) m = floor + 1;
        else if (r.carry == element_rules::lost) m = floor + 1 - power(g.mantissa);
    }
    if (r.lowest_bit_lost) m = std::floor(m / 2) * 2;
    return m * step;
}

/// Returns what a number beyond the largest becomes, if that is not what was asked for.
double beyond_largest(const element_grid& g, const element_rules& r, double v) {
    if (r.beyond == element_rules::nan) return std::numeric_limits<double>::quiet_NaN();
    if (r.beyond == element_rules::next) return std::clamp(v, g.lowest + g.step_at(g.largest), g.largest - g.step_at(g.largest));
    if (r.beyond == element_rules::below) return v < 0 ? -g.largest - g.step_at(g.largest) : g.largest;
    return std::copysign(r.beyond == element_rules::nought ? 0.0 : std::numeric_limits<double>::infinity(), v);
}

float float_of(const conversion& c, const qk::semantics& how, const element_grid& g, const element_rules& r, float q, float unit) {
    const auto f = std::get_if<floating>(&c.format);
    const double v = std::copysign(on_grid(g, r, how.rounding, static_cast<double>(q)), static_cast<double>(q));
    const double largest = r.largest_unused ? g.largest - g.step_at(g.largest) : g.largest;
    if (std::abs(v) <= largest) return static_cast<float>(v * static_cast<double>(unit));
    if (r.largest_unused) return static_cast<float>(std::copysign(largest, v) * static_cast<double>(unit));
    if (r.beyond != element_rules::held_back) return static_cast<float>(beyond_largest(g, r, v) * static_cast<double>(unit));
    if (f != nullptr) return reference::overflow(*f, static_cast<double>(q), how) * unit;
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

/// Returns v rounded to so many significant bits; 0: as it is.
float shortened(float v, int bits) {
    if (bits == 0 || !(std::abs(v) > 0) || !std::isfinite(v)) return v;
    const double step = power(exponent(std::abs(static_cast<double>(v))) - bits + 1);
    return static_cast<float>(std::nearbyint(static_cast<double>(v) / step) * step);
}
/// Returns x over the scale, as a converter with these rules divides.
float quotient_of(const element_rules& r, float x, float scale) {
    if (r.reciprocal_bits == 0) return reference::divide(x, shortened(scale, r.divisor_bits));
    return reference::multiply(x, shortened(reference::divide(1.0f, scale), r.reciprocal_bits));
}

float integer_of(const integer& f, const conversion& c, const qk::semantics& how, const element_grid& g, const element_rules& r, float x,
                 float unit, std::size_t i) {
    const float divisor = r.scale_of == 0 ? unit : scale_of(c, neighbour_of(c, i, r.scale_of));
    float q = how.integer_mode == integer_mode::division
                  ? quotient_of(r, x, divisor)
                  : reference::multiply(x, reference::divide(1.0f, shortened(divisor, r.divisor_bits)));
    if (r.reciprocal_bits != 0) q = quotient_of(r, x, divisor);
    const double z = static_cast<double>(zero_point_of(c, i));
    const double used =
        r.zero_point_of == 0 ? zero_point_used(r, z) : static_cast<double>(zero_point_of(c, neighbour_of(c, i, r.zero_point_of)));
    if (how.zero_point_before) q = static_cast<float>(static_cast<double>(q) + used);
    double code = std::copysign(on_grid(g, r, how.rounding, static_cast<double>(q)), static_cast<double>(q));
    if (r.range != element_rules::clamped_after && !how.zero_point_before)
        code = std::clamp(code, static_cast<double>(qmin(f)), static_cast<double>(qmax(f)));
    if (!how.zero_point_before) code += used;
    const auto lowest = static_cast<double>(qmin(f) + int{r.largest_unused}),
               highest = static_cast<double>(qmax(f) - int{r.largest_unused});
    if ((r.wraps || r.range == element_rules::before_then_wrapped) && std::abs(code) < 0x1p52) {
        const double codes = std::ldexp(1.0, f.bits);
        code -= std::floor((code - lowest) / codes) * codes;
    } else if (r.beyond != element_rules::held_back && (code < lowest || code > highest)) {
        const double special = beyond_largest(g, r, code);
        return std::isfinite(special) && special != 0 ? static_cast<float>((special - z) * static_cast<double>(unit))
                                                      : static_cast<float>(special);
    } else {
        code = std::clamp(code, lowest, highest);
    }
    return static_cast<float>((code - z) * static_cast<double>(unit));
}

/// Converts a finite value whose block or scale is finite, too. `y` is what the kernels make of it.
/// `how` is how the converter rounds.
float element_of(const conversion& c, const qk::semantics& how, const element_grid& g, const element_rules& r, float x, float y, float unit,
                 std::size_t i) {
    if (how.flush_inputs && std::abs(x) < 0x1p-126f) x = std::copysign(0.0f, x);
    if (const int dropped = 23 - g.mantissa - r.field_bits; r.field_bits != 0 && dropped > 0)
        x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) >> dropped << dropped);
    const bool signed_zeros = has_floating_scales(c.format);  // zeros keep their sign under every scale but 0
    if (x == 0 && signed_zeros) return x;
    if (x == 0 && r.zero_point == element_rules::given && r.zero_point_of == 0) return y;
    if (std::holds_alternative<microexponent>(c.format) && std::abs(x) < 0x1p-126f) return y;
    float v;
    if (const integer* f = std::get_if<integer>(&c.format)) {
        v = integer_of(*f, c, how, g, r, x, unit, i);
    } else if (std::holds_alternative<floating>(c.format) || has_floating_scales(c.format)) {
        v = float_of(c, how, g, r, unit == 1 ? x : quotient_of(r, x, unit), unit);
    } else {  // a power of two: the quotient is exact as a double, though perhaps not as a float
        const double q = static_cast<double>(x) / static_cast<double>(unit);
        const double magnitude = std::copysign(on_grid(g, r, how.rounding, q), q);
        const bool beyond = magnitude < g.lowest || magnitude > g.largest;
        const double less = r.largest_unused ? g.step_at(g.largest) : 0;
        v = static_cast<float>((beyond && r.beyond != element_rules::held_back ? beyond_largest(g, r, magnitude)
                                                                               : std::clamp(magnitude, g.lowest + less, g.largest - less)) *
                               static_cast<double>(unit));
    }
    if (how.flush_outputs &&
        (std::abs(v) < 0x1p-126f || (!g.fixed && std::abs(v) < static_cast<float>(g.least_normal() * static_cast<double>(unit)))))
        v = std::copysign(0.0f, v);
    return v == 0 && y == 0 && !signed_zeros ? y : v;
}

}  // namespace

std::optional<element_grid> element_grid::of(const conversion& c) {
    if (const auto* f = std::get_if<floating>(&c.format)) {
        if (*f == fp32 || !has_plain_grid(*f)) return std::nullopt;
        return of_float(*f);
    }
    if (const auto* f = element_float(c.format)) {
        if (!has_plain_grid(*f)) return std::nullopt;
        return of_float(*f);
    }
    if (const auto* f = std::get_if<integer>(&c.format))
        return element_grid{.fixed = true, .largest = static_cast<double>(qmax(*f)), .lowest = static_cast<double>(qmin(*f))};
    if (const auto* f = std::get_if<microscaling>(&c.format)) {
        const double step = power_of_two(2 - f->integer_bits), most = (power_of_two(f->integer_bits - 1) - 1) * step;
        return element_grid{.fixed = true, .step = step, .largest = most, .lowest = c.how.mxint_uses_lowest ? -most - step : -most};
    }
    if (is_table_format(c.format)) return std::nullopt;
    const auto* b = std::get_if<block_float>(&c.format);
    const double most = power_of_two(b != nullptr ? b->mantissa_bits : std::get<microexponent>(c.format).mantissa_bits) - 1;
    return element_grid{.fixed = true, .largest = most, .lowest = b != nullptr && b->bump ? -most - 1 : -most};
}

double element_grid::least_normal() const { return fixed ? 0 : power_of_two(least_exponent); }
double element_grid::step_at(double magnitude) const {
    if (fixed) return step;
    return power((magnitude > 0 ? std::max(exponent(magnitude), least_exponent) : least_exponent) - mantissa);
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

int lost_sticky_bit_of(const problem& p) {
    const auto grid = element_grid::of(p.asked);
    if (!grid) return 0;
    const std::vector<float> unit = units_of(p.asked, p.x);
    std::array<std::size_t, 64> alone{};
    for (std::size_t i = 0; i < p.x.size(); ++i) {
        if (same_value(p.expected[i], p.device[i]) || !std::isfinite(p.x[i]) || !(unit[i] > 0)) continue;
        const double q = std::abs(static_cast<double>(p.x[i]) / static_cast<double>(unit[i])), steps = q / grid->step_at(q);
        const double rest = steps - std::floor(steps), sticky = rest < 0.5 ? rest : rest - 0.5;
        int e = 0;
        if (sticky > 0 && std::frexp(sticky, &e) == 0.5 && e > -62) ++alone[static_cast<std::size_t>(1 - e)];
    }
    const auto most = std::max_element(alone.begin(), alone.end());
    return *most == 0 ? 0 : static_cast<int>(most - alone.begin());
}

predictor::predictor(const problem& p, std::vector<std::size_t> at) : p_(p), at_(std::move(at)), lost_sticky_bit_(lost_sticky_bit_of(p)) {}

const predictor::front& predictor::front_of(const mistake_set& set) {
    mistake_set key;
    for (const int k : set) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.settings != nullptr || m.input != nullptr || m.scales != nullptr || m.arrange != nullptr || m.path != nullptr)
            key.push_back(k);
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
        f.other_scales = f.other_scales || m.scales != nullptr || m.path != nullptr;
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
    std::vector<std::size_t> source;
    for (const int k : key) {
        const mistake& m = known_mistakes()[static_cast<std::size_t>(k)];
        if (m.path != nullptr) std::transform(x.begin(), x.end(), x.begin(), m.path);
        if (m.arrange == nullptr) continue;
        source.resize(x.size());
        std::iota(source.begin(), source.end(), std::size_t{0});
        m.arrange(p_, source);
    }
    for (const std::size_t at : at_) {
        const std::size_t i = source.empty() ? at : source[at];
        f.x.push_back(i == nowhere ? 0.0f : x[i]);
        f.y.push_back(i == nowhere ? 0.0f : y[i]);
        f.unit.push_back(unit[i == nowhere ? at : i]);
        f.modelled.push_back(std::isfinite(f.x.back()) && f.unit.back() > 0 && (!is_block_format(f.c.format) || std::isfinite(f.y.back())));
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
    if (rules.lost_sticky_bit < 0) rules.lost_sticky_bit = lost_sticky_bit_;
    qk::semantics how = f.c.how;
    how.rounding = rules.rounding.value_or(how.rounding);
    const bool modelled = f.grid && (f.other_scales || rules != element_rules{}) && !is_stochastic(how.rounding);
    for (std::size_t n = 0; n < which.size(); ++n) {
        const std::size_t i = which[n];
        y[n] = f.y[i];
        if (modelled && f.modelled[i] != 0) {
            y[n] = element_of(f.c, how, *f.grid, rules, f.x[i], f.y[i], f.unit[i], at_[i]);
        } else if (f.other_scales && f.unit[i] != f.unit[i]) {
            y[n] = std::numeric_limits<float>::quiet_NaN();
        } else if (f.other_scales && has_floating_scales(f.c.format) && f.unit[i] == 0 && std::isfinite(f.x[i])) {
            y[n] = 0;  // a scale of 0
        } else if (f.other_scales && f.unit[i] == 0 && std::isfinite(f.y[i])) {
            y[n] = std::copysign(0.0f, f.y[i]);
        } else if (rules.beyond != element_rules::held_back && std::isinf(f.x[i]) && !is_block_format(f.c.format)) {
            y[n] = static_cast<float>(f.grid ? beyond_largest(*f.grid, rules, static_cast<double>(f.x[i])) * static_cast<double>(f.unit[i])
                                             : static_cast<double>(y[n]));
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
            y[n] = m.result(y[n], element_facts{f.x[i], f.unit[i], f.grid ? &*f.grid : nullptr, &f.c, &p_, at_[i]});
        }
    }
}

}  // namespace qk::compare
