# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch go in and out; layers of formats learn. Skipped where torch is not installed (tests/peers.sh installs it)."""

import re

import numpy as np
import pytest
from conftest import DIGITS, ROOT

import qk

torch = pytest.importorskip("torch")


def test_tensors_go_in_and_out():
    x = torch.randn(5, 64)
    y = qk.fake_quantize(x, "mxfp4")
    assert isinstance(y, torch.Tensor) and np.array_equal(y.numpy(), qk.fake_quantize(x.numpy(), "mxfp4"))
    b = x.to(torch.bfloat16)
    assert torch.equal(qk.fake_quantize(b, "mxfp4"), qk.fake_quantize(b.float(), "mxfp4").to(torch.bfloat16))
    out = torch.empty_like(b)
    assert qk.fake_quantize(b, "int8", scale=0.1, out=out) is out
    assert torch.equal(out, qk.fake_quantize(b.float(), "int8", scale=0.1).to(torch.bfloat16))
    assert torch.equal(qk.fake_quantize(x.t(), "mxfp4", axis=0), y.t())
    assert qk.fake_quantize(x.half(), "mxfp4").dtype == torch.float16
    with pytest.raises(ValueError, match="meta"):
        qk.fake_quantize(torch.empty(2, device="meta"), "mxfp4")
    with pytest.raises(TypeError, match="float64"):
        qk.fake_quantize(x.double(), "mxfp4")


def test_gradients_pass():
    from qk import torch as formats

    w = torch.tensor([[-2.0, -0.3, 0.26, 5.0]], requires_grad=True)
    scale = torch.tensor(0.5, requires_grad=True)
    formats.fake_quantize(w, "int4", scale=scale).sum().backward()
    dx, ds, _ = qk.fake_quantize_backward(w.detach(), torch.ones(1, 4), "int4", scale=0.5)
    assert torch.equal(w.grad, dx) and scale.grad.item() == pytest.approx(ds)
    assert w.grad.tolist() == [[1, 1, 1, 0]]


def test_every_keyword_and_kind():
    from qk import torch as formats

    x = torch.randn(6, 40)
    n = x.numpy()
    assert torch.equal(qk.fake_quantize(x, "int8", scale=torch.full((6,), 0.1).bfloat16(), scale_axis=0),
                       qk.fake_quantize(x, "int8", scale=torch.full((6,), 0.1).bfloat16().float(), scale_axis=0))
    eight = qk.fake_quantize(x.to(torch.float8_e4m3fn), "mxfp4")
    assert eight.dtype == torch.float8_e4m3fn and torch.equal(eight.float(), qk.fake_quantize(x.to(torch.float8_e4m3fn).float(), "mxfp4"))
    given = {"axis": 1, "semantics": "quark", "rounding": "half-away", "scale": 0.1, "zero_point": 3, "threads": 2}
    assert np.array_equal(formats.fake_quantize(x, "int8", **given).numpy(), qk.fake_quantize(n, "int8", **given))
    assert isinstance(qk.encode(x, "mxfp4").decode(torch.bfloat16), torch.Tensor)
    for wrong, error, words in ((lambda: qk.fake_quantize(x, "mxfp4", out=torch.zeros(6, 40, requires_grad=True)), ValueError, "gradient"),
                                (lambda: formats.Linear(4, 4, weight="mxfp5"), ValueError, "mxfp5"),
                                (lambda: formats.Parametrization("mxfp5"), ValueError, "mxfp5")):
        with pytest.raises(error, match=words):
            wrong()


def test_zero_points_learn():
    from qk import torch as formats

    x = torch.tensor([[-3.0, 0.2, 0.9, 40.0]])
    scale, zero = torch.tensor([0.1], requires_grad=True), torch.tensor([3.4], requires_grad=True)
    y = formats.fake_quantize(x.requires_grad_(), "uint8", scale=scale, zero_point=zero, scale_axis=0)
    y.sum().backward()
    _, by_scale, by_zero = qk.fake_quantize_backward(x.detach(), torch.ones(1, 4), "uint8", scale=[0.1], zero_point=[3], scale_axis=0)
    assert torch.equal(y.detach(), qk.fake_quantize(x.detach(), "uint8", scale=[0.1], zero_point=[3], scale_axis=0))
    assert scale.grad.item() == pytest.approx(by_scale[0]) and zero.grad.item() == pytest.approx(by_zero[0]) and zero.grad.item() != 0


