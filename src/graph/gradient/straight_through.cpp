// SPDX-License-Identifier: Apache-2.0
// Definitions of straight_through.hpp.
#include "graph/gradient/straight_through.hpp"

#include "graph/evaluate/execute/quantize_value.hpp"
#include "qk/backward.hpp"

namespace qk::graph::gradient {

namespace {
bool has_scale(const quantizer& q) { return !is_block_format(q.format) && !q.scale.empty() && !q.dynamic; }
}  // namespace

bool scale_learns(const quantizer& q) {
    const integer* whole = std::get_if<integer>(&q.format);
    return has_scale(q) && (whole == nullptr || !whole->pow2);
}

tensor straight_through(const quantizer& q, const tensor& x, const tensor& g, std::vector<double>* by_scale) {
    if (x.type() != data_type::float32 || g.type() != data_type::float32 || !has_scale(q)) return g;
    tensor d(data_type::float32, x.shape());
    const float *from = x.as<float>().data(), *given = g.as<float>().data();
    float* to = d.as<float>().data();
    const auto zero = [&](std::size_t i) { return q.zero_point.empty() ? 0 : q.zero_point[q.zero_point.size() == 1 ? 0 : i]; };
    const auto run = [&](const float* a, const float* b, float* y, std::size_t n, std::size_t i) {
        const scale_gradient s = fake_quantize_backward(q.format, {a, n}, {b, n}, {y, n}, affine{q.scale[i], zero(i)}, q.semantics);
        if (by_scale != nullptr) (*by_scale)[i] += s.scale;
    };
    if (q.scale.size() == 1) {
        run(from, given, to, x.size(), 0);
        return d;
    }
    // Values that share a scale lie apart in memory: they are gathered.
    const along_axis a = execute::axis_of(x.shape(), q.axis, q.flatten);
    const std::size_t length = q.block_size > 0 ? static_cast<std::size_t>(q.block_size) : 1, runs = (a.length + length - 1) / length;
    if (q.block_size == 0 && a.inner >= 16) {  // long runs are contiguous: no need to gather
        for (std::size_t o = 0; o < a.outer; ++o)
            for (std::size_t l = 0; l < a.length; ++l) {
                const std::size_t first = (o * a.length + l) * a.inner;
                run(from + first, given + first, to + first, a.inner, l);
            }
        return d;
    }
    std::vector<float> values, gradients, results;
    for (std::size_t o = 0; o < (q.block_size > 0 ? a.outer : 1); ++o)
        for (std::size_t r = 0; r < runs; ++r)
            for (std::size_t i = 0; i < (q.block_size > 0 ? a.inner : 1); ++i) {
                std::vector<std::size_t> at;
                if (q.block_size > 0) {
                    for (std::size_t l = r * length; l < std::min((r + 1) * length, a.length); ++l)
                        at.push_back((o * a.length + l) * a.inner + i);
                } else {
                    for (std::size_t p = 0; p < a.outer; ++p)
                        for (std::size_t k = 0; k < a.inner; ++k) at.push_back((p * a.length + r) * a.inner + k);
                }
                values.resize(at.size()), gradients.resize(at.size()), results.resize(at.size());
                for (std::size_t k = 0; k < at.size(); ++k) values[k] = from[at[k]], gradients[k] = given[at[k]];
                run(values.data(), gradients.data(), results.data(), at.size(), q.block_size > 0 ? (o * runs + r) * a.inner + i : r);
                for (std::size_t k = 0; k < at.size(); ++k) to[at[k]] = results[k];
            }
    return d;
}

}  // namespace qk::graph::gradient
