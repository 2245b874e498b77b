# SPDX-License-Identifier: Apache-2.0
"""qk: number formats for neural networks, and mixed precision for ONNX models.

Arrays: fake_quantize, encode, decode, formats, format, compare, find_accumulator, vectors, dot, devices,
fake_quantize_backward.
Models: load, then quantize, calibrate, evaluate, diff, sensitivity, search, gradient, finetune, inspect, explain, recover.
The options of a model's functions are those of the command `qk`; `help(qk.search)` lists them.
Beside them qk.torch trains in formats, and qk.onnxruntime runs files at the speed of the kernels.
"""

import sys

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError("qk does not support free-threaded Python, where no lock guards its objects: use the ordinary build of "
                      f"Python {sys.version_info[0]}.{sys.version_info[1]} (python{sys.version_info[0]}.{sys.version_info[1]}, without the t)")
try:
    from . import _qk as _module  # before numpy, whose words about sub-interpreters are others
except ImportError as e:
    if "subinterpreter" not in str(e):
        raise
    raise ImportError("qk works in a process's main interpreter, not in a sub-interpreter: use threads, or other processes "
                      "(multiprocessing, concurrent.futures.ProcessPoolExecutor)") from e
from ._arrays import (
    Packed,
    Semantics,
    architecture,
    decode,
    encode,
    fake_quantize,
    fake_quantize_backward,
)
from ._formats import Format, format, formats, semantics, roundings
from ._qk import Error
from ._qk import version as __version__

_of_models = (
    "Model", "load", "quantize", "calibrate", "evaluate", "diff", "sensitivity", "search", "gradient", "finetune", "recover", "inspect", "explain",
    "compare", "Comparison", "find_accumulator", "vectors", "dot", "devices", "Plan", "Interrupted", "Remark",
)
_of_imports = ("from_quark", "from_inc", "from_nncf", "from_aimet", "to_aimet", "write_aimet", "ConfigError")

__all__ = [
    "Packed", "Semantics", "architecture", "decode", "encode", "fake_quantize", "fake_quantize_backward", "Format", "format", "formats",
    "semantics", "roundings", "Error", *_of_models, *_of_imports,
]


def __getattr__(name):
    """Loads what concerns models when it is first used: arrays alone are there at once."""
    import importlib

    if name in _of_models:
        return getattr(importlib.import_module("qk._models"), name)
    if name in _of_imports:
        return getattr(importlib.import_module("qk._imports"), name)
    if name in ("torch", "onnxruntime"):
        return importlib.import_module("qk." + name)
    raise AttributeError(f"module 'qk' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
