// SPDX-License-Identifier: Apache-2.0
// A block format's coder with its fast forms: the one place where `encode` uses what is known of a format when compiling.
#pragma once

#include "qk/codec/encode/fast_columns.hpp"
#include "qk/codec/encode/large_blocks.hpp"

namespace qk::detail {

template <class Arch, compile_time_facts Known, class Format>
class coder_of final : public family_coder<Arch, Format> {
  public:
    using family_coder<Arch, Format>::family_coder;

    void long_block(values_in x, planes out, along_axis a, std::size_t o, std::size_t l, std::size_t i,
                    const semantics& how) const noexcept override {
        if constexpr (Known.blocks.size == 0 || Known.blocks.size > static_cast<int>(tile))
            encode_long_block<Arch>(this->format_, *this, x, out, a, o, l, i, how);
    }
    std::size_t fast(const semantics& how, values_in x, planes out, const fast_task& walk) const noexcept override {
        if (has_searched_scales<Format> && is_searched(how.scale_rule)) return 0;
        alignas(64) std::uint8_t waiting[code_writer<Arch, Known.width>::may_wait ? largest_tile : 1];
        return with_block_codes<Arch, Known>(
            this->format_, this->step(how), out, waiting, [&]<kernels::element_step OfElement>(const auto& form, const auto& codes) {
                if (walk.columns == nullptr)
                    return encode_row_of_blocks<Arch, Known, OfElement>(form, codes, x.floats(), walk.blocks, *walk.row);
                encode_columns<Arch, Known, OfElement>(this->packed, form, codes, x, walk.axis, *walk.columns);
                return std::size_t{1};
            });
    }
};

}  // namespace qk::detail
