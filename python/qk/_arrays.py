# SPDX-License-Identifier: Apache-2.0
"""Arrays through formats: fake_quantize, encode, decode, and the gradient.

Every array becomes a numpy view of float32, float16, or uint16 that holds the bits of bfloat16 (numpy has no such type). Where its
strides allow it nothing is copied: an array whose axes are only permuted is rounded as it lies in memory.
"""

import operator
import os
import sys

import numpy as np

from . import _files, _qk

_float32, _float16, _uint16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.uint16)
_ndarray, _empty, _plain = np.ndarray, np.empty, _qk.fake_quantize_plain
_kinds = {_float32: 0, _float16: 1}  # what _plain takes; ml_dtypes' bfloat16 is 2, once it was seen
_specs = {}


class Semantics:
    """What a system does where a format leaves a choice: a name, and the choices that differ from it.

    >>> qk.fake_quantize(x, "mxfp4", semantics=qk.Semantics("ocp", scale_rule="rceil"))

    The choices are the command's options (`qk convert --help`) under the same names.
    """

    __slots__ = ("name", "rounding", "scale_rule", "integer_mode", "overflow", "seed", "random_bits", "_flags", "_text")

    def __init__(self, name="ocp", *, rounding=None, scale_rule=None, integer_mode=None, overflow=None, seed=0, random_bits=None,
                 zero_point_before=False, mxint_lowest=False, flush_inputs=False, flush_outputs=False):
        self.name, self.rounding, self.scale_rule = name, rounding, scale_rule
        self.integer_mode, self.overflow, self.seed, self.random_bits = integer_mode, overflow, seed, random_bits
        for what, value in (("name", name), ("rounding", rounding), ("scale_rule", scale_rule), ("integer_mode", integer_mode), ("overflow", overflow)):
            if value is not None or what == "name":
                _word(value, what)
        for what, value, least, most in (("seed", seed, 0, 2**64 - 1), ("random_bits", random_bits, 1, 32)):
            if value is not None and not least <= _whole(value, what) <= most:
                raise ValueError(f"{what} is {value}; it must be {least} to {most}")
        flags = {"zero_point_before": zero_point_before, "mxint_lowest": mxint_lowest, "flush_inputs": flush_inputs, "flush_outputs": flush_outputs}
        self._flags = tuple(name for name, value in flags.items() if value)
        _qk.Spec("fp32", name, *self._choices())  # raises ValueError for a wrong word
        choices = {n: v if isinstance(v, (str, bool)) else int(v) for n, v in self.choices().items()}
        self._text = repr({"base": name, **choices}) if choices else name  # as qk.torch's operators have it

    zero_point_before = property(lambda self: "zero_point_before" in self._flags)
    mxint_lowest = property(lambda self: "mxint_lowest" in self._flags)
    flush_inputs = property(lambda self: "flush_inputs" in self._flags)
    flush_outputs = property(lambda self: "flush_outputs" in self._flags)

    def choices(self):
        """Returns what differs from the name's own choices, by the names of the constructor."""
        given = {n: v for n, v in zip(self.__slots__[1:-1], self._key()[1:-1]) if v}
        return {**given, **dict.fromkeys(self._flags, True)}

    def _choices(self, rounding=None):
        """Returns what qk._qk.Spec takes behind the name."""
        return (rounding or self.rounding, self.scale_rule, self.integer_mode, self.overflow, self.seed, self.random_bits, list(self._flags))

    def _key(self):
        return (self.name, self.rounding, self.scale_rule, self.integer_mode, self.overflow, self.seed, self.random_bits, self._flags)

    def __eq__(self, other):
        return isinstance(other, Semantics) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __reduce__(self):
        return (_semantics_of, self._key())

    def __repr__(self):
        return f"Semantics({', '.join([repr(self.name), *(f'{n}={v!r}' for n, v in self.choices().items())])})"


def _semantics_of(name, rounding, scale_rule, integer_mode, overflow, seed, random_bits=None, flags=()):
    return Semantics(name, rounding=rounding, scale_rule=scale_rule, integer_mode=integer_mode, overflow=overflow, seed=seed,
                     random_bits=random_bits, **dict.fromkeys(flags, True))


