// SPDX-License-Identifier: Apache-2.0
#include "hardware/devices/device_columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qk/dot/aligned_columns.hpp"
#include "qk/dot/joined_columns.hpp"
#include "qk/dot/rounded_columns.hpp"

namespace qk::graph::execute {
namespace {

constexpr int lanes = 16;
constexpr float infinity = std::numeric_limits<float>::infinity(), not_a_number = std::numeric_limits<float>::quiet_NaN();

bool is_special(const device_sums::element_tile& t, std::size_t i) { return t.exponent[i] >= device_sums::first_special; }
float special_value(const device_sums::element_tile& t, std::size_t i) {
    if (t.exponent[i] >= device_sums::first_nan || t.n[i] == 0) return not_a_number;
    return t.n[i] < 0 ? -infinity : infinity;
}
/// Returns what stands for a finite number beside special values: its sign.
template <class N>
float sign_of(N n) {
    return static_cast<float>((n > 0) - (n < 0));
}
/// Returns element i as a float32, which holds it exactly (holds_float32s).
float value_at(const device_sums::element_tile& t, std::size_t i, int fraction) {
    if (is_special(t, i)) return special_value(t, i);
    if (t.n[i] == 0) return t.negative[i] != 0 ? -0.0f : 0.0f;
    return static_cast<float>(t.n[i] * power_of_two(t.exponent[i] - fraction));
}

/// Is true for formats each of whose codes is a number by itself.
template <class Format>
constexpr bool has_lone_codes = std::is_same_v<Format, floating> || std::is_same_v<Format, integer> || std::is_same_v<Format, table>;

/// Calls take(tile, how many, position of the first) for all codes of o, which has no blocks, until it returns false.
template <class Take>
void each_tile(const accumulator& how, const unit_operand& o, const Take& take) {
    const device_sums::reading reading = device_sums::reading_of(how, o.zero_point);
    const auto of_family = [&](const auto& f) {
        if constexpr (has_lone_codes<std::remove_cvref_t<decltype(f)>>) {
            device_sums::element_tile t;
            for (std::size_t i = 0; i < o.codes.size(); i += device_sums::dot_tile) {
                const std::size_t count = std::min(device_sums::dot_tile, o.codes.size() - i);
                device_sums::take_codes(f, o.codes.data() + i, count, reading, t);
                if (!take(t, count, i)) return;
            }
        }
    };
    std::visit(of_family, o.format);
}

/// Splits elements of at most 15 bits (integers: 16) into whole numbers and exponents. `drop` is the number of low bits that operands lose.
void take_numbers(const accumulator& how, unit_operand& o, int drop) {
    o.n.resize(o.codes.size()), o.exponent.resize(o.codes.size());
    bool fits = true;
    each_tile(how, o, [&](const device_sums::element_tile& t, std::size_t count, std::size_t at) {
        for (std::size_t j = 0; j < count; ++j) {
            const bool special = is_special(t, j);
            if (special && o.special.empty()) {
                o.special.resize(o.codes.size());
                for (std::size_t i = 0; i < at + j; ++i) o.special[i] = sign_of(o.n[i]);
            }
            const std::int32_t n = special ? 0 : t.n[j] >> drop;
            fits = fits && n >= -32768 && n <= 32767;
            o.n[at + j] = static_cast<std::int16_t>(n);
            o.exponent[at + j] = static_cast<std::int16_t>(special ? -126 : t.exponent[j]);
            if (!o.special.empty()) o.special[at + j] = special ? special_value(t, j) : sign_of(n);
        }
        return fits;
    });
    if (!fits) o.n.clear(), o.exponent.clear();
}

class column_product {
  public:
    column_product(const accumulator& how, column_way way, const unit_operand& rows, const unit_operand& kind, product_shape s)
        : how_(how), way_(way), rows_(rows), kind_(kind), s_(s) {
        const bool exact = way == column_way::exact;
        if (way == column_way::aligned || way == column_way::joined) {
            raise_ = how.align - rows.kind.fraction - kind.kind.fraction;
            chunk_ = std::size_t{1} << (31 - device_sums::aligned_bits(how, rows.kind, kind.kind));
        }
        if (exact) lsb_ = rows.kind.lowest + kind.kind.lowest - rows.kind.fraction - kind.kind.fraction;
    }

