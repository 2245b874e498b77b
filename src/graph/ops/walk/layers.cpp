// SPDX-License-Identifier: Apache-2.0
// Rules of the walk (walk.hpp) for layers: products, convolutions, pools, recurrent layers and attention.
#include <algorithm>

#include "graph/ops/conv_transpose.hpp"
#include "graph/ops/einsum.hpp"
#include "graph/ops/run_node.hpp"
#include "graph/ops/walk/call.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"

namespace qk::graph::ops {

static void require_alike(const walk_call& c, const walked& a, const walked& b) {
    if (a.outer != b.outer || a.shape[static_cast<std::size_t>(a.axis)] != b.shape[static_cast<std::size_t>(b.axis)])
        c.mixed("combines values whose samples lie differently");
}

/// Exchanges the last two axes.
static walked swapped(walked v) {
    const auto rank = static_cast<int>(v.shape.size());
    if (rank < 2) return v;
    std::swap(v.shape[v.shape.size() - 1], v.shape[v.shape.size() - 2]);
    if (v.axis >= rank - 2) v.axis = 2 * rank - 3 - v.axis;
    return v;
}

/// Output 0 is the product of two stacks of matrices.
static walked stack_product(walk_call& c, walked a, walked b) {
    if (!a.ranked || !b.ranked || a.shape.empty() || b.shape.empty()) c.undecided("multiplies values of a rank that is not known");
    const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
    if (row) {
        a.shape.insert(a.shape.begin(), 1);
        if (a.is_rows()) ++a.axis;
    }
    if (column) b.shape.push_back(1);
    const int na = static_cast<int>(a.shape.size()) - 2, nb = static_cast<int>(b.shape.size()) - 2, n = std::max(na, nb);
    walked y;
    y.ranked = true;
    const auto length = [](const walked& v, int own, int all, int k) {
        const int at = k - (all - own);
        return at < 0 ? std::int64_t{1} : v.shape[static_cast<std::size_t>(at)];
    };
    for (int k = 0; k < n; ++k) {
        const std::int64_t la = length(a, na, n, k), lb = length(b, nb, n, k);
        y.shape.push_back(common_length(la, lb));
    }
    if (!row) y.shape.push_back(a.shape[static_cast<std::size_t>(na)]);
    if (!column) y.shape.push_back(b.shape.back());
    const bool both = a.is_rows() && b.is_rows();
    const int pa = a.is_rows() ? a.axis + (n - na) : -1, pb = b.is_rows() ? b.axis + (n - nb) : -1;
    if (pa == n + 1 || pb == n) c.mixed("adds up over the samples");
    if (both && (pa != pb || pa >= n)) c.mixed("pairs samples with samples");
    if (both) require_alike(c, a, b);
    const walked& rows = a.is_rows() ? a : b;
    if (!rows.is_rows()) return y;
    const int at = a.is_rows() ? pa : pb;
    if (!both && at < n && (a.is_rows() ? length(b, nb, n, at) : length(a, na, n, at)) != 1)
        c.mixed("combines samples with a value that has a length of its own along them");
    y.is = rows.is, y.outer = rows.outer;
    y.axis = at == n + 1 && row ? n : at;
    return y;
}

void give(walk_call& c, const walked& y) { c.make(0, y, y.shape); }

void follow_matmul(walk_call& c) {
    for (std::size_t i = 2; i < c.inputs(); ++i) c.shared(i, "parameters");
    give(c, stack_product(c, c.in(0), c.in(1)));
}

/// A parameter of the first operand must be one number if that has samples: else it has one for each row.
static void one_number(walk_call& c, std::size_t i) {
    if (!c.has(i)) return;
    c.shared(i, "parameters");
    for (const std::int64_t d : c.ranked(i).shape)
        if (d != 1) c.undecided("has parameters for each row");
}

void follow_matmul_integer(walk_call& c) {
    const bool scaled = c.op() == "MatMulIntegerToFloat";
    if (c.is_rows(0) || c.is_rows(1))
        for (const std::size_t i : scaled ? std::vector<std::size_t>{2, 4} : std::vector<std::size_t>{2}) one_number(c, i);
    for (std::size_t i = 2; i < c.inputs(); ++i) c.shared(i, "parameters");
    if (c.is_rows(1)) c.undecided("takes its weights from the samples");
    give(c, stack_product(c, c.in(0), c.in(1)));
}

void follow_qlinear_matmul(walk_call& c) {
    for (const std::size_t i : {1, 2, 4, 5, 6, 7}) {
        if (i == 4 || i == 5) c.shared(i, "parameters");
        else if (c.is_rows(0) || c.is_rows(3)) one_number(c, i);
    }
    if (c.is_rows(3)) one_number(c, 4), one_number(c, 5);
    give(c, stack_product(c, c.in(0), c.in(3)));
}

void follow_fused_matmul(walk_call& c) {
    if (c.view().get_int("transBatchA", 0) != 0 || c.view().get_int("transBatchB", 0) != 0) c.undecided("moves axes as is not known here");
    const auto operand = [&](std::size_t i, const char* flag) {
        return c.view().get_int(flag, 0) != 0 ? swapped(c.ranked(i)) : c.ranked(i);
    };
    give(c, stack_product(c, operand(0, "transA"), operand(1, "transB")));
}

/// MatMulNBits: packed weights of N columns.
void follow_matmul_bits(walk_call& c) {
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "weights");
    walked y = c.ranked(0);
    if (y.is_rows() && y.axis + 1 == c.rank(0)) c.mixed("adds up over the samples");
    if (y.shape.empty()) c.undecided("has a wrong rank");
    y.shape.back() = c.view().get_int("N", -1);
    give(c, y);
}