def _whole(value, name):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be a whole number") from None


def _word(value, name):
    """Returns a word that the library can read, which is UTF-8 and has no end within."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; give its name")
    if "\0" in value or not value.isprintable():
        raise ValueError(f"{name} is {value[:80]!r}, which has characters that no name has")
    return value


def _spec(format, semantics="ocp", rounding=None):
    """Returns the parsed format; formats are few, so all are kept."""
    key = (format, semantics, rounding)
    try:
        return _specs[key]
    except KeyError:
        pass
    except TypeError:
        raise TypeError(f"the format is its name, as 'mxfp4', not {type(format).__name__}") from None
    text = getattr(format, "name", format)
    if not isinstance(text, str):
        raise TypeError(f"the format is its name, as 'mxfp4', not {type(format).__name__}")
    if rounding is not None and not isinstance(rounding, str):
        raise TypeError(f"rounding is a name, as 'half-even', not {type(rounding).__name__}")
    if isinstance(semantics, str):
        semantics = Semantics(semantics)
    elif not isinstance(semantics, Semantics):
        raise TypeError(f"semantics is a name, as 'ocp', or a qk.Semantics, not {type(semantics).__name__}")
    spec = _qk.Spec(_word(text, "format"), semantics.name, *semantics._choices(rounding))
    if len(_specs) < 4096:
        _specs[key] = spec
    return spec


def architecture():
    """Returns the instruction set that the kernels use here: sse2, avx2, avx512, avx512_vnni or neon. QK_ARCH in the environment chooses another."""
    return _qk.architecture()


# ---- arrays of other libraries


class _Source:
    """An array of the caller's: a numpy array of a kind that the kernels take, and how to give results the caller's type."""

    __slots__ = ("bits", "dtype", "library", "copied")

    def __init__(self, bits, dtype, library, copied=False):
        self.bits, self.dtype, self.library, self.copied = bits, dtype, library, copied


def _refuse_device(name, device):
    raise ValueError(f"{name} is on {device}; qk computes on the CPU: bring it there first (x.cpu(), or jax.device_get(x))")


def _library_of(x):
    return type(x).__module__.partition(".")[0]


def _torch_to_numpy(x, name):
    import torch

    if x.device.type != "cpu":
        _refuse_device(name, x.device)
    if x.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor; give a dense one: x.to_dense()")
    if x.is_quantized:
        raise TypeError(f"{name} is a quantized tensor; give its values: x.dequantize()")
    x = x.detach().resolve_conj().resolve_neg()
    if x.dtype == torch.bfloat16:
        return x.view(torch.uint16).numpy()
    narrow = _narrow(str(x.dtype).removeprefix("torch."), name)
    return x.numpy() if narrow is None else x.view(torch.uint8).numpy().view(narrow)


def _narrow(dtype, name):
    """Returns ml_dtypes' type for one of torch's floats of 8 bits; None for a type that numpy has."""
    if not dtype.startswith("float8_"):
        return None
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"{name} holds torch.{dtype}; install ml_dtypes, or give x.float()") from None
    return getattr(ml_dtypes, dtype)


def _to_numpy(x, name):
    """Returns (numpy array, library, name of the dtype)."""
    if isinstance(x, np.ndarray):
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array, whose mask no format keeps; give x.data, or x.filled(...)")
        return x, "numpy", x.dtype.name
    library = _library_of(x)
    if library == "torch":
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in ("float32", "float16", "bfloat16", "float64") and dtype.startswith("float") and _narrow(dtype, name) is None:
            raise TypeError(f"{name} holds torch.{dtype}; give x.float()")
        return _torch_to_numpy(x, name), library, dtype
    if library in ("jax", "jaxlib"):
        if "Tracer" in type(x).__name__:
            raise TypeError(f"{name} is being traced (by jax.jit or jax.grad) and has no values yet; call qk through jax.pure_callback")
        devices = x.devices() if callable(getattr(x, "devices", None)) else ()
        for d in devices:
            if d.platform != "cpu":
                _refuse_device(name, d)
        return np.asarray(x), "jax", x.dtype.name
    if isinstance(x, (list, tuple, float, int, np.number)):
        plain = np.asarray(x)
        if plain.dtype.kind in "fiu" and not isinstance(x, np.generic):
            plain = plain.astype(np.float32)  # Python's own numbers have no width that a caller chose
        return plain, "numpy", plain.dtype.name
    where = getattr(x, "__dlpack_device__", None)
    if where is not None:
        kind, index = where()
        if int(kind) != 1:
            _refuse_device(name, f"device {index} of DLPack type {int(kind)}")
        try:
            plain = np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as e:
            raise TypeError(f"{name} cannot be read by DLPack ({e}); give an array of float32 or float16") from e
        return plain, "numpy", plain.dtype.name
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        plain = np.asarray(x)
        return plain, "numpy", plain.dtype.name
    try:
        plain = np.asarray(memoryview(x))
    except TypeError:
        raise TypeError(f"{name} is a {type(x).__name__}; give an array (numpy, torch, jax, or anything with DLPack or a buffer)") from None
    return plain, "numpy", plain.dtype.name


def _source(x, name="x"):
    """Brings an array into a kind that the kernels take. Narrow floats of ml_dtypes become float32, which holds all their values. What lies
    unaligned in memory is a case for _aligned."""
    plain, library, dtype = _to_numpy(x, name)
    if dtype == "bfloat16":
        bits = plain if plain.dtype == _uint16 else plain.view(_uint16)
        if plain is x:
            _kinds[plain.dtype] = 2
        return _Source(bits, "bfloat16", library)
    if plain.dtype == _float32 or plain.dtype == _float16:
        return _Source(plain, plain.dtype, library)
    if not plain.dtype.isnative and plain.dtype.newbyteorder("=") in (_float32, _float16):
        return _Source(plain.astype(plain.dtype.newbyteorder("=")), plain.dtype, library, True)
    if dtype.startswith(("float8_", "float6_", "float4_")):
        return _Source(plain.astype(np.float32), plain.dtype, library, True)
    if dtype == "float64":
        raise TypeError(f"{name} holds float64; qk rounds float32: give x.astype('float32'), and know that it rounds twice")
    raise TypeError(f"{name} holds {dtype}; give float32, float16, bfloat16 or a float of ml_dtypes")


def _result(source, bits):
    """Gives a result the type and the library of the array that it came from."""
    dtype = source.dtype
    if source.library == "torch":
        import torch

        if dtype == "bfloat16":
            return torch.from_numpy(bits).view(torch.bfloat16)
        if dtype.name.startswith("float8_"):
            return torch.from_numpy(bits.astype(dtype).view(np.uint8)).view(getattr(torch, dtype.name))
        return torch.from_numpy(bits)
    if dtype == "bfloat16":
        import ml_dtypes

        bits = bits.view(ml_dtypes.bfloat16)
    elif bits.dtype != dtype:
        bits = bits.astype(dtype)
    if source.library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(bits)
    return bits


def _aligned(bits):
    """Returns an array that a kernel can read: a copy where the numbers lie at odd addresses, as in a file's bytes behind a header."""
    return bits if bits.flags.aligned else bits.copy()


