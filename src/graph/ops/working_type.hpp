// SPDX-License-Identifier: Apache-2.0
// Helpers of operators that compute in float (double for float64): half precision is widened on the way in and rounded once on the way out.
#pragma once

#include <string>
#include <utility>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/op.hpp"

namespace qk::graph::ops {

/// Returns `value` as a tensor of T (float, double or std::int64_t). Shares its memory if it already has that type.
template <class T>
tensor convert_to(op_context& call, const tensor& value) {
    if (value.type() == type_of<T>) return value;
    tensor wide = call.scratch(type_of<T>, value.shape());
    if (!read_elements<T>(value.type(), value.bytes(), wide.as<T>())) {
        call.fail(std::string("type ") + name_of(value.type()) + " has no numbers to compute with");
    }
    return wide;
}

/// Returns input i as a tensor of T. Fails if it is missing.
template <class T>
tensor input_as(op_context& call, std::size_t i) {
    return convert_to<T>(call, call.input(i));
}

/// Returns input i as a tensor of T, or an empty tensor if it is absent.
template <class T>
tensor optional_as(op_context& call, std::size_t i) {
    return call.has_input(i) ? input_as<T>(call, i) : tensor{};
}

/// Returns input i as integers (sizes, axes, indices).
inline std::vector<std::int64_t> integers(op_context& call, std::size_t i) {
    const tensor t = input_as<std::int64_t>(call, i);
    const auto v = t.as<std::int64_t>();
    return {v.begin(), v.end()};
}

/// Returns input i as integers, or none if it is absent.
inline std::vector<std::int64_t> optional_integers(op_context& call, std::size_t i) {
    return call.has_input(i) ? integers(call, i) : std::vector<std::int64_t>{};
}

/// Returns optional input i, the zero point of codes of type `codes`, as numbers of T. Fails unless it has the codes' type.
template <class T>
tensor zero_point_of(op_context& call, std::size_t i, data_type codes) {
    if (call.has_input(i) && call.input(i).type() != codes)
        call.fail(std::string("a zero point of type ") + name_of(call.input(i).type()) + " does not fit codes of type " + name_of(codes));
    return optional_as<T>(call, i);
}

/// An output that is computed in T and stored as `type`: the caller fills values(), then calls store().
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

/// Calls f with a double for float64 and with a float for every other `t`: the type in which it is computed.
template <class F>
void with_working_type(data_type t, F&& f) {
    if (t == data_type::float64) f(double{});
    else f(float{});
}

inline void require(const op_context& call, bool condition, const char* what) {
    if (!condition) call.fail(what);
}

}  // namespace qk::graph::ops
