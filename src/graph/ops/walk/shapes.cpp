// SPDX-License-Identifier: Apache-2.0
// Rules of the walk (walk.hpp) for operators that move elements, and for those that make shapes; long because each of these has one.
#include <algorithm>
#include <limits>
#include <numeric>

#include "graph/ops/walk/call.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// A shape that is given for each of the counts, as the shape of one sample and the axis that grows with their number.
struct grown_shape {
    dims one;
    int axis = -1;
};

/// Returns nullopt if a length is neither the same for all counts nor a multiple of them, or two of them grow.
static std::optional<grown_shape> grown(const std::array<dims, 4>& shapes, const walk_counts& counts) {
    grown_shape g{shapes[0], -1};
    for (std::size_t k = 0; k < g.one.size(); ++k) {
        bool same = true, multiple = true;
        if (g.one[k] > walk_call::longest) return std::nullopt;
        for (std::size_t at = 0; at < counts.size(); ++at) {
            if (shapes[at].size() != g.one.size()) return std::nullopt;
            same = same && shapes[at][k] == g.one[k];
            multiple = multiple && shapes[at][k] == g.one[k] * counts[at];
        }
        if (same) continue;
        if (!multiple || g.axis >= 0) return std::nullopt;
        g.axis = static_cast<int>(k);
    }
    return g;
}

static bool is_far(std::int64_t v) { return v > walk_call::longest || v < -walk_call::longest; }

static constexpr std::int64_t most_axes = 64;  // of a value whose shape is not known

static std::int64_t product_of(const dims& d, std::size_t from, std::size_t to) {
    std::int64_t n = 1;
    for (std::size_t k = from; k < to; ++k) {
        if (d[k] < 0 || (d[k] != 0 && n > (std::int64_t{1} << 52) / d[k])) return -1;
        n *= d[k];
    }
    return n;
}
static std::int64_t product_of(const dims& d) { return product_of(d, 0, d.size()); }

void walk_call::regroup(std::size_t k, const walked& x, std::array<dims, 4> shapes) {
    if (x.numbers == walked::numbering::first) mixed("computes with the number of each sample");
    if (!x.ranked && has_samples()) undecided("reshapes a value of a rank that is not known");
    const bool known = x.ranked && product_of(x.shape) >= 0;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const auto left = std::ranges::find(shapes[at], -1);
        if (left == shapes[at].end()) continue;
        if (!known) {  // only what is in front of it is known
            if (left == shapes[at].begin() && x.is_rows()) undecided("reshapes by a length that is not known");
            continue;
        }
        *left = 1;
        const std::int64_t others = product_of(shapes[at]), all = product_of(shape_for(x, (*counts_)[at]));
        const bool fits = others >= 1 && all % others == 0;
        if (!fits && has_samples()) undecided("reshapes to lengths that do not fit");
        *left = fits ? all / others : -1;
    }
    if (!x.is_rows()) {
        const auto g = grown(shapes, *counts_);
        if (!g || g->axis >= 0) undecided("reshapes to lengths that do not fit");
        return make(k, x, g->one);
    }
    const auto at = static_cast<std::size_t>(x.axis);
    const auto g = grown(shapes, *counts_);
    if (!known) {
        // [N, a, ?] to [N, b, ?]: each sample keeps its elements, however many they are.
        const bool leads = x.axis == 0 && x.outer == 1 && g && g->axis == 0;
        if (!leads || x.numbers != walked::numbering::none) undecided("reshapes a value whose lengths are not known");
        return make(k, x, g->one, 0);
    }
    if (!g) mixed("reshapes across the samples");
    if (g->axis < 0) undecided("reshapes to lengths that do not fit");
    // Sample by sample the elements lie in `before` runs; in the new shape they must lie in as many.
    const auto to = static_cast<std::size_t>(g->axis);
    const std::int64_t before = product_of(x.shape, 0, at) * x.outer, front = product_of(g->one, 0, to);
    if (product_of(g->one) != product_of(x.shape)) undecided("reshapes to lengths that do not fit");
    if (front < 1 || before % front != 0 || g->one[to] % (before / front) != 0) mixed("reshapes across the samples");
    walked v = x;
    v.outer = before / front;
    make(k, v, g->one, g->axis);
    if (x.numbers == walked::numbering::whole && k < out.size()) out[k].numbers = x.numbers;
}

