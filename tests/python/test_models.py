# SPDX-License-Identifier: Apache-2.0
"""Models: every verb's result equals its --json; data and models in every form; metrics of one's own; errors, Ctrl-C, plans."""

import html
import json
import os
import pickle
import re
import shlex
import signal
import threading
import time
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from evidence import graphs

import qk

TIMES = ("seconds", "peak_bytes", "model", "output", "forward_seconds", "backward_seconds", "items_per_second")


def without_times(answer):
    """Leaves out what differs from run to run, and the names of files."""
    if isinstance(answer, dict):
        return {k: without_times(v) for k, v in answer.items() if k not in TIMES}
    return [without_times(v) for v in answer] if isinstance(answer, list) else answer


@pytest.fixture(scope="session")
def data_file(tmp_path_factory, images):
    file = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(file, images)
    return file


@pytest.fixture(scope="session")
def label_file(tmp_path_factory, labels):
    file = tmp_path_factory.mktemp("data") / "y.npy"
    np.save(file, labels)
    return file


def test_inspect(command, model):
    assert without_times(qk.inspect(model, tensors=True)) == without_times(command("inspect", model, "--tensors", "--json"))


def test_quantize(command, model, images, data_file, tmp_path):
    theirs = command("quantize", model, "--inputs", data_file, "--activation", "int8", "--weight", "int8", "--per-channel", "--json", "-o",
                     tmp_path / "q.onnx", "--save-plan", tmp_path / "p.json")
    ours = qk.quantize(model, images, activation="int8", weight="int8", per_channel=True)
    assert without_times(ours.to_dict()) == without_times(theirs)
    assert ours.model.bytes == (tmp_path / "q.onnx").read_bytes()
    assert ours.plan.to_dict() == json.loads((tmp_path / "p.json").read_text())
    ours.save(tmp_path / "own.onnx", export="qdq")
    command("quantize", model, "--inputs", data_file, "--activation", "int8", "--weight", "int8", "--per-channel", "--export", "qdq", "-o",
            tmp_path / "qdq.onnx")
    assert (tmp_path / "own.onnx").read_bytes() == (tmp_path / "qdq.onnx").read_bytes()
    ours.report(tmp_path / "r.html")
    assert "<html" in (tmp_path / "r.html").read_text()
    assert "<table" in ours._repr_html_() and ours.metric == theirs["measured"]["sqnr"]


def test_quantize_verifies(model, images, tmp_path, monkeypatch):
    """A file that its runtime does not compute is not made: here one that onnxruntime has no kernel for."""
    import sys

    monkeypatch.setenv("QK_PYTHON", sys.executable)
    ours = qk.quantize(model, images, activation="int8", weight="int8", verify="onnxruntime")
    assert ours.status == 0 and ours.model is not None
    assert not ours["verified"]["departs"] and abs(ours["verified"]["sqnr"] - ours["verified"]["of_qk"]) < 1
    file = tmp_path / "q.onnx"
    file.write_text("before")
    ours = qk.quantize(model, images, activation="mxfp4", weight="mxfp4", export="qdq", verify="onnxruntime", output=file, overwrite=True)
    assert ours.status == 1 and ours["verified"]["departs"] and ours.model is None and file.read_text() == "before"
    with pytest.raises(ValueError, match="does not compute what qk does"):
        ours.save(tmp_path / "other.onnx")
    monkeypatch.setenv("QK_PYTHON", "/nonexistent/python")
    with pytest.raises(qk.Error, match="no python with openvino"):
        qk.quantize(model, images, activation="int8", weight="int8", verify="openvino")


def test_a_model_as_a_message(model, images):
    assert qk.load(model).proto == onnx.load(model)
    for types in (["Gemm"], ["Conv"]):
        graph = qk.from_quark({"global_quant_config": {"activation_type": "QInt8", "weight_type": "QInt8", "op_types_to_quantize": types}}).run(model, images).model.proto.graph
        makers = {o: n.op_type for n in graph.node for o in n.output}
        quantized = {n.op_type for n in graph.node if n.op_type in ("Conv", "Gemm") and makers.get(n.input[1]) == "DequantizeLinear"}
        assert quantized == set(types)


def test_evaluate(command, model, images, labels, data_file, label_file):
    words = ["evaluate", model, "--inputs", data_file, "--labels", label_file, "--activation", "mxfp8_e4m3", "--weight", "mxfp4", "--json"]
    ours = qk.evaluate(model, images, labels=labels, activation="mxfp8_e4m3", weight="mxfp4", outputs=True)
    assert ours.metric == ours["top1"]
    assert without_times(ours.to_dict()) == without_times(command(*words))
    assert ours.outputs["logits"].shape == (len(images), 10)
    float_outputs = qk.load(model)(images)["logits"]
    session = onnxruntime.InferenceSession(os.fspath(model))
    assert np.allclose(float_outputs, session.run(None, {"image": images})[0], atol=1e-3)
    agreed = qk.evaluate(model, images, compare={"logits": float_outputs})
    assert agreed.status == 0 and agreed["compare"]["logits"]["max_abs"] == 0


