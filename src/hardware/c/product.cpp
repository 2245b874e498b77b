// SPDX-License-Identifier: Apache-2.0
// qk.h's products over packed weights.
#include <algorithm>
#include <optional>

#include "door.hpp"
#include "qk/dispatch.hpp"

namespace {

using namespace qk::c;

[[noreturn]] void refuse(const std::string& sentence) { throw refused{QK_BAD_ARGUMENT, sentence}; }

/// Returns numbers in memory of the caller's type.
template <class Values, class Byte>
Values numbers(Byte* data, int storage, std::size_t n, const char* what) {
    constexpr bool reads = std::is_const_v<Byte>;
    expect_array(data, n, what);
    if (storage == 0) return std::span(static_cast<std::conditional_t<reads, const float, float>*>(data), n);
    if (storage == QK_FLOAT16) return std::span(static_cast<std::conditional_t<reads, const qk::float16, qk::float16>*>(data), n);
    if (storage == QK_BFLOAT16) return std::span(static_cast<std::conditional_t<reads, const qk::bfloat16, qk::bfloat16>*>(data), n);
    refuse("x_storage and y_storage are 0, QK_FLOAT16 or QK_BFLOAT16");
}

/// Returns how far an array reaches that holds `count` vectors of n values.
std::size_t reach_of(std::size_t count, std::size_t n, std::size_t stride, std::size_t step) {
    return count == 0 || n == 0 ? 0 : (count - 1) * (stride != 0 ? stride : n * step) + (n - 1) * step + 1;
}

/// The weights of a call, checked.
struct checked_weights {
    qk::compare::conversion how;
    qk::packed_weights w;

    explicit checked_weights(const qk_weights* given) {
        expect_array(given, 1, "w");
        qk_conversion c = given->how;
        if (given->columns != 0 && given->rows > SIZE_MAX / given->columns) refuse("w->rows * w->columns is too large");
        if (c.outer == 0 && c.length == 0 && c.inner == 0) {
            const bool by_row = c.scale_count > 1 && c.scale_count == given->rows && c.scale_block == 0;
            c.outer = by_row ? 1 : given->rows, c.length = by_row ? given->rows : given->columns, c.inner = by_row ? given->columns : 1;
        }
        how = conversion_of(&c, given->rows * given->columns, true);
        if (how.format == qk::format(qk::fp64)) refuse("fp64 is for qk_dot; weights have at most 32 bits");
        const qk::along_axis axis{given->rows, given->columns, 1}, of = how.blocks;
        if (qk::is_block_format(how.format) && (of.outer != axis.outer || of.length != axis.length || of.inner != 1))
            refuse("blocks lie in the rows of w: outer = rows, length = columns, inner = 1");
        const qk::packed_layout l = qk::layout_of(how.format, axis);
        const auto plane = [](const void* data, const qk::plane& p, const char* what) {
            expect_array(data, p.bytes(), what);
            return std::span(static_cast<const std::byte*>(data), p.bytes());
        };
        w = {given->rows,
             given->columns,
             {plane(given->planes.elements, l.elements, "w->planes.elements"), plane(given->planes.scales, l.scales, "w->planes.scales"),
              plane(given->planes.shifts, l.shifts, "w->planes.shifts"), plane(given->planes.tensor, l.tensor, "w->planes.tensor")},
             parameters_of(how)};
    }
    /// Is true where weights share factors as product_sums::integers needs it, in rows that begin at this column.
    bool shares_factors(std::size_t first_column) const {
        const auto fits = [&](std::size_t run) { return (run == 16 || run % 32 == 0) && first_column % (run == 16 ? 16 : 32) == 0; };
        if (qk::is_block_format(how.format)) return fits(static_cast<std::size_t>(qk::block_size(how.format)));
        const qk::codec_parameters& p = w.parameters;
        if (p.one_scale()) return true;
        const bool by_row = p.axis.outer == 1 && p.axis.length == w.rows && p.axis.inner == w.columns;
        const bool along = p.axis.inner == 1 && p.axis.length == w.columns;
        return p.group == 0 ? by_row : along && (p.group >= w.columns || fits(p.group));
    }
    qk::packed_rows part(const qk_rows* given) const {
        expect_array(given, 1, "rows");
        const std::size_t step = given->row_step != 0 ? given->row_step : 1;
        if (given->first_column > w.columns || given->columns > w.columns - given->first_column)
            refuse("rows->first_column + rows->columns is more than w->columns, " + std::to_string(w.columns));
        if (given->rows != 0 && (given->first_row >= w.rows || (given->rows - 1) > (w.rows - 1 - given->first_row) / step))
            refuse("the last of rows is behind the last row of w, " + std::to_string(w.rows));
        return {w, given->rows, given->columns, given->first_row, step, given->first_column};
    }
};

/// x, y and what follows the sum, as C++ has them. `inputs` and `outputs` are the lengths of a vector of x and of y, `vectors` those of y.
struct checked_call {
    qk_product_options given{};
    std::optional<qk::format> rounded;
    qk::product_input x{std::span<const float>()};
    qk::product_output y{std::span<float>()};
    std::size_t written = 0;