static void gemm_of(walk_call& c, std::size_t b, std::size_t bias) {
    const walked first = c.view().get_int("transA", 0) != 0 ? swapped(c.ranked(0)) : c.ranked(0);
    const walked second = c.view().get_int("transB", 0) != 0 ? swapped(c.ranked(b)) : c.ranked(b);
    if (first.shape.size() != 2 || second.shape.size() != 2) c.undecided("has a wrong rank");
    const walked y = stack_product(c, first, second);
    if (c.has(bias) && (y.is_rows() || c.is_rows(bias))) {
        const walked& v = c.ranked(bias);
        const int shift = 2 - static_cast<int>(c.rank(bias));
        if (v.is_rows()) {
            if (!y.is_rows() || v.axis + shift != y.axis) c.mixed("adds samples to a value of all of them");
            require_alike(c, v, y);
        } else if (y.is_rows() && y.axis >= shift && v.shape[static_cast<std::size_t>(y.axis - shift)] != 1) {
            c.mixed("adds a value that has a length of its own along the samples");
        }
    }
    give(c, y);
}
void follow_gemm(walk_call& c) { gemm_of(c, 1, 2); }
void follow_qgemm(walk_call& c) {
    for (const std::size_t i : {1, 2, 4, 5, 7, 8}) c.shared(i, "parameters");
    if (c.is_rows(0)) one_number(c, 1), one_number(c, 2);
    if (c.is_rows(3)) c.undecided("takes its weights from the samples");
    gemm_of(c, 3, 6);
}

void follow_einsum(walk_call& c) {
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < c.inputs(); ++i) ranks.push_back(static_cast<std::size_t>(c.rank(i)));
    graph::detail::bounded_heap heap(0);
    const op_context::subgraph_runner none = [](const onnx::GraphProto&, std::span<const tensor>) -> std::vector<tensor> { return {}; };
    const op_context context(c.view(), {}, {}, heap, none);
    const einsum_equation e = parse_einsum(context, ranks);
    char label = 0;
    const walked* rows = nullptr;
    for (std::size_t i = 0; i < c.inputs(); ++i) {
        if (!c.is_rows(i)) continue;
        const char own = e.inputs[i][static_cast<std::size_t>(c.in(i).axis)];
        if (rows != nullptr && own != label) c.mixed("pairs samples with samples");
        if (rows != nullptr) require_alike(c, *rows, c.in(i));
        if (std::ranges::count(e.inputs[i], own) != 1) c.mixed("takes a diagonal along the samples");
        label = own, rows = &c.in(i);
    }
    dims shape(e.output.size(), 1);
    for (std::size_t i = 0; i < c.inputs(); ++i)
        for (std::size_t k = 0; k < e.inputs[i].size(); ++k) {
            const char own = e.inputs[i][k];
            const std::int64_t d = c.in(i).shape[k];
            if (rows != nullptr && own == label && !c.is_rows(i) && d != 1)
                c.mixed("combines samples with a value that has a length of its own along them");
            const std::size_t at = e.output.find(own);
            if (at != std::string::npos && d != 1) shape[at] = shape[at] == 1 || shape[at] < 0 ? d : shape[at];
        }
    if (rows == nullptr) return c.make(0, walked{}, shape);
    const std::size_t at = e.output.find(label);
    if (at == std::string::npos) c.mixed("adds up over the samples");
    c.make(0, *rows, shape, static_cast<std::int64_t>(at));
}

