# SPDX-License-Identifier: Apache-2.0
"""Arrays: every format and semantics gives the command's bits; kinds of arrays, axes, strides, scales, errors."""

import pickle
import threading

import ml_dtypes
import numpy as np
import pytest
from conftest import same, values

import qk

NAMES = [f.name for f in qk.formats()]
X = values((7, 96))
WORDS = np.arange(X.size, dtype=np.uint32).reshape(X.shape)


@pytest.mark.parametrize("semantics", qk.semantics())
def test_every_format_gives_the_commands_bits(command, tmp_path, semantics):
    np.save(tmp_path / "x.npy", X)
    for name in NAMES:
        command("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format", name, "--semantics", semantics)
        assert same(qk.fake_quantize(X, name, semantics=semantics), np.load(tmp_path / "y.npy")), name


def test_roundings_and_choices_give_the_commands_bits(command, tmp_path):
    np.save(tmp_path / "x.npy", X)
    for rounding in qk.roundings():
        for name in ("mxfp4", "int8", "fp8_e4m3fn", "bfp16"):
            command("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format", name, "--rounding", rounding)
            assert same(qk.fake_quantize(X, name, rounding=rounding), np.load(tmp_path / "y.npy")), (name, rounding)
    for words, choice in ((["--scale-rule", "rceil"], {"scale_rule": "rceil"}), (["--rounding", "stochastic", "--seed", "7"], {"rounding": "stochastic", "seed": 7})):
        command("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format", "mxfp4", *words)
        assert same(qk.fake_quantize(X, "mxfp4", semantics=qk.Semantics("ocp", **choice)), np.load(tmp_path / "y.npy")), words


def test_choices_have_the_commands_names(command, tmp_path):
    """Each choice of `qk convert` is one of qk.Semantics, and some value of X shows that it is taken."""
    x = np.concatenate([X, X * np.float32(1e-36)])
    x[0, :32], x[1, :32] = 0.375, -1.999  # a tie; beyond the highest code's magnitude
    np.save(tmp_path / "x.npy", x)
    for name, words, choice in (("int8", ["--rounding", "stochastic", "--random-bits", "3"], {"rounding": "stochastic", "random_bits": 3}),
                                ("int8", ["--zero-point-before", "--scale", "0.25", "--zero-point", "3"], {"zero_point_before": True}),
                                ("mxint8", ["--mxint-lowest"], {"mxint_lowest": True}), ("bf16", ["--flush-inputs"], {"flush_inputs": True}),
                                ("bf16", ["--flush-outputs"], {"flush_outputs": True}), ("mxfp4@even", [], {}), ("mxfp4", ["--scale-rule", "even"], {"scale_rule": "even"})):
        command("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format", name, *words)
        how, scales = qk.Semantics("ocp", **choice), {"scale": 0.25, "zero_point": 3} if "--scale" in words else {}
        got = qk.fake_quantize(x, name, semantics=how, **scales)
        assert same(got, np.load(tmp_path / "y.npy")), words
        assert pickle.loads(pickle.dumps(how)) == how and all(getattr(how, n) == v for n, v in choice.items()) and (not choice or next(iter(choice)) in repr(how))
        if choice:
            assert not same(got, qk.fake_quantize(x, name, **scales)), words


@pytest.mark.parametrize("rounding", ["stochastic", "stochastic-b", "stochastic-c"])
def test_random_words_of_ones_own(command, tmp_path, rounding):
    words = np.random.default_rng(3).integers(0, 2**32, X.shape, dtype=np.uint32)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "w.npy", words.reshape(-1))
    for name in ("int8", "mxfp4", "nvfp4", "fp8_e4m3fn", "bfp16"):
        command("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format", name, "--rounding", rounding, "--random-words", tmp_path / "w.npy")
        expected = np.load(tmp_path / "y.npy")
        for x in (X, np.asfortranarray(X)):
            for given in (words, words.reshape(-1), np.asfortranarray(words)):
                assert same(np.ascontiguousarray(qk.fake_quantize(x, name, rounding=rounding, random_words=given)), expected), name
        wide = np.tile(np.clip(X, -6e4, 6e4), (9, 50)).astype(np.float16)  # more than one piece
        many = np.random.default_rng(4).integers(0, 2**32, wide.shape, dtype=np.uint32)
        by_pieces = qk.fake_quantize(wide, name, rounding=rounding, random_words=many, threads=3)
        with np.errstate(over="ignore"):
            assert same(by_pieces, qk.fake_quantize(wide.astype(np.float32), name, rounding=rounding, random_words=many).astype(np.float16)), name
        assert same(qk.encode(X, name, rounding=rounding, random_words=words).decode(), expected), name
        assert name not in ("int8", "mxfp4") or not same(expected, qk.fake_quantize(X, name, rounding=rounding))


