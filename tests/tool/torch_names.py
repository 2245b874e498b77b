# SPDX-License-Identifier: Apache-2.0
"""Layers by the names that they have in torch: modules, groups as prefixes of them, types, and positions from either end.

Makes one small network as torch's two exporters write it, as the new one does where its optimizer folded a BatchNorm into a convolution, whose
node then tells of the BatchNorm, and as it does once an optimizer has dropped what it writes beside nodes.
The same requests mean the same layers in all of them.
"""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, qk, qk_json
from evidence.graphs import model as made

import numpy as np
import onnx
from onnx import helper, numpy_helper

# Module, its type, operator, shape of the weight. The first convolution of a block is a list in a list, as in mobilenet_v2.
LAYERS = [("features.0.0", "torch.nn.modules.conv.Conv2d", "Conv", (4, 3, 3, 3)),
          ("features.1.conv.0.0", "torch.nn.modules.conv.Conv2d", "Conv", (6, 4, 1, 1)),
          ("features.1.conv.1", "torch.nn.modules.conv.Conv2d", "Conv", (4, 6, 1, 1)),
          ("features.10.conv.1", "torch.nn.modules.conv.Conv2d", "Conv", (8, 4, 1, 1)),
          ("classifier.1", "torch.nn.modules.linear.Linear", "Gemm", (5, 8))]


def scopes(path):
    parts = path.split(".")
    return ["", *(".".join(parts[:i + 1]) for i in range(len(parts)))]


def norm_of(path):
    """The BatchNorm behind a layer, which stands beside it."""
    return f"{path.rpartition('.')[0]}.bn".lstrip(".")


def beside(node, path, kind, operation):
    """What torch.onnx.export(dynamo=True) writes into metadata_props."""
    all_scopes = scopes(path) if path else [""]
    kind = "torch.nn.modules.batchnorm.BatchNorm2d" if "batch_norm" in operation else kind
    types = ["net.Net", *["torch.nn.modules.container.Sequential"] * (len(all_scopes) - 2), kind][:len(all_scopes)]
    for key, value in {"namespace": "/".join(f"{s}: {t}" for s, t in zip(all_scopes, types)) + f"/{operation}: aten.{operation}.default",
                       "pkg.torch.onnx.class_hierarchy": str([*types, f"aten.{operation}.default"]),
                       "pkg.torch.onnx.name_scopes": str([*all_scopes, operation]), "pkg.torch.onnx.fx_node": f"%{operation} : [num_users=1]"}.items():
        node.metadata_props.add(key=key, value=value)


def legacy_name(path, op):
    """As the exporter before names nodes: an element of a list has the list's name before its own number."""
    text, own = "", ""
    for part in path.split("."):
        own = f"{own}.{part}" if part.isdigit() else part
        text += "/" + own
    return f"{text}/{op}"


