// SPDX-License-Identifier: Apache-2.0
// Rules of the walk (walk.hpp) for operators of elements, of axes (reductions, normalizations) and of quantizers.
#include <algorithm>

#include "graph/ops/walk/call.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

walked broadcast(walk_call& c, std::span<const std::size_t> which) {
    std::size_t rank = 0;
    for (const std::size_t i : which) rank = std::max(rank, c.ranked(i).shape.size());
    walked y;
    y.ranked = true;
    y.shape.assign(rank, 1);
    for (const std::size_t i : which) {
        const walked& v = c.in(i);
        const std::size_t shift = rank - v.shape.size();
        for (std::size_t k = 0; k < v.shape.size(); ++k) {
            y.shape[k + shift] = common_length(y.shape[k + shift], v.shape[k]);
        }
        if (!v.is_rows()) continue;
        const int at = v.axis + static_cast<int>(shift);
        if (y.is_rows() && at != y.axis) c.mixed("pairs samples with samples");
        y.is = v.is, y.axis = at, y.outer = v.outer;
    }
    if (!y.is_rows()) return y;
    const auto at = static_cast<std::size_t>(y.axis);
    for (const std::size_t i : which) {
        const walked& v = c.in(i);
        const std::size_t shift = rank - v.shape.size();
        if (v.is_rows()) {
            if (v.outer != y.outer || v.shape[at - shift] != y.shape[at]) c.mixed("combines values whose samples lie differently");
        } else if (at >= shift && v.shape[at - shift] != 1) {
            if (v.shape[at - shift] < 0) c.undecided("combines samples with a value whose lengths are not known");
            c.mixed("combines samples with a value that has a length of its own along them");
        }
    }
    return y;
}

static void broadcast_to(walk_call& c, std::span<const std::size_t> which) {
    const walked y = broadcast(c, which);
    for (std::size_t k = 0; k < c.out.size(); ++k) c.make(k, y, y.shape);
}

/// Operators of elements, whose inputs are broadcast.
void follow_elements(walk_call& c) {
    const bool slope = c.op() == "PRelu" && c.has(1) && c.in(1).ranked && c.rank(1) == 1 && c.rank(0) > 1;
    if (c.version() < 7 && (slope || c.view().get_int("broadcast", 0) != 0)) {  // the second operand lies along axes of the first
        const std::int64_t axis = slope ? 1 : c.axis_attribute("axis", c.rank(0) - c.rank(1), c.rank(0));
        c.shared(1, "second operand");
        const std::int64_t at = c.in(0).axis - axis;
        if (c.is_rows(0) && at >= 0 && at < c.rank(1) && c.in(1).shape[static_cast<std::size_t>(at)] != 1)
            c.mixed("combines samples with a value that has a length of its own along them");
        return c.keep(0, c.in(0));
    }
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < c.inputs(); ++i)
        if (c.has(i)) which.push_back(i);
    broadcast_to(c, which);
}
void follow_qlinear_elements(walk_call& c) {
    for (std::size_t i : {1, 2, 4, 5, 6, 7}) c.shared(i, "scales");
    constexpr std::size_t which[] = {0, 3};
    broadcast_to(c, which);
}

/// Operators of single elements: what else they read is the same for all samples and has one element.
void follow_unary(walk_call& c) {
    for (std::size_t i = 1; i < c.inputs(); ++i)
        if (c.has(i) && c.op() != "CastLike") c.shared(i, "parameters");
    for (std::size_t k = 0; k < c.out.size(); ++k) c.keep(k, c.in(0));
}
void follow_cast(walk_call& c) {
    c.keep(0, c.in(0));
    if (!c.out.empty()) c.out[0].numbers = c.in(0).numbers;
}
void follow_bit_cast(walk_call& c) {
    if (c.is_rows(0) && c.in(0).axis + 1 == c.rank(0)) c.undecided("may join neighbours along the samples");
    walked y = c.ranked(0);
    if (!y.shape.empty()) y.shape.back() = y.is_rows() && y.axis + 1 == c.rank(0) ? y.shape.back() : -1;
    c.make(0, y, y.shape);
}
void follow_dropout(walk_call& c) {
    const bool training = c.version() < 7 ? c.view().get_int("is_test", 0) == 0 : c.has(2);
    if (training && c.version() >= 12 && c.has_samples()) {
        const walked& flag = c.in(2);
        if (flag.content.empty() || flag.content[0].size() != 1 || flag.content[0].bytes()[0] != std::byte{0})
            c.mixed("draws numbers in the order of the samples");
    } else if (training && c.version() < 7 && c.has_samples()) {
        c.mixed("draws numbers in the order of the samples");
    }
    for (std::size_t k = 0; k < c.out.size(); ++k) c.keep(k, c.in(0));
}

