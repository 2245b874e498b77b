// SPDX-License-Identifier: Apache-2.0
// Scales that are searched where values share a float32 scale: integers (with their zero point), small floats and tables.
// docs/reference/numerics.md, "Searched scales without blocks of their own".
#pragma once

#include <cstdint>
#include <span>

#include "qk/graph/calibrate/scales.hpp"

namespace qk::graph::detail {

/// Has a format a scale of its own choice, and so few levels that scale_rule::search tries them all? Blocks search in the kernels.
bool has_searched_scale(const qk::format& f);

/// Which zero points a search may choose, from the first to the last.
struct zero_points {
    std::int64_t first = 0, last = 0;
};

/// Returns the scale, and for integers the zero point, of least error by how.scale_objective on these values, rounded to nearest. `start`
/// is what a rule chose: it wins where nothing is better. `weights`: of each value; empty: all 1.
///
/// Nothing but float32 limits a scale, so the search goes over codes. From large scales down to small ones a value's code changes at
/// known scales, and between two of them the error is a parabola (mae: a sum of lines) with its least value at a scale that is known, too.
/// The search ends where the clipped values alone cost as much as the best that was found. So the result is the best of all scales, but
/// for float32's rounding. Zero points are tried one after the other: all that may be of up to 5 bits, else 4 on either side of the
/// rule's.
scale_pair searched_scale(const qk::format& f, const qk::semantics& how, zero_points allowed, scale_pair start,
                          std::span<const float> values, std::span<const float> weights = {});

/// Returns a quantizer of weights with each of its scales searched again, an element's error weighted as `weights` (as many as elements)
/// say. Zero points stay among those that it has.
quantizer weighed_quantizer(quantizer chosen, const tensor& value, std::span<const float> weights);

}  // namespace qk::graph::detail