    checked_call(const qk_product_options* options, const void* from, void* to, std::size_t inputs, std::size_t outputs,
                 std::optional<std::size_t> vectors = {}) {
        if (options != nullptr) given = *options;
        given.count = given.count != 0 ? given.count : 1;
        const std::size_t x_step = given.x_step != 0 ? given.x_step : 1, y_step = given.y_step != 0 ? given.y_step : 1;
        written = reach_of(vectors.value_or(given.count), outputs, given.y_stride, y_step);
        if (given.rounded_scales != nullptr) {
            if (given.integers == 0) refuse("rounded_scales are for integers");
            if (given.x_stride != 0 || x_step != 1 || given.x_storage != 0 || given.x_format != nullptr)
                refuse("rounded_scales: x is bytes, one vector after the other, and is not rounded again");
            const std::size_t bytes = given.count * qk::padded_columns(inputs);
            expect_array(from, bytes, "x");
            x = {qk::rounded_vectors{std::span(static_cast<const std::int8_t*>(from), bytes), std::span(given.rounded_scales, bytes / 32)},
                 given.count};
        } else {
            x = {numbers<qk::values_in>(from, given.x_storage, reach_of(given.count, inputs, given.x_stride, x_step), "x"), given.count,
                 given.x_stride, x_step};
        }
        y = {numbers<qk::values_out>(to, given.y_storage, written, "y"), given.y_stride, y_step};
        if (given.last == 0) given.last = outputs;
        if (given.scale == 0) given.scale = 1;
        if (given.x_format != nullptr) {
            rounded = format_of(given.x_format, "x_format");
            if (qk::is_block_format(*rounded) && 256 % qk::block_size(*rounded) != 0) refuse("the blocks of x_format must divide 256");
        }
    }
    qk::values_in like_y(const void* data, const char* what) const {
        if (data == nullptr) return std::span<const float>();
        return numbers<qk::values_in>(data, given.y_storage, written, what);
    }
    qk::input_rounding rounding() const { return rounded ? qk::dispatch::rounded_to(*rounded) : qk::input_rounding{}; }
    static std::span<const float> of_rows(const float* data, std::size_t n) {
        return data == nullptr ? std::span<const float>() : std::span(data, n);
    }
    /// Returns the options of a product whose row_scale and bias have `rows` entries.
    qk::product_options options(std::size_t rows, const checked_weights& weights, std::size_t first_column = 0) const {
        if (given.begin != nullptr) refuse("begin is for qk_weighted_rows");
        int act = 0;
        std::memcpy(&act, &given.act, sizeof act);  // C may hand over what is no enumerator
        if (act < QK_NO_ACTIVATION || act > QK_GELU_TANH) refuse("act is one of qk_activation");
        if (given.integers != 0 && !qk::takes_integers(weights.how.format))
            refuse("integers: the elements of this format are no whole numbers of a unit");
        if (given.integers != 0 && !weights.shares_factors(first_column))
            refuse("integers: scales are shared by a row, by 16 weights or by a multiple of 32 weights, from the first column on");
        if (given.integers != 0 && given.chains != 0) refuse("integers and chains are two orders of a sum: set one of them");
        const qk::product_sums in_floats = given.chains != 0 ? qk::product_sums::chains : qk::product_sums::floats;
        return {.scale = given.scale,
                .row_scale = of_rows(given.row_scale, rows),
                .bias = of_rows(given.bias, rows),
                .act = static_cast<qk::activation>(act),
                .times = like_y(given.times, "times"),
                .plus = like_y(given.plus, "plus"),
                .rows = {given.first, given.last},
                .sums = given.integers != 0 ? qk::product_sums::integers : in_floats,
                .round = rounding()};
    }
};

}  // namespace

