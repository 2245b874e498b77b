// SPDX-License-Identifier: Apache-2.0
// qk::dispatch: the run-time forms of the kernels, compiled once for each instruction set and chosen by the processor (or by QK_ARCH).
//
// Link qk::dispatch. The contract of every function is that of its namesake in qk; the results are the same bits. What a caller promises of
// sizes, axes and memory is checked in every build: a broken promise ends the process with a sentence. The choice is made on
// first use: the best of sse2, avx2 (with FMA, F16C and BMI2), avx512 (F, CD, BW, DQ, VL and BMI2), avx512_vnni (VNNI and VBMI, too, for
// products) or neon that the processor has, unless the environment variable QK_ARCH names one of them.
#pragma once

#include <cstdint>
#include <span>

#include "qk/codec/encode/encodable.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/formats/format.hpp"
#include "qk/inline.hpp"
#include "qk/memory/planes.hpp"
#include "qk/memory/values.hpp"
#include "qk/parameters.hpp"
#include "qk/product/options.hpp"
#include "qk/product/pieces.hpp"
#include "qk/product/whole_numbers.hpp"
#include "qk/semantics.hpp"
#include "qk/wrong_use.hpp"

namespace qk::dispatch {

/// Returns the instruction set in use, by its name above, or "none" where this processor has none of those that were built.
const char* architecture() noexcept;

/// Returns a sentence if QK_ARCH names something that this build or this processor lacks (the best one is used then), or if the
/// architecture is "none" (a kernel that is called then says so and ends the process); else null.
const char* problem() noexcept;

void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale,
                   const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis,
                   const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                   const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_block& scales,
                   const semantics& how = semantics::ocp) noexcept;

/// float16, bfloat16, rows with a pitch (values_in, values_out), and parameters known when running.
void fake_quantize_values(const format& f, const values_in& x, const values_out& y, const codec_parameters& p = {},
                          const semantics& how = semantics::ocp) noexcept;
template <class X, class Y>
requires qk::detail::other_memory<X, Y> QK_INLINE void fake_quantize(const format& f, X&& x, Y&& y, const codec_parameters& p = {},
                                                                     const semantics& how = semantics::ocp) noexcept {
    fake_quantize_values(f, x, y, p, how);
}
template <class X, class Y>
requires qk::detail::other_memory<X, Y> QK_INLINE void fake_quantize(const format& f, X&& x, Y&& y, const semantics& how) noexcept {
    fake_quantize_values(f, x, y, {}, how);
}

/// The gradients are those of qk/backward.hpp.
scale_gradient fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, affine scale = {},
                                      const semantics& how = semantics::ocp) noexcept;
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_channel& scales,
                            scale_gradients by = {}, const semantics& how = semantics::ocp) noexcept;
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_block& scales,
                            scale_gradients by = {}, const semantics& how = semantics::ocp) noexcept;

/// The packed bytes are those of qk/codec.hpp.
[[nodiscard]] encode_status encode(const format& f, values_in x, std::span<std::byte> packed, const codec_parameters& p = {},
                                   const semantics& how = semantics::ocp) noexcept;
void decode(const format& f, std::span<const std::byte> packed, values_out y, const codec_parameters& p = {}) noexcept;
/// The same with each plane where the caller wants it.
[[nodiscard]] encode_status encode(const format& f, values_in x, planes packed, const codec_parameters& p = {},
                                   const semantics& how = semantics::ocp) noexcept;
void decode(const format& f, const_planes packed, values_out y, const codec_parameters& p = {}) noexcept;

/// The products are those of qk/product.hpp.
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y,
             const product_options& o = {}) noexcept;
void grouped_product(const format& f, const packed_weights& w, const product_experts& e, const product_input& x, const product_output& y,
                     const product_options& o = {}) noexcept;
void dot_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
              const product_options& o = {}) noexcept;
void weighted_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
                   const weighted_options& o = {}) noexcept;
void round_vectors(const product_input& x, std::size_t columns, std::span<std::int8_t> q, std::span<float> scale,
                   const input_rounding& round = {}) noexcept;
/// The format must outlive the rounding.
[[nodiscard]] input_rounding rounded_to(const format& f) noexcept;
template <class Parallel>
QK_INLINE void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
                       const Parallel& parallel_for, std::size_t rows_of_a_piece = 64) {
    qk::detail::in_pieces(w.rows, o, parallel_for, rows_of_a_piece, [&](const product_options& piece) { product(f, w, x, y, piece); });
}

/// Other formats do not compile, and the compiler says why (wrong_use.hpp).
template <class F, class... Arguments>
requires(wrong_use::is_no_format<F>) QK_INLINE void fake_quantize(F&&, Arguments&&...) { wrong_use::of_format<F>(); }
template <class F>
requires(wrong_use::is_no_format<F>) QK_INLINE
    void product(F&&, const packed_weights&, const product_input&, const product_output&, const product_options& = {}) {
    wrong_use::of_format<F>();
}

}  // namespace qk::dispatch