void walk_call::spread(std::size_t k, const walked* x, const std::array<dims, 4>& shapes) {
    if (x != nullptr && x->numbers == walked::numbering::first) mixed("computes with the number of each sample");
    const auto g = grown(shapes, *counts_);
    if (!g) undecided("makes a shape that does not grow with the samples along one axis");
    walked v;
    if (x != nullptr) v = *x;
    if (x != nullptr && x->is_rows()) {
        if (g->axis < 0) undecided("makes a shape that does not grow with the samples");
        const std::int64_t at = x->axis + static_cast<std::int64_t>(g->one.size()) - static_cast<std::int64_t>(x->shape.size());
        if (at != g->axis || g->one[static_cast<std::size_t>(at)] != x->shape[static_cast<std::size_t>(x->axis)])
            mixed("repeats values along other samples");
        make(k, *x, g->one, at);
        if (x->numbers == walked::numbering::whole && k < out.size()) out[k].numbers = x->numbers;
        return;
    }
    if (g->axis >= 0) v.is = walked::kind::rows, v.outer = 1;
    make(k, v, g->one, g->axis);
}

void follow_reshape(walk_call& c) {
    const walked& x = c.has_samples() ? c.ranked(0) : c.in(0);
    const bool zero_copies = c.view().get_int("allowzero", 0) == 0;
    std::array<dims, 4> shapes;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        std::optional<dims> to = c.version() < 5 ? std::optional(c.view().get_ints("shape")) : c.integers(1, at);
        if (!to && !c.has_samples() && c.has(1) && c.in(1).shape.size() == 1 && c.in(1).shape[0] >= 0 && c.in(1).shape[0] <= most_axes)
            return c.make(0, walked{}, dims(static_cast<std::size_t>(c.in(1).shape[0]), -1));
        if (!to) c.undecided("takes a shape that is not known");
        const dims from = shape_for(x, c.counts()[at]);
        for (std::size_t k = 0; k < to->size(); ++k)
            if ((*to)[k] == 0 && zero_copies) {
                const bool is_known = k < from.size() && from[k] >= 0;
                if (!is_known && c.has_samples()) c.undecided("copies a length that is not known");
                (*to)[k] = is_known ? from[k] : -1;
            }
        shapes[at] = std::move(*to);
    }
    c.regroup(0, x, std::move(shapes));
}

void follow_flatten(walk_call& c) {
    const walked& x = c.ranked(0);
    const std::int64_t rank = c.rank(0), given = c.view().get_int("axis", 1), axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis > rank) c.undecided("has an axis outside of the rank");
    std::array<dims, 4> shapes;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const dims from = shape_for(x, c.counts()[at]);
        shapes[at] = {product_of(from, 0, static_cast<std::size_t>(axis)), product_of(from, static_cast<std::size_t>(axis), from.size())};
    }
    c.regroup(0, x, std::move(shapes));
}

/// Returns the axes that a node names by an input (`since` this version) or by an attribute; nullopt if it names none.
static std::optional<dims> named_axes(const walk_call& c, std::size_t input, int since) {
    if (c.version() < since) return c.view().has("axes") ? std::optional(c.view().get_ints("axes")) : std::nullopt;
    if (!c.has(input)) return std::nullopt;
    auto axes = c.integers(input);
    if (!axes) c.undecided("takes axes that are not known");
    return axes;
}

void follow_unsqueeze(walk_call& c) {
    const walked& x = c.ranked(0);
    const auto axes = named_axes(c, 1, 13);
    if (!axes) c.undecided("takes axes that are not known");
    const std::int64_t rank = c.rank(0) + static_cast<std::int64_t>(axes->size());
    std::vector<char> added(static_cast<std::size_t>(rank), 0);
    for (const std::int64_t a : *axes) added[static_cast<std::size_t>(c.normal(a, rank))] = 1;
    dims shape;
    std::size_t from = 0;
    std::int64_t axis = -1;
    for (std::size_t k = 0; k < added.size(); ++k) {
        if (added[k] == 0 && from >= x.shape.size()) c.undecided("has an axis twice");
        if (added[k] == 0 && static_cast<int>(from) == x.axis) axis = static_cast<std::int64_t>(k);
        shape.push_back(added[k] != 0 ? 1 : x.shape[from++]);
    }
    c.make(0, x, shape, axis);
    if (x.numbers == walked::numbering::first) c.mixed("computes with the number of each sample");
    if (!c.out.empty()) c.out[0].numbers = x.numbers;
}

