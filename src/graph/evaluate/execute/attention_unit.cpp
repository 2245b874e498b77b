// SPDX-License-Identifier: Apache-2.0
// Definitions of attention_unit.hpp.
#include "graph/evaluate/execute/attention_unit.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "graph/base/inner_loop.hpp"
#include "graph/evaluate/execute/node_call.hpp"
#include "graph/evaluate/execute/onednn.hpp"
#include "graph/evaluate/execute/step_key.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/matmul.hpp"
#include "graph/ops/softmax.hpp"

namespace qk::graph::execute {
namespace {

/// Returns the number of rows of a part. It depends on the shape alone, so that results do not depend on threads; a part's scores stay in
/// cache.
std::int64_t rows_together(std::int64_t m, std::int64_t n, std::int64_t k) {
    if (m * n * k < 1 << 21) return m;
    return std::min<std::int64_t>(m, n <= 2048 ? 64 : 32);
}

/// Returns the work of a product as for_each_range counts it.
std::size_t work_of_product(std::int64_t m, std::int64_t n, std::int64_t k) { return static_cast<std::size_t>(m * n * k) / 8; }

}  // namespace

#ifdef QK_HAVE_ONEDNN

struct value_products::made {
    std::shared_mutex mutex;
    std::map<std::array<std::int64_t, 3>, std::unique_ptr<dnn_matmul>> by_shape;  ///< null: oneDNN has no fast code

    const dnn_matmul* at(std::int64_t m, std::int64_t n, std::int64_t k) {
        if (m < 4 || m * n * k < 1 << 15) return nullptr;  // a call takes longer than its arithmetic
        const std::array<std::int64_t, 3> shape{m, n, k};
        {
            const std::shared_lock lock(mutex);
            if (const auto known = by_shape.find(shape); known != by_shape.end()) return known->second.get();
        }
        const std::unique_lock lock(mutex);
        auto& code = by_shape[shape];
        if (!code) code = dnn_matmul::make(m, k, n, dnn_matmul::rows_of(k, n), false);
        return code.get();
    }
};

void value_products::multiply(const float* a, const float* b, float* y, std::int64_t m, std::int64_t n, std::int64_t k,
                              allocator& memory) const {
    const dnn_matmul* quick = made_->at(m, n, k);
    if (quick == nullptr) return ops::multiply(a, false, b, false, y, m, n, k);
    const one_thread alone;
    quick->run(a, b, nullptr, y, memory);
}

#else

struct value_products::made {};

void value_products::multiply(const float* a, const float* b, float* y, std::int64_t m, std::int64_t n, std::int64_t k, allocator&) const {
    ops::multiply(a, false, b, false, y, m, n, k);
}

#endif

value_products::value_products() : made_(std::make_unique<made>()) {}
value_products::~value_products() = default;

tensor value_products::run(const node_view& node, const tensor& a, const tensor& b, allocator& memory) const {
    if (a.type() != data_type::float32 || b.type() != data_type::float32 || a.rank() < 2 || b.rank() < 2) return {};
    const ops::matmul_plan p = ops::plan_matmul(node, a.shape(), b.shape());
    if (element_count(p.shape) == 0 || p.k == 0) return {};
    tensor y(data_type::float32, p.shape, memory.allocate(element_count(p.shape) * sizeof(float)));
    const std::int64_t step = rows_together(p.m, p.n, p.k), steps = (p.m + step - 1) / step;
    const float *from_a = a.as<float>().data(), *from_b = b.as<float>().data();
    float* to = y.as<float>().data();
    const auto parts = element_count(p.batch) * static_cast<std::size_t>(steps);
    for_each_range(parts, work_of_product(step, p.n, p.k), [&](std::size_t begin, std::size_t end) {
        for (auto part = static_cast<std::int64_t>(begin); part < static_cast<std::int64_t>(end); ++part)
            p.each(part / steps, part / steps + 1, [&](std::int64_t i, std::int64_t ia, std::int64_t ib) {
                const std::int64_t first = part % steps * step;
                multiply(from_a + (ia * p.m + first) * p.k, from_b + ib * p.k * p.n, to + (i * p.m + first) * p.n,
                         std::min(step, p.m - first), p.n, p.k, memory);
            });
    });
    return y;
}

std::shared_ptr<const attention_unit> attention_unit::find(const net_node& scores, const only_reader& next) {
    using detail::is_op;
    if (!is_op(scores, "MatMul") || scores.inputs.size() != 2 || scores.outputs[0] < 0) return nullptr;
    auto unit = std::make_shared<attention_unit>();
    unit->nodes_.push_back({&scores});
    for (int stage = 0; stage < 4;) {
        const auto [node, input] = next(unit->nodes_.back().node->outputs[0]);
        if (node == nullptr || node->outputs.empty() || node->outputs[0] < 0) return nullptr;
        const std::size_t own = input == &node->inputs[0] ? 0 : 1;
        const bool two = node->inputs.size() == 2 && node->view.version() >= 7;
        if (stage < 1 && two && (is_op(*node, "Mul") || (is_op(*node, "Div") && own == 0))) stage = 1;
        else if (stage < 2 && two && is_op(*node, "Add")) stage = 2;
        else if (stage < 3 && is_op(*node, "Softmax")) stage = 3;
        else if (stage == 3 && two && is_op(*node, "MatMul") && own == 0) stage = 4;
        else return nullptr;
        unit->nodes_.push_back({node, own});
    }
    return unit;
}

std::vector<const net_input*> attention_unit::inputs() const {
    std::vector<const net_input*> all{&scores().inputs[0]};
    for (const link& l : nodes_)
        if (l.node->inputs.size() == 2) all.push_back(&l.node->inputs[1 - l.own]);
    return all;
}

std::vector<const net_node*> attention_unit::nodes() const {
    std::vector<const net_node*> all;
    for (const link& l : nodes_) all.push_back(l.node);
    return all;
}

std::size_t attention_unit::find_link(operator_word op) const {
    for (std::size_t i = 1; i < nodes_.size(); ++i)
        if (operator_of(nodes_[i].node->view) == op) return i;
    return 0;
}

/// Sizes and strides of the operands. A part is some rows of one matrix of scores.
struct attention_unit::layout {
    ops::matmul_plan scores, context;
    enum class scaling : std::uint8_t { none, by_product, by_quotient } scaled = scaling::none;
    float scale = 1;
    const float* mask = nullptr;             ///< null: none
    std::vector<std::int64_t> mask_strides;  ///< by axis of the scores; 0 where the mask is broadcast