def test_diff(command, model, images, data_file, tmp_path, monkeypatch):
    """A model beside a runtime, beside a folder and beside arrays by name, of which one is changed."""
    import sys

    monkeypatch.setenv("QK_PYTHON", sys.executable)
    told = qk.diff(model, "onnxruntime", images[:4])
    assert told.status == 0 and told["agree"] and len(told["sides"]) == 2
    assert told.to_dict() == command("diff", model, "--against", "onnxruntime", "--inputs", data_file, "--samples", 4, "--json")
    qk.evaluate(model, images[:4], dump=tmp_path / "tensors")
    assert qk.diff(model, tmp_path / "tensors", images[:4])["agree"]
    index = json.loads((tmp_path / "tensors" / "index.json").read_text())["tensors"]
    arrays = {t["name"]: np.load(tmp_path / "tensors" / t["file"]) for t in index}
    assert qk.diff(model, arrays, images[:4])["agree"]
    changed = next(t["name"] for t in index if t.get("operator") == "Conv")
    arrays[changed] = arrays[changed] * np.float32(1.01)
    told = qk.diff(model, arrays, images[:4])
    assert told.status == 1 and told["sides"][0]["first"] == changed
    assert "scale" in next(t["rule"] for t in told["sides"][0]["tensors"] if t["name"] == changed)
    assert qk.diff(model, qk.load(model), images[:4])["agree"]


def test_calibrate(command, model, images, data_file, tmp_path):
    theirs = command("calibrate", model, "--inputs", data_file, "--method", "all", "--json", "-o", tmp_path / "c.json")
    ours = qk.calibrate(model, images, method="all")
    assert without_times(ours.to_dict()) == without_times(theirs)
    assert ours.statistics == (tmp_path / "c.json").read_bytes()
    by_statistics = qk.quantize(model, activation="int8", weight="int8", calibration=ours)
    command("quantize", model, "--calibration", tmp_path / "c.json", "--activation", "int8", "--weight", "int8", "-o", tmp_path / "q.onnx")
    assert by_statistics.model.bytes == (tmp_path / "q.onnx").read_bytes()


def test_sensitivity(command, model, images, data_file):
    theirs = command("sensitivity", model, "--inputs", data_file, "--narrow", "int8/int8,int8/int4", "--json")
    ours = qk.sensitivity(model, images, narrow=["int8/int8", "int8/int4"])
    assert without_times(ours.to_dict()) == without_times(theirs)
    assert ours.rows and all(r["part"] == "layer" for r in ours.layers)


def test_search(command, model, images, labels, data_file, label_file, tmp_path):
    asked = ("search", model, "--inputs", data_file, "--labels", label_file, "--narrow", "int8/int4", "--target-top1-drop", "0.02", "--json")
    theirs = command(*asked, "--save-plan", tmp_path / "p.json")
    ours = qk.search(model, images, labels=labels, narrow="int8/int4", target_top1_drop=0.02)
    assert without_times(ours.to_dict()) == without_times(theirs)
    command(*asked, "-o", tmp_path / "q.onnx")
    assert ours.model.bytes == (tmp_path / "q.onnx").read_bytes()
    assert ours["plan"] == theirs["plan"] and ours.plan.is_saved
    assert ours.metric == theirs["metric"] and ours.choice == theirs["layers"]
    assert "<svg" in ours._repr_html_() or len(ours.front) < 2
    ours.report(tmp_path / "r.html")
    assert "<html" in (tmp_path / "r.html").read_text()
    session = onnxruntime.InferenceSession(ours.model.bytes)
    assert np.mean(session.run(None, {"image": images})[0].argmax(1) == labels) >= ours["float_metric"] - 0.02 - 1 / len(labels)


def test_gradient(command, model, images, labels, data_file, label_file, tmp_path):
    theirs = command("gradient", model, "--inputs", data_file, "--labels", label_file, "-o", tmp_path / "g.npz", "--json")
    ours = qk.gradient(model, images, labels=labels)
    assert without_times(ours.to_dict()) == without_times(theirs)
    with np.load(tmp_path / "g.npz") as expected:
        assert set(expected) == set(ours.gradients)
        assert all(np.array_equal(expected[n], ours.gradients[n]) for n in expected)


def test_finetune(command, model, images, labels, data_file, label_file, tmp_path):
    theirs = command("finetune", model, "--inputs", data_file, "--labels", label_file, "--activation", "int8", "--weight", "int4",
                     "--epochs", "2", "-o", tmp_path / "f.onnx", "--save-plan", tmp_path / "p.json", "--json")
    ours = qk.finetune(model, images, labels=labels, activation="int8", weight="int4", epochs=2)
    assert without_times(ours.to_dict()) == without_times(theirs)
    assert ours.model.bytes == (tmp_path / "f.onnx").read_bytes()


