// SPDX-License-Identifier: Apache-2.0
// Searched block scales against brute force over every scale that a block can have (the oracle), and what a search promises.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "compare_bits.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/option_names.hpp"
#include "qk/reference.hpp"

namespace {

using namespace qk;

struct searched_format {
    const char* name;
    format what;
};
const searched_format searched_formats[] = {{"mxfp4", mxfp4},
                                            {"mxfp6_e2m3", mxfp6_e2m3},
                                            {"mxfp6_e3m2", mxfp6_e3m2},
                                            {"mxfp8_e4m3", mxfp8_e4m3},
                                            {"mxfp8_e5m2", mxfp8_e5m2},
                                            {"mxint8", mxint8},
                                            {"nvfp4", nvfp4},
                                            {"short blocks", microscaling{.block_size = 5, .element = fp4_e2m1}},
                                            {"nvfp4 in blocks of 24", nvfloat{.block_size = 24}}};

/// Values whose blocks need different scales; `kind` 6 has Inf and NaN.
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
            default: x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(draw())); break;
        }
    }
    return x;
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
    fake_quantize(f, x, y, semantics{.scale_rule = rule});
    double power = 0;
    for (const float v : x) power += static_cast<double>(v) * static_cast<double>(v);
    return 10 * std::log10(power / cost(x, y, {}, {}));
}

}  // namespace

TEST_CASE("a searched scale is that of brute force, along every axis, under every semantics and rounding") {
    std::mt19937 draw(11);
    for (const auto& [name, f] : searched_formats) {
        const auto size = static_cast<std::size_t>(block_size(f));
        for (int kind = 0; kind < 7; ++kind) {
            for (const along_axis axis : {along_axis{3, 2 * size + 5, 1}, along_axis{2, size + size / 2, 3}, along_axis{1, 9 * size, 1}}) {
                const std::size_t count = axis.outer * axis.length * axis.inner;
                const std::vector<float> x = values(kind, count, draw);
                std::vector<float> weights(axis.length), y(count), expected(count);
                for (float& w : weights) w = 0.01f + std::abs(values(0, 1, draw)[0]);
                for (const scale_rule rule : {scale_rule::search, scale_rule::four_over_six, scale_rule::ceil_7_25}) {
                    for (semantics how : {semantics::ocp, semantics::quark, semantics::torchao}) {
                        how.scale_rule = rule;
                        how.seed = 5;
                        if (kind % 2 != 0) how.scale_objective = scale_objective::mae;
                        if (kind % 3 == 0) how.scale_weights = weights.data();
                        how.rounding = kind == 5 ? rounding::stochastic : rounding::half_even;
                        fake_quantize(f, x, y, axis, how);
                        reference::fake_quantize(f, x, expected, axis, how);
                        CHECK(count_mismatches(x, expected, y, name) == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("a search is never worse than a rule in its own objective") {
    std::mt19937 draw(12);
    for (const auto& [name, f] : searched_formats) {
        const auto size = static_cast<std::size_t>(block_size(f));
        for (int kind = 0; kind < 6; ++kind) {
            const std::vector<float> x = values(kind, 40 * size, draw);
            std::vector<float> weights(x.size()), y(x.size()), z(x.size());
            for (float& w : weights) w = 0.01f + std::abs(values(0, 1, draw)[0]);
            const affine tensor =
                std::holds_alternative<nvfloat>(f) ? affine{.scale = reference::tensor_scale(std::get<nvfloat>(f), x, {})} : affine{};
            for (const scale_objective objective : {scale_objective::mse, scale_objective::mae}) {
                const semantics how{.scale_rule = scale_rule::search, .scale_objective = objective, .scale_weights = weights.data()};
                fake_quantize(f, x, y, along_axis{1, x.size(), 1}, tensor, how);
                for (const auto& rule : scale_rule_names) {
                    semantics other = how;
                    other.scale_rule = rule.value;
                    fake_quantize(f, x, z, along_axis{1, x.size(), 1}, tensor, other);
                    for (std::size_t b = 0; b < x.size(); b += size) {
                        const auto part = [&](const std::vector<float>& v) { return std::span(v).subspan(b, size); };
                        CHECK_MESSAGE(cost(part(x), part(y), how, part(weights)) <= cost(part(x), part(z), how, part(weights)), name, " ",
                                      rule.name);
                    }
                }
            }
        }
    }
}

TEST_CASE("what searched scales are worth on Gaussian values, in decibels") {
    std::mt19937 draw(13);
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
    fake_quantize(mxfp4, x, y, how);
    CHECK(y[0] == 6);
    CHECK(y[1] == 0.5f);
    x[0] = 7.250001f;
    fake_quantize(mxfp4, x, y, how);
    CHECK(y[0] == 8);
}