    const float* mask_row(std::int64_t matrix, std::int64_t row) const {
        const float* at = mask + mask_strides[mask_strides.size() - 2] * row;
        for (std::size_t d = scores.batch.size(); d-- > 0; matrix /= scores.batch[d]) at += mask_strides[d] * (matrix % scores.batch[d]);
        return at;
    }

    /// Scales, masks and normalizes one row of scores, in the order of the operators.
    void finish_row(float* x, std::int64_t matrix, std::int64_t row) const {
        const std::int64_t n = scores.n;
        const float by = scale;
        if (scaled == scaling::by_product)
            for (std::int64_t j = 0; j < n; ++j) x[j] *= by;
        else if (scaled == scaling::by_quotient)
            for (std::int64_t j = 0; j < n; ++j) x[j] /= by;
        if (mask != nullptr) {
            const float* m = mask_row(matrix, row);
            if (mask_strides.back() != 0)
                for (std::int64_t j = 0; j < n; ++j) x[j] += m[j];
            else
                for (std::int64_t j = 0; j < n; ++j) x[j] += *m;
        }
        const auto length = static_cast<std::size_t>(n);
        if (length < 2 * ops::vector_lanes) ops::softmax_short_rows(x, x, 1, length);
        else ops::softmax_row(x, x, length, false);
    }
};

bool attention_unit::plan(const std::vector<tensor>& in, layout& l) const {
    for (const tensor& t : in)
        if (t.type() != data_type::float32 || t.size() == 0) return false;
    const tensor &q = in[0], &k = in[1], &v = in.back();
    if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) return false;
    l.scores = ops::plan_matmul(scores().view, q.shape(), k.shape());
    const dims& shape = l.scores.shape;
    const node_view& softmax = nodes_[nodes_.size() - 2].node->view;
    const std::int64_t axis = softmax.get_int("axis", softmax.version() >= 13 ? -1 : 1), rank = std::ssize(shape);
    if (axis != -1 && axis != rank - 1) return false;
    std::size_t next = 2;
    for (const operator_word op : {operator_word("Mul"), operator_word("Div")})
        if (has(op)) {
            const tensor& by = in[next++];
            if (by.size() != 1 || by.rank() > shape.size()) return false;
            l.scale = by.as<float>()[0];
            l.scaled = operator_name(op) == "Mul" ? layout::scaling::by_product : layout::scaling::by_quotient;
        }
    if (has("Add")) {
        const tensor& mask = in[next++];
        if (mask.rank() > shape.size()) return false;
        l.mask = mask.as<float>().data();
        l.mask_strides.assign(shape.size(), 0);
        std::int64_t step = 1;
        for (std::size_t d = shape.size(), skip = d - mask.rank(); d-- > skip;) {
            const std::int64_t length = mask.dim(d - skip);
            if (length != 1 && length != shape[d]) return false;
            if (length != 1) l.mask_strides[d] = step;
            step *= length;
        }
    }
    l.context = ops::plan_matmul(context().view, shape, v.shape());
    return l.context.batch == l.scores.batch;
}