    void run(std::size_t first_row, const unit_columns& columns, float* d, const std::function<float(std::size_t, std::size_t)>& general) {
        if (way_ != column_way::rounded) take_rows(first_row);
        const bool specials = way_ != column_way::rounded && (columns.special != nullptr || !rows_.special.empty());
        for (std::size_t j = 0; j < s_.n; j += lanes) {
            const std::size_t width = std::min<std::size_t>(lanes, s_.n - j);
            take_panel(columns, j, width, specials);
            for (std::size_t i = 0; i < s_.m; ++i) {
                std::uint64_t stored[lanes];
                bool known[lanes];
                std::fill_n(known, lanes, sums(i, first_row, stored));
                if (specials) special_sums(i, first_row, stored, known);
                for (std::size_t l = 0; l < width; ++l) d[i * s_.n + j + l] = known[l] ? stored_value(how_, stored[l]) : general(i, j + l);
            }
        }
    }

  private:
    /// Returns the exponent for the lanes. Exact sums shift to the left by exponents that count from the lowest one; a zero has 0.
    std::int16_t placed(std::int16_t value, std::int16_t e, int lowest) const {
        return static_cast<std::int16_t>(way_ != column_way::exact ? e : value == 0 ? 0 : e - lowest);
    }
    void take_rows(std::size_t first_row) {
        row_.resize(s_.m * s_.k), row_exponent_.resize(s_.m * s_.k);
        for (std::size_t i = 0; i < s_.m * s_.k; ++i) {
            const std::size_t at = first_row * s_.k + i;
            row_[i] = std::int32_t{rows_.n[at]} * (1 << raise_);
            row_exponent_[i] = placed(rows_.n[at], rows_.exponent[at], rows_.kind.lowest);
        }
    }
    /// Copies `width` columns from j on to contiguous panels [k][lanes]; lanes without a column hold zeros.
    void take_panel(const unit_columns& columns, std::size_t j, std::size_t width, bool specials) {
        const auto take = [&](const auto* from, auto& panel, auto zero, const auto& as) {
            panel.resize(s_.k * lanes);
            for (std::size_t i = 0; i < s_.k; ++i) {
                auto* to = panel.data() + i * lanes;
                for (std::size_t l = 0; l < width; ++l) to[l] = as(from[i * s_.n + j + l], i * s_.n + j + l);
                std::fill(to + width, to + lanes, zero);
            }
        };
        const auto itself = [](auto v, std::size_t) { return v; };
        if (way_ == column_way::rounded) return take(columns.value, value_, 0.0f, itself);
        take(columns.n, n_, std::int16_t{0}, itself);
        take(columns.exponent, exponent_, static_cast<std::int16_t>(way_ == column_way::exact ? 0 : -126),
             [&](std::int16_t e, std::size_t at) { return placed(columns.n[at], e, kind_.kind.lowest); });
        if (!specials) return;
        if (columns.special != nullptr) take(columns.special, special_, 0.0f, itself);
        else take(columns.n, special_, 0.0f, [](std::int16_t n, std::size_t) { return sign_of(n); });
    }

    /// Multiplies one row by the panel. Returns false if a register overflowed.
    bool sums(std::size_t i, std::size_t first_row, std::uint64_t* stored) const {
        using namespace device_sums;
        const std::int32_t *a = row_.data() + i * s_.k, *e = row_exponent_.data() + i * s_.k;
        const apart b{n_.data(), exponent_.data()};
        const bool down = how_.cut == rounding::down;
        std::uint32_t codes[lanes];
        std::int64_t whole[lanes];
        bool holds = true;
        switch (way_) {
            case column_way::rounded:
                rounded_row<lanes>(how_, s_.k, rows_.value.data() + (first_row + i) * s_.k, value_.data(), lanes, stored);
                for (int l = 0; l < lanes; ++l) stored[l] = stored_code(how_.result, stored[l]);
                return true;
            case column_way::exact: exact_columns<lanes>(s_.k, a, e, b, lanes, whole); break;
            case column_way::stopping: stopping_columns<lanes>(how_, s_.k, a, n_.data(), lanes, whole); break;
            case column_way::aligned:
                holds = (down ? aligned_columns<lanes, true> : aligned_columns<lanes, false>)(how_, s_.k, a, e, b, lanes, chunk_, codes);
                break;
            case column_way::bundled:
                holds =
                    (down ? bundled_columns<lanes, true> : bundled_columns<lanes, false>)(how_, bundle_raise(how_, rows_.kind, kind_.kind),
                                                                                          s_.k, a, e, b, lanes, codes);
                break;
            case column_way::joined:
                holds = down ? joined_columns<lanes, true>(how_, s_.k, a, e, b, lanes, chunk_).sums(codes)
                             : joined_columns<lanes, false>(how_, s_.k, a, e, b, lanes, chunk_).sums(codes);
                break;
            case column_way::none: return false;
        }
        if (way_ == column_way::exact || way_ == column_way::stopping) {
            for (int l = 0; l < lanes; ++l) holds = store_exact(how_, whole[l], lsb_, stored[l]) && holds;
            return holds;
        }
        events ignored;
        for (int l = 0; holds && l < lanes; ++l)
            stored[l] = stored_code(how_.result, scaled_code(how_, codes[l], rows_.factor * kind_.factor, 0, ignored));
        return holds;
    }
    /// Finds the sums that Inf or NaN decide: a sum of products of special values and signs is finite if no special value takes part.
    void special_sums(std::size_t i, std::size_t first_row, std::uint64_t* stored, bool* known) const {
        alignas(64) float sum[lanes] = {0};
        const std::size_t from = (first_row + i) * s_.k;
        for (std::size_t k = 0; k < s_.k; ++k) {
            const std::int16_t n = rows_.n[from + k];
            const float x = rows_.special.empty() ? sign_of(n) : rows_.special[from + k];
            const float* y = special_.data() + k * lanes;
            for (int l = 0; l < lanes; ++l) sum[l] += x * y[l];
        }
        for (int l = 0; l < lanes; ++l) {
            if (std::isfinite(sum[l])) continue;
            known[l] = std::isnan(sum[l]);  // Inf may meet an Inf that a register overflowed to
            stored[l] = device_sums::stored_code(how_.result, device_sums::nan_of(how_.result, how_.nan));
        }
    }

