// SPDX-License-Identifier: Apache-2.0
// Definitions of known_values.hpp: the walk over a model's graph, and the types by the rows of its operators.
#include "qk/graph/ops/known_values.hpp"

#include <onnx/onnx_pb.h>

#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <string_view>

#include "graph/model/check.hpp"
#include "graph/ops/walk/walk.hpp"

namespace qk::graph {
namespace {

using ops::walk_graph;
using ops::walked;

constexpr std::size_t most_elements = 4096;  ///< of a constant of integers that is read: shapes, axes, places
constexpr std::size_t most_numbers = 64;     ///< of other constants: factors of a Resize

/// The numbers that stand for open lengths: multiples of 48, so that heads and windows divide them, with a prime that is their own.
class open_lengths {
  public:
    explicit open_lengths(std::size_t time) : time_(time) {}
    std::int64_t of(std::size_t symbol) const {
        if (time_ == times - 1) return 1;
        return 48 * primes[time_ == 0 ? symbol % primes.size() : primes.size() - 1 - symbol % primes.size()];
    }
    static constexpr std::size_t times = 3;

  private:
    static constexpr std::array<std::int64_t, 30> primes{11, 13, 17, 19, 23, 29, 31,  37,  41,  43,  47,  53,  59,  61,  67,
                                                         71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139};
    std::size_t time_;
};

bool is_name(const std::string& symbol) { return !symbol.empty() && symbol != "?"; }  // some exporters call every open length "?"

/// A model's graph by numbers, and the lengths of its inputs by number or symbol.
class numbered_model {
  public:
    explicit numbered_model(const model& m) : m_(m) {
        for (const value_info& v : m.inputs()) graph_.inputs.push_back(number(v.name));
        for (const auto& t : m.graph().initializer()) constant(t.name());
        for (const auto& t : m.graph().sparse_initializer()) constant(t.values().name());
        for (const onnx::NodeProto& n : m.graph().node()) {
            const bool own = find_function(m.proto(), n) != nullptr;
            views_.emplace_back(n, m.opset(n.domain()));
            walk_graph::node& to = graph_.nodes.emplace_back(
                walk_graph::node{&views_.back(), own ? nullptr : find_op(n.domain(), n.op_type(), m.opset(n.domain())), {}, {}});
            for (const std::string& i : n.input()) to.inputs.push_back(i.empty() ? -1 : number(i));
            for (const std::string& o : n.output()) to.outputs.push_back(o.empty() ? -1 : number(o));
        }
        graph_.values = numbers_.size();
        graph_.stated.resize(graph_.values);
        const auto state = [&](const auto& infos) {
            for (const auto& v : infos)
                if (const auto at = numbers_.find(v.name()); at != numbers_.end() && v.type().tensor_type().has_shape())
                    state_shape(at->second, v.type().tensor_type().shape());
        };
        state(m.graph().value_info()), state(m.graph().input()), state(m.graph().output());
    }

    const std::unordered_map<std::string_view, int>& numbers() const { return numbers_; }

    /// Returns what is known of every value when symbol k of an open length is open.of(k). `symbols` counts those that were needed.
    std::vector<walked> known(const open_lengths& open, std::size_t& symbols) const {
        symbols = symbols_.size();
        std::vector<walked> inputs;
        for (const int i : graph_.inputs) {
            walked& v = inputs.emplace_back();
            const auto& stated = graph_.stated[static_cast<std::size_t>(i)];
            if (!stated) continue;
            v.ranked = true, v.shape = *stated;
            const std::vector<std::size_t>& names = open_.at(static_cast<std::size_t>(i));
            for (std::size_t k = 0; k < v.shape.size(); ++k)
                if (v.shape[k] < 0) v.shape[k] = open.of(names[k]);
        }
        return ops::walk(graph_, std::move(inputs), {1, 1, 1, 1}, [&] { return open.of(symbols++); });
    }

  private:
    int number(const std::string& name) { return numbers_.try_emplace(name, static_cast<int>(numbers_.size())).first->second; }

