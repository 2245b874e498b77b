// SPDX-License-Identifier: Apache-2.0
// LSTM (and its quantized form), GRU and RNN follow their equations, written out in double; a sample's bits do not depend on the samples
// beside it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "call_op.hpp"

using namespace qk::graph;
using namespace qk_test;

namespace {

constexpr std::size_t length = 5, batch = 3, width = 7, hidden = 19;
const std::vector<std::int32_t> lengths{5, 2, 4};

template <class T>
std::vector<T> draw(std::size_t n, unsigned seed) {
    std::mt19937 g(seed);
    std::uniform_real_distribution<double> u(-1, 1);
    std::vector<T> v(n);
    for (T& x : v) x = static_cast<T>(u(g));
    return v;
}

struct network {
    std::size_t gates, directions;
    std::vector<double> x, w, r, b, p, h0, c0;

    network(std::size_t g, std::size_t d)
        : gates(g),
          directions(d),
          x(draw<double>(length * batch * width, 1)),
          w(draw<double>(d * g * hidden * width, 2)),
          r(draw<double>(d * g * hidden * hidden, 3)),
          b(draw<double>(d * 2 * g * hidden, 4)),
          p(draw<double>(d * 3 * hidden, 5)),
          h0(draw<double>(d * batch * hidden, 6)),
          c0(draw<double>(d * batch * hidden, 7)) {}

