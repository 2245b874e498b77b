// SPDX-License-Identifier: Apache-2.0
#include "dot_questions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "qk/formats/codes/code.hpp"
#include "qk/reference.hpp"

namespace qk::compare {
namespace {

const floating* float_elements(const qk::format& f) {
    if (const auto* m = std::get_if<microscaling>(&f)) return &m->element;
    if (has_floating_scales(f)) return element_float(f);
    return std::get_if<floating>(&f);
}

/// Returns the code of the number nearest to v.
std::uint64_t code_near(const qk::format& f, double v) {
    if (const floating* g = float_elements(f)) {
        if (*g == fp32 || v != v || std::isinf(v)) return code_of(*g, static_cast<float>(v));
        qk::semantics how;
        how.overflow = overflow_rule::saturate;
        return code_of(*g, reference::quantize(*g, static_cast<float>(v), how, 0));
    }
    if (const auto* h = std::get_if<block_float>(&f)) {
        const double most = std::ldexp(1.0, h->mantissa_bits) - 1;
        const auto magnitude = static_cast<std::uint64_t>(std::clamp(std::nearbyint(std::fabs(v)), 0.0, most));
        const std::uint64_t ones = (std::uint64_t{2} << h->mantissa_bits) - 1;
        if (h->bump) return (std::signbit(v) ? ~magnitude + 1 : magnitude) & ones;
        return magnitude | (std::signbit(v) ? std::uint64_t{1} << h->mantissa_bits : 0);
    }
    const integer& g = std::get<integer>(f);
    const double q = std::clamp(std::nearbyint(v), static_cast<double>(qmin(g)), static_cast<double>(qmax(g)));
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(q)) & ((std::uint64_t{1} << g.bits) - 1);
}

/// The exponents of an operand's numbers, subnormals included.
struct exponent_range {
    int least, normal, most;
};
exponent_range range_of(const qk::format& f) {
    if (const floating* g = float_elements(f)) {
        // For wide formats this is a part of the range, in which products of two are still float32 numbers.
        const int least = min_exponent(*g) - g->mantissa_bits, most = max_exponent(*g);
        return {std::max(least, -150), std::max(min_exponent(*g), -126), std::min(most, 127)};
    }
    if (const auto* h = std::get_if<block_float>(&f)) return {0, 0, h->mantissa_bits - 1};
    return {0, 0, std::get<integer>(f).bits - 1 - int{std::get<integer>(f).is_signed}};
}

enum class kind { ordinary, one, two, two_near, cancelling, few_large, any_exponent, subnormal, huge, special, zeros, count };

class maker {
  public:
    /// `reach`: exponents that are mostly used lie so near to 0.
    maker(const qk::format& f, random_source& random, int reach) : f_(f), r_(random), range_(range_of(f)), reach_(reach) {}