tensor attention_unit::one_by_one(const std::vector<tensor>& in, const value_products& products, allocator& memory) const {
    std::vector<tensor> made(1);
    std::size_t next = 2;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        std::vector<tensor> operands;
        if (i == 0) operands = {in[0], in[1]};
        else if (nodes_[i].node->inputs.size() == 2) operands = {made[0], in[next++]};
        else operands = {made[0]};
        if (i != 0 && nodes_[i].own == 1) std::swap(operands[0], operands[1]);
        const net_node& node = *nodes_[i].node;
        tensor y = detail::is_op(node, "MatMul") ? products.run(node.view, operands[0], operands[1], memory) : tensor();
        if (y.empty()) detail::call_node(node, nullptr, operands, made, memory, detail::no_subgraphs());
        else made[0] = std::move(y);
    }
    return std::move(made[0]);
}

tensor attention_unit::run(std::vector<tensor> in, const value_products& products, allocator& memory) const {
    layout l;
    if (!plan(in, l)) return one_by_one(in, products, memory);
    const std::int64_t m = l.scores.m, n = l.scores.n, k = l.scores.k, width = l.context.n;
    tensor y(data_type::float32, l.context.shape, memory.allocate(element_count(l.context.shape) * sizeof(float)));
    const std::int64_t step = rows_together(m, n, std::max(k, width)), steps = (m + step - 1) / step;
    const float *q = in[0].as<float>().data(), *keys = in[1].as<float>().data(), *v = in.back().as<float>().data();
    float* to = y.as<float>().data();
    const auto of_rows = [&](std::int64_t matrix, std::int64_t first, float* space) {
        const std::int64_t count = std::min(step, m - first);
        l.scores.each(matrix, matrix + 1, [&](std::int64_t, std::int64_t ia, std::int64_t ib) {
            products.multiply(q + (ia * m + first) * k, keys + ib * k * n, space, count, n, k, memory);
        });
        for (std::int64_t r = 0; r < count; ++r) l.finish_row(space + r * n, matrix, first + r);
        l.context.each(matrix, matrix + 1, [&](std::int64_t, std::int64_t, std::int64_t ib) {
            products.multiply(space, v + ib * n * width, to + (matrix * m + first) * width, count, width, n, memory);
        });
    };
    const auto parts = element_count(l.scores.batch) * static_cast<std::size_t>(steps);
    for_each_range(parts, work_of_product(step, n, k + width + 64), [&](std::size_t begin, std::size_t end) {
        const auto space = memory.allocate(static_cast<std::size_t>(step * n) * sizeof(float));
        for (auto part = static_cast<std::int64_t>(begin); part < static_cast<std::int64_t>(end); ++part)
            of_rows(part / steps, part % steps * step, reinterpret_cast<float*>(space.get()));
    });
    return y;
}

}  // namespace qk::graph::execute
