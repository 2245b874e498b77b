// SPDX-License-Identifier: Apache-2.0
// Definitions of infer_shapes.hpp: a rule for each operator, one pass in the order of the nodes. What no rule covers stays unknown.
#include "graph/model/infer_shapes.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {

namespace {

/// Symbols of lengths lie below any number that a shape or an index may hold; `anything` stands for a number that is not known at all.
constexpr std::int64_t anything = -(std::int64_t{1} << 40);
bool is_symbol(std::int64_t v) { return v <= anything; }

/// These lists of operators are words between spaces.
constexpr std::string_view keeps_shape =
    " Abs BatchNormalization BiasGelu Cast Celu Clip CumSum DequantizeLinear Dropout Elu Erf Exp FastGelu Gelu GroupNormalization "
    "HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization LeakyRelu Log LogSoftmax Mish Neg Not QuantizeLinear "
    "QuickGelu Reciprocal Relu RMSNormalization RotaryEmbedding Sigmoid SimplifiedLayerNormalization SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization Softmax Softplus Sqrt Swish Tanh Trilu ";
constexpr std::string_view broadcasts =
    " Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Sum Where Xor ";
constexpr std::string_view reduces = " ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ";
bool is_among(std::string_view list, const std::string& op) { return list.find(" " + op + " ") != list.npos; }

}  // namespace

class shape_rules {
  public:
    shape_rules(inferred_shapes& all, const onnx::NodeProto& node) : all_(all), n_(node) {}

    void run() {
        const std::string& op = n_.op_type();
        if (n_.output_size() == 0 || !(n_.domain().empty() || n_.domain() == "com.microsoft")) return;
        if (is_among(keeps_shape, op)) keep();
        else if (is_among(broadcasts, op)) broadcast();
        else if (is_among(reduces, op)) reduce();
        else if (op == "MatMul") product();
        else if (op == "Gemm") gemm();
        else if (op == "Transpose") transpose();
        else if (op == "Reshape") reshape();
        else if (op == "Unsqueeze") unsqueeze();
        else if (op == "Squeeze") squeeze();
        else if (op == "Concat") concat();
        else if (op == "Split") split();
        else if (op == "Slice") slice();
        else if (op == "Gather") gather();
        else if (op == "Expand" && shape_of(0) && values_of(1)) made(joined(*shape_of(0), lengths(*values_of(1))));
        else if (op == "Shape" || op == "Range") shape();
    }

  private:
    using list = std::optional<dims>;

    std::int64_t symbol() { return anything - ++all_.symbols_; }
    dims symbols(std::size_t count) {
        dims d(count);
        for (std::int64_t& v : d) v = symbol();
        return d;
    }

    list shape_of(int input) const {
        if (input >= n_.input_size() || n_.input(input).empty()) return std::nullopt;
        const std::string& name = n_.input(input);
        if (all_.model_.is_constant(name)) return all_.model_.constant_shape(name);
        const dims* found = all_.find(name);
        return found ? list(*found) : std::nullopt;
    }
    /// Returns the elements of an integer tensor of rank 0 or 1.
    list values_of(int input) const {
        if (input >= n_.input_size() || n_.input(input).empty()) return std::nullopt;
        const std::string& name = n_.input(input);
        if (const auto known = all_.values_.find(name); known != all_.values_.end()) return known->second;
        const model& m = all_.model_;
        if (!m.is_constant(name) || m.constant_type(name) != data_type::int64 || element_count(m.constant_shape(name)) > 64)
            return std::nullopt;
        const tensor t = m.constant(name);
        return dims(t.as<std::int64_t>().begin(), t.as<std::int64_t>().end());
    }
    dims lengths(dims values) {
        for (std::int64_t& v : values)
            if (v == anything) v = symbol();
        return values;
    }
    /// Returns axes from the attribute, or from the input that later opsets have instead.
    list axes(int input) const {
        if (const auto* a = find_attribute(n_, "axes")) return dims(a->ints().begin(), a->ints().end());
        return values_of(input);
    }
    void made(dims shape, int output = 0) {
        if (output < n_.output_size() && !n_.output(output).empty()) all_.shapes_.insert_or_assign(n_.output(output), std::move(shape));
    }
    void holds(list values) {
        if (values) all_.values_.insert_or_assign(n_.output(0), std::move(*values));
    }
    static std::optional<std::size_t> axis(std::int64_t a, std::size_t rank) {
        if (a < 0) a += static_cast<std::int64_t>(rank);
        return a >= 0 && a < static_cast<std::int64_t>(rank) ? std::optional(static_cast<std::size_t>(a)) : std::nullopt;
    }
    /// Returns which axes the list names; nullopt if it names one that does not exist.
    static std::optional<std::vector<bool>> among(const dims& list, std::size_t rank) {
        std::vector<bool> named(rank, false);
        for (const std::int64_t each : list) {
            const auto at = axis(each, rank);
            if (!at) return std::nullopt;
            named[*at] = true;
        }
        return named;
    }

