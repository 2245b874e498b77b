// SPDX-License-Identifier: Apache-2.0
// Implements the batching rule: data as given, cut along a leading symbol, or N times a fixed leading length; or cut as the user says.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/ops/elements.hpp"

namespace qk::graph::execute {

tensor rows(const tensor& t, std::size_t first, std::size_t n) {
    dims shape = t.shape();
    const std::size_t all = static_cast<std::size_t>(shape[0]), row = all == 0 ? 0 : t.size_bytes() / all;
    shape[0] = static_cast<std::int64_t>(n);
    return tensor(t.type(), std::move(shape), std::shared_ptr<std::byte>(t.buffer(), t.buffer().get() + first * row));
}

namespace {

/// The rows of an axis as runs of bytes.
struct axis_runs {
    std::size_t runs = 1, length = 0, row = 1;
    axis_runs(const tensor& t, int axis) : length(static_cast<std::size_t>(t.dim(static_cast<std::size_t>(axis)))), row(size_of(t.type())) {
        for (std::size_t k = 0; k < static_cast<std::size_t>(axis); ++k) runs *= static_cast<std::size_t>(t.dim(k));
        for (std::size_t k = static_cast<std::size_t>(axis) + 1; k < t.rank(); ++k) row *= static_cast<std::size_t>(t.dim(k));
    }
};

}  // namespace

tensor rows_along(const tensor& t, int axis, std::size_t first, std::size_t n) {
    if (axis == 0) return rows(t, first, n);
    const axis_runs from(t, axis);
    dims shape = t.shape();
    shape[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(n);
    tensor part(t.type(), std::move(shape));
    if (part.size_bytes() == 0) return part;
    for (std::size_t r = 0; r < from.runs; ++r)
        std::memcpy(part.bytes() + r * n * from.row, t.bytes() + (r * from.length + first) * from.row, n * from.row);
    return part;
}

void put_rows(tensor& whole, int axis, std::size_t first, const tensor& part) {
    if (part.size_bytes() == 0) return;
    const axis_runs to(whole, axis);
    const std::size_t bytes = part.size_bytes() / to.runs;
    for (std::size_t r = 0; r < to.runs; ++r)
        std::memcpy(whole.bytes() + (r * to.length + first) * to.row, part.bytes() + r * bytes, bytes);
}

std::size_t sample_set::rows_each(std::size_t input) const {
    return static_cast<std::size_t>(inputs[input].dim(static_cast<std::size_t>(axes[input]))) / count;
}

std::vector<tensor> sample_set::slice(std::size_t first, std::size_t n) const {
    std::vector<tensor> part;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (axes[i] < 0) {
            part.push_back(inputs[i]);
            continue;
        }
        const std::size_t each = rows_each(i);
        part.push_back(rows_along(inputs[i], axes[i], first * each, n * each));
        if (i < own.size() && !own[i].empty() && n == 1) part.back() = corner(part.back(), own[i][first]);
    }
    return part;
}

namespace {

/// Copies the box `shape` between two tensors that hold it in their corners.
void copy_box(const std::byte* from, const dims& from_shape, std::byte* to, const dims& to_shape, const dims& shape, std::size_t element) {
    const std::size_t rank = shape.size();
    const std::size_t run = static_cast<std::size_t>(shape.back()) * element,
                      count = element_count(shape) / static_cast<std::size_t>(shape.back());
    for (std::size_t r = 0; r < count; ++r) {
        std::size_t rest = r, at_from = 0, at_to = 0, step_from = static_cast<std::size_t>(from_shape.back()),
                    step_to = static_cast<std::size_t>(to_shape.back());
        for (std::size_t k = rank - 1; k-- > 0;) {
            const std::size_t index = rest % static_cast<std::size_t>(shape[k]);
            rest /= static_cast<std::size_t>(shape[k]);
            at_from += index * step_from, at_to += index * step_to;
            step_from *= static_cast<std::size_t>(from_shape[k]), step_to *= static_cast<std::size_t>(to_shape[k]);
        }
        std::memcpy(to + at_to * element, from + at_from * element, run);
    }
}

}  // namespace

tensor corner(const tensor& t, const dims& shape) {
    if (t.shape() == shape) return t;
    tensor y(t.type(), shape);
    if (y.size() > 0) copy_box(t.bytes(), t.shape(), y.bytes(), shape, shape, size_of(t.type()));
    return y;
}

tensor padded(const tensor& t, const dims& shape) {
    if (t.shape() == shape) return t;
    tensor y(t.type(), shape);
    std::memset(y.bytes(), 0, y.size_bytes());
    if (t.size() > 0) copy_box(t.bytes(), t.shape(), y.bytes(), shape, t.shape(), size_of(t.type()));
    return y;
}

tensor sample_of(const named_tensors& joined, const std::string& name, std::size_t sample, std::size_t samples) {
    const tensor& t = joined.at(name);
    const auto n = static_cast<std::int64_t>(std::max<std::size_t>(samples, 1));
    if (const auto along = joined.joined_along.find(name); along != joined.joined_along.end()) {
        if (along->second < 0) return t;
        const auto each = static_cast<std::size_t>(t.dim(static_cast<std::size_t>(along->second)) / n);
        return rows_along(t, along->second, sample * each, each);
    }
    if (t.rank() == 0 || t.dim(0) % n != 0) return t;
    const auto each = static_cast<std::size_t>(t.dim(0) / n);
    const tensor own = rows(t, sample * each, each);
    const auto shapes = joined.ragged.find(name);
    return shapes == joined.ragged.end() ? own : corner(own, shapes->second.at(sample));
}

tensor join_padded(std::vector<tensor> parts, const dims& longest) {
    dims all = longest;
    all[0] *= static_cast<std::int64_t>(parts.size());
    tensor joined(parts.front().type(), all);
    const std::size_t row = joined.size_bytes() / parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const tensor one = padded(std::exchange(parts[i], {}), longest);
        if (row != 0) std::memcpy(joined.bytes() + i * row, one.bytes(), row);
    }
    return joined;
}

