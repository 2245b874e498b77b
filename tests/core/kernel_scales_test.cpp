// SPDX-License-Identifier: Apache-2.0
// Compares kernels with the oracle under scales: one, per channel, per block, extreme ones, and scales by which a quotient is nearly a tie,
// in rows and in columns. Built with kernel_test.cpp.
#include <algorithm>
#include <cmath>

#include "kernel_cases.hpp"
#include "quotient_ties.hpp"

using namespace qk;

TEST_CASE("scales: one, per channel, per block, extreme ones") {
    generator g{4711};
    for (const test_format& f : all_formats()) {
        if (is_block_format(f.format)) {
            if (!std::holds_alternative<nvfloat>(f.format)) continue;
            for (float t : {1.0f, 0.001f, 3e-5f, 1e-38f, 1e-44f, 1e30f}) {
                for (data kind : {data::ordinary, data::special, data::any_bits}) {
                    compare(f, make_inputs(kind, 333, 17), along_axis{3, 37, 3}, {.scale = t}, {"ocp", semantics::ocp}, "tensor scale");
                }
            }
            continue;
        }
        const integer* whole = std::get_if<integer>(&f.format);
        for (float scale : {1.0f, 0.5f, 0.1f, 3.7f, 0x1p-20f, 1e-38f, 0x1p-149f, 0x1p-127f, 1e38f}) {
            for (const test_semantics& s : {test_semantics{"ocp", semantics::ocp}, test_semantics{"torch", semantics::torch}}) {
                for (data kind : {data::ordinary, data::special, data::any_bits}) {
                    compare(f, make_inputs(kind, 77, 18), along_axis{}, {scale, whole != nullptr ? (qmin(*whole) + qmax(*whole)) / 2 : 0},
                            s, "scale");
                }
            }
        }
        for (const along_axis axis : {along_axis{2, 9, 5}, along_axis{3, 40, 1}, along_axis{1, 3, 70}, along_axis{4, 4, 16}}) {
            const std::size_t count = axis.outer * axis.length * axis.inner;
            for (data kind : {data::ordinary, data::special, data::any_bits}) {
                const std::vector<float> x = make_inputs(kind, count, 19);
                for (std::size_t block : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{100}}) {
                    const std::size_t scales = block == 0 ? axis.length : axis.outer * ((axis.length + block - 1) / block) * axis.inner;
                    std::vector<float> scale(scales);
                    std::vector<std::int64_t> zero_point;
                    for (float& v : scale) v = static_cast<float>(0.01 + g.uniform());
                    if (whole != nullptr && block != 3) {
                        for (std::size_t i = 0; i < scales; ++i) {
                            const std::int64_t span = std::min<std::int64_t>(qmax(*whole) - qmin(*whole), 1000);
                            zero_point.push_back(qmin(*whole) + g.below(static_cast<std::uint32_t>(span) + 1));
                        }
                    }
                    for (const auto& base : {test_semantics{"ocp", semantics::ocp}, test_semantics{"torch", semantics::torch}}) {
                        for (const rounding r : {rounding::half_even, rounding::stochastic, rounding::half_up}) {
                            semantics how = base.how;
                            how.rounding = r;
                            std::vector<float> expected(count), actual(count);
                            if (block == 0) {
                                reference::fake_quantize(f.format, x, expected, per_channel{scale, zero_point, axis}, how);
                                under_test::fake_quantize(f.format, x, actual, per_channel{scale, zero_point, axis}, how);
                            } else {
                                reference::fake_quantize(f.format, x, expected, per_block{scale, zero_point, axis, block}, how);
                                under_test::fake_quantize(f.format, x, actual, per_block{scale, zero_point, axis, block}, how);
                            }
                            CHECK(count_mismatches(x, expected, actual,
                                                   isa + " " + f.name + " " + base.name + " block " + std::to_string(block)) == 0);
                        }
                    }
                }
            }
        }
    }
}