def _order(bits):
    """Returns the axes from the slowest to the fastest if the array fills its memory, permuted or not; None if it has to be copied."""
    if bits.flags.c_contiguous:
        return None if bits.ndim < 2 else tuple(range(bits.ndim))
    order = tuple(sorted(range(bits.ndim), key=lambda i: (-bits.strides[i], i)))
    return order if bits.transpose(order).flags.c_contiguous else None


def _axis(axis, bits, name="axis"):
    """Returns an axis counted from 0; -1 for a scalar."""
    axis = _whole(axis, name)
    rank = bits.ndim
    if rank == 0 and axis in (0, -1):
        return -1
    if not -rank <= axis < rank:
        limits = f"so it must be {-rank} to {rank - 1}" if rank else "and a scalar has no axis"
        raise ValueError(f"{name} {axis} is out of range: the array has shape {bits.shape}, {limits}")
    return axis % rank


def _numbers(value, dtype, name):
    held = None
    if isinstance(value, (int, float, list, tuple)):
        array = np.asarray(value)
    else:
        array, _, held = _to_numpy(value, name)
    if held == "bfloat16" and array.dtype == _uint16:  # torch's, as bits
        array = (array.astype(np.uint32) << 16).view(_float32)
    whole = dtype == np.int64
    if array.dtype.kind not in ("iu" if whole else "fiu") and (whole or not array.dtype.name.startswith(("bfloat16", "float8_"))):
        raise TypeError(f"{name} holds {array.dtype.name}; give {'whole numbers' if whole else 'numbers'}")
    if array.dtype == np.uint64 and whole and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} is {array.max()}, which no format has")
    if array.dtype == dtype:
        return array.copy()
    with np.errstate(over="ignore"):  # what becomes infinite is refused with its name
        return array.astype(dtype)


