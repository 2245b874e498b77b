// SPDX-License-Identifier: Apache-2.0
// Quantization-aware training with qk's kernels: fake_quantize forward, fake_quantize_backward back. A small network is trained on the
// shipped digits in float32, quantized as it is (PTQ), then trained on for a few epochs with the quantizers in place (QAT).
//
//   qat [FOLDER]    FOLDER holds train_images.npy, train_labels.npy, test_images.npy, test_labels.npy (default: examples/digits)
// Exit status 1 when training with quantizers recovers nothing.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "qk/backward.hpp"
#include "qk/dispatch.hpp"
#include "qk/graph/files.hpp"

namespace {

using qk::graph::tensor;
using floats = std::vector<float>;

struct dataset {
    tensor images, labels;  // n x 64 pixels from 0 to 1, n classes
    std::size_t size() const { return labels.size(); }
    const float* image(std::size_t i) const { return images.as<float>().data() + 64 * i; }
    int label(std::size_t i) const { return static_cast<int>(labels.as<std::int64_t>()[i]); }
};

/// Parameters with their gradients and Adam's moving averages.
struct parameters {
    floats value, gradient, mean, square;
    explicit parameters(std::size_t n = 0) : value(n), gradient(n), mean(n), square(n) {}
    void forget() { std::fill(mean.begin(), mean.end(), 0.0f), std::fill(square.begin(), square.end(), 0.0f); }
    void step(float rate, int t) {
        const float a = 1 - std::pow(0.9f, static_cast<float>(t)), b = 1 - std::pow(0.999f, static_cast<float>(t));
        for (std::size_t i = 0; i < value.size(); ++i) {
            mean[i] += 0.1f * (gradient[i] - mean[i]);
            square[i] += 0.001f * (gradient[i] * gradient[i] - square[i]);
            value[i] -= rate * (mean[i] / a) / (std::sqrt(square[i] / b) + 1e-8f);
            gradient[i] = 0;
        }
    }
};

/// A quantizer that gradients pass through. Integers have a learned scale (LSQ), block formats take scales from their data.
struct trained_quantizer {
    qk::format format = qk::fp32;
    parameters scale{1};

    bool scaled() const { return qk::is_integer_format(format); }
    void forward(std::span<const float> x, std::span<float> y, std::size_t row) const {
        if (scaled()) qk::dispatch::fake_quantize(format, x, y, qk::affine{.scale = scale.value[0]});
        else qk::dispatch::fake_quantize(format, x, y, qk::along_axis{x.size() / row, row, 1});
    }
    void backward(std::span<const float> x, std::span<float> gradient) {
        const qk::scale_gradient g =
            qk::fake_quantize_backward(format, x, gradient, gradient, qk::affine{.scale = scaled() ? scale.value[0] : 1.0f});
        // LSQ's factor keeps a scale's steps in proportion to the steps of the values that it scales.
        if (scaled())
            scale.gradient[0] += static_cast<float>(
                g.scale / std::sqrt(static_cast<double>(x.size()) * static_cast<double>(qmax(std::get<qk::integer>(format)))));
    }
    /// Chooses the scale with the least squared error on x, from 20 % to 100 % of the range.
    void choose(const floats& x) {
        if (!scaled()) return;
        float largest = 0;
        for (const float v : x) largest = std::max(largest, std::fabs(v));
        floats y(x.size());
        double least = INFINITY;
        float best = 1;
        for (int i = 20; i <= 100; ++i) {
            scale.value[0] = largest * static_cast<float>(i) / 100 / static_cast<float>(qmax(std::get<qk::integer>(format)));
            forward(x, y, x.size());
            double e = 0;
            for (std::size_t k = 0; k < x.size(); ++k) e += static_cast<double>(x[k] - y[k]) * static_cast<double>(x[k] - y[k]);
            if (e < least) least = e, best = scale.value[0];
        }
        scale.value[0] = best;
    }
};

/// A linear layer y = q(W) q(x) + b, followed by a Relu if `relu`.
struct layer {
    std::size_t in, out;
    bool relu;
    parameters weight, bias;
    trained_quantizer input_format, weight_format;
    floats x, qx, qw, y, gx;

    layer(std::size_t i, std::size_t o, bool r, std::mt19937& random) : in(i), out(o), relu(r), weight(i * o), bias(o), qw(i * o) {
        for (float& w : weight.value) w = (static_cast<float>(random()) * 0x1p-32f * 2 - 1) * std::sqrt(6.0f / static_cast<float>(i));
    }
    void quantize_weights() { weight_format.forward(weight.value, qw, in); }

    const floats& forward(const floats& given) {
        const std::size_t n = given.size() / in;
        x = given, qx.resize(x.size()), y.assign(n * out, 0);
        input_format.forward(x, qx, in);
        for (std::size_t s = 0; s < n; ++s)
            for (std::size_t o = 0; o < out; ++o) {
                const float sum = std::inner_product(qx.begin() + static_cast<std::ptrdiff_t>(s * in),
                                                     qx.begin() + static_cast<std::ptrdiff_t>((s + 1) * in),
                                                     qw.begin() + static_cast<std::ptrdiff_t>(o * in), bias.value[o]);
                y[s * out + o] = relu ? std::max(sum, 0.0f) : sum;
            }
        return y;
    }
    /// Returns the gradient by x for the gradient by y, and adds to the parameters' gradients.
    const floats& backward(floats gy) {
        const std::size_t n = gy.size() / out;
        gx.assign(n * in, 0);
        floats gw(weight.value.size());
        for (std::size_t s = 0; s < n; ++s)
            for (std::size_t o = 0; o < out; ++o) {
                const float g = relu && y[s * out + o] <= 0 ? 0 : gy[s * out + o];
                bias.gradient[o] += g;
                for (std::size_t i = 0; i < in; ++i) gw[o * in + i] += g * qx[s * in + i], gx[s * in + i] += g * qw[o * in + i];
            }
        weight_format.backward(weight.value, gw);
        for (std::size_t i = 0; i < gw.size(); ++i) weight.gradient[i] += gw[i];
        input_format.backward(x, gx);
        return gx;
    }
};

struct network {
    std::vector<layer> layers;

