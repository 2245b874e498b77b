# SPDX-License-Identifier: Apache-2.0
"""The samples of other tools' pages and the notebook run as they stand; their configurations become what they say."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest
from conftest import ROOT

import qk

FOLDER = ROOT / "examples" / "python"


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDER.glob("*.py") if p.name != "common.py"))
def test_samples_run(name, tmp_path):
    done = subprocess.run([sys.executable, FOLDER / name], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout, done.stderr
    assert "Remark" not in done.stderr, done.stderr  # nothing that the page's author could do anything about


def test_the_notebook_runs(tmp_path, monkeypatch):
    cells = json.loads((FOLDER / "tour.ipynb").read_text())["cells"]
    (tmp_path / "python").mkdir()
    os.symlink(ROOT / "examples" / "digits", tmp_path / "digits")
    monkeypatch.chdir(tmp_path / "python")
    names = {}
    warnings.simplefilter("error", qk.Remark)  # pytest puts the filters back
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        shown = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = None if shown is None else eval(compile(ast.Expression(shown.value), "cell", "eval"), names)
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().startswith("<")
        for output in cell["outputs"]:  # those that are kept, so that they are there before anything ran
            assert "".join(output["data"]["text/html"]) == value._repr_html_()
    assert "<svg" in "".join(next(c for c in cells if c["cell_type"] == "code")["outputs"][0]["data"]["text/html"])  # a picture comes first
    assert names["accuracy"] > 0.9 and pathlib.Path("tour.onnx").exists()


def test_quark():
    config = qk.from_quark({"activation_type": "QuantType.QInt16", "weight_type": "QInt8", "calibrate_method": "NonOverflow",
                            "extra_options": {"MixedPrecisionTensor": {"QInt8": ["a", "b"]}}})
    document = config.plan.to_dict()
    assert config.verb == "quantize" and document["default"]["weight"] == {"format": "int8", "semantics": "quark", "pow2": "non_overflow", "symmetric": True}
    assert document["requests"] == [{"tensor": ["a", "b"], "format": {"format": "int8", "semantics": "quark", "pow2": "non_overflow", "symmetric": True}}]

    older = types.SimpleNamespace(global_quant_config=types.SimpleNamespace(  # objects with attributes are read like dictionaries
        activation_type="QBFloat16", weight_type="QBFloat16", include_auto_mp=True,
        extra_options={"AutoMixprecision": {"TargetQuantType": "QBFP", "DualQuantNodes": True}}))
    document = qk.from_quark(older).plan.to_dict()
    assert document["boundary"] == "dual" and document["requests"][0]["weight"] == {"format": "bfp16", "semantics": "quark"}
    document = qk.from_quark({"op_types_to_quantize": ["Conv", "Gemm"], "nodes_to_exclude": ["head"], "extra_options": {"QuantizeBias": False}}).plan.to_dict()
    int8 = {"format": "int8", "semantics": "quark"}
    assert "default" not in document  # nothing is asked of other types
    assert document["requests"][0] == {"op_type": ["Conv", "Gemm"], "activation": {**int8, "method": "min_max"}, "weight": int8, "bias": "fp32"}
    assert document["requests"][1] == {"layer": "head", "exclude": True}
    for wrong, key in (({"activation_type": "QInt9"}, "activation_type"), ({"include_fast_ft": True}, "include_fast_ft"),
                       ({"nonsense": 5}, "nonsense"), ({"extra_options": {"What": 1}}, "What"),
                       ({"include_auto_mp": True, "extra_options": {"AutoMixprecision": {"TargetQuantType": "QInt8", "X": 1}}}, "X")):
        with pytest.raises(qk.ConfigError, match=key):
            qk.from_quark(wrong)


def test_quarks_target_as_a_layers_configuration():
    spec = types.SimpleNamespace(data_type="BFP16", symmetric=True)
    layer = types.SimpleNamespace(input_tensors=spec, weight=spec, bias=None, activation=None, output_tensors=None)
    asked = {"activation_type": "QBFloat16", "weight_type": "QBFloat16", "extra_options": {"AutoMixprecision": {"TargetLayerConfig": layer, "DualQuantNodes": True}}}
    document = qk.from_quark(asked).plan.to_dict()
    named = qk.from_quark({**asked, "extra_options": {"AutoMixprecision": {"TargetQuantType": "QBFP", "DualQuantNodes": True}}}).plan.to_dict()
    assert document == named and document["requests"][0]["input"]["format"] == "bfp16"
    with pytest.raises(qk.ConfigError, match="TargetLayerConfig.input_tensor:"):
        qk.from_quark({"extra_options": {"AutoMixprecision": {"TargetLayerConfig": {"input_tensor": spec}}}})


def test_quarks_named_configurations(model, images):
    from qk import _imports

    xint8 = qk.from_quark("XINT8")
    powers = {"semantics": "quark", "pow2": "min_mse", "symmetric": True}
    assert xint8.plan.to_dict()["default"] == {"activation": {"format": "uint8", **powers}, "weight": {"format": "int8", **powers}}
    assert xint8.verb == "quantize" and xint8.options == {}
    assert qk.from_quark("A8W8_ADAROUND").options == {"weight_rounding": "adaround"}
    assert qk.from_quark("INT8_CNN_ACCURATE").options == {"weight_rounding": "adaround"}
    mixed = qk.from_quark("BF16_MIXED_BFP16").plan.to_dict()
    assert mixed["default"]["bias"] == "fp32" and mixed["boundary"] == "dual" and mixed["placement"] == "all"
    assert mixed["requests"][0]["weight"] == {"format": "bfp16", "semantics": "quark"}
    for name in _imports._quark_named:
        made = qk.from_quark(name).run(model, images[:8])
        assert made["quantized_edges"] > 0, name
    made = {(e["consumer"], e["index"]): e["quantizer"]["format"] for e in qk.from_quark("MX9_INT8").run(model, images[:8])["edges"]}
    assert made["head", 0] == "mx9" and made["head", 1] == "int8"
    with pytest.raises(qk.ConfigError, match="did you mean 'XINT8'"):
        qk.from_quark("XINT88")
    with pytest.raises(qk.ConfigError, match="U8U8_AAWA_ADAROUND"):  # which Quark has not, either
        qk.from_quark("U8U8_AAWA_ADAROUND")


def test_quarks_names_are_what_quark_has():
    custom = pytest.importorskip("quark.onnx.quantization.config.custom_config")
    from qk import _imports

    left = {"UINT8_DYNAMIC_QUANT", "VINT8", "MATMUL_NBITS"}
    known = {*_imports._quark_named, *(f"{n}_{e}" for n, (*_, endings) in _imports._quark_named.items() for e in endings)}
    assert known == set(custom.get_default_config_mapping()) - left


def test_nncfs_ignored_scopes(model, images):
    scope = types.SimpleNamespace(names=["stem"], patterns=[r"block\d\.depth", "never"], types=["Gemm"], validate=False, subgraphs=[
        types.SimpleNamespace(inputs=["block2.depthwise"], outputs=["block2.pointwise"])])
    config = qk.from_nncf(scope, preset="mixed", subset_size=32)
    assert config.options == {"samples": 32} and config.plan.to_dict()["default"]["activation"] == {"format": "uint8"}
    requests = config.plan_for(model).to_dict()["requests"]
    excluded = {r["layer"] for r in requests if "layer" in r}
    names = [n["name"] for n in qk.load(model).inspect(tensors=True)["layer_names"]]
    assert excluded == {"stem"} | {n for n in names if n.startswith("block") and ".depth" in n} and len(excluded) > 2
    made = {e["consumer"] for e in config.run(model, images)["edges"] if e["role"] == "weight"}
    assert made and not made & (excluded | {"head", "block2.pointwise"})
    assert qk.from_nncf().plan.to_dict()["default"] == {
        "activation": {"format": "int8", "symmetric": True}, "weight": {"format": "int8", "granularity": "per_channel", "scheme": "sym"}}
    assert qk.from_nncf(model_type="transformer").plan.to_dict()["default"]["activation"] == {"format": "uint8"}
    with pytest.raises(qk.ConfigError, match="'never' is no node's name"):
        qk.from_nncf({"patterns": ["never"]}).run(model, images)
    with pytest.raises(qk.ConfigError, match="ignored_scope.layers"):
        qk.from_nncf({"layers": ["stem"]})
    with pytest.raises(qk.ConfigError, match="advanced_parameters"):
        qk.from_nncf(advanced_parameters={"x": 1})


def test_neural_compressor():
    config = qk.from_inc({"approach": "static", "op_type_dict": {"Conv": {"activation": {"dtype": ["uint8"], "algorithm": ["kl"]}}},
                          "op_name_dict": {"head": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}}})
    requests = config.plan.to_dict()["requests"]
    assert requests == [{"op_type": "Conv", "activation": {"format": "uint8", "method": "entropy"}}, {"layer": "head", "exclude": True}]
    fp32 = {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}
    patterns = qk.from_inc({"op_name_dict": {"^/layer1/.*$": fp32, r"fc\.0": fp32}}).plan.to_dict()["requests"]
    assert [r["layer"] for r in patterns] == ["/layer1/*", "fc.0"]
    with pytest.raises(qk.ConfigError, match="an entry for each"):
        qk.from_inc({"op_name_dict": {"(a|b)": fp32}})
    with pytest.raises(qk.ConfigError, match="colour"):
        qk.from_inc({"colour": "red"})
    with pytest.raises(qk.ConfigError, match="op_type_dict.'Conv'..activation.dtype"):
        qk.from_inc({"op_type_dict": {"Conv": {"activation": {"dtype": ["int7"]}}}})


@pytest.mark.parametrize("take,config,key", [
    *((qk.from_quark, {k: v}, k) for k, v in (
        ("input_nodes", ["a"]), ("output_nodes", ["b"]), ("enable_npu_cnn", True), ("convert_nchw_to_nhwc", True), ("algo_config", ["CLE"]),
        ("include_auto_mp", True))),
    (qk.from_quark, {"global_quant_config": {}, "layer_config": {"a": 1}}, "layer_config"),
    (qk.from_quark, {"extra_options": {"Wat": False}}, "Wat"),
    (qk.from_quark, {"extra_options": {"AlignConcat": True}}, "AlignConcat"),
    (qk.from_quark, {"extra_options": {"AutoMixprecision": {"TargetQuantType": "QInt8", "L2Target": 0.1, "Top1AccTarget": 0.1}}}, "L2Target"),
    (qk.from_quark, {"op_types_to_quantize": ["Conv"], "extra_options": {"AutoMixprecision": {"TargetQuantType": "QInt8", "L2Target": 0.1}}},
     "op_types_to_quantize"),
    (qk.from_quark, {"extra_options": {"AutoMixprecision": {"TargetQuantType": "QInt8", "L2Target": 0.1, "EvaluateFunction": len}}}, "EvaluateFunction"),
    (qk.from_quark, {"global_config": {}, "layer_typ_config": {"Int8": ["a"]}}, "layer_typ_config"),
    (qk.from_quark, {"global_config": {"activations": {"data_type": "Int8"}}}, "global_config.activations"),
    (qk.from_quark, {"global_config": {"weight": {"data_type": "Int8", "group_size": 32}}}, "global_config.weight.group_size"),
    (qk.from_quark, {"global_config": {"weight": {"data_type": "Int8", "scale_type": "Int16"}}}, "global_config.weight.scale_type"),
    (qk.from_quark, {"global_config": {"weight": {"data_type": "Int8", "quant_granularity": "Group"}}}, "global_config.weight.quant_granularity"),
    (qk.from_inc, {"recipes": {"fast_bias_correction": True}}, "fast_bias_correction"),
    (qk.from_inc, {"recipes": {"first_conv_or_matmul_quantization": False}}, "first_conv"),
    (qk.from_inc, {"inputs": ["x"]}, "inputs"),
    (qk.from_inc, {"accuracy_criterion": {"tolerable_los": 1}}, "accuracy_criterion.tolerable_los"),
    (qk.from_inc, {"tuning_criterion": {"max_trial": 1}}, "tuning_criterion.max_trial"),
    (lambda c: qk.from_inc(c, eval_func=len), {"tuning_criterion": {"strategy": "mse"}}, "tuning_criterion.strategy"),
    (lambda c: qk.from_inc(c, eval_func=len), {"accuracy_criterion": {"criterion": "rel"}}, "accuracy_criterion.criterion"),
    (qk.from_inc, {"op_type_dict": {"Conv": {"activation": {"granularity": ["per_channel"]}}}}, "activation.granularity"),
    (qk.from_inc, {"op_type_dict": {"Conv": {"weight": {"algorithm": ["kl"]}}}}, "weight.algorithm"),
    (qk.from_aimet, {"version": "2.0.0"}, "encodings"),
    (qk.from_aimet, {"version": "2.0.0", "encodings": [{"name": "a", "output_dtype": "int8"}]}, "a: y_scale"),
    (qk.from_aimet, {"version": "2.0.0", "encodings": [{"name": "a", "output_dtype": "int8", "y_scale": [1, 2]}]}, "a: axis"),
    (qk.from_aimet, {"version": "2.0.0", "encodings": [{"name": "a", "output_dtype": "int8", "y_scale": 1, "foo": 2}]}, "a: foo"),
    (qk.from_aimet, {"version": "0.6.1", "weights": {"a": 1}}, "weights"),
    (qk.from_aimet, {"version": "0.6.1", "param_encodings": {"a": [{"bitwidth": 8, "scale": 1}]}}, "a: offset"),
    (qk.from_aimet, {"version": "0.6.1", "param_encodings": {"a": [{"bitwidth": 8, "scale": 1, "offset": 0, "y": 1}]}}, "a: y"),
    (qk.from_aimet, {"version": "0.6.1", "param_encodings": {"a": [{"bitwidth": b, "scale": 1, "offset": 0} for b in (8, 4)]}}, "a: bitwidth"),
])
def test_what_cannot_be_taken_names_the_key(take, config, key):
    with pytest.raises(qk.ConfigError, match=key.replace(".", r"\.").replace("[", r"\[")):
        take(config)


@pytest.mark.parametrize("take,wrong", [*((t, w) for t in (qk.from_quark, qk.from_inc) for w in (None, 5, [])), (qk.from_inc, "XINT8"), (qk.from_nncf, 5), (qk.from_nncf, "stem")])
def test_what_is_no_configuration(take, wrong):
    with pytest.raises(TypeError, match="a configuration is"):
        take(wrong)


def test_keys_that_change_the_search():
    """With a target, the keys of calibration reach qk.search, as without one they reach the plan."""
    asked = qk.from_quark({"activation_type": "QInt16", "weight_type": "QInt8", "calibrate_method": "Percentile", "extra_options": {
        "AutoMixprecision": {"TargetQuantType": "QInt8", "L2Target": 0.5, "DualQuantNodes": True}, "Percentile": 99.9,
        "ActivationSymmetric": True, "WeightSymmetric": False}})
    assert asked.verb == "search" and {k: asked.options[k] for k in ("percentile", "symmetric", "asymmetric_weights", "dual", "calibration_method")} == {
        "percentile": 99.9, "symmetric": True, "asymmetric_weights": True, "dual": True, "calibration_method": "percentile"}
    plain = qk.from_quark({"weights_only": True, "extra_options": {"QuantizeBias": False}}).plan.to_dict()
    assert "activation" not in plain["default"] and plain["default"]["bias"] == "fp32"
    asked = qk.from_inc({"recipes": {"smooth_quant": True, "smooth_quant_args": {"alpha": 0.6}}, "calibration_sampling_size": [20]})
    assert asked.options == {"smooth_quant": 0.6, "samples": 20}


def test_aimets_encodings_are_those_of_the_command(model, images, tmp_path):
    """Version 1.0.0 is what `qk quantize --encodings` writes; weights are parameters in each version, and a second operand is none."""
    made = qk.quantize(model, images, activation="int8", weight="int8", per_channel=True, encodings=tmp_path / "e.json")
    theirs, ours = json.loads((tmp_path / "e.json").read_text()), qk.to_aimet(made.plan, "1.0.0")
    assert theirs == ours
    parameters = {e["name"] for e in theirs["param_encodings"]}
    assert set(qk.to_aimet(made.plan, "0.6.1")["param_encodings"]) == parameters and parameters
    plan = qk.from_aimet(ours)
    plan["stem"].weight = "int16"
    again = qk.quantize(model, images, plan=plan)
    formats = {(e["consumer"], e["index"]): e["quantizer"]["format"] for e in again["edges"]}
    assert formats["stem", 1] == "int16" and formats["head", 1] == "int8"


def test_an_encodings_axis_is_kept():
    """A square weight has scales along the axis that version 2.0.0 names, whichever a product would have chosen."""
    from evidence import graphs
    from onnx import helper

    w = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    model = graphs.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"x": ["n", 4]}, {"y": ["n", 4]}, {"w": w}, opset=21)
    scale = [0.5, 1.0, 2.0, 4.0]
    for axis in (0, 1):
        entry = {"name": "w", "output_dtype": "int8", "y_scale": scale, "axis": axis}
        plan = qk.from_aimet({"version": "2.0.0", "encodings": [entry]})
        assert qk.to_aimet(plan, "2.0.0")["encodings"] == [entry]
        x = np.eye(4, dtype=np.float32)
        assert np.array_equal(qk.evaluate(model, x, plan=plan, outputs=True).outputs["y"], qk.fake_quantize(w, "int8", scale=scale, scale_axis=axis))


@pytest.mark.parametrize("version", ["2.0.0", "1.0.0", "0.6.1"])
def test_aimets_blocks_are_not_written_without_the_model(version):
    """Version 1.0.0 has the blocks of matrices channel by channel, which a plan does not tell."""
    plan = qk.Plan({"qk": "plan", "version": 1, "tensors": {"w": {"format": "int4", "axis": 0, "block_size": 32, "scale": [1.0, 2.0]}}, "edges": []})
    with pytest.raises(qk.ConfigError, match="w: int4 has no encoding .* of blocks"):
        qk.to_aimet(plan, version)


@pytest.mark.parametrize("weight", ["int8", "int4"])
@pytest.mark.parametrize("version", ["2.0.0", "0.6.1"])
def test_aimets_encodings_go_out_and_in(model, images, tmp_path, version, weight):
    """What is read has the scales and ranges of what was written; some channels of int4 weights have a zero point, others none."""
    made = qk.quantize(model, images, activation="int8", weight=weight, per_channel=True)
    qk.write_aimet(made.plan, tmp_path / "e.json", version)
    plan = qk.from_aimet(tmp_path / "e.json")
    again = qk.quantize(model, images, plan=plan)
    assert not [r for r in again.remarks if "has no effect" in r]
    a = {e["tensor"]: e["quantizer"] for e in made["edges"] if e["role"] != "bias"}
    b = {e["tensor"]: e["quantizer"] for e in again["edges"] if e["role"] != "bias"}
    assert set(a) <= set(b)

    def lowest(q):
        name = q["format"].partition(":")[0]
        code = -(1 << int(name[3:]) - 1) if name.startswith("int") else 0
        return [s * (code - z) for s, z in zip(q["scale"], q.get("zero_point", [0] * len(q["scale"])))]

    for tensor, q in a.items():
        assert np.allclose(q["scale"], b[tensor]["scale"]) and np.allclose(lowest(q), lowest(b[tensor])), tensor


def test_aimets_first_version_and_wrong_ones(tmp_path):
    with pytest.raises(qk.ConfigError, match="version"):
        qk.from_aimet({"version": "3.0"})
    plan = qk.from_aimet({"version": "0.6.1", "activation_encodings": {"x": [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False",
                                                                              "scale": 0.5, "offset": -10, "min": -5, "max": 122.5}]}})
    assert plan.to_dict()["requests"] == [{"tensor": "x", "format": {"format": "uint8", "scale": [0.5], "zero_point": [10]}}]
    with pytest.raises(qk.ConfigError, match="output_dtype"):
        qk.from_aimet({"version": "2.0.0", "encodings": [{"name": "w", "output_dtype": "float7", "y_scale": 1}]})


def test_aimets_blocks_are_read_with_the_model(tmp_path):
    from evidence import graphs

    onnx = pytest.importorskip("onnx")
    w = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = graphs.model([node], {"x": [2, 64]}, {"y": [2, 8]}, {"w": w}, opset=21)
    channels, blocks = np.linspace(0.01, 0.02, 8), np.arange(1, 17).reshape(2, 8)
    file = {"version": "2.0.0", "encodings": [{"name": "w", "output_dtype": "int4", "axis": 0, "block_size": 32,
                                               "per_channel_float_scale": channels.reshape(1, 8).tolist(), "per_block_int_scale": blocks.tolist()}]}
    made = qk.quantize(model, plan=qk.from_aimet(file), encodings=tmp_path / "e.json", encodings_version="2.0.0")
    assert made["edges"][0]["quantizer"]["format"].startswith("int4")
    again = json.loads((tmp_path / "e.json").read_text())["encodings"][0]
    product = np.float32(again["per_channel_float_scale"]) * np.float32(again["per_block_int_scale"])
    assert again["axis"] == 0 and again["block_size"] == 32 and np.array_equal(product, np.float32(channels) * np.float32(blocks))


def test_quarks_newer_configuration(model, images):
    class Int16:  # data types are classes there
        pass

    spec = lambda **more: types.SimpleNamespace(symmetric=True, scale_type="ScaleType.Float32", calibration_method="CalibMethod.Percentile",  # noqa: E731
                                                quant_granularity="QuantGranularity.Channel", **more)
    config = types.SimpleNamespace(global_config=types.SimpleNamespace(activation=spec(data_type="Int8"), weight=spec(data_type="Int8")),
                                   specific_layer_config={Int16: ["head"]}, layer_type_config={None: ["GlobalAveragePool"]}, exclude=["stem"],
                                   algo_config=[], extra_options={})
    document = qk.from_quark(config).plan.to_dict()
    assert document["default"] == {"activation": {"format": "int8", "semantics": "quark", "symmetric": True, "method": "percentile"},
                                   "weight": {"format": "int8", "semantics": "quark", "symmetric": True, "per_channel": True}}
    assert document["requests"][1:] == [{"op_type": ["GlobalAveragePool"], "exclude": True}, {"layer": "stem", "exclude": True}]
    made = {(e["consumer"], e["index"]): e["quantizer"]["format"] for e in qk.from_quark(config).run(model, images)["edges"]}
    assert made["head", 1] == "int16" and ("stem", 1) not in made
    config.algo_config = ["CLE"]
    with pytest.raises(qk.ConfigError, match="algo_config"):
        qk.from_quark(config)


def test_quarks_own_objects(model, images):
    quark = pytest.importorskip("quark.onnx.quantization.config.config")
    specs = pytest.importorskip("quark.onnx.quantization.config.spec")
    config = quark.QConfig(specs.QLayerConfig(activation=specs.BFP16Spec(), weight=specs.BFloat16Spec()))
    made = qk.from_quark(config).run(model, images)
    assert {e["quantizer"]["format"] for e in made["edges"] if e["role"] == "weight"} == {"bf16"}