extern "C" {

qk_status qk_packed_product(const qk_weights* w, const void* x, void* y, const qk_product_options* options) {
    return guarded([&] {
        const checked_weights c(w);
        const checked_call call(options, x, y, c.w.columns, c.w.rows);
        qk::dispatch::product(c.how.format, c.w, call.x, call.y, call.options(c.w.rows, c));
    });
}
qk_status qk_round_vectors(const void* x, size_t columns, int8_t* q, float* scales, const qk_product_options* options) {
    return guarded([&] {
        if (options != nullptr && options->rounded_scales != nullptr) refuse("qk_round_vectors takes numbers, no rounded_scales");
        const checked_call call(options, x, nullptr, columns, 0);
        const std::size_t bytes = call.given.count * qk::padded_columns(columns);
        expect_array(q, bytes, "q");
        expect_array(scales, bytes / 32, "scales");
        qk::dispatch::round_vectors(call.x, columns, std::span(q, bytes), std::span(scales, bytes / 32), call.rounding());
    });
}
qk_status qk_grouped_product(const qk_weights* w, size_t rows_of_expert, const qk_expert_choice* chosen, size_t chosen_count,
                             const float* expert_scale, const void* x, void* y, const qk_product_options* options) {
    return guarded([&] {
        const checked_weights c(w);
        expect_array(chosen, chosen_count, "chosen");
        if (rows_of_expert == 0 || c.w.rows % rows_of_expert != 0) refuse("w->rows is no multiple of rows_of_expert");
        const std::size_t experts = c.w.rows / rows_of_expert, vectors = options != nullptr && options->count != 0 ? options->count : 1;
        std::vector<qk::expert_choice> choices(chosen_count);
        std::size_t outputs = 0;
        for (std::size_t i = 0; i < chosen_count; ++i) {
            const qk_expert_choice& one = chosen[i];
            const std::string which = "chosen[" + std::to_string(i) + "]";
            if (one.expert >= experts) refuse(which + ".expert is " + std::to_string(one.expert) + " of " + std::to_string(experts));
            if (one.from >= vectors) refuse(which + ".from is behind the last vector of x");
            choices[i] = {one.expert, one.from, one.to, one.weight};
            outputs = std::max<std::size_t>(outputs, one.to + std::size_t{1});
        }
        const checked_call call(options, x, y, c.w.columns, rows_of_expert, outputs);
        const qk::product_experts e{rows_of_expert, choices, checked_call::of_rows(expert_scale, experts)};
        qk::dispatch::grouped_product(c.how.format, c.w, e, call.x, call.y, call.options(c.w.rows, c));
    });
}
qk_status qk_dot_rows(const qk_weights* w, const qk_rows* rows, const void* x, void* y, const qk_product_options* options) {
    return guarded([&] {
        const checked_weights c(w);
        const qk::packed_rows part = c.part(rows);
        const checked_call call(options, x, y, part.columns, part.rows);
        qk::dispatch::dot_rows(c.how.format, part, call.x, call.y, call.options(part.rows, c, part.first_column));
    });
}
qk_status qk_weighted_rows(const qk_weights* w, const qk_rows* rows, const void* x, void* y, const qk_product_options* options) {
    return guarded([&] {
        const checked_weights c(w);
        const qk::packed_rows part = c.part(rows);
        const checked_call call(options, x, y, part.rows, part.columns);
        const qk_product_options& o = call.given;
        if (o.bias != nullptr || o.times != nullptr || o.x_format != nullptr || o.integers != 0 || o.rounded_scales != nullptr ||
            o.chains != 0 || static_cast<int>(o.act) != 0)
            refuse("qk_weighted_rows takes scale, row_scale, plus and begin");
        qk::dispatch::weighted_rows(c.how.format, part, call.x, call.y,
                                    {.scale = o.scale,
                                     .column_scale = checked_call::of_rows(o.row_scale, part.columns),
                                     .begin = checked_call::of_rows(o.begin, call.written),
                                     .plus = call.like_y(o.plus, "plus"),
                                     .columns = {o.first, o.last}});
    });
}

}  // extern "C"
