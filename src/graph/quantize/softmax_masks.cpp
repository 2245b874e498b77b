// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/softmax_masks.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "graph/ops/elements.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph {
namespace {

using detail::one_of;

class softmax_mask_search {
  public:
    softmax_mask_search(const layer_view& layers, const calibration* seen) : layers_(layers), m_(layers.source()), seen_(seen) {}

    std::map<std::string, value_range> run() {
        const auto& nodes = m_.graph().node();
        for (int i = nodes.size(); i-- > 0;)
            for (const std::string& o : nodes[i].output())
                if (!o.empty() && leads_to_softmax(o)) leads_.insert(o);
        if (leads_.empty()) return {};
        for (const onnx::NodeProto& n : nodes) look_at(n);
        return std::move(found_);
    }

  private:
    struct interval {
        double lo = 0, hi = 0;
        double spread() const { return hi - lo; }
    };
    static interval joined(interval a, interval b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }

    static constexpr double vanishing = 104;      ///< exp(-104) is 0 in float32
    static constexpr double spread_unseen = 896;  ///< of scores that calibration did not see; 1000 with the line above
    static constexpr double large = vanishing + spread_unseen;
    static constexpr std::size_t most_elements = std::size_t{1} << 22;

    static bool is_standard(const onnx::NodeProto& n) { return n.domain().empty() || n.domain() == "ai.onnx"; }
    /// Is true when each result is one of the values of input 0.
    static bool moves(const onnx::NodeProto& n) {
        const op_facts& is = facts_of(n);
        return is.passes(0) && !is.passes(1) && !one_of(operator_of(n), {"Neg", "Div"});
    }
    static bool tells_apart(const onnx::NodeProto& n) {
        const auto of = type_source_of(n, 0);
        return of && of->like < 0 && of->type == data_type::boolean;
    }
    bool leads(const onnx::NodeProto& n, int input) const {
        if (input < 0) return false;  // read inside a subgraph
        if (facts_of(n).mask == input) return true;
        if (!is_standard(n)) return false;
        const operator_name op = operator_of(n);
        if (op == "Softmax" || op == "Exp" || op == "ReduceMax" || facts_of(n).has(ops::measures) || tells_apart(n)) return input == 0;
        return facts_of(n).passes(input) &&
               std::ranges::all_of(n.output(), [&](const std::string& o) { return o.empty() || leads_.contains(o); });
    }
    bool leads_to_softmax(const std::string& tensor) const {
        const auto& uses = m_.uses(tensor);
        return !uses.empty() &&
               std::ranges::all_of(uses, [&](const model::use& u) { return u.node >= 0 && leads(m_.graph().node(u.node), u.input); });
    }

    const tensor_statistics* statistics_of(const std::string& tensor) const {
        if (seen_ == nullptr) return nullptr;
        for (const std::string* name : {&layers_.root(tensor), &tensor})
            if (const auto s = seen_->tensors.find(*name); s != seen_->tensors.end() && s->second.count > s->second.not_finite)
                return &s->second;
        return nullptr;
    }
    static interval of(const tensor_statistics& s) { return {static_cast<double>(s.range.lo), static_cast<double>(s.range.hi)}; }

    std::optional<interval> of_constant(const std::string& name) const {
        if (element_count(m_.constant_shape(name)) > most_elements) return std::nullopt;
        const tensor t = m_.constant(name);
        std::vector<float> values(t.size());
        if (!ops::read_elements(t.type(), t.bytes(), std::span<float>(values))) return std::nullopt;
        const value_range r = range_of(values);
        return interval{static_cast<double>(r.lo), static_cast<double>(r.hi)};
    }
    /// Returns where the values of a tensor lie that follows from constants and model inputs alone; nullopt for what a layer computes. An
    /// input counts as a mask of zeros and ones unless calibration saw other values.
    std::optional<interval> plain(const std::string& tensor, int depth = 0) {
        if (tensor.empty() || depth > 64) return std::nullopt;
        if (const auto known = plain_.find(tensor); known != plain_.end()) return known->second;
        std::optional<interval> found;
        const int producer = m_.producer(tensor);
        if (m_.is_constant(tensor)) found = of_constant(tensor);
        else if (producer < 0) found = interval{0, 1};
        else found = of_result(m_.graph().node(producer), depth + 1);
        if (const tensor_statistics* s = found && !m_.is_constant(tensor) ? statistics_of(tensor) : nullptr) found = joined(*found, of(*s));
        return plain_[tensor] = found;
    }
    std::optional<interval> of_result(const onnx::NodeProto& n, int depth) {
        const operator_name op = operator_of(n);
        if (!is_standard(n)) return std::nullopt;
        if (tells_apart(n)) return interval{0, 1};
        if (op == "ConstantOfShape") {
            const node_view view(n, 9);
            if (detail::find_attribute(n, "value") == nullptr) return interval{};
            const tensor one = view.get_tensor("value");
            if (one.type() != data_type::float32 || one.size() != 1) return std::nullopt;
            return interval{static_cast<double>(one.as<float>()[0]), static_cast<double>(one.as<float>()[0])};
        }
        std::vector<interval> in;
        for (int k = 0; k < n.input_size(); ++k) {
            if (!facts_of(n).passes(k) && op != "Div") continue;
            const auto one = plain(n.input(k), depth);
            if (!one) return std::nullopt;
            in.push_back(*one);
        }
        if (in.empty()) return std::nullopt;
        if (op == "Trilu" || op == "Pad") return joined(in[0], {});
        if (moves(n)) return in[0];
        if (op == "Neg") return interval{-in[0].hi, -in[0].lo};
        if (in.size() < 2 && op != "Max" && op != "Min" && op != "Concat") return std::nullopt;
        return combined(op, in);
    }
    static std::optional<interval> combined(operator_name op, const std::vector<interval>& in) {
        interval all = in[0];
        for (std::size_t k = 1; k < in.size(); ++k) {
            const interval b = in[k];
            if (op == "Add") all = {all.lo + b.lo, all.hi + b.hi};
            else if (op == "Sub") all = {all.lo - b.hi, all.hi - b.lo};
            else if (op == "Max") all = {std::max(all.lo, b.lo), std::max(all.hi, b.hi)};
            else if (op == "Min") all = {std::min(all.lo, b.lo), std::min(all.hi, b.hi)};
            else if (op == "Mul" || op == "Div") {
                if (op == "Div" && b.lo <= 0 && b.hi >= 0) return std::nullopt;
                const interval f = op == "Mul" ? b : interval{1 / b.hi, 1 / b.lo};
                const auto [lo, hi] = std::minmax({all.lo * f.lo, all.lo * f.hi, all.hi * f.lo, all.hi * f.hi});
                all = {lo, hi};
            } else {
                all = joined(all, b);  // Where, Concat, ScatterND
            }
        }
        return all;
    }

