// SPDX-License-Identifier: Apache-2.0
// Kernels against the oracle, bit for bit: every format, data, rounding, semantics, length, alignment and axis. Built once for each
// instruction set (QK_TEST_ISA names it).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "evidence.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/kernels/sixteen_bits.hpp"
#include "qk/reference.hpp"
#include "quotient_ties.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"

using namespace qk;

namespace {

const std::string isa = QK_TEST_ISA;

/// A named set of choices to run with.
struct test_semantics {
    std::string name;
    semantics how;
};

std::vector<test_semantics> all_semantics() {
    std::vector<test_semantics> all;
    for (const auto& s : semantics_names) all.push_back({std::string(s.name), s.value});
    const auto add = [&](std::string name, auto change) {
        semantics how;
        change(how);
        all.push_back({std::move(name), how});
    };
    add("ceil", [](semantics& s) { s.scale_rule = scale_rule::ceil; });
    add("even", [](semantics& s) { s.scale_rule = scale_rule::even; });
    add("rceil unclamped", [](semantics& s) { s.scale_rule = scale_rule::rceil; s.clamp_mx_scale = false; });
    add("saturate", [](semantics& s) { s.overflow = overflow_rule::saturate; });
    add("ieee, nan kept", [](semantics& s) { s.overflow = overflow_rule::ieee; s.nan_without_code = nan_rule::nan; });
    add("flush inputs", [](semantics& s) { s.flush_inputs = true; });
    add("flush outputs", [](semantics& s) { s.flush_outputs = true; });
    add("flush both", [](semantics& s) { s.flush_inputs = s.flush_outputs = true; s.mx_specials = block_specials::nan_only; });
    add("zero point before", [](semantics& s) { s.zero_point_before = true; });
    add("reciprocal before", [](semantics& s) { s.integer_mode = integer_mode::reciprocal; s.zero_point_before = true; s.integer_infinity = integer_special::zero_point; });
    add("nan highest", [](semantics& s) { s.integer_nan = integer_special::highest; s.integer_infinity_per_channel = integer_special::lowest; });
    add("bfp nan only", [](semantics& s) { s.bfp_specials = block_specials::nan_only; s.bfp_zero = zero_sign::positive; s.mxint_zero = zero_sign::kept; });
    return all;
}

std::vector<test_semantics> all_roundings(const test_semantics& base) {
    std::vector<test_semantics> all;
    for (const auto& r : rounding_names) {
        all.push_back({base.name + ", " + std::string(r.name), base.how});
        all.back().how.rounding = r.value;
        all.back().how.seed = 0x123456789abcdefu;
        all.back().how.first_index = 1000;
    }
    return all;
}

affine scale_of(const format& f) {
    if (const integer* g = std::get_if<integer>(&f)) return {0.37f, (qmin(*g) + qmax(*g) + 1) / 2 + (g->bits > 3)};
    return {std::holds_alternative<nvfloat>(f) ? 0.0f : 1.0f, 0};
}

/// Mismatches of the run-time form with one scale, blocks along `axis`.
std::size_t compare(const test_format& f, const std::vector<float>& x, along_axis axis, affine scale, const test_semantics& s, const char* kind) {
    std::vector<float> expected(x.size()), actual(x.size(), 12345.0f);
    reference::fake_quantize(f.format, x, expected, axis, scale, s.how);
    fake_quantize(f.format, x, actual, axis, scale, s.how);
    const std::size_t mismatches = count_mismatches(x, expected, actual, isa + " " + f.name + " [" + s.name + "] " + kind);
    CHECK_MESSAGE(mismatches == 0, f.name, " [", s.name, "] ", kind, ": ", mismatches, " of ", x.size());
    return mismatches;
}

}  // namespace

TEST_CASE("every format, data and rounding; blocks along rows and along the middle axis") {
    for (const test_format& f : all_formats()) {
        std::size_t compared = 0, mismatches = 0;
        for (int kind = 0; kind < static_cast<int>(data::count); ++kind) {
            for (const test_semantics& s : all_roundings({"ocp", semantics::ocp})) {
                for (const along_axis axis : {along_axis{}, along_axis{3, 77, 1}, along_axis{2, 37, 21}, along_axis{2, 384, 1}}) {  // the last: whole blocks
                    const std::size_t count = axis.inner == 0 ? 1031 : axis.outer * axis.length * axis.inner;
                    const std::vector<float> x = make_inputs(data(kind), count, 5 + axis.inner);
                    mismatches += compare(f, x, axis, scale_of(f.format), s, name_of(data(kind)));
                    compared += count;
                }
            }
        }
        record_evidence(f.name, "oracle: random, ties, subnormal, special, ragged; 7 roundings", isa, compared, mismatches);
    }
}