/// Fails if the samples stand along one of the last axes, from `axis` on.
static void in_front_of(const walk_call& c, const walked& x, std::int64_t axis, const char* what) {
    if (x.is_rows() && x.axis >= axis) c.mixed(what);
}

void follow_softmax(walk_call& c) {
    const walked& x = c.ranked(0);
    const std::int64_t axis = c.axis_attribute("axis", c.version() < 13 ? 1 : -1, c.rank(0));
    if (c.version() < 13) in_front_of(c, x, axis, "computes along the samples");
    else if (x.is_rows() && x.axis == axis) c.mixed("computes along the samples");
    c.keep(0, x);
}
void follow_qlinear_softmax(walk_call& c) {
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "scales");
    const walked& x = c.ranked(0);
    const std::int64_t opset = c.view().get_int("opset", 13), axis = c.axis_attribute("axis", opset < 13 ? 1 : -1, c.rank(0));
    if (opset < 13) in_front_of(c, x, axis, "computes along the samples");
    else if (x.is_rows() && x.axis == axis) c.mixed("computes along the samples");
    c.keep(0, x);
}

/// Operators along the axis that an attribute names.
void follow_along_attribute(walk_call& c) {
    const walked& x = c.ranked(0);
    if (x.is_rows() && x.axis == c.axis_attribute("axis", -1, c.rank(0))) c.mixed("computes along the samples");
    c.keep(0, x);
}

/// CumSum and CumProd: the axis is an input.
void follow_cumulative(walk_call& c) {
    const walked& x = c.ranked(0);
    if (!c.has_samples()) return c.keep(0, x);
    const auto axis = c.integers(1);
    if (!axis || axis->size() != 1) c.undecided("takes an axis that is not known");
    if (x.is_rows() && x.axis == c.normal((*axis)[0], c.rank(0))) c.mixed("adds up along the samples");
    c.keep(0, x);
}

/// Makes the output without these axes, or with one element along them.
static void reduced(walk_call& c, std::size_t k, const walked& x, const std::vector<char>& gone, bool keep, std::int64_t length) {
    dims shape;
    std::int64_t axis = -1;
    for (std::size_t a = 0; a < gone.size(); ++a) {
        if (static_cast<int>(a) == x.axis) {
            if (gone[a] != 0) c.mixed("computes one value of all samples");
            axis = static_cast<std::int64_t>(shape.size());
        }
        if (gone[a] == 0) shape.push_back(x.shape[a]);
        else if (keep) shape.push_back(length);
    }
    c.make(k, x, shape, axis);
}

void follow_reduce(walk_call& c) {
    const walked& x = c.ranked(0);
    const bool by_input = c.has(1) || c.version() >= 18 || (c.op() == "ReduceSum" && c.version() >= 13);
    std::optional<dims> axes;
    if (!by_input) axes = c.view().get_ints("axes");
    else if (c.has(1)) axes = c.integers(1);
    else axes = dims{};
    if (!axes) {
        c.shared(1, "axes");
        if (x.is_rows()) c.undecided("takes axes that are not known");
        c.undecided("takes axes that are not known");
    }
    if (axes->empty() && by_input && c.view().get_int("noop_with_empty_axes", 0) != 0) return c.keep(0, x);
    std::vector<char> gone(x.shape.size(), axes->empty() ? 1 : 0);
    for (const std::int64_t a : *axes) gone[static_cast<std::size_t>(c.normal(a, c.rank(0)))] = 1;
    reduced(c, 0, x, gone, c.view().get_int("keepdims", 1) != 0, 1);
}

void follow_arg(walk_call& c) {
    const walked& x = c.ranked(0);
    std::vector<char> gone(x.shape.size(), 0);
    gone[static_cast<std::size_t>(c.axis_attribute("axis", 0, c.rank(0)))] = 1;
    reduced(c, 0, x, gone, c.view().get_int("keepdims", 1) != 0, 1);
}

void follow_top_k(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "number");
    const std::int64_t axis = c.axis_attribute("axis", -1, c.rank(0));
    std::int64_t n = c.version() < 10 ? c.view().get_int("k", -1) : -1;
    if (const auto k = c.version() < 10 ? std::nullopt : c.integers(1); k && k->size() == 1) n = (*k)[0];
    std::vector<char> gone(x.shape.size(), 0);
    gone[static_cast<std::size_t>(axis)] = 1;
    for (std::size_t k = 0; k < c.out.size(); ++k) reduced(c, k, x, gone, true, n);
}