/// Returns [N, channels, spatial axes]; lengths that cannot be computed are not known.
template <class Window>
static dims windowed_shape(const walked& x, std::int64_t channels, const Window& lengths) {
    dims shape{x.shape.at(0), channels};
    std::vector<std::int64_t> spatial(x.shape.size() - 2, -1);
    if (std::all_of(x.shape.begin() + 1, x.shape.end(), [](std::int64_t d) { return d >= 0; })) {
        try {
            spatial = lengths(x.shape);
        } catch (const error&) {
        }
    }
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    return shape;
}

static void image_of_samples(const walk_call& c, const walked& x) {
    if (x.is_rows() && x.axis != 0) c.mixed("computes along the samples");
    if (x.shape.size() < 2) c.undecided("has a wrong rank");
}

static void convolution_of(walk_call& c, std::size_t weights, std::initializer_list<std::size_t> parameters) {
    const walked &x = c.ranked(0), &w = c.ranked(weights);
    c.shared(weights, "weights");
    for (const std::size_t i : parameters) c.shared(i, "parameters");
    image_of_samples(c, x);
    if (w.shape.size() != x.shape.size() || w.shape.size() < 3) c.undecided("has weights of another rank");
    if (c.view().get_int("channels_last", 0) != 0)
        return c.make(0, x, [&] {
            dims d(x.shape.size(), -1);
            d[0] = x.shape[0];
            return d;
        }());
    const std::vector<std::int64_t> kernel(w.shape.begin() + 2, w.shape.end());
    c.make(0, x, windowed_shape(x, w.shape[0], [&](const dims& shape) { return make_window(c.view(), shape, kernel).output; }));
}
void follow_conv(walk_call& c) { convolution_of(c, 1, {2}); }
void follow_conv_integer(walk_call& c) { convolution_of(c, 1, {2, 3}); }
void follow_qlinear_conv(walk_call& c) { convolution_of(c, 3, {1, 2, 4, 5, 6, 7, 8}); }
void follow_fused_conv(walk_call& c) {
    convolution_of(c, 1, {2});
    if (!c.has(3)) return;
    const walked &z = c.ranked(3), &y = c.out[0];
    if (z.is_rows() != y.is_rows()) c.mixed("adds a value of all samples");
    if (z.is_rows() && (z.axis != 0 || z.shape[0] != y.shape[0] || z.outer != y.outer))
        c.mixed("combines values whose samples lie differently");
}
void follow_conv_transpose(walk_call& c) {
    const walked &x = c.ranked(0), &w = c.ranked(1);
    c.shared(1, "weights"), c.shared(2, "bias");
    image_of_samples(c, x);
    if (w.shape.size() != x.shape.size() || w.shape.size() < 3) c.undecided("has weights of another rank");
    const std::vector<std::int64_t> kernel(w.shape.begin() + 2, w.shape.end());
    const std::int64_t channels = w.shape[1] < 0 ? -1 : w.shape[1] * c.view().get_int("group", 1);
    c.make(0, x, windowed_shape(x, channels, [&](const dims& shape) { return transposed_window(c.view(), shape, kernel).input; }));
}
void follow_deform_conv(walk_call& c) {
    const walked &x = c.ranked(0), &w = c.ranked(1), &offset = c.ranked(2);
    c.shared(1, "weights"), c.shared(3, "bias");
    for (const std::size_t i : {0, 2, 4}) {
        if (!c.has(i)) continue;
        if (c.is_rows(i) != x.is_rows()) c.mixed("combines samples with a value of all of them");
        c.along_first(i, "values");
        if (x.is_rows() && c.in(i).shape[0] != x.shape[0]) c.mixed("combines values whose samples lie differently");
    }
    dims shape = offset.shape;
    if (shape.size() < 3 || w.shape.empty()) c.undecided("has a wrong rank");
    shape[0] = x.shape[0], shape[1] = w.shape[0];
    c.make(0, x, shape, 0);
}

