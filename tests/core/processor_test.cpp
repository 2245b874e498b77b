// SPDX-License-Identifier: Apache-2.0
// Compares kernels, codes, dot products and products of matrices with the oracle in some seconds, also under an emulator, without a test
// framework, exceptions or a file: for every processor that a compiler knows (tests/processors.sh). The exit status is 0 if every bit
// agrees.
#include <cstdio>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "dot_batches.hpp"
#include "product_oracle.hpp"
#include "qk/codec.hpp"
#include "qk/product.hpp"
#include "qk/reference.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"

namespace {

std::size_t compared = 0, mismatches = 0;

/// Compares the kernel with the oracle, and what is encoded and decoded with the kernel.
void check(const test_format& t, const std::vector<float>& x, qk::along_axis axis, const qk::semantics& how, const std::string& what) {
    std::vector<float> expected(x.size()), actual(x.size(), 777.0f);
    const qk::affine scale{std::holds_alternative<qk::nvfloat>(t.format) ? 0.0f : qk::is_block_format(t.format) ? 1.0f : 0.37f, 0};
    qk::reference::fake_quantize(t.format, x, expected, axis, scale, how);
    qk::fake_quantize(t.format, x, actual, axis, scale, how);
    mismatches += count_mismatches(x, expected, actual, what);
    compared += x.size();
    if (!qk::encodable(t.format, how)) return;
    const qk::along_axis a = qk::resolved(axis, x.size());
    std::vector<std::byte> packed(qk::packed_bytes(t.format, a));
    qk::codec_parameters p(axis);
    if (!qk::is_block_format(t.format)) p = scale;
    const bool done = qk::encode(t.format, x, packed, p, how) == qk::encode_status::done;
    if (done) qk::decode(t.format, packed, actual, p);
    mismatches += done ? count_mismatches(x, expected, actual, what + ", packed") : 1;
    compared += x.size();
}

/// Compares y = W x with the oracle's sums; returns how many differ.
std::size_t compare_products(const test_format& t, std::size_t rows, std::size_t columns, data kind) {
    const made_weights w = make_weights(t.format, rows, columns, weights_kind::any_codes, rows + columns, 0.03f, columns % 4);
    const qk::codec_parameters p = qk::affine{qk::is_block_format(t.format) ? 0.03f : 0.37f};
    const std::vector<float> numbers = exact_weights(t.format, w.planes(), rows, columns, p), x = make_inputs(kind, columns, 9);
    std::vector<float> expected(rows), y(rows, 777.0f);
    for (std::size_t r = 0; r < rows; ++r)
        expected[r] = exact_sum(std::span(numbers).subspan(r * columns, columns), [&](std::size_t k) { return x[k]; });
    qk::product(t.format, {rows, columns, w.planes(), p}, {x}, {y});
    return count_mismatches(expected, expected, y, t.name + " " + name_of(kind) + ", product");
}

}  // namespace

int main() {
    for (const test_format& t : all_formats()) {
        for (const data kind : {data::ordinary, data::ties, data::subnormal, data::special, data::sparse, data::tiny_runs}) {
            for (const auto& r : qk::rounding_names) {
                qk::semantics how;
                how.rounding = r.value;
                how.seed = 77;
                const std::string what = t.name + " " + name_of(kind) + " " + std::string(r.name);
                check(t, make_inputs(kind, 331, 5), {}, how, what);
                if (r.value == qk::rounding::half_even) {
                    check(t, make_inputs(kind, 2048 + 16, 6), {}, how, what + ", whole blocks");
                    check(t, make_inputs(kind, 2 * 37 * 21, 7), {2, 37, 21}, how, what + ", columns");
                }
            }
        }
    }
    std::printf("kernels and codes: %zu values compared, %zu mismatches\n", compared, mismatches);
    std::size_t dots = 0, wrong = 0;
    for (const dot_kind& kind : dot_kinds()) {
        wrong += compare_dots(kind, 100, 17);
        dots += 100;
    }
    std::printf("dot products: %zu compared, %zu mismatches\n", dots, wrong);
    std::size_t sums = 0, differ = 0;
    for (const test_format& t : all_formats()) {
        for (const std::size_t columns : {37u, 256u}) {
            for (const data kind : {data::ordinary, data::special}) differ += compare_products(t, 5, columns, kind), sums += 5;
        }
    }
    std::printf("products: %zu sums compared, %zu mismatches\n", sums, differ);
    return compared != 0 && mismatches == 0 && dots != 0 && wrong == 0 && sums != 0 && differ == 0 ? 0 : 1;
}
