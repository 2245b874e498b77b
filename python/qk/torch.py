# SPDX-License-Identifier: Apache-2.0
"""Training with qk's formats in torch: fake_quantize with a gradient, layers, a parametrization, and the file that comes of them.

The gradient is straight through: it passes where a value is within the format's range. A scale or zero point that is a parameter learns, as in
LSQ and LSQ+. fake_quantize and by_range are operators of torch (torch.ops.qk), which torch.compile, torch.export and torch.func know.
"""

import ast
import functools
import warnings

import torch
from torch import nn

from . import _arrays

__all__ = ["FakeQuantize", "fake_quantize", "by_range", "Linear", "Conv1d", "Conv2d", "Conv3d", "Parametrization", "quantize_layers", "quantize_parameters",
           "fold_batch_norm", "export", "onnx_table"]


class FakeQuantize(torch.autograd.Function):
    """fake_quantize with a gradient by x and, where they are tensors, by scale and by zero point: the short way past torch's dispatcher."""

    @staticmethod
    def forward(ctx, x, scale, zero_point, *options):
        ctx.save_for_backward(x, *(v if isinstance(v, torch.Tensor) else None for v in (scale, zero_point)))
        ctx.plain = tuple(None if isinstance(v, torch.Tensor) else v for v in (scale, zero_point))
        ctx.options = options
        return _forward(x, scale, zero_point, *options)

    @staticmethod
    def backward(ctx, grad):
        x, *scales = ctx.saved_tensors
        given = [v if p is None else p for v, p in zip(scales, ctx.plain)]
        return (*_backward(grad, x, *given, *ctx.options), *[None] * len(ctx.options))


def _scales(scale, zero_point, scale_axis, scale_block):
    """Returns scale and zero point as the kernels take them: numbers, or tensors that are flat unless there are blocks; zero points rounded."""
    if scale_axis is None:
        scale, zero_point = (v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for v in (scale, zero_point))
        return {"scale": scale, "zero_point": round(zero_point) if isinstance(zero_point, float) else zero_point}
    flat = (lambda v: v.detach().reshape(-1)) if scale_block is None else (lambda v: v.detach())
    return {"scale": flat(scale) if isinstance(scale, torch.Tensor) else scale,
            "zero_point": flat(zero_point).round().to(torch.int64) if isinstance(zero_point, torch.Tensor) else zero_point}


def _forward(x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads):
    if scale is None and zero_point is None:
        return _arrays.fake_quantize(x.detach(), format, axis, semantics, rounding, threads=threads)
    return _arrays.fake_quantize(x.detach(), format, axis, semantics, rounding, scale_axis=scale_axis, scale_block=scale_block, threads=threads,
                                 **_scales(scale, zero_point, scale_axis, scale_block))


def _backward(grad, x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads):
    """Returns the gradients by x, by scale and by zero point; None for what is no tensor of floats."""
    result = _arrays.fake_quantize_backward(x, grad.contiguous(), format, semantics, rounding, scale_axis=scale_axis, scale_block=scale_block,
                                            **_scales(scale, zero_point, scale_axis, scale_block))
    by_x, *by_scales = result if isinstance(result, tuple) else (result, None, None)
    return (by_x, *(torch.as_tensor(by, dtype=v.dtype).reshape(v.shape) if isinstance(v, torch.Tensor) and v.is_floating_point() else None
                    for v, by in zip((scale, zero_point), by_scales)))


# ---- operators of torch

_options = "str format, int axis, str semantics, str? rounding, int? scale_axis, int? scale_block, int threads"


@torch.library.custom_op("qk::fake_quantize", mutates_args=(), schema=f"(Tensor x, Tensor? scale, Tensor? zero_point, {_options}) -> Tensor")
def _fake_quantize(x, scale, zero_point, format, axis, semantics, *more):
    return _forward(x, scale, zero_point, format, axis, _semantics_of(semantics), *more).contiguous()


@torch.library.custom_op("qk::fake_quantize_backward", mutates_args=(),
                         schema=f"(Tensor grad, Tensor x, Tensor? scale, Tensor? zero_point, {_options}) -> (Tensor, Tensor, Tensor)")
def _fake_quantize_backward(grad, x, scale, zero_point, format, axis, semantics, *more):
    by_all = _backward(grad, x, scale, zero_point, format, axis, _semantics_of(semantics), *more)
    return tuple(x.new_empty(0) if by is None else by for by in by_all)


@torch.library.custom_op("qk::by_range", mutates_args=(), schema="(Tensor x, str format, int axis) -> Tensor")
def _by_range(x, format, axis):
    scale, zero_point = _range_scale(format, x, None)
    return _forward(x, scale, zero_point, format, axis, "ocp", None, None, None, 1).contiguous()


