// SPDX-License-Identifier: Apache-2.0
// Implements MatMulInteger and QLinearMatMul: int8/uint8 products with zero points per tensor, row or column. The sums are exact.
#pragma once

#include "graph/ops/broadcast.hpp"
#include "graph/ops/integer_product.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// The shapes of a matrix product under numpy's rules for vectors and stacks of matrices.
struct matmul_shapes {
    dims batch;  ///< broadcast shape of both stacks
    std::int64_t m = 1, n = 1, k = 1;
    dims a_batch, b_batch;
    dims output;  ///< without the axes that a vector lacks

    matmul_shapes(const op_context& call, const dims& a, const dims& b) {
        if (a.empty() || b.empty()) call.fail("a matrix product needs operands of rank 1 or more");
        const bool a_vector = a.size() == 1, b_vector = b.size() == 1;
        m = a_vector ? 1 : a[a.size() - 2];
        k = a.back();
        n = b_vector ? 1 : b.back();
        const std::int64_t kb = b_vector ? b[0] : b[b.size() - 2];
        if (k != kb) call.fail("inner dimensions differ: " + to_string(a) + " times " + to_string(b));
        if (!a_vector) a_batch.assign(a.begin(), a.end() - 2);
        if (!b_vector) b_batch.assign(b.begin(), b.end() - 2);
        const std::size_t rank = std::max(a_batch.size(), b_batch.size());
        for (dims* d : {&a_batch, &b_batch}) d->insert(d->begin(), rank - d->size(), 1);
        for (std::size_t i = 0; i < rank; ++i) {
            if (a_batch[i] != b_batch[i] && a_batch[i] != 1 && b_batch[i] != 1)
                call.fail("stacks do not broadcast: " + to_string(a) + " times " + to_string(b));
            batch.push_back(a_batch[i] == 1 ? b_batch[i] : a_batch[i]);
        }
        output = batch;
        if (!a_vector) output.push_back(m);
        if (!b_vector) output.push_back(n);
    }

    /// Calls f(matrix of a, matrix of b, matrix of the output) with the three indices of every product of the stack.
    template <class F>
    void each(F&& f) const {
        const std::size_t all = element_count(batch);
        for (std::size_t i = 0; i < all; ++i) {
            std::size_t rest = i, ia = 0, ib = 0, step_a = 1, step_b = 1;
            for (std::size_t d = batch.size(); d-- > 0;) {
                const std::size_t at = rest % static_cast<std::size_t>(batch[d]);
                rest /= static_cast<std::size_t>(batch[d]);
                if (a_batch[d] != 1) ia += at * step_a;
                if (b_batch[d] != 1) ib += at * step_b;
                step_a *= static_cast<std::size_t>(a_batch[d]);
                step_b *= static_cast<std::size_t>(b_batch[d]);
            }
            f(ia, ib, i);
        }
    }
};

namespace detail {

/// Returns the value for one line (row or column) of one matrix. `values` holds one value, one for each line, or one for each line of each
/// matrix; if it is empty, the result is 0.
inline float pick(std::span<const float> values, std::size_t matrix, std::size_t line, std::size_t lines) {
    if (values.empty()) return 0;
    if (values.size() == 1) return values[0];
    return values[values.size() == lines ? line : (matrix * lines + line) % values.size()];
}

inline void check_lines(const op_context& call, const tensor& values, std::int64_t lines, const char* what) {
    if (values.empty() || values.size() <= 1) return;
    if (lines == 0 || values.size() % static_cast<std::size_t>(lines) != 0)
        call.fail(std::string(what) + " of shape " + to_string(values.shape()) + " does not fit");
}

}  // namespace detail