void follow_layer_normalization(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "scale"), c.shared(2, "bias");
    const std::int64_t axis = c.axis_attribute("axis", -1, c.rank(0));
    in_front_of(c, x, axis, "computes along the samples");
    c.keep(0, x);
    dims means = x.shape;
    for (std::size_t k = static_cast<std::size_t>(axis); k < means.size(); ++k) means[k] = 1;
    for (std::size_t k = 1; k < c.out.size(); ++k) c.make(k, x, means);
}

/// SkipLayerNormalization: input, skip, then scale and biases. The skip may lack the axis of the samples.
void follow_skip_normalization(walk_call& c) {
    for (std::size_t i = 2; i < c.inputs(); ++i) c.shared(i, "scale");
    constexpr std::size_t which[] = {0, 1};
    const walked y = c.in(1).ranked ? broadcast(c, which) : c.ranked(0);
    if (!c.is_rows(0) && c.is_rows(1)) c.undecided("adds samples to a value of all of them");
    in_front_of(c, y, static_cast<std::int64_t>(y.shape.size()) - 1, "computes along the samples");
    c.make(0, y, y.shape);
    dims means = y.shape;
    if (!means.empty()) means.back() = 1;
    for (std::size_t k : {1, 2}) c.make(k, y, means);
    c.make(3, y, y.shape);
}

void follow_mean_variance(walk_call& c) {
    const walked& x = c.ranked(0);
    dims axes = c.view().get_ints("axes", {0, 2, 3});
    if (c.view().get_int("across_channels", 0) != 0) axes = {0, 1, 2, 3};
    for (const std::int64_t a : axes)
        if (x.is_rows() && c.normal(a, c.rank(0)) == x.axis) c.mixed("takes the mean over the samples");
    c.keep(0, x);
}

/// Normalizations of channels: samples are along axis 0, or along one that the statistics are not taken over.
void follow_normalization_of_channels(walk_call& c) {
    const walked& x = c.ranked(0);
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "parameters");
    if (c.op() == "BatchNormalization") {
        if (x.is_rows() && (c.view().get_int("training_mode", 0) != 0 || (c.version() < 7 && c.view().get_int("is_test", 0) == 0)))
            c.mixed("takes the mean over the samples");
        if (x.is_rows() && (x.axis == 1 || c.view().get_int("spatial", 1) == 0)) c.mixed("has parameters for each sample");
        for (std::size_t k = 1; k < c.out.size(); ++k)
            if (c.has(k + 2)) c.keep(k, c.in(k + 2));
    } else if (c.op() == "LRN") {
        if (x.is_rows() && x.axis == 1) c.mixed("computes along the samples");
    } else if (x.is_rows() && x.axis != 0) {
        c.mixed("computes along the samples");
    }
    c.keep(0, x);
}

/// QuantizeLinear and DequantizeLinear, of any domain: one scale, one for each place of another axis, or blocks.
void follow_quantize(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "scales"), c.shared(2, "zero points");
    if (!x.is_rows()) return c.keep(0, x);
    const walked& scale = c.ranked(1);
    if (std::ranges::any_of(scale.shape, [](std::int64_t d) { return d != 1; })) {
        const std::int64_t axis = c.axis_attribute("axis", 1, c.rank(0));
        if (axis == x.axis) c.mixed("has scales for each sample");
        if (scale.shape.size() != 1 && (scale.shape.size() != x.shape.size() || scale.shape[static_cast<std::size_t>(x.axis)] != 1))
            c.undecided("has scales for each sample");
    }
    c.keep(0, x);
}

/// Block formats of AMD: values share an exponent along an axis.
void follow_block_quantize(walk_call& c) {
    const walked& x = c.ranked(0);
    if (x.is_rows() && (c.rank(0) < 2 || x.axis == c.axis_attribute("axis", 1, c.rank(0)))) c.mixed("has blocks along the samples");
    c.keep(0, x);
}

/// DynamicQuantizeLinear: codes, and one scale and zero point of all samples.
void follow_dynamic_quantize(walk_call& c) {
    if (c.is_rows(0)) c.mixed("chooses one scale for all samples");
    c.keep(0, c.in(0));
    for (const std::size_t k : {1, 2}) c.make(k, walked{}, {});
}

void follow_all_samples(walk_call& c) {
    for (std::size_t i = 0; i < c.inputs(); ++i)
        if (c.is_rows(i)) c.mixed(c.op().starts_with("Dynamic") ? "chooses one scale for all samples" : "computes with all samples");
    c.undecided("has outputs whose lengths are not known");
}

}  // namespace qk::graph::ops
