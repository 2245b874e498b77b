// SPDX-License-Identifier: Apache-2.0
// The batching rule: as given and cut along a leading symbol, or N times a fixed leading 1.
#include <map>

#include "qk/graph/evaluate/execute/samples.hpp"

namespace qk::graph::execute {

tensor rows(const tensor& t, std::size_t first, std::size_t n) {
    dims shape = t.shape();
    const std::size_t all = static_cast<std::size_t>(shape[0]), row = all == 0 ? 0 : t.size_bytes() / all;
    shape[0] = static_cast<std::int64_t>(n);
    return tensor(t.type(), std::move(shape), std::shared_ptr<std::byte>(t.buffer(), t.buffer().get() + first * row));
}

std::vector<tensor> sample_set::slice(std::size_t first, std::size_t n) const {
    std::vector<tensor> part;
    for (std::size_t i = 0; i < inputs.size(); ++i) part.push_back(cut[i] ? rows(inputs[i], first, n) : inputs[i]);
    return part;
}

std::string describe(const value_info& v) {
    if (!v.has_shape) return "any shape";
    std::string s = "[";
    for (std::size_t i = 0; i < v.shape.size(); ++i) {
        const dimension& d = v.shape[i];
        s += (i ? "," : "") + (d.value >= 0 ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol);
    }
    return s + "]";
}

namespace {

/// Samples lie along the leading symbol of the first input that has one; unknown leading dimensions count as one symbol if they agree.
void cut_at_leading_symbol(const std::vector<value_info>& declared, sample_set& s) {
    std::string symbol;
    std::int64_t extent = -1;
    for (std::size_t i = 0; i < declared.size(); ++i) {
        const value_info& v = declared[i];
        if (!v.has_shape || v.shape.empty() || v.shape[0].value >= 0) continue;
        if (extent >= 0 && (v.shape[0].symbol != symbol || s.inputs[i].dim(0) != extent)) continue;
        symbol = v.shape[0].symbol;
        extent = s.inputs[i].dim(0);
        s.cut[i] = 1;
    }
    bool elsewhere = false;
    for (const auto& v : declared)
        for (std::size_t k = 1; v.has_shape && k < v.shape.size(); ++k)
            elsewhere = elsewhere || (!symbol.empty() && v.shape[k].symbol == symbol);
    if (extent < 1 || elsewhere) return s.cut.assign(declared.size(), 0);
    s.count = static_cast<std::size_t>(extent);
    s.symbolic = true;
}

}  // namespace

sample_set make_samples(const model& m, const named_tensors& given) {
    const auto& declared = m.inputs();
    std::string names;
    for (const auto& v : declared) names += (names.empty() ? "'" : ", '") + v.name + "'";
    for (const auto& [name, t] : given) {
        bool known = false;
        for (const auto& v : declared) known = known || v.name == name;
        if (!known) throw error("'" + name + "' is not an input of the model; its inputs are " + (names.empty() ? "none" : names));
    }
    sample_set s;
    for (const auto& v : declared) {
        const auto at = given.find(v.name);
        if (at == given.end() || at->second.empty())
            throw error("input '" + v.name + "' " + describe(v) + " of the model is not given; its inputs are " + names);
        if (v.type != data_type::undefined && at->second.type() != v.type)
            throw error("input '" + v.name + "' is " + name_of(v.type) + " in the model, and the data given is " +
                        name_of(at->second.type()));
        s.inputs.push_back(at->second);
    }
    s.cut.assign(declared.size(), 0);

    // As given: every input fits, symbols have one value throughout.
    std::map<std::string, std::pair<std::int64_t, std::string>> symbols;  // value, and the input that bound it
    std::string problem;
    for (std::size_t i = 0; i < declared.size() && problem.empty(); ++i) {
        const value_info& v = declared[i];
        if (!v.has_shape) continue;
        const dims& shape = s.inputs[i].shape();
        bool fits = shape.size() == v.shape.size();
        std::string why;
        for (std::size_t k = 0; fits && k < shape.size(); ++k) {
            const dimension& d = v.shape[k];
            if (d.value >= 0) fits = d.value == shape[k];
            else if (!d.symbol.empty()) {
                const auto [bound, is_new] = symbols.try_emplace(d.symbol, shape[k], v.name);
                fits = is_new || bound->second.first == shape[k];
                if (!fits)
                    why = "; " + d.symbol + " is " + std::to_string(bound->second.first) + " in input '" + bound->second.second + "'";
            }
        }
        if (!fits)
            problem =
                "input '" + v.name + "' has shape " + describe(v) + " in the model, and the data given has shape " + to_string(shape) + why;
    }
    if (problem.empty()) {
        cut_at_leading_symbol(declared, s);
        return s;
    }

    // N times a fixed leading 1.
    std::int64_t n = -1;
    for (std::size_t i = 0; i < declared.size(); ++i) {
        const value_info& v = declared[i];
        const dims& shape = s.inputs[i].shape();
        bool fits = v.has_shape && !shape.empty() && shape.size() == v.shape.size() && v.shape[0].value == 1 && (n < 0 || shape[0] == n) &&
                    shape[0] > 0;
        for (std::size_t k = 1; fits && k < shape.size(); ++k) fits = v.shape[k].value < 0 || v.shape[k].value == shape[k];
        if (!fits) throw error(problem);
        n = shape[0];
    }
    if (n < 0) throw error(problem);
    s.count = static_cast<std::size_t>(n);
    s.cut.assign(declared.size(), 1);
    return s;
}

}  // namespace qk::graph::execute
