// SPDX-License-Identifier: Apache-2.0
// Tests what a caller may keep otherwise than in plain float arrays: numbers in 16 bits or in rows with a pitch, scales in 16 bits, zero
// points in 8 or one for all, blocks in two dimensions. Each gives the oracle's bits for the same numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "qk/reference.hpp"
#include "quotient_ties.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

namespace {

template <class Half>
std::vector<Half> narrowed(const std::vector<float>& x) {
    std::vector<Half> y;
    for (const float v : x) y.push_back(qk::narrow<Half>(v));
    return y;
}
template <class Half>
std::vector<float> widened(const std::vector<Half>& x) {
    std::vector<float> y;
    for (const Half v : x) y.push_back(qk::widen(v));
    return y;
}

/// One or two formats of each family, and odd blocks.
const std::vector<test_format> formats =
    formats_named({"int8", "uint4", "int16", "fp8_e4m3fn", "fp4_e2m1", "e8m0", "fp32", "nf4", "bfp16", "mx6", "mxfp4", "mxint8", "nvfp4",
                   "amdfp4", "binary6p2ue", "mxfp8_e5m2", "bfp:block=7,exponent=5,mantissa=3", "bfp:block=1000,mantissa=4"});
/// Shapes whose blocks lie in a row, in short rows, in long ones and along a strided axis.
const std::vector<qk::along_axis> shapes{{}, {37, 50, 1}, {2, 4200, 1}, {2, 43, 11}, {1, 3, 700}};
std::size_t size_of(const qk::along_axis& a) { return a.inner == 0 ? 4300 : a.outer * a.length * a.inner; }

template <class Half>
void check_halves(const char* type, const qk::semantics& how) {
    for (const qk::along_axis& axis : shapes) {
        const std::vector<Half> x = narrowed<Half>(make_inputs(data::special, size_of(axis), 3));
        const std::vector<float> wide = widened(x);
        std::vector<float> expected(x.size()), floats(x.size());
        std::vector<Half> y(x.size());
        for (const test_format& f : formats) {
            const std::string what = under_test::isa + " " + type + " " + f.name + " length " + std::to_string(axis.length);
            qk::reference::fake_quantize(f.format, wide, expected, axis, how);
            under_test::fake_quantize(f.format, x, floats, axis, how);
            CHECK(count_mismatches(wide, expected, floats, what + " to float") == 0);
            under_test::fake_quantize(f.format, x, y, axis, how);
            const std::vector<float> nearest = widened(narrowed<Half>(expected));
            CHECK(count_mismatches(wide, nearest, widened(y), what) == 0);
            y = x;
            under_test::fake_quantize(f.format, y, y, axis, how);
            CHECK(count_mismatches(wide, nearest, widened(y), what + " in place") == 0);
        }
    }
}

}  // namespace

TEST_CASE("float16 and bfloat16 memory") {
    check_halves<qk::bfloat16>("bf16", qk::semantics::ocp);
    check_halves<qk::float16>("fp16", qk::semantics::quark);
}

TEST_CASE("16-bit memory: random bits belong to places, and scale weights to positions") {
    qk::semantics how{.rounding = qk::rounding::stochastic, .seed = 9, .first_index = 77};
    check_halves<qk::bfloat16>("stochastic bf16", how);
    std::vector<std::uint32_t> words(60000);
    generator g{4};
    for (std::uint32_t& w : words) w = g.word();
    how.random_words = words;
    check_halves<qk::float16>("fp16 with words", how);
    std::vector<float> weights(5000);
    for (float& w : weights) w = static_cast<float>(g.uniform());
    const qk::semantics searched{.scale_rule = qk::scale_rule::search, .scale_weights = weights.data()};
    for (const char* name : {"mxfp4", "nvfp4"}) {
        for (const qk::along_axis& axis : shapes) {
            const qk::format f = *qk::parse_format(name);
            const std::vector<qk::bfloat16> x = narrowed<qk::bfloat16>(make_inputs(data::ordinary, size_of(axis), 3));
            std::vector<qk::bfloat16> y(x.size());
            std::vector<float> expected(x.size());
            qk::reference::fake_quantize(f, widened(x), expected, axis, searched);
            under_test::fake_quantize(f, x, y, axis, searched);
            CHECK(count_mismatches(widened(x), widened(narrowed<qk::bfloat16>(expected)), widened(y), std::string(name) + " weights") == 0);
        }
    }
}

