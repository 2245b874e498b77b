// SPDX-License-Identifier: Apache-2.0
#include "hardware/test_vectors.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "qk/qk.hpp"

namespace qk::tool {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float special_values[] = {0.0f,
                                    -0.0f,
                                    infinity,
                                    -infinity,
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::lowest(),
                                    0x1p-149f,
                                    -0x1p-149f,
                                    0x1p-126f,
                                    -0x1p-126f,
                                    0x1.fffffcp-127f};

/// Every kind of NaN that a converter without a guard tells apart: payloads that stand only in what a format of `mantissa` bits keeps, only
/// in what it drops (rounding makes Inf of those), and all ones (rounding carries into the sign), of both signs.
std::vector<float> nan_values(int mantissa) {
    const std::uint32_t drop = static_cast<std::uint32_t>(23 - mantissa), below = (1u << drop) - 1;
    std::vector<float> x;
    for (const std::uint32_t payload : {0x400000u, below + 1, 0x7fffffu & ~below, 1u, below >> 1, (below >> 1) + 1, below, 0x7fffffu})
        if (payload != 0 && payload <= 0x7fffffu)
            for (const std::uint32_t sign : {0u, 0x80000000u}) x.push_back(std::bit_cast<float>(sign | 0x7f800000u | payload));
    return x;
}
/// Mantissa bits that a format's codes keep; of integers, tables and blocks of integers those of bfloat16, through which converters often
/// go.
int kept_mantissa(const qk::format& f) {
    const floating* number = number_float(f);
    return number != nullptr ? number->mantissa_bits : 7;
}

void with_neighbours(std::vector<float>& x, double v) {
    const auto f = static_cast<float>(v);
    x.insert(x.end(), {std::nextafter(f, -infinity), f, std::nextafter(f, infinity)});
}

/// Appends, for ascending grid values of both signs, each value and each midpoint of neighbours with the floats on both sides of it.
void grid_vectors(std::vector<float>& x, const std::vector<double>& grid) {
    for (std::size_t i = 0; i < grid.size(); ++i) {
        x.push_back(static_cast<float>(grid[i]));
        if (i + 1 < grid.size()) with_neighbours(x, (grid[i] + grid[i + 1]) / 2);
    }
    if (grid.size() > 1) with_neighbours(x, grid.back() + (grid.back() - grid[grid.size() - 2]) / 2);  // the first tie beyond the range
}

std::vector<double> mirrored(const std::vector<double>& magnitudes) {
    std::vector<double> grid;
    for (std::size_t i = magnitudes.size(); i-- > 0;) {
        if (magnitudes[i] != 0) grid.push_back(-magnitudes[i]);
    }
    grid.insert(grid.end(), magnitudes.begin(), magnitudes.end());
    return grid;
}

/// Returns the finite magnitudes of a floating format, ascending.
std::vector<double> magnitudes(floating f) {
    std::vector<double> m;
    for (std::uint32_t code = 0; code <= largest_magnitude(f); ++code) {
        const float v = value_of(f, code);
        if (std::isfinite(v)) m.push_back(static_cast<double>(v));
    }
    return m;
}
/// Returns the whole numbers from 0 to n; above 65536 only the ends and those around every power of two.
std::vector<double> whole_numbers(double n) {
    std::vector<double> m;
    if (n <= 65536) {
        for (double v = 0; v <= n; ++v) m.push_back(v);
        return m;
    }
    m = {0, 1, 2, 3};
    for (double p = 4; p <= n; p *= 2) m.insert(m.end(), {p - 1, p, p + 1});
    while (m.back() > n) m.pop_back();
    if (m.back() < n) m.insert(m.end(), {n - 1, n});
    return m;
}

/// Returns the element magnitudes of a block format, ascending, in units of the block's scale or of its largest value's binade.
std::vector<double> element_magnitudes(const qk::format& f) {
    const microscaling* g = std::get_if<microscaling>(&f);
    const block_float* b = std::get_if<block_float>(&f);
    if (const floating* element = element_float(f)) return magnitudes(*element);
    const int m = g != nullptr ? g->integer_bits - 1 : b != nullptr ? b->mantissa_bits : std::get<microexponent>(f).mantissa_bits;
    std::vector<double> all = whole_numbers(power_of_two(m) - 1);
    for (double& v : all) v /= power_of_two(m - 1);
    return all;
}

struct random_source {
    std::uint64_t seed, index = 0;
    std::uint32_t word() { return random_bits(seed, index++); }
};

/// Appends whole blocks. In most an anchor fixes the scale, and elements follow.
void block_vectors(std::vector<float>& x, const qk::format& f, std::uint64_t seed) {
    const auto size = static_cast<std::size_t>(block_size(f));
    const std::vector<double> grid = mirrored(element_magnitudes(f));
    std::vector<float> units;
    grid_vectors(units, grid);
    const auto pad = [&] {
        while (x.size() % size != 0) x.push_back(0.0f);
    };
    // Every element and every tie, with an ordinary scale and with scales near both ends of the range.
    for (const int exponent : {0, -100, 100}) {
        for (std::size_t k = 0; k < units.size();) {
            x.push_back(std::ldexp(static_cast<float>(grid.back()), exponent));
            do {
                x.push_back(std::ldexp(units[k++], exponent));
            } while (k < units.size() && x.size() % size != 0);
        }
        pad();
    }
    // Every binade as the block's amax: the power of two, the floats beside it, and ties of the element grid below it.
    random_source r{seed};
    for (int e = -149; e <= 127; ++e) {
        const float power = std::ldexp(1.0f, e);
        for (const float amax :
             {power, std::nextafter(power, 0.0f), std::nextafter(power, infinity), power * 1.5f, std::nextafter(power * 2, 0.0f)}) {
            if (!std::isfinite(amax)) continue;
            x.push_back(amax);
            while (x.size() % size != 0)
                x.push_back(std::ldexp(units[r.word() % units.size()], e > 120 ? 120 : e) * (r.word() % 4 == 0 ? 0.125f : 0.5f));
            for (std::size_t k = x.size() - size + 1; k < x.size(); ++k) {
                if (std::abs(x[k]) > amax) x[k] = std::copysign(amax, x[k]);
            }
        }
    }
    // The largest value at every position, with both signs, far above the others: reveals a unit that overlooks a position.
    for (const float sign : {1.0f, -1.0f}) {
        for (std::size_t at = 0; at < size; ++at) {
            for (std::size_t k = 0; k < size; ++k)
                x.push_back(k == at ? sign * 16 * static_cast<float>(grid.back()) : 0.5f * units[r.word() % units.size()]);
        }
    }
    std::vector<float> specials(std::begin(special_values), std::end(special_values));
    const std::vector<float> nan = nan_values(kept_mantissa(f));
    specials.insert(specials.end(), nan.begin(), nan.end());
    for (const float special : specials) {  // among ordinary values, and alone
        for (std::size_t k = 0; k < size; ++k) x.push_back(k == size / 2 ? special : units[(k * 7) % units.size()]);
        for (std::size_t k = 0; k < size; ++k) x.push_back(k == 0 ? special : 0.0f);
    }
    for (int b = 0; b < 256; ++b) {  // random exponents and mantissas around a random block exponent
        const int middle = static_cast<int>(r.word() % 240) - 120;
        for (std::size_t k = 0; k < size; ++k) {
            const float m = 1.0f + std::ldexp(static_cast<float>(r.word() >> 9), -23);
            x.push_back(std::ldexp((r.word() & 1u) != 0 ? -m : m, std::max(middle - static_cast<int>(r.word() % 12), -149)));
        }
    }
}

}  // namespace

