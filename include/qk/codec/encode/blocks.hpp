// SPDX-License-Identifier: Apache-2.0
// `encode` of block formats: the kernel of fake_quantize rounds a tile of whole blocks; the shared codes follow from a block's largest
// magnitude, the elements from y divided by their step. block_coder hides the differences between families.
#pragma once

#include "qk/codec/encode/elements.hpp"
#include "qk/formats/codes.hpp"
#include "qk/formats/codes/shared_code.hpp"
#include "qk/isa.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// A tile of blocks: x and y as [rows][lanes] with the blocks in columns (lanes > 1) or as one row of blocks (lanes == 1).
struct block_tile {
    alignas(64) float x[tile], y[tile], first[tile], second[tile];
    alignas(64) std::uint32_t code[tile];
    std::int32_t found[tile];  ///< scales that round() searched, where their blocks begin (kernels::search_task)
};

/// Computes the element codes of a rounded tile. NaN blocks (scale code NaN) get elements of code 0.
template <class Arch, class Format>
void element_codes(const Format& f, block_tile& t, std::size_t n) noexcept {
    if constexpr (under_floating_scales<Format>) {  // first: d of each element
        for (std::size_t k = 0; k < n; ++k) t.y[k] = t.first[k] == 0 ? 0.0f : t.y[k] / t.first[k];
        round_float<Arch>(f.element, t.y, n);
        to_codes<Arch>(f.element, t.y, t.code, n);
    } else {
        codes_of<Arch>(f, t.y, t.first, t.second, t.code, n);
    }
}

/// Writes the shared codes of one block of a tile into the planes, and the inverse of its elements' steps (NVFP4: their divisor) into the
/// tile. The block has number `block` in the plane of scales; its sub-blocks have numbers from `sub` on, `across` apart, in that of shifts.
template <class Arch, class Format>
void share_block(const Format& f, block_tile& t, std::size_t start, std::size_t count, std::size_t stride, planes out, std::size_t block,
                 std::size_t sub, std::size_t across, float tensor, const semantics& how) noexcept {
    survey s;
    for (std::size_t k = 0; k < count; ++k) {
        const std::uint32_t a = as_bits(t.x[start + k * stride]) & 0x7fffffffu;
        s.all = std::max(s.all, a);
        s.finite = std::max(s.finite, a < 0x7f800000u ? a : 0u);
    }
    const auto fill = [&](std::size_t from, std::size_t to, inverse by) {
        for (std::size_t k = start + from * stride; k < start + to * stride; k += stride) {
            t.first[k] = by.first;
            t.second[k] = by.second;
        }
    };
    const auto clear = [&] {
        for (std::size_t k = 0; k < count; ++k) t.y[start + k * stride] = 0;
        fill(0, count, {});
    };
    if constexpr (under_floating_scales<Format>) {
        const bool searched = is_searched(how.scale_rule) && !is_nan_block(s, how.mx_specials);
        const std::uint32_t code =
            searched ? code_of(f.scale, as_float(static_cast<std::uint32_t>(t.found[start]))) : block_scale_code<Arch>(f, s, tensor, how);
        put_code(out.scales, block, scale_width(f), code);
        const float d = scale_of(f, code, tensor);
        if (d != d) return clear();
        fill(0, count, {d, 1});
    } else {
        shared_code shared = share(f, s, t.y + start, count, stride, how);
        const bool is_nan = shared.code == low_bits(scale_width(f));
        if constexpr (under_power_scales<Format>) {
            if (is_searched(how.scale_rule) && !is_nan) {
                shared.exponent += t.found[start] + 127 - static_cast<int>(shared.code);
                shared.code = static_cast<std::uint32_t>(t.found[start] + 127);
            }
        }
        put_code(out.scales, block, scale_width(f), shared.code);
        if (is_nan) clear();
        if constexpr (has_sub_blocks<Format>) {
            const auto size = static_cast<std::size_t>(f.sub_block_size);
            for (std::size_t from = 0, number = sub; from < count; from += size, number += across) {
                const std::size_t to = std::min(from + size, count);
                std::uint32_t largest = 0;
                for (std::size_t k = from; k < to; ++k) largest = std::max(largest, as_bits(t.x[start + k * stride]) & 0x7fffffffu);
                const std::uint32_t shift = is_nan ? 0 : std::min(shared.code - (largest >> 23), low_bits(f.shift_bits));
                put_code(out.shifts, number, f.shift_bits, shift);
                if (is_nan) continue;
                fill(from, to, inverse_of(step_exponent(f, static_cast<int>(shared.code), static_cast<int>(shift))));
            }
        } else if (!is_nan) {
            fill(0, count, inverse_of(shared.exponent));
        }
    }
}