void follow_squeeze(walk_call& c) {
    const walked& x = c.ranked(0);
    const auto axes = named_axes(c, 1, 13);
    std::vector<char> gone(x.shape.size(), 0);
    if (axes && !axes->empty()) {
        for (const std::int64_t a : *axes) gone[static_cast<std::size_t>(c.normal(a, c.rank(0)))] = 1;
    } else {
        for (std::size_t k = 0; k < gone.size(); ++k) {
            if (x.shape[k] < 0) c.undecided("removes whatever axis has one element");
            gone[k] = x.shape[k] == 1;
        }
    }
    dims shape;
    std::int64_t axis = -1;
    for (std::size_t k = 0; k < gone.size(); ++k) {
        if (static_cast<int>(k) == x.axis) {
            if (gone[k] != 0) c.mixed("removes the axis of the samples where there is one");
            axis = static_cast<std::int64_t>(shape.size());
        }
        if (gone[k] == 0) shape.push_back(x.shape[k]);
    }
    c.make(0, x, shape, axis);
    if (x.numbers == walked::numbering::first) c.mixed("computes with the number of each sample");
    if (!c.out.empty()) c.out[0].numbers = x.numbers;
}

void follow_transpose(walk_call& c) {
    const walked& x = c.ranked(0);
    auto perm = c.view().get_ints("perm");
    if (perm.empty())
        for (std::int64_t k = c.rank(0); k-- > 0;) perm.push_back(k);
    if (static_cast<std::int64_t>(perm.size()) != c.rank(0)) c.undecided("has a perm of another rank");
    dims shape;
    std::int64_t axis = -1;
    for (std::size_t k = 0; k < perm.size(); ++k) {
        const std::int64_t from = c.normal(perm[k], c.rank(0));
        if (from == x.axis) axis = static_cast<std::int64_t>(k);
        shape.push_back(x.shape[static_cast<std::size_t>(from)]);
    }
    c.make(0, x, shape, axis);
}

void follow_expand(walk_call& c) {
    const walked& x = c.ranked(0);
    std::array<dims, 4> shapes;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const auto to = c.integers(1, at);
        if (!to) c.undecided("takes a shape that is not known");
        const dims from = shape_for(x, c.counts()[at]);
        dims& shape = shapes[at];
        shape.assign(std::max(from.size(), to->size()), 1);
        for (std::size_t k = 0; k < shape.size(); ++k) {
            const std::int64_t a = k < from.size() ? from[from.size() - 1 - k] : 1, b = k < to->size() ? (*to)[to->size() - 1 - k] : 1;
            if (a != b && a != 1 && b != 1 && a >= 0) c.undecided("takes a shape that does not fit");
            shape[shape.size() - 1 - k] = b == 1 ? a : b;
        }
    }
    c.spread(0, &x, shapes);
}

void follow_constant_of_shape(walk_call& c) {
    std::array<dims, 4> shapes;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const auto to = c.integers(0, at);
        if (!to) c.undecided("takes a shape that is not known");
        shapes[at] = *to;
    }
    c.spread(0, nullptr, shapes);
}

void follow_range(walk_call& c) {
    std::array<dims, 4> shapes;
    bool numbered = c.has_samples();
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const auto start = c.integers(0, at), limit = c.integers(1, at), step = c.integers(2, at);
        if (!start || !limit || !step || start->size() != 1 || limit->size() != 1 || step->size() != 1) {
            if (c.has_samples()) c.undecided("makes a length that is not known");
            return c.make(0, walked{}, {-1});
        }
        numbered = numbered && (*start)[0] == 0 && (*step)[0] == 1 && (*limit)[0] == c.counts()[at];
        shapes[at] = {(*limit)[0]};
    }
    if (!numbered) {
        for (std::size_t i = 0; i < 3; ++i)
            if (c.in(i).is == walked::kind::counted) c.mixed("counts along the samples");
        const std::int64_t start = (*c.integers(0))[0], limit = (*c.integers(1))[0], step = (*c.integers(2))[0];
        if (step == 0 || is_far(start) || is_far(limit) || is_far(step)) c.undecided("makes a length that is not known");
        const std::int64_t n = std::max<std::int64_t>(0, (limit - start + step - (step > 0 ? 1 : -1)) / step);
        c.make(0, walked{}, {n});
        return;
    }
    c.spread(0, nullptr, shapes);
    c.out[0].numbers = walked::numbering::whole;
}