    double number(int exponent) {
        const double significand = 1 + r_.word() * 0x1p-32 * (r_.below(4) == 0 ? 0 : 1);
        return std::ldexp(r_.below(2) != 0 ? -significand : significand, exponent);
    }
    int below(int n) { return static_cast<int>(r_.below(static_cast<std::uint32_t>(n))); }
    int any_exponent() { return range_.normal + below(range_.most - range_.normal + 1); }
    /// Returns an exponent about the middle of the range, so that products neither overflow nor become subnormal.
    int middle() {
        const int reach = reach_ == 24 || below(4) == 0 ? 24 : reach_, low = std::max(range_.normal, -reach),
                  high = std::max(low, std::min(range_.most, reach));
        return low + below(high - low + 1);
    }
    std::vector<std::uint64_t> line(kind what, std::size_t k) {
        std::vector<double> v(k, 0.0);
        const auto somewhere = [&] { return r_.below(static_cast<std::uint32_t>(k)); };
        const auto fill = [&](const auto& exponent) {
            for (double& x : v) x = number(exponent());
        };
        const int base = middle();
        switch (what) {
            case kind::ordinary: fill([&] { return std::clamp(base - below(4), range_.least, range_.most); }); break;
            case kind::one: v[somewhere()] = number(middle()); break;
            case kind::two:
                v[somewhere()] = number(middle());
                v[somewhere()] = number(middle());
                break;
            case kind::two_near: {
                const std::size_t at = somewhere(), step = std::size_t{1} << r_.below(6);
                v[at] = number(middle());
                if (at + step < k) v[at + step] = number(middle());
                break;
            }
            case kind::cancelling: {
                fill([&] { return std::max(range_.normal, base - 4 - below(24)); });
                const double large = number(range_.most > 24 ? 20 : range_.most);
                const std::size_t at = somewhere();
                v[at] = large;
                v[somewhere()] = -large;
                break;
            }
            case kind::few_large:
                fill([&] { return std::max(range_.normal, base - 6 - below(12)); });
                for (int n = 0; n < 3; ++n) v[somewhere()] = number(base);
                break;
            case kind::any_exponent: fill([&] { return middle(); }); break;
            case kind::subnormal: fill([&] { return range_.least + below(std::max(1, range_.normal - range_.least + 2)); }); break;
            case kind::huge: fill([&] { return std::max(range_.normal, range_.most - below(3)); }); break;
            case kind::special:
                fill([&] { return any_exponent(); });
                v[somewhere()] = r_.below(3) == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                  : std::copysign(std::numeric_limits<double>::infinity(), number(0));
                break;
            default:
                for (double& x : v) x = r_.below(2) != 0 ? -0.0 : 0.0;
                if (r_.below(2) != 0) v[somewhere()] = number(middle());
                break;
        }
        std::vector<std::uint64_t> codes;
        const floating* g = float_elements(f_);
        const bool holds = g == nullptr || has_infinity(*g);
        for (const double x : v)
            codes.push_back(code_near(
                f_, std::isfinite(x) || (holds && g != nullptr) || (x != x && g != nullptr && has_nan(*g)) ? x : number(middle())));
        return codes;
    }

  private:
    const qk::format& f_;
    random_source& r_;
    exponent_range range_;
    int reach_;
};

/// Returns the kind of row n. A kind recurs as often as it is listed; mostly sums that a person could follow.
kind kind_of(std::uint32_t n) {
    constexpr kind kinds[] = {kind::ordinary,     kind::ordinary,     kind::one,        kind::two,        kind::two,       kind::two_near,
                              kind::two_near,     kind::two_near,     kind::cancelling, kind::cancelling, kind::few_large, kind::few_large,
                              kind::any_exponent, kind::any_exponent, kind::subnormal,  kind::huge,       kind::special,   kind::zeros};
    return kinds[n % std::size(kinds)];
}

std::uint64_t addend(const dot_task& task, random_source& r) {
    if (!task.has_c) return no_addend(task);
    if (task.sums_integers()) {
        const std::uint32_t w = r.word();
        const auto ends = static_cast<std::int32_t>(r.below(2) != 0 ? (w | 0x7ff00000u) & 0x7fffffffu
                                                                    : 0x80000000u | (w & 0xfffffu));  // near the limits of int32
        const std::int32_t v = r.below(4) == 0 ? 0 : r.below(2) == 0 ? ends : static_cast<std::int32_t>(w) >> r.below(31);
        return static_cast<std::uint64_t>(std::int64_t{v});
    }
    const int most = std::min(max_exponent(task.c), 127), least = std::max(min_exponent(task.c) - task.c.mantissa_bits, -149);
    const double significand = 1 + r.word() * 0x1p-32;
    const double sign = r.below(2) != 0 ? -1 : 1;
    double v = 0;
    switch (r.below(8)) {
        case 0: v = 0 * sign; break;
        case 1: v = std::ldexp(sign * significand, most - static_cast<int>(r.below(2))); break;
        case 2:
            v = std::ldexp(sign * significand, least + static_cast<int>(r.below(static_cast<std::uint32_t>(task.c.mantissa_bits + 3))));
            break;
        default: v = std::ldexp(sign * significand, std::clamp(static_cast<int>(r.below(61)) - 30, least, most)); break;
    }
    return code_near(task.c, v);
}

/// Returns the code of a block's scale near 1: a power of two with an exponent of magnitude 12 at most or, for NVFP4, one of some exponents
/// with any mantissa.
std::uint64_t scale_near_one(const qk::format& f, random_source& r) {
    const std::uint64_t one = unit_scale(f);
    if (const floating* scale = scale_float(f)) {
        const auto reach = std::uint32_t{3} << scale->mantissa_bits;
        return one - reach / 2 + r.below(reach);
    }
    const std::uint64_t reach = std::min<std::uint64_t>(12, one);
    return one - reach + r.below(static_cast<std::uint32_t>(2 * reach + 1));
}

/// Writes code `at` of a plane without gaps, whose bits are still 0.
void put(std::span<std::byte> plane, std::size_t at, int width, std::uint64_t code) {
    for (int b = 0; b < width; ++b) {
        const std::size_t bit = at * static_cast<std::size_t>(width) + static_cast<std::size_t>(b);
        if ((code >> b & 1) != 0) plane[bit / 8] |= static_cast<std::byte>(1u << (bit % 8));
    }
}

}  // namespace