TEST_CASE("rows with a pitch are read and written, and what lies between them stays") {
    const qk::pitched_rows rows{.rows = 9, .columns = 61, .pitch = 70};
    const std::vector<float> x = make_inputs(data::ordinary, rows.reach(), 8);
    std::vector<float> packed_x;
    for (std::size_t r = 0; r < rows.rows; ++r)
        packed_x.insert(packed_x.end(), x.begin() + static_cast<long>(r * rows.pitch),
                        x.begin() + static_cast<long>(r * rows.pitch + rows.columns));
    const std::size_t n = packed_x.size();
    for (const test_format& f : formats) {
        for (const qk::along_axis axis : {qk::along_axis{9, 61, 1}, qk::along_axis{1, 9, 61}}) {
            std::vector<float> expected(n), y(rows.reach(), 7.5f);
            qk::reference::fake_quantize(f.format, packed_x, expected, axis);
            const auto check = [&](const std::string& what) {
                std::vector<float> got;
                bool kept = true;
                for (std::size_t i = 0; i < y.size(); ++i) {
                    if (i % rows.pitch < rows.columns) got.push_back(y[i]);
                    else kept = kept && y[i] == 7.5f;
                }
                CHECK(kept);
                CHECK(count_mismatches(packed_x, expected, got, under_test::isa + " " + f.name + what) == 0);
            };
            under_test::fake_quantize(f.format, qk::values_in(x, rows), qk::values_out(y, rows), axis);
            check(" pitch");
            if (!qk::encodable(f.format, qk::semantics::ocp)) continue;
            std::vector<std::byte> packed(qk::packed_bytes(f.format, axis)), of_plain(packed.size());
            REQUIRE(under_test::encode(f.format, qk::values_in(x, rows), packed, axis) == qk::encode_status::done);
            REQUIRE(under_test::encode(f.format, packed_x, of_plain, axis) == qk::encode_status::done);
            CHECK(packed == of_plain);
            std::fill(y.begin(), y.end(), 7.5f);
            under_test::decode(f.format, packed, qk::values_out(y, rows), axis);
            check(" pitch, decoded");
        }
    }
}

namespace {

/// Checks fake_quantize, encode and decode under scales as they are stored.
void check_stored(const test_format& f, const std::vector<float>& x, const qk::per_block& stored, const std::string& what) {
    std::vector<float> expected(x.size()), y(x.size());
    qk::reference::fake_quantize(f.format, x, expected, stored);
    under_test::fake_quantize(f.format, x, y, stored);
    CHECK(count_mismatches(x, expected, y, under_test::isa + " " + f.name + what) == 0);
    std::vector<std::byte> packed(qk::packed_bytes(f.format, stored.axis));
    REQUIRE(under_test::encode(f.format, x, packed, stored) == qk::encode_status::done);
    under_test::decode(f.format, packed, y, stored);
    CHECK(count_mismatches(x, expected, y, under_test::isa + " packed " + f.name + what) == 0);
    const std::vector<qk::bfloat16> half = narrowed<qk::bfloat16>(x);
    std::vector<qk::bfloat16> half_y(x.size());
    qk::reference::fake_quantize(f.format, widened(half), expected, stored);
    under_test::fake_quantize(f.format, half, half_y, stored);
    CHECK(count_mismatches(x, widened(narrowed<qk::bfloat16>(expected)), widened(half_y), under_test::isa + " bf16 " + f.name + what) == 0);
}

}  // namespace

