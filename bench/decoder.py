#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of examples/custom_runtime: weights packed on one thread and on all, the same weights as float32, and onnxruntime's MatMulNBits with
matrices of the same shapes, beside plainly reading memory; one run.

    decoder.py CUSTOM_RUNTIME FOLDER [--format mxfp4] [--tokens 8]

FOLDER keeps the checkpoint of 500 million random weights. Times are the processor's, so that other programs on the machine count less. Needs numpy,
onnx and onnxruntime."""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples" / "custom_runtime"))
import make_checkpoint


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr


def seconds_of_token(program, file, tokens, *options):
    """What a token more takes: of a run of 1 + tokens less that of a run of one."""
    command = [program, file, "--prompt", "1", *options, "--tokens"]
    first, _ = processor_seconds([*command, "1"])
    all_of_them, said = processor_seconds([*command, str(1 + tokens)])
    return (all_of_them - first) / tokens, said.strip()


def bytes_read_a_second():
    memory = numpy.ones(1 << 25, numpy.uint64)  # 256 MiB, in 0.5 s of warm-up and best of five
    memory.sum()
    best = 1e9
    for _ in range(5):
        start = time.process_time()
        memory.sum()
        best = min(best, time.process_time() - start)
    return memory.nbytes / best


def seconds_in_onnxruntime(shapes, level, tokens):
    """One vector through MatMulNBits of each shape [rows, columns], 4 bits in blocks of 32, one after the other."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    random, nodes, held, inputs = numpy.random.default_rng(1), [], [], {}
    for i, (n, k) in enumerate(shapes):
        inputs[f"x{k}"] = k
        held.append(onnx.numpy_helper.from_array(random.integers(0, 256, (n, k // 32, 16), numpy.uint8), f"b{i}"))
        held.append(onnx.numpy_helper.from_array(numpy.full(n * k // 32, 0.01, numpy.float32), f"s{i}"))
        nodes.append(helper.make_node("MatMulNBits", [f"x{k}", f"b{i}", f"s{i}"], [f"y{i}"], domain="com.microsoft", K=k, N=n, bits=4, block_size=32, accuracy_level=level))
    value = lambda name, n: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n])
    graph = helper.make_graph(nodes, "layers", [value(x, k) for x, k in inputs.items()], [value(f"y{i}", n) for i, (n, _) in enumerate(shapes)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {x: random.standard_normal((1, k), numpy.float32) for x, k in inputs.items()}
    session.run(None, feed)
    start = time.process_time()
    for _ in range(tokens):
        session.run(None, feed)
    return (time.process_time() - start) / tokens, onnxruntime.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--format", default="mxfp4")
    parser.add_argument("--tokens", type=int, default=8)
    given = parser.parse_args()
    file = given.folder / "model.safetensors"
    if not file.exists():
        make_checkpoint.make(given.folder, given.format, "500m")
    read = bytes_read_a_second()
    print(f"reading memory: {read / 1e9:.1f} GB/s", flush=True)
    packed, said = seconds_of_token(given.program, file, given.tokens)
    each = float(said.split("tokens/s, ")[1].split(" MB")[0]) * 1e6
    print(f"packed {given.format}: {1 / packed:.2f} tokens/s, {each / 1e6:.0f} MB of weights a token, {each / packed / read:.2f} of reading them", flush=True)
    for what, how in (("in memory of large pages", ["--resident"]), ("vectors rounded to int8 by block", ["--integers"]), ("both", ["--resident", "--integers"])):
        seconds, _ = seconds_of_token(given.program, file, given.tokens, *how)
        print(f"packed, {what}: {1 / seconds:.2f} tokens/s, {each / seconds / read:.2f} of reading the weights", flush=True)
    if (os.cpu_count() or 1) > 1:
        for how in ([], ["--integers"]):
            _, said = seconds_of_token(given.program, file, given.tokens, "--resident", "--threads", str(os.cpu_count()), *how)
            print(f"the same{', rounded' if how else ''} on {os.cpu_count()} threads, by the clock: {said.split(' tokens/s')[0]} tokens/s", flush=True)
    floats, _ = seconds_of_token(given.program, file, given.tokens, "--floats")
    print(f"the same as float32: {1 / floats:.2f} tokens/s", flush=True)
    c = make_checkpoint.SIZES["500m"]
    width, inner, heads, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    layer = [(heads, width), (kv, width), (kv, width), (width, heads), (inner, width), (inner, width), (width, inner)]
    for level in (0, 4):
        seconds, version = seconds_in_onnxruntime(layer * c["num_hidden_layers"], level, given.tokens)
        print(f"onnxruntime {version}, MatMulNBits, accuracy level {level}, the matrices of the layers alone: {1 / seconds:.2f} tokens/s", flush=True)


main()
