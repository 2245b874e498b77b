# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch go in and out; layers of formats learn. Skipped where torch is not installed (tests/peers.sh installs it)."""

import numpy as np
import pytest
from conftest import DIGITS

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


def test_a_loader_brings_labels():
    images, labels = np.load(DIGITS / "test_images.npy")[:64], np.load(DIGITS / "test_labels.npy")[:64]
    data = torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    loaded = qk.evaluate(DIGITS / "digits.onnx", torch.utils.data.DataLoader(data, batch_size=16))
    assert loaded["top1"] == qk.evaluate(DIGITS / "digits.onnx", images, labels=labels)["top1"]