    double linear(std::size_t d, std::size_t gate, std::size_t j, std::size_t t, std::size_t n) const {
        const std::size_t row = gate * hidden + j;
        double sum = b[d * 2 * gates * hidden + row];
        for (std::size_t k = 0; k < width; ++k) sum += w[(d * gates * hidden + row) * width + k] * x[(t * batch + n) * width + k];
        return sum;
    }
    double recurrent(std::size_t d, std::size_t gate, std::size_t j, const std::vector<double>& h) const {
        double sum = 0;
        for (std::size_t k = 0; k < hidden; ++k) sum += r[(d * gates * hidden + gate * hidden + j) * hidden + k] * h[k];
        return sum;
    }
    double bias(std::size_t d, std::size_t gate, std::size_t j) const { return b[(d * 2 + 1) * gates * hidden + gate * hidden + j]; }
};

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

/// Returns x after DynamicQuantizeLinear and DequantizeLinear, computed in float as the standard defines them.
std::vector<double> through_uint8(const std::vector<double>& x) {
    float low = 0, high = 0;
    for (const double v : x) low = std::min(low, static_cast<float>(v)), high = std::max(high, static_cast<float>(v));
    const float scale = low == high ? 1 : (high - low) / 255, zero = std::nearbyint(-low / scale);
    std::vector<double> y;
    for (const double v : x)
        y.push_back(
            static_cast<double>((std::min(std::max(std::nearbyint(static_cast<float>(v) / scale) + zero, 0.0f), 255.0f) - zero) * scale));
    return y;
}

std::vector<double> unchanged(const std::vector<double>& x) { return x; }

/// Returns Y [length, directions, batch, hidden] by the equations. `seen` maps a state to the values that the recurrent products read.
std::vector<double> expected(const network& net, const std::string& op, bool linear_before_reset, double clip,
                             std::vector<double> (*seen)(const std::vector<double>&) = unchanged) {
    std::vector<double> y(length * net.directions * batch * hidden, 0.0);
    const auto held = [&](double v) { return clip > 0 ? std::min(std::max(v, -clip), clip) : v; };
    for (std::size_t d = 0; d < net.directions; ++d)
        for (std::size_t n = 0; n < batch; ++n) {
            const auto at = static_cast<std::ptrdiff_t>((d * batch + n) * hidden);
            std::vector<double> h(net.h0.begin() + at, net.h0.begin() + at + hidden), c(net.c0.begin() + at, net.c0.begin() + at + hidden);
            const auto steps = static_cast<std::size_t>(lengths[n]);
            for (std::size_t s = 0; s < steps; ++s) {
                const std::size_t t = d == 0 ? s : steps - 1 - s;
                const std::vector<double> product_sees = seen(h);
                const auto gate = [&](std::size_t g, std::size_t j) {
                    return net.linear(d, g, j, t, n) + net.recurrent(d, g, j, product_sees) + net.bias(d, g, j);
                };
                std::vector<double> next(hidden), memory = c;
                const double* p = net.p.data() + d * 3 * hidden;
                std::vector<double> reset(hidden);
                for (std::size_t j = 0; j < hidden && op == "GRU"; ++j) reset[j] = sigmoid(held(gate(1, j))) * h[j];
                for (std::size_t j = 0; j < hidden; ++j) {
                    if (op == "LSTM") {
                        const double i = sigmoid(held(gate(0, j) + p[j] * c[j])), f = sigmoid(held(gate(2, j) + p[2 * hidden + j] * c[j]));
                        memory[j] = f * c[j] + i * std::tanh(held(gate(3, j)));
                        next[j] = sigmoid(held(gate(1, j) + p[hidden + j] * memory[j])) * std::tanh(held(memory[j]));
                    } else if (op == "GRU") {
                        const double z = sigmoid(held(gate(0, j)));
                        const double inner = linear_before_reset
                                                 ? sigmoid(held(gate(1, j))) * (net.recurrent(d, 2, j, h) + net.bias(d, 2, j))
                                                 : net.recurrent(d, 2, j, reset) + net.bias(d, 2, j);
                        next[j] = (1 - z) * std::tanh(held(net.linear(d, 2, j, t, n) + inner)) + z * h[j];
                    } else {
                        next[j] = std::tanh(held(gate(0, j)));
                    }
                }
                h = next, c = memory;
                for (std::size_t j = 0; j < hidden; ++j) y[((t * net.directions + d) * batch + n) * hidden + j] = h[j];
            }
        }
    return y;
}

/// Runs the operator on samples [first, first + count).
template <class T>
tensor run(const network& net, const std::string& op, bool linear_before_reset, double clip, std::size_t first = 0,
           std::size_t count = batch) {
    const auto d = static_cast<std::int64_t>(net.directions), g = static_cast<std::int64_t>(net.gates * hidden), h = std::int64_t{hidden},
               n = static_cast<std::int64_t>(count);
    const auto typed = [](const std::vector<double>& v) { return std::vector<T>(v.begin(), v.end()); };
    const auto some = [&](const std::vector<double>& v, std::size_t outer, std::size_t each) {
        std::vector<T> part;
        for (std::size_t o = 0; o < outer; ++o)
            for (std::size_t i = first * each; i < (first + count) * each; ++i) part.push_back(static_cast<T>(v[o * batch * each + i]));
        return part;
    };
    std::vector<tensor> in{values<T>({std::int64_t{length}, n, std::int64_t{width}}, some(net.x, length, width)),
                           values<T>({d, g, std::int64_t{width}}, typed(net.w)),
                           values<T>({d, g, h}, typed(net.r)),
                           values<T>({d, 2 * g}, typed(net.b)),
                           values<std::int32_t>({n}, {lengths.begin() + static_cast<std::ptrdiff_t>(first),
                                                      lengths.begin() + static_cast<std::ptrdiff_t>(first + count)}),
                           values<T>({d, n, h}, some(net.h0, net.directions, hidden))};
    if (op == "LSTM") {
        in.push_back(values<T>({d, n, h}, some(net.c0, net.directions, hidden)));
        in.push_back(values<T>({d, 3 * h}, typed(net.p)));
    }
    attributes a{{"hidden_size", h}, {"direction", std::string(net.directions == 2 ? "bidirectional" : "forward")}};
    if (clip > 0) a.emplace_back("clip", static_cast<float>(clip));
    if (op == "GRU") a.emplace_back("linear_before_reset", std::int64_t{linear_before_reset});
    return call_op(op, 14, in, a)[0];
}

template <class T>
double largest_error(const tensor& y, const std::vector<double>& want) {
    REQUIRE(y.size() == want.size());
    double largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i) largest = std::max(largest, std::fabs(static_cast<double>(y.as<T>()[i]) - want[i]));
    return largest;
}

struct kind {
    const char* op;
    std::size_t gates;
    bool linear_before_reset;
};
constexpr kind kinds[] = {{"LSTM", 4, false}, {"GRU", 3, false}, {"GRU", 3, true}, {"RNN", 1, false}};

}  // namespace