def test_explain(command, model, images, data_file):
    words = ["explain", model, "stem.weight", "--inputs", data_file, "--activation", "int8", "--weight", "int8", "--json"]
    ours = qk.explain(model, "stem.weight", images, activation="int8", weight="int8")
    named = qk.explain(model, "stem.weight", inputs=images, activation="int8", weight="int8")
    assert named.to_dict() == ours.to_dict()
    assert without_times(ours.to_dict()) == without_times(command(*words))


def test_recover(command, model, images, tmp_path):
    quantized = qk.quantize(model, images, activation="int8", weight="int8")
    again = qk.recover(quantized.model)
    command_input = tmp_path / "q.onnx"
    quantized.save(command_input)
    command("inspect", command_input, "--save-plan", tmp_path / "p.json", "--save-float", tmp_path / "f.onnx")
    assert again.plan.to_dict() == json.loads((tmp_path / "p.json").read_text())
    assert again.model.bytes == (tmp_path / "f.onnx").read_bytes()


def test_compare_vectors_dot_devices(command, tmp_path, images):
    x = images.reshape(len(images), -1)
    np.save(tmp_path / "x.npy", x)
    wrong = qk.fake_quantize(x, "mxfp8_e4m3", rounding="half-away")
    wrong[3, 5] += 1
    np.save(tmp_path / "d.npy", wrong)
    assert qk.compare(x, wrong, "mxfp8_e4m3") == command("compare", tmp_path / "x.npy", tmp_path / "d.npy", "--format", "mxfp8_e4m3", "--json")
    compared = qk.compare(x, wrong, "mxfp8_e4m3")
    assert str(compared) == compared.text.rstrip("\n") and "1 of 4096 values differs" in compared.text
    assert compared.text.endswith("different scales\n") and compared["mismatches"] > 0
    made = qk.vectors("fp8_e4m3fn")
    assert np.array_equal(qk.fake_quantize(made["input"], "fp8_e4m3fn"), made["expected"], equal_nan=True)
    device = "nvidia.hopper.wgmma.f32.e4m3.e4m3"
    a, b = x[:8, :32], x[8:40, :16]
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    command("dot", tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "o.npy", "--device", device)
    assert np.array_equal(qk.dot(a, b, device=device), np.load(tmp_path / "o.npy"))
    assert qk.devices() == command("formats", "--devices", "--json")["devices"]
    assert all("hopper" in d["name"] for d in qk.devices("hopper"))


def test_find_accumulator_of_a_function():
    asked = []

    def values(codes):
        return (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)

    def one_by_one(a, b, c):
        asked.append(a.dtype)
        total = c.view(np.float32)
        with np.errstate(all="ignore"):
            for k in range(a.shape[1]):
                total = total + values(a)[:, k:k + 1] * values(b)[k:k + 1, :]
        return total

    found = qk.find_accumulator(one_by_one, "fp8_e5m2", "fp8_e5m2", k=8, questions=2000)
    assert found["complete"] and found["accumulator"].startswith("sum=sequential"), str(found)
    assert asked[0] == np.uint8 and f"{found['questions']} answers, and this accumulator gives every one" in str(found)
    expected = qk.find_accumulator(one_by_one, "fp8_e5m2", "fp8_e5m2", k=8, questions=2000, accumulator="sum=exact")
    assert expected["as_expected"] is False and "expected: sum=exact" in expected.text

    def product(a, b):
        with np.errstate(all="ignore"):
            return values(a)[:, :1] * values(b)[:1]

    assert qk.find_accumulator(product, "fp8_e5m2", "fp8_e5m2", c_format="none", k=1, questions=1000)["complete"]

    def broken(a, b, c):
        raise RuntimeError("no device")

    with pytest.raises(RuntimeError, match="no device"):
        qk.find_accumulator(broken, "fp8_e5m2", "fp8_e5m2")
    with pytest.raises(TypeError, match="float64"):
        qk.find_accumulator(lambda a, b, c: np.zeros(c.shape), "fp8_e5m2", "fp8_e5m2")
    with pytest.raises(qk.Error, match="shape|elements"):
        qk.find_accumulator(lambda a, b, c: np.zeros((1, 3), np.float32), "fp8_e5m2", "fp8_e5m2")
    with pytest.raises(TypeError, match="function of a, b and c"):
        qk.find_accumulator("./device", "fp8_e5m2", "fp8_e5m2")


def test_models_and_data_in_every_form(model, images, labels):
    expected = qk.quantize(model, images, activation="int8", weight="int8").model.bytes
    proto = onnx.load(model)
    for m in (os.fspath(model), model.read_bytes(), proto, qk.load(model)):
        assert qk.quantize(m, images, activation="int8", weight="int8").model.bytes == expected

    class Reader:
        def __init__(self):
            self.rest = None

        def get_next(self):
            if self.rest is None:
                self.rest = iter(np.split(images, 8))
            batch = next(self.rest, None)
            return None if batch is None else {"image": batch}

    class Loader:
        def __iter__(self):
            return iter([(images[i : i + 16], labels[i : i + 16]) for i in range(0, 64, 16)])

    for data in ({"image": images}, np.split(images, 4), [{"image": b} for b in np.split(images, 4)], iter(np.split(images, 2)),
                 (b for b in np.split(images, 8)), Reader(), Loader(), images.tolist(), images.astype(np.float32)[::1]):
        assert qk.quantize(model, data, activation="int8", weight="int8").model.bytes == expected, type(data)
    assert qk.evaluate(model, Loader())["top1"] == qk.evaluate(model, images, labels=labels)["top1"]