namespace {

template <class Family>
void test_quotients_by_ties(const test_format& f, Family family) {
    generator g{815};
    std::size_t compared = 0, mismatches = 0;
    for (int trial = 0; trial < 160; ++trial) {
        const float scale = scale_by_a_coarse_one(g, trial);
        const std::int64_t zero = any_zero_point(family, trial, g);
        std::vector<float> x;
        for (int k = 0; k < 300; ++k) push_around(x, tie_of(family, zero, g), scale);  // enough for a product to replace the quotient
        mismatches += compare(f, x, along_axis{}, {scale, zero}, {"onnx", semantics::onnx}, "ties of the quotient");
        compared += x.size();
    }
    record_evidence(f.name, "oracle: quotients by ties x scales near coarse ones", isa, compared, mismatches);
}

/// Compares rows that are divided beside rows that are multiplied, with a short last block, with and without streaming stores.
template <class Family>
void test_rows_under_scales(const test_format& f, Family family) {
    const along_axis axis{2, 37, 21 * 7};
    generator g{816};
    for (const std::size_t block : {std::size_t{0}, std::size_t{3}}) {
        const bool channels = block == 0;
        const std::size_t rows = channels ? 37 : 2 * 13;
        std::vector<float> scale, x;
        std::vector<std::int64_t> zero;
        for (std::size_t r = 0; r < rows; ++r) {
            scale.push_back(r == 5 ? 1.0f : scale_by_a_coarse_one(g, static_cast<int>(r * 7 % 160)));
            zero.push_back(any_zero_point(family, static_cast<int>(r), g));
        }
        for (std::size_t o = 0; o < axis.outer; ++o) {
            for (std::size_t l = 0; l < axis.length; ++l) {
                const std::size_t s = channels ? l : o * 13 + l / block;
                for (std::size_t k = 0; k < axis.inner / 7; ++k) push_around(x, tie_of(family, zero[s], g), scale[s]);
            }
        }
        // The scales of per_block have shape [outer][blocks][inner]. With inner = 1 a block of `size` values is a block of rows.
        const along_axis along = channels ? axis : along_axis{2, axis.length * axis.inner, 1};
        const std::size_t size = block * axis.inner;
        std::vector<float> expected(x.size()), actual(x.size());
        for (const std::size_t stream_from : {SIZE_MAX, std::size_t{0}}) {
            const std::size_t before = streaming_bytes.exchange(stream_from);
            for (const rounding r : {rounding::half_even, rounding::half_up, rounding::stochastic}) {
                semantics how = semantics::onnx;
                how.rounding = r;
                if (channels) {
                    reference::fake_quantize(f.format, x, expected, per_channel{scale, zero, along}, how);
                    under_test::fake_quantize(f.format, x, actual, per_channel{scale, zero, along}, how);
                } else {
                    reference::fake_quantize(f.format, x, expected, per_block{scale, zero, along, size}, how);
                    under_test::fake_quantize(f.format, x, actual, per_block{scale, zero, along, size}, how);
                }
                CHECK(count_mismatches(x, expected, actual, isa + " " + f.name + " rows, block " + std::to_string(block)) == 0);
            }
            streaming_bytes = before;
        }
    }
}

/// Compares columns under scales of their own, in rows of many lengths. A few scales make the fast forms divide or leave the tile.
void test_columns_under_scales(const test_format& f) {
    const integer* whole = std::get_if<integer>(&f.format);
    generator g{818};
    std::size_t compared = 0, mismatches = 0;
    for (const std::size_t width : {1u, 2u, 3u, 16u, 49u, 63u, 64u, 100u, 130u, 256u, 257u, 512u, 513u, 1030u}) {
        for (const std::size_t rows : {1u, 3u, 9u, 70u}) {
            if (width * rows > 20000) continue;
            for (const bool blocks : {false, true}) {
                if (!under_test::chosen()) continue;
                const along_axis axis = blocks ? along_axis{1, rows, width} : along_axis{rows, width, 1};
                const std::size_t size = blocks ? 8 : 0, scales = width * (blocks ? (rows + 7) / 8 : 1), count = width * rows;
                std::vector<float> scale(scales);
                std::vector<std::int64_t> zero;
                for (std::size_t i = 0; i < scales; ++i) {
                    const std::uint32_t kind = g.below(200);
                    scale[i] = kind < 20    ? scale_by_a_coarse_one(g, static_cast<int>(g.below(160)))
                               : kind == 20 ? 0x1p-140f
                               : kind == 21 ? 1e38f
                               : kind == 22 ? 1.0f
                                            : static_cast<float>(0.01 + g.uniform());
                    if (whole != nullptr && rows != 3) zero.push_back(any_zero_point(*whole, static_cast<int>(i), g));
                }
                std::vector<float> x = make_inputs(rows == 9 ? data::special : data::ordinary, count, 19 + width);
                for (std::size_t i = 0; i + 8 < count; i += 1 + g.below(16)) {  // next to a tie of that column
                    const std::size_t s = i % width + (blocks ? i / width / 8 * width : 0);
                    const double q = whole != nullptr ? tie_of(*whole, zero.empty() ? 0 : zero[s], g)
                                                      : std::ldexp(1.0 + 2.0 * g.below(16), static_cast<int>(g.below(12)) - 10);
                    x[i] = std::nextafter(static_cast<float>(q * static_cast<double>(scale[s])), g.below(2) != 0 ? 1e38f : -1e38f);
                }
                for (std::size_t i = 0; i < count; ++i) {  // 0 times an infinite reciprocal
                    if (scale[i % width + (blocks ? i / width / 8 * width : 0)] < 0x1p-126f && g.below(2) != 0) x[i] = 0;
                }
                std::vector<float> expected(count), actual(count);
                for (const rounding r : {rounding::half_even, rounding::up, rounding::stochastic}) {
                    for (const auto& base : {semantics::onnx, semantics::torch}) {
                        semantics how = base;
                        how.rounding = r;
                        if (blocks) {
                            reference::fake_quantize(f.format, x, expected, per_block{scale, zero, axis, size}, how);
                            under_test::fake_quantize(f.format, x, actual, per_block{scale, zero, axis, size}, how);
                        } else {
                            reference::fake_quantize(f.format, x, expected, per_channel{scale, zero, axis}, how);
                            under_test::fake_quantize(f.format, x, actual, per_channel{scale, zero, axis}, how);
                        }
                        const std::size_t wrong =
                            count_mismatches(x, expected, actual, isa + " " + f.name + " columns of " + std::to_string(width));
                        CHECK_MESSAGE(wrong == 0, f.name, ": ", rows, " x ", width, blocks ? " in blocks" : "", ": ", wrong);
                        mismatches += wrong;
                        compared += count;
                    }
                }
            }
        }
    }
    record_evidence(f.name, "oracle: columns under scales of their own", isa, compared, mismatches);
}

}  // namespace