    void constant(const std::string& name) {
        const data_type type = m_.constant_type(name);
        const bool whole = type == data_type::int64 || type == data_type::int32 || type == data_type::boolean;
        const dims shape = m_.constant_shape(name);
        const bool small = element_count(shape) <= (whole ? most_elements : most_numbers) && type != data_type::string;
        graph_.constants.emplace_back(number(name), small ? ops::walked_constant(m_.constant(name)) : ops::walked_constant(shape));
    }

    void state_shape(int value, const onnx::TensorShapeProto& shape) {
        auto& stated = graph_.stated[static_cast<std::size_t>(value)];
        std::vector<std::size_t>& names = open_[static_cast<std::size_t>(value)];
        stated.emplace();
        names.clear();
        for (const auto& d : shape.dim()) {
            const bool fixed = d.has_dim_value() && d.dim_value() >= 0;
            stated->push_back(fixed ? d.dim_value() : -1);
            const std::string symbol = is_name(d.dim_param()) ? d.dim_param() : "?" + std::to_string(symbols_.size());
            names.push_back(fixed ? 0 : symbols_.try_emplace(symbol, symbols_.size()).first->second);
        }
    }

    const model& m_;
    walk_graph graph_;
    std::deque<node_view> views_;
    std::unordered_map<std::string_view, int> numbers_;
    std::unordered_map<std::string, std::size_t> symbols_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> open_;
};

std::atomic<std::size_t> walks = 0;

/// Takes from `known` what another time has otherwise. Lengths of 1 fit fewer operators, and say nothing where they do not.
void keep_common(walked& known, const walked& other, std::size_t time) {
    if (other.ranked ? other.shape.size() != known.shape.size() : time != open_lengths::times - 1) known.ranked = false;
    for (std::size_t k = 0; known.ranked && other.ranked && k < known.shape.size(); ++k)
        if (known.shape[k] != other.shape[k]) known.shape[k] = -1;
}

/// Types follow the nodes in their order. What neither a rule nor an input tells is what the model states; the result of an operator that
/// is not known has the type that the model states, else that of its first input.
std::unordered_map<std::string, data_type> types_in(const model& m) {
    std::unordered_map<std::string, data_type> types;
    std::unordered_map<std::string_view, data_type> stated;
    const auto state = [&](const auto& infos) {
        for (const auto& v : infos) stated[v.name()] = static_cast<data_type>(v.type().tensor_type().elem_type());
    };
    state(m.graph().value_info()), state(m.graph().output());
    const auto find = [](const auto& in, const std::string& value) {
        const auto found = in.find(value);
        return found == in.end() ? data_type::undefined : found->second;
    };
    for (const auto& i : m.graph().initializer()) types[i.name()] = static_cast<data_type>(i.data_type());
    for (const auto& i : m.graph().sparse_initializer()) types[i.values().name()] = static_cast<data_type>(i.values().data_type());
    for (const value_info& i : m.inputs()) types[i.name] = i.type;
    for (const onnx::NodeProto& n : m.graph().node())
        for (int o = 0; o < n.output_size(); ++o) {
            const std::optional<type_source> rule = find_function(m.proto(), n) ? std::nullopt : type_source_of(n, o);
            const type_source from = rule.value_or(type_source{});
            data_type type = from.like < 0                ? from.type
                             : from.like < n.input_size() ? find(types, n.input(from.like))
                                                          : data_type::undefined;
            if (from.turned != nullptr) type = from.turned(type);
            const data_type said = rule && type != data_type::undefined ? type : find(stated, n.output(o));
            types[n.output(o)] = said == data_type::undefined ? type : said;
        }
    return types;
}

}  // namespace

known_values::known_values(const model& m) : types_(types_in(m)) {
    ++walks;
    const numbered_model numbered(m);
    std::size_t symbols = 0;
    std::vector<walked> values = numbered.known(open_lengths(0), symbols);
    for (std::size_t time = 1; symbols > 0 && time < open_lengths::times; ++time) {
        const std::vector<walked> others = numbered.known(open_lengths(time), symbols);
        for (std::size_t i = 0; i < values.size(); ++i) keep_common(values[i], others[i], time);
    }
    for (const auto& [name, number] : numbered.numbers())
        if (walked& v = values[static_cast<std::size_t>(number)]; v.ranked && !v.lost()) shapes_.emplace(name, std::move(v.shape));
}

std::size_t walks_made() { return walks; }

}  // namespace qk::graph