void follow_tile(walk_call& c) {
    const walked& x = c.ranked(0);
    std::array<dims, 4> shapes;
    std::int64_t along = 1;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const auto repeats = c.integers(1, at);
        if (!repeats || repeats->size() != x.shape.size()) c.undecided("repeats as often as is not known");
        shapes[at] = x.shape;
        for (std::size_t k = 0; k < shapes[at].size(); ++k) {
            if ((*repeats)[k] < 0 || (*repeats)[k] > (1 << 20)) c.undecided("repeats very often");
            if (static_cast<int>(k) == x.axis) {
                along = (*repeats)[k];
                if (c.in(1).is != walked::kind::shared && along != 1) c.undecided("repeats as often as there are samples");
                shapes[at][k] = x.shape[k] < 0 ? -1 : x.shape[k] * c.counts()[at];
                continue;
            }
            if ((*repeats)[k] != 1 && x.shape[k] != 1 && c.in(1).is != walked::kind::shared)
                c.undecided("repeats as often as there are samples");
            if (shapes[at][k] >= 0) shapes[at][k] *= (*repeats)[k];
        }
    }
    if (along != 1) {
        if (x.outer != 1 || along < 1) c.undecided("repeats the samples");
        dims shape = shapes[0];
        shape[static_cast<std::size_t>(x.axis)] *= along;
        walked v = x;
        v.outer = along;
        return c.make(0, v, shape);
    }
    c.spread(0, &x, shapes);
}

/// Joins inputs [from, ...) with a step along an axis.
static void join_values(walk_call& c, std::size_t from, std::size_t step, std::int64_t given) {
    const walked* first = nullptr;
    bool rows = false;
    for (std::size_t i = from; i < c.inputs(); i += step) {
        if (first == nullptr || (!rows && c.is_rows(i))) first = &c.ranked(i);
        rows = rows || c.is_rows(i);
    }
    if (first == nullptr) c.undecided("lacks an input");
    const std::int64_t axis = c.normal(given, static_cast<std::int64_t>(first->shape.size()));
    const auto k = static_cast<std::size_t>(axis);
    dims shape = first->shape;
    shape[k] = 0;
    std::int64_t outer = 0;
    for (std::size_t i = from; i < c.inputs(); i += step) {
        const walked& v = c.ranked(i);
        if (v.shape.size() != shape.size()) c.undecided("joins values of different ranks");
        if (rows && !v.is_rows()) c.mixed("joins samples with a value that is the same for all of them");
        if (rows && v.axis != first->axis) c.mixed("joins values whose samples stand along different axes");
        if (rows && axis == v.axis) {
            if (v.shape[k] < 0 || v.shape[k] / v.outer != first->shape[k] / first->outer) c.mixed("joins along the samples");
            outer += v.outer;
        } else if (rows &&
                   (v.outer != first->outer || v.shape[static_cast<std::size_t>(v.axis)] != shape[static_cast<std::size_t>(v.axis)])) {
            c.undecided("joins values of different numbers of rows");
        }
        shape[k] = v.shape[k] < 0 || shape[k] < 0 ? -1 : shape[k] + v.shape[k];
        for (std::size_t d = 0; d < shape.size(); ++d)
            if (d != k && !rows) shape[d] = common_length(shape[d], v.shape[d]);
            else if (d != k && shape[d] < 0) shape[d] = v.shape[d];
    }
    walked like = *first;
    if (rows && axis == first->axis) like.outer = outer;
    c.make(0, like, shape);
    using numbering = walked::numbering;
    for (std::size_t i = from; i < c.inputs(); i += step) {
        const walked& v = c.in(i);
        if (v.numbers == numbering::none) continue;
        const bool leads = i == from && k + 1 == shape.size() && v.axis != axis && (v.numbers == numbering::first || v.shape[k] == 1);
        if (!leads) c.mixed("computes with the number of each sample");
        c.out[0].numbers = numbering::first;
    }
}
void follow_concat(walk_call& c) { join_values(c, 0, 1, c.view().get_int("axis", c.version() < 4 ? 1 : 0)); }
void follow_qlinear_concat(walk_call& c) { join_values(c, 2, 3, c.view().get_int("axis", 0)); }

void follow_split(walk_call& c) {
    const walked& x = c.ranked(0);
    const std::int64_t axis = c.axis_attribute("axis", 0, c.rank(0));
    const std::size_t k = static_cast<std::size_t>(axis), n = c.out.size();
    if (axis == x.axis) c.mixed("splits the samples");
    std::optional<dims> sizes;
    if (c.version() >= 13 && c.has(1)) {
        sizes = c.integers(1);
        if (!sizes && c.has_samples()) c.undecided("splits into lengths that are not known");
        if (!sizes) sizes = dims(n, -1);
    } else if (c.version() < 13 && c.view().has("split")) {
        sizes = c.view().get_ints("split");
    }
    const std::int64_t parts = c.view().get_int("num_outputs", static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) {
        dims shape = x.shape;
        const std::int64_t all = shape[k], each = all < 0 || parts < 1 ? -1 : (all + parts - 1) / parts;
        if (sizes) shape[k] = i < sizes->size() ? (*sizes)[i] : -1;
        else shape[k] = each < 0 ? -1 : std::max<std::int64_t>(0, std::min(each, all - each * static_cast<std::int64_t>(i)));
        c.make(i, x, shape);
    }
}