TEST_CASE("scales in 16 bits, zero points in 8 or one for all, blocks in two dimensions") {
    struct shape {
        qk::along_axis axis;
        std::size_t block, rows;
    };
    generator g{6};
    for (const shape& s : {shape{{10, 96, 1}, 32, 1}, shape{{9, 100, 1}, 16, 4}, shape{{300, 260, 1}, 128, 128}, shape{{3, 40, 17}, 16, 2},
                           shape{{1, 20, 300}, 7, 1}, shape{{5, 9000, 1}, 6000, 2}, shape{{40, 40, 1}, 1, 1}}) {
        const std::size_t n = s.axis.outer * s.axis.length * s.axis.inner,
                          entries = (s.axis.outer + s.rows - 1) / s.rows * ((s.axis.length + s.block - 1) / s.block) * s.axis.inner;
        const std::vector<float> x = make_inputs(data::ordinary, n, 5);
        std::vector<float> scale;
        std::vector<std::int8_t> low;
        std::vector<std::uint8_t> high;
        for (std::size_t k = 0; k < entries; ++k) {
            scale.push_back(static_cast<float>(0.01 + g.uniform() * 0.3));
            low.push_back(static_cast<std::int8_t>(static_cast<int>(g.below(15)) - 8));
            high.push_back(static_cast<std::uint8_t>(g.below(16)));
        }
        const std::vector<qk::float16> halves = narrowed<qk::float16>(scale);
        const std::vector<qk::bfloat16> brains = narrowed<qk::bfloat16>(scale);
        const std::string where = " in blocks of " + std::to_string(s.rows) + " x " + std::to_string(s.block);
        for (const test_format& f : formats_named({"int4", "uint4", "int8", "fp8_e4m3fn", "nf4"})) {
            check_stored(f, x, {scale, {}, s.axis, s.block, s.rows}, where);
            check_stored(f, x, {halves, {}, s.axis, s.block, s.rows}, where + ", fp16");
            if (!qk::is_integer_format(f.format)) continue;
            const bool is_signed = f.name[0] != 'u';
            check_stored(f, x, {brains, is_signed ? qk::zero_points_in(low) : qk::zero_points_in(high), s.axis, s.block, s.rows},
                         where + ", bf16 and bytes");
            check_stored(f, x, {scale, 5, s.axis, s.block, s.rows}, where + ", one zero point");
        }
    }
}

namespace {

/// Elements next to ties under a scale for each run, and some special ones.
struct scaled_runs {
    std::vector<float> x, scale;
    std::vector<std::int64_t> zero;

    scaled_runs(const test_format& f, const qk::along_axis& axis, std::size_t run, generator& g) {
        const std::vector<float> special = make_inputs(data::special, 512, 3);
        const std::size_t runs = (axis.length + run - 1) / run;
        for (std::size_t k = 0; k < axis.outer * runs; ++k) {
            const int trial = static_cast<int>(g.below(324));
            scale.push_back(k % 3 == 0 ? static_cast<float>(0.01 + g.uniform()) : qk::scale_by_a_coarse_one(g, trial));
            if (k == 5 && axis.outer == 2) scale.back() = 0x1.4p120f;  // too large for a power of two beside it
            const std::size_t end = x.size() + std::min(run, axis.length - k % runs * run);
            std::visit(
                [&](const auto& format) {
                    if constexpr (requires { any_zero_point(format, trial, g); }) {
                        if (is_tied(format)) {
                            zero.push_back(any_zero_point(format, trial, g));
                            while (x.size() < end) qk::push_around(x, tie_of(format, zero.back(), g), scale.back());
                        }
                    }
                },
                f.format);
            while (x.size() < end) x.push_back(tie(g, 120 + g.below(12)) * scale.back());
            x.resize(end);
            zero.resize(scale.size());
            if (k % 4 == 1) x[end - 1 - g.below(static_cast<std::uint32_t>(std::min(run, end)))] = special[g.below(512)];
        }
    }
};

}  // namespace