_fake_quantize.register_fake(lambda x, *_: x.new_empty(x.shape))
_by_range.register_fake(lambda x, *_: x.new_empty(x.shape))


@_fake_quantize_backward.register_fake
def _(grad, x, scale, zero_point, *_):
    return (x.new_empty(x.shape), *(v.new_empty(v.shape) if v is not None and v.is_floating_point() else x.new_empty(0)
                                    for v in (scale, zero_point)))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3])
    ctx.options = inputs[3:]


def _of_operator(ctx, grad):
    x, scale, zero_point = ctx.saved_tensors
    call = _TransformedBackward.apply if _is_transformed() else _fake_quantize_backward
    by_x, by_scale, by_zero = call(grad, x, scale, zero_point, *ctx.options)
    learns = [v is not None and v.is_floating_point() for v in (scale, zero_point)]
    return (by_x, by_scale if learns[0] else None, by_zero if learns[1] else None, *[None] * len(ctx.options))


def _within_range(x, grad):
    """Returns the gradient of by_range: a range that follows the values holds them all, whichever way their quotients are rounded."""
    return torch.where(torch.isfinite(x), grad, 0)


_fake_quantize.register_autograd(_of_operator, setup_context=_keep)
_by_range.register_autograd(lambda ctx, grad: (_within_range(ctx.saved_tensors[0], grad), None, None),
                            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


def _one_by_one(operator, info, in_dims, *given):
    """Calls an operator for each sample of torch.func.vmap: scales of a tensor are those of one sample."""
    made = [operator(*(v if d is None else v.select(d, i) for v, d in zip(given, in_dims))) for i in range(info.batch_size)]
    if isinstance(made[0], tuple):
        return tuple(torch.stack(each) for each in zip(*made)), (0,) * len(made[0])
    return torch.stack(made), 0


for _operator in (_fake_quantize, _fake_quantize_backward, _by_range):
    _operator.register_vmap(functools.partial(_one_by_one, _operator))


def _text_of(semantics):
    """Returns semantics as the operators have them: a name, or a dictionary's text with the name as "base"."""
    return semantics if isinstance(semantics, str) else semantics._text


@functools.lru_cache
def _semantics_of(text):
    if not text.startswith("{"):
        return text
    choices = ast.literal_eval(text)
    return _arrays.Semantics(choices.pop("base"), **choices)


class _ByRange(torch.autograd.Function):
    """by_range with a gradient: the short way past torch's dispatcher."""

    @staticmethod
    def forward(ctx, x, format, axis, channels):
        ctx.save_for_backward(x)
        scale, zero_point = _range_scale(format, x, channels)
        return _forward(x, scale, zero_point, format, axis, "ocp", None, channels, None, 1)

    @staticmethod
    def backward(ctx, grad):
        return _within_range(ctx.saved_tensors[0], grad), None, None, None


class _Transformed(torch.autograd.Function):
    """fake_quantize under torch.func, whose transforms take no gradient of an operator from torch.library."""

    @staticmethod
    def forward(x, scale, zero_point, *options):
        return _fake_quantize(x, scale, zero_point, *options)

    setup_context = staticmethod(_keep)
    backward = staticmethod(_of_operator)

    @staticmethod
    def vmap(info, in_dims, *given):
        return _one_by_one(_Transformed.apply, info, in_dims, *given)


class _TransformedBackward(torch.autograd.Function):
    """The gradient of _Transformed, which has none of its own."""

    @staticmethod
    def forward(*given):
        return _fake_quantize_backward(*given)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("qk.torch.fake_quantize has a gradient, and no second one")

    @staticmethod
    def vmap(info, in_dims, *given):
        return _one_by_one(_TransformedBackward.apply, info, in_dims, *given)


def _is_watched(x):
    """Is true where torch records what happens to x (torch.compile, torch.export) and has to see operators."""
    return torch.compiler.is_compiling() or type(x) not in (torch.Tensor, nn.Parameter) or torch._C._len_torch_dispatch_stack() > 0


def _is_exported():
    """Is true where torch.export records a model, which is not to learn."""
    return torch.compiler.is_compiling() and getattr(torch.compiler, "is_exporting", bool)()


def _is_transformed():
    """Is true inside of torch.func's transforms."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def fake_quantize(x, format, axis=-1, semantics="ocp", rounding=None, scale=None, zero_point=None, scale_axis=None, scale_block=None, threads=1):
    """Returns qk.fake_quantize(x, format, ...), through which gradients pass. `scale` and `zero_point` may be parameters that learn."""
    transformed = _is_transformed()
    if not transformed and not _is_watched(x):
        if not (torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in (x, scale, zero_point))):
            return _forward(x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads)
        return FakeQuantize.apply(x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads)
    scale, zero_point = (v if v is None or isinstance(v, torch.Tensor) else torch.tensor(v, dtype=t)
                         for v, t in ((scale, torch.float32), (zero_point, torch.int64)))
    call = _Transformed.apply if transformed else _fake_quantize
    return call(x, scale, zero_point, getattr(format, "name", format), axis, _text_of(semantics), rounding, scale_axis, scale_block, threads)


@torch.compiler.assume_constant_result
def _is_block(format):
    return _arrays._spec(format).is_block


@torch.compiler.assume_constant_result
def _range_of(format):
    """Returns the lowest and the largest number of an integer at scale 1; None for formats whose scale no range says."""
    spec = _arrays._spec(format)
    if spec.is_block or not spec.is_integer:
        return None
    facts, modifiers = spec.facts, spec.text.partition(":")[2]
    if "pow2" in modifiers or ("symmetric" in modifiers and facts["lowest"] >= 0):
        raise ValueError(f"format {spec.text} has scales of its own kind; give scale= to fake_quantize")
    return float(facts["lowest"]), float(facts["largest"])


def _range_scale(format, x, channels):
    """Returns the scale (and for unsigned integers the zero point) of the finite range of x, or of each index of the axis `channels`, as
    dynamic quantizers of a file compute them: in float64, rounded to float32; uint8's in float32, as DynamicQuantizeLinear does."""
    lowest, largest = _range_of(format)
    x = x.detach().float()
    x = torch.where(torch.isfinite(x), x, 0.0)
    if x.numel() == 0:
        return torch.ones([] if channels is None else x.shape[channels]), None
    rest = tuple(range(x.dim())) if channels is None else tuple(i for i in range(x.dim()) if i != channels)
    low, high = x.amin(rest).clamp(max=0), x.amax(rest).clamp(min=0)
    if format != "uint8":
        low, high = low.double(), high.double()
    scale = torch.maximum(-low, high) / largest if lowest < 0 else (high - low) / largest
    tiny = scale.float() < torch.finfo(torch.float32).tiny  # zeros, or too small to divide by
    zero = None if lowest < 0 else torch.where(tiny, 0.0, (-low / scale).round().clamp(0, largest)).long()
    return torch.where(tiny, 1.0, scale.float()), zero


def by_range(x, format, axis=-1, channels=None):
    """Returns x as a format has it. An integer's scale (an unsigned one's zero point, too) is that of the range of x, or with `channels`, an
    axis, of each channel's; other formats need none."""
    if _range_of(format) is None:
        return fake_quantize(x, format, axis)
    channels = channels if x.dim() > 1 else None
    transformed, watched = _is_transformed(), _is_watched(x)
    if not transformed and not watched:
        return _ByRange.apply(x, format, axis, channels)
    if channels is None and not transformed:
        return _by_range(x, getattr(format, "name", format), axis)
    scale, zero_point = _range_scale(format, x, channels)
    learns = x.requires_grad and torch.is_grad_enabled() and not _is_exported()
    y = fake_quantize(x.detach() if learns else x, format, axis, scale=scale, zero_point=zero_point, scale_axis=channels)
    return y + _within_range(x, x - x.detach()) if learns else y  # y, and the gradient of x


def _of_filters(weight, format, axis, groups):
    """Returns a layer's weight as a format has it: integers have a scale for each output channel. Blocks of a grouped convolution, which has
    few channels for each filter, run over whole filters, as in a file."""
    if groups == 1 or weight.dim() < 3 or axis != 1 or not _is_block(format):
        return by_range(weight, format, axis, channels=0)
    return by_range(weight.flatten(1), format, 1).reshape(weight.shape)


class _Quantized:
    """What the layers share: formats of weight and activation, whose integer scales follow the data at each step."""

    def _formats(self, weight, activation):
        for format in (weight, activation):
            if format is not None:
                _arrays._spec(format)  # a wrong name is an error here, not at the first step
        self.weight_format, self.activation_format = weight, activation
        return self

    def _weight(self):
        return self.weight if self.weight_format is None else by_range(self.weight, self.weight_format, 1, channels=0)

    def _activation(self, x, axis):
        return x if self.activation_format is None else by_range(x, self.activation_format, axis)

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
    def _weight(self):
        return self.weight if self.weight_format is None else _of_filters(self.weight, self.weight_format, 1, self.groups)

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

    def __init__(self, format, axis=1, groups=1):
        super().__init__()
        _arrays._spec(format)
        self.format, self.axis, self.groups = format, axis, groups

    def forward(self, x):
        return _of_filters(x, self.format, min(self.axis, x.dim() - 1), self.groups)

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
        nn.utils.parametrize.register_parametrization(layer, "weight", Parametrization(format, axis, getattr(layer, "groups", 1)))
    return model


def quantize_layers(model, weight=None, activation=None):
    """Has the Linear and Conv layers of a model round their weights and what they read from now on; returns the model, or the layer that
    takes its place if it is one itself. A layer whose class has a forward of its own stays as it is, which a warning says."""
    kinds = {nn.Linear: Linear, nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d} | {own: own for own in (Linear, Conv1d, Conv2d, Conv3d)}
    left = []
    for name, layer in list(model.named_modules()):
        kind = kinds.get(type(layer))
        if kind is None:
            if isinstance(layer, tuple(kinds)):
                left.append(name or type(layer).__name__)
            elif isinstance(layer, nn.TransformerEncoderLayer):
                layer.activation_relu_or_gelu = 0  # or it computes past its layers where nothing learns
        elif not name:
            return kind.of(layer, weight, activation)
        else:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, kind.of(layer, weight, activation))
    if left:
        warnings.warn(f"{len(left)} layers have a forward of their own and stay as they are: {', '.join(left[:4])}{', ...' if len(left) > 4 else ''}; "
                      "quantize_parameters(model, format) rounds their weights", stacklevel=2)
    return model


