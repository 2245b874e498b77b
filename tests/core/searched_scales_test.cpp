// SPDX-License-Identifier: Apache-2.0
// Searched block scales against brute force over every scale that a block can have (the oracle), and what a search promises.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compare_bits.hpp"
#include "qk/codec/encode/encodable.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/option_names.hpp"
#include "qk/reference.hpp"
#include "test_formats.hpp"
#include "under_test.hpp"

namespace {

using namespace qk;

std::vector<test_format> searched_formats() {
    std::vector<test_format> all;
    for (test_format& f : all_formats())
        if (std::holds_alternative<microscaling>(f.format) || std::holds_alternative<nvfloat>(f.format)) all.push_back(std::move(f));
    for (test_format& f : formats_named({"mx:element=fp4_e2m1,block=5", "nvfp:block=24", "nvfp:block=1", "nvfp:block=70",
                                         "nvfp:block=16,scale=float:exponent=4,mantissa=3,subnormals=0,sign=0,special=none"}))
        all.push_back(std::move(f));
    return all;
}

constexpr int kinds = 8;

/// Values whose blocks need different scales; the last kinds have Inf and NaN.
std::vector<float> values(int kind, std::size_t count, std::mt19937& draw) {
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) {
        const float v = normal(draw);
        switch (kind) {
            case 0: x[i] = v; break;
            case 1: x[i] = v * std::exp2(static_cast<float>(draw() % 40) - 20.0f); break;
            case 2: x[i] = static_cast<float>(static_cast<int>(draw() % 129) - 64) / 8.0f; break;
            case 3: x[i] = draw() % 8 == 0 ? v : 0.0f; break;
            case 4: x[i] = v * 1e-38f; break;
            case 5: x[i] = (i % 7 == 0 ? 30.0f : 1.0f) * v; break;
            case 6: x[i] = draw() % 200 != 0 ? v : std::copysign(std::numeric_limits<float>::infinity(), v); break;
            default: x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(draw())); break;
        }
    }
    return x;
}

std::vector<float> weights_of(std::size_t count, std::mt19937& draw) {
    std::vector<float> w(count);
    for (float& v : w) v = draw() % 10 == 0 ? 0.0f : std::exp2(static_cast<float>(draw() % 100) / 10 - 5);
    return w;
}

double cost(std::span<const float> x, std::span<const float> y, const semantics& how, std::span<const float> weights) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double d = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
        sum += (weights.empty() ? 1.0 : static_cast<double>(weights[i])) * (how.scale_objective == scale_objective::mae ? d : d * d);
    }
    return sum;
}

double decibels(const format& f, std::span<const float> x, scale_rule rule) {
    std::vector<float> y(x.size());
    under_test::fake_quantize(f, x, y, semantics{.scale_rule = rule});
    double power = 0;
    for (const float v : x) power += static_cast<double>(v) * static_cast<double>(v);
    return 10 * std::log10(power / cost(x, y, {}, {}));
}

/// Number `i` of many ways to search.
semantics searched_how(int i, int kind, const float* weights) {
    semantics how = i % 3 == 0 ? semantics::ocp : i % 3 == 1 ? semantics::quark : semantics::torchao;
    how.scale_rule = i % 4 == 3 ? scale_rule::four_over_six : scale_rule::search;
    how.scale_objective = i % 2 == 0 ? scale_objective::mse : scale_objective::mae;
    if (i % 5 < 2) how.scale_weights = weights;
    if (kind == 5) how.rounding = rounding::stochastic, how.seed = 5;
    if (kind == 4 && i % 2 == 1) how.flush_inputs = how.flush_outputs = true;
    return how;
}

bool stores_negative_zero(const format& f) {
    const floating* element = element_float(f);
    return element == nullptr || has_negative_zero(*element);
}

