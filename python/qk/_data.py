# SPDX-License-Identifier: Apache-2.0
"""Samples as Python has them: arrays, dictionaries, iterables of either, a DataLoader, readers with get_next().

They go to a call as they lie in memory. Only what other processes read is written: batch by batch, into a workspace.
"""

import os
import re
import shutil
import tempfile
import weakref

import numpy as np

from ._arrays import _to_numpy


def is_path(value):
    return isinstance(value, (str, os.PathLike))


def as_array(value, name="data"):
    """Returns an array of the caller's as numpy has it; bfloat16 and narrower become float32."""
    if is_path(value):
        raise TypeError(f"{name} is a path, where an array is needed")
    if isinstance(value, (list, tuple)):
        plain = np.asarray(value)
        if plain.dtype == np.float64 and not any(isinstance(v, np.ndarray) for v in value):
            plain = plain.astype(np.float32)  # Python's own numbers have no width that a caller chose
    elif isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        plain = value
    else:
        plain, _, dtype = _to_numpy(value, name)
        if dtype == "bfloat16" and plain.dtype == np.uint16:
            plain = (plain.astype(np.uint32) << 16).view(np.float32)
    if plain.dtype.kind == "V" or plain.dtype.name.startswith(("bfloat", "float8_", "float6_", "float4_")):
        plain = plain.astype(np.float32)
    elif plain.dtype.name in ("int4", "int2"):
        plain = plain.astype(np.int8)
    elif plain.dtype.name in ("uint4", "uint2"):
        plain = plain.astype(np.uint8)
    if plain.dtype.kind not in "fiub":
        raise TypeError(f"{name} holds {plain.dtype}; give numbers")
    return plain


class Workspace:
    """A folder for what a call needs as files, made when the first is named: in shared memory if `expected` bytes fit there, else where
    temporary files go."""

    def __init__(self, expected=0):
        self._expected, self._path, self._remove = expected, None, None
        self.places = {}  # what stands on each line of the plan that lies here, by its file's name and the line

    @property
    def path(self):
        if self._path is None:
            place = None
            try:
                room = os.statvfs("/dev/shm")
                if room.f_bavail * room.f_frsize > 2 * self._expected + (64 << 20):
                    place = "/dev/shm"
            except OSError:
                pass
            self._path = tempfile.mkdtemp(prefix="qk-python-", dir=place)
            self._remove = weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        return self._path

    def close(self):
        if self._remove is not None:
            self._remove()

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def known(self, text):
        """Returns a sentence without what its reader has never seen: this folder, and a file in it."""
        if self._path is not None:
            text = text.replace(self._path + os.sep, "")
        for name, places in self.places.items():
            text = re.sub(rf"{re.escape(name)}:(\d+)", lambda found: places.get(int(found[1]), "the plan"), text)
            text = text.replace(name, "the plan")
        return text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _is_array(value):
    return (
        isinstance(value, np.ndarray)
        or isinstance(value, (int, float, np.number))
        or hasattr(value, "__dlpack__")
        or hasattr(value, "__array__")
        or hasattr(value, "__array_interface__")
    )


def _named(batch, inputs, what):
    """Returns (arrays by input name, labels or None) of one batch. `inputs` are the model's, or empty if they are not known."""
    if isinstance(batch, dict) or (hasattr(batch, "keys") and hasattr(batch, "__getitem__")):
        if not batch:
            raise ValueError(f"{what} is empty: give an array for each input of the model")
        return {str(k): as_array(batch[k], f"{what}[{k!r}]") for k in batch.keys()}, None
    if _is_array(batch):
        return {"": as_array(batch, what)}, None
    if isinstance(batch, (list, tuple)):
        if not batch:
            raise ValueError(f"{what} is empty")
        if not all(_is_array(v) for v in batch):
            return {"": as_array(batch, what)}, None
        arrays = [as_array(v, f"{what}[{i}]") for i, v in enumerate(batch)]
        count = max(len(inputs), 1)
        if len(arrays) == count + 1 and isinstance(batch[-1], int):  # the label of one sample
            arrays[-1] = np.asarray(batch[-1])
        if len(arrays) == count:
            return dict(zip(inputs or [""], arrays)), None
        if len(arrays) == count + 1 and arrays[-1].dtype.kind in "iu":
            return dict(zip(inputs or [""], arrays)), arrays[-1]
        raise ValueError(
            f"{what} has {len(arrays)} arrays, and the model {count} input{'s' if count > 1 else ''}"
            " (one more, of whole numbers, would be the labels): give a dictionary by input name"
        )
    raise TypeError(f"{what} is a {type(batch).__name__}; give an array, or a dictionary of arrays by input name")