def test_layers_take_odd_data():
    from qk import torch as formats

    linear = formats.Linear(4, 3, weight="int8", activation="int8")
    assert linear(torch.zeros(0, 4)).shape == (0, 3) and linear(torch.zeros(2, 4)).isfinite().all()
    x = torch.tensor([[0.5, -1.0, float("inf"), 2.0]])
    assert linear(x).isfinite().all() and torch.equal(linear(x), linear(torch.tensor([[0.5, -1.0, 2.0, 2.0]])))  # infinity saturates
    unsigned = formats.Linear(4, 3, activation="uint8")
    signed = torch.randn(5, 4)
    assert torch.allclose(unsigned(signed), nn_linear(unsigned, signed), atol=0.05)  # a zero point carries what is below 0
    for conv, shape in ((formats.Conv1d, (32, 9)), (formats.Conv2d, (32, 9, 9)), (formats.Conv3d, (32, 5, 5, 5))):
        layer = conv(32, 4, 3, weight="mxfp4", activation="mxfp4")
        one = torch.randn(shape)
        assert torch.allclose(layer(one), layer(one[None])[0], atol=1e-5), conv  # blocks run along the channels, batch or not
    model = torch.nn.Sequential(torch.nn.Linear(64, 8))
    once = formats.quantize_parameters(model, "int4")[0].weight.detach()
    assert len(model[0].parametrizations["weight"]) == 1 and torch.equal(formats.quantize_parameters(model, "int4")[0].weight.detach(), once)
    assert len(model[0].parametrizations["weight"]) == 1


def nn_linear(layer, x):
    return torch.nn.functional.linear(x, layer.weight, layer.bias)


def test_layers_learn():
    from qk import torch as formats

    torch.manual_seed(0)
    images = torch.from_numpy(np.load(DIGITS / "train_images.npy")[:256])
    labels = torch.from_numpy(np.load(DIGITS / "train_labels.npy")[:256]).long()
    model = torch.nn.Sequential(formats.Conv2d(1, 8, 3, weight="int4", activation="int8"), torch.nn.ReLU(), torch.nn.Flatten(),
                                formats.Linear(8 * 36, 10, weight="mxfp4", activation="mxfp8_e4m3"))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    plain = torch.nn.Linear(64, 8)
    same = formats.Linear.of(plain, weight="mxfp4")
    x = torch.randn(3, 64)
    assert torch.allclose(same(x), torch.nn.functional.linear(x, qk.fake_quantize(plain.weight.detach(), "mxfp4"), plain.bias))
    assert formats.quantize_parameters(torch.nn.Sequential(torch.nn.Linear(64, 8)), "fp4_e2m1")[0].weight.unique().numel() <= 15


def test_operators_are_known_to_torch():
    from qk import torch as formats

    x, scale = torch.randn(6, 40), torch.rand(6) + 0.1
    options = (-1, "ocp", None, None, None, 1)
    for given in ((x, None, None, "mxfp4", *options), (x, scale, None, "int4", -1, "ocp", "half-away", 0, None, 1),
                  (x, torch.tensor(0.1), torch.tensor(3.0), "uint8", *options), (x, None, None, "mxfp4", 0, "{'base': 'ocp', 'scale_rule': 'rceil'}", None, None, None, 1)):
        for requires in (False, True):
            tensors = [v.clone().requires_grad_(requires) if isinstance(v, torch.Tensor) else v for v in given]
            torch.library.opcheck(torch.ops.qk.fake_quantize.default, tuple(tensors))
    torch.library.opcheck(torch.ops.qk.by_range.default, (x.requires_grad_(), "int8", -1))
    x = x.detach()
    way = formats.fake_quantize(x, "mxfp4", 0, qk.Semantics("ocp", scale_rule="rceil"))
    assert torch.equal(way, torch.ops.qk.fake_quantize(x, None, None, "mxfp4", 0, "{'base': 'ocp', 'scale_rule': 'rceil'}", None, None, None, 1))
    assert torch.equal(way, qk.fake_quantize(x, "mxfp4", 0, qk.Semantics("ocp", scale_rule="rceil")))


def small_network(formats, weight, activation):
    nn = torch.nn
    return nn.Sequential(formats.Conv2d(1, 8, 3, weight=weight, activation=activation), nn.ReLU(),
                         formats.Conv2d(8, 8, 3, groups=8, weight=weight, activation=activation), formats.Conv2d(8, 40, 1, weight=weight, activation=activation),
                         nn.Flatten(), formats.Linear(640, 10, weight=weight, activation=activation))


