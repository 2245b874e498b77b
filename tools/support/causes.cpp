// SPDX-License-Identifier: Apache-2.0
// Known mistakes of converters, each written as a converter: the one that gives the device's values is the likely cause.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/comparison.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

namespace qk::tool {
namespace {

using values = std::vector<float>;

struct experiment {
    const conversion& c;
    const graph::dims& shape;
    std::span<const float> x, expected, unit;

    values run(const conversion& other, std::span<const float> input) const {
        values y(input.size());
        fake_quantize(other, input, y);
        return y;
    }
    values with(const std::function<void(conversion&)>& change) const {
        conversion other = c;
        change(other);
        return run(other, x);
    }
    values rounded(rounding r) const {
        return with([r](conversion& o) { o.how.rounding = r; });
    }
};

/// The same format with `extra` more (or fewer) bits of precision, same exponents and scales.
std::optional<conversion> refined(const conversion& c, int extra) {
    conversion o = c;
    if (floating* f = std::get_if<floating>(&o.format)) {
        if (*f == fp32 || f->specials == specials::e8m0) return std::nullopt;
        f->mantissa_bits += extra;
    } else if (block_float* b = std::get_if<block_float>(&o.format)) {
        b->mantissa_bits += extra;
    } else if (microexponent* m = std::get_if<microexponent>(&o.format)) {
        m->mantissa_bits += extra;
    } else if (microscaling* s = std::get_if<microscaling>(&o.format)) {
        if (has_integer_elements(*s))
            s->integer_bits += extra;
        else
            s->element.mantissa_bits += extra;
    } else if (integer* q = std::get_if<integer>(&o.format)) {
        q->bits += extra;
        for (std::int64_t& z : o.zero_point) z = extra > 0 ? z << extra : z >> -extra;
        if (o.scale.empty()) o.scale = {1.0f};
        if (o.given == conversion::granularity::none) o.given = conversion::granularity::tensor;
        for (float& v : o.scale) v = std::ldexp(v, -extra);
    } else {
        return std::nullopt;
    }
    if (!check(o.format).empty()) return std::nullopt;
    return o;
}

std::optional<values> toward_zero(const experiment& e, int extra, std::span<const float> input) {
    auto o = refined(e.c, extra);
    if (!o) return std::nullopt;
    o->how.rounding = rounding::toward_zero;
    return e.run(*o, input);
}

/// The least normal magnitude of the elements, in units.
std::optional<double> least_normal(const qk::format& f) {
    if (const floating* g = std::get_if<floating>(&f); g != nullptr && g->specials != specials::e8m0) return min_normal(*g);
    if (const microscaling* g = std::get_if<microscaling>(&f); g != nullptr && !has_integer_elements(*g)) return min_normal(g->element);
    if (const nvfloat* g = std::get_if<nvfloat>(&f)) return min_normal(g->element);
    return std::nullopt;
}

/// Each block's largest magnitude replaced, which moves the block's scale. By a smaller one: what is larger saturates.
values with_block_maximum(const experiment& e, const std::function<float(float)>& change) {
    values x(e.x.begin(), e.x.end());
    const along_axis a = e.c.blocks;
    const auto size = static_cast<std::size_t>(block_size(e.c.format));
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; l += size) {
            for (std::size_t i = 0; i < a.inner; ++i) {
                std::size_t at = (o * a.length + l) * a.inner + i;
                for (std::size_t k = 0; k < std::min(size, a.length - l); ++k) {
                    const std::size_t here = (o * a.length + l + k) * a.inner + i;
                    if (std::abs(x[here]) > std::abs(x[at])) at = here;
                }
                if (x[at] == 0 || !std::isfinite(x[at])) continue;
                const float amax = std::abs(x[at]), changed = change(amax);
                x[at] = std::copysign(changed, x[at]);
                for (std::size_t k = 0; k < std::min(size, a.length - l) && changed < amax; ++k) {
                    float& v = x[(o * a.length + l + k) * a.inner + i];
                    if (std::abs(v) > changed) v = std::copysign(changed, v);
                }
            }
        }
    }
    return e.run(e.c, x);
}

}  // namespace