    const accumulator& how_;
    column_way way_;
    const unit_operand &rows_, &kind_;
    product_shape s_;
    int raise_ = 0, lsb_ = 0;
    std::size_t chunk_ = 1;
    std::vector<std::int32_t> row_, row_exponent_;
    std::vector<std::int16_t> n_, exponent_;
    std::vector<float> value_, special_;
};

}  // namespace

void take_apart(const accumulator& how, unit_operand& o) {
    const auto of_family = [&](const auto& f) {
        using family = std::remove_cvref_t<decltype(f)>;
        o.kind = device_sums::kind_of(f);
        int drop = 0;
        if constexpr (std::is_same_v<family, floating>) {
            drop = how.operand_bits == 0 ? 0 : std::max(0, f.mantissa_bits - how.operand_bits);
            o.kind.fraction -= drop, o.kind.width -= drop;  // those bits are zeros
        }
        if constexpr (has_lone_codes<std::remove_cvref_t<decltype(f)>>) {
            device_sums::element_tile t;
            const std::uint32_t zero = is_integer_format(o.format) ? static_cast<std::uint32_t>(o.zero_point) : 0;
            device_sums::take_codes(f, &zero, 1, device_sums::reading_of(how, o.zero_point), t);
            o.zero_exponent = static_cast<std::int16_t>(t.exponent[0]);
        }
        if (device_sums::serves_rounded_columns(how, o.format, o.format)) {
            o.value.resize(o.codes.size());
            const int fraction = o.kind.fraction + drop;
            each_tile(how, o, [&](const device_sums::element_tile& t, std::size_t count, std::size_t at) {
                for (std::size_t j = 0; j < count; ++j) o.value[at + j] = value_at(t, j, fraction);
                return true;
            });
        } else if (o.kind.width <= (is_integer_format(o.format) ? 16 : 15)) {
            take_numbers(how, o, drop);
        }
    };
    std::visit(of_family, o.format);
}

column_way way_of(const accumulator& how, const unit_operand& a, const unit_operand& b, std::size_t k) {
    if (device_sums::serves_rounded_columns(how, a.format, b.format)) return column_way::rounded;
    if ((a.n.empty() && !a.codes.empty()) || (b.n.empty() && !b.codes.empty())) return column_way::none;
    if (device_sums::serves_exact_columns(how, a.kind, b.kind, k)) return column_way::exact;
    if (device_sums::serves_stopping_columns(how, a.kind, b.kind)) return column_way::stopping;
    if (device_sums::serves_aligned_columns(how, a.kind, b.kind)) return column_way::aligned;
    if (device_sums::serves_joined_columns(how, a.kind, b.kind)) return column_way::joined;
    if (device_sums::serves_bundled_columns(how, a.kind, a.block, b.kind, b.block)) return column_way::bundled;
    return column_way::none;
}

void multiply_columns(const accumulator& how, column_way way, const unit_operand& rows, std::size_t first_row, const unit_operand& kind,
                      const unit_columns& columns, product_shape s, float* d,
                      const std::function<float(std::size_t, std::size_t)>& general) {
    column_product(how, way, rows, kind, s).run(first_row, columns, d, general);
}

}  // namespace qk::graph::execute