@pytest.mark.parametrize("weight, activation", [("mxfp4", "mxfp8_e4m3"), ("nvfp4", "nvfp4"), ("int4", "int8"), ("int8", "uint8")])
def test_compile_export_and_vmap_take_layers(weight, activation):
    from qk import torch as formats

    torch.manual_seed(0)
    model, x = small_network(formats, weight, activation), torch.randn(4, 1, 8, 8)
    expected = model(x)
    expected.square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    model.zero_grad()
    y = compiled(x)
    y.square().sum().backward()
    assert torch.allclose(y, expected, atol=1e-5)
    for p, g in zip(model.parameters(), grads):
        assert torch.allclose(p.grad, g, atol=1e-3 * g.abs().max())
    for strict in (False, True):
        program = torch.export.export(model.eval(), (x,), strict=strict)
        assert torch.equal(program.module()(x), expected)
        assert any("qk" in str(n.target) for n in program.graph.nodes)
    how = qk.Semantics("ocp", rounding="half-away")
    rounded = torch.compile(lambda v: formats.fake_quantize(v, "int8", scale=0.1, semantics=how), fullgraph=True, backend="aot_eager")
    assert torch.equal(rounded(x), qk.fake_quantize(x, "int8", scale=0.1, semantics=how))
    each = torch.func.vmap(model)(x[:, None])
    assert all(torch.allclose(each[i], model(x[i:i + 1]), atol=1e-6) for i in range(4))  # each sample has ranges of its own
    parameters = dict(model.named_parameters())
    by_sample = torch.func.vmap(torch.func.grad(lambda p, v: torch.func.functional_call(model, p, (v,)).square().sum()), (None, 0))(parameters, x[:, None])
    model.zero_grad()
    model(x[:1]).square().sum().backward()
    for name, p in model.named_parameters():
        assert torch.allclose(by_sample[name][0], p.grad, atol=1e-4 * max(1, p.grad.abs().max())), name


def test_ranges_are_those_of_a_file():
    from qk import torch as formats

    for values in ([[0.0, 0.0]], [[1e-45, 0.0]], [[-3.0, 0.7]], [[5.0, float("inf")]], [[float("nan"), 0.2]], [[0.1, 0.3]], [[-0.1, -0.3]]):
        x = torch.tensor(values)
        for format, kind in (("int8", "int8:symmetric"), ("uint8", "uint8"), ("int4", "int4:symmetric"), ("uint4", "uint4")):
            if format == "uint8" and not x.isfinite().all():
                continue  # a DynamicQuantizeLinear in the file, for which ONNX says nothing of them
            m = one_quantizer({"format": kind, "dynamic": True}, x.shape)
            assert np.array_equal(qk.load(m)(x.numpy())["y"], -formats.by_range(x, format).numpy()), (values, format)
    w = torch.randn(3, 4, 2) * torch.tensor([1.0, 0.0, 100.0]).reshape(3, 1, 1)
    for i in range(3):
        assert torch.equal(formats.by_range(w, "int4", 1, channels=0)[i], formats.by_range(w[i], "int4"))
    with pytest.raises(ValueError, match="scale="):
        formats.by_range(w, "int8:pow2")


def one_quantizer(quantizer, shape):
    """A model that quantizes its input and negates it."""
    from onnx import TensorProto, helper

    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], "last")], "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)])
    return qk.quantize(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
                       plan={"qk": "plan", "version": 1, "tensors": {"x": quantizer}}).model


def run_in_onnxruntime(model, *inputs, optimize=True):
    runtime = pytest.importorskip("onnxruntime")
    how = runtime.SessionOptions()
    if not optimize:
        how.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model if isinstance(model, bytes) else str(model), how, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), (x.numpy() for x in inputs))))[0]


def exporter():
    pytest.importorskip("onnxscript")
    return pytest.importorskip("onnx")


