// SPDX-License-Identifier: Apache-2.0
// The oracle of products: codes bit by bit, their exact values by qk::reference, and the contract's order in scalar code. It shares no line
// with qk/product.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "qk/codec/layout/layout.hpp"
#include "qk/memory/values.hpp"
#include "qk/reference/codes.hpp"
#include "test_inputs.hpp"

/// The planes of a matrix, each in memory of its own that is `offset` bytes off an aligned address and not a byte too long.
struct made_weights {
    std::vector<std::byte> bytes[4];
    std::size_t offset = 0;
    qk::const_planes planes() const {
        const auto of = [&](int i) { return std::span<const std::byte>(bytes[i]).subspan(bytes[i].empty() ? 0 : offset); };
        return {of(0), of(1), of(2), of(3)};
    }
};

/// Returns the place of each shift of the plane among those of the oracle, which leaves room for all sub-blocks of a short block.
inline std::vector<std::size_t> places_of_shifts(const qk::format& f, std::size_t rows, std::size_t columns) {
    std::vector<std::size_t> places;
    const auto* m = std::get_if<qk::microexponent>(&f);
    if (m == nullptr || rows == 0 || columns == 0) return places;
    const auto block = static_cast<std::size_t>(m->block_size), sub = static_cast<std::size_t>(m->sub_block_size);
    const std::size_t per_block = (block - 1) / sub + 1, blocks = (columns - 1) / block + 1;
    for (std::size_t b = 0; b < rows * blocks; ++b) {
        const std::size_t length = std::min(block, columns - b % blocks * block);
        for (std::size_t j = 0; j * sub < length; ++j) places.push_back(b * per_block + j);
    }
    return places;
}

enum class weights_kind { ordinary, any_codes };

/// Makes the planes of a matrix: encoded numbers, or random bits.
inline made_weights make_weights(const qk::format& f, std::size_t rows, std::size_t columns, weights_kind kind, std::uint64_t seed,
                                 float tensor, std::size_t offset) {
    const qk::along_axis axis{rows, columns, 1};
    const qk::packed_layout l = qk::layout_of(f, axis);
    const qk::plane plane[4] = {l.elements, l.scales, l.shifts, l.tensor};
    made_weights w;
    w.offset = offset;
    generator g{seed};
    std::vector<std::uint32_t> code[3];
    for (int i = 0; i < 3; ++i) {
        code[i].resize(plane[i].count);
        for (std::uint32_t& c : code[i]) c = g.word() & (plane[i].bits >= 32 ? ~0u : (1u << plane[i].bits) - 1);
    }
    if (kind == weights_kind::ordinary) {
        const std::vector<float> x = make_inputs(data::ordinary, rows * columns, seed);
        qk::affine scale{.scale = tensor};
        if (std::holds_alternative<qk::integer>(f)) scale.scale = 0.25f;
        const std::vector<std::size_t> places = places_of_shifts(f, rows, columns);
        std::vector<std::uint32_t> shifts(places.empty() ? 0 : places.back() + static_cast<std::size_t>(qk::block_size(f)));
        qk::reference::encode(f, x, {code[0], code[1], shifts}, axis, scale);
        for (std::size_t i = 0; i < places.size(); ++i) code[2][i] = shifts[places[i]];
    }
    for (int i = 0; i < 4; ++i) {
        if (plane[i].count == 0) continue;
        w.bytes[i].resize(plane[i].bytes() + offset);
        if (i == 3) {
            std::memcpy(w.bytes[3].data() + offset, &tensor, sizeof tensor);
            continue;
        }
        for (std::size_t k = 0; k < plane[i].count; ++k) {
            for (int b = 0; b < plane[i].bits; ++b) {
                const std::size_t bit = k * static_cast<std::size_t>(plane[i].bits) + static_cast<std::size_t>(b);
                if (code[i][k] >> b & 1u) w.bytes[i][offset + bit / 8] |= std::byte{1} << (bit % 8);
            }
        }
    }
    return w;
}

