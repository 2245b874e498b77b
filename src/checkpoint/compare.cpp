// SPDX-License-Identifier: Apache-2.0
// Compares two checkpoints weight by weight: stored bits, codes, and the power of what differs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

/// The power of the first's floats and of what differs, and how many values differ.
struct float_sums {
    double power = 0, error = 0;
    std::uint64_t differ = 0;
};

/// Decodes the second weight whole, then the first in portions beside it.
float_sums sums_of(const checkpoint& a, const weight& wa, const checkpoint& b, const weight& wb) {
    float_sums s;
    // A factor of the input that one checkpoint keeps beside and the other has in its values is no difference.
    const bool with_factor = (wa.input_factor == weight::none) != (wb.input_factor == weight::none);
    const auto decode = [&](const checkpoint& c, const weight& w, const std::function<void(std::span<const float>)>& take) {
        if (with_factor) c.decode_with_factor(w, take);
        else c.decode(w, take);
    };
    std::vector<float> second;
    decode(b, wb, [&](std::span<const float> part) { second.insert(second.end(), part.begin(), part.end()); });
    std::size_t at = 0;
    decode(a, wa, [&](std::span<const float> part) {
        for (const float x : part) {
            const float y = second[at++];
            if (std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y) && !(std::isnan(x) && std::isnan(y))) ++s.differ;
            if (!std::isfinite(x) || !std::isfinite(y)) continue;
            const double d = static_cast<double>(x) - static_cast<double>(y);
            s.power += static_cast<double>(x) * static_cast<double>(x), s.error += d * d;
        }
    });
    return s;
}

std::uint64_t codes_that_differ(const checkpoint& a, const weight& wa, const checkpoint& b, const weight& wb) {
    std::uint64_t n = 0;
    std::vector<std::uint8_t> x(wa.matrix.columns), y(wa.matrix.columns);
    for (std::uint64_t m = 0; m < wa.stack; ++m) {
        const matrix_planes p = planes_of(a, wa, m), q = planes_of(b, wb, m);
        for (std::size_t r = 0; r < wa.matrix.rows; ++r) {
            unpack_row(wa.how, wa.matrix, p.codes, r, x.data());
            unpack_row(wb.how, wb.matrix, q.codes, r, y.data());
            for (std::size_t k = 0; k < x.size(); ++k) n += x[k] != y[k];
        }
    }
    return n;
}

bool same_parts(const checkpoint& a, const weight& wa, const checkpoint& b, const weight& wb) {
    const auto same = [&](int x, int y) {
        if (x == weight::none || y == weight::none) return x == y;
        const auto &p = a.tensors[static_cast<std::size_t>(x)].data, &q = b.tensors[static_cast<std::size_t>(y)].data;
        return p.size() == q.size() && (p.empty() || std::memcmp(p.data(), q.data(), p.size()) == 0);
    };
    return same(wa.codes, wb.codes) && same(wa.scales, wb.scales) && same(wa.zeros, wb.zeros) && same(wa.global, wb.global) &&
           same(wa.group_of, wb.group_of);
}

}  // namespace

void compare(const checkpoint& a, const checkpoint& b, const std::function<void(const difference&)>& take) {
    for (const weight& wa : a.weights) {
        difference d;
        d.name = wa.name, d.values = wa.elements();
        const weight* wb = b.find_weight(wa.name);
        if (wb == nullptr) {
            d.only_first = true, d.formats = wa.format;
            take(d);
            continue;
        }
        d.formats = wa.format == wb->format ? wa.format : wa.format + ", " + wb->format;
        if (wa.problem || wb->problem) d.problem = (wa.problem ? wa.problem : wb->problem)->sentence;
        else if (wa.shape != wb->shape) d.shapes_differ = true, d.problem = text_of(wa.shape) + " and " + text_of(wb->shape);
        else {
            d.same_layout = wa.quantized == wb->quantized && (wa.quantized ? wa.how == wb->how : wa.format == wb->format) &&
                            a.big_endian == b.big_endian;
            d.same_bits = d.same_layout && same_parts(a, wa, b, *wb);
            d.decibels = std::numeric_limits<double>::infinity();
            if (!d.same_bits) {
                const float_sums s = sums_of(a, wa, b, *wb);
                d.values_differ = s.differ;
                if (s.error != 0) d.decibels = 10 * std::log10(s.power / s.error);
                const bool codes = wa.quantized && wb->quantized && wa.how.bits == wb->how.bits && wa.stack == wb->stack &&
                                   wa.matrix.rows == wb->matrix.rows && wa.matrix.columns == wb->matrix.columns &&
                                   (wa.how.codes != element::ggml || wa.how.block == wb->how.block);
                d.codes_differ = codes ? codes_that_differ(a, wa, b, *wb) : s.differ;
            }
        }
        take(d);
    }
    for (const weight& wb : b.weights) {
        if (a.find_weight(wb.name) != nullptr) continue;
        difference d;
        d.name = wb.name, d.formats = wb.format, d.values = wb.elements(), d.only_second = true;
        take(d);
    }
}

}  // namespace qk::checkpoint
