// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "qk/compare/cases.hpp"
#include "qk/storage.hpp"
#include "rounding_patterns.hpp"

namespace qk::compare {
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

/// Returns the finite magnitudes of a floating format, ascending; of one with more than 16 bits, in each binade those whose mantissa is at
/// an end or has one bit.
std::vector<double> magnitudes(floating f) {
    std::vector<double> m;
    if (bits(f) > 16) {
        std::vector<std::uint32_t> mantissas{0};
        const std::uint32_t all = (1u << f.mantissa_bits) - 1;
        for (std::uint32_t bit = 1; bit <= all; bit *= 2) mantissas.push_back(bit);
        mantissas.insert(mantissas.end(), {(1u << (f.mantissa_bits - 1)) + 1, all - 1, all});
        for (std::uint32_t field = 0; field <= largest_magnitude(f) >> f.mantissa_bits; ++field) {
            for (const std::uint32_t mantissa : mantissas) {
                const std::uint32_t code = field << f.mantissa_bits | mantissa;
                if (code <= largest_magnitude(f)) m.push_back(static_cast<double>(value_of(f, code)));
            }
        }
        return m;
    }
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

/// Fills a block for whatever is asked of it: values follow from a counter.
struct filler {
    std::uint64_t seed, index = 0;
    std::uint32_t word() { return random_bits(seed, index++); }
};

/// Appends values by whole blocks; in every block an anchor, in another lane each time, fixes the scale.
class anchored {
  public:
    anchored(std::vector<float>& x, std::size_t size, float anchor) : x_(x), size_(size), anchor_(anchor) {}
    void add(float v) {
        if (x_.size() % size_ == turn_ % size_) x_.push_back(turn_ % 3 == 1 ? -anchor_ : anchor_);
        x_.push_back(v);
        if (x_.size() % size_ == turn_ % size_ && x_.size() % size_ != 0) x_.push_back(turn_ % 3 == 1 ? -anchor_ : anchor_);
        if (x_.size() % size_ == 0) ++turn_;
    }
    void finish() {
        while (x_.size() % size_ != 0) add(0.0f);
    }

  private:
    std::vector<float>& x_;
    std::size_t size_, turn_ = 0;
    float anchor_;
};

/// Every element and every tie, with an ordinary scale and with scales near both ends of the range; then ties with each single lower bit.
void add_elements(std::vector<float>& x, const conversion& c, const std::vector<float>& units, float largest) {
    const auto size = static_cast<std::size_t>(block_size(c.format));
    for (const int exponent : {0, -100, 100}) {
        anchored blocks(x, size, std::ldexp(largest, exponent));
        for (const float unit : units) blocks.add(std::ldexp(unit, exponent));
        blocks.finish();
    }
    const auto grid = rounding_grid_of(c);
    if (!grid) return;
    anchored blocks(x, size, largest);
    const float beyond = std::ldexp(1.0f, std::ilogb(largest) + 1);
    each_pattern(*grid, 0, [&](float v) {
        if (std::abs(v) < beyond) blocks.add(v);
    });
    blocks.finish();
}

/// Every binade as the block's amax: the power of two, the floats beside it, and ties of the element grid below it. For scales that are
/// floats each of them, too.
void add_scales(std::vector<float>& x, const conversion& c, const std::vector<float>& units, float largest, filler& r) {
    const auto size = static_cast<std::size_t>(block_size(c.format));
    const auto add = [&](float amax, int e) {
        if (!std::isfinite(amax)) return;
        x.push_back(amax);
        while (x.size() % size != 0)
            x.push_back(std::ldexp(units[r.word() % units.size()], e > 120 ? 120 : e) * (r.word() % 4 == 0 ? 0.125f : 0.5f));
        for (std::size_t k = x.size() - size + 1; k < x.size(); ++k) {
            if (std::abs(x[k]) > amax) x[k] = std::copysign(amax, x[k]);
        }
    };
    for (int e = -149; e <= 127; ++e) {
        const float power = std::ldexp(1.0f, e);
        for (const float amax :
             {power, std::nextafter(power, 0.0f), std::nextafter(power, infinity), power * 1.5f, std::nextafter(power * 2, 0.0f)})
            add(amax, e);
    }
    const floating* scale = scale_float(c.format);
    for (std::uint64_t code = 0; scale != nullptr && code <= largest_magnitude(*scale); ++code) {
        const float here = value_of(*scale, static_cast<std::uint32_t>(code)),
                    next = value_of(*scale, static_cast<std::uint32_t>(code + 1));
        for (const float s : {here, (here + next) / 2}) {
            const float amax = s * largest * c.one().scale;
            for (const float v : {std::nextafter(amax, 0.0f), amax, std::nextafter(amax, infinity)})
                if (v > 0) add(v, std::ilogb(v));
        }
    }
}

/// The largest value in each lane, with both signs, far above the others; NaN and Inf in each lane among ordinary values; zeros alone.
void add_lanes(std::vector<float>& x, const qk::format& f, const std::vector<float>& units, float largest, filler& r) {
    const auto size = static_cast<std::size_t>(block_size(f));
    for (const float sign : {1.0f, -1.0f}) {
        for (std::size_t at = 0; at < size; ++at) {
            for (std::size_t k = 0; k < size; ++k) x.push_back(k == at ? sign * 16 * largest : 0.5f * units[r.word() % units.size()]);
        }
    }
    std::vector<float> specials(std::begin(special_values), std::end(special_values));
    const std::vector<float> nan = nan_values(kept_mantissa(f));
    specials.insert(specials.end(), nan.begin(), nan.end());
    for (const float special : specials) {  // among ordinary values, and alone
        for (std::size_t k = 0; k < size; ++k) x.push_back(k == size / 2 ? special : units[(k * 7) % units.size()]);
        for (std::size_t k = 0; k < size; ++k) x.push_back(k == 0 ? special : 0.0f);
    }
    for (std::size_t at = 0; at < size; ++at) {
        for (const float special : {infinity, -infinity, nan[2 * at % nan.size()], nan[(2 * at + 1) % nan.size()]}) {
            for (std::size_t k = 0; k < size; ++k) x.push_back(k == at ? special : units[(k * 5 + at) % units.size()]);
        }
    }
    for (const float zero : {0.0f, -0.0f}) x.insert(x.end(), size, zero);
    for (std::size_t k = 0; k < size; ++k) x.push_back(k % 2 == 0 ? infinity : nan[k % nan.size()]);
}

std::vector<float> block_corners(const conversion& c) {
    std::vector<float> x, units;
    const std::vector<double> grid = mirrored(element_magnitudes(c.format));
    grid_vectors(units, grid);
    const auto largest = static_cast<float>(grid.back());
    filler r{0};
    add_elements(x, c, units, largest);
    add_scales(x, c, units, largest, r);
    add_lanes(x, c.format, units, largest, r);
    return x;
}

/// Returns the numbers of a format that has no blocks, ascending, under the scale and zero point of `c`.
std::vector<double> numbers_of(const conversion& c) {
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
    return grid;
}

}  // namespace

std::uint32_t input_word(floating input, float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    if (input == fp32) return u;
    if (x != x) {  // a payload that the word has no room for becomes its lowest bit: the device is to see NaN of every kind
        const int drop = input == fp16 ? 13 : 16;
        const std::uint32_t payload = (u & 0x7fffffu) >> drop;
        return (u >> 31 << 15) | (input == fp16 ? 0x7c00u : 0x7f80u) | (payload == 0 ? 1u : payload);
    }
    if (input == fp16) return std::bit_cast<std::uint16_t>(narrow<float16>(x));
    return std::bit_cast<std::uint16_t>(narrow<bfloat16>(x));
}
float as_input(floating input, float x) {
    if (input == fp32) return x;
    if (x != x)
        return std::bit_cast<float>((input_word(input, x) & 0x8000u) << 16 | 0x7f800000u |
                                    ((input_word(input, x) & (input == fp16 ? 0x3ffu : 0x7fu)) << (input == fp16 ? 13 : 16)));
    return value_of(input, input_word(input, x));
}

std::vector<float> converter_corners(const conversion& c) {
    if (is_block_format(c.format)) return block_corners(c);
    std::vector<float> x;
    grid_vectors(x, numbers_of(c));
    for (int e = -149; e <= 127; ++e) {
        for (const float sign : {1.0f, -1.0f}) with_neighbours(x, static_cast<double>(sign * std::ldexp(1.0f, e)));
    }
    x.insert(x.end(), std::begin(special_values), std::end(special_values));
    const std::vector<float> nan = nan_values(kept_mantissa(c.format));
    x.insert(x.end(), nan.begin(), nan.end());
    const auto grid = rounding_grid_of(c);
    const float scale = c.one().scale;
    int power = 0;
    if (grid && std::frexp(scale, &power) == 0.5f) each_pattern(*grid, power - 1, [&](float v) { x.push_back(v); });
    return x;
}

std::vector<float> converter_cases(const conversion& c, std::uint64_t seed) {
    std::vector<float> x = converter_corners(c);
    filler r{seed};
    const auto size = static_cast<std::size_t>(block_size(c.format));
    if (size == 0) {
        for (int k = 0; k < 4096; ++k) x.push_back(std::bit_cast<float>(r.word()));
        return x;
    }
    for (int b = 0; b < 256; ++b) {  // random exponents and mantissas around a random block exponent
        const int middle = static_cast<int>(r.word() % 240) - 120;
        for (std::size_t k = 0; k < size; ++k) {
            const float m = 1.0f + std::ldexp(static_cast<float>(r.word() >> 9), -23);
            x.push_back(std::ldexp((r.word() & 1u) != 0 ? -m : m, std::max(middle - static_cast<int>(r.word() % 12), -149)));
        }
    }
    return x;
}

coded_values decoder_corners(const conversion& c) {
    const auto size = std::max<std::size_t>(1, static_cast<std::size_t>(block_size(c.format)));
    const packed_layout l = layout_of(c.format, along_axis{1, size, 1});
    const int width = l.elements.bits;
    std::vector<std::uint32_t> codes;
    for (std::uint64_t code = 0; width <= 16 && code >> width == 0; ++code) codes.push_back(static_cast<std::uint32_t>(code));
    if (const floating* f = std::get_if<floating>(&c.format); f != nullptr && width > 16) {
        const std::uint32_t ones = (1u << f->mantissa_bits) - 1;
        for (std::uint32_t field = 0; field >> (f->exponent_bits + int{f->is_signed}) == 0; ++field) {
            for (std::uint32_t bit = 1; bit <= ones; bit *= 2) codes.push_back(field << f->mantissa_bits | bit);
            for (const std::uint32_t mantissa : {0u, ones - 1, ones}) codes.push_back(field << f->mantissa_bits | mantissa);
        }
    } else if (width > 16) {
        for (int bit = 0; bit < width; ++bit)
            for (const std::uint32_t v : {std::uint32_t{1} << bit, (std::uint32_t{1} << bit) - 1, ~(std::uint32_t{1} << bit)})
                codes.push_back(v & low_bits(width));
    }
    coded_values all;
    // Each scale begins with another code, so that a lane sees every code under some scale.
    const std::uint64_t scales = l.scales.count == 0 ? 1 : std::uint64_t{1} << l.scales.bits;
    filler r{0};
    for (std::uint64_t scale = 0; scale < scales; ++scale) {
        for (std::size_t at = 0; at < codes.size();) {
            for (std::size_t k = 0; k < size; ++k) all.elements.push_back(codes[(scale + at++) % codes.size()]);
            for (std::size_t k = 0; k < l.scales.count; ++k) all.scales.push_back(static_cast<std::uint32_t>(scale));
            for (std::size_t k = 0; k < l.shifts.count; ++k) all.shifts.push_back(r.word() & low_bits(l.shifts.bits));
        }
    }
    return all;
}

}  // namespace qk::compare