/// Returns the numbers of a matrix.
inline std::vector<float> exact_weights(const qk::format& f, const qk::const_planes& planes, std::size_t rows, std::size_t columns,
                                        const qk::codec_parameters& p) {
    const qk::along_axis axis{rows, columns, 1};
    const qk::packed_layout l = qk::layout_of(f, axis);
    const auto codes_of = [](std::span<const std::byte> bytes, const qk::plane& of) {
        std::vector<std::uint32_t> code(of.count);
        for (std::size_t k = 0; k < of.count; ++k) {
            for (int b = 0; b < of.bits; ++b) {
                const std::size_t bit = k * static_cast<std::size_t>(of.bits) + static_cast<std::size_t>(b);
                code[k] |= (std::to_integer<std::uint32_t>(bytes[bit / 8]) >> (bit % 8) & 1u) << b;
            }
        }
        return code;
    };
    std::vector<std::uint32_t> elements = codes_of(planes.elements, l.elements), blocks = codes_of(planes.scales, l.scales),
                               in_plane = codes_of(planes.shifts, l.shifts);
    const std::vector<std::size_t> places = places_of_shifts(f, rows, columns);
    std::vector<std::uint32_t> shifts(places.empty() ? 0 : places.back() + static_cast<std::size_t>(qk::block_size(f)));
    for (std::size_t i = 0; i < places.size(); ++i) shifts[places[i]] = in_plane[i];
    std::vector<float> w(rows * columns);
    float tensor = p.has_one && p.one.scale != 0 ? p.one.scale : 1;
    if (l.tensor.count != 0) std::memcpy(&tensor, planes.tensor.data(), sizeof tensor);
    if (l.scales.count != 0 || w.empty()) {
        qk::reference::decode(f, {elements, blocks, shifts}, w, axis, {.scale = tensor});
        return w;
    }
    for (std::size_t at = 0; at < w.size(); ++at) {  // one by one, each with its own scale
        qk::affine own = p.one;
        if (!p.scale.empty()) {
            const std::size_t i = at % p.axis.inner, k = at / p.axis.inner % p.axis.length, o = at / p.axis.inner / p.axis.length;
            const std::size_t groups = p.group == 0 ? 0 : (p.axis.length - 1) / p.group + 1;
            const std::size_t entry = p.group == 0 ? k : (o * groups + k / p.group) * p.axis.inner + i;
            own = {p.scale[entry], p.zero_point.empty() ? 0 : p.zero_point[entry]};
        }
        qk::reference::decode(f, {std::span(elements).subspan(at, 1), {}, {}}, std::span(w).subspan(at, 1), {1, 1, 1}, own);
    }
    return w;
}

/// Returns the sum of a row in the contract's order; value(k) is number k of x.
template <class Value>
float exact_sum(std::span<const float> weights, const Value& value) {
    std::array<float, 16> partial{};
    for (std::size_t k = 0; k < weights.size(); ++k) partial[k % 16] = std::fma(value(k), weights[k], partial[k % 16]);
    for (std::size_t apart : {8u, 4u, 2u, 1u}) {
        for (std::size_t i = 0; i < apart; ++i) partial[i] = partial[i] + partial[i + apart];
    }
    return partial[0];
}

/// Returns the sum of a row under product_sums::integers: element and zero are whole numbers of `unit`, factor(k) is that of weight k.
/// added(k) is what is added to `together` weights from number k on.
template <class Element, class Factor, class Added>
float exact_integer_sum(std::span<const float> x, double unit, const Element& element, const Factor& factor, std::size_t together,
                        const Added& added) {
    std::array<float, 16> partial{};
    for (std::size_t b = 0; b < x.size(); b += 32) {
        const std::size_t n = std::min<std::size_t>(32, x.size() - b);
        float largest = 0;
        bool odd = false;
        for (std::size_t k = b; k < b + n; ++k) {
            largest = std::max(largest, std::fabs(x[k]));
            odd = odd || !std::isfinite(x[k]);
        }
        const volatile float scale = odd ? std::numeric_limits<float>::quiet_NaN() : largest / 127,
                             scaled = scale * static_cast<float>(unit);
        const auto whole = [&](std::size_t k) {
            const float quotient = x[k] / scale;
            return odd || scale == 0 ? 0 : std::clamp(std::nearbyint(static_cast<double>(quotient)), -127.0, 127.0);
        };
        for (std::size_t i = b; together != 0 && i < b + n; i += together) {
            double sum = 0;
            for (std::size_t k = i; k < std::min(b + n, i + together); ++k) sum += whole(k);
            const volatile float of_x = static_cast<float>(sum) * scaled;
            float& own = partial[8 + b / 32 % 8];
            own = std::fma(of_x, added(i), own);
        }
        for (std::size_t i = 0; 8 * i < n; ++i) {
            double sum = 0;
            for (std::size_t k = b + 8 * i; k < b + std::min(n, 8 * i + 8); ++k) sum += whole(k) * element(k);
            const volatile float by = scaled * factor(b + 8 * i);
            float& own = partial[b / 32 % 2 * 4 + i];
            own = std::fma(static_cast<float>(sum), by, own);
        }
    }
    for (std::size_t apart : {8u, 4u, 2u, 1u}) {
        for (std::size_t i = 0; i < apart; ++i) partial[i] = partial[i] + partial[i + apart];
    }
    return partial[0];
}
template <class Element, class Factor>
float exact_integer_sum(std::span<const float> x, double unit, const Element& element, const Factor& factor) {
    return exact_integer_sum(x, unit, element, factor, 0, [](std::size_t) { return 0.0f; });
}

/// Returns the sum of weighted_rows for one column, in the contract's order, from `begin` on.
template <class By, class Value>
float exact_chain(std::size_t rows, float begin, const By& by, const Value& value) {
    for (std::size_t r = 0; r < rows; ++r) begin = std::fma(by(r), value(r), begin);
    return begin;
}