/// Pools: samples along axis 0, or channels along axis 1 that are none of each other's business.
void follow_pool(walk_call& c) {
    const walked& x = c.ranked(0);
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "parameters");
    if (x.is_rows() && x.axis > 1) c.mixed("computes along the samples");
    if (x.shape.size() < 3) c.undecided("has a wrong rank");
    dims shape = x.shape;
    if (c.op().contains("Global")) {
        std::fill(shape.begin() + 2, shape.end(), 1);
    } else {
        shape = windowed_shape(x, x.shape[1], [&](const dims& s) {
            return make_window(c.view(), s, c.view().get_ints("kernel_shape"), c.view().get_int("ceil_mode", 0) != 0).output;
        });
    }
    if (c.view().get_int("channels_last", 0) != 0) {
        if (x.is_rows() && x.axis != 0) c.mixed("computes along the samples");
        std::fill(shape.begin() + 1, shape.end(), -1);
    }
    c.make(0, x, shape);
    if (x.is_rows()) c.lose(1, walked::kind::mixed, "counts places over all samples");
    else c.make(1, x, shape);
}

void follow_grid_sample(walk_call& c) {
    const walked &x = c.ranked(0), &grid = c.ranked(1);
    if (x.is_rows() != grid.is_rows()) c.mixed("combines samples with a value of all of them");
    c.along_first(0, "values"), c.along_first(1, "grid");
    if (x.is_rows()) require_alike(c, x, grid);
    if (x.shape.size() < 3 || grid.shape.size() != x.shape.size()) c.undecided("has a wrong rank");
    dims shape{x.shape[0], x.shape[1]};
    shape.insert(shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
    c.make(0, x, shape);
}

void follow_columns_to_image(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "shape"), c.shared(2, "blocks");
    image_of_samples(c, x);
    const auto image = c.integers(1), block = c.integers(2);
    if (!image || !block || x.shape.size() != 3) c.undecided("takes a shape that is not known");
    std::int64_t taps = 1;
    for (const std::int64_t b : *block) taps = b < 1 || b > (1 << 20) || taps > (1 << 20) ? -1 : taps * b;
    dims shape{x.shape[0], x.shape[1] < 0 || taps < 1 ? -1 : x.shape[1] / taps};
    shape.insert(shape.end(), image->begin(), image->end());
    c.make(0, x, shape);
}

/// LSTM, GRU and RNN.
void follow_recurrent(walk_call& c) {
    const walked& x = c.ranked(0);
    for (const std::size_t i : {1, 2, 3, 7}) c.shared(i, "weights");
    const bool first = c.view().get_int("layout", 0) != 0;
    const int batch = first ? 0 : 1;
    if (x.shape.size() != 3) c.undecided("has a wrong rank");
    if (x.is_rows() && x.axis == 1 - batch) c.mixed("steps along the samples");
    if (x.is_rows() && (x.axis != batch || x.outer != 1)) c.mixed("has the samples along its features");
    for (const std::size_t i : {4, 5, 6}) {
        if (!c.has(i)) continue;
        const walked& v = c.ranked(i);
        if (v.is_rows() != x.is_rows()) c.mixed(v.is_rows() ? "takes states from the samples" : "has states of its own for each row");
        if (v.is_rows() && v.axis != (i == 4 ? 0 : batch)) c.mixed("has the samples of its states along another axis");
        if (v.is_rows()) require_alike(c, v, x);
    }
    const std::int64_t directions = c.view().get_string("direction", "forward") == "bidirectional" ? 2 : 1;
    const std::int64_t hidden = c.view().get_int("hidden_size", c.ranked(2).shape.empty() ? -1 : c.in(2).shape.back());
    const std::int64_t steps = x.shape[first ? 1 : 0], n = x.shape[static_cast<std::size_t>(batch)];
    if (first) {
        c.make(0, x, {n, steps, directions, hidden}, 0);
        for (const std::size_t k : {1, 2}) c.make(k, x, {n, directions, hidden}, 0);
    } else {
        c.make(0, x, {steps, directions, n, hidden}, 2);
        for (const std::size_t k : {1, 2}) c.make(k, x, {directions, n, hidden}, 1);
    }
}

