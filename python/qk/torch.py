# SPDX-License-Identifier: Apache-2.0
"""Formats in training with torch: a function with a gradient, layers, and a parametrization.

    model.conv1 = qk.torch.Conv2d.of(model.conv1, weight="int4", activation="int8")
    qk.torch.quantize_parameters(model, "mxfp4")

Gradients are straight-through, with clipping at the range of the format; a scale given as a parameter learns as in LSQ.
"""

import torch
from torch import nn

from . import _arrays

__all__ = ["FakeQuantize", "fake_quantize", "Linear", "Conv2d", "Parametrization", "quantize_parameters"]


class FakeQuantize(torch.autograd.Function):
    """fake_quantize with a gradient by x and, if it is a tensor, by scale."""

    @staticmethod
    def forward(ctx, x, scale, format, axis, semantics, scale_axis, scale_block):
        ctx.options = (format, semantics, scale_axis, scale_block)
        ctx.save_for_backward(x, scale if isinstance(scale, torch.Tensor) else None)
        ctx.scale = scale
        given = scale.detach().reshape(-1) if isinstance(scale, torch.Tensor) and scale_block is None else scale
        return _arrays.fake_quantize(x, format, axis=axis, semantics=semantics, scale=given, scale_axis=scale_axis, scale_block=scale_block)

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        format, semantics, scale_axis, scale_block = ctx.options
        given = ctx.scale if scale is None else scale.detach() if scale_block is not None else scale.detach().reshape(-1)
        result = _arrays.fake_quantize_backward(x, grad.contiguous(), format, semantics=semantics, scale=given, scale_axis=scale_axis,
                                                scale_block=scale_block)
        if given is None:
            return (result, *[None] * 6)
        by_x, by_scale, _ = result
        if scale is not None:
            by_scale = torch.as_tensor(by_scale, dtype=scale.dtype).reshape(scale.shape)
        return (by_x, by_scale if scale is not None else None, *[None] * 5)


def fake_quantize(x, format, axis=-1, semantics="ocp", scale=None, scale_axis=None, scale_block=None):
    """Returns qk.fake_quantize(x, format, ...), through which gradients pass. `scale` may be a parameter that learns."""
    return FakeQuantize.apply(x, scale, format, axis, semantics, scale_axis, scale_block)


def _scale_of(format, x):
    """Returns a scale by the largest magnitude, for formats that need one; None for the others."""
    spec = _arrays._spec(format)
    if spec.is_block or not spec.is_integer:
        return None
    largest = float(spec.facts["largest"])
    most = float(x.detach().abs().max())
    return most / largest if most > 0 else 1.0


class _Quantized:
    """What the layers share: formats of weight and activation, whose integer scales follow the data at each step."""

    def _formats(self, weight, activation, weight_axis):
        self.weight_format, self.activation_format, self.weight_axis = weight, activation, weight_axis
        return self

    def _weight(self):
        if self.weight_format is None:
            return self.weight
        return fake_quantize(self.weight, self.weight_format, axis=self.weight_axis, scale=_scale_of(self.weight_format, self.weight))

    def _activation(self, x, axis):
        if self.activation_format is None:
            return x
        return fake_quantize(x, self.activation_format, axis=axis, scale=_scale_of(self.activation_format, x))

    @classmethod
    def of(cls, layer, weight=None, activation=None):
        """Returns a layer of these formats that shares the parameters of a layer of torch."""
        made = cls.__new__(cls)
        made.__dict__.update(layer.__dict__)
        return made._formats(weight, activation, 1)


class Linear(_Quantized, nn.Linear):
    """nn.Linear whose weight and input go through formats."""

    def __init__(self, *args, weight=None, activation=None, **more):
        nn.Linear.__init__(self, *args, **more)
        self._formats(weight, activation, 1)

    def forward(self, x):
        return nn.functional.linear(self._activation(x, -1), self._weight(), self.bias)


class Conv2d(_Quantized, nn.Conv2d):
    """nn.Conv2d whose weight and input go through formats; blocks run along the input channels."""

    def __init__(self, *args, weight=None, activation=None, **more):
        nn.Conv2d.__init__(self, *args, **more)
        self._formats(weight, activation, 1)

    def forward(self, x):
        return self._conv_forward(self._activation(x, 1), self._weight(), self.bias)


class Parametrization(nn.Module):
    """For torch.nn.utils.parametrize: a parameter as a format has it."""

    def __init__(self, format, axis=1):
        super().__init__()
        self.format, self.axis = format, axis

    def forward(self, x):
        return fake_quantize(x, self.format, axis=min(self.axis, x.dim() - 1), scale=_scale_of(self.format, x))


def quantize_parameters(model, format, types=(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), axis=1):
    """Puts the weights of a model's layers through a format from now on; returns the model."""
    for layer in list(model.modules()):
        if isinstance(layer, types):
            nn.utils.parametrize.register_parametrization(layer, "weight", Parametrization(format, axis))
    return model
