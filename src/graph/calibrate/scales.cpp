// SPDX-License-Identifier: Apache-2.0
// Definitions of scales.hpp. Everything is computed in double and rounded once to float32.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "graph/base/kernel_calls.hpp"
#include "graph/calibrate/searched_scales.hpp"
#include "graph/plan/axis_view.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/portable/range_scale.hpp"
#include "qk/scales.hpp"

namespace qk::graph {

namespace detail {
inline double absmax(value_range r) { return std::max(std::fabs(static_cast<double>(r.lo)), std::fabs(static_cast<double>(r.hi))); }

/// Returns the smallest k with 2^k >= s, for s > 0.
inline int ceil_exponent(double s) {
    int e = 0;
    const double mantissa = std::frexp(s, &e);  // s = mantissa * 2^e, mantissa in [0.5, 1)
    return mantissa == 0.5 ? e - 1 : e;
}

/// Returns the pair for a scale that is already chosen: rules (3) and (4).
inline scale_pair finish_scale(integer f, value_range r, bool symmetric, double scale) {
    const affine s = qk::detail::finished_scale(f, static_cast<double>(r.lo), symmetric, scale);
    return {s.scale, s.zero_point};
}

/// Computes the scale by rules (2) and (3), before any power of two.
inline double raw_scale(integer f, value_range r, bool symmetric) {
    return qk::detail::wanted_scale(f, static_cast<double>(r.lo), static_cast<double>(r.hi), symmetric);
}

/// Calls f(values) for the values that share a scale, in the order in which scales are laid out.
template <class Function>
void for_each_group(std::span<const float> x, bool per_channel, std::size_t block, along_axis a, const Function& f) {
    std::vector<float> group;
    if (block == 0 && !per_channel) return f(x);
    if (block == 0) {
        for (std::size_t c = 0; c < a.length; ++c) {
            group.clear();
            for (std::size_t o = 0; o < a.outer; ++o)
                for (std::size_t i = 0; i < a.inner; ++i) group.push_back(x[(o * a.length + c) * a.inner + i]);
            f(std::span<const float>(group));
        }
        return;
    }
    for (std::size_t o = 0; o < a.outer; ++o)
        for (std::size_t b = 0; b < a.length; b += block)
            for (std::size_t i = 0; i < a.inner; ++i) {
                group.clear();
                for (std::size_t k = b; k < std::min(b + block, a.length); ++k) group.push_back(x[(o * a.length + k) * a.inner + i]);
                f(std::span<const float>(group));
            }
}

/// Returns the scale and zero point of a quantizer that has no more than one.
inline affine only_scale(const quantizer& q) { return {q.scale.empty() ? 1.0f : q.scale[0], q.zero_point.empty() ? 0 : q.zero_point[0]}; }

/// Returns the scale of least squared error among the whole range and ranges shrunk by 1 %, 2 %, ... 80 %; the whole range wins ties.
inline scale_pair best_shrunk(integer f, value_range r, bool symmetric, pow2_rule rule, std::span<const float> values) {
    scale_pair best = scale_of(f, r, symmetric, rule);
    double least = squared_error(f, best, values);
    for (int step = 1; step <= 80; ++step) {
        const float keep = 1.0f - 0.01f * static_cast<float>(step);
        const scale_pair s = scale_of(f, {r.lo * keep, r.hi * keep}, symmetric, rule);
        const double e = squared_error(f, s, values);
        if (e < least) least = e, best = s;
    }
    return best;
}

/// Returns which zero points weights may have. `shifts`: one below the middle, too (best_full).
inline zero_points zero_points_of(integer f, bool symmetric, bool shifts) {
    if (!symmetric) return {qmin(f), qmax(f)};
    const std::int64_t middle = f.is_signed ? 0 : std::int64_t{1} << (used_bits(f) - 1);
    return {middle - std::int64_t{shifts}, middle};
}

/// Returns the scale of least squared error among those that use every code of few bits. The codes of a signed format reach one step
/// further down than up (-8 to 7), so the side of the largest weight decides: the steps are those of absmax / 7, those with which neither
/// side is clipped, and those with which both are clipped by no more than rounding errs. With `shifts` the codes may stand the other way
/// round, by a zero point of -1, for a largest weight above 0.
inline scale_pair best_full(integer f, value_range r, bool shifts, std::span<const float> values) {
    scale_pair best = scale_of(f, r, true, pow2_rule::non_overflow);
    double least = squared_error(f, best, values);
    const std::int64_t middle = f.is_signed ? 0 : std::int64_t{1} << (used_bits(f) - 1);
    const double hi = std::max(0.0, static_cast<double>(r.hi)), lo = std::min(0.0, static_cast<double>(r.lo)), all = absmax(r);
    for (std::int64_t zero = middle; zero >= middle - std::int64_t{shifts}; --zero) {
        const auto up = static_cast<double>(qmax(f) - zero), down = static_cast<double>(zero - qmin(f));
        for (const double scale :
             {std::max(hi / up, -lo / down), std::max(hi / (up + 0.5), -lo / (down + 0.5)), all / std::max(up, down)}) {
            const auto rounded = static_cast<float>(scale);
            if (!(rounded >= std::numeric_limits<float>::min() && std::isfinite(rounded))) continue;
            const double e = squared_error(f, {rounded, zero}, values);
            if (e < least) least = e, best = {rounded, zero};
        }
    }
    return best;
}
}  // namespace detail

double pow2_at_least(double s) { return std::ldexp(1.0, detail::ceil_exponent(s)); }

bool is_symmetric(const precision& what, bool weight) {
    const integer* f = std::get_if<integer>(&what.format);
    if (what.symmetric) return *what.symmetric;
    return f != nullptr && (f->symmetric || (weight && f->is_signed));
}

scale_pair scale_of(integer f, value_range r, bool symmetric, pow2_rule rule) {
    double scale = detail::raw_scale(f, r, symmetric);
    if (f.pow2 && scale > 0 && std::isfinite(scale)) {
        const int e = rule == pow2_rule::nearest ? static_cast<int>(std::nearbyint(std::log2(scale))) : detail::ceil_exponent(scale);
        scale = std::ldexp(1.0, e);
    }
    return detail::finish_scale(f, r, symmetric, scale);
}

static float scale_over(const format& f, value_range r) {
    return qk::detail::scale_of_range(f, static_cast<double>(r.lo), static_cast<double>(r.hi), true).scale;
}
float scale_of(floating f, value_range r) { return scale_over(f, r); }
float scale_of(const table& f, value_range r) { return scale_over(f, r); }
float tensor_scale_of(const format& f, value_range r) { return has_tensor_scale(f) ? scale_over(f, r) : 1.0f; }

value_range range_of(std::span<const float> values) {
    value_range r{0, 0};
    bool any = false;
    for (const float v : values) {
        if (!std::isfinite(v)) continue;
        r = any ? value_range{std::min(r.lo, v), std::max(r.hi, v)} : value_range{v, v};
        any = true;
    }
    return r;
}

double squared_error(integer f, scale_pair s, std::span<const float> values, std::span<const double> weights) {
    qk::detail::integer_error all(f, {s.scale, s.zero_point});
    if (weights.empty()) {
        all.add(values);
        return all.sum();
    }
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += all.of(values[i]) * weights[i];
    return sum;
}

scale_pair best_pow2(integer f, value_range r, bool symmetric, std::span<const float> values, std::span<const double> weights) {
    const double scale = detail::raw_scale(f, r, symmetric);
    scale_pair best = scale_of(f, r, symmetric, pow2_rule::non_overflow);
    if (!(scale > 0)) return best;
    const int center = detail::ceil_exponent(scale);
    double least = squared_error(f, best, values, weights);
    for (int e = center + 1; e >= center - 3; --e) {
        const scale_pair s = detail::finish_scale(f, r, symmetric, std::ldexp(1.0, e));
        const double error = squared_error(f, s, values, weights);
        if (error < least) least = error, best = s;
    }
    return best;
}

quantizer weight_quantizer(const tensor& value, const precision& what, const operand_axes& axes) {
    quantizer q{.format = what.format, .axis = axes.block, .flatten = axes.flatten, .scale = what.scale, .zero_point = what.zero_point};
    q.semantics = semantics_of(what);
    const integer* whole = std::get_if<integer>(&what.format);
    const floating* split = std::get_if<floating>(&what.format);
    const int block = what.block_size.value_or(0);
    const bool per_channel = what.per_channel.value_or(false) && block == 0 && value.rank() > 1;
    const auto positive = [&](int axis) { return static_cast<int>(resolve_axis(axis, value.rank())); };
    if (is_block_format(what.format)) {
        q.axis = q.flatten ? 0 : positive(axes.block);
        if (has_floating_scales(what.format) && q.scale.empty()) q.scale = {tensor_scale_of(what.format, range_of(value.as<float>()))};
        return q;
    }
    // The runs of a grouped Conv's filter lie along the flattened filter, as blocks do; other scales have an axis.
    q.flatten = axes.flatten && block > 0;
    q.block_size = block;
    q.axis = positive(block > 0 && !q.flatten ? axes.block : axes.channel);
    if (!q.scale.empty() || (split != nullptr && !is_scaled(*split))) {
        if (q.scale.empty()) q.block_size = 0;
        return q;
    }
    const along_axis a = detail::seen_by_blocks(value.shape(), q.axis, q.flatten);
    const bool symmetric = is_symmetric(what, true);
    const pow2_rule rule = what.pow2.value_or(pow2_rule::non_overflow);
    const bool mse = what.method == range_method::mse;
    const bool full = !what.method && symmetric && whole != nullptr && !whole->pow2 && whole->bits < 8;
    const bool shifts = full && !what.symmetric && !whole->symmetric && !whole->narrow;
    const bool searches = searches_scales(q.format, q.semantics);
    const detail::zero_points allowed =
        whole != nullptr && searches ? detail::zero_points_of(*whole, symmetric, shifts) : detail::zero_points{};
    detail::for_each_group(value.as<float>(), per_channel, static_cast<std::size_t>(block), a, [&](std::span<const float> group) {
        const value_range r = range_of(group);
        if (whole == nullptr) {
            const table* listed = std::get_if<table>(&what.format);
            const float scale = split != nullptr ? scale_of(*split, r) : listed != nullptr ? scale_of(*listed, r) : 1.0f;
            q.scale.push_back(searches ? detail::searched_scale(q.format, q.semantics, allowed, {scale, 0}, group).scale : scale);
            return;
        }
        scale_pair s = whole->pow2 && rule == pow2_rule::min_mse ? best_pow2(*whole, r, symmetric, group)
                       : mse                                     ? detail::best_shrunk(*whole, r, symmetric, rule, group)
                       : full                                    ? detail::best_full(*whole, r, shifts, group)
                                                                 : scale_of(*whole, r, symmetric, rule);
        if (searches) s = detail::searched_scale(q.format, q.semantics, allowed, s, group);
        q.scale.push_back(s.scale);
        q.zero_point.push_back(s.zero_point);
    });
    if (!is_shifted(q)) q.zero_point.clear();
    return q;
}

quantizer detail::weighed_quantizer(quantizer q, const tensor& value, std::span<const float> weights) {
    const along_axis a = seen_by_blocks(value.shape(), q.axis, q.flatten);
    const bool per_channel = q.block_size == 0 && q.scale.size() > 1, shifted = !q.zero_point.empty();
    const auto block = static_cast<std::size_t>(q.block_size);
    zero_points allowed;
    if (shifted) {
        const auto [lowest, highest] = std::minmax_element(q.zero_point.begin(), q.zero_point.end());
        allowed = {*lowest, *highest};
    }
    std::vector<std::vector<float>> groups;
    for_each_group(weights, per_channel, block, a, [&](std::span<const float> group) { groups.emplace_back(group.begin(), group.end()); });
    std::size_t i = 0;
    for_each_group(value.as<float>(), per_channel, block, a, [&](std::span<const float> group) {
        const scale_pair before{q.scale[i], shifted ? q.zero_point[q.zero_point.size() == 1 ? 0 : i] : 0};
        const scale_pair s = searched_scale(q.format, q.semantics, allowed, before, group, groups[i]);
        q.scale[i] = s.scale;
        if (shifted && q.zero_point.size() == q.scale.size()) q.zero_point[i] = s.zero_point;
        ++i;
    });
    return q;
}

quantizer activation_quantizer(const precision& what, value_range range, const operand_axes& axes) {
    quantizer q{.format = what.format, .axis = axes.block, .flatten = false, .scale = what.scale, .zero_point = what.zero_point};
    q.semantics = semantics_of(what);
    if (what.range) range = {what.range->first, what.range->second};
    if (const integer* f = std::get_if<integer>(&what.format)) {
        q.axis = axes.channel;
        q.dynamic = what.dynamic;
        if (q.dynamic || !q.scale.empty()) return q;
        const scale_pair s = scale_of(*f, range, is_symmetric(what, false), what.pow2.value_or(pow2_rule::non_overflow));
        q.scale = {s.scale};
        if (s.zero_point != 0) q.zero_point = {s.zero_point};
    } else if (const floating* g = std::get_if<floating>(&what.format)) {
        q.axis = axes.channel;
        q.dynamic = what.dynamic && is_scaled(*g);
        if (!q.dynamic && q.scale.empty() && is_scaled(*g)) q.scale = {scale_of(*g, range)};
    } else if (const table* listed = std::get_if<table>(&what.format)) {
        q.axis = axes.channel;
        q.dynamic = what.dynamic;
        if (!q.dynamic && q.scale.empty()) q.scale = {scale_of(*listed, range)};
    } else if (has_floating_scales(what.format)) {
        if (q.scale.empty() && !what.dynamic && detail::absmax(range) > 0) q.scale = {tensor_scale_of(what.format, range)};
    }
    return q;
}

void apply(const quantizer& q, const tensor& value, std::span<float> y) {
    const std::span<const float> x = value.as<float>();
    if (x.empty()) return;
    const along_axis a = detail::seen_by_blocks(value.shape(), q.axis, q.flatten);
    if (is_block_format(q.format)) {
        if (has_floating_scales(q.format))  // a tensor scale of 0 is computed from the data
            return kernel_calls::fake_quantize(q.format, x, y, a, affine{q.scale.empty() ? 0.0f : q.scale[0], 0}, q.semantics);
        return kernel_calls::fake_quantize(q.format, x, y, a, q.semantics);
    }
    if (q.dynamic) {
        const value_range r = range_of(x);
        if (const auto small = subnormal_dynamic_scale(q.format, std::min(r.lo, 0.0f), std::max(r.hi, 0.0f)))
            return kernel_calls::fake_quantize(q.format, x, y, *small, q.semantics);
        const quantizer now = activation_quantizer({.format = q.format, .semantics = q.semantics}, r, {});
        return kernel_calls::fake_quantize(q.format, x, y, detail::only_scale(now), q.semantics);
    }
    if (q.scale.size() <= 1) return kernel_calls::fake_quantize(q.format, x, y, detail::only_scale(q), q.semantics);
    const std::span<const std::int64_t> zero_point = q.zero_point;
    if (q.scale.size() != scales_along(q, a))
        throw error("a quantizer has " + std::to_string(q.scale.size()) + " scales for axis " + std::to_string(q.axis) + " of a tensor " +
                    to_string(value.shape()));
    if (q.block_size > 0)
        return kernel_calls::fake_quantize(q.format, x, y, per_block{q.scale, zero_point, a, static_cast<std::size_t>(q.block_size)},
                                           q.semantics);
    kernel_calls::fake_quantize(q.format, x, y, per_channel{q.scale, zero_point, a}, q.semantics);
}

tensor applied(const quantizer& q, const tensor& value) {
    tensor y(value.type(), value.shape());
    apply(q, value, y.as<float>());
    return y;
}

double sqnr(std::span<const float> reference, std::span<const float> value) {
    double signal = 0, noise = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        const double r = static_cast<double>(reference[i]), e = r - static_cast<double>(value[i]);
        signal += r * r;
        noise += e * e;
    }
    return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

}  // namespace qk::graph
