# SPDX-License-Identifier: Apache-2.0
"""Training with qk's formats in torch: fake_quantize with a gradient, layers, and a parametrization.

The gradient is straight through: it passes where a value is within the format's range. A scale or zero point that is a parameter learns, as in
LSQ and LSQ+.
"""

import torch
from torch import nn

from . import _arrays

__all__ = ["FakeQuantize", "fake_quantize", "Linear", "Conv1d", "Conv2d", "Conv3d", "Parametrization", "quantize_parameters"]


class FakeQuantize(torch.autograd.Function):
    """fake_quantize with a gradient by x and, where they are tensors, by scale and by zero point."""

    @staticmethod
    def forward(ctx, x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads):
        given = [v if isinstance(v, torch.Tensor) else None for v in (scale, zero_point)]
        ctx.save_for_backward(x, *given)
        ctx.options = {"format": format, "semantics": semantics, "rounding": rounding, "scale_axis": scale_axis, "scale_block": scale_block}
        ctx.plain = {"scale": scale if given[0] is None else None, "zero_point": zero_point if given[1] is None else None}
        return _arrays.fake_quantize(x, axis=axis, threads=threads, **ctx.options, **_scales(ctx, *given))

    @staticmethod
    def backward(ctx, grad):
        x, scale, zero_point = ctx.saved_tensors
        result = _arrays.fake_quantize_backward(x, grad.contiguous(), **ctx.options, **_scales(ctx, scale, zero_point))
        by_x, by_scale, by_zero = result if isinstance(result, tuple) else (result, None, None)
        shaped = [None if v is None or not v.is_floating_point() else torch.as_tensor(by, dtype=v.dtype).reshape(v.shape)
                  for v, by in ((scale, by_scale), (zero_point, by_zero))]
        return (by_x, *shaped, *[None] * 7)


def _scales(ctx, scale, zero_point):
    """Returns scale and zero point as the kernels take them: flat unless there are blocks, zero points rounded."""
    flat = (lambda v: v.detach().reshape(-1)) if ctx.options["scale_block"] is None else (lambda v: v.detach())
    given = dict(ctx.plain)
    if scale is not None:
        given["scale"] = flat(scale)
    if zero_point is not None:
        given["zero_point"] = flat(zero_point).round().to(torch.int64)
    return given


def fake_quantize(x, format, axis=-1, semantics="ocp", rounding=None, scale=None, zero_point=None, scale_axis=None, scale_block=None, threads=1):
    """Returns qk.fake_quantize(x, format, ...), through which gradients pass. `scale` and `zero_point` may be parameters that learn."""
    return FakeQuantize.apply(x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads)


def _by_range(format, x, axis):
    """Returns x as the format has it; an integer format gets the scale (an unsigned one the zero point, too) of x's finite range."""
    spec = _arrays._spec(format)
    if spec.is_block or not spec.is_integer:
        return fake_quantize(x, format, axis=axis)
    facts, values = spec.facts, x.detach()
    values = values[torch.isfinite(values)].float()
    if values.numel() == 0:
        return fake_quantize(x, format, axis=axis, scale=1.0)
    largest = float(facts["largest"])
    if facts["lowest"] < 0:
        most = float(values.abs().max())
        return fake_quantize(x, format, axis=axis, scale=_positive(most / largest))
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = _positive((high - low) / largest)
    return fake_quantize(x, format, axis=axis, scale=scale, zero_point=min(round(-low / scale), int(largest)))


def _positive(scale):
    """Returns a scale that float32 has: 1 for that of zeros alone, the smallest normal number for one below it."""
    return 1.0 if scale == 0 else max(scale, float(torch.finfo(torch.float32).tiny))


class _Quantized:
    """What the layers share: formats of weight and activation, whose integer scales follow the data at each step."""

    def _formats(self, weight, activation):
        for format in (weight, activation):
            if format is not None:
                _arrays._spec(format)  # a wrong name is an error here, not at the first step
        self.weight_format, self.activation_format = weight, activation
        return self

    def _weight(self):
        return self.weight if self.weight_format is None else _by_range(self.weight_format, self.weight, 1)

    def _activation(self, x, axis):
        return x if self.activation_format is None else _by_range(self.activation_format, x, axis)

    def extra_repr(self):
        return f"{super().extra_repr()}, weight={self.weight_format}, activation={self.activation_format}"

    @classmethod
    def of(cls, layer, weight=None, activation=None):
        """Returns a layer of these formats that shares the parameters of a layer of torch."""
        made = cls.__new__(cls)
        made.__dict__.update(layer.__dict__)
        return made._formats(weight, activation)


class Linear(_Quantized, nn.Linear):
    """nn.Linear whose weight and input go through formats."""

    def __init__(self, *args, weight=None, activation=None, **more):
        nn.Linear.__init__(self, *args, **more)
        self._formats(weight, activation)

    def forward(self, x):
        return nn.functional.linear(self._activation(x, -1), self._weight(), self.bias)


class _Conv(_Quantized):
    def forward(self, x):
        channels = x.dim() - len(self.kernel_size) - 1  # 1, and 0 where there is no batch
        return self._conv_forward(self._activation(x, channels), self._weight(), self.bias)


class Conv1d(_Conv, nn.Conv1d):
    """nn.Conv1d whose weight and input go through formats; blocks run along the input channels."""

    def __init__(self, *args, weight=None, activation=None, **more):
        nn.Conv1d.__init__(self, *args, **more)
        self._formats(weight, activation)


class Conv2d(_Conv, nn.Conv2d):
    """nn.Conv2d whose weight and input go through formats; blocks run along the input channels."""

    def __init__(self, *args, weight=None, activation=None, **more):
        nn.Conv2d.__init__(self, *args, **more)
        self._formats(weight, activation)


class Conv3d(_Conv, nn.Conv3d):
    """nn.Conv3d whose weight and input go through formats; blocks run along the input channels."""

    def __init__(self, *args, weight=None, activation=None, **more):
        nn.Conv3d.__init__(self, *args, **more)
        self._formats(weight, activation)


class Parametrization(nn.Module):
    """For torch.nn.utils.parametrize: a parameter as a format has it."""

    def __init__(self, format, axis=1):
        super().__init__()
        _arrays._spec(format)
        self.format, self.axis = format, axis

    def forward(self, x):
        return _by_range(self.format, x, min(self.axis, x.dim() - 1))

    def extra_repr(self):
        return f"{self.format}, axis={self.axis}"


def quantize_parameters(model, format, types=(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), axis=1):
    """Puts the weights of a model's layers through a format from now on, in place of one that they went through before; returns the model."""
    for layer in list(model.modules()):
        if not isinstance(layer, types):
            continue
        if nn.utils.parametrize.is_parametrized(layer, "weight"):
            ours = [p for p in layer.parametrizations["weight"] if isinstance(p, Parametrization)]
            if ours:
                ours[-1].format, ours[-1].axis = format, axis
                continue
        nn.utils.parametrize.register_parametrization(layer, "weight", Parametrization(format, axis))
    return model
