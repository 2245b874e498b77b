// SPDX-License-Identifier: Apache-2.0
// Builds functions that decode packed codes to float32: from bits to whole numbers, through a table or arithmetic to elements, times their
// scales. They read constants alone, so runtimes that fold constants run them once, when they load the model; what each step leaves in such
// a runtime's memory is several times the floats, so large constants are decoded in each run instead (function_key::each_run).
#pragma once

#include "qk/graph/export/portable/functions.hpp"
#include "qk/graph/export/portable/packed.hpp"

namespace qk::graph::detail {

/// Returns a constant with one axis.
template <class T>
operand row_of(function_builder& f, const std::vector<T>& values, const char* stem) {
    return f.constant(make_tensor<T>({static_cast<std::int64_t>(values.size())}, values), stem);
}

/// Returns bytes as int32. `each_run` takes them through DequantizeLinear, which onnxruntime does not fold.
inline operand whole_numbers(function_builder& f, operand bytes, bool each_run) {
    if (each_run) bytes = f.op("DequantizeLinear", {bytes, f.number(1, data_type::float32)});
    return f.cast(bytes, data_type::int32);
}

/// Unpacks codes of `width` bits to int32, [count], from the planes of pack_planes. A code lies in one byte of its group or in two.
inline operand unpack(function_builder& f, const std::vector<operand>& planes, int width, const operand& count, bool each_run) {
    const auto row = [&](const std::vector<std::int32_t>& v) { return row_of(f, v, "i"); };
    operand code;
    for (int p = 0; p < plane_count(width); ++p) {
        const int w = plane_bits(width, p);
        const packing_group g = group_of(w);
        operand part = whole_numbers(f, planes[static_cast<std::size_t>(p)], each_run);
        if (w < 8) {
            std::vector<std::int64_t> low, high;
            std::vector<std::int32_t> places;
            for (int i = 0; i < g.codes; ++i) {
                low.push_back(i * w / 8);
                high.push_back(std::min(low.back() + 1, std::int64_t{g.bytes} - 1));
                places.push_back(1 << (i * w % 8));
            }
            part = f.op("Reshape", {part, f.integers({-1, g.bytes})});
            if (g.bytes > 1)
                part = f.op("Add", {f.gather(part, f.integers(low), 1), f.op("Mul", {f.gather(part, f.integers(high), 1), row({256})})});
            part = f.op("Mod", {f.op("Div", {part, row(places)}), row({1 << w})});
            part = f.op("Slice", {f.op("Reshape", {part, f.integers({-1})}), f.integers({0}), count, f.integers({0})});
        }
        if (p > 0) part = f.op("Mul", {part, row({1 << (8 * p)})});
        code = p == 0 ? part : f.op("Add", {code, part});
    }
    return code;
}

/// Returns the elements (in units of their scale) of all codes, which have at most 8 bits; elements_of uses operators for wider ones.
inline std::vector<float> element_table(const format& f, int width) {
    std::vector<float> table(std::size_t{1} << width);
    for (std::uint32_t c = 0; c < table.size(); ++c) {
        float& v = table[c];
        if (const floating* g = std::get_if<floating>(&f)) v = reference::value_of(*g, c);
        else if (const qk::table* t = std::get_if<qk::table>(&f)) v = t->values[c];
        else if (const nvfloat* n = std::get_if<nvfloat>(&f)) v = reference::value_of(n->element, c);
        else if (const integer* i = std::get_if<integer>(&f))
            v = static_cast<float>(i->is_signed ? reference::sign_extend(c, width) : std::int64_t{c});
        else if (const microscaling* m = std::get_if<microscaling>(&f); m != nullptr && !has_integer_elements(*m))
            v = reference::value_of(m->element, c);
        else if (m != nullptr) v = static_cast<float>(static_cast<double>(reference::sign_extend(c, width)) / power_of_two(width - 2));
        else if (const block_float* b = std::get_if<block_float>(&f); b != nullptr && b->bump)
            v = static_cast<float>(reference::sign_extend(c, width));
        else v = c >> (width - 1) ? -static_cast<float>(c ^ 1u << (width - 1)) : static_cast<float>(c);
    }
    return table;
}

/// Looks up the elements of all codes of a byte at once: [bytes, codes a byte].
inline operand elements_of_bytes(function_builder& f, const format& of, int width, const operand& bytes) {
    const std::vector<float> one = element_table(of, width);
    const std::int64_t codes = 8 / width;
    std::vector<float> table;
    for (std::size_t byte = 0; byte < 256; ++byte)
        for (std::int64_t i = 0; i < codes; ++i) table.push_back(one[byte >> (i * width) & (one.size() - 1)]);
    return f.op("Gather", {f.constant(make_tensor<float>({256, codes}, table), "elements"), bytes});
}

inline operand elements_of(function_builder& f, const format& of, int width, const operand& code) {
    const arithmetic a(f, data_type::float32);
    if (width <= 8) return f.op("Gather", {row_of(f, element_table(of, width), "elements"), code});
    const auto whole = [&](std::int64_t v) {
        return f.constant(make_tensor<std::int32_t>({}, std::vector<std::int32_t>{static_cast<std::int32_t>(v)}), "i");
    };
    const auto split = [&](const operand& v, int bits) {  // returns what lies above the lowest `bits` bits, and those bits
        const operand one = whole(std::int64_t{1} << bits), high = f.op("Div", {v, one});
        return std::pair{high, f.op("Sub", {v, f.op("Mul", {high, one})})};
    };
    const block_float* b = std::get_if<block_float>(&of);
    const integer* i = std::get_if<integer>(&of);
    if (i != nullptr && !i->is_signed) return f.cast(code, data_type::float32);
    if (i != nullptr || (b != nullptr && b->bump) || std::holds_alternative<microscaling>(of)) {
        const operand turned = f.op("Mod", {f.op("Add", {code, whole(std::int64_t{1} << (width - 1))}), whole(std::int64_t{1} << width)});
        const operand n = f.cast(f.op("Sub", {turned, whole(std::int64_t{1} << (width - 1))}), data_type::float32);
        return std::holds_alternative<microscaling>(of) ? a.mul(n, power_of_two(2 - width)) : n;
    }
    const auto [sign, magnitude] = split(code, width - 1);
    operand n = f.cast(magnitude, data_type::float32);
    if (const floating* g = std::get_if<floating>(&of)) {
        const auto [field, mantissa] = split(magnitude, g->mantissa_bits);
        std::vector<float> steps, hidden;
        for (int e = 0; e < 1 << g->exponent_bits; ++e) {
            const bool infinite = g->specials == specials::ieee && e == (1 << g->exponent_bits) - 1;
            steps.push_back(infinite ? std::numeric_limits<float>::infinity()
                                     : static_cast<float>(power_of_two(std::max(e, 1) - g->bias - g->mantissa_bits)));
            hidden.push_back(e == 0 ? 0.0f : static_cast<float>(power_of_two(g->mantissa_bits)));
        }
        const auto table = [&, field = field](const std::vector<float>& t) { return f.op("Gather", {row_of(f, t, "table"), field}); };
        n = a.mul(a.add(f.cast(mantissa, data_type::float32), table(hidden)), table(steps));
    }
    return a.mul(n, a.sub(a.c(1), a.mul(f.cast(sign, data_type::float32), 2)));
}

/// Returns the value of each code of a block's scale.
inline std::vector<float> scale_table(const format& f, int width) {
    std::vector<float> table(std::size_t{1} << width);
    for (std::uint32_t c = 0; c < table.size(); ++c) {
        const bool last = c + 1 == table.size();
        if (const block_float* b = std::get_if<block_float>(&f))
            table[c] = last ? reference::quiet_nan : static_cast<float>(power_of_two(reference::step_exponent(*b, static_cast<int>(c))));
        else if (const microexponent* m = std::get_if<microexponent>(&f))
            table[c] = last ? reference::quiet_nan : static_cast<float>(power_of_two(reference::step_exponent(*m, static_cast<int>(c), 0)));
        else if (const nvfloat* n = std::get_if<nvfloat>(&f)) table[c] = reference::value_of(n->scale, c);
        else table[c] = reference::value_of(e8m0, c);
    }
    return table;
}

/// Returns the scales of blocks, one after the other, as floats.
inline operand scales_of_blocks(function_builder& f, const function_key& k, const std::vector<operand>& codes, int width,
                                const operand& scale) {
    const operand values = f.op("Gather", {row_of(f, scale_table(k.format, width), "scale_values"),
                                           unpack(f, codes, width, f.integers_of_call("grid_count"), k.each_run)});
    return scale.empty() ? values : arithmetic(f, data_type::float32).mul(values, scale);
}

/// Spreads scale and zero point over positions along the axis of blocks, some of which may be short. `scale` is [outer, blocks, inner].
inline void spread_over_blocks(function_builder& f, const function_key& k, const std::vector<operand>& shifts, operand& scale,
                               operand& zero_point) {
    const arithmetic a(f, data_type::float32);
    const auto number = [&](std::int64_t v) { return f.number(static_cast<double>(v), data_type::int64); };
    const std::int64_t block = is_block_format(k.format) ? block_size(k.format) : k.block;
    const operand position = f.op("Range", {number(0), f.integer_of_call("length"), number(1)}),
                  block_of = f.op("Div", {position, number(block)});
    scale = f.gather(scale, block_of, 1);
    if (!zero_point.empty()) zero_point = f.gather(zero_point, block_of, 1);
    const microexponent* m = std::get_if<microexponent>(&k.format);
    if (m == nullptr) return;
    const std::int64_t parts = static_cast<std::int64_t>(reference::sub_blocks(*m));
    const operand inside = f.op("Div", {f.op("Mod", {position, number(block)}), number(m->sub_block_size)});
    const operand part_of = f.op("Add", {f.op("Mul", {block_of, number(parts)}), inside});
    std::vector<float> halves;
    for (int s = 0; s < 1 << m->shift_bits; ++s) halves.push_back(static_cast<float>(power_of_two(-s)));
    const operand shift =
        f.op("Gather", {row_of(f, halves, "halves"), unpack(f, shifts, m->shift_bits, f.integers_of_call("part_count"), k.each_run)});
    scale = a.mul(scale, f.gather(f.op("Reshape", {shift, f.integers_of_call("parts")}), part_of, 1));
}

/// Returns the body that decodes. Its inputs are the planes of the codes, of the scales and of the shifts, then `scale` and `zero_point`
/// (or `zero_codes`, packed, `zero_count` of them) where the key has them. Its attributes are: `shape` of the result; `rows`, the shape as
/// [outer, length, inner], or with whole blocks as [outer * blocks, block, inner]; `count` of elements unless they fill bytes; for blocks
/// `grid` ([outer, blocks, inner], or [outer * blocks, 1, inner]) and `grid_count`; where some blocks are short `length`, and `parts` and
/// `part_count` of sub-blocks.
inline onnx::FunctionProto decode_function(const function_key& k, const std::string& name, int opset) {
    function_builder f(name, opset, text_of(k.format) + ": packed codes to float32");
    const arithmetic a(f, data_type::float32);
    const auto [element_bits, scale_bits] = code_bits(k.format);
    const auto planes = [&](const std::string& stem, int width) {
        std::vector<operand> inputs;
        for (int p = 0; p < plane_count(width); ++p) inputs.push_back(f.input(p == 0 ? stem : stem + "_" + std::to_string(p + 1)));
        return inputs;
    };
    const microexponent* m = std::get_if<microexponent>(&k.format);
    const std::vector<operand> codes = planes("codes", element_bits), scales = planes("scales", scale_bits),
                               shifts = planes("shifts", m ? m->shift_bits : 0);
    operand scale = k.scales > 0 ? f.input("scale") : "",
            zero_point = k.scales > 1 ? f.input(k.zero_codes ? marks::zero_codes : "zero_point") : "";
    if (k.zero_codes)
        zero_point =
            elements_of(f, k.format, element_bits, unpack(f, {zero_point}, element_bits, f.integers_of_call("zero_count"), k.each_run));
    operand y = k.whole_bytes
                    ? elements_of_bytes(f, k.format, element_bits, whole_numbers(f, codes[0], k.each_run))
                    : elements_of(f, k.format, element_bits, unpack(f, codes, element_bits, f.integers_of_call("count"), k.each_run));
    y = f.op("Reshape", {y, f.integers_of_call("rows")});
    const bool blocked = is_block_format(k.format);
    if (blocked || k.block_scales) {
        const operand grid = f.integers_of_call("grid");
        scale = f.op("Reshape", {blocked ? scales_of_blocks(f, k, scales, scale_bits, scale) : scale, grid});
        if (!zero_point.empty()) zero_point = f.op("Reshape", {zero_point, grid});
        if (!k.whole_blocks) spread_over_blocks(f, k, shifts, scale, zero_point);
    }
    if (!zero_point.empty()) y = a.sub(y, zero_point);
    if (!scale.empty()) y = a.mul(y, scale);
    return f.finish(f.op("Reshape", {y, f.integers_of_call("shape")}));
}

}  // namespace qk::graph::detail