TRAINED = [("mxfp4", "mxfp8_e4m3"), ("nvfp4", "nvfp4"), ("int4", "int8"), ("int8", "uint8"), ("mx6", "mx9"), ("int2", None), ("fp8_e4m3fn", "fp6_e2m3"),
           ("mxfp4@even", "bfp16")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weight, activation", TRAINED)
def test_a_file_computes_what_was_trained(weight, activation, tmp_path):
    from qk import torch as formats

    onnx = exporter()
    torch.manual_seed(0)
    model, x = small_network(formats, weight, activation).train(), torch.randn(16, 1, 8, 8)
    result = formats.export(model, x, tmp_path / "trained.onnx")
    assert model.training and all(m.training for m in model.modules())
    more = torch.randn(5, 1, 8, 8)  # another number of samples
    for samples in (x, more):
        expected = model.eval()(samples).detach().numpy()
        assert np.abs(run_in_onnxruntime(tmp_path / "trained.onnx", samples) - expected).max() < 2e-6 * np.abs(expected).max()
    # The same quantizers through qk's exporter alone give the same functions.
    plan = result.plan.to_dict()
    kinds = {e["quantizer"]["format"] for e in plan["edges"]}
    assert {weight.partition("@")[0], *([activation] if activation else [])} == {k.removesuffix(":symmetric") for k in kinds}
    floats = qk.recover(tmp_path / "trained.onnx")
    again = onnx.load_from_string(qk.quantize(floats.model, plan=floats.plan).model.bytes)
    names = lambda m: {f.name: [n.op_type for n in f.node] for f in m.functions}  # noqa: E731
    assert names(again) == names(onnx.load(tmp_path / "trained.onnx"))


def rounded_in_training(formats, model, x, monkeypatch):
    """Returns the output of a training forward, and what each of its quantizers read and gave, in order."""
    seen, inner = [], formats._forward

    def recorded(v, *given):
        y = inner(v, *given)
        seen.append((v.detach().clone().numpy(), y.detach().clone().numpy()))
        return y

    with monkeypatch.context() as patched:
        patched.setattr(formats, "_forward", recorded)
        y = model.train()(x)
    assert y.requires_grad
    return y.detach().numpy(), seen


def in_operators(model, inputs, names, folder):
    """Runs a model with qk's operators, and asserts that they were there: without them its functions' nodes stand in their place."""
    runtime, onnx = pytest.importorskip("onnxruntime"), exporter()
    options = runtime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "loaded.onnx"), 4
    given = qk.onnxruntime.session(model, options).run(names, inputs)
    assert any(n.domain == "qk" for n in onnx.load(folder / "loaded.onnx").graph.node)
    return given


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weight, activation", [(w, a) for w, a in TRAINED if a not in (None, "uint8")])  # the others' activations are pairs or floats
def test_operators_round_as_the_training_did(weight, activation, tmp_path, monkeypatch):
    from qk import torch as formats

    onnx = exporter()
    torch.manual_seed(0)
    model, x = small_network(formats, weight, activation), torch.randn(16, 1, 8, 8)
    formats.export(model, x, tmp_path / "trained.onnx")
    y, seen = rounded_in_training(formats, model, x, monkeypatch)
    file = onnx.load(tmp_path / "trained.onnx")
    held = {t.name: t for t in file.graph.initializer}
    made = {o: n for n in file.graph.node for o in n.output}
    layers = [n for n in file.graph.node if n.op_type in ("Conv", "Gemm")]
    assert len(seen) == 2 * len(layers) == 8  # what a layer reads, then its weight
    tensor = onnx.helper.make_tensor_value_info
    float_type = onnx.TensorProto.FLOAT
    for layer, (read, rounded) in zip(layers, seen[::2]):  # each call on what the training had there
        call = made[layer.input[0]]
        assert call.domain == "qk"
        graph = onnx.helper.make_graph([call], "call", [tensor(call.input[0], float_type, read.shape)], [tensor(call.output[0], float_type, read.shape)],
                                       [held[i] for i in call.input[1:]])
        alone = onnx.helper.make_model(graph, opset_imports=file.opset_import, functions=[f for f in file.functions if f.name == call.op_type], ir_version=file.ir_version)
        got = in_operators(alone, {call.input[0]: read}, None, tmp_path)[0]
        assert got.tobytes() == rounded.tobytes(), (layer.name, call.op_type)
    weights = [layer.input[1] for layer in layers]
    file.graph.output.extend(tensor(w, float_type, None) for w in weights if w in made)
    given = dict(zip([o.name for o in file.graph.output], in_operators(file, {"input": x.numpy()}, None, tmp_path)))
    for name, (_, rounded) in zip(weights, seen[1::2]):
        got = given[name] if name in made else onnx.numpy_helper.to_array(held[name])
        assert got.tobytes() == rounded.tobytes(), name
    assert np.abs(given[file.graph.output[0].name] - y).max() < 2e-6 * np.abs(y).max()


