// SPDX-License-Identifier: Apache-2.0
// Packs codes as com.microsoft's operators hold them: row by row, each in whole bytes.
#pragma once

#include <cstring>
#include <utility>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph::detail {

/// Packs codes of a matrix one after the other from the lowest bit on, with every row in whole bytes.
class packed_codes {
  public:
    packed_codes(std::int64_t rows, std::int64_t each, int bits)
        : bits_(static_cast<std::size_t>(bits)), per_byte_(8 / bits_), row_((static_cast<std::size_t>(each) + per_byte_ - 1) / per_byte_) {
        bytes_ = tensor(data_type::uint8, {rows * row_bytes()});
        std::memset(bytes_.bytes(), 0, bytes_.size_bytes());
    }
    void put(std::int64_t row, std::int64_t k, std::int64_t code) {
        const auto at = static_cast<std::size_t>(k);
        auto& to = bytes_.as<std::uint8_t>()[static_cast<std::size_t>(row) * row_ + at / per_byte_];
        to = static_cast<std::uint8_t>(to | static_cast<std::size_t>(code) << (at % per_byte_ * bits_));
    }
    std::int64_t row_bytes() const { return static_cast<std::int64_t>(row_); }
    tensor shaped(dims shape) const { return bytes_.reshaped(std::move(shape)); }

  private:
    std::size_t bits_, per_byte_, row_;
    tensor bytes_;
};

}  // namespace qk::graph::detail