std::uint64_t unit_scale(const qk::format& f) {
    if (const floating* scale = scale_float(f)) return code_of(*scale, 1.0f);
    if (const auto* h = std::get_if<block_float>(&f)) return (std::uint64_t{1} << (h->exponent_bits - 1)) - 1;
    return 127;
}

std::uint64_t no_addend(const dot_task& task) { return task.sums_integers() ? 0 : std::uint64_t{1} << (bits(task.c) - 1); }

std::uint32_t random_source::word() {  // splitmix64, upper half
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
}

dot_case make_questions(const dot_task& task, std::size_t m, std::size_t n, random_source& random) {
    dot_case q{{m, n, task.k}, {}, std::vector<std::uint64_t>(task.k * n), {}, {}, {}};
    const int reach = task.d_bits <= 8 ? 3 : 24;  // a result of 8 bits has few exponents
    maker left(task.a, random, reach), right(task.b, random, reach);
    for (std::size_t i = 0; i < m; ++i) {
        const auto row = left.line(kind_of(static_cast<std::uint32_t>(i)), task.k);
        q.a.insert(q.a.end(), row.begin(), row.end());
    }
    // Columns are mostly full, so that a row's pattern of zeros is that of the products.
    constexpr kind kinds[] = {kind::ordinary, kind::any_exponent, kind::ordinary,     kind::few_large,
                              kind::ordinary, kind::huge,         kind::any_exponent, kind::subnormal};
    for (std::size_t j = 0; j < n; ++j) {
        auto column = right.line(kinds[j % std::size(kinds)], task.k);
        if (j % 4 == 0) std::fill(column.begin(), column.end(), code_near(task.b, 1.0));
        for (std::size_t l = 0; l < task.k; ++l) q.b[l * n + j] = column[l];
    }
    for (std::size_t i = 0; i < m * n; ++i) q.c.push_back(addend(task, random));
    const auto scales = [&](const qk::format& f, std::size_t rows, std::vector<std::uint64_t>& to) {
        const auto block = static_cast<std::size_t>(block_size(f));
        for (std::size_t i = 0; block != 0 && i < rows * (task.k / block); ++i) to.push_back(scale_near_one(f, random));
    };
    scales(task.a, m, q.scale_a);
    scales(task.b, n, q.scale_b);
    return q;
}