    floats forward(floats x) {
        for (layer& l : layers) x = l.forward(x);
        return x;
    }
    void quantize_weights() {
        for (layer& l : layers) l.quantize_weights();
    }
};

floats batch_of(const dataset& d, std::span<const std::size_t> which) {
    floats x;
    for (const std::size_t i : which) x.insert(x.end(), d.image(i), d.image(i) + 64);
    return x;
}

double top1(network& net, const dataset& d) {
    std::vector<std::size_t> all(d.size());
    std::iota(all.begin(), all.end(), 0u);
    net.quantize_weights();
    const floats y = net.forward(batch_of(d, all));
    std::size_t right = 0;
    for (std::size_t i = 0; i < d.size(); ++i)
        right += std::max_element(y.begin() + static_cast<std::ptrdiff_t>(10 * i), y.begin() + static_cast<std::ptrdiff_t>(10 * i + 10)) -
                     y.begin() ==
                 static_cast<std::ptrdiff_t>(10 * i) + d.label(i);
    return static_cast<double>(right) / static_cast<double>(d.size());
}

/// Trains with softmax cross-entropy and Adam in batches of 32; the rate falls to 0.
void train(network& net, const dataset& d, int epochs, float rate, std::mt19937& random) {
    std::vector<std::size_t> order(d.size());
    std::iota(order.begin(), order.end(), 0u);
    for (layer& l : net.layers)
        for (parameters* p : {&l.weight, &l.bias, &l.weight_format.scale, &l.input_format.scale}) p->forget();
    int t = 0;
    const int steps = epochs * static_cast<int>(d.size() / 32);
    for (int e = 0; e < epochs; ++e) {
        for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random() % (i + 1)]);
        for (std::size_t first = 0; first + 32 <= order.size(); first += 32) {
            const std::span<const std::size_t> which(order.data() + first, 32);
            net.quantize_weights();
            floats g = net.forward(batch_of(d, which));
            for (std::size_t s = 0; s < 32; ++s) {
                float* p = g.data() + 10 * s;
                const float largest = *std::max_element(p, p + 10);
                float sum = 0;
                for (int k = 0; k < 10; ++k) sum += p[k] = std::exp(p[k] - largest);
                for (int k = 0; k < 10; ++k) p[k] = (p[k] / sum - (d.label(which[s]) == k ? 1.0f : 0.0f)) / 32;
            }
            for (std::size_t l = net.layers.size(); l-- > 0;) g = net.layers[l].backward(g);
            ++t;
            const float now = rate * (1 - static_cast<float>(t) / static_cast<float>(steps));
            for (layer& l : net.layers) {
                l.weight.step(now, t), l.bias.step(now, t);
                for (trained_quantizer* q : {&l.weight_format, &l.input_format}) {
                    if (!q->scaled()) continue;
                    q->scale.step(0.1f * now, t);
                    q->scale.value[0] = std::max(q->scale.value[0], 1e-4f);
                }
            }
        }
    }
}

/// Sets the formats of every layer, and integer scales of least error on 256 training images.
void quantize(network& net, const dataset& d, const qk::format& activation, const qk::format& weight) {
    std::vector<std::size_t> some(256);
    std::iota(some.begin(), some.end(), 0u);
    net.quantize_weights();
    net.forward(batch_of(d, some));
    for (layer& l : net.layers) {
        l.input_format.format = activation, l.weight_format.format = weight;
        l.input_format.choose(l.x);
        l.weight_format.choose(l.weight.value);
    }
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "examples/digits";
    const auto load = [&](const char* set) {
        return dataset{qk::graph::read_npy(folder / (std::string(set) + "_images.npy")),
                       qk::graph::read_npy(folder / (std::string(set) + "_labels.npy"))};
    };
    const dataset training = load("train"), test = load("test");
    std::mt19937 random(1);
    network plain;
    plain.layers.emplace_back(64, 24, true, random);
    plain.layers.emplace_back(24, 24, true, random);
    plain.layers.emplace_back(24, 10, false, random);
    train(plain, training, 40, 3e-3f, random);
    std::printf("A network of three layers on %zu handwritten digits, float32: %.2f %% right\n\n%-28s %10s %10s\n", test.size(),
                100 * top1(plain, test), "activations, weights", "PTQ", "QAT");

    struct row {
        const char* name;
        qk::format activation, weight;
    };
    const row rows[] = {{"uint4, int4", qk::uint4, qk::int4},
                        {"uint3, int3", qk::integer{.bits = 3, .is_signed = false}, qk::integer{.bits = 3}},
                        {"uint2, int2", qk::uint2, qk::int2},
                        {"mxfp4, mxfp4", qk::mxfp4, qk::mxfp4}};
    double before = 0, after = 0;
    for (const row& r : rows) {
        network net = plain;
        quantize(net, training, r.activation, r.weight);
        const double ptq = top1(net, test);
        train(net, training, 20, 1e-3f, random);
        const double qat = top1(net, test);
        std::printf("%-28s %8.2f %% %8.2f %%\n", r.name, 100 * ptq, 100 * qat);
        before += ptq, after += qat;
    }
    return after > before ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "qat: %s\n", e.what());
    return 2;
}
