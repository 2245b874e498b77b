// SPDX-License-Identifier: Apache-2.0
// How a function reshapes its input into blocks: [..., block, inner], so that a block is a run along the last axis but one.
#pragma once

#include <limits>

#include "graph/export/portable/function_builder.hpp"

namespace qk::graph::detail {

/// How blocks are made. `whole`: the call's attribute `blocks` is the shape, known beforehand: whole blocks, or one short block. `padded`:
/// `blocks` is the shape after zeros have filled the last block along the axis `axis`; attribute `ends` has a 1 for the pad at its end,
/// among the pads of all axes. `any_length`: the shape is computed in each run from attributes `axis` and `after` (the axis behind it; both
/// count an additional first axis of length 1); short blocks are padded with zeros, which raise no exponent and are cut off again.
enum class block_layout : std::uint8_t { whole, padded, any_length };

/// Returns core(blocks of x) in x's own shape. If `part` is not 0, `block` is first cut into parts: [..., block / part, part, inner].
template <class Core>
operand in_blocks(function_builder& f, const operand& x, block_layout layout, std::int64_t block, std::int64_t part, const Core& core) {
    const operand shape = f.op("Shape", {x}, "shape");
    if (layout == block_layout::whole) return f.reshape(core(f.op("Reshape", {x, f.integers_of_call("blocks")}, "blocks_of_x")), shape);
    if (layout == block_layout::padded) {
        const operand axis = f.integers_of_call("axis"), length = f.op("Gather", {shape, axis}, "length");
        const operand missing = f.op("Mod", {f.op("Neg", {length}), f.integers({block})});
        const operand padded = f.op("Pad", {x, f.op("Mul", {f.integers_of_call("ends"), missing})}, "padded");
        const operand y = core(f.op("Reshape", {padded, f.integers_of_call("blocks")}, "blocks_of_x"));
        return f.op("Slice", {f.reshape(y, f.op("Shape", {padded})), f.integers({0}), length, axis});
    }
    const auto slice = [&](const operand& v, const operand& from, const operand& to, std::int64_t axis) {
        return f.op("Slice", {v, from, to, f.integers({axis})});
    };
    const std::int64_t end = std::numeric_limits<std::int64_t>::max();
    const operand axes = f.concat({f.integers({1}), shape});  // so that a scalar has an axis, too
    const operand length = f.op("Gather", {axes, f.integers_of_call("axis")}, "length");
    const operand behind = slice(axes, f.integers_of_call("after"), f.integers({end}), 0);
    const operand inner = f.reduce("ReduceProd", f.concat({f.integers({1}), behind}), {0});
    const operand count = f.op("Div", {f.op("Add", {length, f.integers({block - 1})}), f.integers({block})}, "blocks");
    const operand padded = f.op("Mul", {count, f.integers({block})}, "padded");
    const auto pad = [&](const operand& v, const operand& by) {
        return f.op("Pad", {v, f.concat({f.integers({0, 0, 0, 0}), by, f.integers({0})})});
    };
    const operand rows = f.op("Reshape", {x, f.concat({f.integers({-1}), length, inner})}, "rows");
    operand blocks = f.op("Reshape", {pad(rows, f.op("Sub", {padded, length})), f.concat({f.integers({-1, block}), inner})}, "blocks_of_x");
    const std::int64_t parts = part == 0 ? 0 : (block + part - 1) / part;
    if (part != 0) {
        if (parts * part != block) blocks = pad(blocks, f.integers({parts * part - block}));
        blocks = f.op("Reshape", {blocks, f.concat({f.integers({-1, parts, part}), inner})}, "parts_of_x");
    }
    operand y = core(blocks);
    if (part != 0) {
        y = f.op("Reshape", {y, f.concat({f.integers({-1, parts * part}), inner})});
        if (parts * part != block) y = slice(y, f.integers({0}), f.integers({block}), 1);
    }
    y = slice(f.op("Reshape", {y, f.concat({f.integers({-1}), padded, inner})}), f.integers({0}), length, 1);
    return f.reshape(y, shape);
}

}  // namespace qk::graph::detail
