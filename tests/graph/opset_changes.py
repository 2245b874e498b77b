#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the table of docs/reference/opset_changes.md from ONNX's schemas: every operator of ai.onnx whose signature or meaning changes between two
opsets up to 25, and what raise_opset does about it.

usage: opset_changes.py [DOCUMENT]    (prints the table, or writes it into DOCUMENT behind the line that starts it)

A signature is compared by program. What no signature shows stands in MEANING, and what is done in DONE; a change that takes something away or
moves a default and has no line there is an error, so that nobody overlooks those of a newer opset.
"""
import sys
from collections import defaultdict

import onnx
import onnx.defs

LAST = 25
MARK = "<!-- The table below is made by tests/graph/opset_changes.py. -->"

BROADCASTS = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
REDUCES = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare")
SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")
RECURRENT = ("RNN", "GRU", "LSTM")

# What changed without a trace in the signature, by opset and operator.
MEANING = {
    (7, ("PRelu",)): "the slope is broadcast as in NumPy; before, along axis 1",
    (9, ("BatchNormalization",)): "statistics of each element of a sample (`spatial` 0) are gone",
    (10, ("Upsample",)): "became Resize",
    (11, ("Scatter",)): "became ScatterElements",
    (11, ("Clip",)): "without a bound there is none; before, infinities became the largest finite floats",
    (11, ("OneHot",)): "negative indices count from the end",
    (11, ("Resize",)): "the coordinates were `asymmetric`, and the nearest pixel was the ceiling where an axis shrinks, otherwise the floor",
    (12, ("Dropout",)): "outside of training the mask is true; before, the standard left it open",
    (13, ("Resize",)): "`tf_half_pixel_for_nn` is gone",
    (13, SOFTMAX): "normalize along one axis; before, over all axes from it on",
    (16, ("RoiAlign",)): "half a pixel is taken off the coordinates unless the attribute says otherwise; before, it never was",
    (18, ("Split",)): "without lengths, `num_outputs` is required",
    (20, ("DFT",)): "without an axis it is the last but one; before, axis 1",
    (21, ("GroupNormalization",)): "a scale and a bias for each channel; before, for each group",
    (24, ("Cast",)): "infinities saturate in the fnuz types, too; before, they became NaN",
}

# What is done where a node has to change, or why it need not, by opset and operator.
DONE = {
    (2, ("GlobalLpPool", "LpPool")): "p becomes a whole number; an error if it is none",
    (2, ("Pad",)): "the attribute gets its new name",
    (2, ("Split",)): "constant lengths become the attribute; others are an error",
    (3, ("GRU",)): "nothing: the old default was misspelt",
    (4, ("Concat",)): "axis 1 is written",
    (5, ("Reshape",)): "the shape becomes a constant input",
    (6, ("BatchNormalization",)): "the attribute goes",
    (6, ("Cast",)): "the name becomes the number of the type",
    (6, ("Clip",)): "nothing: the bounds are those that floats have",
    (6, ("Selu",)): "the old constants are written",
    (6, ("Tile",)): "constants become repeats for each axis; an error if they are none or the rank is unknown",
    (7, BROADCASTS): "a constant second operand is reshaped; any other that has an axis is an error",
    (7, ("BatchNormalization", "Dropout")): "the attribute goes; an error where it asks for training",
    (7, ("Gemm",)): "the attribute goes",
    (7, ("PRelu",)): "a constant slope is reshaped; any other is an error",
    (7, RECURRENT): "the attribute goes",
    (7, ("Upsample",)): "both become `scales`",
    (9, ("BatchNormalization",)): "the attribute goes; with `spatial` 0 the node becomes Sub, Div, Mul and Add",
    (9, ("Upsample",)): "the scales become a constant input",
    (9, ("Scan",)): "the node becomes a Scan over samples around one over the sequence; with lengths it is an error",
    (10, ("Dropout",)): "a Cast gives the mask its old type",
    (10, ("Slice", "TopK")): "the attributes become constant inputs",
    (10, ("Upsample",)): "Resize",
    (11, ("Clip", "Pad")): "the attributes become constant inputs of the tensor's type",
    (11, ("OneHot",)): "nothing: onnxruntime and qk count so at every opset",
    (11, ("Resize",)): "the attributes say so; an image that grows along one axis and shrinks along another takes two nodes",
    (11, ("Scatter",)): "ScatterElements",
    (12, ("Dropout",)): "the ratio becomes a constant input; where the mask is read it is an error",
    (13, ("Erf",)): "an error for integers",
    (13, ("ReduceSum", "Split", "Squeeze", "Unsqueeze")): "the attribute becomes a constant input",
    (13, ("Resize",)): "`half_pixel` with another rounding is the same; where there is none, an error",
    (13, SOFTMAX): "Flatten before and Reshape behind, unless the axis is the last",
    (14, ("BatchNormalization",)): "an error where outputs of training are named",
    (16, ("RoiAlign",)): "`output_half_pixel` is written",
    (18, REDUCES): "the attribute becomes a constant input",
    (18, ("Split",)): "`num_outputs` is written",
    (20, ("DFT",)): "the axis, or 1, becomes a constant input",
    (20, ("GridSample",)): "the modes get their new names",
    (21, ("GroupNormalization",)): "each group's values are repeated for its channels",
    (24, ("Cast",)): "nothing: onnxruntime and qk do the same at every opset",
}


def versions():
    """Returns the schemas of each operator of ai.onnx up to LAST, oldest first."""
    found = defaultdict(list)
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain == "" and s.since_version <= LAST:
            found[s.name].append(s)
    return {name: sorted(all_of, key=lambda s: s.since_version) for name, all_of in sorted(found.items())}


def looked_up(table, opset, op):
    return next((text for (version, ops), text in table.items() if version == opset and op in ops), "")


def default(a):
    if a.required:
        return "required"
    if not a.default_value.name:
        return "none"
    value = onnx.helper.get_attribute_value(a.default_value)
    return value.decode() if isinstance(value, bytes) else f"{value:.8g}" if isinstance(value, float) else str(value)


def attribute_changes(a, b):
    """Yields (text, whether an old node may need a change)."""
    for name in sorted(set(a.attributes) | set(b.attributes)):
        old, new = a.attributes.get(name), b.attributes.get(name)
        if new is None:
            yield f"`{name}` is gone", True
        elif old is None:
            yield f"`{name}` is new" + ("" if default(new) == "none" else f" ({default(new)})"), new.required
        elif old.type != new.type:
            yield f"`{name}` was {old.type.name.lower()}, is {new.type.name.lower()}", True
        elif default(old) != default(new):
            yield f"`{name}` was {default(old)}, is {default(new)}", default(old) != "required"


def argument_changes(a, b, what):
    old, new = list(getattr(a, what)), list(getattr(b, what))
    one = what[:-1]
    if [f.option for f in old] == [f.option for f in new]:
        return
    single, optional = onnx.defs.OpSchema.FormalParameterOption.Single, onnx.defs.OpSchema.FormalParameterOption.Optional
    if len(old) != len(new):
        for f in new:
            if f.name not in {o.name for o in old}:
                yield f"{one} {f.name} is new" + (" (optional)" if f.option == optional else ""), f.option == single
        for f in old:
            if f.name not in {o.name for o in new}:
                yield f"{one} {f.name} is gone", True
        return
    for i in range(len(old)):
        if old[i].option != new[i].option:
            yield f"{one} {new[i].name} was {old[i].option.name.lower()}, is {new[i].option.name.lower()}", not (old[i].option == single and new[i].option == optional)


def type_changes(a, b):
    """Yields types that an input or output no longer may have."""
    def allowed(schema, f):
        return next((set(t.allowed_type_strs) for t in schema.type_constraints if t.type_param_str == f.type_str), {f.type_str})

    for what in ("inputs", "outputs"):
        for old, new in zip(getattr(a, what), getattr(b, what)):
            gone = allowed(a, old) - allowed(b, new)
            if gone:
                short = sorted(t.replace("tensor(", "").replace(")", "") for t in gone)
                yield f"{what[:-1]} {new.name} is no longer {', '.join(short)}", True


def changes():
    """Returns a list of (opset, operator, what changed, whether an old node may need a change, what is done)."""
    rows = []
    for name, all_of in versions().items():
        for a, b in zip(all_of, all_of[1:]):
            found = [*attribute_changes(a, b), *argument_changes(a, b, "inputs"), *argument_changes(a, b, "outputs")]
            found += type_changes(a, b)
            if b.deprecated and not a.deprecated:
                found.append(("deprecated", True))
            opset = b.since_version
            meaning, done = looked_up(MEANING, opset, name), looked_up(DONE, opset, name)
            needed = any(n for _, n in found) or meaning != ""
            texts = [t for t, _ in found] + ([meaning] if meaning else [])
            if not texts:
                continue  # more types, or other words
            only_consumed = [t for t, n in found if n] == ["`consumed_inputs` is gone"]
            if needed and not done:
                if not only_consumed:
                    raise SystemExit(f"{name} changes in opset {opset} ({'; '.join(texts)}), and DONE does not say what is done about it")
                done = "the attribute goes"
            if not needed:
                done = "nothing: what is new means the old by default"
            rows.append((opset, name, "; ".join(texts), needed, done))
    for table in (MEANING, DONE):
        for opset, ops in table:
            for op in ops:
                if not any(r[0] == opset and r[1] == op for r in rows):
                    raise SystemExit(f"{op} does not change in opset {opset}, but has a line here")
    return rows


def table():
    """Returns the rows as Markdown; operators with the same change share one."""
    grouped = defaultdict(list)
    for opset, name, what, _, done in changes():
        grouped[(opset, what, done)].append(name)
    lines = ["| opset | operators | what changed | what raising does |", "|---|---|---|---|"]
    for (opset, what, done), names in sorted(grouped.items(), key=lambda row: (row[0][0], row[1])):
        lines.append(f"| {opset} | {', '.join(names)} | {what} | {done} |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) < 2:
        print(table(), end="")
        return
    with open(sys.argv[1]) as f:
        text = f.read()
    with open(sys.argv[1], "w") as f:
        f.write(text[:text.index(MARK)] + MARK + "\n\n" + table())


if __name__ == "__main__":
    main()