def network(how):
    rng = np.random.default_rng(7)
    nodes, weights, value = [], [], "x"
    for i, (path, kind, op, shape) in enumerate(LAYERS):
        if op == "Gemm":
            if how == "legacy":
                pool = helper.make_node("GlobalAveragePool", [value], ["pooled"], name="/GlobalAveragePool")
            else:
                pool = helper.make_node("ReduceMean", [value, "axes"], ["pooled"], name="node_mean", keepdims=1)
                weights.append(numpy_helper.from_array(np.array([-1, -2], np.int64), "axes"))
            if how in ("dynamo", "folded"):
                beside(pool, "", "", "mean")
            nodes += [pool, helper.make_node("Flatten", ["pooled"], ["flat"], name="/Flatten" if how == "legacy" else "node_view")]
            value = "flat"
        weight = f"onnx::{op}_{100 + i}" if how == "legacy" else f"val_{i}" if how == "dynamo" else f"{path}.weight"
        weights.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) / 3, weight))
        out = "y" if op == "Gemm" else f"value_{i}"
        node = helper.make_node(op, [value, weight], [out], name=legacy_name(path, op) if how == "legacy" else f"node_{op}_{810 + i}",
                                **({"transB": 1} if op == "Gemm" else {"pads": [shape[2] // 2] * 4}))
        if how == "dynamo":
            beside(node, path, kind, f"conv2d_{i}" if op == "Conv" else "linear")
        elif how == "folded":
            beside(node, norm_of(path), kind, f"_native_batch_norm_legit_no_training_{i}")
        nodes.append(node)
        value = out
        if op == "Conv":
            nodes.append(helper.make_node("Relu", [value], [f"relu_{i}"], name=f"{os.path.dirname(legacy_name(path, op))}_{i}/Relu" if how == "legacy" else f"node_relu_{i}"))
            value = f"relu_{i}"
    m = made(nodes, {"x": ["n", 3, 8, 8]}, {"y": ["n", 5]}, weights, opset=18, ir_version=10)
    onnx.checker.check_model(m)
    return m


def test_names_of_torch():
    np.save(at("x.npy"), np.random.default_rng(1).normal(size=(16, 3, 8, 8)).astype(np.float32))
    answers = {}
    for how in ("dynamo", "legacy", "weights", "folded"):
        model = at(how + ".onnx")
        onnx.save(network(how), model)

        # AIMET's sample: a leaf, a group, a type, the model's input and output; positions from the end; the last layer.
        def quantize(requests, *more, status=0):
            with open(at("requests.json"), "w") as f:
                json.dump({"default": {"activation": "int8", "weight": "int8"}, "requests": requests}, f)
            return qk("quantize", model, "--plan", at("requests.json"), "--calibration", at("x.npy"), "-o", at("q.onnx"), "--overwrite", "--json", *more, status=status)

        done = quantize([{"layer": "features.1.conv.0.0", "activation": "int16", "weight": "int16"}, {"group": "features.10", "activation": "int16", "weight": "int16"},
                         {"op_type": "AvgPool2d", "activation": "int16"}, {"model_input": -1, "format": "int16"}, {"model_output": -1, "format": "int16"},
                         {"layer": -1, "weight": "int4"}, {"layer": 0, "weight": "uint8"}], "--strict")
        formats = {}
        for e in json.loads(done.stdout)["edges"]:
            who = e["module"] or {"ReduceMean": "pool", "GlobalAveragePool": "pool"}.get(e["op_type"], e["role"])
            if e["role"] in ("input", "weight", "model_output"):
                formats[f"{who} {e['role']}"] = e["quantizer"]["format"]
        answers[how] = formats
        check(formats.get("features.1.conv.0.0 weight") == "int16" and formats.get("features.1.conv.0.0 input") == "int16", f"{how}: the leaf {formats}")
        check(formats.get("features.10.conv.1 weight") == "int16", f"{how}: the group {formats}")
        check(formats.get("features.1.conv.1 weight") == "int8", f"{how}: features.10 is not in features.1, nor the reverse {formats}")
        check(formats.get("pool input") == "int16", f"{how}: what AvgPool2d became {formats}")
        check(formats.get("classifier.1 weight") == "int4", f"{how}: the last layer {formats}")
        check(formats.get("features.0.0 weight") == "uint8" and formats.get("features.0.0 input") == "int16", f"{how}: the first layer, the input {formats}")
        check("AvgPool2d" in done.stderr and "torch" in done.stderr, f"{how}: the console says what a type of torch is here")

        # The nearest names are modules as well; a group of a pattern; other positions than there are.
        near = quantize([{"layer": "features.1.conv.0.1", "activation": "int16"}], "--strict", status=2)
        check("features.1.conv.0.0" in near.stderr, f"{how}: the nearest module is offered: {near.stderr}")
        quantize([{"layer": "features.*.conv.1", "weight": "int4"}], "--strict")
        for wrong in ({"layer": 5, "weight": "int4"}, {"layer": -6, "weight": "int4"}, {"model_input": -2, "format": "int8"}, {"model_output": 1, "format": "int8"}):
            check("-1" in quantize([wrong], "--strict", status=2).stderr, f"{how}: {wrong} is explained")
        if how != "legacy":  # a GlobalAveragePool does not say how many axes an image has
            check("AvgPool3d" in quantize([{"op_type": "AvgPool3d", "activation": "int8"}], "--strict", status=2).stderr, f"{how}: no AvgPool3d")
        by_type = json.loads(quantize([{"op_type": "torch.nn.Conv2d", "weight": "int4"}, {"op_type": "Linear", "weight": "int2"}], "--strict").stdout)
        check({e["module"]: e["quantizer"]["format"] for e in by_type["edges"] if e["role"] == "weight"} ==
              {path: "int4" if op == "Conv" else "int2" for path, _, op, _ in LAYERS}, f"{how}: Conv2d and Linear")

        # Where names are shown, and where else they are taken.
        shown = qk_json("inspect", model, "--tensors")
        check([l["module"] for l in shown["layers"]] == [path for path, *_ in LAYERS], f"{how}: inspect --json {shown['layers']}")
        for words in (("inspect", model), ("inspect", model, "--tensors")):
            check(all(f"module {path}" in qk(*words).stdout for path, *_ in LAYERS), f"{how}: {' '.join(words)}")
        found = json.loads(qk("search", model, "--inputs", at("x.npy"), "--wide", "int16/int8", "--narrow", "int8/int4", "--target-l2", "1e9", "--layers",
                               "features.1,classifier.1", "--exclude", "features.1.conv.1", "--json", "--report", at("r.html"), "--overwrite").stdout)
        check(sorted(found["modules"].values()) == ["classifier.1", "features.1.conv.0.0"], f"{how}: search {found.get('modules')}")
        check("(features.1.conv.0.0)" in open(at("r.html")).read(), f"{how}: the page")
        log = qk("quantize", model, "--activation", "int8", "--weight", "int8", "--calibration", at("x.npy"), "--log", at("log.txt"), "--save-plan", at("p.json"), "--overwrite")
        check(log.returncode == 0 and ", features.1.conv.0.0)" in open(at("log.txt")).read(), f"{how}: the log")
    check(len(answers) == 4 and all(a == answers["dynamo"] for a in answers.values()), f"the same requests mean the same: {answers}")


if __name__ == "__main__":
    evidence.main()
