// SPDX-License-Identifier: Apache-2.0
// Tensors of 16-bit floats: rounded, observed and taken back through a gradient where they lie.
#include <qk/qk.hpp>
#include <qk/reference.hpp>

#include "same.hpp"

int main() {
    std::vector<qk::bfloat16> x, grad(640, qk::narrow<qk::bfloat16>(0.5f)), y(640), in(640);
    for (const float v : numbers(640)) x.push_back(qk::narrow<qk::bfloat16>(v));
    std::vector<float> wide, expected(640), got, to_float(640);
    for (const qk::bfloat16 v : x) wide.push_back(qk::widen(v));

    qk::fake_quantize<qk::mxfp4>(x, y);
    qk::reference::fake_quantize(qk::mxfp4, wide, expected);
    for (std::size_t i = 0; i < y.size(); ++i)
        got.push_back(qk::widen(y[i])), expected[i] = qk::widen(qk::narrow<qk::bfloat16>(expected[i]));
    if (!same(got, expected)) return 1;

    qk::observed_range range;
    range.observe(x);
    const qk::affine scale = qk::scale_from(qk::int8, range);
    qk::fake_quantize<qk::int8>(x, to_float, scale);
    qk::reference::fake_quantize(qk::int8, wide, expected, scale);
    if (!same(to_float, expected)) return 2;

    qk::fake_quantize_backward<qk::int8>(x, grad, in, qk::affine{.scale = range.absmax() / 254});
    std::size_t stopped = 0;
    for (const qk::bfloat16 g : in) stopped += qk::widen(g) == 0;
    return stopped != 0 && stopped < 320 ? 0 : 3;
}