/// The range that a Slice takes of one axis of this length.
static std::int64_t sliced_length(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t length) {
    if (start < 0) start = start < -length ? 0 : start + length;
    if (end < 0) end = end < -length ? (step < 0 ? -1 : 0) : end + length;
    if (step > 0) {
        start = std::min(start, length), end = std::min(end, length);
        return start >= end ? 0 : (end - start - 1) / step + 1;
    }
    start = std::min(start, length - 1), end = std::max<std::int64_t>(std::min(end, length - 1), -1);
    return start <= end ? 0 : (start - end - 1) / (step == std::numeric_limits<std::int64_t>::min() ? length + 1 : -step) + 1;
}

void follow_slice(walk_call& c) {
    const walked& x = c.ranked(0);
    const bool old = c.version() < 10;
    const auto listed = [&](std::size_t input, const char* name, std::size_t at) -> std::optional<dims> {
        if (old) return c.view().has(name) ? std::optional(c.view().get_ints(name)) : std::nullopt;
        return c.has(input) ? c.integers(input, at) : std::nullopt;
    };
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "places");
    std::vector<std::int64_t> axes;
    if (old ? c.view().has("axes") : c.has(3)) {
        const auto given = listed(3, "axes", 0);
        if (!given && !c.has_samples()) return c.make(0, walked{}, dims(x.shape.size(), -1));
        if (!given || (!old && c.in(3).is != walked::kind::shared)) c.undecided("takes axes that are not known");
        for (const std::int64_t a : *given) axes.push_back(c.normal(a, c.rank(0)));
    } else {
        const auto starts = listed(1, "starts", 0);
        const std::size_t n = starts                                                           ? starts->size()
                              : !old && c.ranked(1).shape.size() == 1 && c.in(1).shape[0] >= 0 ? static_cast<std::size_t>(c.in(1).shape[0])
                                                                                               : x.shape.size();
        for (std::size_t a = 0; a < n && a < x.shape.size(); ++a) axes.push_back(static_cast<std::int64_t>(a));
    }
    dims shape = x.shape;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const auto k = static_cast<std::size_t>(axes[i]);
        for (std::size_t at = 0; at < c.counts().size(); ++at) {
            const auto starts = listed(1, "starts", at), ends = listed(2, "ends", at), steps = listed(4, "steps", at);
            const bool known =
                starts && ends && i < starts->size() && i < ends->size() && (old || !c.has(4) || (steps && i < steps->size()));
            const std::int64_t step = known && steps && i < steps->size() ? (*steps)[i] : 1;
            const std::int64_t length = x.shape[k];
            if (static_cast<int>(k) == x.axis) {
                const bool all = known && step == 1 && length >= 0 && (*starts)[i] == 0 && (*ends)[i] >= length * c.counts()[at];
                if (!all) c.mixed("takes some of the samples");
                continue;
            }
            const std::int64_t taken = !known || length < 0 || step == 0 ? -1 : sliced_length((*starts)[i], (*ends)[i], step, length);
            if (at > 0 && taken != shape[k]) c.mixed("takes as many elements as there are samples");
            shape[k] = taken;
        }
    }
    c.make(0, x, shape);
}

void follow_pad(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(2, "value");
    const std::size_t rank = x.shape.size();
    std::vector<std::int64_t> axes;
    if (c.version() >= 18 && c.has(3)) {
        const auto given = c.integers(3);
        if (!given) c.undecided("takes axes that are not known");
        for (const std::int64_t a : *given) axes.push_back(c.normal(a, c.rank(0)));
    } else {
        for (std::size_t a = 0; a < rank; ++a) axes.push_back(static_cast<std::int64_t>(a));
    }
    const auto pads = c.version() < 11 ? std::optional(c.view().get_ints(c.view().has("paddings") ? "paddings" : "pads")) : c.integers(1);
    if (pads && pads->size() != 2 * axes.size()) c.undecided("has a wrong number of pads");
    if (!pads && x.is_rows() && std::ranges::find(axes, x.axis) != axes.end()) c.undecided("takes pads that are not known");
    dims shape = x.shape;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const auto k = static_cast<std::size_t>(axes[i]);
        if (!pads) {
            shape[k] = -1;
            continue;
        }
        if (is_far((*pads)[i]) || is_far((*pads)[i + axes.size()])) c.undecided("pads very much");
        const std::int64_t more = (*pads)[i] + (*pads)[i + axes.size()];
        if (static_cast<int>(k) == x.axis && ((*pads)[i] != 0 || (*pads)[i + axes.size()] != 0)) c.mixed("pads along the samples");
        if (shape[k] >= 0) shape[k] += more;
    }
    c.make(0, x, shape);
}

