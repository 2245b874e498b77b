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
