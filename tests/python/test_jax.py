# SPDX-License-Identifier: Apache-2.0
"""Arrays of jax go in and out, by DLPack too. Skipped where jax is not installed (tests/peers.sh installs it)."""

import numpy as np
import pytest
from conftest import DIGITS, same, values

import qk

jax = pytest.importorskip("jax")
jnp = jax.numpy
X = values((6, 96))


def test_arrays_go_in_and_out():
    x = jnp.asarray(X)
    for name in ("mxfp4", "int8", "nvfp4", "fp8_e4m3fn"):
        y = qk.fake_quantize(x, name)
        assert isinstance(y, jax.Array) and same(np.asarray(y), qk.fake_quantize(X, name))
        assert same(np.asarray(qk.fake_quantize(x.T, name, axis=0)), np.asarray(y).T)
        assert same(qk.encode(x, name).decode(), np.asarray(y))
    small = jnp.clip(jnp.nan_to_num(x), -400, 400)
    for kind in (jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        narrow = small.astype(kind)
        y = qk.fake_quantize(narrow, "mxfp4")
        expected = qk.fake_quantize(np.asarray(narrow.astype(jnp.float32)), "mxfp4")
        assert y.dtype == kind and same(np.asarray(y.astype(jnp.float32)), expected.astype(kind).astype(np.float32)), kind
    dx, ds, _ = qk.fake_quantize_backward(x, jnp.ones_like(x), "int8", scale=0.5)
    assert isinstance(dx, jax.Array) and same(np.asarray(dx), qk.fake_quantize_backward(X, np.ones_like(X), "int8", scale=0.5)[0])


def test_what_cannot_be_is_said():
    x = jnp.asarray(X)
    with pytest.raises(TypeError, match="cannot be written"):
        qk.fake_quantize(x, "mxfp4", out=x)
    for transformed in (jax.jit(lambda v: qk.fake_quantize(v, "mxfp4")), jax.grad(lambda v: qk.fake_quantize(v, "mxfp4").sum())):
        with pytest.raises(TypeError, match="pure_callback"):
            transformed(x)
    traced = jax.jit(lambda v: jax.pure_callback(lambda a: np.asarray(qk.fake_quantize(a, "mxfp4")), jax.ShapeDtypeStruct(v.shape, v.dtype), v))
    assert same(np.asarray(traced(x)), qk.fake_quantize(X, "mxfp4"))


class OnlyDLPack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    x = OnlyDLPack(jnp.asarray(X))
    assert same(np.asarray(qk.fake_quantize(x, "mxfp4")), qk.fake_quantize(X, "mxfp4"))
    x.__class__.__dlpack_device__ = lambda self: (2, 0)  # CUDA's number
    with pytest.raises(ValueError, match="on the CPU"):
        qk.fake_quantize(x, "mxfp4")


def test_data_of_models():
    images, model = np.load(DIGITS / "test_images.npy")[:8], DIGITS / "digits.onnx"
    assert same(qk.load(model)(jnp.asarray(images))["logits"], qk.load(model)(images)["logits"])
    assert same(qk.load(model)({"image": OnlyArray(images)})["logits"], qk.load(model)(images)["logits"])


class OnlyArray:
    """An array that speaks __array__ and nothing else."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array
