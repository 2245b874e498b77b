// SPDX-License-Identifier: Apache-2.0
// Operators that compute in float (or double for float64): half precision is widened on the way in and rounded once on the way out.
#pragma once

#include <string>
#include <utility>

#include "qk/graph/ops/dispatch.hpp"
#include "qk/graph/ops/elements.hpp"
#include "qk/graph/ops/op.hpp"

namespace qk::graph::ops {

/// `value` as a tensor of T (float, double or std::int64_t), shared when it already is one.
template <class T>
tensor convert_to(op_context& call, const tensor& value) {
    if (value.type() == type_of<T>) return value;
    tensor wide = call.scratch(type_of<T>, value.shape());
    if (!read_elements<T>(value.type(), value.bytes(), wide.as<T>())) {
        call.fail(std::string("type ") + name_of(value.type()) + " has no numbers to compute with");
    }
    return wide;
}

/// Input i as a tensor of T; an error if it is missing.
template <class T>
tensor input_as(op_context& call, std::size_t i) {
    return convert_to<T>(call, call.input(i));
}

/// Input i as a tensor of T, or an empty tensor.
template <class T>
tensor optional_as(op_context& call, std::size_t i) {
    return call.has_input(i) ? input_as<T>(call, i) : tensor{};
}

/// Input i as integers (sizes, axes, indices).
inline std::vector<std::int64_t> integers(op_context& call, std::size_t i) {
    const tensor t = input_as<std::int64_t>(call, i);
    const auto v = t.as<std::int64_t>();
    return {v.begin(), v.end()};
}

/// Optional input i as integers; none when absent.
inline std::vector<std::int64_t> optional_integers(op_context& call, std::size_t i) {
    return call.has_input(i) ? integers(call, i) : std::vector<std::int64_t>{};
}

/// Optional input i, the zero point of codes of type `codes`, as numbers of T. It must have the codes' type.
template <class T>
tensor zero_point_of(op_context& call, std::size_t i, data_type codes) {
    if (call.has_input(i) && call.input(i).type() != codes)
        call.fail(std::string("a zero point of type ") + name_of(call.input(i).type()) + " does not fit codes of type " + name_of(codes));
    return optional_as<T>(call, i);
}

/// An output computed in T and stored as `type`: fill values(), then store().
template <class T>
class working_output {
  public:
    working_output(op_context& call, std::size_t i, data_type type, dims shape)
        : call_(&call),
          index_(i),
          type_(type),
          values_(type == type_of<T> ? call.output(i, type, std::move(shape)) : call.scratch(type_of<T>, std::move(shape))) {}
    std::span<T> values() { return values_.template as<T>(); }
    T* data() { return values().data(); }
    void store() {
        if (type_ == type_of<T>) return;
        tensor& out = call_->output(index_, type_, values_.shape());
        write_elements<T>(std::span<const T>(values()), type_, out.bytes());
    }

  private:
    op_context* call_;
    std::size_t index_;
    data_type type_;
    tensor values_;
};

/// Calls f with a float or a double: the type that arithmetic on `t` uses.
template <class F>
void with_working_type(data_type t, F&& f) {
    if (t == data_type::float64) f(double{});
    else f(float{});
}

inline void require(const op_context& call, bool condition, const char* what) {
    if (!condition) call.fail(what);
}

}  // namespace qk::graph::ops