# ---- the way to a file


def fold_batch_norm(model):
    """Puts each BatchNorm behind a Linear or Conv layer into that layer's weight and bias, from its running statistics; returns the model, in
    which the norms are nn.Identity. A weight that was trained in a format is not on the format's grid any more once it is multiplied, so
    this comes before training in formats."""
    layers, norms = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

    class tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, (*layers, *norms, Parametrization)) or super().is_leaf_module(module, name)

    try:
        graph = tracer().trace(model)
    except Exception as e:
        raise ValueError(f"torch.fx cannot follow the model ({e}); fold its BatchNorm by hand: torch.nn.utils.fusion.fuse_conv_bn_eval") from e
    modules, calls = dict(model.named_modules()), [n for n in graph.nodes if n.op == "call_module"]
    times = {n.target: sum(m.target == n.target for m in calls) for n in calls}
    for n in calls:
        norm, source = modules[n.target], n.args[0]
        if not isinstance(norm, norms) or source not in calls or not isinstance(modules[source.target], layers) or len(source.users) > 1:
            continue
        if times[n.target] > 1 or times[source.target] > 1 or norm.running_var is None:
            continue
        _fold(modules[source.target], norm)
        parent, _, name = n.target.rpartition(".")
        setattr(model.get_submodule(parent), name, nn.Identity())
    return model