def test_a_model_with_external_data_is_saved_whole(model, images, tmp_path):
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "to").mkdir()
    onnx.save(onnx.load(model), tmp_path / "from" / "m.onnx", save_as_external_data=True, location="deep/weights.bin", size_threshold=0)
    own = qk.load(tmp_path / "from" / "m.onnx")
    own.save(tmp_path / "to" / "n.onnx")
    own.save(tmp_path / "from" / "m.onnx")  # onto itself
    expected = own(images)
    for file in ("to/n.onnx", "from/m.onnx"):
        assert {n: v.tobytes() for n, v in qk.load(tmp_path / file)(images).items()} == {n: v.tobytes() for n, v in expected.items()}


def test_results_come_from_memory(command, model, images, labels, label_file, monkeypatch):
    """No verb but search, whose cache is a file, makes a folder; what comes back is what files would hold."""
    def made(*_, **__):
        raise AssertionError("a folder was made")

    assert qk.load(model).layers
    monkeypatch.setattr(qk._data.tempfile, "mkdtemp", made)
    x, given = images[:8], {"activation": "int8", "weight": "int8"}
    quantized = qk.quantize(model, x, per_channel=True, **given)
    assert qk.evaluate(model, x, plan=None, outputs=True).outputs["logits"].shape == (8, 10)
    assert qk.evaluate(quantized.model, x, labels=labels[:8], compare={"logits": qk.load(model)(x)["logits"]}, tolerance=10).status == 0
    assert qk.calibrate(model, x).statistics.startswith(b"{")
    assert qk.gradient(model, x, labels=labels[:8]).gradients["image"].shape == x.shape
    learned = qk.finetune(model, x, epochs=1, batch=4, **given)
    assert learned.plan.is_saved and qk.load(learned.model.bytes).layers
    again = qk.recover(quantized.model)
    assert again.plan.is_saved and again.model.layers == qk.load(model).layers
    assert qk.sensitivity(model, x, narrow="int8/int4").rows
    assert qk.quantize(again.model, plan=None, **given, calibration=x).model.bytes


def test_what_is_pickled_comes_back(model, images, tmp_path):
    made = qk.quantize(model, images[:8], activation="int8", weight="int8")
    again = pickle.loads(pickle.dumps(made))
    assert again.to_dict() == made.to_dict() and again.plan == made.plan and again.model.bytes == made.model.bytes
    again.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == made.model.bytes and "quantizers" in repr(again.plan) and " 0 quantizers" not in repr(again.plan)
    with pytest.raises(ValueError, match="pickled"):
        again.save(tmp_path / "m.onnx", export="qdq")
    assert pickle.loads(pickle.dumps(qk.load(model))).layers == qk.load(model).layers


