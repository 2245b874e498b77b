#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times packages from PyPI that bench/kernels is compared with, on one thread: ml_dtypes, torch, torchao, onnxruntime, and microxcaling's
and Quark's block formulas written in torch. Names are those of bench/kernels with PEER:FORMAT for FORMAT. Missing packages are left out.

    python3 bench/peers.py > peers.json

Times only float32 to float32, like fake_quantize: a cast to the format and back if the peer has no fake-quantize.
Buffers are allocated once where the peer lets its caller do so.
"""
import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

WORKING_SETS = [262144, 8388608, 268435456]


def rate(run, total_bytes, seconds=0.3):
    """Returns the median bytes per second of calls that together last `seconds`."""
    run()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return total_bytes / sorted(times)[len(times) // 2]


def ml_dtypes_peers(x, y):
    import ml_dtypes as m

    types = {"bf16": m.bfloat16, "fp8_e4m3fn": m.float8_e4m3fn, "fp8_e5m2": m.float8_e5m2, "fp8_e4m3fnuz": m.float8_e4m3fnuz,
             "fp8_e5m2fnuz": m.float8_e5m2fnuz, "fp6_e3m2": m.float6_e3m2fn, "fp6_e2m3": m.float6_e2m3fn, "fp4_e2m1": m.float4_e2m1fn}
    for name, dtype in types.items():
        yield f"ml_dtypes:{name}", lambda dtype=dtype: np.copyto(y, x.astype(dtype), casting="unsafe")
    yield "numpy:fp16", lambda: np.copyto(y, x.astype(np.float16), casting="unsafe")


def torch_peers(x, y):
    import torch

    torch.set_num_threads(1)
    a, out = torch.from_numpy(x), torch.from_numpy(y)
    for name, dtype in {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}.items():
        yield f"torch:{name}", lambda dtype=dtype: out.copy_(a.to(dtype))
    yield "torch:int8", lambda: torch.fake_quantize_per_tensor_affine(a, 0.05, 0, -128, 127)

    def block_formula(block, step_of, limit_of):
        def run():
            b = a.view(-1, block)
            step = step_of(b.abs().amax(dim=1, keepdim=True))
            limit = limit_of(step)
            torch.minimum(torch.maximum((b / step).round_() * step, -limit), limit, out=out.view(-1, block))
        return run

    exponent = lambda m: torch.floor(torch.log2(m + torch.finfo(torch.float32).tiny))
    yield "formula in torch:bfp16", block_formula(8, lambda m: torch.exp2(exponent(m) - 6), lambda s: 127 * s)
    yield "formula in torch:mxint8", block_formula(32, lambda m: torch.exp2(exponent(m) - 6), lambda s: 127 * s)

    def mx_formula(largest_exponent, mantissa, least_exponent, largest):
        # microxcaling's formula: takes a private exponent for each element, then rounds to its mantissa.
        def run():
            b = a.view(-1, 32)
            scale = torch.exp2(exponent(b.abs().amax(dim=1, keepdim=True)) - largest_exponent)
            v = b / scale
            private = torch.exp2(torch.clamp(exponent(v.abs()), min=least_exponent) - mantissa)
            torch.mul(torch.clamp((v / private).round_() * private, -largest, largest), scale, out=out.view(-1, 32))
        return run

    yield "microxcaling's formula in torch:mxfp8_e4m3", mx_formula(8, 3, -6, 448.0)
    yield "microxcaling's formula in torch:mxfp8_e5m2", mx_formula(15, 2, -14, 57344.0)
    yield "microxcaling's formula in torch:mxfp6_e3m2", mx_formula(4, 2, -2, 28.0)
    yield "microxcaling's formula in torch:mxfp6_e2m3", mx_formula(2, 3, 0, 7.5)
    yield "microxcaling's formula in torch:mxfp4", mx_formula(2, 1, 0, 6.0)


def torchao_peers(x, y):
    import torch
    from torchao.prototype.mx_formats.mx_tensor import MXTensor

    a = torch.from_numpy(x).view(-1, 32)
    for name, dtype in {"mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2}.items():
        yield f"torchao:{name}", lambda dtype=dtype: MXTensor.to_mx(a, dtype, 32).dequantize(torch.float32)


def onnxruntime_peers(x, y):
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    def session(nodes, constants):
        graph = helper.make_graph(nodes, "peer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [x.size])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [x.size])],
                                  [numpy_helper.from_array(v, k) for k, v in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(s):
        binding = s.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu")
        return lambda: s.run_with_iobinding(binding)

    for name, dtype in {"int8": np.int8, "int16": np.int16}.items():
        yield f"onnxruntime:{name}", run(session(
            [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])],
            {"s": np.float32(0.05), "z": dtype(0)}))
    for name, code in {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "fp8_e4m3fn": TensorProto.FLOAT8E4M3FN}.items():
        yield f"onnxruntime:{name}", run(session(
            [helper.make_node("Cast", ["x"], ["q"], to=code), helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)], {}))


def main():
    generator = np.random.default_rng(1)
    results = []
    for size in WORKING_SETS:
        x = generator.standard_normal(size // 8, dtype=np.float32)
        y = np.zeros_like(x)
        for peers in (ml_dtypes_peers, torch_peers, torchao_peers, onnxruntime_peers):
            try:
                for name, run in peers(x, y):
                    try:
                        results.append({"name": f"{name}/{size}", "bytes_per_second": rate(run, size)})
                    except Exception as problem:
                        print(f"{name}: {type(problem).__name__}: {str(problem)[:100]}", file=sys.stderr)
            except ImportError as missing:
                print(f"left out: {missing}", file=sys.stderr)
    json.dump({"benchmarks": results}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