namespace {

/// Cuts inputs along the leading symbol of the first input that has one, wherever an input has it; unknown leading dimensions count as one
/// symbol if they agree.
void cut_at_leading_symbol(const std::vector<value_info>& declared, sample_set& s) {
    std::string symbol;
    std::int64_t extent = -1;
    const auto open = [&](std::size_t i) { return declared[i].has_shape && !declared[i].shape.empty() && declared[i].shape[0].value < 0; };
    for (std::size_t i = 0; i < declared.size(); ++i) {
        if (!open(i)) continue;
        if (extent >= 0 && (declared[i].shape[0].symbol != symbol || s.inputs[i].dim(0) != extent)) continue;
        symbol = declared[i].shape[0].symbol;
        extent = s.inputs[i].dim(0);
        s.axes[i] = 0;
    }
    for (std::size_t i = 0; i < declared.size(); ++i)
        for (std::size_t k = 1; declared[i].has_shape && !symbol.empty() && k < declared[i].shape.size(); ++k) {
            if (declared[i].shape[k].symbol != symbol) continue;
            if (s.axes[i] >= 0 && s.uncut.empty()) s.uncut = "input '" + declared[i].name + "' has " + symbol + " along two axes";
            s.axes[i] = static_cast<int>(k);
        }
    if (extent < 1 || !s.uncut.empty()) return s.axes.assign(declared.size(), -1);
    s.count = static_cast<std::size_t>(extent);
    s.symbolic = true;
    s.wider = s.axes;
    for (std::size_t i = 0; i < declared.size(); ++i)
        if (open(i) && s.inputs[i].dim(0) == extent && s.wider[i] < 0) s.wider[i] = 0;
    if (s.wider == s.axes) s.wider.clear();
}

/// Cuts inputs along the axis that the user names: those that have as many rows there as the first, in units of a fixed length.
void cut_as_asked(const std::vector<value_info>& declared, int axis, sample_set& s) {
    const auto at = static_cast<std::size_t>(axis);
    s.asked = axis;
    std::int64_t count = -1;
    for (std::size_t i = 0; i < declared.size(); ++i) {
        const value_info& v = declared[i];
        const std::int64_t unit = v.has_shape && at < v.shape.size() ? std::max<std::int64_t>(v.shape[at].value, 1) : 1;
        if (s.inputs[i].rank() <= at) continue;
        const std::int64_t extent = s.inputs[i].dim(at);
        if (extent < 1 || extent % unit != 0 || (count >= 0 && extent / unit != count)) continue;
        count = extent / unit;
        s.axes[i] = axis;
    }
    if (count < 0) throw error("--batch-axis " + std::to_string(axis) + ": no input of the data has rows along such an axis");
    s.count = static_cast<std::size_t>(count);
}

/// Converts integers to the width that an input has, if every value fits: ids as NumPy makes them. Returns other tensors unchanged.
tensor as_integers_of(const tensor& t, data_type wanted) {
    const auto integers = [](data_type type) {
        return type == data_type::int64 || type == data_type::int32 || type == data_type::int16 || type == data_type::int8 ||
               type == data_type::uint8 || type == data_type::uint16 || type == data_type::uint32 || type == data_type::boolean;
    };
    if (t.type() == wanted || !integers(t.type()) || (wanted != data_type::int64 && wanted != data_type::int32)) return t;
    std::vector<std::int64_t> values(t.size());
    ops::read_elements(t.type(), t.bytes(), std::span(values));
    tensor y(wanted, t.shape());
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (wanted == data_type::int64) y.as<std::int64_t>()[i] = values[i];
        else if (values[i] != static_cast<std::int32_t>(values[i])) return t;
        else y.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
    }
    return y;
}

/// Checks that a sample fits the model.
void check_samples(const std::vector<value_info>& declared, const sample_set& s) {
    const std::vector<tensor> one = s.slice(0, 1);
    for (std::size_t i = 0; i < declared.size(); ++i) {
        const value_info& v = declared[i];
        bool fits = !v.has_shape || one[i].rank() == v.shape.size();
        for (std::size_t k = 0; fits && v.has_shape && k < v.shape.size(); ++k)
            fits = v.shape[k].value < 0 || v.shape[k].value == one[i].dim(k);
        if (!fits)
            throw error("input '" + v.name + "' has shape " + shape_text(v) + " in the model, and a sample of the data along axis " +
                        std::to_string(s.asked) + " has shape " + to_string(one[i].shape()));
    }
}

