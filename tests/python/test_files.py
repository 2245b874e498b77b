# SPDX-License-Identifier: Apache-2.0
"""Files by Python's door: regular files alone, and outputs whole or not at all."""

import os
import resource
import signal

import numpy as np
import pytest

import qk

readers = {
    "model": lambda path: qk.load(path).bytes,
    "plan": lambda path: qk.Plan(path),
    "encodings": lambda path: qk.from_aimet(path),
    "packed": lambda path: qk.Packed.load(path),
}


@pytest.mark.parametrize("name", readers)
def test_a_pipe_or_device_is_refused_at_once(name, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    signal.alarm(20)  # ends a reader that waits
    try:
        for path, kind in ((pipe, "it is a pipe"), ("/dev/zero", "it is a device")):
            with pytest.raises(qk.Error, match=kind):
                readers[name](path)
        with pytest.raises(FileNotFoundError):
            readers[name](tmp_path / "missing")
    finally:
        signal.alarm(0)


def test_what_is_saved_is_whole_or_as_it_was(tmp_path):
    plan = qk.Plan({"requests": [{"weight": "int8"}]})
    packed = qk.encode(np.ones((64, 64), np.float32), "mxfp4")
    file, codes = tmp_path / "plan.json", tmp_path / "codes.npz"
    plan.save(file)
    packed.save(codes)
    before = file.read_bytes(), codes.read_bytes()
    assert np.array_equal(qk.Packed.load(codes).decode(), packed.decode())
    assert qk.Plan(file).document == plan.document
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        for save in (lambda: plan.save(file), lambda: packed.save(codes), lambda: packed.save(tmp_path / "new.npz")):
            with pytest.raises(qk.Error, match="cannot write"):
                save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (file.read_bytes(), codes.read_bytes()) == before and sorted(os.listdir(tmp_path)) == ["codes.npz", "plan.json"]
