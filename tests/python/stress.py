#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs many searches in one process and says what the process holds: memory, open files, threads, folders left behind.

    python tests/python/stress.py [SEARCHES]      (1000; where qk is installed, or with PYTHONPATH=build/release/python/package)

Half of the searches have a metric of Python's; every tenth step also quantizes, evaluates, saves a plan and raises an error. Exit status 1
if the second half of them grew by more than 8 MiB, or any file, thread or folder is left. test_process.py has the quick form.
"""

import gc
import glob
import os
import pathlib
import sys
import tempfile
import time
import warnings

import numpy as np

import qk

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "digits"


def held():
    """Returns the resident bytes, open files and threads of this process, and the folders that qk made and that are there yet."""
    gc.collect()
    with open("/proc/self/statm") as file:
        bytes_held = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    folders = [f for place in ("/dev/shm", tempfile.gettempdir()) for f in glob.glob(os.path.join(place, "qk-python-*"))]
    return bytes_held, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(folders)


def step(i, model, images):
    measure = {"target_l2": 0.5} if i % 2 else {"metric": lambda outputs: float(np.abs(outputs[0]).sum()), "target_metric": 1e9}
    found = qk.search(model, images, narrow="int8/int4", max_trials=3, **measure)
    if i % 10 == 0:
        found._repr_html_()
        qk.quantize(model, images, plan=found.plan)
        qk.evaluate(model, images, outputs=True)
        try:
            qk.search(model, images[:, :, :4], narrow="int8/int4", target_l2=0.5)
        except qk.Error:
            pass


def main(searches):
    warnings.simplefilter("ignore")
    model, images = DIGITS / "digits.onnx", np.load(DIGITS / "test_images.npy")[:4]
    start, half, first = time.monotonic(), None, held()
    print(f"{'searches':>8} {'MiB':>8} {'files':>6} {'threads':>8} {'folders':>8} {'seconds':>8}")
    for i in range(searches + 1):
        if i % max(searches // 10, 1) == 0:
            now = held()
            print(f"{i:8} {now[0] / 2**20:8.1f} {now[1]:6} {now[2]:8} {now[3]:8} {time.monotonic() - start:8.1f}", flush=True)
            if i <= searches // 2:
                half = now
        if i < searches:
            step(i, model, images)
    last = held()
    grown = last[0] - half[0]
    print(f"grew by {grown / 2**20:.1f} MiB in the second half")
    return int(grown > 8 << 20 or last[1] > half[1] or last[2] > half[2] or last[3] > first[3])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