    void keep() {
        const list s = shape_of(0);
        if (s) made(*s);
        if (s && n_.op_type().starts_with("Skip")) made(*s, 3);  // output 3 is the sum before it is normalized
        if (n_.op_type() == "Cast" || n_.op_type() == "Identity") holds(values_of(0));
    }

    /// Returns the length that two broadcast lengths give. An unknown length may be 1.
    std::int64_t joined(std::int64_t a, std::int64_t b) {
        if (a == b || b == 1) return a;
        if (a == 1) return b;
        return !is_symbol(a) ? a : !is_symbol(b) ? b : symbol();
    }
    dims joined(const dims& a, const dims& b) {
        dims y(std::max(a.size(), b.size()));
        for (std::size_t i = 0; i < y.size(); ++i)
            y[y.size() - 1 - i] = joined(i < a.size() ? a[a.size() - 1 - i] : 1, i < b.size() ? b[b.size() - 1 - i] : 1);
        return y;
    }
    void broadcast() {
        if (find_attribute(n_, "axis")) return;  // before opset 7
        dims y;
        for (int i = 0; i < n_.input_size(); ++i) {
            const list s = shape_of(i);
            if (!s) return;
            y = joined(y, *s);
        }
        made(y);
        if (n_.input_size() == 2) arithmetic();
    }
    void arithmetic() {
        const list a = values_of(0), b = values_of(1);
        if (!a || !b || (a->size() != b->size() && a->size() != 1 && b->size() != 1)) return;
        dims y(std::max(a->size(), b->size()));
        for (std::size_t i = 0; i < y.size(); ++i) {
            const std::int64_t u = (*a)[a->size() == 1 ? 0 : i], v = (*b)[b->size() == 1 ? 0 : i];
            const std::string& op = n_.op_type();
            if (is_symbol(u) || is_symbol(v)) y[i] = (op == "Mul" || op == "Div") && v == 1 ? u : op == "Mul" && u == 1 ? v : anything;
            else if (op == "Add") y[i] = u + v;
            else if (op == "Sub") y[i] = u - v;
            else if (op == "Mul") y[i] = u * v;
            else if (op == "Div" && u >= 0 && v > 0) y[i] = u / v;
            else return;
        }
        holds(y);
    }

    void reduce() {
        const list s = shape_of(0), a = axes(1);
        if (!s || !a) return;
        const bool kept = int_attribute(n_, "keepdims", 1) != 0;
        const auto reduced = among(*a, s->size());
        if (!reduced) return;
        dims y;
        for (std::size_t i = 0; i < s->size(); ++i)
            if (!(*reduced)[i] || kept) y.push_back((*reduced)[i] ? 1 : (*s)[i]);
        if (!a->empty()) made(y);
    }

    void product() {
        const list a = shape_of(0), b = shape_of(1);
        if (!a || !b || a->size() < 2 || b->size() < 2) return;
        dims y = joined(dims(a->begin(), a->end() - 2), dims(b->begin(), b->end() - 2));
        y.push_back((*a)[a->size() - 2]), y.push_back(b->back());
        made(y);
    }
    void gemm() {
        const list a = shape_of(0), b = shape_of(1);
        if (!a || !b || a->size() != 2 || b->size() != 2) return;
        made({(*a)[int_attribute(n_, "transA", 0) != 0 ? 1 : 0], (*b)[int_attribute(n_, "transB", 0) != 0 ? 0 : 1]});
    }

