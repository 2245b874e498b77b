// SPDX-License-Identifier: Apache-2.0
// Chooses the tile loop (block_tiles.hpp, tile_stretches.hpp) for blocks that lie in a row, by what is known of the format when compiling.
#pragma once

#include "qk/kernels/drivers/block_tiles.hpp"
#include "qk/kernels/drivers/tile_stretches.hpp"

namespace qk::kernels {

/// What the step of the grid at an element depends on: its block, the element itself, or the pair that is its sub-block.
enum class element_step : std::uint8_t { unknown, block, element, pair };

/// What is known of a block format when compiling. Only the loops that the format needs are compiled then.
struct block_shape {
    int size = 0;  ///< 0: known when running
    element_step step = element_step::unknown;
    bool one_row = false;  ///< the whole array is one row
};
constexpr block_shape shape_of(const block_float& f) { return {f.block_size, element_step::block}; }
constexpr block_shape shape_of(const microexponent& f) { return {f.block_size, element_step::pair}; }
constexpr block_shape shape_of(const microscaling& f) {
    return {f.block_size, has_integer_elements(f) ? element_step::block : element_step::element};
}
constexpr block_shape shape_of(const nvfloat& f) { return {f.block_size, element_step::element}; }

/// Is true unless the known step or the form rules out sub-blocks.
template <class Arch, class Form>
constexpr bool may_pair(element_step known) noexcept {
    return (known == element_step::unknown || known == element_step::pair) && may_have_sub_blocks<Form, Arch>;
}

/// Is true when there are tiles of blocks of this size and with these sub-blocks (0: none).
template <class Arch>
constexpr bool has_tiles(std::size_t size, int sub_block_size) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    if (w == 1) return sub_block_size == 0 && (size == 8 || size == 16 || size == 32 || size == 64);
    const bool small = (w == 16 && size == 8) || (w > 4 && size == w);
    return (sub_block_size == 0 || sub_block_size == 2) && (small || size == 2 * w || size == 4 * w || size == 8 * w);
}

/// Runs the whole tiles among `blocks` blocks in a row at x and returns how many blocks these hold: 0 where has_tiles() is false.
template <class Arch, block_shape Known, class Form, class Out>
std::size_t run_row_of_blocks(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                              const range_call& general) noexcept {
    constexpr std::size_t w = lanes<Arch>, known = static_cast<std::size_t>(Known.size);
    if (!has_tiles<Arch>(size, form.sub_block_size)) return 0;
    const auto by_step = [&]<block_fit Fit, std::size_t Each>() {
        const auto run = [&]<bool Pairs, bool Grid>() {
            if constexpr (Out::in_fours) return run_tile_stretches<Arch, Fit, Each, Pairs, Grid>(x, blocks, size, form, out, general);
            else return run_block_tiles<Arch, Fit, Each, Pairs, Grid>(x, blocks, size, form, out, general);
        };
        // Roundings other than half-even find the step at an element in one way, whatever it depends on: Grid is false.
        if constexpr (Out::any_rounding) {
            if constexpr (w > 1 && may_pair<Arch, Form>(Known.step)) {
                if (form.sub_block_size != 0) return run.template operator()<true, false>();
            }
            if constexpr (Known.step == element_step::pair) return std::size_t{0};
            else return run.template operator()<false, false>();
        } else if constexpr (Known.step == element_step::pair && w == 1) return std::size_t{0};
        else if constexpr (Known.step == element_step::pair) return run.template operator()<true, false>();
        else if constexpr (Known.step == element_step::block) return run.template operator()<false, false>();
        else if constexpr (Known.step == element_step::element) return run.template operator()<false, true>();
        else if (form.grid) return run.template operator()<false, true>();
        else if constexpr (w == 1) return run.template operator()<false, false>();
        else return form.sub_block_size != 0 ? run.template operator()<true, false>() : run.template operator()<false, false>();
    };
    if constexpr (known != 0) {
        if constexpr (!has_tiles<Arch>(known, 0)) return 0;
        else if constexpr (known < w) return by_step.template operator()<block_fit::half, 1>();
        else if constexpr (known == w) return by_step.template operator()<block_fit::one, 1>();
        else return by_step.template operator()<block_fit::many, known / w>();
    } else {
        if constexpr (w == 16) {
            if (size < w) return by_step.template operator()<block_fit::half, 1>();
        }
        if constexpr (w > 4) {
            if (size == w) return by_step.template operator()<block_fit::one, 1>();
        }
        return by_step.template operator()<block_fit::many, 0>();
    }
}

}  // namespace qk::kernels