static void gathered(walk_call& c, std::int64_t axis) {
    const walked &data = c.ranked(0), &at = c.ranked(1);
    const auto k = static_cast<std::size_t>(axis);
    dims shape(data.shape.begin(), data.shape.begin() + axis);
    shape.insert(shape.end(), at.shape.begin(), at.shape.end());
    shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
    const bool own_row = data.axis == axis && at.numbers == walked::numbering::whole && data.outer == 1 && data.shape[k] == 1;
    if (data.is_rows() && at.is_rows() && !own_row) c.mixed("takes elements of all samples");
    if (data.axis == axis && !own_row) c.mixed("takes some of the samples");
    if (at.numbers != walked::numbering::none && !own_row) c.mixed("computes with the number of each sample");
    if (at.is_rows()) return c.make(0, at, shape, axis + at.axis);
    c.make(0, data, shape, data.axis < axis ? data.axis : data.axis - 1 + static_cast<std::int64_t>(at.shape.size()));
}
void follow_gather(walk_call& c) { gathered(c, c.axis_attribute("axis", 0, c.rank(0))); }
void follow_gather_block_quantized(walk_call& c) {
    for (std::size_t i : {0, 2, 3}) c.shared(i, "table");
    gathered(c, c.axis_attribute("gather_axis", 0, c.rank(0)));
    if (!c.out.empty()) std::fill(c.out[0].shape.begin() + c.out[0].axis + 1, c.out[0].shape.end(), -1);  // codes may be packed
}

/// Requires that all inputs with samples have them along the same axis, in as many rows; returns one of them.
static const walked& side_by_side_rows(const walk_call& c, std::initializer_list<std::size_t> which, std::int64_t axis) {
    const walked* first = &c.ranked(*which.begin());
    bool any = false;
    for (const std::size_t i : which) any = any || c.is_rows(i);
    for (const std::size_t i : which) {
        const walked& v = c.ranked(i);
        if (!any) continue;
        if (!v.is_rows()) c.mixed("combines samples with a value of all of them");
        if (v.axis == axis) c.mixed("takes elements along the samples");
        if (v.axis != first->axis || v.outer != 1 || first->outer != 1 ||
            v.shape[static_cast<std::size_t>(v.axis)] != first->shape[static_cast<std::size_t>(v.axis)])
            c.mixed("combines values whose samples lie differently");
    }
    return *first;
}

void follow_gather_elements(walk_call& c) {
    side_by_side_rows(c, {0, 1}, c.axis_attribute("axis", 0, c.rank(0)));
    c.keep(0, c.in(1));
}

/// Returns whether places begin with the number of the own sample, and say nothing else by it.
static bool names_own_row(const walked& at) {
    return at.numbers == walked::numbering::first || (at.numbers == walked::numbering::whole && at.shape.back() == 1);
}

void follow_gather_nd(walk_call& c) {
    const walked &data = c.ranked(0), &at = c.ranked(1);
    const std::int64_t batch = c.view().get_int("batch_dims", 0), width = at.shape.empty() ? -1 : at.shape.back(), r = c.rank(1);
    if (width < 0 || batch + width > c.rank(0) || batch >= r) c.undecided("takes places that are not known");
    dims shape(at.shape.begin(), at.shape.end() - 1);
    shape.insert(shape.end(), data.shape.begin() + batch + width, data.shape.end());
    if (data.is_rows() && at.is_rows()) {
        const bool numbered = batch == 0 && data.axis == 0 && at.axis == 0 && r > 1 && names_own_row(at);
        const bool paired = data.axis < batch && data.axis == at.axis;
        const bool alike = data.outer == 1 && at.outer == 1 &&
                           data.shape[static_cast<std::size_t>(data.axis)] == at.shape[static_cast<std::size_t>(at.axis)];
        if (!(numbered || (paired && at.numbers == walked::numbering::none)) || !alike || (numbered && data.shape[0] != 1))
            c.mixed("takes elements of all samples");
        return c.make(0, at, shape);
    }
    if (at.is_rows()) {
        if (at.axis < batch || at.axis == r - 1 || at.numbers != walked::numbering::none) c.mixed("takes elements of all samples");
        return c.make(0, at, shape);
    }
    if (data.is_rows() && data.axis < batch + width) c.mixed("takes some of the samples");
    c.make(0, data, shape, data.axis - batch - width + (r - 1));
}

void follow_scatter_elements(walk_call& c) {
    side_by_side_rows(c, {0, 1, 2}, c.axis_attribute("axis", 0, c.rank(0)));
    c.keep(0, c.in(0));
}