    /// Returns where the scores lie that a mask meets; nullopt where nothing tells, or where they hold another mask.
    std::optional<interval> scores(const std::string& tensor) {
        if (found_.contains(tensor)) return std::nullopt;
        if (const tensor_statistics* s = statistics_of(tensor)) return of(*s);
        return plain(tensor);
    }

    void mark(const std::string& tensor, interval values) {
        if (layers_.is_float(tensor)) found_.emplace(tensor, value_range{static_cast<float>(values.lo), static_cast<float>(values.hi)});
    }
    /// Marks what is added to scores, and what it was made from as far as that is as large.
    void mark_source(const std::string& tensor) {
        const auto values = plain(tensor);
        if (!values || std::max(-values->lo, values->hi) < vanishing || found_.contains(tensor) || !leads_to_softmax(tensor)) return;
        mark(tensor, *values);
        const int p = m_.producer(tensor);
        if (p < 0) return;
        const onnx::NodeProto& n = m_.graph().node(p);
        for (int k = 0; k < n.input_size(); ++k)
            if (facts_of(n).passes(k)) mark_source(n.input(k));
    }

    void look_at(const onnx::NodeProto& n) {
        if (const int k = facts_of(n).mask; k >= 0 && k < n.input_size()) {
            if (const auto mask = plain(n.input(k)); mask && mask->lo <= -large) mark_source(n.input(k));
            return;
        }
        if (!is_standard(n) || n.output_size() == 0 || !leads_.contains(n.output(0))) return;
        const operator_name op = operator_of(n);
        const bool adds = op == "Add" || op == "Sub", replaces = op == "Where" || op == "ScatterND" || op == "ScatterElements";
        if ((adds && n.input_size() == 2) || (replaces && n.input_size() == 3)) {
            const int first = op == "Where" ? 1 : 0, second = adds ? 1 : 2;
            meet(n, first, second), meet(n, second, first);
        }
        for (int k = 0; k < n.input_size(); ++k)
            if (const auto mask = found_.find(n.input(k)); mask != found_.end() && facts_of(n).passes(k)) {
                const value_range range = mask->second;
                for (const std::string& o : n.output())
                    if (leads_.contains(o) && layers_.is_float(o)) found_.emplace(o, range);
            }
    }
    /// Marks a mask that is added to scores, or stands in for some of them, and the result.
    void meet(const onnx::NodeProto& n, int mask, int other) {
        const auto values = plain(n.input(mask));
        if (!values) return;
        const auto beside = scores(n.input(other));
        const bool subtracted = operator_of(n) == "Sub" && mask == 1;
        const double lowest = subtracted ? -values->hi : values->lo;
        double limit = -large;
        if (beside) limit = operator_of(n) == "Add" || operator_of(n) == "Sub" ? -vanishing - beside->spread() : beside->lo - vanishing;
        if (plain(n.input(other))) limit = std::min(limit, -large);  // maybe a mask in the making, which has not met its scores yet
        if (lowest > limit) return;
        mark_source(n.input(mask));
        mark(n.output(0), subtracted ? interval{-values->hi, -values->lo} : *values);
    }

    const layer_view& layers_;
    const model& m_;
    const calibration* seen_;
    std::set<std::string> leads_;  ///< results all of whose readers lead to a Softmax
    std::map<std::string, std::optional<interval>> plain_;
    std::map<std::string, value_range> found_;
};

}  // namespace

std::map<std::string, value_range> masks_before_softmax(const layer_view& layers, const calibration* seen) {
    return softmax_mask_search(layers, seen).run();
}

}  // namespace qk::graph
