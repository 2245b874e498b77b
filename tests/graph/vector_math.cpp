// SPDX-License-Identifier: Apache-2.0
// vector_math.hpp against double, in units in the last place, over a sample of all floats; an element's bits do not depend on its position.
#include "graph/ops/vector_math.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace qk::graph::ops;

namespace {

/// Returns every 8209th float of both signs, which covers all exponents, special values, and a fine sweep of [-20, 20].
std::vector<float> inputs() {
    std::vector<float> x{0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f, 0x1.fffffep127f};
    for (std::uint64_t u = 0; u < 0x1'0000'0000u; u += 8209) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
    for (float v = -20; v < 20; v += 1e-4f) x.push_back(v);
    return x;
}

double units(float got, double want) {
    if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e9;
    const auto nearest = static_cast<float>(want);
    if (got == nearest) return 0;
    if (std::isinf(nearest) || std::isinf(got)) return 1e9;
    int exponent = 0;
    std::frexp(nearest, &exponent);
    return std::abs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

template <class F, class G>
void check(const char* name, double limit, F function, G truth) {
    const std::vector<float> x = inputs();
    std::vector<float> y(x.size());
    map_vectors(x.data(), y.data(), x.size(), function);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
        if (const double u = units(y[i], truth(static_cast<double>(x[i]))); u > worst) worst = u, at = x[i];
    INFO(name << " is " << worst << " units off at " << at);
    CHECK(worst <= limit);

    // Alone, an element is computed in the padded last vector; its bits must not change.
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); i += 97) {
        float alone = 0;
        map_vectors(&x[i], &alone, 1, function);
        different += std::bit_cast<std::uint32_t>(alone) != std::bit_cast<std::uint32_t>(y[i]);
    }
    CHECK(different == 0);
}

}  // namespace

TEST_CASE("exp, log, tanh, erf, sigmoid, softplus in float32") {
    check(
        "exp", 1.1, [](vfloat v) { return vexp(v); }, [](double v) { return std::exp(v); });
    check(
        "log", 1.0, [](vfloat v) { return vlog(v); }, [](double v) { return std::log(v); });
    check(
        "tanh", 1.5, [](vfloat v) { return vtanh(v); }, [](double v) { return std::tanh(v); });
    check(
        "erf", 2.5, [](vfloat v) { return verf(v); }, [](double v) { return std::erf(v); });
    check(
        "sigmoid", 2.5, [](vfloat v) { return vsigmoid(v); }, [](double v) { return 1 / (1 + std::exp(-v)); });
    check(
        "softplus", 2.2, [](vfloat v) { return vsoftplus(v); },
        [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); });
}

TEST_CASE("row sums and maxima") {
    std::vector<float> x(1000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (const std::size_t n : {0u, 1u, 5u, 16u, 17u, 64u, 65u, 999u}) {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
        CHECK(std::abs(vector_sum(x.data(), n) - sum) < 1e-4);
        CHECK(vector_max(x.data(), n) == (n == 0 ? -INFINITY : *std::max_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n))));
    }
    x[500] = NAN;
    CHECK(std::isnan(vector_max(x.data(), x.size())));
    CHECK(std::isnan(vector_max(x.data() + 500, 1)));
}
