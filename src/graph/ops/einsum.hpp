// SPDX-License-Identifier: Apache-2.0
// Implements Einsum: operands are multiplied two at a time, left to right, each pair as a batch of matrix products. A label is summed as
// soon as neither a later operand nor the output needs it.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "graph/ops/binary.hpp"
#include "graph/ops/transpose.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// A tensor whose axes have names. The axes of an ellipsis are named '0', '1', ... counted from the right.
struct labelled {
    tensor value;
    std::string labels;
};

/// The terms of an equation such as "ab...,bc->ac". parse_einsum replaces "..." by digits, since it knows the ranks.
struct einsum_equation {
    std::vector<std::string> inputs;
    std::string output;
};

inline einsum_equation parse_einsum(const op_context& call, const std::vector<std::size_t>& ranks) {
    std::string text;
    for (const char c : call.node().get_string("equation", ""))
        if (c != ' ') text += c;
    const std::size_t arrow = text.find("->");
    einsum_equation e;
    std::string left = text.substr(0, arrow), right = arrow == std::string::npos ? "" : text.substr(arrow + 2);
    for (std::size_t at = 0; at != std::string::npos;) {
        const std::size_t comma = left.find(',', at);
        e.inputs.push_back(left.substr(at, comma == std::string::npos ? comma : comma - at));
        at = comma == std::string::npos ? comma : comma + 1;
    }
    if (e.inputs.size() != ranks.size()) call.fail("the equation '" + text + "' names " + std::to_string(e.inputs.size()) + " operands");
    std::size_t ellipsis = 0;  // largest number of axes of any "..."
    const auto digits = [](std::size_t n) {
        std::string s;
        while (n-- > 0) s += static_cast<char>('0' + n);
        return s;
    };
    const auto replace = [&](std::string& term, std::size_t axes) {
        const std::size_t dots = term.find("...");
        if (dots != std::string::npos) term.replace(dots, 3, digits(axes));
    };
    for (std::size_t k = 0; k < ranks.size(); ++k) {
        const bool dots = e.inputs[k].find("...") != std::string::npos;
        const std::size_t letters = e.inputs[k].size() - (dots ? 3 : 0);
        if (letters > ranks[k] || (!dots && letters != ranks[k]) || ranks[k] - letters > 10)
            call.fail("the term '" + e.inputs[k] + "' does not fit an operand of rank " + std::to_string(ranks[k]));
        if (dots) ellipsis = std::max(ellipsis, ranks[k] - letters);
        replace(e.inputs[k], ranks[k] - letters);
    }
    if (arrow == std::string::npos) {  // the letters that occur once, sorted, after the ellipsis
        std::map<char, int> seen;
        for (const char c : left)
            if (c != ',' && c != '.') ++seen[c];
        e.output = digits(ellipsis);
        for (const auto& [c, times] : seen)
            if (times == 1) e.output += c;
    } else {
        e.output = right;
        replace(e.output, ellipsis);
    }
    const std::string all = [&] {
        std::string s;
        for (const auto& t : e.inputs) s += t;
        return s;
    }();
    for (std::size_t i = 0; i < e.output.size(); ++i)
        if (all.find(e.output[i]) == std::string::npos || e.output.find(e.output[i], i + 1) != std::string::npos)
            call.fail("the output of the equation '" + text + "' has a label that no operand has, or one twice");
    return e;
}

/// Replaces two axes with the same label by their diagonal.
inline labelled take_diagonals(op_context& call, labelled x) {
    for (std::size_t i = 0; i < x.labels.size(); ++i)
        for (std::size_t j = x.labels.find(x.labels[i], i + 1); j != std::string::npos; j = x.labels.find(x.labels[i], i + 1)) {
            if (x.value.dim(i) != x.value.dim(j)) call.fail(std::string("the label '") + x.labels[i] + "' has two lengths");
            std::vector<std::size_t> order{i, j};
            for (std::size_t a = 0; a < x.labels.size(); ++a)
                if (a != i && a != j) order.push_back(a);
            const tensor front = transposed(call, x.value, order);
            dims shape(front.shape().begin() + 1, front.shape().end());
            labelled d{call.scratch(front.type(), shape), std::string(1, x.labels[i])};
            for (std::size_t a = 2; a < order.size(); ++a) d.labels += x.labels[order[a]];
            const auto n = static_cast<std::size_t>(front.dim(0));
            const std::size_t bytes = n == 0 ? 0 : d.value.size_bytes() / n;
            for (std::size_t k = 0; bytes != 0 && k < n; ++k)
                std::memcpy(d.value.bytes() + k * bytes, front.bytes() + (k * n + k) * bytes, bytes);
            x = d;
            i = 0;
        }
    return x;
}