def batches(data):
    """Returns an iterator over the batches of an iterable or a reader; None where the data is one batch by itself."""
    if hasattr(data, "get_next"):
        rewind = getattr(data, "rewind", None)
        if callable(rewind):
            try:
                rewind()
            except NotImplementedError:
                pass

        def read():
            while True:
                try:
                    batch = data.get_next()
                except StopIteration:
                    return
                if batch is None:
                    return
                yield batch

        return read()
    if _is_array(data) or isinstance(data, dict):
        return None
    if isinstance(data, (list, tuple)):
        if data and all(is_path(v) for v in data):
            return None
        if data and all(_is_array(v) and np.ndim(v) > 0 for v in data):
            return None if _has_labels(data) else iter(data)
        if data and all(isinstance(v, (dict, list, tuple)) and not np.isscalar(v) for v in data) and not _is_plain_list(data):
            return iter(data)
        return None
    if hasattr(data, "__iter__"):
        return iter(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):  # a Dataset of torch
        return (data[i] for i in range(len(data)))
    raise TypeError(
        f"data is a {type(data).__name__}; give arrays, a dictionary by input name, an iterable of either, a DataLoader, or a reader with"
        " get_next()"
    )


def _has_labels(arrays):
    """Is true for (samples, labels): floats, and as many whole numbers, which are no second batch of the same input."""
    if len(arrays) < 2:
        return False
    first, last = as_array(arrays[0]), as_array(arrays[-1])
    return first.dtype.kind == "f" and last.dtype.kind in "iu" and len({np.shape(v)[0] for v in arrays}) == 1


def _is_plain_list(value):
    """Is true for nested lists of numbers, which are one array."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (int, float))


def paths(data):
    """Returns the arguments of an option where data is named by files; None where it lies in memory."""
    if is_path(data):
        return [os.fspath(data)]
    if isinstance(data, (list, tuple)) and data and all(is_path(v) for v in data):
        return [os.fspath(v) for v in data]
    if isinstance(data, dict) and data and all(is_path(v) for v in data.values()):
        return [f"{k}={os.fspath(v)}" for k, v in data.items()]
    return None


def ready(array):
    """Returns an array as a call reads it: in one piece, in the machine's byte order. Copies only what is not."""
    if array.dtype.itemsize > 8:
        raise TypeError(f"data holds {array.dtype}, which no model takes; give float64 or narrower")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.require(array, requirements=("C", "A"))


def take(data, inputs):
    """Returns data in memory as (batches, dictionaries of arrays by input name; labels that came with it or None)."""
    each = batches(data)
    if each is None:
        arrays, labels = _named(data, inputs, "data")
        return [{key: ready(array) for key, array in arrays.items()}], labels
    all, labels = [], []
    for batch, own in _checked(each, inputs):
        all.append({key: ready(np.array(array)) for key, array in batch.items()})  # loaders use a batch's memory again
        if own is not None:
            labels.append(np.atleast_1d(np.array(own)))
    return all, np.concatenate(labels) if labels else None


def write(data, workspace, name, inputs):
    """Writes data as the command reads it. Returns (arguments of an option, file of labels that came with it or None)."""
    each = batches(data)
    if each is None:
        arrays, labels = _named(data, inputs, "data")
        return _write_whole(arrays, workspace, name), labels if labels is None else _save(workspace / f"{name}-labels.npy", labels)
    return _write_batches(each, workspace, name, inputs)


def _save(file, array):
    np.save(file, np.ascontiguousarray(array).reshape(array.shape))
    return file


def _write_whole(arrays, workspace, name):
    words = []
    for i, (key, array) in enumerate(arrays.items()):
        file = _save(workspace / f"{name}-{i}.npy", array)
        words.append(f"{key}={file}" if key else file)
    return words


def _checked(each, inputs):
    """Yields (arrays by input name, labels or None) of each batch; at least one, and all of the same inputs."""
    before, count = None, 0
    for count, batch in enumerate(each, 1):
        arrays, own = _named(batch, inputs, f"batch {count - 1} of data")
        if before is not None and set(arrays) != before:
            raise ValueError(f"batch {count - 1} of data has {sorted(arrays)}, the ones before {sorted(before)}")
        before = set(arrays)
        yield arrays, own
    if count == 0:
        raise ValueError("data is empty: the iterator gave no batch (an iterator that was read once gives nothing a second time)")


def _write_batches(each, workspace, name, inputs):
    folders, labels = {}, []
    for count, (arrays, own) in enumerate(_checked(each, inputs)):
        for i, (key, array) in enumerate(arrays.items()):
            folder = folders.setdefault(key, workspace / f"{name}-{i}")
            os.makedirs(folder, exist_ok=True)
            _save(os.path.join(folder, f"{count + 1:09}.npy"), array)
        if own is not None:
            labels.append(np.atleast_1d(np.array(own)))
    words = [f"{key}={folder}" if key else folder for key, folder in folders.items()]
    return words, _save(workspace / f"{name}-labels.npy", np.concatenate(labels)) if labels else None