/// Cuts ragged data into samples; each must fit the model by itself.
sample_set ragged_samples(const std::vector<value_info>& declared, const named_tensors& given, sample_set s) {
    s.ragged = true;
    s.own.resize(declared.size());
    s.axes.assign(declared.size(), -1);
    s.count = given.ragged.begin()->second.size();
    for (std::size_t i = 0; i < declared.size(); ++i) {
        const value_info& v = declared[i];
        if (const auto shapes = given.ragged.find(v.name); shapes != given.ragged.end()) s.own[i] = shapes->second;
        else if (s.inputs[i].rank() > 0 && s.inputs[i].dim(0) == static_cast<std::int64_t>(s.count) && v.has_shape && !v.shape.empty() &&
                 v.shape[0].value < 2)
            s.own[i].assign(s.count, rows(s.inputs[i], 0, 1).shape());
        else continue;
        s.axes[i] = 0;
        if (s.own[i].size() != s.count)
            throw error("input '" + v.name + "' has " + std::to_string(s.own[i].size()) + " samples and '" + given.ragged.begin()->first +
                        "' " + std::to_string(s.count));
    }
    for (std::size_t n = 0; n < s.count; ++n) {
        std::map<std::string, std::int64_t> symbols;
        for (std::size_t i = 0; i < declared.size(); ++i) {
            const value_info& v = declared[i];
            if (!v.has_shape || s.axes[i] < 0) continue;
            const dims& shape = s.own[i][n];
            bool fits = shape.size() == v.shape.size();
            for (std::size_t k = 0; fits && k < shape.size(); ++k) {
                const dimension& d = v.shape[k];
                fits = d.value >= 0 ? d.value == shape[k]
                                    : d.symbol.empty() || symbols.try_emplace(d.symbol, shape[k]).first->second == shape[k];
            }
            if (!fits)
                throw error("input '" + v.name + "' has shape " + shape_text(v) + " in the model, and sample " + std::to_string(n) +
                            " of the data has shape " + to_string(shape));
        }
    }
    return s;
}

}  // namespace

sample_set make_samples(const model& m, const named_tensors& given) {
    const auto& declared = m.inputs();
    std::string names;
    for (const auto& v : declared) names += (names.empty() ? "'" : ", '") + v.name + "'";
    for (const auto& [name, t] : given) {
        if (std::ranges::find(declared, name, &value_info::name) == declared.end())
            throw error("'" + name + "' is not an input of the model; its inputs are " + (names.empty() ? "none" : names));
    }
    sample_set s;
    for (const auto& v : declared) {
        const auto at = given.find(v.name);
        if (at == given.end() || at->second.empty())
            throw error("input '" + v.name + "' " + shape_text(v) + " of the model is not given; its inputs are " + names);
        const tensor fitting = as_integers_of(at->second, v.type);
        if (v.type != data_type::undefined && fitting.type() != v.type)
            throw error("input '" + v.name + "' is " + name_of(v.type) + " in the model, and the data given is " +
                        name_of(at->second.type()));
        s.inputs.push_back(fitting);
    }
    if (!given.ragged.empty()) return ragged_samples(declared, given, std::move(s));
    s.axes.assign(declared.size(), -1);
    if (given.batch_axis && *given.batch_axis != no_batch_axis) {
        cut_as_asked(declared, *given.batch_axis, s);
        check_samples(declared, s);
        return s;
    }

    // The data as given: every input fits, and a symbol has one value throughout.
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
            problem = "input '" + v.name + "' has shape " + shape_text(v) + " in the model, and the data given has shape " +
                      to_string(shape) + why;
    }
    if (problem.empty()) {
        if (!given.batch_axis) cut_at_leading_symbol(declared, s);
        return s;
    }
    if (given.batch_axis) throw error(problem + "; --batch-axis none takes the data as it is");

    // N times a fixed leading length.
    std::int64_t n = -1;
    for (std::size_t i = 0; i < declared.size(); ++i) {
        const value_info& v = declared[i];
        const dims& shape = s.inputs[i].shape();
        bool fits = v.has_shape && !shape.empty() && shape.size() == v.shape.size() && v.shape[0].value > 0 && shape[0] > 0;
        for (std::size_t k = 1; fits && k < shape.size(); ++k) fits = v.shape[k].value < 0 || v.shape[k].value == shape[k];
        if (!fits) throw error(problem);
        const std::int64_t unit = v.shape[0].value;
        if (shape[0] % unit != 0 && unit > 1) throw error(problem + ": give a multiple of " + std::to_string(unit) + " along axis 0");
        if (n >= 0 && shape[0] / unit != n) throw error(problem);
        n = shape[0] / unit;
    }
    if (n < 0) throw error(problem);
    s.count = static_cast<std::size_t>(n);
    s.axes.assign(declared.size(), 0);
    return s;
}

}  // namespace qk::graph::execute
