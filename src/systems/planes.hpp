// SPDX-License-Identifier: Apache-2.0
// Planes of a result from vectors, and the orders in which systems pack codes.
#pragma once

#include <initializer_list>
#include <stdexcept>

#include "numbers.hpp"
#include "qk/systems.hpp"

namespace qk::systems {

template <class T>
inline constexpr plane::type plane_type_of = std::is_same_v<T, float>           ? plane::type::float32
                                             : std::is_same_v<T, std::int32_t>  ? plane::type::int32
                                             : std::is_same_v<T, std::uint32_t> ? plane::type::uint32
                                             : std::is_same_v<T, std::int8_t>   ? plane::type::int8
                                                                                : plane::type::uint8;

template <class T>
plane make_plane(std::string name, std::vector<std::size_t> shape, const std::vector<T>& values) {
    plane p{std::move(name), plane_type_of<T>, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(p.bytes.data(), values.data(), p.bytes.size());
    return p;
}

/// A code of its own for each value, and the values of these codes.
template <class Encode, class Decode>
result coded_values(const input& x, const Encode& encode, const Decode& decode) {
    std::vector<std::uint8_t> codes(x.values.size());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < codes.size(); ++i) {
        codes[i] = encode(x.values[i]);
        made.values[i] = decode(codes[i]);
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    return made;
}

struct value_range {
    float low = 0, high = 0;
};
/// The range of some values and 0. A NaN is left out: nothing compares below or above it.
inline value_range range_with_zero(std::span<const float> x) {
    value_range r;
    for (const float v : x) r = {std::min(r.low, v), std::max(r.high, v)};
    return r;
}

/// Two codes of four bits in a byte, the first in the low half. An odd last column stands alone.
inline std::vector<std::uint8_t> packed_pairs(const std::vector<std::uint8_t>& codes, std::size_t rows, std::size_t columns) {
    const std::size_t width = (columns + 1) / 2;
    std::vector<std::uint8_t> packed(rows * width);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            packed[r * width + c / 2] |= static_cast<std::uint8_t>((codes[r * columns + c] & 15) << (c % 2 ? 4 : 0));
        }
    }
    return packed;
}

/// Codes of `bits` bits one after another in little-endian 32-bit words, each row on its own.
template <class Word>
std::vector<Word> packed_words(const std::vector<std::uint32_t>& codes, std::size_t rows, std::size_t columns, std::size_t bits) {
    const std::size_t width = (columns * bits + 31) / 32;
    std::vector<Word> words(rows * width);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            const std::uint64_t code = codes[r * columns + c];
            const std::size_t at = c * bits;
            const std::uint64_t placed = code << (at % 32);
            words[r * width + at / 32] =
                static_cast<Word>(static_cast<std::uint32_t>(words[r * width + at / 32]) | static_cast<std::uint32_t>(placed));
            if (at % 32 + bits > 32) {
                Word& next = words[r * width + at / 32 + 1];
                next = static_cast<Word>(static_cast<std::uint32_t>(next) | static_cast<std::uint32_t>(placed >> 32));
            }
        }
    }
    return words;
}

/// A matrix cut into blocks along its rows, the last ones filled up with zeros, as a rule sees it.
struct blocked {
    std::size_t rows, columns, block, per_row;
    std::vector<float> values;  ///< rows x per_row * block

    blocked(const input& x, std::size_t size) : rows(x.rows), columns(x.columns), block(size), per_row((x.columns + size - 1) / size) {
        values.resize(rows * width());
        for (std::size_t r = 0; r < rows; ++r) {
            const auto row = x.values.subspan(r * columns, columns);
            std::copy(row.begin(), row.end(), values.begin() + static_cast<std::ptrdiff_t>(r * width()));
        }
    }
    std::size_t width() const { return per_row * block; }
    std::size_t count() const { return rows * per_row; }
    std::span<const float> operator[](std::size_t b) const { return std::span(values).subspan(b * block, block); }

    /// The first `columns` of each row again.
    template <class T>
    std::vector<T> cropped(const std::vector<T>& padded) const {
        if (width() == columns) return padded;
        std::vector<T> kept(rows * columns);
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t c = 0; c < columns; ++c) kept[r * columns + c] = padded[r * width() + c];
        }
        return kept;
    }
    float maximum() const { return absolute_maximum(values); }
};

/// The values of blocks, and a scale for each.
inline result with_scales(const input& x, const blocked& b, const std::vector<float>& values, const std::vector<float>& scales,
                          std::string name = "scales") {
    result made{{x.rows, x.columns}, b.cropped(values), {}};
    made.planes.push_back(make_plane(std::move(name), {x.rows, b.per_row}, scales));
    return made;
}

/// A matrix cut into tiles, the last ones smaller.
struct tiled {
    std::size_t columns, tile_rows, tile_columns, down, across;

    tiled(const input& x, std::size_t rows_of_tile, std::size_t columns_of_tile)
        : columns(x.columns),
          tile_rows(rows_of_tile),
          tile_columns(columns_of_tile),
          down((x.rows + tile_rows - 1) / tile_rows),
          across((x.columns + tile_columns - 1) / tile_columns) {}
    /// The tile of value i.
    std::size_t operator()(std::size_t i) const { return i / columns / tile_rows * across + i % columns / tile_columns; }

    /// The largest magnitude of each tile. A NaN is not left again: nothing compares above it.
    std::vector<float> maxima(std::span<const float> x) const {
        std::vector<float> most(down * across);
        for (std::size_t i = 0; i < x.size(); ++i) {
            float& m = most[(*this)(i)];
            const float a = std::abs(x[i]);
            if (a != a || a > m) m = a;
        }
        return most;
    }
};

}  // namespace qk::systems
