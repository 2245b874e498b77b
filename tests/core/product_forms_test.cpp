// SPDX-License-Identifier: Apache-2.0
// Products of formats that are known when compiling, against the oracle, as a consumer compiles them; and rows on several threads.
#include <doctest/doctest.h>

#include <thread>

#include "compare_bits.hpp"
#include "product_oracle.hpp"
#include "qk/product.hpp"

namespace {

template <auto Format>
void check_form(const char* name) {
    for (const std::size_t columns : {33u, 64u, 250u, 544u}) {
        const std::size_t rows = 21, vectors = 3;
        const qk::codec_parameters p = qk::affine{0.1f};
        const made_weights w = make_weights(Format, rows, columns, weights_kind::ordinary, columns, 0.1f, columns % 3);
        const std::vector<float> weights = exact_weights(Format, w.planes(), rows, columns, p),
                                 x = make_inputs(data::ordinary, vectors * columns, 5);
        std::vector<float> expected(vectors * rows), y(vectors * rows), on_threads(vectors * rows), alone(rows);
        for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] = exact_sum(std::span(weights).subspan(i % rows * columns, columns),
                                    [&](std::size_t k) { return x[i / rows * columns + k]; });
        const qk::packed_weights m{rows, columns, w.planes(), p};
        qk::product<Format>(m, {x, vectors}, {y});
        CHECK(count_mismatches(expected, expected, y, name) == 0);
        qk::product<Format>(m, {std::span(x).first(columns)}, {alone});
        CHECK(count_mismatches(alone, std::span(expected).first(rows), alone, name) == 0);
        const auto parallel_for = [](std::size_t pieces, const auto& body) {
            std::vector<std::thread> threads;
            for (std::size_t i = 0; i < pieces; ++i) threads.emplace_back([&body, i] { body(i); });
            for (std::thread& t : threads) t.join();
        };
        qk::product<Format>(m, {x, vectors}, {on_threads}, {}, parallel_for, 6);
        CHECK(count_mismatches(expected, expected, on_threads, name) == 0);
        for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] = exact_chain(
                columns, 0, [&](std::size_t k) { return x[i / rows * columns + k]; },
                [&](std::size_t k) { return weights[i % rows * columns + k]; });
        qk::product<Format>(m, {x, vectors}, {y}, {.sums = qk::product_sums::chains});
        CHECK(count_mismatches(expected, expected, y, name) == 0);
    }
}

}  // namespace

TEST_CASE("products of formats known when compiling") {
    check_form<qk::mxfp4>("mxfp4");
    check_form<qk::nvfp4>("nvfp4");
    check_form<qk::int8>("int8");
    check_form<qk::fp8_e4m3fn>("fp8_e4m3fn");
    check_form<qk::mx6>("mx6");
}