TEST_CASE("a scale for each run: every elementwise format, runs of whole vectors and others, rows that end within a run") {
    struct shape {
        qk::along_axis axis;
        std::size_t run;
    };
    generator g{11};
    for (const test_format& f : all_formats()) {
        if (qk::is_block_format(f.format)) continue;
        for (const shape& s :
             {shape{{1, 4800, 1}, 32}, shape{{3, 100, 1}, 32}, shape{{2, 2304, 1}, 128}, shape{{1, 4320, 1}, 40}, shape{{5, 97, 1}, 24},
              shape{{2, 1000, 1}, 8}, shape{{1, 9000, 1}, 4400}, shape{{4, 96, 1}, 48}, shape{{2, 136, 1}, 16}, shape{{2, 99, 1}, 9}}) {
            const scaled_runs r(f, s.axis, s.run, g);
            for (const qk::integer_mode mode : {qk::integer_mode::division, qk::integer_mode::reciprocal}) {
                if (mode == qk::integer_mode::reciprocal && !qk::is_integer_format(f.format)) continue;
                const qk::semantics how{.integer_mode = mode};
                if (!qk::encodable(f.format, how)) continue;
                const qk::per_block p{r.scale, qk::is_integer_format(f.format) ? qk::zero_points_in(r.zero) : qk::zero_points_in(), s.axis,
                                      s.run};
                std::vector<float> expected(r.x.size()), y(r.x.size());
                std::vector<std::byte> packed(qk::packed_bytes(f.format, s.axis));
                qk::reference::fake_quantize(f.format, r.x, expected, p, how);
                REQUIRE(under_test::encode(f.format, r.x, packed, p, how) == qk::encode_status::done);
                under_test::decode(f.format, packed, y, p);
                CHECK(count_mismatches(r.x, expected, y, under_test::isa + " " + f.name + " in runs of " + std::to_string(s.run)) == 0);
            }
        }
    }
}

TEST_CASE("a scale for each channel in 16 bits") {
    generator g{7};
    for (const qk::along_axis& axis : {qk::along_axis{1, 12, 500}, qk::along_axis{3, 30, 4}, qk::along_axis{20, 33, 1}}) {
        const std::vector<float> x = make_inputs(data::ordinary, size_of(axis), 5);
        std::vector<float> scale;
        for (std::size_t k = 0; k < axis.length; ++k) scale.push_back(static_cast<float>(0.01 + g.uniform() * 0.3));
        const std::vector<qk::bfloat16> brains = narrowed<qk::bfloat16>(scale);
        for (const test_format& f : formats_named({"int4", "int8", "fp8_e4m3fn", "apot4"})) {
            const qk::per_channel stored{brains, {}, axis};
            std::vector<float> expected(x.size()), y(x.size());
            qk::reference::fake_quantize(f.format, x, expected, stored);
            under_test::fake_quantize(f.format, x, y, stored);
            CHECK(count_mismatches(x, expected, y, under_test::isa + " channels " + f.name) == 0);
            std::vector<std::byte> packed(qk::packed_bytes(f.format, axis));
            REQUIRE(under_test::encode(f.format, x, packed, stored) == qk::encode_status::done);
            under_test::decode(f.format, packed, y, stored);
            CHECK(count_mismatches(x, expected, y, under_test::isa + " packed channels " + f.name) == 0);
        }
    }
}

TEST_CASE("a sink gets each value of decode once, as float memory has it") {
    for (const test_format& f : formats) {
        if (!qk::encodable(f.format, qk::semantics::ocp)) continue;
        for (const qk::along_axis& axis : shapes) {
            const std::vector<float> x = make_inputs(data::ordinary, size_of(axis), 12);
            std::vector<std::byte> packed(qk::packed_bytes(f.format, qk::resolved(axis, x.size())));
            REQUIRE(under_test::encode(f.format, x, packed, axis) == qk::encode_status::done);
            std::vector<float> expected(x.size()), got(x.size());
            std::vector<int> times(x.size());
            under_test::decode(f.format, packed, expected, axis);
            const auto take = [&](std::size_t first, std::span<const float> values) {
                for (std::size_t k = 0; k < values.size(); ++k) got[first + k] = values[k], ++times[first + k];
            };
            under_test::decode(f.format, packed, qk::values_sink(x.size(), take), axis);
            CHECK(count_mismatches(x, expected, got, under_test::isa + " sink " + f.name) == 0);
            CHECK(times == std::vector<int>(x.size(), 1));
        }
    }
}

