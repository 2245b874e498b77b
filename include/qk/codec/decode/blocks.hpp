// SPDX-License-Identifier: Apache-2.0
// `decode` of block formats: walks the planes in the tensor's order, tile by tile, for any axis. block_decoder hides how families differ.
#pragma once

#include <algorithm>

#include "qk/codec/decode/fast_blocks.hpp"
#include "qk/codec/decode/fast_values.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/formats/codes/unpack.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/memory/values.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Decodes rows of n values; column k has factor[k] in every row. Takes (number of the first code, y, rows, row stride, n, factors).
using rows_call = kernels::call_with<std::size_t, float*, std::size_t, std::size_t, std::size_t, const float*>;
using rows_walk = kernels::call_with<const rows_call&>;

/// A task for the fast form: decode `blocks` whole blocks in a row to y or, where `columns` is given, call it with a rows_call.
struct fast_rows {
    float* y;
    std::size_t blocks;
    bool streaming;
    const rows_walk* columns = nullptr;
};

/// A block format as `decode` sees it. The code that walks tensors and tiles calls this interface, so it is compiled once for all families.
template <class Arch>
class block_decoder {
  public:
    const packing packed;
    const float tensor;  ///< NVFP4's tensor scale

    block_decoder(const packing& p, float scale) noexcept : packed(p), tensor(scale) {}
    block_decoder(const block_decoder&) = delete;
    block_decoder& operator=(const block_decoder&) = delete;

    /// Computes the values of n codes before they are multiplied by their factors.
    virtual void elements(const std::uint32_t* code, float* value, std::size_t n) const noexcept = 0;
    /// Computes the factors of n values that lie across the axis, from position (o, along, across) on.
    virtual void factors(const_planes, along_axis, std::size_t o, std::size_t along, std::size_t across, std::size_t n,
                         float* factor) const noexcept = 0;
    /// Runs the fast form. Returns how many values of the row were done, or 1 if `columns` was called; 0 where there is no fast form.
    virtual std::size_t fast(const_planes, const fast_rows&) const noexcept = 0;

  protected:
    ~block_decoder() = default;
};

template <class Arch, compile_time_facts Known, class Format>
class decoder_of final : public block_decoder<Arch> {
  public:
    decoder_of(const Format& f, float scale) noexcept : block_decoder<Arch>(packing_of(f), scale), format_(f) {}

    void elements(const std::uint32_t* code, float* value, std::size_t n) const noexcept override {
        elements_of<Arch>(format_, code, value, n);
    }
    void factors(const_planes p, along_axis a, std::size_t o, std::size_t along, std::size_t across, std::size_t n,
                 float* factor) const noexcept override {
        factors_across<Arch>(format_, p, scale_index(this->packed, a, o, along, across), shift_index(this->packed, a, o, along, across), n,
                             this->tensor, factor);
    }
    std::size_t fast(const_planes p, const fast_rows& rows) const noexcept override {
        return with_element_values<Arch, Known>(format_, [&](const auto& values) {
            if (rows.columns == nullptr)
                return decode_row_of_blocks<Arch, Known.width, Known.blocks.size>(format_, values, p, rows.y, rows.blocks, this->tensor,
                                                                                  rows.streaming);
            (*rows.columns)(
                rows_call([&](std::size_t first, float* to, std::size_t count, std::size_t stride, std::size_t n, const float* factor) {
                    decode_columns<Arch, Known.width>(values, p.elements, first, to, count, stride, n, this->packed.element_width, factor);
                }));
            return std::size_t{1};
        });
    }

  private:
    const Format format_;
};

/// Returns how many values from l on, in a row of `length`, have the same factor.
constexpr std::size_t sharing(const packing& p, std::size_t l, std::size_t length) {
    const auto block = static_cast<std::size_t>(p.block_size);
    const std::size_t in_block = l % block, share = p.shift_bits != 0 ? static_cast<std::size_t>(p.sub_block_size) : block;
    return std::min({length - l, block - in_block, share - in_block % share});
}

/// Computes the factor of every value of a piece. across(l, i, n, factor) computes those of n values that lie across the axis; along the
/// axis it is called once for each run of values that share a factor.
template <class Across>
QK_INLINE void factors_of(const packing& p, along_axis a, std::size_t l, std::size_t i, std::size_t n, float* factor,
                          const Across& across) {
    if (a.inner != 1) return across(l, i, n, factor);
    for (std::size_t k = 0; k < n;) {
        const std::size_t until = k + sharing(p, l + k, l + n);
        float shared = 0;
        across(l + k, 0, 1, &shared);
        std::fill(factor + k, factor + until, shared);
        k = until;
    }
}