@torch.no_grad()
def _fold(layer, norm):
    factor = torch.rsqrt(norm.running_var.double() + norm.eps) * (1.0 if norm.weight is None else norm.weight.double())
    weight = layer.parametrizations.weight.original if nn.utils.parametrize.is_parametrized(layer, "weight") else layer.weight
    weight.copy_(weight.double() * factor.reshape(-1, *[1] * (weight.dim() - 1)))
    bias = (0.0 if layer.bias is None else layer.bias.double()) - norm.running_mean.double()
    bias = bias * factor + (0.0 if norm.bias is None else norm.bias.double())
    if layer.bias is None:
        layer.bias = nn.Parameter(bias.to(weight.dtype))
    else:
        layer.bias.copy_(bias)


def onnx_table():
    """Returns what torch.onnx.export(..., dynamo=True, custom_translation_table=...) writes for the operators: calls of the functions of
    qk's portable files, or pairs of QuantizeLinear and DequantizeLinear where those hold the format."""
    from . import _torch_export

    return _torch_export.table(_torch_export.Writer())


def export(model, example, file=None, *, dynamic_shapes=None, input_names=None, output_names=None, **options):
    """Writes a model that was trained in formats as ONNX, by torch.onnx.export(dynamo=True): what its layers round, the file rounds.

    model        a module; weights and activations go through qk.torch's layers, parametrizations or functions
    example      a tensor, a tuple of arguments or a dictionary of them by name
    file         the file to write; None: .model and .save of the result have it
    dynamic_shapes, input_names, output_names    as in torch.onnx.export; by default the first axis of all inputs is free
    options      of qk.quantize: export="qdq" or another style, target=, overwrite=True

    Returns the result of qk.quantize, with .model, .plan, .save.
    """
    from . import _torch_export

    return _torch_export.export(model, example, file, dynamic_shapes, input_names, output_names, options)