/// What the inputs of an attention are. Each of `own` must come from the samples if the first input does; `masks` may be the same for all.
struct attention_inputs {
    std::vector<std::size_t> own, masks;
};

/// Requires samples along axis 0 everywhere. Inputs that are not listed must be the same for all samples.
static void attention_of(walk_call& c, const attention_inputs& which) {
    const walked& x = c.ranked(0);
    if (x.shape.empty()) c.undecided("has a wrong rank");
    for (std::size_t i = 0; i < c.inputs(); ++i) {
        if (!c.has(i)) continue;
        const bool own = i == 0 || std::ranges::find(which.own, i) != which.own.end();
        const bool mask = std::ranges::find(which.masks, i) != which.masks.end();
        if (!own && !mask) {
            c.shared(i, "weights");
            continue;
        }
        const walked& v = c.ranked(i);
        c.along_first(i, "values");
        if (v.is_rows() && !x.is_rows()) c.mixed("combines samples with a value of all of them");
        if (v.is_rows() && v.shape[0] != x.shape[0]) c.mixed("combines values whose samples lie differently");
        if (!v.is_rows() && x.is_rows() && (own || (v.shape.size() == 4 && v.shape[0] != 1)))
            c.mixed("combines samples with a value that has a length of its own along them");
        if (v.is_rows() && mask && v.shape.size() != 4) c.undecided("has a mask whose axes are not known here");
    }
}

std::int64_t times(std::int64_t a, std::int64_t b) { return a < 0 || b < 0 ? -1 : a * b; }
std::int64_t over(std::int64_t a, std::int64_t b) { return a < 0 || b < 1 ? -1 : a / b; }

void follow_attention(walk_call& c) {
    if (!c.has(2)) c.undecided("lacks an input");
    attention_of(c, {{1, 2, 4, 5, 6}, {3}});
    const walked &q = c.in(0), &k = c.in(1), &v = c.ranked(2);
    if (q.shape.size() != k.shape.size() || k.shape.size() != v.shape.size()) c.undecided("has a wrong rank");
    const std::int64_t heads = c.view().get_int("q_num_heads", 0), groups = c.view().get_int("kv_num_heads", 0), n = q.shape[0];
    if (q.shape.size() == 4) {
        c.make(0, q, {n, q.shape[1], q.shape[2], v.shape[3]});
        c.make(1, q, {n, k.shape[1], -1, k.shape[3]});
        c.make(2, q, {n, v.shape[1], -1, v.shape[3]});
    } else {
        if (q.shape.size() != 3) c.undecided("has a wrong rank");
        c.make(0, q, {n, q.shape[1], times(heads, over(v.shape[2], groups))});
        c.make(1, q, {n, groups, -1, over(k.shape[2], groups)});
        c.make(2, q, {n, groups, -1, over(v.shape[2], groups)});
    }
    c.make(3, q, {n, -1, -1, -1});
}