@pytest.mark.parametrize("kind,name", [(ml_dtypes.float8_e4m3fn, "fp8_e4m3fn"), (ml_dtypes.float8_e5m2, "fp8_e5m2"),
                                       (ml_dtypes.float8_e4m3fnuz, "fp8_e4m3fnuz"), (ml_dtypes.bfloat16, "bf16"),
                                       (ml_dtypes.float8_e3m4, "float:exponent=3,mantissa=4,special=ieee")])
def test_ml_dtypes_rounds_alike(kind, name):
    ours = qk.fake_quantize(X, name, semantics="ml_dtypes")
    with np.errstate(all="ignore"):
        theirs = X.astype(kind).astype(np.float32)
    assert same(ours, theirs)


def test_sixteen_bits_are_rounded_as_their_float32_values():
    small = np.where(np.abs(X) < 6e4, X, 1).astype(np.float32)
    for name in NAMES:
        for kind in (np.float16, ml_dtypes.bfloat16):
            x = np.tile(small, (60, 3)).astype(kind)  # more than one piece
            wide = qk.fake_quantize(x.astype(np.float32), name)
            with np.errstate(all="ignore"):
                expected = wide.astype(kind)
            got = qk.fake_quantize(x, name)
            assert got.dtype == x.dtype and same(got.astype(np.float32), expected.astype(np.float32)), (name, kind)
            out = np.empty(x.shape, np.float32)
            assert qk.fake_quantize(x, name, out=out) is out and same(out, wide), (name, kind)


def test_the_short_way_gives_the_bits_of_the_long_one():
    """Arrays in C order go to the kernels directly; threads=2 takes the way that all arrays can go."""
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16):
        x = np.where(np.abs(X) < 6e4, X, 1).astype(kind).reshape(7, 4, 24)
        for name in (*NAMES, "uint4:symmetric"):
            for axis in (0, 1, -1):
                expected = qk.fake_quantize(x, name, axis=axis, threads=2).astype(np.float32)
                own = x.copy()
                assert same(qk.fake_quantize(x, name, axis=axis).astype(np.float32), expected), (name, kind, axis)
                turned = np.asfortranarray(x)
                assert same(qk.fake_quantize(turned, name, axis=axis).astype(np.float32), expected), (name, kind, axis)
                assert qk.fake_quantize(own, name, axis=axis, out=own) is own and same(own.astype(np.float32), expected), (name, kind, axis)
        for name, given in (("int8", {"scale": 0.3}), ("uint8", {"scale": 0.3, "zero_point": 5}), ("fp8_e4m3fn", {"scale": 0.3}), ("uint4", {"zero_point": 3})):
            expected = qk.fake_quantize(x, name, threads=2, **given).astype(np.float32)
            assert same(qk.fake_quantize(x, name, **given).astype(np.float32), expected), (name, kind)
            wide = {k: np.full(1, v) for k, v in given.items()}
            assert same(qk.fake_quantize(x, name, **wide).astype(np.float32), expected), (name, kind)
        both = np.zeros(300, kind)  # x and out share a part
        both[:256] = x.reshape(-1)[:256]
        expected = qk.fake_quantize(both[:256].copy(), "mxfp4").astype(np.float32)
        assert same(qk.fake_quantize(both[:256], "mxfp4", out=both[32:288]).astype(np.float32), expected)
        assert qk.fake_quantize(np.empty((0, 4), kind), "mxfp4").shape == (0, 4) and qk.fake_quantize(np.ones((), kind), "mxfp4") == 1
    for wrong in (np.int64(1), True):  # other kinds of whole numbers
        assert same(qk.fake_quantize(X, "mxfp4", axis=wrong), qk.fake_quantize(X, "mxfp4", axis=1))


