// SPDX-License-Identifier: Apache-2.0
// Gradients through fake_quantize: in a source of its own, since it compiles the kernels of elementwise formats.
#include "qk/backward.hpp"

#include <nanobind/stl/tuple.h>

#include "arrays.hpp"
#include "interpreter_lock.hpp"

namespace qk::python {
namespace {

/// Fills grad_in; adds for each entry of scale what the loss changes with it, and with its zero point.
void backward(const spec& s, nb::handle x_object, nb::handle out_object, nb::handle in_object, nb::handle scale, nb::handle zero_point,
              int scale_axis, std::size_t scale_block, nb::handle by_scale_object, nb::handle by_zero_object) {
    const buffer x(x_object, false), out(out_object, false), in(in_object, true), by_scale(by_scale_object, true),
        by_zero(by_zero_object, true);
    const compare::conversion c = conversion_of(s, x.shape(), x.shape().empty() ? -1 : 0, {scale, zero_point, scale_axis, scale_block});
    const std::span<const float> values = x.as<const float>(), from = out.as<const float>();
    const std::span<float> to = in.as<float>();
    const std::span<double> scales(static_cast<double*>(by_scale.memory()), by_scale.size()),
        zeros(static_cast<double*>(by_zero.memory()), by_zero.size());
    const without_lock others_may_run;
    const auto part = [&](std::size_t first, std::size_t n, std::size_t entry, affine a) {
        const scale_gradient g = fake_quantize_backward(c.format, values.subspan(first, n), from.subspan(first, n), to.subspan(first, n), a,
                                                        from_element(c.how, first));
        if (entry < scales.size()) scales[entry] += g.scale, zeros[entry] += g.zero_point;
    };
    if (c.given == compare::conversion::granularity::none || c.given == compare::conversion::granularity::tensor)
        return part(0, x.size(), 0, is_block_format(c.format) ? affine{} : c.one());
    const along_axis a = c.scale_blocks;
    const codec_parameters p = parameters_of(c);
    for (std::size_t o = 0; o < a.outer; ++o)
        for (std::size_t l = 0; l < a.length; ++l) {
            const bool together = c.given == compare::conversion::granularity::channel;  // one scale for all of `inner`
            const std::size_t run = together ? a.inner : 1;
            for (std::size_t i = 0; i < a.inner; i += run) {
                const std::size_t entry = p.index(a, o, l, i);
                part((o * a.length + l) * a.inner + i, run, entry, {c.scale[entry], c.zero_point.empty() ? 0 : c.zero_point[entry]});
            }
        }
}

}  // namespace

void add_backward(nb::module_& m) {
    m.def("backward", &backward, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
          nb::arg(), nb::arg());
}

}  // namespace qk::python
