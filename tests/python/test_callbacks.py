# SPDX-License-Identifier: Apache-2.0
"""Functions and iterators of the caller's that raise, at each stage of a call: the caller's own exception comes back with its traceback, no
thread is left, and the next call works."""

import fractions
import os
import traceback

import numpy as np
import pytest

import qk


class Own(Exception):
    """An exception that the library has never heard of."""


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no words")


def threads():
    return len(os.listdir("/proc/self/task"))


def raising_at(k, error, value=0.0):
    """Returns a function that raises `error` when it is called for the k-th time, counted from 0."""
    calls = iter(range(10**6))

    def raising(*_):
        if next(calls) == k:
            raise error
        return value

    return raising


def batches_until(k, error, batch):
    for _ in range(k):
        yield batch
    raise error


def measured(model, images, function, **options):
    return qk.search(model, images[:4], narrow="int8/int4", max_trials=4, target_metric=1e9, metric=function, **options)


def evaluated(model, images, function, **options):
    return qk.search(model, images[:4], narrow="int8/int4", max_trials=4, target_metric=1e9, eval_func=function, **options)


def ranked(model, images, function, **options):
    return qk.sensitivity(model, images[:4], narrow="int8/int4", metric=function, **options)


@pytest.mark.parametrize("error", [Own("mine"), Unprintable(), ValueError("mine"), qk.Error("mine"), SystemExit(3), MemoryError()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("k", [0, 1, 7])
def test_what_measures_raises(model, images, error, k):
    before = threads()
    for call in (measured, evaluated, ranked) if k < 2 else (ranked,):
        with pytest.raises(type(error)) as caught:
            call(model, images, raising_at(k, error))
        assert caught.value is error
        assert "raising" in [f.name for f in traceback.extract_tb(error.__traceback__)], "the traceback does not show the caller's function"
        error.__traceback__ = None
    assert measured(model, images, lambda outputs: 0.0, threads=1).metric == 0
    assert threads() <= before + 8 and measured(model, images, lambda outputs: 0.0)


@pytest.mark.parametrize("options", [{"eval_func_path": True}, {"threads": 3}])
def test_a_function_of_a_file_and_on_threads(model, images, options):
    error = Own("mine")
    with pytest.raises(Own) as caught:
        evaluated(model, images, raising_at(1, error), **options)
    assert caught.value is error


@pytest.mark.parametrize("k", [0, 1, 3])
def test_data_raises(model, images, k):
    class Reader:
        def __init__(self):
            self.batches = batches_until(k, Own("mine"), {"image": images[:2]})

        def get_next(self):
            return next(self.batches, None)

    class Dataset:
        def __len__(self):
            return 5

        def __getitem__(self, i):
            if i == k:
                raise Own("mine")
            return images[i]

    for data in (lambda: batches_until(k, Own("mine"), images[:2]), Reader, Dataset):
        for call in (lambda d: qk.calibrate(model, d), lambda d: qk.quantize(model, d, activation="int8", weight="int8"), lambda d: qk.evaluate(model, d),
                     lambda d: qk.search(model, d, narrow="int8/int4", target_l2=0.5), lambda d: qk.evaluate(model, images[:2], calibration=d, activation="int8")):
            with pytest.raises(Own) as caught:
                call(data())
            assert {"batches_until", "__getitem__"} & {f.name for f in traceback.extract_tb(caught.value.__traceback__)}


@pytest.mark.parametrize("error", [Own("mine"), SystemExit(3), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
def test_progress_raises(model, images, error):
    with pytest.raises(type(error)):
        qk.search(model, np.repeat(images[:8], 40, 0), narrow="int8/int4", target_l2=1e-6, progress=raising_at(0, error))
    assert qk.evaluate(model, images[:2], outputs=True).outputs


@pytest.mark.parametrize("value", [10**400, -(10**6000), fractions.Fraction(10**400)], ids=["int", "unwritable", "Fraction"])
def test_numbers_beyond_floats(model, images, value):
    with pytest.raises(ValueError, match=f"metric returned a number that is too large for float64, of type {type(value).__name__}"):
        measured(model, images, lambda outputs: value)