std::vector<cause> find_causes(const conversion& c, const graph::dims& shape, std::span<const float> x, std::span<const float> expected,
                               std::span<const float> device, std::span<const float> unit, std::size_t mismatches) {
    const experiment e{c, shape, x, expected, unit};
    std::vector<cause> found;
    // A sentence is worth saying when its converter leaves at most a tenth of the disagreements.
    const auto propose = [&](std::string sentence, const values& y) {
        std::size_t unexplained = 0;
        for (std::size_t i = 0; i < y.size(); ++i) unexplained += !same_value(y[i], device[i]);
        if (unexplained * 10 <= mismatches) found.push_back({std::move(sentence), unexplained});
    };
    const auto propose_if = [&](const char* sentence, const std::optional<values>& y) {
        if (y) propose(sentence, *y);
    };

    // Rounding.
    const values truncated = e.rounded(rounding::toward_zero);
    if (c.how.rounding != rounding::toward_zero) propose("truncation: it drops the low bits instead of rounding", truncated);
    for (const auto& r : rounding_names) {
        if (r.value == rounding::stochastic || r.value == rounding::toward_zero || r.value == c.how.rounding) continue;
        propose(fmt::format("it rounds {} where {} was asked for", r.name, to_text(c.how.rounding)), e.rounded(r.value));
    }
    if (const auto half = toward_zero(e, 1, x)) {  // x is a tie where one more bit holds it and the format does not
        values y(expected.begin(), expected.end());
        for (std::size_t i = 0; i < y.size(); ++i) {
            if (std::isfinite(x[i]) && (*half)[i] == x[i] && truncated[i] != x[i]) y[i] = truncated[i];
        }
        propose("ties go toward zero: a tie above an odd mantissa is truncated instead of rounded up", y);
    }
    for (int guard = 1; guard <= 3; ++guard) {
        if (const auto kept = toward_zero(e, guard, x)) {
            propose(fmt::format(
                        "sticky bits dropped: it rounds from {} bit{} behind the mantissa, and takes what lies just above a tie for a tie",
                        guard, guard == 1 ? "" : "s"),
                    e.run(c, *kept));
        }
    }
    if (const auto even = toward_zero(e, -1, expected))
        propose("the lowest mantissa bit is lost: odd mantissas are truncated to even ones", *even);
    if (const auto even = toward_zero(e, -1, truncated)) {
        values y(expected.begin(), expected.end());
        for (std::size_t i = 0; i < y.size(); ++i) {
            if ((*even)[i] != truncated[i] && std::isfinite(x[i])) y[i] = truncated[i];
        }
        propose("odd mantissas truncated: it rounds only where the mantissa that is kept is even", y);
    }
    for (const auto& [name, first] : {std::pair{"bfloat16", bf16}, std::pair{"float16", fp16}}) {
        values y(x.size());
        conversion o;
        o.format = first;
        fake_quantize(o, x, y);
        propose(fmt::format("double rounding: values are rounded to {} first", name), e.run(c, y));
    }

    // Subnormal numbers.
    if (const auto least = least_normal(c.format)) {
        values halved(expected.begin(), expected.end()), flushed = halved, doubled = halved, cut = halved;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double magnitude = std::abs(static_cast<double>(expected[i])), limit = *least * static_cast<double>(unit[i]);
            if (!(magnitude < limit) || magnitude == 0) continue;
            halved[i] = expected[i] / 2;
            doubled[i] = expected[i] * 2;
            flushed[i] = std::copysign(0.0f, expected[i]);
        }
        propose("a subnormal is encoded a binade too small", halved);
        propose_if("a subnormal is encoded a binade too small, and its last bit is lost", [&]() -> std::optional<values> {
            conversion o = c;
            o.how.rounding = rounding::toward_zero;
            if (is_block_format(c.format)) return std::nullopt;
            return e.run(o, halved);
        }());
        propose("a subnormal is encoded a binade too large", doubled);
        propose("the format's subnormals are flushed to zero", flushed);
        for (float& v : flushed) v = v == 0 ? 0.0f : v;
        propose("the format's subnormals are flushed to +0", flushed);
    }
    if (!c.how.flush_inputs)
        propose("subnormal float32 inputs are flushed to zero", e.with([](conversion& o) { o.how.flush_inputs = true; }));
    if (!c.how.flush_outputs)
        propose("results that are subnormal are flushed to zero", e.with([](conversion& o) { o.how.flush_outputs = true; }));

    // Signs and special values.
    values signless(expected.begin(), expected.end());
    for (float& v : signless) v = v == 0 ? 0.0f : v;
    propose("the sign of zero is lost", signless);
    for (const auto& r : overflow_names) {
        if (r.value != c.how.overflow)
            propose(fmt::format("overflow is treated as by --overflow {}", r.name),
                    e.with([&r](conversion& o) { o.how.overflow = r.value; }));
    }
    for (const auto& s : semantics_names) {
        conversion o = c;
        const qk::semantics asked = c.how;
        o.how = s.value;
        o.how.rounding = asked.rounding;
        o.how.seed = asked.seed;
        if (o.how != asked) propose(fmt::format("it behaves as --semantics {}", s.name), e.run(o, x));
    }
    const block_specials rules[] = {block_specials::block_nan, block_specials::pass_through, block_specials::nan_only};
    const char* said[] = {"an Inf or NaN makes its whole block NaN", "Inf and NaN pass through their block",
                          "an Inf is kept and zeroes its block"};
    for (int k = 0; k < 3 && is_block_format(c.format); ++k) {
        propose(said[k], e.with([&](conversion& o) { o.how.mx_specials = o.how.bfp_specials = rules[k]; }));
    }

    // Integers.
    if (is_integer_format(c.format)) {
        for (const auto& m : integer_mode_names) {
            if (m.value != c.how.integer_mode)
                propose(fmt::format("integer mode {}: the quotient is taken the other way", m.name),
                        e.with([&m](conversion& o) { o.how.integer_mode = m.value; }));
        }
        propose("the zero point is added on the other side of the rounding",
                e.with([](conversion& o) { o.how.zero_point_before = !o.how.zero_point_before; }));
        propose("the lowest code is not used", e.with([](conversion& o) { std::get<integer>(o.format).narrow = true; }));
        propose("the zero point is ignored", e.with([](conversion& o) { o.zero_point.clear(); }));
    }

    // Scales and blocks.
    if (!is_block_format(c.format)) {
        std::stable_sort(found.begin(), found.end(), [](const cause& a, const cause& b) { return a.unexplained < b.unexplained; });
        return found;
    }
    for (const auto& r : scale_rule_names) {
        if (r.value != c.how.scale_rule && std::holds_alternative<microscaling>(c.format)) {
            propose(fmt::format("its scales follow the rule '{}'", r.name), e.with([&r](conversion& o) { o.how.scale_rule = r.value; }));
        }
    }
    // Every logarithm errs at other values, so each value beside a power of two may have either scale.
    values logarithm = with_block_maximum(e, [](float amax) {
        const float power = std::ldexp(1.0f, std::ilogb(amax)), part = amax / power;
        return part > 1.99999f ? 2 * power : part < 1.00001f ? std::nextafter(power, 0.0f) : amax;
    });
    for (std::size_t i = 0; i < logarithm.size(); ++i) {
        if (!same_value(logarithm[i], device[i])) logarithm[i] = expected[i];
    }
    propose("the scale comes from a float32 logarithm, which is a power of two off beside powers of two: take the exponent bits", logarithm);
    if (const block_float* f = std::get_if<block_float>(&c.format); f != nullptr) {
        propose(f->bump ? "the exponent is not bumped" : "bumped exponent: it is raised when an element rounds past the range",
                e.with([](conversion& o) { std::get<block_float>(o.format).bump = !std::get<block_float>(o.format).bump; }));
    }
    propose("every block's scale is a power of two too high", with_block_maximum(e, [](float amax) { return amax * 2; }));
    propose("the block's scale is rounded up: a largest value that is no power of two takes the next one",
            with_block_maximum(
                e, [](float amax) { return std::ldexp(1.0f, std::ilogb(amax) + (std::ldexp(1.0f, std::ilogb(amax)) < amax ? 1 : 0)); }));
    for (const double factor : {0.25, 0.5, 2.0, 4.0}) {
        values y(expected.begin(), expected.end());
        for (float& v : y) v = static_cast<float>(v * factor);
        propose(fmt::format("every value is off by a factor of {}: the bias of the scale is wrong", factor), y);
    }
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
        if (axis != c.axis)
            propose(fmt::format("its blocks run along axis {}, not {}", axis, c.axis),
                    e.with([&](conversion& o) { o.blocks = seen_along(shape, axis); }));
    }
    for (const int size : {8, 16, 32, 64, 128}) {
        if (size == block_size(c.format)) continue;
        propose(fmt::format("its blocks have {} values, not {}", size, block_size(c.format)), e.with([size](conversion& o) {
            std::visit(
                [size](auto& f) {
                    if constexpr (requires { f.block_size; }) f.block_size = size;
                },
                o.format);
        }));
    }
    std::stable_sort(found.begin(), found.end(), [](const cause& a, const cause& b) { return a.unexplained < b.unexplained; });
    return found;
}

}  // namespace qk::tool