void follow_scatter_nd(walk_call& c) {
    const walked &data = c.ranked(0), &at = c.ranked(1), &more = c.ranked(2);
    const std::int64_t width = at.shape.empty() ? -1 : at.shape.back(), r = c.rank(1);
    if (width < 0 || width > c.rank(0)) c.undecided("takes places that are not known");
    if (!data.is_rows()) {
        if (at.is_rows() || more.is_rows()) c.mixed("puts values of all samples into one");
        return c.keep(0, data);
    }
    const auto k = static_cast<std::size_t>(data.axis);
    if (at.is_rows()) {
        const bool numbered = data.axis == 0 && at.axis == 0 && r > 1 && names_own_row(at) && data.outer == 1 && at.outer == 1 &&
                              data.shape[0] == 1 && at.shape[0] == 1;
        if (!numbered || !more.is_rows() || more.axis != 0 || more.outer != 1 || more.shape[0] != 1)
            c.mixed("puts values where the samples say");
        return c.keep(0, data);
    }
    if (data.axis < width) c.mixed("puts values into some of the samples");
    if (!more.is_rows() || more.axis != data.axis - width + (r - 1) || more.outer != data.outer ||
        more.shape[static_cast<std::size_t>(more.axis)] != data.shape[k])
        c.mixed("puts a value of all samples into each");
    c.keep(0, data);
}

void follow_blocks(walk_call& c) {
    const walked& x = c.ranked(0);
    if (x.is_rows() && x.axis != 0) c.mixed("moves elements along the samples");
    const std::int64_t b = c.view().get_int("blocksize", 1);
    if (x.shape.size() != 4 || b < 1) c.undecided("has a wrong rank");
    dims shape = x.shape;
    const bool to_space = c.op() == "DepthToSpace";
    for (std::size_t k = 1; k < 4; ++k) {
        const std::int64_t factor = k == 1 ? b * b : b;
        if (shape[k] >= 0) shape[k] = (k == 1) == to_space ? shape[k] / factor : shape[k] * factor;
    }
    c.make(0, x, shape);
}

void follow_reverse_sequence(walk_call& c) {
    const walked& x = c.ranked(0);
    const std::int64_t batch = c.view().get_int("batch_axis", 1), time = c.view().get_int("time_axis", 0);
    if (!x.is_rows()) {
        c.shared(1, "lengths");
        return c.keep(0, x);
    }
    if (x.axis == time) c.mixed("reverses the samples");
    if (x.axis != batch || x.outer != 1 || !c.is_rows(1) || c.in(1).axis != 0)
        c.undecided("takes lengths that are not those of the samples");
    c.keep(0, x);
}

/// Trilu and EyeLike know a row by its number.
void follow_triangle(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "diagonal");
    if (x.is_rows() && x.axis >= c.rank(0) - 2) c.mixed("treats each row by its number");
    c.keep(0, x);
}

void follow_compress(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "condition");
    if (!c.view().has("axis")) {
        if (x.is_rows()) c.mixed("takes elements of all samples");
        return c.make(0, x, {-1});
    }
    const std::int64_t axis = c.axis_attribute("axis", 0, c.rank(0));
    if (axis == x.axis) c.mixed("takes some of the samples");
    dims shape = x.shape;
    shape[static_cast<std::size_t>(axis)] = -1;
    c.make(0, x, shape);
}

void follow_one_hot(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "depth"), c.shared(2, "values");
    const std::int64_t axis = c.axis_attribute("axis", -1, c.rank(0) + 1);
    const auto depth = c.integers(1);
    dims shape = x.shape;
    shape.insert(shape.begin() + axis, depth && depth->size() == 1 ? (*depth)[0] : -1);
    c.make(0, x, shape, x.axis < axis ? x.axis : x.axis + 1);
}

void follow_center_crop_pad(walk_call& c) {
    const walked& x = c.ranked(0);
    dims axes = c.view().get_ints("axes");
    if (axes.empty())
        for (std::int64_t k = 0; k < c.rank(0); ++k) axes.push_back(k);
    const auto to = c.integers(1);
    dims shape = x.shape;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const std::int64_t a = c.normal(axes[i], c.rank(0));
        if (a == x.axis) c.mixed("crops or pads the samples");
        shape[static_cast<std::size_t>(a)] = to && i < to->size() ? (*to)[i] : -1;
    }
    c.make(0, x, shape);
}