/// Computes int32 sums of (a - a_zero) * (b - b_zero). A zero point is one value, or one for each row of a and each column of b.
inline tensor integer_matmul(op_context& call, const tensor& a, const tensor& a_zero, const tensor& b, const tensor& b_zero,
                             const matmul_shapes& s) {
    check_codes(call, a);
    check_codes(call, b);
    detail::check_lines(call, a_zero, s.m, "the zero point of A");
    detail::check_lines(call, b_zero, s.n, "the zero point of B");
    const auto m = static_cast<std::size_t>(s.m), n = static_cast<std::size_t>(s.n), k = static_cast<std::size_t>(s.k);
    const std::span<const float> za = a_zero.empty() ? std::span<const float>{} : a_zero.as<float>();
    const std::span<const float> zb = b_zero.empty() ? std::span<const float>{} : b_zero.as<float>();
    tensor left = call.scratch(data_type::float32, {s.m, s.k});
    tensor right = call.scratch(data_type::float32, {s.k, s.n});
    tensor piece = call.scratch(data_type::float32, {s.m, s.n});
    tensor sums = call.scratch(data_type::int32, s.output);
    const auto all = sums.as<std::int32_t>();
    std::fill(all.begin(), all.end(), 0);
    std::size_t last_b = static_cast<std::size_t>(-1);
    s.each([&](std::size_t ia, std::size_t ib, std::size_t i) {
        for (std::size_t r = 0; r < m; ++r) center(a, (ia * m + r) * k, left.as<float>().subspan(r * k, k), detail::pick(za, ia, r, m));
        if (ib != last_b) {
            center(b, ib * k * n, right.as<float>(), zb.size() == 1 ? zb[0] : 0);
            if (zb.size() > 1) {
                float* p = right.as<float>().data();
                for (std::size_t r = 0; r < k; ++r)
                    for (std::size_t c = 0; c < n; ++c) p[r * n + c] -= detail::pick(zb, ib, c, n);
            }
            last_b = ib;
        }
        multiply_integers(left.as<float>().data(), right.as<float>().data(), all.data() + i * m * n, s.m, s.n, s.k,
                          piece.as<float>().data());
    });
    return sums;
}

inline void run_matmul_integer(op_context& call) {
    const matmul_shapes s(call, call.input(0).shape(), call.input(1).shape());
    const tensor &a = call.input(0), &b = call.input(1);
    call.set_output(0, integer_matmul(call, a, zero_point_of<float>(call, 2, a.type()), b, zero_point_of<float>(call, 3, b.type()), s));
}

/// Computes y = saturate(round(sum * (a_scale * b_scale / y_scale)) + y_zero_point). Scales are per tensor, row of a or column of b.
inline void run_qlinear_matmul(op_context& call) {
    const tensor& a = call.input(0);
    const tensor& b = call.input(3);
    const matmul_shapes s(call, a.shape(), b.shape());
    const tensor sums = integer_matmul(call, a, zero_point_of<float>(call, 2, a.type()), b, zero_point_of<float>(call, 5, b.type()), s);
    const tensor a_scale = input_as<float>(call, 1), b_scale = input_as<float>(call, 4), y_scale = input_as<float>(call, 6);
    detail::check_lines(call, a_scale, s.m, "the scale of A");
    detail::check_lines(call, b_scale, s.n, "the scale of B");
    if (y_scale.size() != 1) call.fail("y_scale must be one value");
    const auto zero = detail::to_int64(optional_scalar(call, 7));
    const data_type type = call.has_input(7) ? call.input(7).type() : a.type();
    tensor& y = call.output(0, type, s.output);
    const auto m = static_cast<std::size_t>(s.m), n = static_cast<std::size_t>(s.n);
    with_byte_type(call, type, [&]<class T>(T) {
        const std::int32_t* from = sums.as<std::int32_t>().data();
        T* to = y.as<T>().data();
        s.each([&](std::size_t ia, std::size_t ib, std::size_t i) {
            for (std::size_t r = 0; r < m; ++r) {
                const float row = detail::pick(a_scale.as<float>(), ia, r, m);
                const std::size_t at = (i * m + r) * n;
                if (b_scale.size() == 1) {
                    requantize(from + at, n, row * b_scale.as<float>()[0] / y_scale.as<float>()[0], zero, to + at);
                    continue;
                }
                for (std::size_t c = 0; c < n; ++c) {
                    requantize(from + at + c, 1, row * detail::pick(b_scale.as<float>(), ib, c, n) / y_scale.as<float>()[0], zero,
                               to + at + c);
                }
            }
        });
    });
}

// clang-format off
inline constexpr op_entry matmul_integer_ops[] = {
    {"", "MatMulInteger", 10, run_matmul_integer, nullptr, {follow_matmul_integer}, {.traits = exact | on_codes, .types = gives_int32}},
    {"", "QLinearMatMul", 10, run_qlinear_matmul, nullptr, {follow_qlinear_matmul}, {.traits = makes_codes | on_codes, .types = like_zero_point<7>}},
};
// clang-format on

}  // namespace qk::graph::ops