using columns_call = kernels::call_with<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;  ///< (o, l, rows, i, n)

/// A task for the fast form: encode `blocks` blocks in a row or, where `columns` is given, all blocks along `axis`. The blocks that it
/// cannot encode go to `row` or `columns`.
struct fast_task {
    std::size_t blocks;
    const kernels::range_call* row;
    along_axis axis{};
    const columns_call* columns = nullptr;
};

/// A block format as `encode` sees it. The code that walks tensors and tiles calls this interface, so it is compiled once for all families.
template <class Arch>
class block_coder {
  public:
    const packing packed;
    const float tensor;  ///< NVFP4's tensor scale

    block_coder(const packing& p, float scale) noexcept : packed(p), tensor(scale) {}
    block_coder(const block_coder&) = delete;
    block_coder& operator=(const block_coder&) = delete;

    /// Rounds whole blocks as fake_quantize does; `found` gets scales that are searched (kernels::search_task).
    virtual void round(const semantics& how, const float* x, float* y, along_axis a, std::int32_t* found) const noexcept = 0;
    /// Call share_block and element_codes.
    virtual void share(block_tile& t, std::size_t start, std::size_t count, std::size_t stride, planes out, std::size_t block,
                       std::size_t sub, std::size_t across, const semantics& how) const noexcept = 0;
    virtual void elements(block_tile& t, std::size_t n) const noexcept = 0;
    /// Encodes the block at position (o, l, i), which is longer than a tile.
    virtual void long_block(values_in, planes, along_axis, std::size_t, std::size_t, std::size_t, const semantics&) const noexcept {}
    /// Runs the fast form. Returns how many blocks of a row were done or, with `columns`, 1; 0 where there is no fast form.
    virtual std::size_t fast(const semantics&, values_in, planes, const fast_task&) const noexcept { return 0; }

  protected:
    ~block_coder() = default;
};

/// Implements for a family what the general form needs.
template <class Arch, class Format>
class family_coder : public block_coder<Arch> {
  public:
    family_coder(const Format& f, float scale) noexcept : block_coder<Arch>(packing_of(f), scale), format_(f) {}

    void round(const semantics& how, const float* x, float* y, along_axis a, [[maybe_unused]] std::int32_t* found) const noexcept final {
        if constexpr (has_elements<Format>) {
            if (is_searched(how.scale_rule)) return kernels::run_searched<Arch>(format_, x, y, a, this->tensor, how, found);
        }
        kernels::run_blocks_general<Arch>(x, y, a, step(how));
    }
    void share(block_tile& t, std::size_t start, std::size_t count, std::size_t stride, planes out, std::size_t block, std::size_t sub,
               std::size_t across, const semantics& how) const noexcept final {
        share_block<Arch>(format_, t, start, count, stride, out, block, sub, across, this->tensor, how);
    }
    void elements(block_tile& t, std::size_t n) const noexcept final { element_codes<Arch>(format_, t, n); }

  protected:
    ~family_coder() = default;
    auto step(const semantics& how) const noexcept { return kernels::step_of<Arch>(format_, how, this->tensor); }
    const Format format_;
};