@pytest.mark.filterwarnings("ignore")
def test_a_table_for_torchs_own_exporter(tmp_path):
    from qk import torch as formats

    onnx = exporter()
    torch.manual_seed(0)
    x = torch.randn(4, 1, 8, 8)
    for weight, activation in TRAINED:
        model = small_network(formats, weight, activation).eval()
        for optimize in (False, True):
            program = torch.onnx.export(model, (x,), dynamo=True, custom_translation_table=formats.onnx_table(), optimize=optimize, verbose=False)
            program.save(tmp_path / "f.onnx")
            onnx.checker.check_model(tmp_path / "f.onnx")
            expected = model(x).detach().numpy()
            assert np.abs(run_in_onnxruntime(tmp_path / "f.onnx", x) - expected).max() < 2e-6 * np.abs(expected).max(), (weight, optimize)


@pytest.mark.filterwarnings("ignore")
def test_scales_that_learn_parametrizations_and_products(tmp_path):
    from qk import torch as formats

    exporter()

    class Learned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(48, 24), torch.nn.Linear(24, 6, bias=False)
            self.scale = torch.nn.Parameter(torch.tensor(0.03))
            self.channels = torch.nn.Parameter(torch.rand(24) * 0.01 + 0.01)
            self.low, self.zero = torch.nn.Parameter(torch.tensor(0.05)), torch.nn.Parameter(torch.tensor(101.3))

        def forward(self, x):
            w = formats.fake_quantize(self.first.weight, "int4", scale=self.channels, scale_axis=0)
            y = torch.nn.functional.linear(formats.fake_quantize(x, "int8", scale=self.scale), w, self.first.bias)
            y = formats.fake_quantize(y, "uint8", scale=self.low, zero_point=self.zero)
            return self.second(formats.fake_quantize(formats.fake_quantize(y, "mxfp6_e2m3"), "mxfp4", semantics=qk.Semantics("ocp", scale_rule="rceil")))

    torch.manual_seed(0)
    model = Learned()
    formats.quantize_parameters(model.second, "mxfp4", types=torch.nn.Linear)
    formats.quantize_parameters(torch.nn.ModuleList([model.second]), "mxfp4")
    for x in (torch.randn(3, 48), torch.randn(3, 7, 48)):  # Gemm; MatMul, whose weight is transposed
        expected = model(x).detach().numpy()
        formats.export(model, x, tmp_path / "f.onnx", overwrite=True)
        assert np.abs(run_in_onnxruntime(tmp_path / "f.onnx", x) - expected).max() < 2e-6 * np.abs(expected).max()
        program = torch.onnx.export(model.eval(), (x,), dynamo=True, custom_translation_table=formats.onnx_table(), optimize=False, verbose=False)
        program.save(tmp_path / "g.onnx")
        assert np.abs(run_in_onnxruntime(tmp_path / "g.onnx", x, optimize=False) - expected).max() < 2e-6 * np.abs(expected).max()
    result = formats.export(model, {"x": torch.randn(3, 48)}, export="qdq", output_names=["logits"])
    assert result.model.inputs == ["x"] and result.model.outputs == ["logits"]


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stem, self.bn = nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16)
        self.middle, self.norm = nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.BatchNorm2d(16)
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2, 2), nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.bn(self.stem(x)))
        return self.head(self.up(x + torch.relu(self.norm(self.middle(x)))).mean((2, 3)))


