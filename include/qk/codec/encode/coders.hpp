// SPDX-License-Identifier: Apache-2.0
// A block format's coder with its fast forms: the one place where `encode` takes what is known of a format when compiling.
#pragma once

#include "qk/codec/encode/fast_columns.hpp"
#include "qk/codec/encode/large_blocks.hpp"

namespace qk::detail {

template <class Arch, known_codes Known, class Format>
class coder_of final : public family_coder<Arch, Format> {
  public:
    using family_coder<Arch, Format>::family_coder;

    void long_block(values_in x, planes out, along_axis a, std::size_t o, std::size_t l, std::size_t i,
                    const semantics& how) const noexcept override {
        if constexpr (Known.blocks.size == 0 || Known.blocks.size > static_cast<int>(tile))
            encode_long_block<Arch>(this->format_, *this, x, out, a, o, l, i, how);
    }
    std::size_t rows(const semantics& how, const float* x, planes out, std::size_t blocks,
                     const kernels::range_call& complete) const noexcept override {
        return encode_blocks_quickly<Arch, Known>(this->format_, this->step(how), x, out, blocks, complete);
    }
    bool columns(const semantics& how, values_in x, planes out, along_axis a, const columns_call& complete) const noexcept override {
        return encode_columns_quickly<Arch, Known>(this->format_, this->step(how), x, out, a, complete);
    }
};

}  // namespace qk::detail