    void transpose() {
        const list s = shape_of(0);
        if (!s) return;
        const auto* perm = find_attribute(n_, "perm");
        dims y(s->rbegin(), s->rend());
        if (perm && static_cast<std::size_t>(perm->ints_size()) != s->size()) return;
        for (int i = 0; perm && i < perm->ints_size(); ++i) {
            const auto at = axis(perm->ints(i), s->size());
            if (!at) return;
            y[static_cast<std::size_t>(i)] = (*s)[*at];
        }
        made(y);
    }

    /// Returns what is left of one product of lengths when another is divided out; a new symbol if that is not known.
    std::int64_t quotient(dims of, const dims& by) {
        std::int64_t number = 1, divisor = 1;
        for (const std::int64_t d : by) {
            if (!is_symbol(d)) {
                divisor *= d;
                continue;
            }
            const auto at = std::ranges::find(of, d);
            if (at == of.end()) return symbol();
            of.erase(at);
        }
        std::optional<std::int64_t> left;
        for (const std::int64_t d : of) {
            if (!is_symbol(d)) number *= d;
            else if (left) return symbol();
            else left = d;
        }
        if (divisor == 0 || number % divisor != 0) return symbol();
        if (!left) return number / divisor;
        return number == divisor ? *left : symbol();
    }
    void reshape() {
        const list s = shape_of(0), to = values_of(1), length = shape_of(1);
        if (const list v = values_of(0); v && to && to->size() <= 1) holds(v);
        if (!to) {
            if (length && length->size() == 1 && !is_symbol((*length)[0])) made(symbols(static_cast<std::size_t>((*length)[0])));
            return;
        }
        dims y = lengths(*to);
        const bool copies = int_attribute(n_, "allowzero", 0) == 0;
        std::optional<std::size_t> open;
        for (std::size_t i = 0; i < y.size(); ++i) {
            if (y[i] == -1) open = i;
            else if (y[i] == 0 && copies) y[i] = s && i < s->size() ? (*s)[i] : symbol();
        }
        if (open) {
            dims others = y;
            others.erase(others.begin() + static_cast<std::ptrdiff_t>(*open));
            y[*open] = s ? quotient(*s, others) : symbol();
        }
        made(y);
    }

    void unsqueeze() {
        const list s = shape_of(0), a = axes(1);
        holds(values_of(0));
        if (!s || !a) return;
        const auto added = among(*a, s->size() + a->size());
        if (!added) return;
        dims y;
        auto next = s->begin();
        for (const bool one : *added) y.push_back(one ? 1 : next != s->end() ? *next++ : 0);
        made(y);
    }
    void squeeze() {
        const list s = shape_of(0), a = axes(1);
        holds(values_of(0));
        if (!s || !a) return;
        const auto gone = among(*a, s->size());
        if (!gone) return;
        dims y;
        for (std::size_t i = 0; i < s->size(); ++i)
            if (!(*gone)[i]) y.push_back((*s)[i]);
        made(y);
    }

    void concat() {
        list held = dims{}, y = shape_of(0);
        const auto at = y ? axis(int_attribute(n_, "axis", 0), y->size()) : std::nullopt;
        for (int i = 0; i < n_.input_size(); ++i) {
            if (const list v = values_of(i); v && held) held->insert(held->end(), v->begin(), v->end());
            else held.reset();
            const list s = shape_of(i);
            if (!s || !at || s->size() != y->size()) y.reset();
            for (std::size_t k = 0; y && i > 0 && k < s->size(); ++k) {
                std::int64_t& d = (*y)[k];
                if (k == *at) d = is_symbol(d) || is_symbol((*s)[k]) ? symbol() : d + (*s)[k];
                else if (is_symbol(d)) d = (*s)[k];
            }
        }
        if (y) made(*y);
        holds(held);
    }

    void split() {
        const list s = shape_of(0);
        const auto at = s ? axis(int_attribute(n_, "axis", 0), s->size()) : std::nullopt;
        if (!at) return;
        const auto* attribute = find_attribute(n_, "split");
        list parts = attribute ? list(dims(attribute->ints().begin(), attribute->ints().end())) : values_of(1);
        const auto count = static_cast<std::int64_t>(n_.output_size());
        if (!parts && n_.input_size() < 2 && !is_symbol((*s)[*at]) && (*s)[*at] % count == 0)
            parts = dims(static_cast<std::size_t>(count), (*s)[*at] / count);
        for (int i = 0; i < n_.output_size(); ++i) {
            dims y = *s;
            y[*at] = parts && static_cast<std::size_t>(i) < parts->size() ? (*parts)[static_cast<std::size_t>(i)] : symbol();
            made(y, i);
        }
    }