def forms(formats):
    """Yields networks whose quantizers stand elsewhere than before a layer's weight, with their inputs."""
    nn, functional = torch.nn, torch.nn.functional

    class Form(nn.Module):
        def __init__(self, forward, **parameters):
            super().__init__()
            self.run = forward
            for name, value in parameters.items():
                setattr(self, name, nn.Parameter(value))

        def forward(self, x):
            return self.run(self, x)

    for weight, activation in (("mxfp4", "mxfp8_e4m3"), ("int4", "int8")):
        for images in (2, 1):
            yield formats.quantize_layers(formats.fold_batch_norm(Residual().eval()), weight, activation), torch.randn(images, 3, 17, 17)
    yield formats.quantize_layers(nn.Linear(64, 8), "mxfp4", "mxfp4"), torch.randn(64)
    yield formats.quantize_layers(nn.Linear(64, 8), "mxfp4", "mxfp4").half(), torch.randn(4, 64).half()

    def shared(own, x):
        w = formats.fake_quantize(own.w, "mxfp4")
        return functional.linear(x, w) + functional.linear(x, w.t()) + formats.fake_quantize(x, "bfp16")

    yield Form(shared, w=torch.randn(16, 16)), torch.randn(4, 16)
    yield Form(lambda own, x: formats.fake_quantize(x, "mxfp4")), torch.randn(4, 40)  # the output itself
    yield Form(lambda own, x: x @ formats.by_range(own.w, "int4", channels=0)[:16].t(), w=torch.randn(32, 48)), torch.randn(4, 48)
    blocks = Form(lambda own, x: functional.linear(x, formats.fake_quantize(own.w, "int4", scale=own.s, scale_axis=1, scale_block=32)),
                  w=torch.randn(8, 64), s=torch.rand(8, 2) * 0.1 + 0.05)
    yield blocks, torch.randn(4, 64)
    yield blocks, torch.randn(4, 3, 64)  # a MatMul of the transposed weight
    yield Form(lambda own, x: functional.linear(x, formats.fake_quantize(own.w, "int4", scale=own.s, scale_axis=1, scale_block=32)[:5]),
               w=torch.randn(8, 64), s=torch.rand(8, 2) * 0.1 + 0.05), torch.randn(4, 64)
    yield nn.Sequential(formats.Conv1d(32, 16, 3, weight="mxfp4", activation="mxfp4"), nn.Flatten(), formats.Linear(112, 3, weight="int8")), torch.randn(4, 32, 9)


@pytest.mark.filterwarnings("ignore")
def test_networks_of_other_forms(tmp_path):
    from qk import torch as formats

    exporter()
    torch.manual_seed(0)
    for i, (network, x) in enumerate(forms(formats)):
        expected = network.eval()(x).detach().float().numpy()
        result = formats.export(network, x, tmp_path / f"{i}.onnx")
        given = run_in_onnxruntime(tmp_path / f"{i}.onnx", x)
        assert np.abs(given.astype(np.float32) - expected).max() <= 2e-6 * np.abs(expected).max(), (i, network)
        assert (i < 4) <= {"stem.weight", "head.weight"}.issubset(e["tensor"] for e in result.plan.to_dict()["edges"]), i


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_exported_is_refused():
    from qk import torch as formats

    exporter()
    nn = torch.nn
    x = torch.randn(4, 3, 8, 8)
    normed = nn.Sequential(formats.Conv2d(3, 4, 3, weight="mxfp4"), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), formats.Linear(144, 5, weight="int4"), nn.BatchNorm1d(5))
    for m in (normed[1], normed[5]):
        m.running_mean.normal_(), m.running_var.uniform_(0.5, 2), nn.init.uniform_(m.weight, 0.5, 2), nn.init.normal_(m.bias)
    with pytest.raises(ValueError, match="fold_batch_norm"):
        formats.export(normed, x)
    floats = nn.Sequential(*(getattr(nn, type(m).__name__)(*a) if a else m for m, a in zip(normed, ((3, 4, 3), (), (), (), (144, 5), ()))))
    expected = floats.eval()(x)
    folded = formats.fold_batch_norm(floats)
    assert not any(isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)) for m in folded.modules()) and torch.allclose(folded(x), expected, atol=1e-4)
    formats.quantize_parameters(folded, "mxfp4")
    y = folded(x).detach().numpy()
    assert np.abs(run_in_onnxruntime(formats.export(folded, x).model.bytes, x) - y).max() < 2e-6 * np.abs(y).max()
    with pytest.raises(ValueError, match="qk.quantize"):
        formats.export(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), x)

    class Moving(nn.Module):
        def forward(self, x):
            return formats.fake_quantize(x, "int8", scale=x.abs().max() / 100)

    with pytest.raises(ValueError, match="by_range"):
        formats.export(Moving(), x)


