#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times qk.search with a metric of Python's beside the built-in metric of the same definition, taking turns; seconds, seconds of the processor
(which other work on the machine changes less), and layers that were computed.

    PYTHONPATH=build/release/python/package python3 bench/python_search.py MODEL.onnx X.npy [--samples 256] [--turns 3]
"""
import argparse
import time
import warnings

import numpy as np

import qk


def mse(outputs, reference, labels):
    return float(np.mean(np.square(outputs[0].astype(np.float64) - reference[0])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    x = np.load(a.inputs)[: a.samples]
    options = dict(narrow="int8/int4", recipe="fast", threads=a.threads, target_metric=0.05, ranking="measured")
    best, found = {}, {}
    for _ in range(a.turns):
        for name, metric in (("built-in", "mse"), ("Python's", mse)):
            start = time.perf_counter(), time.process_time()
            found[name] = qk.search(a.model, x, metric=metric, **options)
            own = time.perf_counter() - start[0], time.process_time() - start[1]
            best[name] = tuple(map(min, best.get(name, own), own))
    assert found["built-in"]["layers"] == found["Python's"]["layers"], "the two searches differ"
    for what, (built_in, own) in (("seconds", (best["built-in"][0], best["Python's"][0])), ("of the processor", (best["built-in"][1], best["Python's"][1])),
                                  ("layers", [found[n]["layer_evaluations"] for n in best])):
        print(f"{what}: built-in {built_in:.4g}, Python's {own:.4g}, {own / built_in:.3f} times")


if __name__ == "__main__":
    main()
