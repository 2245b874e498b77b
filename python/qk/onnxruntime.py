# SPDX-License-Identifier: Apache-2.0
"""qk's kernels in onnxruntime: the functions of a file that qk wrote run as operators, at the speed of qk.fake_quantize and with its bits.

    session = qk.onnxruntime.session("mx.onnx")              # onnxruntime.InferenceSession
    session.run(None, {"x": x})

The library works with onnxruntime 1.17 and later, on the CPU. docs/guide/onnxruntime.md, docs/reference/portable_functions.md.
"""

import ctypes
import functools
import os
import tempfile
from pathlib import Path

from ._qk import Error

__all__ = ["library_path", "register", "session"]


def library_path():
    """Returns the path of libqk_onnxruntime, as text, for SessionOptions.register_custom_ops_library and its like in other languages.

    QK_ONNXRUNTIME_LIBRARY names another one. Raises qk.Error where this qk was built without it.
    """
    path = os.environ.get("QK_ONNXRUNTIME_LIBRARY") or str(Path(__file__).with_name("libqk_onnxruntime.so"))
    if not Path(path).is_file():
        raise Error(f"there is no {path}: this qk was built without the component onnxruntime, for lack of onnxruntime's headers "
                    "(./dev wheel has them; QK_ONNXRUNTIME_LIBRARY names a library that is elsewhere)")
    return path


@functools.cache
def _library(path):
    library = ctypes.CDLL(path)
    library.qk_onnxruntime_model.argtypes, library.qk_onnxruntime_problem.restype = [ctypes.c_char_p], ctypes.c_char_p
    return library


class _File:
    """A model as a file: its own, or one that lies in a temporary folder until the end of the block."""

    def __init__(self, model):
        self._folder, self.is_named = None, isinstance(model, (str, os.PathLike))
        if self.is_named:
            self.path = os.fspath(model)
            return
        if hasattr(model, "SerializeToString"):
            model = model.SerializeToString()
        if not isinstance(model, (bytes, bytearray, memoryview)):
            raise Error(f"a model is a file, its bytes or an onnx.ModelProto, not {type(model).__name__}")
        self._folder = tempfile.TemporaryDirectory(prefix="qk-")
        self.path = os.path.join(self._folder.name, "model.onnx")
        Path(self.path).write_bytes(model)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._folder is not None:
            self._folder.cleanup()


def register(session_options, model=None):
    """Registers qk's operators with an onnxruntime.SessionOptions.

    Without `model` those of the catalogue's formats, the first four functions of each. With a `model` (a file, its bytes or an onnx.ModelProto) all of
    its functions, those in formats of your own among them. Raises qk.Error where its functions are not as qk wrote them: an edited one would compute
    something else than the operator. A second call with the same options adds what is new.
    """
    path = library_path()
    if model is None:
        session_options.register_custom_ops_library(path)
        return
    library = _library(path)
    with _File(model) as file:
        if library.qk_onnxruntime_model(os.fsencode(file.path)) != 0:
            problem = library.qk_onnxruntime_problem().decode(errors="replace")
            raise Error(problem if file.is_named else problem.replace(f"'{file.path}'", "the model"))
    session_options.register_custom_ops_library(path)


def session(model, sess_options=None, providers=None, **more):
    """Returns an onnxruntime.InferenceSession for `model` (a file, its bytes or an onnx.ModelProto) that runs qk's functions as operators.

    The other arguments are those of InferenceSession; `providers` is the CPU's alone if none are named. Raises qk.Error where the model's functions are
    not as qk wrote them.
    """
    import onnxruntime

    options = sess_options or onnxruntime.SessionOptions()
    register(options, model)
    if not isinstance(model, (str, os.PathLike)):
        model = model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
    return onnxruntime.InferenceSession(model, options, providers=providers or ["CPUExecutionProvider"], **more)
