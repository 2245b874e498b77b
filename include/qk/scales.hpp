// SPDX-License-Identifier: Apache-2.0
// Scales and zero points from data: of a tensor, of its channels, of its blocks. docs/reference/numerics.md, "Calibration".
//
//   const qk::affine a = qk::scale_from(qk::int8, x);                                       // absmax / 127
//   qk::fake_quantize<qk::int8>(x, y, a);
//   qk::scales_from(qk::int4, w, {.axis = {rows, columns, 1}, .block_size = 32}, qk::scale_choice::mse, scale);
//   qk::encode<qk::int4>(w, packed, qk::per_block{scale, {}, {rows, columns, 1}, 32});
//
// Contract: x is float, float16 or bfloat16 (values_in: with a pitch, too). NaN and Inf are left out. Nothing is allocated or thrown. All
// is computed in double and rounded once to float32. A scale is finite and at least the smallest normal number: where the data give none
// (only zeros, nothing finite) it is 1. Formats that take no scale (MX and other blocks, floats of 16 bits and more) have 1; of NVFP4 the
// result is the tensor scale.
#pragma once

#include "qk/exact/begin.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "qk/exact/product.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/formats/format.hpp"
#include "qk/isa.hpp"
#include "qk/memory/values.hpp"
#include "qk/observe.hpp"

