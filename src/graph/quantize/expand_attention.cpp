// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/expand_attention.hpp"
#include "graph/model/operator_name.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>
#include <vector>

#include "graph/model/edit.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace {

bool is_attention(const onnx::NodeProto& n) { return operator_of(n) == "Attention" && n.domain().empty(); }

/// The expansion of one node. Most functions add a node or constant 'NAME/part' and return the name of its output.
class expansion {
  public:
    expansion(model& m, onnx::NodeProto node, data_type type, bool adds_mask)
        : m_(m), node_(std::move(node)), type_(type), adds_mask_(adds_mask) {}
    void run();

  private:
    using names = std::initializer_list<std::string>;
    bool has(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
    bool gives(int o) const { return o < node_.output_size() && !node_.output(o).empty(); }
    std::int64_t asked(const char* attribute, std::int64_t otherwise) const { return detail::int_attribute(node_, attribute, otherwise); }

    std::string fresh(const std::string& part);
    onnx::NodeProto& add(const char* op, const std::string& part, names inputs);
    std::string make(const char* op, const std::string& part, names inputs) { return add(op, part, inputs).output(0); }
    std::string make(const char* op, const std::string& part, names inputs, const char* attribute, std::int64_t value);
    std::string turned(const std::string& part, const std::string& x, std::initializer_list<std::int64_t> perm);
    std::string hold(const std::string& part, const tensor& value);
    std::string ints(const std::string& part, std::vector<std::int64_t> values);
    std::string one(const std::string& part, std::int64_t value) { return hold(part, make_tensor<std::int64_t>({}, {&value, 1})); }
    std::string number(const std::string& part, double value);
    std::string lengths(const std::string& part, const std::string& of, std::int64_t from, std::int64_t to);
    /// Returns one length of a shape as a vector of one element.
    std::string length(const std::string& part, const std::string& of, std::int64_t axis) { return lengths(part, of, axis, axis + 1); }
    std::string count(const std::string& part, const std::string& length);  ///< the vector 0, 1, ..., length - 1
    std::int64_t known(int input, int axis) const;

    std::string heads(int input, const char* name, const char* attribute);
    std::string with_past(int past, int present, const std::string& x, const char* name);
    std::string scaled(const std::string& q);
    std::string seen(const std::string& q, const std::string& k);
    std::string both(const std::string& a, const std::string& b);
    std::string masked(std::string scores, const std::string& q, const std::string& k);
    void show(std::int64_t mode, const std::string& value);

    model& m_;
    onnx::NodeProto node_;
    data_type type_;
    bool adds_mask_;  ///< the mask holds numbers that are added to the scores
    std::set<std::string> taken_;
    bool blank_ = false;  ///< all keys of a row may be masked
};

std::string expansion::fresh(const std::string& part) {
    std::string name = node_.name() + "/" + part;
    while (m_.is_constant(name) || m_.producer(name) >= 0 || m_.node_index(name) >= 0 || !taken_.insert(name).second) name += "_";
    return name;
}

onnx::NodeProto& expansion::add(const char* op, const std::string& part, names inputs) {
    const std::string name = fresh(part);
    onnx::NodeProto& n = *m_.graph().add_node();
    n.set_op_type(op), n.set_name(name), n.add_output(name);
    for (const std::string& i : inputs) n.add_input(i);
    return n;
}

std::string expansion::make(const char* op, const std::string& part, names inputs, const char* attribute, std::int64_t value) {
    onnx::NodeProto& n = add(op, part, inputs);
    detail::set_attribute(n, attribute, value);
    return n.output(0);
}

std::string expansion::turned(const std::string& part, const std::string& x, std::initializer_list<std::int64_t> perm) {
    onnx::NodeProto& n = add("Transpose", part, {x});
    detail::set_attribute(n, "perm", std::vector<std::int64_t>(perm));
    return n.output(0);
}

std::string expansion::hold(const std::string& part, const tensor& value) {
    const std::string name = fresh(part);
    to_proto(value, name, *m_.graph().add_initializer());
    return name;
}

std::string expansion::ints(const std::string& part, std::vector<std::int64_t> values) {
    const dims shape{static_cast<std::int64_t>(values.size())};
    return hold(part, make_tensor<std::int64_t>(shape, values));
}

std::string expansion::number(const std::string& part, double value) {
    const auto as = static_cast<float>(value);
    return hold(
        part, type_ == data_type::float64 ? make_tensor<double>({}, {&value, 1}) : ops::narrowed(make_tensor<float>({}, {&as, 1}), type_));
}

std::string expansion::lengths(const std::string& part, const std::string& of, std::int64_t from, std::int64_t to) {
    onnx::NodeProto& n = add("Shape", part, {of});
    detail::set_attribute(n, "start", from), detail::set_attribute(n, "end", to);
    return n.output(0);
}

std::string expansion::count(const std::string& part, const std::string& length) {
    const std::string end = make("Squeeze", part + "_end", {length});
    return make("Range", part, {one(part + "_first", 0), end, one(part + "_step", 1)});
}

/// Returns the length that the model declares for an axis of an input, or -1.
std::int64_t expansion::known(int input, int axis) const {
    const auto in = [&](const auto& list) -> std::int64_t {
        for (const auto& v : list) {
            const auto& shape = v.type().tensor_type().shape();
            if (v.name() != node_.input(input) || shape.dim_size() == 0) continue;
            const int at = axis < 0 ? axis + shape.dim_size() : axis;
            if (at >= 0 && at < shape.dim_size() && shape.dim(at).has_dim_value()) return shape.dim(at).dim_value();
        }
        return -1;
    };
    const std::int64_t inside = in(m_.graph().value_info());
    return inside >= 0 ? inside : in(m_.graph().input());
}

/// Returns an input in the shape [batch, heads, sequence, width].
std::string expansion::heads(int input, const char* name, const char* attribute) {
    if (asked("q_num_heads", 0) == 0) return node_.input(input);
    const std::string part = name;
    const std::string split =
        make("Reshape", part + "_split", {node_.input(input), ints(part + "_shape", {0, 0, asked(attribute, 0), -1})});
    return turned(part + "_heads", split, {0, 2, 1, 3});
}

std::string expansion::with_past(int past, int present, const std::string& x, const char* name) {
    const std::string part = std::string("present_") + name;
    if (!has(past) && !gives(present)) return x;
    onnx::NodeProto& n = has(past) ? add("Concat", part, {node_.input(past), x}) : add("Identity", part, {x});
    if (has(past)) detail::set_attribute(n, "axis", std::int64_t{2});
    if (gives(present)) n.set_output(0, node_.output(present));
    return n.output(0);
}

std::string expansion::scaled(const std::string& q) {
    const onnx::AttributeProto* given = detail::find_attribute(node_, "scale");
    const std::int64_t split = asked("q_num_heads", 0), last = known(0, -1);
    const std::int64_t width = last < 0 ? -1 : split > 0 ? last / split : last;
    if (given != nullptr || width > 0) {
        const double by = given != nullptr ? static_cast<double>(given->f()) : 1 / std::sqrt(static_cast<double>(width));
        return make("Mul", "scaled", {q, number("scale", by)});
    }
    const std::string wide = make("Cast", "width_number", {length("width", q, 3)}, "to", static_cast<int>(data_type::float32));
    const std::string root = make("Sqrt", "width_root", {wide});
    return make("Div", "scaled", {q, make("Cast", "width_root_own", {root}, "to", static_cast<int>(type_))});
}

std::string expansion::both(const std::string& a, const std::string& b) { return a.empty() ? b : make("And", "seen", {a, b}); }

/// Returns the mask of the keys that a query sees by its position: causal, windows, padding of the cache. Empty: it sees all keys.
std::string expansion::seen(const std::string& q, const std::string& k) {
    const std::int64_t left = asked("left_window_size", -1), right = asked("right_window_size", -1);
    const bool causal = asked("is_causal", 0) != 0;
    if (!causal && left < 0 && right < 0 && !has(6)) return {};
    const std::string key = count("keys", length("key_count", k, 2)), queries = length("query_count", q, 2);
    std::string all, valid;
    if (has(6)) {
        const std::string given = make("Cast", "valid_keys", {node_.input(6)}, "to", static_cast<int>(data_type::int64));
        valid = make("Reshape", "valid_by_sample", {given, ints("valid_shape", {-1, 1, 1, 1})});
        all = make("Less", "filled", {key, valid});
        blank_ = true;
    }
    if (!causal && left < 0 && right < 0) return all;
    std::string place = make("Unsqueeze", "query_places", {count("queries", queries), ints("query_axis", {1})});
    if (has(4)) place = make("Add", "query_places_now", {place, length("past_count", node_.input(4), 2)});
    else if (has(6)) place = make("Add", "query_places_now", {place, make("Sub", "past_count", {valid, queries})});
    if (causal) all = both(all, make("LessOrEqual", "causal", {key, place}));
    if (left >= 0) all = both(all, make("GreaterOrEqual", "left", {key, make("Sub", "first_key", {place, one("left_size", left)})}));
    if (right >= 0) all = both(all, make("LessOrEqual", "right", {key, make("Add", "last_key", {place, one("right_size", right)})}));
    return all;
}

std::string expansion::masked(std::string scores, const std::string& q, const std::string& k) {
    const double never = -std::numeric_limits<double>::infinity();
    std::string allowed = seen(q, k);
    if (has(3)) blank_ = true;
    if (has(3) && !adds_mask_) allowed = both(allowed, node_.input(3));
    if (has(3) && adds_mask_) scores = make("Add", "biased", {scores, node_.input(3)});
    if (!allowed.empty()) scores = make("Where", "masked", {allowed, scores, number("never", never)});
    return scores;
}

/// Makes `value` the fourth output if the node's qk_matmul_output_mode is `mode`.
void expansion::show(std::int64_t mode, const std::string& value) {
    if (!gives(3) || asked("qk_matmul_output_mode", 0) != mode) return;
    add("Identity", "shown", {value}).set_output(0, node_.output(3));
}

void expansion::run() {
    const std::string q = heads(0, "query", "q_num_heads");
    const std::string k = with_past(4, 1, heads(1, "key", "kv_num_heads"), "key");
    const std::string v = with_past(5, 2, heads(2, "value", "kv_num_heads"), "value");
    const bool split = asked("q_num_heads", 0) != 0;
    const std::int64_t many = split ? asked("q_num_heads", 0) : known(0, 1), groups = split ? asked("kv_num_heads", 0) : known(1, 1);
    const bool grouped = many < 0 || many != groups;  // or the numbers are not known
    const std::string across = turned("key_turned", k, {0, 1, 3, 2});
    std::string scores = scaled(q);
    // The queries of the heads of a group become rows of one matrix, so that its keys need no copy for each head.
    const auto gather = [&](const std::string& x, const char* part) {
        if (!grouped) return x;
        const std::string p = part;
        const std::string shape =
            make("Concat", p + "_shape", {lengths(p + "_groups", k, 0, 2), ints(p + "_rows", {-1}), length(p + "_last", x, 3)}, "axis", 0);
        return make("Reshape", p, {x, shape});
    };
    const auto spread = [&](const std::string& x, const char* part) {
        if (!grouped) return x;
        const std::string p = part;
        const std::string shape = make("Concat", p + "_shape", {lengths(p + "_heads", q, 0, 3), ints(p + "_width", {-1})}, "axis", 0);
        return make("Reshape", p, {x, shape});
    };
    scores = make("MatMul", "scores", {gather(scores, "grouped_query"), across});
    const std::string first = scores;
    scores = spread(scores, "scores_of_heads");
    show(0, scores);
    if (const auto* cap = detail::find_attribute(node_, "softcap"); cap != nullptr && cap->f() > 0) {
        const std::string by = number("softcap", static_cast<double>(cap->f()));
        scores = make("Mul", "capped", {make("Tanh", "softcap_tanh", {make("Div", "softcap_part", {scores, by})}), by});
    }
    show(1, scores);
    scores = masked(scores, q, k);
    show(2, scores);
    const auto precise = static_cast<data_type>(asked("softmax_precision", static_cast<int>(type_)));
    if (precise != type_) scores = make("Cast", "softmax_input", {scores}, "to", static_cast<int>(precise));
    std::string weights = make("Softmax", "softmax", {scores}, "axis", -1);
    if (precise != type_) weights = make("Cast", "softmax_output", {weights}, "to", static_cast<int>(type_));
    if (blank_) weights = make("Where", "probabilities", {make("IsNaN", "no_key", {weights}), number("nothing", 0), weights});
    show(3, weights);
    std::string y = make("MatMul", "context", {gather(weights, "grouped_weights"), v});
    const std::string last = y;
    y = spread(y, "context_of_heads");
    if (split) y = make("Reshape", "joined", {turned("context_turned", y, {0, 2, 1, 3}), ints("joined_shape", {0, 0, -1})});
    onnx::NodeProto& maker = *m_.graph().mutable_node(m_.graph().node_size() - 1);
    maker.set_output(0, node_.output(0));
    for (const std::string& product : {first, last}) {
        const std::string why = "Attention '" + node_.name() + "' was expanded into its products";
        m_.history().add_node(node_.name(), "Attention", {.name = product, .is_node = true, .how = bond::place, .why = why});
    }
}

}  // namespace

bool has_attentions(const model& m) { return std::ranges::any_of(m.graph().node(), is_attention); }

void expand_attentions(model& m, const std::function<bool(const std::string&)>& wanted) {
    std::vector<bool> gone(static_cast<std::size_t>(m.graph().node_size()), false);
    std::vector<expansion> found;
    {
        const layer_view layers(m);
        for (int i = 0; i < m.graph().node_size(); ++i) {
            const onnx::NodeProto& n = m.graph().node(i);
            const data_type type = is_attention(n) ? layers.float_type(n.input(0)) : data_type::undefined;
            if (type == data_type::undefined || !wanted(n.name())) continue;
            gone[static_cast<std::size_t>(i)] = true;
            found.emplace_back(m, n, type, n.input_size() > 3 && layers.is_float(n.input(3)));
        }
    }
    if (found.empty()) return;
    detail::remove_nodes(m.graph(), gone);
    for (expansion& one : found) one.run();
    m.reindex();
}

}  // namespace qk::graph