def _scales(bits, scale, zero_point, scale_axis, scale_block):
    """Returns (scale, zero_point, axis, block) as the kernels take them, in the order of the array's axes."""
    if scale is None and zero_point is None:
        if scale_axis is not None or scale_block is not None:
            raise ValueError("scale_axis and scale_block say where scales run along: give scale, too")
        return None, None, -1, 0
    s = None if scale is None else _numbers(scale, np.float32, "scale")
    z = None if zero_point is None else _numbers(zero_point, np.int64, "zero_point")
    if scale_axis is None:
        if scale_block is not None:
            raise ValueError("scale_block needs scale_axis, the axis that blocks run along")
        for array, name in ((s, "scale"), (z, "zero_point")):
            if array is not None and array.size != 1:
                raise ValueError(f"{name} has {array.size} entries: say scale_axis=N, the axis of the array that they run along")
        return (None if s is None else s.reshape(1)), (None if z is None else z.reshape(1)), -1, 0
    if s is None:
        raise ValueError("scale_axis needs scale")
    axis = _axis(scale_axis, bits, "scale_axis")
    if axis < 0:
        raise ValueError("scale_axis: a scalar has no axis; give one scale")
    if scale_block is None:
        for array, name in ((s, "scale"), (z, "zero_point")):
            if array is not None and array.size != bits.shape[axis]:
                raise ValueError(
                    f"{name} has {array.size} entries, and axis {axis} of shape {bits.shape} has {bits.shape[axis]} channels; give one each"
                    " (or scale_block=N for blocks)"
                )
        return s.reshape(-1), (None if z is None else z.reshape(-1)), axis, 0
    block = _whole(scale_block, "scale_block")
    if block < 1:
        raise ValueError(f"scale_block is {block}; it must be 1 or more")
    block = min(block, max(bits.shape[axis], 1))
    shape = tuple(-(-n // block) if i == axis else n for i, n in enumerate(bits.shape))
    for array, name in ((s, "scale"), (z, "zero_point")):
        if array is not None and array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}; blocks of {block} along axis {axis} of shape {bits.shape} need {shape}")
    return s, z, axis, block


def _threads(threads):
    threads = _whole(threads, "threads")
    if threads < 1:
        raise ValueError(f"threads is {threads}; it must be 1 or more")
    return min(threads, 1024)


def _words(words, bits, semantics):
    """Returns the random words of a caller, one for each value of `bits` in C order; None where there are none."""
    if words is None:
        return None
    words = np.asarray(words)
    if words.dtype != np.uint32:
        raise TypeError(f"random_words holds {words.dtype}; they are uint32")
    if words.shape != bits.shape and words.shape != (bits.size,):
        raise ValueError(f"random_words has shape {words.shape}; give one for each value of x, in its shape {bits.shape} or flat")
    if isinstance(semantics, Semantics) and semantics.seed:
        raise ValueError("random_words takes the place of the semantics' seed; leave one out")
    return np.ascontiguousarray(_aligned(words))


def _target(out, shape):
    """Returns the caller's `out` as a kind that the kernels take."""
    to = _source(out, "out")
    if to.copied:
        raise TypeError(f"out holds {getattr(out, 'dtype', '?')}; give float32, float16 or bfloat16 to write into")
    if to.library == "jax":
        raise TypeError("out is an array of jax, which cannot be written; leave out= away and take the result")
    if to.library == "torch" and _records(out):
        raise ValueError("out requires a gradient, which a write would not tell; give out.detach()")
    if isinstance(out, (list, tuple, int, float, np.generic)):
        raise TypeError(f"out is a {type(out).__name__}, which cannot be written; give an array")
    if to.bits.shape != shape:
        raise ValueError(f"out has shape {to.bits.shape}, and x {shape}")
    if not to.bits.flags.writeable:
        raise ValueError("out is read-only")
    if _lies_on_itself(to.bits):
        raise ValueError(f"out has strides {to.bits.strides} for shape {shape}: several of its elements share memory; give one with memory for each")
    return to


def _records(tensor):
    import torch

    return tensor.requires_grad and torch.is_grad_enabled()


def _lies_on_itself(bits):
    """Is true where elements of an array may share memory: some axis steps by less than the ones within it reach."""
    reach = bits.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(bits.strides, bits.shape) if n > 1):
        if stride < reach:
            return bits.size > 0
        reach += (n - 1) * stride
    return False


