# SPDX-License-Identifier: Apache-2.0
"""Trials on other processes and machines, over any concurrent.futures.Executor.

The search runs here. A trial travels as its plan; model and data travel with a trial again whose worker said that it lacks them. Workers
measure with the code that measures here, so the result has the same bits.
"""

import concurrent.futures
import os
import pickle
import uuid

from . import _data, _files, _qk, _run

_prepared = {}  # in a worker: what it measures with, by the key of the search


def trial(key, payload, plans):
    """Measures plans in a worker. Returns None where the worker has not got the model and the data yet."""
    held = _prepared.get(key)
    if held is None:
        if payload is None:
            return None
        workspace = _data.Workspace(sum(len(b) for b in payload["files"].values()))
        for name, content in payload["files"].items():
            path = workspace / name
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        words = [w.replace("{workspace}", workspace.path) for w in payload["words"]]
        metric = payload["metric"]
        _prepared.clear()  # a worker serves one search at a time
        alone = metric is not None and _run.measures(metric)
        own = None if metric is None else _run._Measure(metric, "metric")
        held = _prepared[key] = (_qk.Trials(["sensitivity", *words], own, alone), workspace)
    return held[0].scores(plans)


def _payload(model, options, workspace, metric):
    """Returns everything that a worker needs, with paths in the workspace made relative. `options` are words of the command."""
    files = {} if model.path is not None else {"model/model.onnx": model.bytes}
    for place, path in ({} if model.path is None else model._files).items():  # the model first, then its external data
        files[f"model/{place}"] = _files.read(path)
    own = next(iter(files))
    for folder, _, names in os.walk(workspace.path):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, workspace.path)] = file.read()
    words = [f"{{workspace}}/{own}", *(w.replace(workspace.path, "{workspace}") for w in options)]
    return {"files": files, "words": words, "metric": metric}


def _cannot_travel(wrong, metric):
    """Returns the error for a metric that an executor could not pickle; None for any other error."""
    if metric is None or "pickle" not in f"{type(wrong).__name__} {wrong}".lower():
        return None
    name = getattr(metric, "__qualname__", type(metric).__name__)
    return TypeError(f"metric is {name}, which does not travel to the executor's workers: they take what pickle can name. Define it with "
                     f"def at the top of a module, or give a pool of threads (the error was: {wrong})")


class Trials:
    """Gives the trials of one search to an executor."""

    tries = 4

    def __init__(self, executor, model, options, workspace, metric):
        if not hasattr(executor, "submit"):
            raise TypeError(f"executor is a {type(executor).__name__}; give one of concurrent.futures (or of dask or mpi4py)")
        self.executor, self.key = executor, uuid.uuid4().hex
        self.payload = _payload(model, options, workspace, metric)

    def __call__(self, plans):
        scores, waiting = [None] * len(plans), {}
        failed = [0] * len(plans)
        for i, plan in enumerate(plans):
            waiting[self.executor.submit(trial, self.key, None, [plan])] = i
        while waiting:
            done, _ = concurrent.futures.wait(list(waiting), return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                i = waiting.pop(future)
                try:
                    result = future.result()
                except (_qk.Error, TypeError, ValueError, AttributeError, pickle.PicklingError) as wrong:
                    if (sentence := _cannot_travel(wrong, self.payload["metric"])) is not None:
                        raise sentence from None
                    raise
                except concurrent.futures.BrokenExecutor:
                    raise
                except Exception:  # a worker that is gone: another takes its trial
                    failed[i] += 1
                    if failed[i] >= self.tries:
                        raise
                    waiting[self.executor.submit(trial, self.key, self.payload, [plans[i]])] = i
                    continue
                if result is None:
                    waiting[self.executor.submit(trial, self.key, self.payload, [plans[i]])] = i
                else:
                    scores[i] = result[0]
        return scores
