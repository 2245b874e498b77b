// SPDX-License-Identifier: Apache-2.0
// Training of int4 weights with a learned scale for each output channel: a few steps of LSQ make the error of each channel smaller.
#include <qk/backward.hpp>
#include <qk/scales.hpp>

#include "same.hpp"

int main() {
    const std::size_t channels = 4, size = 96;
    const qk::along_axis axis{1, channels, size};
    const std::vector<float> w = numbers(channels * size);
    std::vector<float> scale(channels), y(w.size()), grad(w.size()), in(w.size());
    qk::scales_from(qk::int4, w, {.axis = axis}, qk::scale_choice::absmax, scale);
    std::vector<double> by_scale(channels), first(channels), last(channels);
    for (int step = 0; step < 200; ++step) {
        const qk::per_channel scales{scale, {}, axis};
        qk::fake_quantize<qk::int4>(w, y, scales);
        last.assign(channels, 0.0);
        for (std::size_t i = 0; i < w.size(); ++i) {
            grad[i] = y[i] - w[i];
            last[i / size] += static_cast<double>(grad[i]) * static_cast<double>(grad[i]);
        }
        if (step == 0) first = last;
        qk::fake_quantize_backward<qk::int4>(w, grad, in, scales, {by_scale, {}});
        for (std::size_t c = 0; c < channels; ++c) scale[c] -= static_cast<float>(2e-4 * by_scale[c]);
    }
    for (std::size_t c = 0; c < channels; ++c) {
        if (!(last[c] < first[c])) return 1;
    }
}