/// Returns the factors of a Resize or Upsample; nullopt if they are not known.
static std::optional<std::vector<float>> resize_scales(const walk_call& c, std::size_t input) {
    if (!c.has(input) || c.in(input).content.empty() || c.in(input).is != walked::kind::shared) return std::nullopt;
    const tensor& t = c.in(input).content[0];
    if (t.type() != data_type::float32 || t.size() == 0) return std::nullopt;
    return std::vector<float>(t.as<float>().begin(), t.as<float>().end());
}

void follow_resize(walk_call& c) {
    const walked& x = c.ranked(0);
    const bool upsample = c.op() == "Upsample";
    const std::size_t scales_at = upsample || c.version() < 11 ? 1 : 2;
    dims axes;
    for (const std::int64_t a : c.view().get_ints("axes")) axes.push_back(c.normal(a, c.rank(0)));
    if (axes.empty())
        for (std::int64_t k = 0; k < c.rank(0); ++k) axes.push_back(k);
    std::optional<std::vector<float>> scales = resize_scales(c, scales_at);
    if (upsample && c.view().has("scales")) scales = c.view().get_floats("scales");
    const bool stretch = c.view().get_string("keep_aspect_ratio_policy", "stretch") == "stretch";
    dims shape = x.shape;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const auto k = static_cast<std::size_t>(axes[i]);
        const bool of_samples = axes[i] == x.axis;
        if (scales) {
            if (i >= scales->size()) c.undecided("has a wrong number of scales");
            if (of_samples && (*scales)[i] != 1) c.mixed("resizes along the samples");
            if (of_samples || shape[k] < 0) continue;
            const double length = static_cast<double>(shape[k]) * static_cast<double>((*scales)[i]);
            shape[k] = length == static_cast<double>(static_cast<std::int64_t>(length)) ? static_cast<std::int64_t>(length) : -1;
            continue;
        }
        for (std::size_t at = 0; at < c.counts().size(); ++at) {
            const auto sizes = upsample || c.version() < 11 ? std::nullopt : c.integers(3, at);
            const bool known = sizes && i < sizes->size() && stretch;
            if (of_samples && (!known || shape[k] < 0 || (*sizes)[i] != x.shape[k] * c.counts()[at]))
                c.undecided("resizes to a length that is not known");
            if (of_samples) continue;
            const std::int64_t length = known ? (*sizes)[i] : -1;
            if (at > 0 && length != shape[k]) c.mixed("resizes to as many elements as there are samples");
            shape[k] = length;
        }
    }
    c.make(0, x, shape);
}

void follow_shape(walk_call& c) {
    if (!c.in(0).ranked && !c.has_samples()) return c.make(0, walked{}, c.op() == "Size" ? dims{} : dims{-1});
    const walked& x = c.ranked(0);
    const std::int64_t rank = c.rank(0);
    const auto place = [&](const char* name, std::int64_t otherwise) {
        const std::int64_t v = c.view().get_int(name, otherwise);
        return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank);
    };
    const std::int64_t from = c.op() == "Size" ? 0 : place("start", 0), to = c.op() == "Size" ? rank : place("end", rank);
    walked v;
    v.ranked = true;
    const bool size = c.op() == "Size";
    if (!size) v.shape = {std::max<std::int64_t>(to - from, 0)};
    bool grows = false;
    for (const std::int64_t n : c.counts()) {
        const dims all = shape_for(x, n), part(all.begin() + from, all.begin() + std::max(from, to));
        if (std::ranges::any_of(part, [](std::int64_t d) { return d < 0; })) {
            if (!x.is_rows()) return c.make(0, walked{}, v.shape);
            c.undecided("gives a length that is not known");
        }
        v.content.push_back(size ? make_tensor<std::int64_t>({}, std::array{product_of(part)}) : make_tensor<std::int64_t>(v.shape, part));
        grows = grows || part != dims(x.shape.begin() + from, x.shape.begin() + std::max(from, to));
    }
    if (grows) v.is = walked::kind::counted;
    if (!c.out.empty()) c.out[0] = std::move(v);
}

void follow_affine_grid(walk_call& c) {
    std::array<dims, 4> shapes;
    const walked& theta = c.ranked(0);
    c.along_first(0, "matrices");
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        const auto size = c.integers(1, at);
        if (!size || size->size() < 3) c.undecided("takes a shape that is not known");
        shapes[at] = *size;
        shapes[at].erase(shapes[at].begin() + 1);
        shapes[at].push_back(static_cast<std::int64_t>(size->size()) - 2);
    }
    const auto g = grown(shapes, c.counts());
    if (!g || (theta.is_rows() ? g->axis != 0 || theta.shape[0] != g->one[0] : g->axis >= 0))
        c.undecided("takes another number of samples");
    c.make(0, theta, g->one, 0);
}

}  // namespace qk::graph::ops