@pytest.mark.filterwarnings("ignore")
def test_layers_of_a_transformer(tmp_path):
    from qk import torch as formats

    exporter()
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 96, dropout=0.0, batch_first=True)
    with pytest.warns(UserWarning, match="self_attn.out_proj"):
        formats.quantize_layers(layer, weight="mxfp4", activation="mxfp6_e2m3")
    formats.quantize_parameters(layer, "mxfp4", types=torch.nn.modules.linear.NonDynamicallyQuantizableLinear)
    x = torch.randn(3, 5, 64)
    expected = layer(x).detach().numpy()
    layer.eval()
    with torch.no_grad():
        assert torch.allclose(layer(x), torch.from_numpy(expected), atol=1e-5)
    result = formats.export(layer, x, tmp_path / "f.onnx")
    read = {e["quantizer"]["format"]: sum(o["quantizer"]["format"] == e["quantizer"]["format"] for o in result.plan.to_dict()["edges"]) for e in result.plan.to_dict()["edges"]}
    assert read == {"mxfp4": 3, "mxfp6_e2m3": 2}
    assert np.abs(run_in_onnxruntime(tmp_path / "f.onnx", x) - expected).max() < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_verbs_export_a_module():
    from qk import torch as formats

    exporter()
    torch.manual_seed(0)
    nn = torch.nn
    images, labels = np.load(DIGITS / "train_images.npy")[:100], np.load(DIGITS / "train_labels.npy")[:100].astype(np.int64)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).train()
    data = torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    loader = torch.utils.data.DataLoader(data, batch_size=32)  # the last batch is shorter
    expected = model(torch.from_numpy(images)).detach().numpy()
    bytes_of = lambda r: r.model.bytes  # noqa: E731
    one = qk.quantize(model, images, activation="int8", weight="int8", recipe="fast")
    assert model.training
    assert np.abs(run_in_onnxruntime(bytes_of(one), torch.from_numpy(images)) - expected).max() < 0.1 * np.abs(expected).max()
    for given in (loader, iter(loader), [(i, l) for i, l in loader], {"input": images}):
        assert bytes_of(qk.quantize(model, given, activation="int8", weight="int8", recipe="fast")) == bytes_of(one)
    assert bytes_of(qk.quantize(model, calibration=loader, activation="int8", weight="int8", recipe="fast"))
    found = qk.evaluate(model, loader)
    assert found["top1"] == pytest.approx((expected.argmax(1) == labels).mean())
    assert {layer["module"] for layer in qk.inspect(one.model)["layers"]} == {"0", "3"} and __file__.encode() not in one.model.bytes
    with pytest.raises(TypeError, match="data"):
        qk.quantize(model, weight="int8")
    with pytest.raises(TypeError, match="verbs"):
        qk.load(model)
    with pytest.raises(ValueError, match="qk.torch.export"):
        qk.quantize(formats.Linear(64, 8, weight="mxfp4"), torch.randn(4, 64), weight="int8")


@pytest.mark.filterwarnings("ignore")
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    exporter()
    pytest.importorskip("onnxruntime")
    (tmp_path / "digits").symlink_to(DIGITS)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {}
    page = (ROOT / "docs" / "guide" / "training.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
        exec(compile(block, "training.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert float(said[0].split()[-1]) > 0.9 and float(said[1].split()[-1]) > 0.99
    assert said[3] == "['mxfp4', 'mxfp8_e4m3']"
    pairs = next(iter(qk.load("pairs.onnx")(names["test"]).values()))
    assert np.mean(pairs.argmax(1) == names["deployed"].argmax(1)) > 0.99
    assert run_in_onnxruntime("learned.onnx", torch.randn(3, 64)).shape == (3, 10)
    assert (tmp_path / "quantized.onnx").exists()


@pytest.mark.filterwarnings("ignore")
def test_the_page_of_operators_runs(tmp_path, monkeypatch, capsys):
    exporter()
    pytest.importorskip("onnxruntime")
    (tmp_path / "digits").symlink_to(DIGITS)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    page = (ROOT / "docs" / "guide" / "onnxruntime.md").read_text()
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
        exec(compile(block, "onnxruntime.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert said == [line[4:] for line in re.findall(r"^    .*$", page, re.M) if line[4:] in said] and len(said) == 4
    assert names["trained"].shape == (len(names["x"]), 10)


def test_a_loader_brings_labels():
    images, labels = np.load(DIGITS / "test_images.npy")[:64], np.load(DIGITS / "test_labels.npy")[:64]
    data = torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    loaded = qk.evaluate(DIGITS / "digits.onnx", torch.utils.data.DataLoader(data, batch_size=16))
    assert loaded["top1"] == qk.evaluate(DIGITS / "digits.onnx", images, labels=labels)["top1"]
