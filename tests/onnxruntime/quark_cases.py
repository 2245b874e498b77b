# SPDX-License-Identifier: Apache-2.0
"""Models of AMD Quark's operators, one each, under every attribute that it writes."""
import numpy as np
from onnx import helper

from evidence.graphs import save

def quark(path, kind, dtype=np.float32, domain="com.amd.quark", zero=None, scale=None, shape=(6, 33, 5), **attributes):
    """A model of one operator, on x; with a zero point one that makes codes, and one that reads them behind it."""
    type_of = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    held = {}
    if zero is None:
        nodes = [helper.make_node(kind, ["x"], ["y0"], name="q", domain=domain, **attributes)]
    else:
        held = {"s": scale, "z": zero}
        nodes = [helper.make_node(kind, ["x", "s", "z"], ["c"], name="q", domain=domain, **attributes),
                 helper.make_node(kind.replace("Quantize", "Dequantize"), ["c", "s", "z"], ["y0"], name="d", domain=domain, **attributes)]
    return save(path, nodes, [("x", type_of, [None] * len(shape))], [("y0", type_of, [None] * len(shape))], held, opset=13, domains=[domain])


def quark_operators():
    """Each operator with its attributes: what a model has, the type of x, and what it is called."""
    for domain, names in (("com.amd.quark", ("BFPQuantizeDequantize", "MXQuantizeDequantize", "ExtendedQuantizeLinear")), ("com.vai.quantize", ("BFPFixNeuron", "MXFixNeuron", "VitisQuantizeLinear"))):
        bfp, mx, codes = names
        for mode in (0, 1, 2):
            for axis in (0, 1, -1):
                yield bfp, {"domain": domain, "bfp_method": "to_bfp", "bit_width": 16, "block_size": 8, "rounding_mode": mode, "axis": axis}
                yield bfp, {"domain": domain, "bfp_method": "to_bfp_prime", "bit_width": 13, "block_size": 16, "rounding_mode": mode, "axis": axis, "sub_block_size": 2, "sub_block_shift_bits": 1}
            yield mx, {"domain": domain, "element_dtype": "int8", "block_size": 32, "rounding_mode": mode}
            yield bfp, {"domain": domain, "bfp_method": "to_bfp", "bit_width": 13, "block_size": 16, "rounding_mode": mode, "convert_to_bfloat_before_bfp": 1}
        for element in ("fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1"):
            yield mx, {"domain": domain, "element_dtype": element, "block_size": 32, "axis": 1}
        yield mx, {"domain": domain, "element_dtype": "fp8_e4m3", "dtype": np.float16}
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.float16):
            for count in (1, 33):
                zero = np.arange(count).astype(dtype) if dtype != np.float16 else np.zeros(count, dtype)
                shape = () if count == 1 else (33,)
                yield codes, {"domain": domain, "zero": zero.reshape(shape), "scale": (0.01 + np.arange(count, dtype=np.float32) / 16).reshape(shape), "axis": 1}