TEST_CASE("every format under every semantics") {
    for (const test_format& f : all_formats()) {
        std::size_t compared = 0, mismatches = 0;
        for (const test_semantics& base : all_semantics()) {
            for (const test_semantics& s : all_roundings(base)) {
                for (data kind : {data::special, data::subnormal, data::sparse, data::any_bits}) {
                    for (const std::size_t count : {331u, 384u}) {  // ragged, and whole blocks
                        const std::vector<float> x = make_inputs(kind, count, 21);
                        mismatches += compare(f, x, along_axis{}, scale_of(f.format), s, name_of(kind));
                        compared += x.size();
                    }
                }
            }
        }
        record_evidence(f.name, "oracle: 20 semantics x 7 roundings", isa, compared, mismatches);
    }
}

TEST_CASE("every length from 0 to four vectors and one, unaligned, in place, nothing written outside") {
    constexpr float guard = 777;
    for (const test_format& f : all_formats()) {
        CAPTURE(f.name);
        for (std::size_t count = 0; count <= 4 * 16 + 1; ++count) {
            const std::vector<float> x = make_inputs(count % 3 == 0 ? data::special : data::ties, count, 100 + count);
            std::vector<float> expected(count);
            reference::fake_quantize(f.format, x, expected, scale_of(f.format));
            for (std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
                std::vector<float> from(count + 8, guard), to(count + 8, guard);
                std::copy(x.begin(), x.end(), from.begin() + static_cast<std::ptrdiff_t>(offset));
                fake_quantize(f.format, std::span<const float>(from).subspan(offset, count), std::span(to).subspan(offset + 1, count), scale_of(f.format));
                CHECK(count_mismatches(x, expected, std::span(to).subspan(offset + 1, count), isa + " " + f.name + " length " + std::to_string(count)) == 0);
                for (std::size_t i = 0; i < to.size(); ++i) {
                    if (i < offset + 1 || i >= offset + 1 + count) REQUIRE(to[i] == guard);
                }
                const std::span<float> place = std::span(from).subspan(offset, count);
                fake_quantize(f.format, place, place, scale_of(f.format));
                CHECK(count_mismatches(x, expected, place, isa + " " + f.name + " in place, length " + std::to_string(count)) == 0);
            }
        }
    }
}

TEST_CASE("streaming stores, at any alignment, write the same bits and nothing outside") {
    constexpr float guard = 777;
    const std::size_t before = streaming_bytes.exchange(0);
    for (const test_format& f : all_formats()) {
        for (data kind : {data::ordinary, data::sparse, data::special}) {
            for (std::size_t count : {std::size_t{5}, std::size_t{600}, std::size_t{1031}}) {
                const std::vector<float> x = make_inputs(kind, count, 61);
                std::vector<float> expected(count);
                reference::fake_quantize(f.format, x, expected, scale_of(f.format));
                for (std::size_t offset = 0; offset < 17; offset += 3) {
                    std::vector<float> to(count + 40, guard);
                    fake_quantize(f.format, x, std::span(to).subspan(offset, count), scale_of(f.format));
                    CHECK(count_mismatches(x, expected, std::span(to).subspan(offset, count), isa + " " + f.name + " streamed") == 0);
                    for (std::size_t i = 0; i < to.size(); ++i) {
                        if (i < offset || i >= offset + count) REQUIRE(to[i] == guard);
                    }
                }
            }
        }
    }
    // Along a strided axis rows are streamed when they begin on whole vectors.
    const along_axis axis{2, 37, 96};
    const std::size_t count = 2 * 37 * 96;
    std::vector<float> scales(37);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.05f + 0.01f * static_cast<float>(i);
    for (const test_format& f : all_formats()) {
        for (data kind : {data::ordinary, data::special}) {
            const std::vector<float> x = make_inputs(kind, count, 62);
            std::vector<float> expected(count), to(count + 48, guard);
            const std::size_t aligned = (64 - reinterpret_cast<std::uintptr_t>(to.data()) % 64) / sizeof(float) % 16;
            for (const std::size_t offset : {aligned + 16, aligned + 19}) {
                const std::span<float> y = std::span(to).subspan(offset, count);
                if (is_block_format(f.format)) {
                    reference::fake_quantize(f.format, x, expected, axis, scale_of(f.format));
                    fake_quantize(f.format, x, y, axis, scale_of(f.format));
                } else {
                    reference::fake_quantize(f.format, x, expected, per_channel{scales, {}, axis});
                    fake_quantize(f.format, x, y, per_channel{scales, {}, axis});
                }
                CHECK(count_mismatches(x, expected, y, isa + " " + f.name + " streamed along an axis") == 0);
                for (std::size_t i = 0; i < offset; ++i) REQUIRE(to[i] == guard);
                for (std::size_t i = offset + count; i < to.size(); ++i) REQUIRE(to[i] == guard);
                std::fill(to.begin(), to.end(), guard);
            }
        }
    }
    streaming_bytes = before;
}