TEST_CASE("the recurrent operators follow the standard's equations: both directions, sequences of several lengths, peepholes, clips") {
    for (const kind& k : kinds)
        for (const std::size_t directions : {std::size_t{1}, std::size_t{2}})
            for (const double clip : {0.0, 0.5}) {
                INFO(k.op, " linear_before_reset ", k.linear_before_reset, ", directions ", directions, ", clip ", clip);
                const network net(k.gates, directions);
                const std::vector<double> want = expected(net, k.op, k.linear_before_reset, clip);
                CHECK(largest_error<double>(run<double>(net, k.op, k.linear_before_reset, clip), want) < 1e-13);
                CHECK(largest_error<float>(run<float>(net, k.op, k.linear_before_reset, clip), want) < 2e-6);
            }
}

TEST_CASE("a sample of a recurrent operator has the same bits alone and among others") {
    for (const kind& k : kinds) {
        INFO(k.op);
        const network net(k.gates, 2);
        const tensor all = run<float>(net, k.op, k.linear_before_reset, 0);
        for (std::size_t n = 0; n < batch; ++n) {
            const tensor alone = run<float>(net, k.op, k.linear_before_reset, 0, n, 1);
            for (std::size_t td = 0; td < length * 2; ++td)
                CHECK(std::memcmp(alone.as<float>().data() + td * hidden, all.as<float>().data() + (td * batch + n) * hidden,
                                  hidden * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("DynamicQuantizeLSTM is LSTM on dequantized weights, its input and each state rounded to uint8") {
    network net(4, 2);
    const std::vector<float> scale_w{0.01f, 0.02f}, scale_r{0.004f, 0.008f};
    const auto codes_of = [](std::vector<double>& weights, std::size_t inputs, const std::vector<float>& scale, int zero) {
        std::vector<std::uint8_t> codes(weights.size());  // [direction, input, gate * hidden + unit]
        for (std::size_t d = 0; d < 2; ++d)
            for (std::size_t row = 0; row < 4 * hidden; ++row)
                for (std::size_t k = 0; k < inputs; ++k) {
                    double& weight = weights[(d * 4 * hidden + row) * inputs + k];
                    const double code = std::min(std::max(std::nearbyint(weight / static_cast<double>(scale[d])) + zero, 0.0), 255.0);
                    weight = (code - zero) * static_cast<double>(scale[d]);
                    codes[(d * inputs + k) * 4 * hidden + row] = static_cast<std::uint8_t>(code);
                }
        return codes;
    };
    const auto w = codes_of(net.w, width, scale_w, 128), r = codes_of(net.r, hidden, scale_r, 120);
    std::vector<float> x(net.x.begin(), net.x.end()), b(net.b.begin(), net.b.end()), p(net.p.begin(), net.p.end()),
        h0(net.h0.begin(), net.h0.end()), c0(net.c0.begin(), net.c0.end());
    net.x = through_uint8(net.x);
    constexpr std::int64_t h = hidden;
    const auto y = call_op(
        "com.microsoft:DynamicQuantizeLSTM", 1,
        {values<float>({std::int64_t{length}, std::int64_t{batch}, std::int64_t{width}}, x),
         values<std::uint8_t>({2, std::int64_t{width}, 4 * h}, w), values<std::uint8_t>({2, h, 4 * h}, r), values<float>({2, 8 * h}, b),
         values<std::int32_t>({std::int64_t{batch}}, lengths), values<float>({2, std::int64_t{batch}, h}, h0),
         values<float>({2, std::int64_t{batch}, h}, c0), values<float>({2, 3 * h}, p), values<float>({2}, scale_w),
         values<std::uint8_t>({2}, {128, 128}), values<float>({2}, scale_r), values<std::uint8_t>({2}, {120, 120})},
        {{"hidden_size", h}, {"direction", std::string("bidirectional")}})[0];
    const std::vector<double> want = expected(net, "LSTM", false, 0, through_uint8);
    std::size_t far = 0;
    for (std::size_t i = 0; i < want.size(); ++i) far += std::fabs(static_cast<double>(y.as<float>()[i]) - want[i]) > 2e-6;
    CHECK(far == 0);
}
