// SPDX-License-Identifier: Apache-2.0
// Definitions of row_unit.hpp.
#include "graph/evaluate/execute/row_unit.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "graph/evaluate/execute/step_key.hpp"
#include "graph/evaluate/execute/sum_unit.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/activation.hpp"
#include "graph/ops/layer_normalization.hpp"
#include "graph/ops/reduce.hpp"

namespace qk::graph::execute {
namespace {

using ops::vector_lanes;

/// Returns v, rounded as if it were stored, so that the compiler does not fuse it with the next operation.
template <class V>
V stored(V v) {
#if defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}

template <class F, bool RepeatsA, bool RepeatsB>
void combine_rows(some_rows a, some_rows b, float* y, std::size_t rows, std::size_t n, F f) {
    for (std::size_t r = 0; r < rows; ++r, y += n) {
        const float *p = a.first + r * a.step, *q = b.first + r * b.step;
        const auto vector = [](const float* at, bool repeats, std::size_t i) {
            return repeats ? ops::vector_fill(*at) : ops::vector_load(at + i);
        };
        std::size_t i = 0;
        for (; i + vector_lanes <= n; i += vector_lanes) ops::vector_store(y + i, f(vector(p, RepeatsA, i), vector(q, RepeatsB, i)));
        for (; i < n; ++i) y[i] = f(p[RepeatsA ? 0 : i], q[RepeatsB ? 0 : i]);
    }
}

/// f(a, b), or f(a * by, b), or f(a^3 * by, b).
template <class F, bool Scaled, bool Cubed>
struct pair_function {
    float by;
    template <class V>
    V operator()(V a, V b) const {
        if constexpr (Cubed) a = a * a * a;
        if constexpr (Scaled) a = stored(a * by);
        return F{}(a, b);
    }
};

template <class F, bool Scaled = false, bool Cubed = false>
void combine(some_rows a, some_rows b, float* y, std::size_t rows, std::size_t n, float by) {
    if (a.step == (a.repeats ? 0 : n) && b.step == (b.repeats ? 0 : n)) n *= std::exchange(rows, 1);  // rows are contiguous
    const pair_function<F, Scaled, Cubed> f{by};
    if (a.repeats) combine_rows<decltype(f), true, false>(a, b, y, rows, n, f);
    else if (b.repeats) combine_rows<decltype(f), false, true>(a, b, y, rows, n, f);
    else combine_rows<decltype(f), false, false>(a, b, y, rows, n, f);
}

template <class F>
constexpr auto elements = ops::map_unary<F, float>;

/// F(x), F(x * before) or F(x / before), then perhaps + after.
template <class F, char Before, bool After>
void with_numbers(const float* x, float* y, std::size_t n, float before, float after) {
    ops::map_vectors(x, y, n, [=](ops::vfloat v) {
        if constexpr (Before == '*') v = stored(v * before);
        if constexpr (Before == '/') v = stored(v / before);
        v = F::vector(v);
        if constexpr (After) v = stored(v) + after;
        return v;
    });
}
template <class F>
auto numbers_of(operator_name first, bool after) {
    if (first == "Mul") return after ? with_numbers<F, '*', true> : with_numbers<F, '*', false>;
    if (first == "Div") return after ? with_numbers<F, '/', true> : with_numbers<F, '/', false>;
    return after ? with_numbers<F, ' ', true> : with_numbers<F, ' ', false>;
}
using number_function = void (*)(const float*, float*, std::size_t, float, float);
number_function numbers_of(operator_name op, operator_name first, bool after) {
    if (op == "Tanh") return numbers_of<ops::functions::tanh>(first, after);
    if (op == "Erf") return numbers_of<ops::functions::erf>(first, after);
    return op == "Sigmoid" ? numbers_of<ops::functions::sigmoid>(first, after) : nullptr;
}

template <class T>
struct named {
    operator_word op;
    T function;
};
constexpr named<void (*)(const float*, float*, std::size_t)> of_one[] = {
    {"Erf", elements<ops::functions::erf>},         {"Tanh", elements<ops::functions::tanh>},
    {"Sigmoid", elements<ops::functions::sigmoid>}, {"Exp", elements<ops::functions::exp>},
    {"Sqrt", elements<ops::functions::sqrt>},       {"Reciprocal", elements<ops::functions::reciprocal>},
    {"Neg", elements<ops::functions::negate>},      {"Abs", elements<ops::functions::absolute>},
    {"Relu", elements<ops::functions::relu>},       {"Softplus", elements<ops::functions::softplus>},
};
constexpr named<void (*)(some_rows, some_rows, float*, std::size_t, std::size_t, float)> of_two[] = {
    {"Add", combine<ops::functions::add>},
    {"Sub", combine<ops::functions::subtract>},
    {"Mul", combine<ops::functions::multiply>},
    {"Div", combine<ops::functions::divide>},
};

/// Returns the value of a small constant of one element; nullopt for others.
std::optional<double> number_at(const cache& shared, slot s) {
    if (s >= no_slot || shared.is_late(s)) return std::nullopt;
    const tensor t = shared.constant(s);
    double value = 0;
    if (t.size() != 1 || t.rank() > 1 || !ops::read_elements<double>(t.type(), t.bytes(), std::span(&value, 1))) return std::nullopt;
    return value;
}

constexpr std::size_t piece = 1024;  ///< elements of a value that are computed at a time

}  // namespace

bool row_unit::find(const step& t, const cache& shared, node& n) {
    if (t.node == nullptr || t.unit || t.dense || t.attention || t.device || t.products != nullptr || t.rows || !t.bodies.empty() ||
        t.quantizer >= 0 || t.relu != nullptr || t.add != nullptr || t.out.size() != 1 || t.out[0] < 0)
        return false;
    const auto is = [&](operator_word op) { return detail::is_op(*t.node, op); };
    const node_view& view = t.node->view;
    for (const auto& [op, function] : of_two)
        if (is(op)) return n.op = op, n.pairs = function, view.version() >= 7 && t.in.size() == 2;
    for (const auto& [op, function] : of_one)
        if (is(op)) return n.op = op, n.elements = function, true;
    if (is("Gelu")) return n.elements = ops::gelu_of(view), n.elements != nullptr;
    if (is("Pow")) {
        const auto exponent = number_at(shared, t.in[1]);
        if (exponent == 3.0) n.op = operator_word("Cube");
        return exponent && (n.elements = ops::short_power(*exponent)) != nullptr;
    }
    if (is("ReduceMean")) {
        const auto axes = view.get_ints("axes");
        const auto given = t.in.size() > 1 ? number_at(shared, t.in[1]) : std::nullopt;
        if (view.get_int("keepdims", 1) == 0 || (axes.size() == 1) == given.has_value()) return false;
        n.axis = given ? static_cast<std::int64_t>(*given) : axes[0];
        return n.mean = true;
    }
    if (!is("LayerNormalization") || t.in.size() < 2) return false;
    n.axis = view.get_int("axis", -1), n.epsilon = view.get_float("epsilon", 1e-5f);
    return n.norm = true;
}

bool row_unit::takes(const step& t, const cache& shared) {
    node n;
    return find(t, shared, n);
}

row_unit::row_unit(std::span<const step* const> members, const cache& shared, slot product) : members_(members.size()) {
    for (const step* t : members) {
        node& n = nodes_.emplace_back();
        find(*t, shared, n);
        n.reads = t->in, n.makes = t->out[0];
        if (n.elements != nullptr || n.mean) n.reads.resize(1);
        worth_it_ = worth_it_ || (members.size() > 1 && n.op != "Add" && n.op != "Relu");
        if (n.pairs == nullptr) continue;
        const bool either = n.op == "Add" || n.op == "Mul";
        for (const std::size_t k : {std::size_t{1}, std::size_t{0}})
            if ((k == 1 || either) && !n.constant && n.reads[k] < no_slot && shared.type_of(n.reads[k]) == data_type::float32)
                if (const auto number = number_at(shared, n.reads[k])) {
                    n.constant = static_cast<float>(*number);
                    if (k == 0) std::swap(n.reads[0], n.reads[1]);
                }
    }
    take_in_numbers();
    number_operands(product);
    place();
}

/// Merges products and sums with a number into the function before or behind them; each is rounded as before.
void row_unit::take_in_numbers() {
    std::unordered_map<slot, int> readers;
    std::unordered_map<slot, std::size_t> maker;
    for (const node& n : nodes_)
        for (const slot s : n.reads) ++readers[s];
    std::vector<char> gone(nodes_.size(), 0);
    // Returns the node of the unit that makes s, if s has one reader; else null.
    const auto only_made = [&](slot s) -> node* {
        const auto at = maker.find(s);
        return at == maker.end() || readers.at(s) != 1 ? nullptr : &nodes_[at->second];
    };
    const auto take = [&](node& n, std::size_t k, const node& from) {
        gone[maker.at(from.makes)] = 1;
        n.reads[k] = from.reads[0];
    };
    for (std::size_t i = 0; i < nodes_.size(); maker[nodes_[i].makes] = i, ++i) {
        node& n = nodes_[i];
        node* before = n.mean || n.norm ? nullptr : only_made(n.reads[0]);
        if (n.elements != nullptr && before != nullptr && before->constant && before->first.empty() && before->op != "Add" &&
            before->op != "Sub" && numbers_of(n.op, before->op, false) != nullptr) {
            n.numbers = numbers_of(n.op, n.first = before->op, false), n.before = *before->constant;
            take(n, 0, *before);
        } else if (n.op == "Add" && n.constant && before != nullptr && before->elements != nullptr &&
                   numbers_of(before->op, before->first, true) != nullptr) {
            n.op = before->op, n.first = before->first, n.before = before->before, n.after = *n.constant;
            n.elements = before->elements, n.numbers = numbers_of(n.op, n.first, true), n.pairs = nullptr;
            n.constant.reset(), n.reads.resize(1);
            n.op = {};
            take(n, 0, *before);
        } else if (n.pairs != nullptr && !n.constant && (n.op == "Add" || n.op == "Mul") && n.reads[0] != n.reads[1]) {
            for (std::size_t k = 0; k < 2 && n.first.empty(); ++k) {
                node* scaled = only_made(n.reads[k]);
                if (scaled == nullptr || scaled->op != "Mul" || !scaled->constant) continue;
                n.first = scaled->op, n.before = *scaled->constant;
                take(n, k, *scaled);
                if (k == 1) std::swap(n.reads[0], n.reads[1]);
                node* cube = only_made(n.reads[0]);
                const bool cubed = cube != nullptr && cube->op == "Cube";
                if (cubed) take(n, 0, *cube);
                using ops::functions::add, ops::functions::multiply;
                n.pairs = n.op == "Add" ? (cubed ? combine<add, true, true> : combine<add, true>)
                                        : (cubed ? combine<multiply, true, true> : combine<multiply, true>);
            }
        }
    }
    std::vector<node> kept;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (!gone[i]) kept.push_back(std::move(nodes_[i]));
    nodes_ = std::move(kept);
}

void row_unit::number_operands(slot product) {
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
        node& n = nodes_[k];
        for (std::size_t i = 0; i < n.reads.size(); ++i) {
            const slot s = n.reads[i];
            if (s == no_slot) continue;
            const auto own =
                std::find_if(nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(k), [s](const node& m) { return m.makes == s; });
            if (own - nodes_.begin() < static_cast<std::ptrdiff_t>(k)) {
                n.in[i] = static_cast<int>(own - nodes_.begin());
                continue;
            }
            auto at = std::find(inputs_.begin(), inputs_.end(), s);
            if (at == inputs_.end()) at = inputs_.insert(at, s);
            n.in[i] = -1 - static_cast<int>(at - inputs_.begin());
            if (s == product) product_ = n.in[i];
        }
    }
}

/// Assigns buffers to values between nodes. A buffer becomes free with its last reader, and no node reads the buffer that it writes.
void row_unit::place() {
    std::vector<int> last(nodes_.size(), 0), free;
    for (std::size_t k = 0; k < nodes_.size(); ++k)
        for (const int i : nodes_[k].in)
            if (i >= 0) last[static_cast<std::size_t>(i)] = static_cast<int>(k);
    for (std::size_t k = 0; k + 1 < nodes_.size(); ++k) {
        node& n = nodes_[k];
        if (free.empty()) free.push_back(spaces_++);
        n.space = free.back();
        free.pop_back();
        for (std::size_t i = 0; i < k; ++i)
            if (last[i] == static_cast<int>(k)) free.push_back(nodes_[i].space);
    }
}

row_unit::call::call(const row_unit& unit, std::vector<tensor> in) : unit_(unit), in_(std::move(in)) {
    const tensor* like = &in_[0];
    for (const tensor& t : in_) {
        if (t.type() != data_type::float32) return;
        if (t.size() > like->size() || (t.size() == like->size() && t.rank() > like->rank())) like = &t;
    }
    shape_ = like->shape();
    if (shape_.empty() || like->size() == 0 || shape_.back() < 2) return;
    width_ = static_cast<std::size_t>(shape_.back()), rows_ = like->size() / width_, together_ = std::max<std::size_t>(1, piece / width_);
    dims column = shape_;
    column.back() = 1;
    for (const tensor& t : in_) {
        if (t.shape() == shape_) kinds_.push_back(kind::full);
        else if (t.rank() > shape_.size()) return;
        else if (t.size() == 1) kinds_.push_back(kind::one);
        else if (t.shape() == column) kinds_.push_back(kind::column);
        else if (t.size() == width_ && t.shape().back() == shape_.back()) kinds_.push_back(kind::row);
        else return;
    }
    const auto rank = std::ssize(shape_);
    for (const node& n : unit_.nodes_) {
        const auto kind_of = [&](int i) { return i >= 0 ? made_[static_cast<std::size_t>(i)] : kinds_[static_cast<std::size_t>(-1 - i)]; };
        const kind x = kind_of(n.in[0]);
        const bool along_rows = n.axis == -1 || n.axis == rank - 1;
        if (n.pairs != nullptr) {
            const kind y = kind_of(n.in[1]);
            const auto in_column = [](kind k) { return k == kind::column || k == kind::one; };
            if (x == kind::full || y == kind::full) made_.push_back(kind::full);
            else if (in_column(x) && in_column(y) && (x == kind::column || y == kind::column)) made_.push_back(kind::column);
            else return;
        } else if (n.mean || n.norm) {
            if (x != kind::full || !along_rows) return;
            for (int k = 1; n.norm && k < 3; ++k)
                if (n.in[k] != left_out && (n.in[k] >= 0 || kind_of(n.in[k]) != kind::row)) return;
            made_.push_back(n.mean ? kind::column : kind::full);
        } else if (x == kind::full || x == kind::column) {
            made_.push_back(x);
        } else {
            return;
        }
    }
    possible_ = made_.back() == kind::full;
}

/// Returns rows from `row` on of an operand. `in_column`: the node's result has one value for each row instead of a full row.
some_rows row_unit::call::operand(int which, std::size_t row, std::size_t first, const float* product, const float* space,
                                  bool in_column) const {
    const bool is_input = which < 0;
    const auto at = static_cast<std::size_t>(is_input ? -1 - which : which);
    const kind k = is_input ? kinds_[at] : made_[at];
    const float* from =
        is_input ? in_[at].as<float>().data() : space + static_cast<std::size_t>(unit_.nodes_[at].space) * together_ * width_;
    if (which == unit_.product_ && product != nullptr) from = product - first * width_;
    switch (k) {
        case kind::full: return {is_input ? from + row * width_ : from, width_, false};
        case kind::column: return {is_input ? from + row : from, 1, !in_column};
        case kind::row: return {from, 0, false};
        default: return {from, 0, true};
    }
}

void row_unit::call::run(std::size_t first, std::size_t count, const float* product, float* y, allocator& memory) const {
    const auto held = memory.allocate(static_cast<std::size_t>(unit_.spaces_) * together_ * width_ * sizeof(float));
    auto* space = reinterpret_cast<float*>(held.get());
    for (std::size_t row = first; row < first + count; row += together_) {
        const std::size_t rows = std::min(together_, first + count - row);
        for (std::size_t k = 0; k < unit_.nodes_.size(); ++k) {
            const node& n = unit_.nodes_[k];
            const bool in_column = made_[k] == kind::column && !n.mean;
            const std::size_t width = in_column ? 1 : width_;
            float* to = n.space < 0 ? y + row * width_ : space + static_cast<std::size_t>(n.space) * together_ * width_;
            const auto of = [&](int which) { return operand(which, row, first, product, space, in_column); };
            const some_rows x = of(n.in[0]);
            if (n.pairs != nullptr) n.pairs(x, of(n.in[1]), to, rows, width, n.before);
            else if (n.numbers != nullptr) n.numbers(x.first, to, rows * width, n.before, n.after);
            else if (n.elements != nullptr) n.elements(x.first, to, rows * width);
            else if (n.mean) ops::reduce_rows<ops::reducers::mean>(x.first, to, {rows, width, 1});
            else
                for (std::size_t r = 0; r < rows; ++r)
                    ops::normalize_row(x.first + r * width, to + r * width, width, n.epsilon, true,
                                       n.in[1] == left_out ? nullptr : of(n.in[1]).first,
                                       n.in[2] == left_out ? nullptr : of(n.in[2]).first);
        }
    }
}

}  // namespace qk::graph::execute
