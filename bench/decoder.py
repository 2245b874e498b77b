#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of examples/custom_runtime: weights packed on one thread and on all, the same weights as float32, and onnxruntime's MatMulNBits with
matrices of the same shapes, beside plainly reading memory; one run.

    decoder.py CUSTOM_RUNTIME FOLDER [--format mxfp4|int8|bf16|...] [--tokens 8] [--llama LLAMA_BENCH]

FOLDER keeps the checkpoint of 500 million random weights. Times are the processor's, so that other programs on the machine count less. Needs numpy,
onnx and onnxruntime. --llama writes the same weights as a .gguf (mxfp4: MXFP4, int8: Q8_0 with the same codes, bf16: BF16; needs gguf) and has
llama.cpp's llama-bench make tokens of it, by the clock, in turn with custom_runtime."""
import argparse
import json
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


def write_gguf(checkpoint, how, to):
    """Writes what make_checkpoint made for llama.cpp: the same codes, in ggml's blocks."""
    import gguf

    size = int.from_bytes(checkpoint.read_bytes()[:8], "little")
    memory = numpy.memmap(checkpoint, numpy.uint8, "r")
    header = json.loads(bytes(memory[8:8 + size]))
    c = json.loads((checkpoint.parent / "config.json").read_text())
    types = {"BF16": numpy.uint16, "U8": numpy.uint8, "I8": numpy.int8, "F32": numpy.float32}
    tensor = {name: memory[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]].view(types[t["dtype"]]).reshape(t["shape"]) for name, t in header.items()}
    writer = gguf.GGUFWriter(to, "qwen3")
    for add, key in (("block_count", "num_hidden_layers"), ("embedding_length", "hidden_size"), ("feed_forward_length", "intermediate_size"), ("head_count", "num_attention_heads"),
                     ("head_count_kv", "num_key_value_heads"), ("key_length", "head_dim"), ("value_length", "head_dim"), ("layer_norm_rms_eps", "rms_norm_eps"), ("rope_freq_base", "rope_theta"),
                     ("vocab_size", "vocab_size")):
        getattr(writer, "add_" + add)(c[key])
    writer.add_context_length(4096)
    writer.add_tokenizer_model("no_vocab")
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    wide = lambda bits: (bits.astype(numpy.uint32) << 16).view(numpy.float32)

    def put(name, own):
        if own + ".weight_packed" in tensor:  # the first sixteen of 32 values in the low nibbles
            packed = tensor[own + ".weight_packed"]
            codes = numpy.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, 2, 16)
            blocks = numpy.concatenate([tensor[own + ".weight_scale"][..., None], codes[:, :, 0] | codes[:, :, 1] << 4], -1)
            writer.add_tensor(name, numpy.ascontiguousarray(blocks.reshape(packed.shape[0], -1)), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        elif tensor[own + ".weight"].dtype == numpy.int8:
            codes, scale = tensor[own + ".weight"], tensor[own + ".weight_scale"].astype(numpy.float16)
            scales = numpy.broadcast_to(scale[:, None], (codes.shape[0], codes.shape[1] // 32, 1)).copy().view(numpy.uint8)
            blocks = numpy.concatenate([scales, codes.reshape(codes.shape[0], -1, 32).view(numpy.uint8)], -1)
            writer.add_tensor(name, numpy.ascontiguousarray(blocks.reshape(codes.shape[0], -1)), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        elif tensor[own + ".weight"].ndim == 1:
            writer.add_tensor(name, wide(tensor[own + ".weight"]))
        else:
            writer.add_tensor(name, numpy.ascontiguousarray(tensor[own + ".weight"]).view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)

    put("token_embd.weight", "model.embed_tokens"), put("output_norm.weight", "model.norm"), put("output.weight", "lm_head")
    for i in range(c["num_hidden_layers"]):
        for own, name in names.items():
            put(f"blk.{i}.{name}.weight", f"model.layers.{i}.{own}")
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()


def beside_llama(program, bench, file, how, tokens):
    """Prints tokens a second by the clock, the best of turns: llama.cpp, and custom_runtime with floats and with whole numbers."""
    model = file.parent / "model.gguf"
    if not model.exists():
        write_gguf(file, how, model)
    for threads in sorted({1, os.cpu_count() or 1}):
        best = {}
        for _ in range(3):
            done = subprocess.run([bench, "-m", model, "-p", "0", "-n", str(tokens), "-t", str(threads), "-r", "1", "-o", "json"], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            best["llama.cpp"] = max(best.get("llama.cpp", 0), json.loads(done.stdout)[0]["avg_ts"])
            for name, options in (("floats", []), ("whole numbers", ["--integers"])):
                said = subprocess.run([program, file, "--prompt", "1", "--resident", "--tokens", str(tokens), "--threads", str(threads), *options], capture_output=True, text=True, check=True).stderr
                best[name] = max(best.get(name, 0), float(said.split(" tokens/s")[0].split()[-1]))
        print(f"{how}, threads: {threads}, by the clock: " + ", ".join(f"{name} {value:.2f} tokens/s" for name, value in best.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--format", default="mxfp4")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--llama", help="llama.cpp's llama-bench")
    given = parser.parse_args()
    file = given.folder / "model.safetensors"
    if not file.exists():
        make_checkpoint.make(given.folder, given.format, "500m")
    if given.llama:
        return beside_llama(given.program, given.llama, file, given.format, given.tokens)
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