def test_narrow_floats_go_in_and_out():
    x = np.clip(X, -400, 400).astype(ml_dtypes.float8_e4m3fn)
    got = qk.fake_quantize(x, "mxfp4")
    assert got.dtype == x.dtype
    assert same(got.astype(np.float32), qk.fake_quantize(x.astype(np.float32), "mxfp4").astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


def test_threads_change_no_bit():
    x = values((64, 5000), 3)
    for name in ("mxfp4", "int8", "nvfp4", "bfp16", "mx6", "fp8_e4m3fn"):
        for axis in (0, 1):
            assert same(qk.fake_quantize(x, name, axis=axis), qk.fake_quantize(x, name, axis=axis, threads=3)), (name, axis)
    random = qk.Semantics("ocp", rounding="stochastic", seed=5)
    assert same(qk.fake_quantize(x, "int8", semantics=random), qk.fake_quantize(x, "int8", semantics=random, threads=4))
    for rounding in ("stochastic", "stochastic-b", "stochastic-c"):  # a value's random bits are those of its place, whatever the strides
        assert same(qk.fake_quantize(x.T, "int8", rounding=rounding), qk.fake_quantize(np.ascontiguousarray(x.T), "int8", rounding=rounding))


def test_axes_and_strides_give_the_same_values():
    x = values((6, 40, 34), 4)
    for name in ("mxfp4", "mx6", "bfp16", "nvfp4"):
        for axis in range(-3, 3):
            expected = np.moveaxis(qk.fake_quantize(np.ascontiguousarray(np.moveaxis(x, axis, -1)), name), -1, axis)
            for view in (x, np.asfortranarray(x), x.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
                got = qk.fake_quantize(view, name, axis=axis)
                assert same(np.ascontiguousarray(got), np.ascontiguousarray(expected)), (name, axis)
    for view in (x[::2], x[:, ::-1], x[..., 3:20], np.broadcast_to(x[:1], x.shape)):
        assert same(qk.fake_quantize(view, "mxfp4"), qk.fake_quantize(view.copy(), "mxfp4"))
    fortran = np.asfortranarray(x)
    assert qk.fake_quantize(fortran, "int8").flags.f_contiguous  # nothing is copied where axes are only permuted


def test_scales_give_the_commands_bits(command, tmp_path):
    x = values((6, 40), 5)
    np.save(tmp_path / "x.npy", x)
    scale = (np.abs(values((6,), 6)) + 0.01).astype(np.float32)
    zero = np.arange(-3, 3, dtype=np.int64)
    np.save(tmp_path / "s.npy", scale)
    np.save(tmp_path / "z.npy", zero)
    words = ["convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format"]
    command(*words, "int8", "--scale", "0.05", "--zero-point", "3")
    assert same(qk.fake_quantize(x, "int8", scale=0.05, zero_point=3), np.load(tmp_path / "y.npy"))
    command(*words, "int8", "--scales", tmp_path / "s.npy", "--zero-points", tmp_path / "z.npy", "--scale-axis", "0")
    expected = np.load(tmp_path / "y.npy")
    for view in (x, np.asfortranarray(x)):
        assert same(np.ascontiguousarray(qk.fake_quantize(view, "int8", scale=scale, zero_point=zero, scale_axis=0)), expected)
    assert same(qk.fake_quantize(x, "int8", scale=scale, zero_point=zero, scale_axis=0, threads=2), expected)
    grid = (np.abs(values((6, 3), 7)) + 0.01).astype(np.float32)
    np.save(tmp_path / "g.npy", grid)
    command(*words, "int4", "--scales", tmp_path / "g.npy", "--scale-axis", "1", "--scale-block", "16")
    expected = np.load(tmp_path / "y.npy")
    for view in (x, np.asfortranarray(x)):
        assert same(np.ascontiguousarray(qk.fake_quantize(view, "int4", scale=grid, scale_axis=1, scale_block=16)), expected)
    half = np.where(np.isfinite(x) & (np.abs(x) < 6e4), x, 0).astype(np.float16)
    a = qk.fake_quantize(half, "int4", scale=grid, scale_axis=1, scale_block=16)
    assert same(a, qk.fake_quantize(half.astype(np.float32), "int4", scale=grid, scale_axis=1, scale_block=16).astype(np.float16))
    command(*words, "nvfp4", "--scale", "0.5")
    assert same(qk.fake_quantize(x, "nvfp4", scale=0.5), np.load(tmp_path / "y.npy"))


def test_encode_gives_the_commands_planes_and_back(command, tmp_path):
    np.save(tmp_path / "x.npy", X)
    for name in NAMES:
        command("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--format", name, "--packed", tmp_path / "p.npz")
        packed = qk.encode(X, name)
        with np.load(tmp_path / "p.npz") as planes:
            assert np.array_equal(planes["elements"], packed.elements), name
            for plane in ("scales", "shifts"):
                assert np.array_equal(planes[plane] if plane in planes else np.empty(0, np.uint8), getattr(packed, plane)), (name, plane)
        assert same(packed.decode(), qk.fake_quantize(X, name)), name
        again = pickle.loads(pickle.dumps(packed))
        assert again.format == packed.format and again.shape == X.shape and same(again.decode(), packed.decode())
        own = qk.Packed.load(tmp_path / "p.npz")
        assert same(own.decode(), packed.decode())
        packed.save(tmp_path / "q.npz")
        command("convert", tmp_path / "q.npz", tmp_path / "z.npy")
        assert same(np.load(tmp_path / "z.npy"), packed.decode()), name


def test_codes_and_scales_of_packed():
    packed = qk.encode(np.array([[0.5, 1, 6, -6]], np.float32), "fp4_e2m1")
    assert packed.codes().tolist() == [[1, 2, 7, 15]] and packed.codes().shape == (1, 4)
    s = np.array([0.5, 2], np.float32)
    packed = qk.encode(np.array([[1.0, 2], [4, 8]], np.float32), "int8", scale=s, scale_axis=0)
    assert packed.codes().astype(np.int8).tolist() == [[2, 4], [2, 4]]
    assert same(np.asarray(packed), np.array([[1.0, 2], [4, 8]], np.float32))
    half = packed.decode("float16")
    assert half.dtype == np.float16 and packed.decode(ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    with pytest.raises(qk.Error, match="has no code"):
        qk.encode(X, "mxfp4", semantics="quark")


def test_out_and_aliasing():
    x = values((4, 64), 8)
    expected = qk.fake_quantize(x, "mxfp4")
    y = np.empty((4, 128), np.float32)[:, ::2]
    assert qk.fake_quantize(x, "mxfp4", out=y) is y and same(y.copy(), expected)
    z = x.copy()
    assert qk.fake_quantize(z, "mxfp4", out=z) is z and same(z, expected)
    memory = np.concatenate([x.reshape(-1), np.zeros(64, np.float32)])
    shifted = memory[32 : 32 + x.size].reshape(x.shape)
    first = memory[: x.size].reshape(x.shape)
    qk.fake_quantize(first, "mxfp4", out=shifted)
    assert same(shifted.copy(), expected)
    half = np.zeros(x.size * 2, np.float16)
    source = half[: x.size].reshape(x.shape)
    source[...] = 1.25
    qk.fake_quantize(source, "mxfp4", out=half.view(np.float32).reshape(x.shape))
    assert np.all(half.view(np.float32) == np.float32(qk.fake_quantize(np.full(32, 1.25, np.float32), "mxfp4")[0]))


def test_gradient_is_straight_through():
    x = np.array([-200, -3.3, 0.24, 0.5, 300, np.nan], np.float32)
    g = np.arange(1, 7, dtype=np.float32)
    dx, ds, dz = qk.fake_quantize_backward(x, g, "int8", scale=1.0)
    assert dx.tolist() == [0, 2, 3, 4, 0, 0]
    inside = sum(b * (np.round(float(a)) - float(a)) for a, b in zip(x[1:4], g[1:4]))
    assert ds == pytest.approx(1 * -128 + inside + 5 * 127) and dz == pytest.approx(-1 * (1 + 5))
    scale = np.array([1.0, 2.0], np.float32)
    both = np.stack([x, x])
    dx2, ds2, _ = qk.fake_quantize_backward(both, np.stack([g, g]), "int8", scale=scale, scale_axis=0)
    assert ds2.shape == (2,) and ds2[0] == pytest.approx(ds) and dx2[0].tolist() == dx.tolist()
    assert qk.fake_quantize_backward(x, g, "mxfp4").tolist() == [1, 2, 3, 4, 5, 0]


def test_shapes_at_the_edges():
    assert qk.fake_quantize(np.float32(0.3), "fp8_e4m3fn").shape == ()
    assert qk.fake_quantize(0.3, "fp8_e4m3fn") == np.float32(0.3125)
    assert qk.fake_quantize([1.1, 2.3], "int8").tolist() == [1, 2]
    for shape in ((0,), (3, 0), (0, 4)):
        assert qk.fake_quantize(np.empty(shape, np.float32), "mxfp4").shape == shape
        assert qk.encode(np.empty(shape, np.float32), "mxfp4").decode().shape == shape
        assert qk.fake_quantize(np.empty(shape, np.float16), "mxfp4", threads=2).shape == shape
    assert qk.fake_quantize(np.ones((1, 1, 1, 1, 1), np.float32), "mxfp4", axis=2).shape == (1,) * 5
    x = values((3, 40), 9)
    whole = np.array([[0.5], [1.0], [2.0]], np.float32)
    for block in (40, 41, 2**31, 2**64 - 1, 2**80):  # a block may be longer than the axis
        assert same(qk.fake_quantize(x, "int8", scale=whole, scale_axis=1, scale_block=block), qk.fake_quantize(x, "int8", scale=whole.reshape(-1), scale_axis=0))
    for threads in (7, 2**31, 2**70):
        assert same(qk.fake_quantize(x, "mxfp4", threads=threads), qk.fake_quantize(x, "mxfp4"))
    swapped = qk.fake_quantize(x.astype(">f4"), "mxfp4")
    assert same(swapped.astype(np.float32), qk.fake_quantize(x, "mxfp4"))
    read_only = x.copy()
    read_only.flags.writeable = False
    assert same(qk.fake_quantize(read_only, "mxfp4"), qk.fake_quantize(x, "mxfp4"))


@pytest.mark.parametrize("call,error,words", [
    (lambda: qk.fake_quantize(X, "mxfp5"), ValueError, "mxfp"),
    (lambda: qk.fake_quantize(X, "MXFP4"), ValueError, "unknown format 'MXFP4'; did you mean mxfp4?"),
    (lambda: qk.fake_quantize(X, 5), TypeError, "format is its name"),
    (lambda: qk.fake_quantize(X, ["mxfp4"]), TypeError, "format is its name"),
    (lambda: qk.fake_quantize(X, "mxfp4", semantics="ocq"), ValueError, "ocp"),
    (lambda: qk.fake_quantize(X, "mxfp4", rounding="up-ish"), ValueError, "rounding"),
    (lambda: qk.fake_quantize(X, "mxfp4", axis=2), ValueError, "axis 2 is out of range"),
    (lambda: qk.fake_quantize(X, "mxfp4", axis=2**70), ValueError, "out of range"),
    (lambda: qk.fake_quantize(X, "mxfp4", axis=1.5), TypeError, "whole number"),
    (lambda: qk.fake_quantize(X.astype(np.float64), "mxfp4"), TypeError, "float64"),
    (lambda: qk.fake_quantize(X.astype(np.int32), "mxfp4"), TypeError, "int32"),
    (lambda: qk.fake_quantize("x", "mxfp4"), TypeError, "array"),
    (lambda: qk.fake_quantize(None, "mxfp4"), TypeError, "array"),
    (lambda: qk.fake_quantize(X, "mxfp4", axis=None), TypeError, "axis is None.*whole number"),
    (lambda: qk.fake_quantize(X, "mxfp4", axis=1.0), TypeError, "axis is 1.0.*whole number"),
    (lambda: qk.fake_quantize(X, "mxfp4", threads=None), TypeError, "threads is None"),
    (lambda: qk.encode(X, "mxfp4", axis=None), TypeError, "axis is None"),
    (lambda: qk.Packed("mxfp4", (4, 64), None, np.zeros(400, np.uint8)), TypeError, "axis is None"),
    (lambda: qk.Packed("mxfp4", (4.5, 64), 0, np.zeros(400, np.uint8)), TypeError, "shape is 4.5"),
    (lambda: qk.fake_quantize(X, "int8", scale=float("nan")), ValueError, "NaN"),
    (lambda: qk.fake_quantize(X, "int8", scale=0), ValueError, "scale is 0"),
    (lambda: qk.fake_quantize(X, "int8", scale=[1, 2]), ValueError, "scale_axis"),
    (lambda: qk.fake_quantize(X, "int8", scale=[1, 2], scale_axis=0), ValueError, "channels"),
    (lambda: qk.fake_quantize(X, "int8", scale=np.ones((7, 2)), scale_axis=1, scale_block=32), ValueError, r"need \(7, 3\)"),
    (lambda: qk.fake_quantize(X, "int8", scale=1, zero_point=300), ValueError, "zero_point"),
    (lambda: qk.fake_quantize(X, "int8", scale=1, zero_point=0.5), TypeError, "whole numbers"),
    (lambda: qk.fake_quantize(X, "fp8_e4m3fn", scale=1, zero_point=1), ValueError, "integer formats"),
    (lambda: qk.fake_quantize(X, "mxfp4", scale=1), ValueError, "from the data"),
    (lambda: qk.fake_quantize(X, "int8:pow2", scale=0.3), ValueError, "power of two"),
    (lambda: qk.fake_quantize(X, "mxfp4", threads=0), ValueError, "threads"),
    (lambda: qk.fake_quantize(X, "ggml.q4_K"), ValueError, "only read"),
    (lambda: qk.fake_quantize(X, "int8", random_words=WORDS), ValueError, "stochastic"),
    (lambda: qk.fake_quantize(X, "int8", rounding="stochastic", random_words=WORDS.astype(np.int64)), TypeError, "uint32"),
    (lambda: qk.fake_quantize(X, "int8", rounding="stochastic", random_words=WORDS[:3]), ValueError, "one for each value"),
    (lambda: qk.fake_quantize(X, "int8", semantics=qk.Semantics(rounding="stochastic", seed=5), random_words=WORDS), ValueError, "seed"),
    (lambda: qk.Semantics(seed=-1), ValueError, "seed is -1"),
    (lambda: qk.Semantics(seed=2**64), ValueError, "seed is"),
    (lambda: qk.Semantics(random_bits=33), ValueError, "1 to 32"),
    (lambda: qk.fake_quantize(X, "int8@even"), ValueError, "scale rule"),
    (lambda: qk.fake_quantize(X, "int8", scale=np.array([1, np.nan, 1, 1, 1, 1, 1], np.float32), scale_axis=0), ValueError, "entry 1.*NaN"),
    (lambda: qk.fake_quantize(X, "int8", scale=float("inf")), ValueError, "inf"),
    (lambda: qk.fake_quantize(X, "int8", scale=-1.0), ValueError, "scale"),
    (lambda: qk.fake_quantize(X, "int8", scale=1e-60), ValueError, "scale"),
    (lambda: qk.fake_quantize(X, "int8", scale=1.0, scale_axis=2**40), ValueError, "out of range"),
    (lambda: qk.fake_quantize(X, "int8", scale=np.ones(7), scale_axis=0, scale_block=0), ValueError, "scale_block"),
    (lambda: qk.fake_quantize(X, "int8", scale=1.0, zero_point=2**70), TypeError, "whole numbers"),
    (lambda: qk.fake_quantize(X.astype(bool), "mxfp4"), TypeError, "bool"),
    (lambda: qk.fake_quantize(X.astype(complex), "mxfp4"), TypeError, "complex"),
    (lambda: qk.fake_quantize(X.astype(object), "mxfp4"), TypeError, "object"),
    (lambda: qk.fake_quantize(np.zeros(4, [("a", "f4")]), "mxfp4"), TypeError, "holds"),
    (lambda: qk.fake_quantize([[1, 2], [3]], "mxfp4"), ValueError, "shape"),
    (lambda: qk.fake_quantize(np.float32(1), "mxfp4", axis=1), ValueError, "scalar has no axis"),
    (lambda: qk.Packed("mxfp4", (2**32, 2**32), 0, np.zeros(0, np.uint8)), ValueError, "takes 576460752303423488"),
    (lambda: qk.Packed("mxfp4", (4, 64), 5, np.zeros(400, np.uint8)), ValueError, "out of range"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(16, np.uint8)), ValueError, "takes 256"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(256, np.uint8), np.ones(3, np.float32), None, 0).decode(), ValueError, "3 entries for 4 channels"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(256, np.uint8), np.ones((4, 2), np.float32), None, 1, 16).decode(), ValueError, "8 entries for 16 blocks"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(256, np.uint8), np.ones(4, np.float32), None, 2).decode(), ValueError, "scale_axis 2"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(256, np.uint8), np.ones(4, np.float32)).decode(), ValueError, "without scale_axis"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(256, np.uint8), np.ones(1)).decode(), TypeError, "float32"),
    (lambda: qk.Packed("int8", (4, 64), 1, np.zeros(256, np.uint8), np.ones(1, np.float32), np.zeros(1, np.int32)).decode(), TypeError, "int64"),
    (lambda: qk.fake_quantize(X, "mxfp4", out=np.empty((7, 95), np.float32)), ValueError, "out has shape"),
    (lambda: qk.fake_quantize(X, "mxfp4", out=np.broadcast_to(np.float32(0), X.shape)), ValueError, "read-only"),
    (lambda: qk.fake_quantize(X, "mxfp4", out=np.empty(X.shape)), TypeError, "float64"),
    (lambda: qk.decode(X), TypeError, "encode"),
    (lambda: qk.format("nope"), ValueError, "nope"),
    (lambda: qk.fake_quantize(X, "mxfp4", threads=1.5), TypeError, "threads is 1.5"),
    (lambda: qk.fake_quantize(X, "mx\0fp4"), ValueError, r"mx\\x00fp4"),
    (lambda: qk.fake_quantize(X, "mx\udcff"), ValueError, "characters"),
    (lambda: qk.fake_quantize(X, "mxfp4", out=[0.0] * 7), TypeError, "out is a list"),
    (lambda: qk.fake_quantize(X, "mxfp4", out=np.lib.stride_tricks.as_strided(np.zeros(96, np.float32), X.shape, (0, 4))), ValueError, "share memory"),
    (lambda: qk.fake_quantize(X[:, :95], "mxfp4", out=np.lib.stride_tricks.as_strided(np.zeros(999, np.float32), (7, 95), (64, 4))), ValueError, "share"),
    (lambda: qk.fake_quantize(np.ma.masked_array(X, X > 0), "mxfp4"), TypeError, "masked"),
    (lambda: qk.fake_quantize(X, "int8", scale=np.ones((7, 3)), scale_axis=1, scale_block=32.0), TypeError, "scale_block is 32.0"),
    (lambda: qk.fake_quantize(X, "uint8", scale=1, zero_point=np.uint64(2**63)), ValueError, "9223372036854775808"),
    (lambda: qk.Semantics(qk.Semantics("ocp")), TypeError, "name is Semantics"),
    (lambda: qk.Semantics(seed="7"), TypeError, "seed is '7'"),
    (lambda: qk.Semantics(rounding=3), TypeError, "rounding is 3"),
    (lambda: np.asarray(qk.encode(X, "int8"), copy=False), ValueError, "copy"),
    (lambda: qk.compare(X, X[:1], "mxfp4"), qk.Error, r"^x.npy has shape.*device.npy"),
    (lambda: qk.compare(X, X, "int8", scale=[1, 2]), ValueError, "scale_axis"),
    (lambda: qk.dot(X[:, :8].astype(np.float64) + 1e-12, X.T[:8], accumulator="sum=ordered"), TypeError, "a holds float64"),
    (lambda: qk.devices(5), TypeError, "part is 5"),
    (lambda: qk.devices("--help"), TypeError, "--help"),
])
def test_errors_are_sentences(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_what_lies_unaligned_is_read_and_written():
    """Numbers behind an odd number of bytes, as in a file with a header."""
    x = values((6, 40), 11)

    def odd(array):
        return np.frombuffer(bytearray(b"\0" + array.tobytes()), np.uint8)[1:].view(array.dtype).reshape(array.shape)

    for kind in (np.float32, np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            own = x.astype(kind)
        expected = qk.fake_quantize(own, "mxfp4")
        assert not odd(own).flags.aligned and same(qk.fake_quantize(odd(own), "mxfp4").astype(np.float32), expected.astype(np.float32)), kind
        out = odd(np.zeros_like(own))
        assert qk.fake_quantize(own, "mxfp4", out=out) is out and same(out.astype(np.float32), expected.astype(np.float32))
        assert same(qk.fake_quantize(odd(own), "mxfp4", axis=0, threads=2).astype(np.float32), qk.fake_quantize(own, "mxfp4", axis=0).astype(np.float32))
    assert qk.encode(odd(x), "mxfp4") == qk.encode(x, "mxfp4")
    assert same(qk.encode(x, "mxfp4").decode(out=odd(x)).copy(), qk.encode(x, "mxfp4").decode())
    assert same(qk.fake_quantize_backward(odd(x), odd(x), "int8"), qk.fake_quantize_backward(x, x, "int8"))
    scale, words = np.full(6, 0.1, np.float32), np.arange(x.size, dtype=np.uint32).reshape(x.shape)
    assert same(qk.fake_quantize(x, "int8", scale=odd(scale), scale_axis=0), qk.fake_quantize(x, "int8", scale=scale, scale_axis=0))
    assert same(qk.fake_quantize(x, "int8", rounding="stochastic", random_words=odd(words)), qk.fake_quantize(x, "int8", rounding="stochastic", random_words=words))
    with pytest.raises(TypeError, match="unaligned"):  # the module itself does not misread it
        qk._qk.fake_quantize(qk._qk.Spec("mxfp4", "ocp", None, None, None, None, 0, None, []), odd(x), np.empty_like(x), 1, None, None, -1, 0, 1, None)


def test_scalars_dtypes_and_equality():
    x = np.array(0.3, np.float32)
    assert qk.fake_quantize(x, "mxfp4", axis=0) == qk.fake_quantize(x, "mxfp4") == 0.25
    by_x, by_scale, _ = qk.fake_quantize_backward(np.float32(1), np.float32(2), "int8", scale=1.0)
    assert by_x.shape == () and by_x == 2 and by_scale == 0
    packed = qk.encode(X, "int8", scale=0.1)
    assert packed == pickle.loads(pickle.dumps(packed)) and packed != qk.encode(X, "int8", scale=0.2) and packed != 5
    for dtype in ("f4", "<f4", np.float32, np.dtype("float32"), "float16", np.float16, "bfloat16", ml_dtypes.bfloat16):
        assert np.asarray(packed.decode(dtype)).dtype.itemsize in (2, 4), dtype
    for kind in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):  # scales of every kind
        scale = np.full(7, 0.125, kind)
        assert same(qk.fake_quantize(X, "int8", scale=scale, scale_axis=0), qk.fake_quantize(X, "int8", scale=np.full(7, 0.125), scale_axis=0))


def test_choices_reach_the_verbs():
    """A qk.Semantics is taken whole, or refused: no choice is left out."""
    how = qk.Semantics("ocp", scale_rule="rceil", rounding="half-away")
    x = values((4, 64), 12)
    assert qk.compare(x, qk.fake_quantize(x, "mxfp4", semantics=how), "mxfp4", semantics=how)["mismatches"] == 0
    assert qk.compare(x, qk.fake_quantize(x, "mxfp4"), "mxfp4", semantics=how)["mismatches"] > 0
    made = qk.vectors("mxfp4", semantics=how)
    assert same(qk.fake_quantize(made["input"], "mxfp4", semantics=how), made["expected"])
    cases = qk.vectors(device="nvidia.hopper.wgmma.f32.e4m3.e4m3")
    assert {n: list(cases[n].shape) for n in "abcd"} == {n: a["shape"] for n, a in cases["manifest"]["arrays"].items()}


def test_formats_have_facts_and_a_drawing(command):
    listed = command("formats", "--json")["formats"]
    assert [f.name for f in qk.formats()] == [r["name"] for r in listed]
    for f, row in zip(qk.formats(), listed):
        for key, value in row.items():
            assert f.to_dict()[key] == (float("nan") if value is None else value), (f, key)
        assert "<svg" in f._repr_html_(), f
    f = qk.format("fp4_e2m1")
    assert f.values().tolist() == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert qk.format("int4").values().tolist() == list(range(-8, 8))
    assert qk.format("table:values=-1/0.5/0/0.125").values().tolist() == [-1, 0, 0.125, 0.5]
    assert pickle.loads(pickle.dumps(f)) == f and same(qk.fake_quantize(X, f), qk.fake_quantize(X, "fp4_e2m1"))


def test_the_lock_is_free_while_kernels_run():
    x = np.ones((1 << 24,), np.float32)
    seen, done = [], threading.Event()

    def count():
        while not done.is_set():
            seen.append(1)

    counter = threading.Thread(target=count)
    counter.start()
    before = len(seen)
    qk.fake_quantize(x, "mx6")
    after = len(seen)
    done.set()
    counter.join()
    assert after > before