std::vector<float> make_vectors(const conversion& c, std::uint64_t seed) {
    std::vector<float> x;
    if (is_block_format(c.format)) {
        block_vectors(x, c.format, seed);
        return x;
    }
    const affine one = c.one();
    std::vector<double> grid;
    if (const floating* f = std::get_if<floating>(&c.format)) {
        if (*f != fp32) grid = mirrored(magnitudes(*f));
        for (double& v : grid) v *= static_cast<double>(one.scale);
    } else if (const table* t = std::get_if<table>(&c.format)) {
        for (const float v : std::span(t->values->number).first(static_cast<std::size_t>(t->size())))
            if (v == v) grid.push_back(static_cast<double>(v));
        std::sort(grid.begin(), grid.end());
        for (double& v : grid) v *= static_cast<double>(one.scale);
    } else {
        const integer q = std::get<integer>(c.format);
        for (const double v : mirrored(whole_numbers(static_cast<double>(qmax(q))))) grid.push_back(v);
        if (q.is_signed) grid.insert(grid.begin(), static_cast<double>(qmin(q)));
        for (double& v : grid) v = (v - static_cast<double>(one.zero_point)) * static_cast<double>(one.scale);
    }
    grid_vectors(x, grid);
    for (int e = -149; e <= 127; ++e) {
        for (const float sign : {1.0f, -1.0f}) with_neighbours(x, static_cast<double>(sign * std::ldexp(1.0f, e)));
    }
    x.insert(x.end(), std::begin(special_values), std::end(special_values));
    const std::vector<float> nan = nan_values(kept_mantissa(c.format));
    x.insert(x.end(), nan.begin(), nan.end());
    random_source r{seed};
    for (int k = 0; k < 4096; ++k) x.push_back(std::bit_cast<float>(r.word()));
    return x;
}

}  // namespace qk::tool