/// Decodes along a strided axis: rows that share their factors, a piece of them at a time. Returns false where there is no fast form.
template <class Arch>
bool decode_across(const block_decoder<Arch>& decoder, const_planes p, values_out y, along_axis a) noexcept {
    const auto walk = [&](const rows_call& decode) {
        alignas(64) float factor[tile], value[tile];
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0, rows = 0; l < a.length; l += rows) {
                rows = sharing(decoder.packed, l, a.length);
                for (std::size_t i = 0; i < a.inner; i += tile) {
                    const std::size_t n = std::min(tile, a.inner - i), at = (o * a.length + l) * a.inner + i;
                    decoder.factors(p, a, o, l, i, n, factor);
                    if (y.floats() != nullptr) {
                        decode(at, y.floats() + at, rows, a.inner, n, factor);
                        continue;
                    }
                    for (std::size_t j = 0; j < rows; ++j) {
                        decode(at + j * a.inner, value, 1, 0, n, factor);
                        y.template copy<Arch>(value, at + j * a.inner, n);
                    }
                }
            }
        }
    };
    const rows_walk with_rows(walk);
    return decoder.fast(p, {nullptr, 0, false, &with_rows}) != 0;
}

template <class Arch>
void decode_blocks(const block_decoder<Arch>& decoder, const_planes p, values_out y, along_axis a) noexcept;

/// Decodes rows whose last block is short, as gathered_rows.
template <class Arch>
QK_APART void decode_gathered(const block_decoder<Arch>& decoder, const_planes p, values_out y, along_axis a) noexcept {
    gathered_rows<Arch> g(decoder.packed);
    std::memset(g.bytes, 0, sizeof g.bytes);  // the codes that fill up short blocks
    if (!p.tensor.empty()) std::memcpy(g.staged.tensor.data(), p.tensor.data(), sizeof(float));
    g.each(a, [&] {
        g.each_code(p, [](std::span<const std::byte> from, std::size_t bit, std::span<std::byte> to, std::size_t to_bit, std::size_t bits) {
            copy_bits<Arch>(to, to_bit, from, bit, bits);
        });
        const const_planes staged{g.staged.elements, g.staged.scales, g.staged.shifts, g.staged.tensor};
        decode_blocks<Arch>(decoder, staged, std::span<float>(g.values, g.length()), along_axis{1, g.length(), 1});
        for (const auto& piece : std::span(g.pieces, g.number))
            y.template copy<Arch>(g.values + piece.block * g.size(), piece.at, piece.count);
    });
}

/// Decodes blocks along any axis.
template <class Arch>
void decode_blocks(const block_decoder<Arch>& decoder, const_planes p, values_out y, along_axis a) noexcept {
    const packing& packed = decoder.packed;
    const auto block = static_cast<std::size_t>(packed.block_size);
    if (a.inner == 1 && a.length % block == 0) a = {1, a.outer * a.length, 1};  // no short block: all rows are one
    const auto decode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) QK_APART {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile], factor[tile];
        QK_TRACE("general values", first, n, block_decoder<Arch>);
        get_codes<Arch>(p.elements, first, n, packed.element_width, code);
        decoder.elements(code, value, n);
        factors_of(packed, a, l, i, n, factor, [&](std::size_t along, std::size_t across, std::size_t count, float* to) {
            decoder.factors(p, a, o, along, across, count, to);
        });
        for (std::size_t k = 0; k < n; ++k) value[k] *= factor[k];
        y.template copy<Arch>(value, first, n);
    };
    if (a.inner != 1 && y.size() != 0 && decode_across<Arch>(decoder, p, y, a)) return;
    if (a.inner == 1 && a.outer != 1 && block <= widened_block) return decode_gathered<Arch>(decoder, p, y, a);
    if (a.inner != 1 || a.outer != 1 || (y.floats() == nullptr && block > widened_block)) return for_each_run(a, block, decode_tile);
    if (y.floats() == nullptr) {
        alignas(64) float value[widened];
        return for_each_widened(packed, p, a.length, [&](std::size_t first, std::size_t n, const_planes part) {
            decode_blocks<Arch>(decoder, part, std::span<float>(value, n), along_axis{1, n, 1});
            y.template copy<Arch>(value, first, n);
        });
    }
    const bool aligned = reinterpret_cast<std::uintptr_t>(y.floats()) % sizeof(kernels::vf<Arch>) == 0;
    const bool streaming = aligned && kernels::streams<Arch>(nullptr, y.floats(), a.length);
    const std::size_t done = decoder.fast(p, {y.floats(), a.length / block, streaming});
    const std::size_t step = block > tile ? tile : tile / block * block;
    for (std::size_t k = done; k < a.length; k += step) decode_tile(0, k, 0, k, std::min(step, a.length - k));
}

}  // namespace QK_ISA
}  // namespace qk::detail