/// Compares the kernels and the codec with the oracle on at least `blocks` blocks.
void check_against_brute_force(const test_format& t, int i, int kind, std::size_t blocks, std::mt19937& draw) {
    const auto size = static_cast<std::size_t>(block_size(t.format));
    const along_axis axes[] = {{1, blocks * size, 1}, {blocks / 9 + 1, size * 2 + (size + 1) / 2, 3}, {blocks / 3 + 1, size * 3, 1}};
    const along_axis axis = axes[static_cast<std::size_t>(i) % 3];
    const std::size_t count = axis.outer * axis.length * axis.inner;
    const std::vector<float> x = values(kind, count, draw), weights = weights_of(axis.length, draw);
    const semantics how = searched_how(i, kind, weights.data());
    const std::string what = under_test::isa + " " + t.name + " kind " + std::to_string(kind) + " way " + std::to_string(i);
    std::vector<float> y(count), expected(count), decoded(count);
    affine scale = reference::no_scale(t.format);
    if (const nvfloat* g = std::get_if<nvfloat>(&t.format)) scale.scale = reference::tensor_scale(*g, x, how);
    under_test::fake_quantize(t.format, x, y, axis, scale, how);
    reference::fake_quantize(t.format, x, expected, axis, scale, how);
    CHECK_MESSAGE(count_mismatches(x, expected, y, what) == 0, what);
    if (!encodable(t.format, how)) return;
    std::vector<std::byte> packed(packed_bytes(t.format, axis));
    const codec_parameters p(axis, scale);
    REQUIRE(under_test::encode(t.format, x, packed, p, how) == encode_status::done);
    under_test::decode(t.format, packed, decoded, p);
    // A flushed output keeps its sign, which elements without -0 cannot store.
    if (how.flush_outputs && !stores_negative_zero(t.format)) std::ranges::replace(y, -0.0f, 0.0f);
    CHECK_MESSAGE(count_mismatches(x, y, decoded, what + ", decoded") == 0, what);
}

}  // namespace

TEST_CASE("a searched scale is that of brute force, along every axis, under every semantics and rounding, in arrays and in codes") {
    std::mt19937 draw(11);
    int i = 0;
    for (const test_format& t : searched_formats())
        for (int kind = 0; kind < kinds; ++kind)
            for (int way = 0; way < 3; ++way) check_against_brute_force(t, i++, kind, 30, draw);
}

TEST_CASE("a product of a weight and an error is rounded before it is summed, on processors with fma, too") {
    // One sum and the other differ by a unit in the last place, or are equal.
    const float x[] = {0x1.4ed02ep-12f, 0x1.309718p-19f,  -0x1.748318p-2f,  -0x1.2536a8p-12f, 0x1.b7ef1ap-12f, 0x1.cf669ep-17f,
                       0x1.478774p+6f,  -0x1.9dd11cp+14f, -0x1.eed5d2p+12f, 0x1.d352d8p-5f,   -0x1.726e44p+8f, 0x1.132444p-9f,
                       0x1.4adecap+16f, -0x1.4f27aep-1f,  0x1.8add56p+15f,  0x1.19e2a8p-1f,   0x1.6dbe52p-6f,  0x1.43c53ep+0f,
                       0x1.7e0d72p-17f, 0x1.d536dap+17f,  0x1.fb1ff4p-14f,  -0x1.fc216cp+7f,  0x1.32e1b6p-8f,  -0x1.e817bp-1f,
                       -0x1.f7e456p-5f, 0x1.b34bbp-6f,    0x1.d14064p+11f,  -0x1.6984d8p+17f, 0x1.aebc26p-11f, -0x1.4e10eep-18f,
                       0x1.a8d406p-23f, 0x1.a990fap-12f};
    const float weights[] = {0x0p+0f,        0x1.6a09e6p+0f, 0x1.6a09e6p+4f, 0x1p-4f,        0x1.ddb682p-1f, 0x1.26111ap-4f, 0x1.51cb46p+0f,
                             0x1.261116p-5f, 0x1.6a09e6p-2f, 0x1.3b2c4ap+0f, 0x1.51cb46p-3f, 0x1.3b2c4ap+3f, 0x1.ddb682p+0f, 0x1.bdb8ccp-3f,
                             0x1.125fc4p+4f, 0x1.51cb46p-3f, 0x1.51cb46p-2f, 0x1.3b2c48p-4f, 0x0p+0f,        0x1.8405fep-1f, 0x1.6a09e6p-3f,
                             0x1p+1f,        0x1.9fdf8cp-3f, 0x1.51cb46p+0f, 0x0p+0f,        0x1p+0f,        0x1.6a09e6p+2f, 0x1.125fbep-4f,
                             0x1.6a09e6p+0f, 0x1.261116p+0f, 0x1.840606p+4f, 0x0p+0f};
    const float expected[] = {0x1.4p-12f, 0x0p+0f,   -0x1.8p-2f, -0x1.4p-12f, 0x1.cp-12f, 0x0p+0f,    0x1.4p+6f,  -0x1.8p+14f,
                              -0x1p+13f,  0x1.cp-5f, -0x1.8p+8f, 0x1p-9f,     0x1.4p+16f, -0x1.4p-1f, 0x1.8p+15f, 0x1p-1f,
                              0x1.8p-6f,  0x1.4p+0f, 0x0p+0f,    0x1.cp+17f,  0x1p-13f,   -0x1p+8f,   0x1.4p-8f,  -0x1p+0f,
                              -0x1p-4f,   0x1.cp-6f, 0x1.cp+11f, -0x1.8p+17f, 0x1.cp-11f, -0x0p+0f,   0x0p+0f,    0x1.cp-12f};
    float y[32], oracle[32];
    const semantics how{.scale_rule = scale_rule::search, .scale_objective = scale_objective::weighted, .scale_weights = weights};
    under_test::fake_quantize(mxfp8_e5m2, x, y, how);
    reference::fake_quantize(mxfp8_e5m2, x, oracle, how);
    CHECK(std::ranges::equal(y, expected));
    CHECK(std::ranges::equal(oracle, expected));
}