/// The general form: rounds tiles of blocks by the kernel of fake_quantize, then makes their codes.
template <class Arch>
class tile_encoder {
  public:
    tile_encoder(const block_coder<Arch>& coder, values_in x, planes out, along_axis a, const semantics& how) noexcept
        : coder_(coder), x_(x), out_(out), axis_(a), how_(how) {}

    /// Encodes n values of row o, from position l on; they are at most a tile, and the first begins a block.
    QK_APART void row(std::size_t o, std::size_t l, std::size_t n) noexcept {
        const std::size_t block = size(), first = o * axis_.length + l;
        QK_TRACE("general codes", first, n, block_coder<Arch>);
        x_.template copy<Arch>(first, n, t_.x);
        if (how_.flush_inputs) flush(t_.x, n);
        coder_.round(weights_from(from_element(how_, first), l), t_.x, t_.y, along_axis{1, n, 1}, t_.found);
        for (std::size_t k = 0; k < n; k += block) share(k, std::min(block, n - k), 1, o, l + k, 0);
        coder_.elements(t_, n);
        put_codes<Arch>(out_.elements, first, n, coder_.packed.element_width, t_.code);
    }
    /// Encodes the blocks of columns [first, first + count) that begin at position l and have `rows` values, in panels of as many as fit
    /// a tile.
    QK_APART void columns(std::size_t o, std::size_t l, std::size_t rows, std::size_t first, std::size_t count) noexcept {
        const std::size_t fit = tile / std::max<std::size_t>(rows, 1);
        QK_TRACE("general codes", (o * axis_.length + l) * axis_.inner + first, rows * count, block_coder<Arch>);
        semantics inside = weights_from(how_, l);  // random bits depend on the position in the array
        if (is_stochastic(how_.rounding)) inside.random_words = words_;
        for (std::size_t i = first; i < first + count; i += fit) {
            const std::size_t w = std::min(fit, first + count - i);
            const auto position = [&](std::size_t r) { return (o * axis_.length + l + r) * axis_.inner + i; };
            for (std::size_t r = 0; r < rows; ++r) {
                x_.template copy<Arch>(position(r), w, t_.x + r * w);
                if (is_stochastic(how_.rounding)) kernels::store_random<Arch>(kernels::random_source(how_), position(r), w, words_ + r * w);
            }
            if (how_.flush_inputs) flush(t_.x, rows * w);
            coder_.round(inside, t_.x, t_.y, along_axis{1, rows, w}, t_.found);
            for (std::size_t k = 0; k < w; ++k) share(k, rows, w, o, l, i + k);
            coder_.elements(t_, rows * w);
            for (std::size_t r = 0; r < rows; ++r)
                put_codes<Arch>(out_.elements, position(r), w, coder_.packed.element_width, t_.code + r * w);
        }
    }

  private:
    /// The semantics for blocks that begin at position l of the axis.
    static semantics weights_from(semantics how, std::size_t l) noexcept {
        if (how.scale_weights != nullptr) how.scale_weights += l;
        return how;
    }
    std::size_t size() const noexcept { return static_cast<std::size_t>(coder_.packed.block_size); }
    QK_APART void share(std::size_t start, std::size_t count, std::size_t stride, std::size_t o, std::size_t l, std::size_t i) noexcept {
        coder_.share(t_, start, count, stride, out_, scale_index(coder_.packed, axis_, o, l, i), shift_index(coder_.packed, axis_, o, l, i),
                     axis_.inner, how_);
    }

    const block_coder<Arch>& coder_;
    const values_in x_;
    const planes out_;
    const along_axis axis_;
    const semantics& how_;
    block_tile t_;
    std::uint32_t words_[tile];
};

template <class Arch>
inline constexpr std::size_t filled_blocks = std::max<std::size_t>(kernels::lanes<Arch>, 8);