def two_names():
    """Returns a model whose outputs have names that no file can have: one is its input."""
    from onnx import TensorProto, helper

    shape = ["n", 4]
    nodes = [helper.make_node("Identity", ["x"], ["same/as:x"]), helper.make_node("Relu", ["x"], ["a/b"]),
             helper.make_node("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16)]
    outputs = [("same/as:x", TensorProto.FLOAT), ("a/b", TensorProto.FLOAT), ("half", TensorProto.BFLOAT16)]
    return graphs.model(nodes, {"x": shape}, [(n, t, shape) for n, t in outputs])


def test_outputs_are_the_callers_own():
    x = np.array([[1, -2, 3, -4], [0.1, -0.2, 0.3, -0.4]], np.float32)
    before = x.copy()
    outputs = qk.load(two_names())(x)
    assert list(outputs) == sorted(outputs) and set(outputs) == {"same/as:x", "a/b", "half"}
    assert np.array_equal(outputs["a/b"], np.maximum(x, 0)) and outputs["half"].dtype == np.float32
    for array in outputs.values():
        array[...] = 7
    assert np.array_equal(x, before)
    told = qk.evaluate(two_names(), x, compare={"a/b": np.maximum(x, 0) + np.float32(0.5)})
    assert told.status == 1 and told["compare"]["a/b"]["max_abs"] == pytest.approx(0.5) and set(told["compare"]) == {"a/b"}
    for wrong, error, words in (({"b": x}, qk.Error, "no output 'b'.*a/b"), ({"a/b": x[:1]}, qk.Error, r"a/b' has shape"), ({}, ValueError, "empty"),
                                ({"a/b": "file.npy"}, TypeError, "array")):
        with pytest.raises(error, match=words):
            qk.evaluate(two_names(), x, compare=wrong)


def test_arrays_go_as_they_lie(model, images, labels, monkeypatch):
    expected = qk.gradient(model, images, labels=labels).gradients

    def written(*_):
        raise AssertionError("an array was written to a file")

    monkeypatch.setattr(qk._data, "_save", written)
    unaligned = np.frombuffer(b"\0" + images.tobytes(), np.uint8)[1:].view(np.float32).reshape(images.shape)
    read_only = images.copy()
    read_only.flags.writeable = False
    memory = np.empty_like(images[:16])

    def same_memory():
        for i in range(0, len(images), 16):
            memory[...] = images[i : i + 16]
            yield memory

    for data in (np.asfortranarray(images), images.astype(">f4"), np.repeat(images, 2, axis=0)[::2], unaligned, read_only, same_memory()):
        for classes in (labels, labels.astype(">i4"), np.repeat(labels, 2)[::2].tolist()):
            if data is not read_only and classes is not labels:
                continue
            own = qk.gradient(model.read_bytes(), data, labels=classes).gradients
            assert all(np.array_equal(own[name], expected[name]) for name in expected), type(data)
    with pytest.raises(TypeError, match="longdouble|float128"):
        qk.evaluate(model, images.astype(np.longdouble))


def test_ctrl_c_ends_what_has_no_best(model, images):
    many = np.concatenate([images] * 40)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as ended:
        qk.sensitivity(model, many, narrow=["int8/int4", "mxfp4/mxfp4", "int4/int4"], threads=1)
    assert not isinstance(ended.value, qk.Interrupted)


def test_a_metric_of_ones_own(model, images, labels):
    built_in = qk.search(model, images, narrow="int8/int4", metric="mse", target_mse=0.05, recipe="fast")

    def mse(outputs, reference, given):
        assert isinstance(outputs, list) and outputs[0].shape == (len(images), 10) and np.array_equal(given, labels)
        y, r = outputs[0].astype(np.float64), reference[0].astype(np.float64)
        return float(np.mean((y - r) ** 2))

    own = qk.search(model, images, labels=labels, narrow="int8/int4", metric=mse, target_metric=0.05, recipe="fast")
    assert own["layers"] == built_in["layers"] and own.metric == pytest.approx(built_in.metric, rel=1e-5)

    def accuracy(outputs):
        return float(np.mean(outputs[0].argmax(1) == labels))

    own = qk.search(model, images, narrow="int8/int4", metric=accuracy, higher_is_better=True, target_drop=0.02)
    theirs = qk.search(model, images, labels=labels, narrow="int8/int4", metric="top1", target_drop=0.02)
    assert own.metric == theirs.metric and own.target_met


def test_a_metric_of_ones_own_sees_what_the_built_in_sees(model, images):
    """The same measure finds the same mix, on as many runs of the network; the reference is the float outputs that calibration saw."""
    mse = lambda outputs, reference, labels: float(np.mean(np.square(outputs[0].astype(np.float64) - reference[0])))  # noqa: E731
    options = dict(narrow="int8/int4", recipe="fast", target_metric=0.05, ranking="measured", threads=1)
    theirs, ours = (qk.search(model, images, metric=metric, **options) for metric in ("mse", mse))
    assert ours["layers"] == theirs["layers"] and np.isclose(ours.metric, theirs.metric, rtol=1e-6)
    assert ours["layer_evaluations"] < theirs["layer_evaluations"] + 3 * len(theirs["layers"])
    seen = []
    qk.sensitivity(model, images, narrow="int8/int4", metric=lambda outputs, reference, labels: seen.append(reference[0].copy()) or 0.0)
    assert all(np.array_equal(r, qk.load(model)(images)[qk.load(model).outputs[0]]) for r in seen)


def test_an_evaluation_of_the_model(model, images, labels):
    def accuracy_of(model_bytes):
        session = onnxruntime.InferenceSession(model_bytes)
        return float(np.mean(session.run(None, {"image": images})[0].argmax(1) == labels))

    found = qk.search(model, images, narrow="int8/int4", eval_func=accuracy_of, higher_is_better=True, target_drop=0.03, max_trials=6)
    assert found.target_met and accuracy_of(found.model.bytes) == found.metric
    seen = []

    def by_path(path):
        seen.append(os.path.exists(path))
        with open(path, "rb") as file:
            return accuracy_of(file.read())

    rows = qk.sensitivity(model, images[:8], eval_func=by_path, eval_func_path=True, higher_is_better=True, layers=["stem"])
    assert all(seen) and len(seen) >= 2 and rows.rows


def test_an_error_of_the_metric_is_the_callers_own(model, images):
    class Own(Exception):
        pass

    def fails(outputs):
        raise Own("no")

    with pytest.raises(Own, match="no"):
        qk.search(model, images, metric=fails, target_metric=1)
    with pytest.raises(TypeError):
        qk.search(model, images, metric=lambda outputs: "much", target_metric=1)
    with pytest.raises(TypeError, match="outputs alone"):
        qk.search(model, images, metric=lambda a, b: 0.0, target_metric=1)


@pytest.mark.parametrize("call,error,words", [
    (lambda m, x: qk.quantize(m, x), qk.Error, "activation"),
    (lambda m, x: qk.quantize(m, x, activaton="int8"), TypeError, "did you mean 'activation'"),
    (lambda m, x: qk.quantize(m, x, activation="int9"), qk.Error, "int9"),
    (lambda m, x: qk.quantize(m, x[:, :, :4], activation="int8", weight="int8"), qk.Error, "image"),
    (lambda m, x: qk.quantize(m, iter([]), activation="int8"), ValueError, "no batch"),
    (lambda m, x: qk.quantize(m, object(), activation="int8"), TypeError, "object"),
    (lambda m, x: qk.quantize(m, {"picture": x}, activation="int8", weight="int8"), qk.Error, "picture"),
    (lambda m, x: qk.evaluate(m, x, labels=[0.5] * 64), qk.Error, "label 0.5 at index 0"),
    (lambda m, x: qk.search(m), TypeError, "data"),
    (lambda m, x: qk.search(m, x, metric="l3"), qk.Error, "l3"),
    (lambda m, x: qk.search(m, x, metric=lambda y: 0.0, eval_func=lambda b: 0.0), TypeError, "not both"),
    (lambda m, x: qk.load(b"nonsense"), qk.Error, "model"),
    (lambda m, x: qk.load("missing.onnx"), FileNotFoundError, "missing.onnx"),
    (lambda m, x: qk.load(5), TypeError, "int"),
    (lambda m, x: qk.explain(m, "nowhere", x, activation="int8"), qk.Error, "nowhere"),
    (lambda m, x: qk.explain(m, None, x), TypeError, "tensor is None"),
    (lambda m, x: qk.explain(m, "stem.weight", x, inputs=x), TypeError, "data twice"),
    (lambda m, x: qk.evaluate(m, x, inputs=x), TypeError, "data twice"),
])
def test_errors_are_sentences(model, images, call, error, words):
    with pytest.raises(error, match=words):
        call(model, images)


def test_numbers_that_metrics_return(model, images):
    def found(value, **more):
        return qk.search(model, images[:8], metric=lambda outputs: value, narrow="int8/int4", target_metric=1, max_trials=2, **more)

    for value in (1, True, np.float32(0.5), np.float64(0.5), np.array(0.5), np.array([0.5]), np.array([[1]])):
        assert found(value).metric == float(np.asarray(value).reshape(())), value
    for value in (None, "0.5", [0.5], 1j, np.array([0.5, 1])):
        with pytest.raises(TypeError, match="metric returned"):
            found(value)
    with pytest.raises(TypeError, match="eval_func returned None"):
        qk.search(model, images[:8], eval_func=lambda b: None, narrow="int8/int4", target_metric=1)
    with pytest.warns(qk.Remark, match="metric returned NaN for"):
        told = found(float("nan"))
    assert not told.target_met and any("NaN" in r for r in told.remarks)
    with pytest.raises(TypeError, match="progress is 5"):
        found(1.0, progress=5)


def test_samples_with_their_labels(model, images, labels):
    """(samples, labels), a data set by index, single samples with a plain number, a reader that ends by StopIteration."""
    expected = qk.evaluate(model, images, labels=labels)["top1"]

    class ByIndex:
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            return images[i : i + 1], int(labels[i])

    class Reader:
        def __init__(self):
            self.rest = iter(np.split(images, 4))

        def get_next(self):
            return next(self.rest)

    for data in ((images, labels), [images, labels], ByIndex(), [(images[i], int(labels[i])) for i in range(len(images))]):
        assert qk.evaluate(model, data)["top1"] == expected
    assert qk.evaluate(model, Reader(), labels=labels)["top1"] == expected
    with pytest.raises(ValueError, match="empty"):
        qk.evaluate(model, {})


def test_choices_and_switches_are_not_lost(model, images):
    plain = qk.quantize(model, images, activation="int8", weight="int8", per_channel=np.True_)
    assert plain.model.bytes == qk.quantize(model, images, activation="int8", weight="int8", per_channel=True).model.bytes
    how = qk.Semantics("quark", rounding="up")
    by_object = qk.quantize(model, images, activation="int8", weight="int8", semantics=how)
    assert by_object.model.bytes == qk.quantize(model, images, activation="int8", weight="int8", semantics="quark", rounding="up").model.bytes
    plan = qk.Plan({"qk": "requests", "version": 1, "default": {r: {"format": qk.format("int8"), "semantics": how} for r in ("activation", "weight")}})
    assert {e["quantizer"]["semantics"]["rounding"] for e in qk.quantize(model, images, plan=plan)["edges"] if e["role"] == "weight"} == {"up"}
    with pytest.raises(TypeError, match="overflow='ieee'"):
        qk.quantize(model, images, activation="int8", weight="int8", semantics=qk.Semantics("ocp", overflow="ieee"))
    with pytest.raises(qk.Error, match=r"^the plan's 'defalt': /defalt: unknown key"):  # no file that is gone
        qk.quantize(model, images, plan={"qk": "requests", "version": 1, "defalt": {}})
    by_bytes = qk.quantize(model, activation="int8", weight="int8", calibration=qk.calibrate(model, images).statistics)
    assert by_bytes["edges"]


def test_rows_and_plots(model, images, labels):
    x, y, given = images[:16], labels[:16], {"activation": "int8", "weight": "int8"}
    quantized = qk.quantize(model, x, **given)
    results = [quantized, qk.calibrate(model, x, method="all"), qk.gradient(model, x, labels=y), qk.finetune(model, x, epochs=2, **given),
               qk.sensitivity(model, x, narrow="int8/int4"), qk.search(model, x, narrow="int8/int4", target_l2=0.5)]
    for r in [*results, qk.recover(quantized.model), qk.diff(model, model, x)]:
        rows = r._rows()
        assert rows and (r.verb == "search" or len(rows) > 1) and "<table" in r._repr_html_(), r
    assert {"tensor", "method", "scale"} <= set(results[1]._rows()[0]) and results[2]._rows()[0]["largest"] > 0
    with pytest.raises(ValueError, match="nothing to draw"):
        qk.evaluate(model, x).plot()
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    drawn = [r.plot() for r in results]
    assert len({id(axes.figure) for axes in drawn}) == len(drawn)  # none on top of another
    assert results[0].plot(drawn[0]) is drawn[0]
    matplotlib.pyplot.close("all")


def test_what_must_be_done_is_a_warning_and_the_rest_is_remarks(model, images, caplog):
    with pytest.warns(qk.Remark, match="option per_channel: has no effect") as told:
        done = qk.quantize(model, images, activation="mxfp8_e4m3", weight="mxfp4", per_channel=True)
    assert len(told) == 1 and any(r.startswith("warning: unused: option per_channel") for r in done.remarks)
    with warnings.catch_warnings(), caplog.at_level("INFO", "qk"):
        warnings.simplefilter("error", qk.Remark)
        done = qk.quantize(model, images, activation="int8", weight="int8")
    assert done.remarks and not any("--" in r for r in done.remarks)  # nothing speaks of the command's options
    assert any("qk.quantize(keep_int8=True)" in r for r in done.remarks)
    assert [r.message for r in caplog.records if r.levelname == "INFO"] == done.remarks


def test_remarks_name_what_the_caller_wrote(model, images):
    plan = qk.Plan(activation="int8", weight="int8").set_precision("no_such_layer", activation="int16")
    with pytest.warns(qk.Remark, match="the plan's request for layer 'no_such_layer'") as told:
        done = qk.quantize(model, images, plan=plan)
    assert not any(".json" in str(w.message) for w in told) and not any(".json" in str(n) for n in done["notes"])
    with pytest.raises(qk.Error, match="the plan's request for layer 'no_such_layer'") as wrong:
        qk.quantize(model, images, plan=plan.to_dict(), strict=True)
    assert ".json" not in str(wrong.value)


def test_remarks_in_the_words_of_python():
    spoken = qk._run.spoken
    assert spoken("quantize", "unused: option --per-channel: has no effect: FORMAT") == "unused: option per_channel: has no effect: FORMAT"
    assert spoken("quantize", "codes (qk quantize --keep-int8 writes int8)") == "codes (qk.quantize(keep_int8=True) writes int8)"
    assert spoken("quantize", "--dual, or else (--log L.txt and --report name them)") == "dual=True, or else (log=L.txt and report=... name them)"
    assert spoken("search", "run `qk evaluate --plan P.json`") == "run qk.evaluate(plan=P.json)"
    assert spoken("search", "--op-types ConvTranspose: the model has no such layer") == "op_types=ConvTranspose: the model has no such layer"
    assert spoken("search", "--no-such-option stays -- as it is") == "--no-such-option stays -- as it is"


def test_reports_name_the_metric_and_show_what_can_be_run(model, images, tmp_path, command):
    def largest_logit(outputs):
        return float(np.max(outputs[0]))

    found = qk.search(model, images, metric=largest_logit, narrow=["int8/int8", "int8/int4"], target_relative=0.1, higher_is_better=True, max_trials=3)
    assert found["metric_name"] == "largest_logit"
    found.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    shown = html.unescape(re.search("<pre>(.*?)</pre>", page, re.S)[1]).strip()
    assert "largest_logit" in page and ">user<" not in page
    again = eval(shown, {"qk": qk, "data": images, "largest_logit": largest_logit})  # names stand for what lay in memory
    assert again.choice == found.choice and again.metric == found.metric
    np.save(tmp_path / "x.npy", images[:16])
    qk.sensitivity(model, tmp_path / "x.npy", narrow="int8/int4", metric="mse").report(tmp_path / "s.html")
    shown = html.unescape(re.search("<pre>(.*?)</pre>", (tmp_path / "s.html").read_text(), re.S)[1])
    words = shlex.split(shown)
    assert words[:2] == ["qk", "sensitivity"] and "adds to MSE" in command(*words[1:])


def test_progress_is_told(model, images):
    told = []

    def slow(outputs):
        time.sleep(0.06)
        return 0.0

    qk.search(model, images, metric=slow, narrow="int8/int4", target_metric=1, max_trials=5, progress=lambda *state: told.append(state))
    assert told and any(what.startswith("searching") for what, _, _ in told)


def test_ctrl_c_while_a_search_calibrates(model, images):
    def stop(what, done, all):
        raise KeyboardInterrupt

    with pytest.raises(qk.Interrupted, match="before anything was measured") as ended:
        qk.search(model, np.concatenate([images] * 40), narrow="int8/int4", target_l2=0.5, progress=stop, threads=1)
    assert ended.value.result is None


def test_ctrl_c_gives_the_best_so_far(model, images):
    calls = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

    def slow(outputs):
        calls.append(1)
        if len(calls) == 4:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(0.05)
        return 0.0 if len(calls) <= 2 else 2.0

    with pytest.raises(KeyboardInterrupt) as caught:
        qk.search(model, images, metric=slow, narrow="int8/int4", target_metric=1)
    assert isinstance(caught.value, qk.Interrupted) and caught.value.result["status"] == "interrupted"
    assert len(calls) < 12 and caught.value.result.model is not None


def test_plans_can_be_changed(model, images, tmp_path):
    plan = qk.Plan(activation="int8", weight="int8")
    plan["stem"].weight = "int16"
    plan["head"].activation = qk.format("bf16")
    plan["block1.*"].exclude = True
    assert plan["stem"].weight == "int16" and plan["stem"].activation is None
    made = qk.quantize(model, images, plan=plan)
    formats = {(e["consumer"], e["index"]): e["quantizer"]["format"] for e in made["edges"]}
    assert formats["stem", 1] == "int16" and not any(c.startswith("block1.") for c, i in formats if i == 1)
    saved = made.plan
    assert saved.is_saved and saved["stem"].weight == "int16"
    same = qk.quantize(model, images, plan=saved)
    assert same.model.bytes == made.model.bytes
    saved["stem"].weight = "int4"
    assert not saved.is_saved and saved["stem"].weight == "int4"
    changed = qk.quantize(model, images, plan=saved)
    assert {(e["consumer"], e["index"]): e["quantizer"]["format"] for e in changed["edges"]}["stem", 1] == "int4"
    plan.save(tmp_path / "plan.json")
    assert qk.Plan(tmp_path / "plan.json") == plan
    with open(tmp_path / "open.txt", "w") as file:
        qk.Plan(activation="int8", weight="int8").apply(model, images, log_file=file)
    assert (tmp_path / "open.txt").stat().st_size > 0
    for wrong, error, words in ((lambda: plan.set_precision("stem", param={"weigth": "int8"}), ValueError, "weigth"),
                                (lambda: plan.set_precision("stem", activation=["int8", "int16"]), ValueError, "one format"),
                                (lambda: qk.Plan(5), TypeError, "not int")):
        with pytest.raises(error, match=words):
            wrong()
    own = qk.Plan().set_precision("stem", activation="int16", param={"weight": "int8"}).set_model_input_precision("int16")
    assert own.apply(model, images, log_file=tmp_path / "log.txt")["edges"] and (tmp_path / "log.txt").exists()
    with pytest.raises(AttributeError):
        plan["stem"].wait = "int8"


def test_functions_show_the_commands_options(command):
    import inspect

    for verb in ("quantize", "search", "sensitivity", "evaluate", "calibrate", "gradient", "finetune"):
        function = getattr(qk, verb)
        page = command(verb, "--help")
        for name in inspect.signature(function).parameters:
            if name in ("model", "data", "progress", "eval_func", "eval_func_path", "executor", "outputs"):
                continue
            assert "--" + name.replace("_", "-") in page, (verb, name)
        assert function.__doc__.startswith(page.splitlines()[0][:30])


def test_searches_in_several_threads(model, images):
    expected = qk.search(model, images, narrow="int8/int4", target_l2=0.5)["layers"]
    found = []
    workers = [threading.Thread(target=lambda: found.append(qk.search(model, images, narrow="int8/int4", target_l2=0.5)["layers"]))
               for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert found == [expected] * 3


def test_a_vector_of_one_block_runs_in_onnxruntime(images):
    """A bias that is one block has one scale, which onnxruntime takes for the tensor's: with a block_size beside it, it refuses to run."""
    random = np.random.default_rng(3)
    weights = {n: random.standard_normal(s).astype(np.float32) for n, s in (("w", (3, 1, 3, 3)), ("b", (3,)))}
    nodes = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv")]
    model = graphs.model(nodes, {"x": ["N", 1, 8, 8]}, {"y": ["N", 3, 6, 6]}, weights).SerializeToString()
    made = qk.quantize(model, images[:4], activation="bfp16", weight="bfp16", placement="all", export="qdq")
    ours = qk.evaluate(model, images[:4], plan=made.plan, outputs=True).outputs["y"]
    theirs = onnxruntime.InferenceSession(made.model.bytes).run(None, {"x": images[:4]})[0]
    assert np.allclose(ours, theirs, atol=1e-6 * np.abs(ours).max())
