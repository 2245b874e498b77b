// SPDX-License-Identifier: Apache-2.0
// Defines the helpers of dispatch.hpp that need no template, so that they are compiled once.
#include "graph/ops/dispatch.hpp"

namespace qk::graph::ops {

void fail_for_type(const op_context& call, data_type type) {
    call.fail(std::string("element type ") + name_of(type) + " is not supported here");
}

tensor widened(op_context& call, const tensor& x) {
    if (x.empty() || !is_narrow_float(x.type())) return x;
    tensor wide = call.scratch(data_type::float32, x.shape());
    if (x.type() == data_type::float16) widen(x.as<half>(), wide.as<float>());
    else widen(x.as<brain>(), wide.as<float>());
    return wide;
}

tensor narrowed(op_context& call, const tensor& x, data_type type) {
    tensor y = call.scratch(type, x.shape());
    if (type == data_type::float16) narrow(x.as<float>(), y.as<half>());
    else narrow(x.as<float>(), y.as<brain>());
    return y;
}

void run_through_float32(op_context& call, void (*run)(op_context&)) {
    data_type narrow_type = data_type::undefined;
    for (std::size_t i = 0; i < call.input_count(); ++i)
        if (call.has_input(i) && is_narrow_float(call.input(i).type())) {
            narrow_type = call.input(i).type();
            break;
        }
    if (narrow_type == data_type::undefined) return run(call);

    std::vector<tensor> inputs(call.input_count());
    for (std::size_t i = 0; i < inputs.size(); ++i)
        if (call.has_input(i)) inputs[i] = widened(call, call.input(i));
    std::vector<tensor> outputs(call.output_count());
    op_context wide = call.with(inputs, outputs);
    run(wide);
    for (std::size_t i = 0; i < outputs.size(); ++i)
        if (!outputs[i].empty())
            call.set_output(i, outputs[i].type() == data_type::float32 ? narrowed(call, outputs[i], narrow_type) : outputs[i]);
}

std::vector<std::int64_t> int_values(const op_context& call, const tensor& t) {
    std::vector<std::int64_t> values(t.size());
    dispatch(call, t.type(), integer_types + type_list<bool>{}, [&]<class T>(type_tag<T>) {
        const auto from = t.as<T>();
        for (std::size_t i = 0; i < from.size(); ++i) values[i] = static_cast<std::int64_t>(from[i]);
    });
    return values;
}

}  // namespace qk::graph::ops