/// Encodes what is left of a row behind its first blocks, filled up with zeros to as many blocks as the fast form takes: rows of few
/// blocks, as the heads of a cache are, would else take the general form alone. Returns false, with nothing done, where there is no fast
/// form.
template <class Arch>
QK_APART bool encode_rest(const block_coder<Arch>& coder, const float* x, planes out, std::size_t from, std::size_t length,
                          const semantics& how) noexcept {
    const packing& packed = coder.packed;
    constexpr std::size_t blocks = filled_blocks<Arch>;
    const auto block = static_cast<std::size_t>(packed.block_size);
    const std::size_t first = from * block, n = length - first, room = blocks * block;
    alignas(64) float value[widened];
    alignas(64) std::byte bytes[8 * widened];
    std::copy(x + first, x + length, value);
    std::fill(value + n, value + room, 0.0f);
    const planes staged = planes_of(layout_of(packed, along_axis{1, room, 1}), std::span<std::byte>(bytes));
    const std::span<const float> values(value, room);
    semantics inside = from_element(how, first);
    std::uint32_t words[widened];
    if (!inside.random_words.empty()) {  // there are none behind the row's end
        std::copy(inside.random_words.data(), inside.random_words.data() + n, words);
        std::fill(words + n, words + room, 0u);
        inside.random_words = words;
    }
    tile_encoder<Arch> tiles(coder, values, staged, along_axis{1, room, 1}, inside);
    const auto general = [&](std::size_t begin, std::size_t count) {
        const std::size_t step = block > tile ? tile : tile / block * block, end = (begin + count) * block;
        for (std::size_t k = begin * block; k < end; k += step) tiles.row(0, k, std::min(step, end - k));
    };
    const kernels::range_call declined(general);
    const std::size_t done = coder.fast(inside, values, staged, {blocks, &declined});
    if (done == 0) return false;
    if (done < blocks) general(done, blocks - done);
    const auto copy = [](std::span<std::byte> to, std::size_t at, std::span<const std::byte> codes, std::size_t count, int width) {
        const std::size_t bits = count * static_cast<std::size_t>(width), bit = at * static_cast<std::size_t>(width);
        if (bits == 0) return;
        if (bit % 8 == 0 && bits % 8 == 0) std::memcpy(to.data() + bit / 8, codes.data(), bits / 8);
        else copy_bits<Arch>(to, bit, codes, 0, bits);
    };
    copy(out.elements, first, staged.elements, n, packed.element_width);
    copy(out.scales, from, staged.scales, divide_up(n, packed.block_size), packed.scale_width);
    copy(out.shifts, sub_blocks_of(packed, first), staged.shifts, sub_blocks_of(packed, n), packed.shift_bits);
    return true;
}

/// Encodes one row of floats: by the fast form, and by the general form what that leaves.
template <class Arch>
QK_APART void encode_row(const block_coder<Arch>& coder, values_in x, planes out, std::size_t length, const semantics& how) noexcept {
    const auto block = static_cast<std::size_t>(coder.packed.block_size);
    tile_encoder<Arch> tiles(coder, x, out, along_axis{1, length, 1}, how);
    const auto general = [&](std::size_t from, std::size_t count) {  // blocks
        const std::size_t step = block > tile ? tile : tile / block * block, end = std::min((from + count) * block, length);
        for (std::size_t k = from * block; k < end; k += step) tiles.row(0, k, std::min(step, end - k));
    };
    const kernels::range_call declined(general);
    const std::size_t done = coder.fast(how, x, out, {length / block, &declined});
    const std::size_t left = divide_up(length, coder.packed.block_size) - done;
    if (left != 0 && left <= filled_blocks<Arch> && block <= widened_block && encode_rest<Arch>(coder, x.floats(), out, done, length, how))
        return;
    general(done, left);
}

/// Encodes one row of 16-bit memory, whose values are widened to floats first.
template <class Arch>
void encode_widened(const block_coder<Arch>& coder, values_in x, planes out, std::size_t length, const semantics& how) noexcept {
    alignas(64) float value[widened];
    for_each_widened(coder.packed, out, length, [&](std::size_t first, std::size_t n, planes part) {
        x.template copy<Arch>(first, n, value);
        encode_row<Arch>(coder, std::span<const float>(value, n), part, n, from_element(how, first));
    });
}