TEST_CASE("every axis of small arrays, in place too") {
    const along_axis shapes[] = {{1, 1, 1}, {5, 1, 7}, {1, 5, 1}, {4, 16, 3}, {2, 33, 16}, {1, 48, 17}, {7, 8, 1}, {3, 9, 64}, {1, 2, 100}, {64, 3, 1}, {0, 8, 4}, {2, 8, 31},
                                 {2, 40, 49}, {70, 100, 1}, {300, 33, 1}, {3, 1001, 1}, {2, 17, 113}};
    for (const test_format& f : all_formats()) {
        if (!is_block_format(f.format)) continue;
        for (const along_axis axis : shapes) {
            const std::size_t count = axis.outer * axis.length * axis.inner;
            for (data kind : {data::ties, data::special}) {
                const std::vector<float> x = make_inputs(kind, count, 31);
                for (const test_semantics& s : {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark}}) {
                    compare(f, x, axis, scale_of(f.format), s, "axis");
                    std::vector<float> expected(count), place(x);
                    reference::fake_quantize(f.format, x, expected, axis, scale_of(f.format), s.how);
                    fake_quantize(f.format, place, place, axis, scale_of(f.format), s.how);
                    CHECK(count_mismatches(x, expected, place, isa + " " + f.name + " axis, in place") == 0);
                }
            }
        }
    }
}

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
                    compare(f, make_inputs(kind, 77, 18), along_axis{}, {scale, whole != nullptr ? (qmin(*whole) + qmax(*whole)) / 2 : 0}, s, "scale");
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
                                fake_quantize(f.format, x, actual, per_channel{scale, zero_point, axis}, how);
                            } else {
                                reference::fake_quantize(f.format, x, expected, per_block{scale, zero_point, axis, block}, how);
                                fake_quantize(f.format, x, actual, per_block{scale, zero_point, axis, block}, how);
                            }
                            CHECK(count_mismatches(x, expected, actual, isa + " " + f.name + " " + base.name + " block " + std::to_string(block)) == 0);
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
        for (int k = 0; k < 300; ++k) push_around(x, tie_of(family, zero, g), scale);  // long enough for a product
        mismatches += compare(f, x, along_axis{}, {scale, zero}, {"onnx", semantics::onnx}, "ties of the quotient");
        compared += x.size();
    }
    record_evidence(f.name, "oracle: quotients by ties x scales near coarse ones", isa, compared, mismatches);
}

/// Rows that are divided and rows that are multiplied, side by side; a short last block; with and without streaming.
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
        // Blocks have scales of [outer][blocks][inner]: along the last axis the rows are theirs.
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
                    fake_quantize(f.format, x, actual, per_channel{scale, zero, along}, how);
                } else {
                    reference::fake_quantize(f.format, x, expected, per_block{scale, zero, along, size}, how);
                    fake_quantize(f.format, x, actual, per_block{scale, zero, along, size}, how);
                }
                CHECK(count_mismatches(x, expected, actual, isa + " " + f.name + " rows, block " + std::to_string(block)) == 0);
            }
            streaming_bytes = before;
        }
    }
}

