#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer keeps the name of its module in whatever torch's exporters make of a network, where they fold its BatchNorm, too.

    exported_names.py QK      # with the torch that is installed; tests/peers.sh torch runs it with the newest and with 2.5
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, equal, qk_json

evidence.needs("torch")

import pytest
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv_pw = nn.Conv2d(channels, 8, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv_dw = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.bn2 = nn.BatchNorm2d(8)
        self.plain = nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return self.plain(torch.relu(self.bn2(self.conv_dw(torch.relu(self.bn1(self.conv_pw(x)))))))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Sequential(Block(3)), nn.Sequential(Block(8), Block(8)))
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.first, self.norm1d, self.head = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.up(self.blocks(x)))).mean((2, 3))
        return self.head(torch.relu(self.norm1d(self.first(y))))


@pytest.mark.parametrize("dynamo", (True, False))
@pytest.mark.filterwarnings("ignore")
def test_names(dynamo):
    torch.manual_seed(0)
    network, file = Network().eval(), at("network.onnx")
    for m in network.modules():
        if hasattr(m, "running_var"):
            m.running_var.uniform_(0.5, 2)
            m.running_mean.normal_()
    layers = [n for n, m in network.named_modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear))]
    if dynamo:
        torch.onnx.export(network, (torch.randn(2, 3, 8, 8),), dynamo=True).save(file)
    else:
        torch.onnx.export(network, (torch.randn(2, 3, 8, 8),), file, dynamo=False)
    found = qk_json("inspect", file)["layers"]
    equal([layer["module"] for layer in found], layers, f"torch {torch.__version__}, dynamo={dynamo}: {({layer['name']: layer['op_type'] for layer in found})}")


if __name__ == "__main__":
    evidence.main()