TEST_CASE("gradients by channel and by block are those of each part under its own scale") {
    generator g{8};
    const qk::along_axis channels{3, 5, 70}, blocks{6, 96, 1};
    for (const test_format& f : formats_named({"int4", "uint4", "int8", "fp8_e4m3fn", "fp4_e2m1", "nf4"})) {
        const bool integers = qk::is_integer_format(f.format);
        std::vector<float> x = make_inputs(data::ordinary, 1050, 4), grad(1050), in(1050), part_in(1050);
        for (float& v : x) v *= 3;
        for (float& v : grad) v = static_cast<float>(g.uniform() - 0.5);
        std::vector<float> scale;
        std::vector<std::int64_t> zero;
        for (int k = 0; k < 9; ++k) scale.push_back(static_cast<float>(0.1 + g.uniform() * 0.4)), zero.push_back(integers ? g.below(3) : 0);
        // Channels: values of channel c are those whose position along the axis is c.
        std::vector<double> by_scale(5, 1e9), by_zero(5, 1e9);
        under_test::fake_quantize_backward(
            f.format, x, grad, in, qk::per_channel{std::span(scale).first(5), std::span(zero).first(5), channels}, {by_scale, by_zero});
        for (std::size_t c = 0; c < 5; ++c) {
            std::vector<float> vx, vg, at;
            std::vector<float> got;
            for (std::size_t i = 0; i < x.size(); ++i) {
                if (i / channels.inner % channels.length == c) vx.push_back(x[i]), vg.push_back(grad[i]), got.push_back(in[i]);
            }
            at.resize(vx.size());
            const qk::scale_gradient one = under_test::fake_quantize_backward(f.format, vx, vg, at, {scale[c], zero[c]});
            CHECK(at == got);
            CHECK(by_scale[c] == doctest::Approx(one.scale));
            CHECK(by_zero[c] == doctest::Approx(one.zero_point));
        }
        // Blocks of 2 rows of 64 values, the gradients in bfloat16.
        const std::size_t n = 6 * 96;
        const std::vector<qk::bfloat16> half_grad = narrowed<qk::bfloat16>({grad.begin(), grad.begin() + n});
        const std::vector<float> wide_grad = widened(half_grad);
        std::vector<qk::bfloat16> half_in(n);
        const qk::per_block grid{
            .scale = std::span(scale).first(6), .zero_point = std::span(zero).first(6), .axis = blocks, .block_size = 64, .block_rows = 2};
        std::vector<double> of_scale(6), of_zero(6);
        under_test::fake_quantize_backward(f.format, std::span(x).first(n), half_grad, half_in, grid, {of_scale, of_zero});
        for (std::size_t e = 0; e < 6; ++e) {
            std::vector<float> vx, vg, at, got;
            for (std::size_t i = 0; i < n; ++i) {
                if (i / 96 / 2 * 2 + i % 96 / 64 == e) vx.push_back(x[i]), vg.push_back(wide_grad[i]), got.push_back(qk::widen(half_in[i]));
            }
            at.resize(vx.size());
            const qk::scale_gradient one = under_test::fake_quantize_backward(f.format, vx, vg, at, {scale[e], zero[e]});
            CHECK(at == got);
            CHECK(of_scale[e] == doctest::Approx(one.scale));
            CHECK(of_zero[e] == doctest::Approx(one.zero_point));
        }
    }
    // A format with blocks of its own clips nothing but Inf and NaN, in any memory.
    const std::vector<qk::float16> x =
        narrowed<qk::float16>({1, -2, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()});
    std::vector<qk::float16> in(4);
    under_test::fake_quantize_backward(*qk::parse_format("mxfp4"), x, std::vector<float>(4, 3.0f), in);
    CHECK(widened(in) == std::vector<float>{3, 3, 0, 0});
}