def _plain_torch(x, spec, axis, scale, zero_point):
    """Returns fake_quantize of a tensor of torch that a kernel can read as it lies; None for all that needs the long way, or its errors."""
    torch = sys.modules["torch"]
    if type(x) is not torch.Tensor or x.requires_grad:
        return None
    dtype = x.dtype
    try:
        bits = x.view(torch.uint16).numpy() if dtype is torch.bfloat16 else x.numpy()
    except (RuntimeError, TypeError):  # on a device, sparse, lazily negated
        return None
    kind = 2 if dtype is torch.bfloat16 else _kinds.get(bits.dtype)
    if kind is None:
        return None
    y = _empty(bits.shape, bits.dtype)
    if not _plain(spec, bits, y, axis, kind, scale, zero_point):
        return None
    y = torch.from_numpy(y)
    return y.view(dtype) if kind == 2 else y


def fake_quantize(x, format, axis=-1, semantics="ocp", rounding=None, scale=None, zero_point=None, scale_axis=None, scale_block=None,
                  out=None, threads=1, *, random_words=None):
    """Returns x after a trip through a number format: every value becomes the nearest that the format has.

    x            an array of numpy, torch or jax, or anything with DLPack or a buffer: float32, float16, bfloat16 or a float of ml_dtypes
    format       a name or textual form, as "mxfp4" (qk.formats())
    axis         the axis that blocks run along
    semantics    whose choices: a name (qk.semantics()) or a qk.Semantics
    rounding     another rounding than the semantics': a name (qk.roundings())
    scale, zero_point    one for the tensor; with scale_axis one for each index along that axis; with scale_block too, one for each block
    out          an array to write to and return; it may be x
    threads      how many threads share the work; the bits do not depend on it
    random_words your own bits for a stochastic rounding: uint32, one for each value

    The result has the type and shape of x. A tensor of torch gets no gradient through it; qk.torch.fake_quantize passes one. The command's
    name for this is `qk convert`.
    """
    if threads == 1 and scale_axis is None and scale_block is None and random_words is None:
        try:
            spec = _specs[format, semantics, rounding]
        except (KeyError, TypeError):
            spec = _spec(format, semantics, rounding)
        if type(x) is _ndarray:
            dtype = x.dtype
            if (kind := _kinds.get(dtype)) is not None and (out is None or (type(out) is _ndarray and out.dtype == dtype)):
                y = _empty(x.shape, dtype) if out is None else out
                if _plain(spec, x, y, axis, kind, scale, zero_point):
                    return y
                if out is None and x.ndim > 1 and x.flags.f_contiguous and type(axis) is int and -x.ndim <= axis < x.ndim and not spec.is_stochastic:
                    y = _empty(x.shape, dtype, "F")
                    if _plain(spec, x.T, y.T, -1 - axis % x.ndim, kind, scale, zero_point):
                        return y
        elif out is None and type(x).__module__ == "torch" and (y := _plain_torch(x, spec, axis, scale, zero_point)) is not None:
            return y
    spec = _spec(format, semantics, rounding)
    source = _source(x)
    bits = _aligned(source.bits)
    axis = _axis(axis, bits)
    s, z, scale_axis, block = _scales(bits, scale, zero_point, scale_axis, scale_block)
    threads, words = _threads(threads), _words(random_words, bits, semantics)
    order = None if spec.is_stochastic and not bits.flags.c_contiguous else _order(bits)
    target = None if out is None else _target(out, bits.shape)
    if order is None:
        order = tuple(range(bits.ndim))
        bits = np.ascontiguousarray(bits).reshape(bits.shape)
    if order != tuple(range(bits.ndim)):
        axis = order.index(axis)
        if scale_axis >= 0:
            scale_axis = order.index(scale_axis)
            if block:
                s, z = (None if v is None else v.transpose(order) for v in (s, z))
    s, z = (None if v is None else np.ascontiguousarray(v) for v in (s, z))
    in_order = bits.transpose(order)
    places = target.bits.transpose(order) if target is not None else None
    direct = places is not None and places.flags.c_contiguous and places.flags.aligned
    if direct and np.may_share_memory(places, in_order):
        same = places.__array_interface__["data"] == in_order.__array_interface__["data"] and places.dtype == in_order.dtype
        if not same:
            in_order = in_order.copy()
    y = places if direct else np.empty(in_order.shape, places.dtype if places is not None else in_order.dtype)
    _qk.fake_quantize(spec, in_order, y, axis, s, z, scale_axis, block, threads, words)
    if target is not None:
        if not direct:
            places[...] = y
        return out
    back = [0] * len(order)
    for i, at in enumerate(order):
        back[at] = i
    return _result(source, y.transpose(back))


