# SPDX-License-Identifier: Apache-2.0
"""The samples of other tools' pages and the notebook run as they stand; their configurations become what they say."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest
from conftest import ROOT

import qk

FOLDER = ROOT / "examples" / "python"


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDER.glob("*.py") if p.name != "common.py"))
def test_samples_run(name, tmp_path):
    done = subprocess.run([sys.executable, "-W", "ignore", FOLDER / name], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_the_notebook_runs(tmp_path, monkeypatch):
    cells = json.loads((FOLDER / "tour.ipynb").read_text())["cells"]
    (tmp_path / "python").mkdir()
    os.symlink(ROOT / "examples" / "digits", tmp_path / "digits")
    monkeypatch.chdir(tmp_path / "python")
    names = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        shown = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = None if shown is None else eval(compile(ast.Expression(shown.value), "cell", "eval"), names)
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().startswith("<")
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
    for wrong, key in (({"activation_type": "QInt9"}, "activation_type"), ({"include_fast_ft": True}, "include_fast_ft"),
                       ({"nonsense": 5}, "nonsense"), ({"extra_options": {"What": 1}}, "What"),
                       ({"include_auto_mp": True, "extra_options": {"AutoMixprecision": {"TargetQuantType": "QInt8", "X": 1}}}, "X")):
        with pytest.raises(qk.ConfigError, match=key):
            qk.from_quark(wrong)


def test_neural_compressor():
    config = qk.from_inc({"approach": "static", "op_type_dict": {"Conv": {"activation": {"dtype": ["uint8"], "algorithm": ["kl"]}}},
                          "op_name_dict": {"head": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}}})
    requests = config.plan.to_dict()["requests"]
    assert requests == [{"op_type": "Conv", "activation": {"format": "uint8", "method": "entropy"}}, {"layer": "head", "exclude": True}]
    with pytest.raises(qk.ConfigError, match="colour"):
        qk.from_inc({"colour": "red"})
    with pytest.raises(qk.ConfigError, match="op_type_dict.'Conv'..activation.dtype"):
        qk.from_inc({"op_type_dict": {"Conv": {"activation": {"dtype": ["int7"]}}}})


@pytest.mark.parametrize("version", ["2.0.0", "0.6.1"])
def test_aimets_encodings_go_out_and_in(model, images, tmp_path, version):
    made = qk.quantize(model, images, activation="int8", weight="int8", per_channel=True)
    qk.write_aimet(made.plan, tmp_path / "e.json", version)
    plan = qk.from_aimet(tmp_path / "e.json")
    again = qk.quantize(model, images, plan=plan)
    a = {e["tensor"]: e["quantizer"] for e in made["edges"] if e["role"] != "bias"}
    b = {e["tensor"]: e["quantizer"] for e in again["edges"] if e["role"] != "bias"}
    assert set(a) <= set(b)
    for tensor, q in a.items():
        lo = [s * (-128 - z if q["format"] == "int8" else -z) for s, z in zip(q["scale"], q.get("zero_point", [0] * len(q["scale"])))]
        p = b[tensor]
        own = [s * (-128 - z if p["format"] == "int8" else -z) for s, z in zip(p["scale"], p.get("zero_point", [0] * len(p["scale"])))]
        assert np.allclose(q["scale"], p["scale"]) and np.allclose(lo, own), tensor


def test_aimets_first_version_and_wrong_ones(tmp_path):
    with pytest.raises(qk.ConfigError, match="version"):
        qk.from_aimet({"version": "3.0"})
    plan = qk.from_aimet({"version": "0.6.1", "activation_encodings": {"x": [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False",
                                                                              "scale": 0.5, "offset": -10, "min": -5, "max": 122.5}]}})
    assert plan.to_dict()["requests"] == [{"tensor": "x", "format": {"format": "uint8", "scale": [0.5], "zero_point": [10]}}]
    with pytest.raises(qk.ConfigError, match="block_size"):
        qk.from_aimet({"version": "2.0.0", "encodings": [{"name": "w", "output_dtype": "int4", "y_scale": [[1]], "block_size": 32}]})


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