/// Encodes rows whose last block is short, as gathered_rows.
template <class Arch>
QK_APART void encode_gathered(const block_coder<Arch>& coder, values_in x, planes out, along_axis a, const semantics& how) noexcept {
    gathered_rows<Arch> g(coder.packed);
    std::uint32_t words[widened] = {};  // random bits depend on the position in the array
    semantics inside = how;
    if (is_stochastic(how.rounding)) inside.random_words = words;
    g.each(a, [&] {
        for (const auto& piece : std::span(g.pieces, g.number)) {
            float* to = g.values + piece.block * g.size();
            x.template copy<Arch>(piece.at, piece.count, to);
            std::fill(to + piece.count, to + divide_up(piece.count, coder.packed.block_size) * g.size(), 0.0f);
            if (is_stochastic(how.rounding))
                kernels::store_random<Arch>(kernels::random_source(how), piece.at, piece.count, words + piece.block * g.size());
        }
        encode_row<Arch>(coder, std::span<const float>(g.values, g.length()), g.staged, g.length(), inside);
        g.each_code(out, [](std::span<std::byte> to, std::size_t bit, std::span<const std::byte> from, std::size_t from_bit,
                            std::size_t bits) { copy_bits<Arch>(to, bit, from, from_bit, bits); });
    });
}

/// Encodes blocks along an axis that is not the last: by the fast form, or by the general form where there is none.
template <class Arch>
void encode_strided(const block_coder<Arch>& coder, values_in x, planes out, along_axis a, const semantics& how) noexcept {
    const auto block = static_cast<std::size_t>(coder.packed.block_size);
    tile_encoder<Arch> tiles(coder, x, out, a, how);
    const auto general = [&](std::size_t o, std::size_t l, std::size_t rows, std::size_t i, std::size_t n) {
        tiles.columns(o, l, rows, i, n);
    };
    const columns_call declined(general);
    if (coder.fast(how, x, out, {0, nullptr, a, &declined}) != 0) return;
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; l += block) general(o, l, std::min(block, a.length - l), 0, a.inner);
    }
}

/// Encodes blocks that fit a tile, or rows that do.
template <class Arch>
void encode_blocks(const block_coder<Arch>& coder, values_in x, planes out, along_axis a, const semantics& how) noexcept {
    const auto block = static_cast<std::size_t>(coder.packed.block_size);
    if (a.inner != 1) return encode_strided<Arch>(coder, x, out, a, how);
    const bool weighted = how.scale_weights != nullptr && is_searched(how.scale_rule);  // by the position along the axis
    const bool one_row = !weighted && (a.outer == 1 || a.length % block == 0);          // no short block: the rows are one
    const bool is_small = block <= widened_block;
    if (!one_row && is_small && !weighted) return encode_gathered<Arch>(coder, x, out, a, how);
    if (one_row && x.floats() != nullptr) return encode_row<Arch>(coder, x, out, a.outer * a.length, how);
    if (one_row && is_small) return encode_widened<Arch>(coder, x, out, a.outer * a.length, how);
    tile_encoder<Arch> tiles(coder, x, out, a, how);
    for_each_run(a, block, [&](std::size_t o, std::size_t l, std::size_t, std::size_t, std::size_t n) { tiles.row(o, l, n); });
}

/// Encodes blocks of any size.
template <class Arch>
void encode_tensor(const block_coder<Arch>& coder, values_in x, planes out, along_axis a, const semantics& how) noexcept {
    const auto block = static_cast<std::size_t>(coder.packed.block_size);
    if (std::min(block, a.length) <= tile) return encode_blocks<Arch>(coder, x, out, a, how);
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; l += block) {
            for (std::size_t i = 0; i < a.inner; ++i) coder.long_block(x, out, a, o, l, i, how);
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