class Packed:
    """A tensor at its true width: codes, and whatever scales the format keeps beside them.

    elements, scales, shifts and tensor_scale are numpy views of the planes (docs/reference/layouts.md); codes() has one number for each
    element. A packed tensor can be pickled, and decode() needs nothing else.
    """

    __slots__ = ("format", "shape", "axis", "data", "scale", "zero_point", "scale_axis", "scale_block", "_planes")

    def __init__(self, format, shape, axis, data, scale=None, zero_point=None, scale_axis=-1, scale_block=0):
        self.format, self.shape, self.axis, self.data = format, tuple(_whole(n, "shape") for n in shape), _whole(axis, "axis"), data
        self.scale, self.zero_point, self.scale_axis, self.scale_block = scale, zero_point, scale_axis, scale_block
        needed, self._planes = _qk.planes(_spec(format), list(shape), axis)
        if data.dtype != np.uint8 or data.ndim != 1 or data.size < needed:
            raise ValueError(f"{data.size} bytes of {data.dtype} for {format} of shape {self.shape}, which takes {needed} of uint8")

    def _plane(self, i):
        offset, count, width = self._planes[i]
        return self.data[offset : offset + -(-count * width // 8)]

    elements = property(lambda self: self._plane(0), doc="the bytes of the elements' codes")
    scales = property(lambda self: self._plane(1), doc="the bytes of the blocks' scales or exponents; empty if there are none")
    shifts = property(lambda self: self._plane(2), doc="the bytes of the sub-blocks' shifts; empty if there are none")
    tensor_scale = property(lambda self: self._plane(3).view(np.float32), doc="NVFP4's scale of the tensor; empty if there is none")
    nbytes = property(lambda self: self.data.nbytes)
    size = property(lambda self: int(np.prod(self.shape, dtype=np.int64)))

    def codes(self):
        """Returns each element's code as a number, in the tensor's shape."""
        offset, count, width = self._planes[0]
        if width % 8 == 0:
            kind = {8: np.uint8, 16: np.uint16, 32: np.uint32}.get(width)
            if kind is not None:
                return self._plane(0).view(kind)[:count].reshape(self.shape).copy()
        bits = np.unpackbits(self._plane(0), bitorder="little")[: count * width].reshape(count, width)
        weights = (1 << np.arange(width, dtype=np.uint64)).astype(np.uint64)
        return (bits.astype(np.uint64) @ weights).astype(np.uint32).reshape(self.shape)

    def decode(self, dtype="float32", out=None):
        return decode(self, dtype=dtype, out=out)

    def save(self, file):
        """Writes the archive that `qk convert --packed` writes; qk.Packed.load and `qk convert FILE.npz` read it."""
        members = {"elements": self.elements, "format": np.frombuffer(self.format.encode(), np.uint8), "layout": np.array([1], np.int64),
                   "shape": np.array(self.shape, np.int64), "axis": np.array([self.axis], np.int64)}
        for name, plane in (("scales", self.scales), ("shifts", self.shifts), ("tensor_scale", self._plane(3))):
            if plane.size:
                members[name] = plane
        if self.scale is not None and not _spec(self.format).is_block:
            members["scale"] = self.scale.reshape(-1)
            if self.zero_point is not None:
                members["zero_point"] = self.zero_point.reshape(-1)
            if self.scale_axis >= 0:
                members["scale_axis"] = np.array([self.scale_axis, self.scale_block], np.int64)
        if hasattr(file, "write"):
            np.savez(file, **members)
        else:
            name = os.fspath(file)
            _files.write({name if name.endswith(".npz") else name + ".npz": _files.npz(members)})

    @classmethod
    def load(cls, file):
        members = _files.read_arrays(file)
        if "elements" not in members or "format" not in members:
            raise ValueError(f"{file} is not a packed tensor: `qk convert --packed` and qk.Packed.save write such files")
        if int(members["layout"][0]) != 1:
            raise ValueError(f"{file} has layout {int(members['layout'][0])}; this qk reads layout 1")
        format, shape, axis = members["format"].tobytes().decode(), members["shape"].tolist(), int(members["axis"][0])
        planes = [members[n] for n in ("elements", "scales", "shifts", "tensor_scale") if n in members]
        scale_axis, block = members["scale_axis"].tolist() if "scale_axis" in members else (-1, 0)
        scale = members["scale"] if "scale" in members else None
        zero = members["zero_point"] if "zero_point" in members else None
        if block and scale is not None:
            grid = [-(-n // block) if i == scale_axis else n for i, n in enumerate(shape)]
            scale, zero = scale.reshape(grid), None if zero is None else zero.reshape(grid)
        return cls(format, shape, axis, np.concatenate(planes), scale, zero, scale_axis, block)

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("codes become numbers in an array of their own: a copy cannot be avoided")
        values = self.decode()
        return values if dtype is None else values.astype(dtype)

    def __reduce__(self):
        return (Packed, (self.format, self.shape, self.axis, self.data, self.scale, self.zero_point, self.scale_axis, self.scale_block))

    def _key(self):
        scales = [None if v is None else (v.shape, v.tobytes()) for v in (self.scale, self.zero_point)]
        return (self.format, self.shape, self.axis, self.scale_axis, self.scale_block, *scales, self.data.tobytes())

    def __eq__(self, other):
        return self._key() == other._key() if isinstance(other, Packed) else NotImplemented

    __hash__ = None  # its arrays can be changed

    def __len__(self):
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __repr__(self):
        return f"<qk.Packed {self.format} {self.shape}, axis {self.axis}, {self.nbytes} bytes>"


def encode(x, format, axis=-1, semantics="ocp", rounding=None, scale=None, zero_point=None, scale_axis=None, scale_block=None, *,
           random_words=None):
    """Returns x as codes of a format at their true width, a qk.Packed. encode(x).decode() is fake_quantize(x), bit for bit."""
    spec = _spec(format, semantics, rounding)
    source = _source(x)
    bits = np.ascontiguousarray(_aligned(source.bits)).reshape(source.bits.shape)
    axis = _axis(axis, bits)
    s, z, scale_axis, block = _scales(bits, scale, zero_point, scale_axis, scale_block)
    s, z = (None if v is None else np.ascontiguousarray(v) for v in (s, z))
    data = np.zeros(_qk.planes(spec, list(bits.shape), axis)[0], np.uint8)
    _qk.encode(spec, bits, data, axis, s, z, scale_axis, block, _words(random_words, bits, semantics))
    return Packed(spec.text, bits.shape, axis, data, s, z, scale_axis, block)


def decode(packed, dtype="float32", out=None):
    """Returns the numbers of a packed tensor: float32, float16 or bfloat16, or into `out`."""
    if not isinstance(packed, Packed):
        raise TypeError(f"decode takes what encode returned, not a {type(packed).__name__}")
    if out is not None:
        target = _target(out, packed.shape)
        y = target.bits if target.bits.flags.carray else np.empty(packed.shape, target.bits.dtype)
    else:
        library = _library_of(dtype) if _library_of(dtype) == "torch" else "numpy"
        try:
            name = str(dtype).removeprefix("torch.") if library == "torch" or dtype == "bfloat16" else np.dtype("V" if dtype is None else dtype).name
        except TypeError:
            name = str(dtype)
        kinds = {"float32": _float32, "float16": _float16, "bfloat16": _uint16}
        if name not in kinds:
            raise TypeError(f"dtype {dtype}: decode gives float32, float16 or bfloat16")
        y = np.empty(packed.shape, kinds[name])
    _qk.decode(_spec(packed.format), packed.data, y, packed.axis, packed.scale, packed.zero_point, packed.scale_axis, packed.scale_block)
    if out is not None:
        if y is not target.bits:
            target.bits[...] = y
        return out
    return _result(_Source(y, "bfloat16" if name == "bfloat16" else y.dtype, library), y)


def fake_quantize_backward(x, grad, format, semantics="ocp", rounding=None, scale=None, zero_point=None, scale_axis=None,
                           scale_block=None):
    """Returns the gradient by x of a loss whose gradient by fake_quantize(x) is `grad`: straight through where x is within the range.

    With scale it returns (by x, by scale, by zero_point), as in LSQ and LSQ+, in the shape of scale.
    """
    spec = _spec(format, semantics, rounding)
    a, g = _source(x), _source(grad, "grad")
    if a.bits.shape != g.bits.shape:
        raise ValueError(f"grad has shape {g.bits.shape}, and x {a.bits.shape}")
    s, z, axis, block = _scales(a.bits, scale, zero_point, scale_axis, scale_block)
    s, z = (None if v is None else np.ascontiguousarray(v) for v in (s, z))
    if s is not None and spec.is_block:
        raise ValueError(f"format {spec.text} takes its scales from the data; leave scale out")
    values, given = (np.ascontiguousarray(_widened(v)).reshape(v.bits.shape) for v in (a, g))
    y = np.empty(values.shape, np.float32)
    by_scale, by_zero = (np.zeros(1 if s is None else s.shape, np.float64) for _ in range(2))
    _qk.backward(spec, values, given, y, s, z, axis, block, by_scale, by_zero)
    if g.bits.dtype == _float16:
        y = y.astype(_float16)
    elif g.dtype == "bfloat16":
        import ml_dtypes

        y = y.astype(ml_dtypes.bfloat16).view(_uint16)
    result = _result(g, y)
    if scale is None and zero_point is None:
        return result
    if s is None or axis < 0:
        return result, float(by_scale[0]), float(by_zero[0])
    return result, by_scale, by_zero


def _widened(source):
    """Returns an array as float32."""
    if source.dtype == "bfloat16":
        return (source.bits.astype(np.uint32) << 16).view(np.float32)
    return _aligned(source.bits.astype(np.float32, copy=False))
