// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/ops/tensor_values.hpp"

#include <span>

#include "graph/ops/elements.hpp"

namespace qk::graph {
namespace {

template <class T>
std::optional<std::vector<T>> numbers_of(const tensor& t) {
    std::vector<T> v(t.size());
    if (!ops::read_elements(t.type(), t.bytes(), std::span(v))) return std::nullopt;
    return v;
}

}  // namespace

std::optional<std::vector<float>> float_values(const tensor& t) { return numbers_of<float>(t); }
std::optional<std::vector<double>> double_values(const tensor& t) { return numbers_of<double>(t); }
std::optional<std::vector<std::int64_t>> integer_values(const tensor& t) { return numbers_of<std::int64_t>(t); }

bool is_integer(data_type t) { return ops::is_integer_type(t); }

}  // namespace qk::graph