/// Columns under scales of their own, in rows of every kind of length, a few of them with scales that the short forms decline or divide by.
void test_columns_under_scales(const test_format& f) {
    const integer* whole = std::get_if<integer>(&f.format);
    generator g{818};
    std::size_t compared = 0, mismatches = 0;
    for (const std::size_t width : {1u, 2u, 3u, 16u, 49u, 63u, 64u, 100u, 130u, 256u, 257u, 512u, 513u, 1030u}) {
        for (const std::size_t rows : {1u, 3u, 9u, 70u}) {
            if (width * rows > 20000) continue;
            for (const bool blocks : {false, true}) {
                const along_axis axis = blocks ? along_axis{1, rows, width} : along_axis{rows, width, 1};
                const std::size_t size = blocks ? 8 : 0, scales = width * (blocks ? (rows + 7) / 8 : 1), count = width * rows;
                std::vector<float> scale(scales);
                std::vector<std::int64_t> zero;
                for (std::size_t i = 0; i < scales; ++i) {
                    const std::uint32_t kind = g.below(200);
                    scale[i] = kind < 20 ? scale_by_a_coarse_one(g, static_cast<int>(g.below(160)))
                             : kind == 20 ? 0x1p-140f
                             : kind == 21 ? 1e38f
                             : kind == 22 ? 1.0f
                                          : static_cast<float>(0.01 + g.uniform());
                    if (whole != nullptr && rows != 3) zero.push_back(any_zero_point(*whole, static_cast<int>(i), g));
                }
                std::vector<float> x = make_inputs(rows == 9 ? data::special : data::ordinary, count, 19 + width);
                for (std::size_t i = 0; i + 8 < count; i += 1 + g.below(16)) {  // by a tie of that column
                    const std::size_t s = i % width + (blocks ? i / width / 8 * width : 0);
                    const double q = whole != nullptr ? tie_of(*whole, zero.empty() ? 0 : zero[s], g) : std::ldexp(1.0 + 2.0 * g.below(16), static_cast<int>(g.below(12)) - 10);
                    x[i] = std::nextafter(static_cast<float>(q * static_cast<double>(scale[s])), g.below(2) != 0 ? 1e38f : -1e38f);
                }
                std::vector<float> expected(count), actual(count);
                for (const rounding r : {rounding::half_even, rounding::up, rounding::stochastic}) {
                    for (const auto& base : {semantics::onnx, semantics::torch}) {
                        semantics how = base;
                        how.rounding = r;
                        if (blocks) {
                            reference::fake_quantize(f.format, x, expected, per_block{scale, zero, axis, size}, how);
                            fake_quantize(f.format, x, actual, per_block{scale, zero, axis, size}, how);
                        } else {
                            reference::fake_quantize(f.format, x, expected, per_channel{scale, zero, axis}, how);
                            fake_quantize(f.format, x, actual, per_channel{scale, zero, axis}, how);
                        }
                        const std::size_t wrong = count_mismatches(x, expected, actual, isa + " " + f.name + " columns of " + std::to_string(width));
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
                // Led by an element that makes the block's scale (8 + k) / 8, of which three mantissa bits hold every one.
                const float scale = (8.0f + static_cast<float>(g.below(8))) / 8.0f * tensor, largest = static_cast<float>(max_value(nv->element)) * scale;
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

TEST_CASE("vectors of 16-bit floats widen and narrow as single ones do") {
    const auto check = [&]<class Half>(Half) {
        std::vector<Half> all(65536), narrowed;
        std::vector<float> wide(all.size()), around;
        for (std::uint32_t code = 0; code < 65536; ++code) all[code] = {static_cast<std::uint16_t>(code)};
        kernels::widen_all<native>(all.data(), all.size(), wide.data());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < all.size(); ++i) wrong += std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(widen(all[i]));
        CHECK(wrong == 0);
        // Every value, every middle between two, their neighbours, and any bits.
        generator g{819};
        for (const float v : wide) {
            const auto u = std::bit_cast<std::uint32_t>(v);
            const auto next = std::bit_cast<std::uint32_t>(widen(Half{static_cast<std::uint16_t>(narrow<Half>(v).bits + 1)})), middle = u / 2 + next / 2;
            for (const std::uint32_t bits : {u - 1, u, u + 1, middle - 1, middle, middle + 1, g.word(), g.word(), g.word() & 0xb8ffffffu}) around.push_back(std::bit_cast<float>(bits));
        }
        around.push_back(0x1p-25f);  // a tail
        narrowed.resize(around.size());
        kernels::narrow_all<native>(around.data(), around.size(), narrowed.data());
        wrong = 0;
        for (std::size_t i = 0; i < around.size(); ++i) wrong += narrowed[i].bits != narrow<Half>(around[i]).bits;
        CHECK(wrong == 0);
    };
    check(float16());
    check(bfloat16());
}

TEST_CASE("stochastic rounding with the caller's words, and cut anywhere") {
    const std::size_t count = 517;
    generator g{12};
    std::vector<std::uint32_t> words(count);
    for (std::uint32_t& w : words) w = g.word();
    for (const test_format& f : all_formats()) {
        test_semantics s{"words", semantics::ocp};
        s.how.rounding = rounding::stochastic;
        s.how.random_words = words.data();
        const std::vector<float> x = make_inputs(data::ordinary, count, 77);
        compare(f, x, along_axis{}, scale_of(f.format), s, "random words");
        compare(f, x, along_axis{11, 47, 1}, scale_of(f.format), s, "random words");
        compare(f, x, along_axis{1, 47, 11}, scale_of(f.format), s, "random words");
        s.how.random_words = nullptr;
        s.how.seed = 7;
        s.how.first_index = (std::uint64_t{1} << 32) - 100;  // the index passes 2^32 inside
        compare(f, x, along_axis{}, scale_of(f.format), s, "index past 2^32");
        compare(f, x, along_axis{1, 47, 11}, scale_of(f.format), s, "index past 2^32");
    }
}

TEST_CASE("block formats: every block exponent x every element exponent x ties") {
    for (const test_format& f : all_formats()) {
        const int size = block_size(f.format);
        if (size < 2 || size > 64) continue;
        const bool named = find_format(f.format) != nullptr;
        const auto block = static_cast<std::size_t>(size);
        generator g{static_cast<std::uint64_t>(size) + 99};
        std::size_t compared = 0, mismatches = 0;
        std::vector<float> x;
        const int step = QK_TEST_SAMPLED || !named ? 5 : 1;
        for (int top = 254; top >= 0; top -= step) {
            x.clear();
            for (int e = top; e >= 0 && e > top - 40; --e) {
                // 23 tie positions and their neighbours, each block led by an element of the largest exponent
                for (int p = 0; p < 69; ++p) {
                    if (x.size() % block == 0) x.push_back(assemble(g.below(2) != 0, static_cast<std::uint32_t>(top), g.below(4) == 0 ? 0x7fffffu >> g.below(24) : g.word()));
                    const std::uint32_t position = static_cast<std::uint32_t>(p) / 3;
                    const float t = assemble(g.below(2) != 0, static_cast<std::uint32_t>(e), (g.word() << (position + 1)) | 1u << position);
                    x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(t) + static_cast<std::uint32_t>(p % 3) - 1));
                }
            }
            for (const test_semantics& s : {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark}, test_semantics{"nvidia", semantics::nvidia}}) {
                mismatches += compare(f, x, along_axis{}, scale_of(f.format), s, "exponents x ties");
                compared += x.size();
            }
        }
        record_evidence(f.name, "oracle: block exponent x element exponent x ties", isa, compared, mismatches);
    }
}

namespace {

/// The compile-time form of one entry of the catalogue against the run-time form's oracle.
template <std::size_t I>
void compare_compile_time_form() {
    constexpr std::size_t family = catalogue[I].format.index();
    constexpr auto f = std::get<family>(catalogue[I].format);
    const affine scale = scale_of(f);
    for (int kind = 0; kind < static_cast<int>(data::count); ++kind) {
        for (const test_semantics& s : {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark}}) {
            const along_axis axis{3, 17, 7};
            const std::size_t count = 3 * 17 * 7;
            const std::vector<float> x = make_inputs(data(kind), count, 55);
            std::vector<float> expected(count), actual(count);
            const std::string what = isa + " compile-time " + std::string(catalogue[I].name) + " " + name_of(data(kind));
            if constexpr (block_size(f) == 0 || std::is_same_v<decltype(f), const nvfloat>) {
                fake_quantize<f>(x, actual, scale, s.how);
            } else {
                fake_quantize<f>(x, actual, s.how);
            }
            reference::fake_quantize(f, x, expected, scale, s.how);
            CHECK(count_mismatches(x, expected, actual, what) == 0);
            if constexpr (block_size(f) != 0) {
                fake_quantize<f>(x, actual, axis, s.how);
                reference::fake_quantize(f, x, expected, axis, s.how);
                CHECK(count_mismatches(x, expected, actual, what + " axis") == 0);
            }
        }
    }
}

template <std::size_t... I>
void compare_compile_time_forms(std::index_sequence<I...>) {
    (compare_compile_time_form<I>(), ...);
}

}  // namespace

TEST_CASE("the compile-time form gives the same bits") { compare_compile_time_forms(std::make_index_sequence<std::size(catalogue)>()); }
