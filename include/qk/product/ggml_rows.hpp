// SPDX-License-Identifier: Apache-2.0
// Rows of ggml's blocks as a product reads them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "qk/codec/decode/ggml_blocks.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)

/// Adds the products of R rows of blocks from row `first` of a piece on with M vectors.
template <class Arch, ggml_type Type, std::size_t R, std::size_t M>
QK_INLINE void add_ggml_groups(const piece_of_rows& p, std::size_t first) noexcept {
    using how = ggml_groups<Type>;
    constexpr std::size_t w = kernels::lanes<Arch>, V = vectors_of_sums<Arch>;
    kernels::vf<Arch> s[R][M][V];
    const std::byte* in[R];
    typename how::scales scales[R];
    const auto each_sum = [&](const auto& call) QK_INLINE_CALL {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                kernels::unrolled<V>(
                    [&](auto v) QK_INLINE_CALL { call(p.sum + (first + r) * p.sum_stride + m * partial_sums + v * w, s[r][m][v]); });
            });
        });
    };
    each_sum([](const float* at, kernels::vf<Arch>& sum) QK_INLINE_CALL { sum = kernels::load<Arch>(at); });
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { in[r] = p.piece[first + r].codes; });
    const float* x = p.x;
    for (std::size_t b = 0, blocks = p.groups / how::groups; b < blocks; ++b) {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            for (std::size_t i = 0; i < how::bytes; i += 64) fetch(in[r] + p.next + i);
            how::read(in[r], scales[r]);
        });
        for (std::size_t step = 0; step < how::groups / how::at_once; ++step) {
            kernels::unrolled<how::at_once>([&](auto i) QK_INLINE_CALL {
                kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                    how::template weights<Arch, i>(in[r], step, scales[r], [&](std::size_t k, kernels::vf<Arch> value) QK_INLINE_CALL {
                        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                            kernels::vf<Arch>& sum = s[r][m][k / w % V];
                            sum = fused<Arch>(kernels::load<Arch>(x + m * p.x_stride + k), value, sum);
                        });
                    });
                });
                x += 32;
            });
        }
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { in[r] += how::bytes; });
    }
    each_sum([](float* at, const kernels::vf<Arch>& sum) QK_INLINE_CALL { kernels::store<Arch>(at, sum); });
}
template <class Arch, ggml_type Type>
QK_APART void add_ggml_groups(const piece_of_rows& given) noexcept {
    with_vectors<true>(given, [&](auto m, const piece_of_rows& p, std::size_t) QK_INLINE_CALL {
        constexpr std::size_t R = m == 1 ? rows_in_registers<Arch> : 1;
        for (std::size_t r = 0; r < p.rows; r += R) add_ggml_groups<Arch, Type, R, m>(p, r);
    });
}

#endif

/// A block counts as one run, whose factors lie in it. There are no codes of a width of their own.
template <class Arch, compile_time_facts Known>
class rows_of<Arch, Known, ggml_blocks> final : public weight_rows<Arch> {
    using base = weight_rows<Arch>;

  public:
    rows_of(const ggml_blocks& f, const packed_weights& m) noexcept
        : base(m, 0, static_cast<std::size_t>(block_size(f)), bytes_of_block(f)), type_(f.type) {}

    void decode(std::size_t row, std::size_t k, std::size_t n, float* to) const noexcept override {
        decode_ggml_row<Arch>(type_, this->codes(row, 0), k, n, to);
    }
    void elements(const std::uint32_t*, float* to, std::size_t n) const noexcept override {
        std::fill(to, to + n, std::numeric_limits<float>::quiet_NaN());
    }
    const float* factors(std::size_t, std::size_t, std::size_t n, float* own, float*, const float*& zero) const noexcept override {
        zero = nullptr;
        std::fill(own, own + n, 1.0f);
        return own;
    }
    bool factors_of_bytes(float*) const noexcept override { return false; }
    const std::byte* scale_bytes(std::size_t, std::size_t, std::size_t) const noexcept override { return nullptr; }
    typename base::integer_bytes bytes() const noexcept override { return base::integer_bytes::none; }

    bool in_registers() const noexcept override {
#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)
        if constexpr (kernels::lanes<Arch> >= 8) return with_ggml_groups(type_, []<ggml_type>() {});
#endif
        return false;
    }
    void add_codes([[maybe_unused]] const piece_of_rows& p) const noexcept override {
#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)
        if constexpr (kernels::lanes<Arch> >= 8) with_ggml_groups(type_, [&]<ggml_type Type>() { add_ggml_groups<Arch, Type>(p); });
#endif
    }

    bool decodes_codes() const noexcept override { return false; }  // decode() takes whole blocks
    void decode_codes(const piece_of_rows&, float*, std::size_t) const noexcept override {}

  private:
    const ggml_type type_;
};

}  // namespace QK_ISA
}  // namespace qk::detail
