# SPDX-License-Identifier: Apache-2.0
"""Trials over executors: the same bits as here, a metric of one's own, a worker that is lost."""

import collections
import concurrent.futures
import multiprocessing

import numpy as np
import pytest
from test_models import without_times

import qk

COUNTS = ("evaluations", "layer_evaluations", "naive_layer_evaluations", "cached")


def facts(result):
    return {k: v for k, v in without_times(result.to_dict()).items() if k not in COUNTS}


def sum_of_errors(outputs, reference, labels):
    return float(np.abs(outputs[0].astype(np.float64) - reference[0]).sum())


@pytest.fixture(scope="module")
def pool():
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_a_search_has_the_same_bits(pool, model, images, labels):
    options = dict(labels=labels, narrow=["int8/int8", "int8/int4"], target_l2=0.6, ranking="measured")
    assert facts(qk.search(model, images, executor=pool, **options)) == facts(qk.search(model, images, **options))


def test_sensitivity_and_a_metric_of_ones_own(pool, model, images):
    for options in (dict(narrow="int8/int4"), dict(narrow="int8/int4", metric=sum_of_errors)):
        assert facts(qk.sensitivity(model, images, executor=pool, **options)) == facts(qk.sensitivity(model, images, **options))


def test_external_data_travels(model, images, tmp_path):
    onnx = pytest.importorskip("onnx")
    onnx.save(onnx.load(model), tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    options = dict(narrow="int8/int4")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        assert facts(qk.sensitivity(tmp_path / "m.onnx", images, executor=threads, **options)) == facts(qk.sensitivity(tmp_path / "m.onnx", images, **options))


class Losing(concurrent.futures.ThreadPoolExecutor):
    """Loses each piece of work the first `times` times that it is submitted."""

    def __init__(self, workers, times):
        super().__init__(workers)
        self.times, self.losses = times, collections.Counter()

    def submit(self, function, *arguments):
        plan = repr(arguments[-1])
        if self.losses[plan] == self.times:
            return super().submit(function, *arguments)
        self.losses[plan] += 1

        def lost():
            raise ConnectionResetError("the worker is gone")

        return super().submit(lost)


def test_a_lost_trial_is_taken_again(model, images):
    options = dict(narrow="int8/int4", target_l2=0.6, ranking="measured")
    with Losing(2, times=3) as pool:
        assert facts(qk.search(model, images, executor=pool, **options)) == facts(qk.search(model, images, **options))
        assert sum(pool.losses.values()) > 10
    with Losing(2, times=4) as pool, pytest.raises(ConnectionResetError):
        qk.search(model, images, executor=pool, **options)


def test_a_lambda_in_a_pool_gets_a_sentence(pool, model, images):
    def local(outputs):
        return 0.0

    for metric in (lambda outputs: 0.0, local):
        with pytest.raises(TypeError, match="metric is .*does not travel.*def at the top of a module"):
            qk.sensitivity(model, images[:8], narrow="int8/int4", metric=metric, executor=pool)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        assert qk.sensitivity(model, images[:8], narrow="int8/int4", metric=lambda outputs: 0.0, executor=threads).rows


def test_what_cannot_travel_is_refused(model, images):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with pytest.raises(qk.Error, match="do not go together"):
            qk.search(model, images, narrow="int8/int4", smooth_quant=0.5, target_l2=0.6, executor=pool)
        with pytest.raises(TypeError, match="eval_func"):
            qk.search(model, images, eval_func=lambda b: 0.0, executor=pool)
    with pytest.raises(TypeError, match="executor"):
        qk.search(model, images, executor=5)


def test_dask_loses_a_worker(model, images):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            options = dict(narrow=["int8/int8", "int8/int4"], target_l2=0.6, ranking="measured")
            expected = facts(qk.search(model, images, **options))
            told = []

            def kill(what, done, all):
                if done > 2 and not told:
                    told.append(1)
                    next(iter(cluster.workers.values())).process.process._process.kill()

            assert facts(qk.search(model, images, executor=client.get_executor(), progress=kill, **options)) == expected