void follow_flex_attention(walk_call& c) {
    if (!c.has(2)) c.undecided("lacks an input");
    attention_of(c, {{1, 2}, {}});
    const walked &q = c.in(0), &v = c.ranked(2);
    if (q.shape.size() != 4 || v.shape.size() != 4) c.undecided("has a wrong rank");
    c.make(0, q, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
}

/// TensorScatter: writes into the cache of each sample.
void follow_cache_write(walk_call& c) {
    attention_of(c, {{1, 2}, {}});
    const walked& cache = c.in(0);
    if (cache.is_rows() && c.axis_attribute("axis", -2, c.rank(0)) == 0) c.mixed("writes along the samples");
    c.keep(0, cache);
}

void follow_microsoft_attention(walk_call& c) {
    const walked& x = c.ranked(0);
    if (c.has(4) && c.is_rows(4)) {  // [2, N, heads, length, width]
        const walked& past = c.in(4);
        if (past.axis != 1 || past.outer != 1 || !x.is_rows() || past.shape[1] != x.shape[0])
            c.mixed("has the samples of its cache along another axis");
    } else if (c.has(4) && x.is_rows()) {
        c.mixed("has a cache of its own for each row");
    }
    for (const std::size_t i : {1, 2, 6}) c.shared(i, "weights");
    for (const std::size_t i : {0, 3, 5}) {
        if (!c.has(i)) continue;
        c.along_first(i, "values");
        if (c.is_rows(i) && (!x.is_rows() || c.in(i).shape[0] != x.shape[0])) c.mixed("combines values whose samples lie differently");
        if (x.is_rows() && !c.is_rows(i) && (i == 3 || c.ranked(i).shape.size() != 4 || c.in(i).shape[0] != 1))
            c.mixed("combines samples with a value that has a length of its own along them");
    }
    if (x.shape.size() != 3) c.undecided("has a wrong rank");
    const auto sizes = c.view().get_ints("qkv_hidden_sizes");
    const std::int64_t width = sizes.size() == 3 ? sizes[2] : c.ranked(1).shape.empty() ? -1 : over(c.in(1).shape.back(), 3);
    c.make(0, x, {x.shape[0], x.shape[1], width});
    c.make(1, x, {2, x.shape[0], -1, -1, -1}, 1);
}

void follow_multi_head_attention(walk_call& c) {
    const bool decoder = c.op() == "DecoderMaskedMultiHeadAttention";
    if (decoder) attention_of(c, {{1, 2, 3, 5, 6, 9}, {4}});
    else attention_of(c, {{1, 2, 4, 6, 7, 9}, {5}});
    const walked& q = c.in(0);
    if (q.shape.size() != 3) {
        c.make(0, q, {q.shape[0], q.shape.size() > 1 ? q.shape[1] : -1, -1});
    } else {
        const bool heads_apart = c.has(2) && c.ranked(2).shape.size() == 4;  // [N, heads, length, width]
        const std::int64_t width = !c.has(2)                       ? q.shape[2]
                                   : heads_apart                   ? times(c.in(2).shape[1], c.in(2).shape[3])
                                   : c.ranked(2).shape.size() == 3 ? c.in(2).shape[2]
                                                                   : -1;
        c.make(0, q, {q.shape[0], q.shape[1], width});
    }
    for (const std::size_t k : {1, 2}) c.make(k, q, {q.shape[0], -1, -1, -1});
    if (c.out.size() > 3) c.lose(3, walked::kind::undecided, "has an output whose axes are not known here");
}

void follow_group_query_attention(walk_call& c) {
    attention_of(c, {{1, 2, 3, 4, 5, 9}, {10}});
    const walked& q = c.in(0);
    if (q.shape.size() != 3) c.undecided("has a wrong rank");
    const std::int64_t heads = c.view().get_int("num_heads", -1), groups = c.view().get_int("kv_num_heads", -1);
    const std::int64_t width = c.has(1) ? q.shape[2] : times(over(q.shape[2], heads + 2 * groups), heads);
    c.make(0, q, {q.shape[0], q.shape[1], width});
    for (const std::size_t k : {1, 2}) c.make(k, q, {q.shape[0], groups, -1, over(width, heads)});
    if (c.out.size() > 3) c.lose(3, walked::kind::undecided, "has an output whose axes are not known here");
}

void follow_rotary(walk_call& c) {
    const bool microsoft = c.view().proto().domain() == "com.microsoft";
    const walked& x = c.ranked(0);
    c.along_first(0, "values");
    if (microsoft) {
        c.shared(2, "table"), c.shared(3, "table");
        if (!c.has_samples()) return c.keep(0, x);
        const walked& at = c.ranked(1);
        c.along_first(1, "positions");
        if (at.is_rows() && (!x.is_rows() || at.shape[0] != x.shape[0])) c.mixed("combines values whose samples lie differently");
        if (!at.is_rows() && x.is_rows() && !(at.shape.empty() || at.shape == dims{1})) c.mixed("has positions of its own for each row");
    } else {
        const bool placed = c.has(3);
        for (const std::size_t i : placed ? std::vector<std::size_t>{3} : std::vector<std::size_t>{1, 2}) {
            c.along_first(i, "positions");
            if (c.is_rows(i) != x.is_rows()) c.mixed("has positions of its own for each row");
            if (x.is_rows() && c.ranked(i).shape[0] != x.shape[0]) c.mixed("combines values whose samples lie differently");
        }
        if (placed) c.shared(1, "table"), c.shared(2, "table");
    }
    c.keep(0, x);
}

void follow_linear_attention(walk_call& c) {
    attention_of(c, {{1, 2, 3, 4, 5}, {}});
    const walked& q = c.in(0);
    const std::int64_t heads = c.view().get_int("q_num_heads", -1), groups = c.view().get_int("kv_num_heads", -1);
    if (q.shape.size() != 3 || !c.has(2) || c.rank(2) != 3) c.undecided("has a wrong rank");
    const std::int64_t width = over(c.in(2).shape[2], groups);
    c.make(0, q, {q.shape[0], q.shape[1], times(heads, width)});
    c.make(1, q, {q.shape[0], groups, over(q.shape[2], heads), width});
}

void follow_causal_conv(walk_call& c) {
    attention_of(c, {{3}, {}});
    const walked& x = c.in(0);
    if (x.shape.size() != 3) c.undecided("has a wrong rank");
    c.keep(0, x);
    const std::int64_t taps = c.ranked(1).shape.size() == 3 ? c.in(1).shape[2] : -1;
    c.make(1, x, {x.shape[0], x.shape[1], taps < 1 ? -1 : taps - 1});
}

/// Experts are chosen for each token.
void follow_experts(walk_call& c) {
    const walked& x = c.ranked(0);
    c.along_first(0, "tokens");
    for (std::size_t i = 1; i < c.inputs(); ++i) {
        if (!c.has(i)) continue;
        const bool router = i == 1 || (c.op() == "QMoE" && c.ranked(i).is_rows());
        if (!router) {
            c.shared(i, "weights");
            continue;
        }
        c.along_first(i, "scores");
        if (c.is_rows(i) != x.is_rows()) c.mixed("combines samples with a value of all of them");
    }
    c.keep(0, x);
}

void follow_embeddings(walk_call& c) {
    const walked& ids = c.ranked(0);
    for (const std::size_t i : {2, 3, 4, 5, 6}) c.shared(i, "tables");
    if (ids.shape.size() != 2) c.undecided("has a wrong rank");
    for (const std::size_t i : {0, 1, 7, 8}) {
        if (!c.has(i)) continue;
        c.along_first(i, "ids");
        const bool places = i == 8 && !c.is_rows(i) && (c.ranked(i).shape.size() == 1 || (c.rank(i) == 2 && c.in(i).shape[0] == 1));
        if (places) continue;
        if (c.is_rows(i) != ids.is_rows()) c.mixed("combines samples with a value of all of them");
        if (ids.is_rows()) require_alike(c, ids, c.in(i));
    }
    const std::int64_t width = c.ranked(2).shape.empty() ? -1 : c.in(2).shape.back();
    c.make(0, ids, {ids.shape[0], ids.shape[1], width});
    c.make(1, ids, {ids.shape[0]});
    c.make(2, ids, {ids.shape[0], ids.shape[1], width});
}

void follow_stft(walk_call& c) {
    const walked& x = c.ranked(0);
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "parameters");
    if (x.shape.empty()) c.undecided("has a wrong rank");
    if (x.is_rows() && x.axis != 0) c.mixed("computes along the samples");
    c.make(0, x, {x.shape[0], -1, -1, 2});
}

void follow_dft(walk_call& c) {
    const walked& x = c.ranked(0);
    c.shared(1, "length");
    std::int64_t axis = c.view().get_int("axis", 1);
    if (c.version() >= 20) {
        axis = -2;
        if (c.has(2)) {
            const auto given = c.integers(2);
            if (!given || given->size() != 1) c.undecided("takes an axis that is not known");
            axis = (*given)[0];
        }
    }
    axis = c.normal(axis, c.rank(0));
    if (x.is_rows() && (x.axis == axis || x.axis + 1 == c.rank(0))) c.mixed("computes along the samples");
    const bool one_sided = c.view().get_int("onesided", 0) != 0, inverse = c.view().get_int("inverse", 0) != 0;
    dims shape = x.shape;
    if (c.has(1) || one_sided) shape[static_cast<std::size_t>(axis)] = -1;
    shape.back() = one_sided && inverse ? 1 : 2;
    c.make(0, x, shape);
}

}  // namespace qk::graph::ops