    void slice() {
        const list s = shape_of(0), from = values_of(1), to = values_of(2), steps = values_of(4), held = values_of(0);
        list a = axes(3);
        if (!s || n_.input_size() < 3) return;
        if (!a && from && n_.input_size() < 4) {
            a = dims(from->size());
            std::iota(a->begin(), a->end(), 0);
        }
        if (!a) return made(symbols(s->size()));
        dims y = *s;
        for (std::size_t i = 0; i < a->size(); ++i) {
            const auto at = axis((*a)[i], s->size());
            if (!at) return;
            const std::int64_t length = (*s)[*at];
            const bool plain = from && to && i < from->size() && i < to->size() &&
                               (n_.input_size() < 5 || (steps && i < steps->size() && (*steps)[i] == 1));
            if (!plain || is_symbol(length) || is_symbol((*from)[i]) || is_symbol((*to)[i])) {
                y[*at] = symbol();
                continue;
            }
            const auto bound = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + length : v, 0, length); };
            const std::int64_t first = bound((*from)[i]), end = bound((*to)[i]);
            y[*at] = std::max<std::int64_t>(end - first, 0);
            if (held && s->size() == 1 && end >= first && static_cast<std::size_t>(end) <= held->size())
                holds(dims(held->begin() + first, held->begin() + end));
        }
        made(y);
    }

    void gather() {
        const list s = shape_of(0), i = shape_of(1), held = values_of(0), at = values_of(1);
        const auto a = s ? axis(int_attribute(n_, "axis", 0), s->size()) : std::nullopt;
        if (!a || !i) return;
        dims y(s->begin(), s->begin() + static_cast<std::ptrdiff_t>(*a));
        y.insert(y.end(), i->begin(), i->end());
        y.insert(y.end(), s->begin() + static_cast<std::ptrdiff_t>(*a) + 1, s->end());
        made(y);
        if (!held || !at) return;
        dims picked;
        for (const std::int64_t k : *at) {
            const auto found = is_symbol(k) ? std::nullopt : axis(k, held->size());
            if (!found) return;
            picked.push_back((*held)[*found]);
        }
        holds(picked);
    }

    void shape() {
        const list s = n_.op_type() == "Shape" ? shape_of(0) : std::nullopt;
        if (!s) return made({symbol()});
        const auto rank = static_cast<std::int64_t>(s->size());
        const auto bound = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank); };
        const std::int64_t from = bound(int_attribute(n_, "start", 0)), to = std::max(from, bound(int_attribute(n_, "end", rank)));
        made({to - from});
        holds(dims(s->begin() + from, s->begin() + to));
    }

    inferred_shapes& all_;
    const onnx::NodeProto& n_;
};

inferred_shapes::inferred_shapes(const model& m) : model_(m) {
    std::unordered_map<std::string, const onnx::TensorShapeProto*> stated;
    const auto add = [&](const auto& infos) {
        for (const auto& v : infos)
            if (v.type().tensor_type().has_shape()) stated[v.name()] = &v.type().tensor_type().shape();
    };
    add(m.graph().value_info()), add(m.graph().input()), add(m.graph().output());
    const auto state = [&](const std::string& name) {
        const auto said = stated.find(name);
        if (said == stated.end()) return;
        const auto rank = static_cast<std::size_t>(said->second->dim_size());
        const auto [known, fresh] = shapes_.try_emplace(name, dims(rank, anything));
        dims& d = known->second;
        if (d.size() != rank && rank > 0) d.assign(rank, anything);
        for (std::size_t i = 0; i < rank; ++i) {
            const auto& one = said->second->dim(static_cast<int>(i));
            if (one.has_dim_value() && one.dim_value() >= 0) d[i] = one.dim_value();
            else if (d[i] == anything) d[i] = anything - ++symbols_;
        }
    };
    for (const value_info& v : m.inputs()) state(v.name);
    for (const auto& n : m.graph().node()) {
        shape_rules(*this, n).run();
        for (const std::string& o : n.output()) state(o);
    }
}

}  // namespace qk::graph::detail