TEST_CASE("scales whose significand lies by a coarse multiple, and quotients by a tie") {
    for_each_tied_format([](const test_format& f, auto family) { test_quotients_by_ties(f, family); });
}

TEST_CASE("blocks whose scale lies by a coarse multiple, and quotients by a tie") {
    for (const test_format& f : all_formats()) {
        const auto* nv = std::get_if<nvfloat>(&f.format);
        if (nv == nullptr || !is_tied(nv->element)) continue;
        generator g{817};
        std::size_t compared = 0, mismatches = 0;
        const auto size = static_cast<std::size_t>(nv->block_size);
        constexpr std::size_t blocks = 130;
        for (int trial = 0; trial < 160; ++trial) {
            // Of all significands 0xffffff is the only one with which a product takes a tie of fp4 for its neighbour.
            const float tensor = trial == 0 ? 0x1.fffffep-5f : scale_by_a_coarse_one(g, trial);
            std::vector<float> rows, columns(blocks * size), around;
            for (std::size_t b = 0; b < blocks; ++b) {
                // The first element makes the block's scale (8 + k) / 8, which three mantissa bits hold for every k.
                const float scale = (8.0f + static_cast<float>(g.below(8))) / 8.0f * tensor,
                            largest = static_cast<float>(max_value(nv->element)) * scale;
                around.clear();
                for (std::size_t i = 0; i < size; ++i) {
                    if (around.empty()) push_around(around, tie_of(nv->element, 0, g), scale);
                    const float v = i == 0 ? largest : std::min(std::max(around.back(), -largest), largest);
                    around.pop_back();
                    rows.push_back(v);
                    columns[i * blocks + b] = v;
                }
            }
            mismatches += compare(f, rows, along_axis{}, {tensor, 0}, {"ocp", semantics::ocp}, "ties of the quotient");
            mismatches += compare(f, columns, along_axis{1, size, blocks}, {tensor, 0}, {"ocp", semantics::ocp}, "ties of the quotient");
            compared += 2 * rows.size();
        }
        record_evidence(f.name, "oracle: quotients by ties x scales near coarse ones", isa, compared, mismatches);
    }
}