dot_case make_border_questions(const dot_task& task, std::size_t m, std::size_t n, random_source& random) {
    dot_case q{{m, n, task.k}, {}, std::vector<std::uint64_t>(task.k * n), {}, {}, {}};
    const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(count))); };
    // Which terms are large, opposite and small is the same in all rows: the columns have exponents of their own for them.
    const std::size_t large = below(task.k), opposite = (large + 1 + below(std::max<std::size_t>(1, task.k - 1))) % task.k;
    const auto exponent = [&](const qk::format& f, bool is_large) {
        const exponent_range r = range_of(f);
        const int low = is_large ? std::max(r.normal, 0) : std::max(r.least, -24),
                  high = is_large ? std::min(r.most, 14) : std::max(low, 0);
        return std::max(low, high) == low ? low : low + static_cast<int>(below(static_cast<std::size_t>(high - low + 1)));
    };
    const auto significand = [&] {  // the last bit alone, a tie, all ones, any
        constexpr double ends[] = {1, 1, 1.5, 1.9999999};
        const std::size_t which = below(5);
        return which < 4 ? ends[which] : 1 + random.word() * 0x1p-32;
    };
    for (std::size_t i = 0; i < m; ++i) {
        const bool cancels = i % 4 != 1 && task.k > 2, crowd = i % 4 == 3;
        const double top = std::ldexp(random.below(2) != 0 ? -1.0 : 1.0, exponent(task.a, true));
        const std::size_t only = below(task.k);
        for (std::size_t l = 0; l < task.k; ++l) {
            const double small = std::ldexp(random.below(2) != 0 ? -significand() : significand(), exponent(task.a, false));
            const bool stays = crowd || l == only || l == (only + 1) % task.k;
            q.a.push_back(code_near(task.a, l == large ? top : l == opposite && cancels ? -top : stays ? small : 0.0));
        }
    }
    for (std::size_t j = 0; j < n; ++j) {
        const double top = std::ldexp(1.0, exponent(task.b, true)), small = std::ldexp(1.0, exponent(task.b, false));
        for (std::size_t l = 0; l < task.k; ++l) q.b[l * n + j] = code_near(task.b, l == large || l == opposite ? top : small);
    }
    for (std::size_t i = 0; i < m * n; ++i) {
        const double end = std::ldexp(random.below(2) != 0 ? -1.0 : 1.0, static_cast<int>(below(30)) - 26);
        q.c.push_back(!task.has_c || i % 3 != 0 ? no_addend(task) : code_near(task.c, end));
    }
    const auto scales = [&](const qk::format& f, std::size_t rows, std::vector<std::uint64_t>& to) {
        const auto block = static_cast<std::size_t>(block_size(f));
        if (block != 0) to.assign(rows * (task.k / block), unit_scale(f));
    };
    scales(task.a, m, q.scale_a);
    scales(task.b, n, q.scale_b);
    return q;
}

questions::questions(const dot_task& task, const dot_case& asked) : task_(task), n_(asked.shape.n), k_(asked.shape.k), c_(asked.c) {
    const auto packed = [&](const qk::format& f, const auto& code_at, const auto& scale_at) {
        const packed_layout l = layout_of(f, along_axis{1, k_, 1});
        std::vector<std::byte> bytes(l.bytes());
        const planes p = planes_of(l, std::span(bytes));
        for (std::size_t i = 0; i < k_; ++i) put(p.elements, i, element_width(f), code_at(i));
        for (std::size_t s = 0; s < l.scales.count; ++s) put(p.scales, s, l.scales.bits, scale_at(s));
        if (!p.tensor.empty()) put(p.tensor, 0, 32, std::bit_cast<std::uint32_t>(1.0f));  // the tensor scale of NVFP4 is always 1
        return bytes;
    };
    const std::size_t blocks_a = asked.scale_a.size() / std::max<std::size_t>(1, asked.shape.m);
    for (std::size_t i = 0; i < asked.shape.m; ++i)
        rows_.push_back(packed(
            task.a, [&](std::size_t l) { return asked.a[i * k_ + l]; }, [&](std::size_t s) { return asked.scale_a[i * blocks_a + s]; }));
    for (std::size_t j = 0; j < n_; ++j)
        columns_.push_back(packed(
            task.b, [&](std::size_t l) { return asked.b[l * n_ + j]; }, [&](std::size_t s) { return asked.scale_b[s * n_ + j]; }));
}

std::uint64_t questions::answer(const accumulator& acc, std::size_t q, dot_counts* counts) const {
    return dot(task_.a, task_.b, acc, {rows_[q / n_], k_, 0}, {columns_[q % n_], k_, 0}, c_[q], counts);
}

bool same_answer(const dot_task& task, const accumulator& acc, std::uint64_t computed, std::uint64_t given) {
    const std::uint64_t mask = task.d_bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << task.d_bits) - 1;
    computed &= mask;
    given &= mask;
    if (computed == given || acc.sum == summation::integer) return computed == given;
    const floating stored = task.d_bits <= 16 ? acc.result : fp32;
    const auto is_nan = [&](std::uint64_t code) {
        if (task.d_bits == 64) return std::isnan(std::bit_cast<double>(code));
        return code >> bits(stored) == 0 && std::isnan(value_of(stored, static_cast<std::uint32_t>(code)));
    };
    return is_nan(computed) && is_nan(given);
}

}  // namespace qk::compare