// Brute force takes too long for every run: build/release/tests/searched_scales_test --no-skip runs it, with QK_ARCH on an instruction set.
TEST_CASE("100000 blocks of every format" * doctest::skip()) {
    std::mt19937 draw(12);
    int i = 0;
    for (const test_format& t : searched_formats())
        for (int kind = 0; kind < kinds; ++kind)
            for (int way = 0; way < 15; ++way) check_against_brute_force(t, i++, kind, 100000 / (15 * kinds) + 1, draw);
}

TEST_CASE("a search is never worse than a rule in its own objective") {
    std::mt19937 draw(13);
    for (const test_format& t : searched_formats()) {
        const auto size = static_cast<std::size_t>(block_size(t.format));
        for (int kind = 0; kind < 6; ++kind) {
            const std::vector<float> x = values(kind, 40 * size, draw), weights = weights_of(x.size(), draw);
            std::vector<float> y(x.size()), z(x.size());
            const along_axis row{1, x.size(), 1};
            affine scale = reference::no_scale(t.format);
            if (const nvfloat* g = std::get_if<nvfloat>(&t.format)) scale.scale = reference::tensor_scale(*g, x, {});
            for (const scale_objective objective : {scale_objective::mse, scale_objective::mae, scale_objective::weighted}) {
                const semantics how{.scale_rule = scale_rule::search, .scale_objective = objective, .scale_weights = weights.data()};
                under_test::fake_quantize(t.format, x, y, row, scale, how);
                for (const auto& rule : scale_rule_names) {
                    semantics other = how;
                    other.scale_rule = rule.value;
                    under_test::fake_quantize(t.format, x, z, row, scale, other);
                    for (std::size_t b = 0; b < x.size(); b += size) {
                        const auto part = [&](const std::vector<float>& v) { return std::span(v).subspan(b, size); };
                        CHECK_MESSAGE(cost(part(x), part(y), how, part(weights)) <= cost(part(x), part(z), how, part(weights)), t.name, " ",
                                      rule.name);
                    }
                }
            }
        }
    }
}

TEST_CASE("what was searched is found again: values on a grid stay as they are") {
    std::mt19937 draw(14);
    for (const test_format& t : searched_formats()) {
        for (int kind = 0; kind < 4; ++kind) {
            const std::vector<float> x = values(kind, 30 * static_cast<std::size_t>(block_size(t.format)), draw);
            std::vector<float> y(x.size()), z(x.size());
            affine scale = reference::no_scale(t.format);
            if (const nvfloat* g = std::get_if<nvfloat>(&t.format)) scale.scale = reference::tensor_scale(*g, x, {});
            const along_axis row{1, x.size(), 1};
            const semantics how{.scale_rule = scale_rule::search};
            under_test::fake_quantize(t.format, x, y, row, scale, how);
            under_test::fake_quantize(t.format, y, z, row, scale, how);
            CHECK_MESSAGE(count_mismatches(x, y, z, t.name) == 0, t.name);
        }
    }
}

TEST_CASE("what searched scales are worth on Gaussian values, in decibels") {
    std::mt19937 draw(15);
    const std::vector<float> x = values(0, 1 << 16, draw);
    CHECK(decibels(nvfp4, x, scale_rule::floor) == doctest::Approx(20.4).epsilon(0.01));
    CHECK(decibels(nvfp4, x, scale_rule::four_over_six) > 21.0);
    CHECK(decibels(nvfp4, x, scale_rule::search) > 21.6);
    CHECK(decibels(mxfp4, x, scale_rule::search) > decibels(mxfp4, x, scale_rule::even));
    CHECK(decibels(mxfp4, x, scale_rule::ceil_7_25) > decibels(mxfp4, x, scale_rule::rceil) + 0.2);
}

TEST_CASE("7.25 is the largest amax that E2M1 takes without a larger scale") {
    std::vector<float> x(32, 0.5f), y(32);
    const semantics how{.scale_rule = scale_rule::ceil_7_25};
    x[0] = 7.25f;
    under_test::fake_quantize(mxfp4, x, y, how);
    CHECK(y[0] == 6);
    CHECK(y[1] == 0.5f);
    x[0] = 7.250001f;
    under_test::fake_quantize(mxfp4, x, y, how);
    CHECK(y[0] == 8);
}