TEST_CASE("rows under scales of their own") {
    for_each_tied_format([](const test_format& f, auto family) { test_rows_under_scales(f, family); });
}

TEST_CASE("columns under scales of their own") {
    for (const test_format& f : all_formats()) {
        if (!is_block_format(f.format)) test_columns_under_scales(f);
    }
}

TEST_CASE("subnormals flushed on either side, zero points added before, in every rounding, under scales and in blocks down to the least") {
    std::vector<test_semantics> all;
    for (const auto& [name, how] :
         {std::pair{"flush inputs", semantics{.flush_inputs = true}},
          {"flush outputs", semantics{.flush_outputs = true}},
          {"flush both, zero point before", semantics{.zero_point_before = true, .flush_inputs = true, .flush_outputs = true}}})
        for (const test_semantics& s : all_roundings({name, how})) all.push_back(s);
    for (const test_format& f : all_formats()) {
        const integer* whole = std::get_if<integer>(&f.format);
        const bool scaled = !is_block_format(f.format);
        for (const float size : {1.0f, 2.0f, 0.05f, 3e-20f, 1e-30f, 1e-36f, 3e-38f}) {
            std::vector<float> x = make_inputs(data::ordinary, 512, 29);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] * size * (i / 32 % 3 == 0 ? 1.0f : i / 32 % 3 == 1 ? 0x1p-20f : 20.0f);
            const affine by{scaled ? size : 0.0f, whole != nullptr ? (qmin(*whole) + qmax(*whole)) / 2 : 0};
            for (const test_semantics& s : all)
                for (const along_axis axis : {along_axis{1, 512, 1}, along_axis{1, 32, 16}})
                    if (axis.inner == 1 || !scaled) compare(f, x, axis, by, s, "small");
        }
    }
}

TEST_CASE("a tensor so small that NVFP4's own scale of it is 0 is 0 throughout") {
    const qk::nvfloat format = qk::nvfp4;
    std::size_t compared = 0, mismatches = 0;
    for (std::uint32_t steps = 0; steps <= 3000; steps += steps < 40 ? 1 : 97) {  // the largest value, in units of 2^-149
        std::vector<float> x(3 * 64);
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] =
                std::bit_cast<float>((i % 3 == 0 ? steps : static_cast<std::uint32_t>(i) % (steps + 1)) | (i % 5 == 0 ? 0x80000000u : 0u));
        if (steps % 2 != 0) x[100] = -std::numeric_limits<float>::infinity();
        for (const along_axis axis : {along_axis{}, along_axis{1, 64, 3}, along_axis{3, 50, 1}}) {
            const std::span<const float> part =
                std::span<const float>(x).first(axis.inner == 0 ? x.size() : axis.outer * axis.length * axis.inner);
            mismatches += compare({"nvfp4", format}, {part.begin(), part.end()}, axis, {0, 0}, {"ocp", semantics::ocp}, "tiny tensors");
            compared += part.size();
        }
    }
    record_evidence("nvfp4", "oracle: tensors of the smallest values", isa, compared, mismatches);
}