/// Returns x with its axes in `order`. A label that x lacks gets length 1; one that `order` lacks must have length 1 and vanishes.
inline tensor arranged(op_context& call, const labelled& x, const std::string& order) {
    std::vector<std::size_t> axes;
    dims shape;
    for (const char c : order) {
        const std::size_t at = x.labels.find(c);
        if (at != std::string::npos) axes.push_back(at);
        shape.push_back(at == std::string::npos ? 1 : x.value.dim(at));
    }
    for (std::size_t a = 0; a < x.labels.size(); ++a)
        if (order.find(x.labels[a]) == std::string::npos) axes.push_back(a);
    return transposed(call, x.value, axes).reshaped(shape);
}

/// Returns a * b summed over the labels that are not in `keep`.
inline labelled contract(op_context& call, const labelled& a, const labelled& b, const std::string& keep) {
    const auto has = [](const std::string& s, char c) { return s.find(c) != std::string::npos; };
    const auto length = [](const labelled& x, char c) {
        const std::size_t at = x.labels.find(c);
        return at == std::string::npos ? std::int64_t{1} : x.value.dim(at);
    };
    std::map<char, std::int64_t> size;
    for (const char c : a.labels + b.labels) {
        const std::int64_t la = length(a, c), lb = length(b, c);
        if (la != lb && la != 1 && lb != 1) call.fail(std::string("the label '") + c + "' has two lengths");
        size[c] = la == 1 ? lb : la;
    }
    // batch: kept, in both operands. rows: kept, in a only. columns: kept, in b only. The other labels are summed. A broadcast axis of
    // length 1 counts as absent.
    std::string batch, rows, columns, both, sum_a, sum_b;
    for (const auto& [c, n] : size) {
        const bool in_a = has(a.labels, c) && (length(a, c) != 1 || n == 1), in_b = has(b.labels, c) && (length(b, c) != 1 || n == 1);
        if (has(keep, c)) (in_a && in_b ? batch : in_a ? rows : columns) += c;
        else (in_a && in_b ? both : in_a ? sum_a : sum_b) += c;
    }
    const auto elements = [&](const std::string& s) {
        std::size_t n = 1;
        for (const char c : s) n *= static_cast<std::size_t>(size[c]);
        return n;
    };
    const tensor left = arranged(call, a, batch + rows + both + sum_a), right = arranged(call, b, batch + columns + both + sum_b);
    dims shape;
    const std::string labels = batch + rows + columns;
    for (const char c : labels) shape.push_back(size[c]);
    labelled y{call.scratch(left.type(), shape), labels};
    const std::size_t nb = elements(batch), nr = elements(rows), nc = elements(columns), k = elements(both), ka = elements(sum_a),
                      kb = elements(sum_b);
    dispatch(call, left.type(), number_types, [&]<class T>(type_tag<T>) {
        // Labels of only one operand are summed first; then each pair of rows has one dot product.
        const auto summed = [](const T* x, std::size_t n, std::size_t inner, std::vector<T>& out) {
            out.assign(n, T{0});
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t j = 0; j < inner; ++j) out[i] = functions::add{}(out[i], x[i * inner + j]);
        };
        if (ka != 1)
            static_cast<void>(
                call.scratch(left.type(), {static_cast<std::int64_t>(nb * nr * k)}));  // fails before the vectors take the memory
        if (kb != 1) static_cast<void>(call.scratch(left.type(), {static_cast<std::int64_t>(nb * nc * k)}));
        std::vector<T> sums_a, sums_b;
        const T *pa = left.as<T>().data(), *pb = right.as<T>().data();
        if (ka != 1) summed(pa, nb * nr * k, ka, sums_a), pa = sums_a.data();
        if (kb != 1) summed(pb, nb * nc * k, kb, sums_b), pb = sums_b.data();
        T* to = y.value.as<T>().data();
        for (std::size_t n = 0; n < nb; ++n, pa += nr * k, pb += nc * k)
            for (std::size_t i = 0; i < nr; ++i)
                for (std::size_t j = 0; j < nc; ++j) {
                    T total{0};
                    for (std::size_t l = 0; l < k; ++l)
                        total = functions::add{}(total, functions::multiply{}(pa[i * k + l], pb[j * k + l]));
                    *to++ = total;
                }
    });
    return y;
}

inline void einsum(op_context& call) {
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < call.input_count(); ++i) {
        if (call.input(i).type() != call.input(0).type()) call.fail("the operands differ in type");
        ranks.push_back(call.input(i).rank());
    }
    const einsum_equation e = parse_einsum(call, ranks);
    labelled total;
    dispatch(call, call.input(0).type(), number_types, [&]<class T>(type_tag<T>) { total.value = make_tensor<T>({}, std::array{T{1}}); });
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        std::string keep = e.output;
        for (std::size_t later = i + 1; later < ranks.size(); ++later) keep += e.inputs[later];
        total = contract(call, take_diagonals(call, {call.input(i), e.inputs[i]}), total, keep);
    }
    call.set_output(0, arranged(call, total, e.output));
}

inline constexpr op_entry einsum_ops[] = {{"", "Einsum", 12, through_float32<einsum>, nullptr, {follow_einsum}, {moves_channels}}};

}  // namespace qk::graph::ops