namespace qk {

enum class scale_choice : std::uint8_t {
    absmax,   ///< the largest magnitude becomes the largest value; the zero point is 0, of unsigned integers the middle
    min_max,  ///< integers: the lowest code is the smallest value or 0, the highest the largest or 0, and 0 has a code. Others: absmax
    mse,      ///< absmax, or for unsigned integers min_max, with the range shrunk by 0, 1, ... 80 % to the least squared error
};

/// Whose scales are wanted: block_size 0: one for each index along the axis (per_channel); else those of per_block.
struct scale_places {
    along_axis axis;
    std::size_t block_size = 0;
    std::size_t block_rows = 1;
};

inline namespace QK_ISA {

/// Returns the scale of values within a range (absmax, min_max).
affine scale_from(const format& f, const observed_range& range, scale_choice how = scale_choice::absmax) noexcept;

/// Returns the scale of a tensor.
template <class Arch = native>
affine scale_from(const format& f, const values_in& x, scale_choice how = scale_choice::absmax) noexcept;
template <auto Format, class Arch = native>
affine scale_from(const values_in& x, scale_choice how = scale_choice::absmax) noexcept {
    return scale_from<Arch>(format(Format), x, how);
}

/// Writes a scale for each channel or block, as many as per_channel or per_block have, and the zero points where they are wanted. Without
/// zero points all are 0 (of unsigned integers the middle), whatever the choice.
template <class Arch = native>
void scales_from(const format& f, const values_in& x, const scale_places& of, scale_choice how, std::span<float> scale,
                 std::span<std::int64_t> zero_point = {}) noexcept;

}  // namespace QK_ISA

// ---- implementation

namespace detail {
inline namespace QK_ISA {

/// Returns the scale that a range wants, before it is rounded.
inline double wanted_scale(integer f, double lo, double hi, bool symmetric) {
    const double most = std::max(std::fabs(lo), std::fabs(hi));
    if (symmetric) {
        if (f.is_signed) return most / static_cast<double>(std::max<std::int64_t>(qmax(f), 1));
        return 2 * most / static_cast<double>(qmax(f));
    }
    return (std::max(0.0, hi) - std::min(0.0, lo)) / static_cast<double>(qmax(f) - qmin(f));
}
/// Returns the pair for a scale that is chosen; 1 and 0 where it is no normal number.
inline affine finished_scale(integer f, double lo, bool symmetric, double scale) {
    const auto rounded = static_cast<float>(scale);
    if (!(rounded >= std::numeric_limits<float>::min() && rounded <= std::numeric_limits<float>::max())) return {1.0f, 0};
    if (symmetric) return {rounded, f.is_signed ? 0 : std::int64_t{1} << (used_bits(f) - 1)};
    const double zero = std::nearbyint(static_cast<double>(qmin(f)) - std::min(lo, 0.0) / static_cast<double>(rounded));
    return {rounded, static_cast<std::int64_t>(std::clamp(zero, static_cast<double>(qmin(f)), static_cast<double>(qmax(f))))};
}
inline float finished_scale(double wanted) {
    const auto scale = static_cast<float>(wanted);
    return scale >= std::numeric_limits<float>::min() ? scale : 1.0f;
}
inline affine scale_of_range(const format& f, double lo, double hi, bool symmetric) {
    const double most = std::max(std::fabs(lo), std::fabs(hi));
    if (const integer* i = std::get_if<integer>(&f)) return finished_scale(*i, lo, symmetric, wanted_scale(*i, lo, hi, symmetric));
    if (const table* t = std::get_if<table>(&f)) return {finished_scale(most / reach(*t)), 0};
    if (const floating* g = std::get_if<floating>(&f))
        return {bits(*g) < 16 && has_zero(*g) ? finished_scale(most / max_value(*g)) : 1.0f, 0};
    if (has_tensor_scale(f)) return {finished_scale(most / (max_value(*element_float(f)) * max_value(*scale_float(f)))), 0};
    return {1.0f, 0};
}

/// Sums the squared errors that a scale causes on finite values of an integer format. Products are rounded before they meet a sum, so that
/// every processor chooses the same scale. Eight sums and a rounding by addition (1.5 * 2^52
/// leaves no fraction, half-even) let the compiler use vectors. Pieces but the last have a multiple of eight values.
class integer_error {
  public:
    integer_error(integer f, affine s)
        : lowest_(static_cast<double>(qmin(f) - s.zero_point)),
          highest_(static_cast<double>(qmax(f) - s.zero_point)),
          scale_(static_cast<double>(s.scale)),
          inverse_(1.0 / scale_) {}
    void add(std::span<const float> x) {
        constexpr double whole = 6755399441055744.0;
        for (; x.size() >= lanes; x = x.subspan(lanes)) {
            double products[lanes];
            for (std::size_t l = 0; l < lanes; ++l) products[l] = static_cast<double>(x[l]) * inverse_;
            keep(products);
            for (std::size_t l = 0; l < lanes; ++l) products[l] = clamped((products[l] + whole) - whole) * scale_;
            keep(products);
            for (std::size_t l = 0; l < lanes; ++l) {
                const double e = static_cast<double>(x[l]) - products[l];
                products[l] = e * e;
            }
            keep(products);
            for (std::size_t l = 0; l < lanes; ++l) sums_[l] += products[l];
        }
        for (const float v : x) last_[rest_++] = of(v);
    }
    /// Returns the squared error of one value.
    double of(float x) const {
        const double v = static_cast<double>(x), e = v - kept(clamped(std::nearbyint(v * inverse_)) * scale_);
        return kept(e * e);
    }
    double sum() const {
        double all = 0;
        for (const double s : sums_) all += s;
        for (std::size_t i = 0; i < rest_; ++i) all += last_[i];
        return all;
    }

  private:
    static constexpr std::size_t lanes = 8;
    double clamped(double code) const { return std::clamp(code, lowest_, highest_); }
    double lowest_, highest_, scale_, inverse_;
    double sums_[lanes] = {}, last_[lanes] = {};
    std::size_t rest_ = 0;
};

/// Calls call(floats) for pieces of the finite values that share a scale: those of entry `e`, in the order of the array. Each piece but the
/// last has 256 of them.
template <class Call>
void finite_values_of(const values_in& x, along_axis a, const scale_places& of, std::size_t e, const Call& call) {
    constexpr std::size_t most = 256;
    float piece[most];
    std::size_t held = 0;
    const auto take = [&](float v) {
        if (!is_finite(v)) return;
        piece[held++] = v;
        if (held == most) call(std::span<const float>(piece, most)), held = 0;
    };
    if (of.block_size == 0) {
        for (std::size_t o = 0; o < a.outer; ++o)
            for (std::size_t i = 0; i < a.inner; ++i) take(x[(o * a.length + e) * a.inner + i]);
    } else {
        const std::size_t blocks = (a.length + of.block_size - 1) / of.block_size, i = e % a.inner, b = e / a.inner % blocks,
                          row = e / a.inner / blocks * of.block_rows;
        for (std::size_t o = row; o < std::min(a.outer, row + of.block_rows); ++o)
            for (std::size_t l = b * of.block_size; l < std::min(a.length, (b + 1) * of.block_size); ++l)
                take(x[(o * a.length + l) * a.inner + i]);
    }
    if (held != 0) call(std::span<const float>(piece, held));
}

/// Returns the squared error of values of an integer format, a small float or a table under a scale.
template <class Arch, class Values>
double error_under(const format& f, affine s, const Values& each) {
    if (const integer* i = std::get_if<integer>(&f)) {
        integer_error e(*i, s);
        each([&](std::span<const float> piece) { e.add(piece); });
        return e.sum();
    }
    double sum = 0;
    each([&](std::span<const float> piece) {
        alignas(64) float y[256];
        if (const floating* g = std::get_if<floating>(&f)) {
            kernels::run_uniform<Arch>(*g, piece.data(), y, piece.size(), 0, s.scale, 0, semantics::ocp, true);
        } else if (const table* t = std::get_if<table>(&f)) {
            kernels::run_uniform<Arch>(*t, piece.data(), y, piece.size(), 0, s.scale, 0, semantics::ocp, true);
        }
        for (std::size_t k = 0; k < piece.size(); ++k) {
            const double d = static_cast<double>(piece[k]) - static_cast<double>(y[k]);
            sum += kept(d * d);
        }
    });
    return sum;
}

/// Chooses a scale. each(call) calls call(span) for all values, piece by piece.
template <class Arch, class Values>
affine chosen_scale(const format& f, scale_choice how, bool with_zero, const Values& each) {
    observed_range r;
    each([&](std::span<const float> piece) { r.observe(piece); });
    const integer* of = std::get_if<integer>(&f);
    const bool symmetric = !with_zero || how == scale_choice::absmax || (how == scale_choice::mse && of != nullptr && of->is_signed);
    affine best = scale_of_range(f, static_cast<double>(r.min), static_cast<double>(r.max), symmetric);
    if (how != scale_choice::mse || is_block_format(f)) return best;
    double least = error_under<Arch>(f, best, each);
    for (int step = 1; step <= 80; ++step) {
        const float part = 1.0f - kept(0.01f * static_cast<float>(step));
        const affine s = scale_of_range(f, static_cast<double>(r.min * part), static_cast<double>(r.max * part), symmetric);
        if (const double e = error_under<Arch>(f, s, each); e < least) least = e, best = s;
    }
    return best;
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

inline affine scale_from(const format& f, const observed_range& range, scale_choice how) noexcept {
    QK_EXPECT(how != scale_choice::mse, "qk: a scale by its error needs the values, not their range");
    return detail::scale_of_range(f, static_cast<double>(range.min), static_cast<double>(range.max), how != scale_choice::min_max);
}
template <class Arch>
affine scale_from(const format& f, const values_in& x, scale_choice how) noexcept {
    detail::expect_format(f);
    const scale_places all{.axis = {1, x.size(), 1}, .block_size = x.size() + 1};
    return detail::chosen_scale<Arch>(f, how, true, [&](const auto& call) { detail::finite_values_of(x, all.axis, all, 0, call); });
}
template <class Arch>
void scales_from(const format& f, const values_in& x, const scale_places& of, scale_choice how, std::span<float> scale,
                 std::span<std::int64_t> zero_point) noexcept {
    detail::expect_format(f);
    detail::expect_axis(of.axis, x.size());
    const along_axis a = resolved(of.axis, x.size());
    QK_EXPECT(scale.size() == detail::entries_of(a, of.block_size, of.block_rows),
              "qk: there must be a scale for each channel or block along the axis");
    QK_EXPECT(zero_point.empty() || zero_point.size() == scale.size(), "qk: there must be a zero point for each scale, or none at all");
    for (std::size_t e = 0; e < scale.size(); ++e) {
        const affine s =
            detail::chosen_scale<Arch>(f, how, !zero_point.empty(), [&](const auto& call) { detail::finite_values_of(x, a, of, e, call); });
        scale[e] = s.scale;
        if (!zero_point.empty()) zero_point[e] = s.zero_point;
    }
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
