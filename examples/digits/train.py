#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the network that ./dev demo quantizes. Run by hand once; needs torch, scikit-learn, onnx:

    python3 train.py        (about a minute on one core; writes digits.onnx and the .npy files beside itself)

A small residual CNN with depthwise and pointwise convolutions on the 8 x 8 handwritten digits that scikit-learn carries
(UCI Optical Recognition of Handwritten Digits, CC BY 4.0). One third of the 1797 images is held out for testing.
"""
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent


class Separable(nn.Module):
    """A depthwise 3x3 and a pointwise 1x1 convolution, each with batch normalisation; a residual sum if the shapes allow it."""

    def __init__(self, channels_in, channels_out, stride=1):
        super().__init__()
        self.depthwise = nn.Conv2d(channels_in, channels_in, 3, stride, 1, groups=channels_in, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.pointwise = nn.Conv2d(channels_in, channels_out, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.residual = stride == 1 and channels_in == channels_out

    def forward(self, x):
        y = F.relu(self.norm1(self.depthwise(x)))
        y = self.norm2(self.pointwise(y))
        return F.relu(x + y if self.residual else y)


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 24, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(24)
        self.blocks = nn.Sequential(
            Separable(24, 24), Separable(24, 48, 2), Separable(48, 48), Separable(48, 96, 2), Separable(96, 96)
        )
        self.head = nn.Linear(96, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


def augment(x):
    """Shifts images by at most one pixel and adds noise."""
    dx, dy = np.random.randint(-1, 2, 2)
    return torch.roll(x, (int(dx), int(dy)), (2, 3)) + 0.02 * torch.randn_like(x)


def train(x, y, epochs=60):
    net = Digits()
    steps = epochs * (len(x) // 64)
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, steps)
    for _ in range(epochs):
        net.train()
        for batch in torch.randperm(len(x))[: len(x) // 64 * 64].split(64):
            loss = F.cross_entropy(net(augment(x[batch])), y[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def to_onnx(net):
    """Writes the model node by node, so that names and opset do not depend on an exporter's version."""
    nodes, weights = [], []

    def weight(name, value):
        weights.append(numpy_helper.from_array(value.detach().numpy(), name))
        return name

    def conv(name, layer, x):
        k, s, p = layer.kernel_size, layer.stride, layer.padding
        nodes.append(helper.make_node("Conv", [x, weight(name + ".weight", layer.weight)], [name + ".out"], name, kernel_shape=k,
                                      strides=s, pads=[*p, *p], group=layer.groups))
        return name + ".out"

    def norm(name, layer, x):
        parts = dict(scale=layer.weight, bias=layer.bias, mean=layer.running_mean, var=layer.running_var)
        nodes.append(helper.make_node("BatchNormalization", [x, *(weight(f"{name}.{k}", v) for k, v in parts.items())],
                                      [name + ".out"], name, epsilon=layer.eps))
        return name + ".out"

    def op(kind, name, *x, **attributes):
        nodes.append(helper.make_node(kind, list(x), [name + ".out"], name, **attributes))
        return name + ".out"

    x = op("Relu", "relu", norm("norm", net.norm, conv("stem", net.stem, "image")))
    for i, block in enumerate(net.blocks):
        b = f"block{i + 1}."
        y = op("Relu", b + "relu1", norm(b + "norm1", block.norm1, conv(b + "depthwise", block.depthwise, x)))
        y = norm(b + "norm2", block.norm2, conv(b + "pointwise", block.pointwise, y))
        if block.residual:
            y = op("Add", b + "add", x, y)
        x = op("Relu", b + "relu2", y)
    x = op("Flatten", "flatten", op("GlobalAveragePool", "pool", x))
    nodes.append(helper.make_node("Gemm", [x, weight("head.weight", net.head.weight), weight("head.bias", net.head.bias)], ["logits"],
                                  "head", transB=1))
    graph = helper.make_graph(nodes, "digits", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="qk/examples/digits/train.py")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    torch.manual_seed(1)
    np.random.seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)[:, None]
    y = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=600, random_state=7, stratify=y)
    net = train(torch.from_numpy(x_train), torch.from_numpy(y_train))
    top1 = (net(torch.from_numpy(x_test)).argmax(1).numpy() == y_test).mean()
    print(f"top-1 on {len(x_test)} held-out images: {top1:.4f}")
    onnx.save(to_onnx(net), HERE / "digits.onnx")
    for name, value in dict(train_images=x_train, train_labels=y_train, test_images=x_test, test_labels=y_test).items():
        np.save(HERE / f"{name}.npy", value)


if __name__ == "__main__":
    main()
