# SPDX-License-Identifier: Apache-2.0
"""Compares com.microsoft's operators of language models in qk and onnxruntime: attention, rotary positions, embeddings, MatMulNBits."""
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, folder, run
from evidence.graphs import save
from evidence.runtimes import outputs as in_onnxruntime

import numpy as np
import onnx
from onnx import helper

rng = np.random.default_rng(11)


def floats(*shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def compare(what, kind, inputs, outputs, constants=(), tolerance=2e-5, compared=None, **attributes):
    """Runs one node in both. `inputs`: name to value or None; those in `constants` are initializers. `outputs`: names, "" for none."""
    given = {k: v for k, v in inputs.items() if v is not None}
    node = helper.make_node(kind, [k if v is not None else "" for k, v in inputs.items()], outputs, name="n", domain="com.microsoft", **attributes)
    fed = {k: v for k, v in given.items() if k not in constants}
    infos = [(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in fed.items()]
    path = save(at("m.onnx"), [node], infos, [onnx.ValueInfoProto(name=o) for o in outputs if o], {k: given[k] for k in constants if k in given}, domains=["com.microsoft"], ir_version=9)
    try:
        wanted = dict(zip([o for o in outputs if o], in_onnxruntime(path, fed, "off")))
    except Exception as refused:  # onnxruntime's CPU kernels lack some forms
        if "not implemented for CPU" not in str(refused) and "NOT_IMPLEMENTED" not in str(refused):
            raise
        return
    np.savez(at("x.npz"), **fed)
    out = tempfile.mkdtemp(dir=folder())
    done = run("evaluate", path, "--inputs", at("x.npz"), "--output-dir", out)
    problem = done.stderr if done.returncode else ""
    for name, value in wanted.items():
        if problem:
            break
        if compared is not None and name not in compared:
            continue
        got = np.load(os.path.join(out, name + ".npy"))
        if got.shape != value.shape:
            problem = f"{name} has shape {got.shape}, not {value.shape}"
        elif not np.abs(got.astype(np.float64) - value).max() <= tolerance * max(1, np.abs(value.astype(np.float64)).max()):
            problem = f"{name} differs by {np.abs(got.astype(np.float64) - value).max():.3g}"
    check(not problem, f"{what}: {problem.strip()}")


def test_multi_head():
    b, s, n, h = 2, 5, 4, 8
    q, k, v = floats(b, s, n * h), floats(b, s, n * h), floats(b, s, n * h)
    y = ["y"]
    compare("MultiHeadAttention", "MultiHeadAttention", {"q": q, "k": k, "v": v}, y, num_heads=n)
    compare("with a bias", "MultiHeadAttention", {"q": q, "k": k, "v": v, "b": floats(3 * n * h)}, y, num_heads=n)
    lengths = np.array([3, 5], np.int32)
    compare("lengths as a mask", "MultiHeadAttention", {"q": q, "k": k, "v": v, "b": None, "m": lengths}, y, num_heads=n)
    mask = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]], np.int32)
    compare("zeros and ones as a mask", "MultiHeadAttention", {"q": q, "k": k, "v": v, "b": None, "m": mask}, y, num_heads=n, mask_filter_value=-50.0)
    compare("causal, an attention bias, a scale", "MultiHeadAttention", {"q": q, "k": k, "v": v, "b": None, "m": None, "bias": floats(1, n, s, s)}, y, num_heads=n, unidirectional=1, scale=0.3)
    past = {"b": None, "m": None, "bias": None, "pk": floats(b, n, 3, h), "pv": floats(b, n, 3, h)}
    compare("a cache", "MultiHeadAttention", {"q": q, "k": k, "v": v, **past}, ["y", "k2", "v2"], num_heads=n)
    compare("a packed key and value", "MultiHeadAttention", {"q": q, "kv": floats(b, 7, n, 2, h)}, y, num_heads=n)
    compare("a packed query, key and value", "MultiHeadAttention", {"qkv": floats(b, s, n, 3, h)}, y, num_heads=n)
    compare("a key of rank 4", "MultiHeadAttention", {"q": q, "k": floats(b, n, 6, h), "v": floats(b, n, 6, h)}, y, num_heads=n)


def test_attention():
    b, s, n, h, width = 2, 5, 2, 8, 12
    x, w, bias = floats(b, s, width), floats(width, 3 * n * h, scale=0.3), floats(3 * n * h)
    c = ("w", "b")
    compare("Attention", "Attention", {"x": x, "w": w, "b": bias}, ["y"], c, num_heads=n)
    compare("causal", "Attention", {"x": x, "w": w, "b": bias}, ["y"], c, num_heads=n, unidirectional=1)
    compare("lengths as a mask", "Attention", {"x": x, "w": w, "b": bias, "m": np.array([3, 5], np.int32)}, ["y"], c, num_heads=n)
    compare("lengths and starts as a mask", "Attention", {"x": x, "w": w, "b": bias, "m": np.array([3, 5, 1, 2], np.int32)}, ["y"], c, num_heads=n)
    compare("zeros and ones as a mask", "Attention", {"x": x, "w": w, "b": bias, "m": np.array([[1, 0, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)}, ["y"], c, num_heads=n)
    compare("a mask for each query", "Attention", {"x": x, "w": w, "b": bias, "m": rng.integers(0, 2, (b, s, s)).astype(np.int32)}, ["y"], c, num_heads=n)
    compare("a cache", "Attention", {"x": x, "w": w, "b": bias, "m": None, "past": floats(2, b, n, 3, h)}, ["y", "present"], c, num_heads=n, unidirectional=1)
    compare("values of another width", "Attention", {"x": x, "w": floats(width, 2 * 16 + 8), "b": floats(2 * 16 + 8)}, ["y"], c, num_heads=n, qkv_hidden_sizes=[16, 16, 8])


def test_group_query():
    b, n, g, h, longest = 2, 4, 2, 16, 12
    angles = np.outer(np.arange(longest), 1 / 10 ** np.arange(0, 1, 2 / h))
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    outputs = ["y", "present_key", "present_value"]
    for queries, past in ((6, 0), (1, 5), (3, 4)):
        if queries == 3 and past:
            batch = 1
        else:
            batch = b
        lengths = np.array([past + queries] * batch, np.int32)
        if queries == 1:
            lengths[0] -= 2  # samples differ in length
        def inputs(packed=False, rotary=True, **more):
            q = {"q": floats(batch, queries, (n + 2 * g) * h), "k": None, "v": None} if packed else {"q": floats(batch, queries, n * h), "k": floats(batch, queries, g * h), "v": floats(batch, queries, g * h)}
            cache = {"pk": floats(batch, g, past, h) if past else None, "pv": floats(batch, g, past, h) if past else None}
            if not past:
                cache = {"pk": np.zeros((batch, g, 0, h), np.float32), "pv": np.zeros((batch, g, 0, h), np.float32)}
            return {**q, **cache, "last": lengths - 1, "total": np.array(past + queries, np.int32), "cos": cosine if rotary else None, "sin": sine if rotary else None, **more}
        heads = {"num_heads": n, "kv_num_heads": g, "compared": ["y"] if queries == 1 else None}  # a short sample's cache has old values behind its end
        what = f"GroupQueryAttention, {queries} tokens behind {past}"
        compare(what, "GroupQueryAttention", inputs(rotary=False), outputs, **heads)
        compare(what + ", rotary", "GroupQueryAttention", inputs(), outputs, do_rotary=1, **heads)
        compare(what + ", packed, interleaved", "GroupQueryAttention", inputs(packed=True), outputs, do_rotary=1, rotary_interleaved=1, **heads)
        compare(what + ", softcap and scale", "GroupQueryAttention", inputs(rotary=False), outputs, softcap=2.0, scale=0.7, **heads)
        compare(what + ", a window of 3", "GroupQueryAttention", inputs(), outputs, do_rotary=1, local_window_size=3, **heads)
        compare(what + ", smooth softmax", "GroupQueryAttention", inputs(rotary=False), outputs, smooth_softmax=1, **heads)


def test_rotary():
    angles = np.outer(np.arange(9), 1 / 10 ** np.arange(0, 1, 0.25))
    caches = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    compare("RotaryEmbedding, rank 3", "RotaryEmbedding", {"x": floats(2, 5, 24), "at": np.array([2], np.int64), **caches}, ["y"])
    compare("rank 4, a place for each token, interleaved", "RotaryEmbedding", {"x": floats(2, 3, 5, 8), "at": rng.integers(0, 9, (2, 5)), **caches}, ["y"], interleaved=1)
    compare("a part of each head", "RotaryEmbedding", {"x": floats(2, 5, 3 * 12), "at": rng.integers(0, 9, (2, 5)), **caches}, ["y"], num_heads=3, rotary_embedding_dim=8)


def test_embeddings():
    ids, kinds = rng.integers(0, 11, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = {"word": floats(11, 8), "place": floats(6, 8), "segment": floats(2, 8), "gamma": floats(8), "beta": floats(8)}
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    compare("EmbedLayerNormalization", "EmbedLayerNormalization", {"ids": ids, "kinds": kinds, **tables, "mask": mask}, ["y", "shown", "sum"], epsilon=1e-6)
    compare("without segments", "EmbedLayerNormalization", {"ids": ids, "kinds": None, **{**tables, "segment": None}}, ["y", "shown"], epsilon=1e-6)
    for bits in (4, 8):
        data = rng.integers(0, 256, (9, 64 * bits // 8)).astype(np.uint8)
        scales = floats(9, 2)
        compare(f"GatherBlockQuantized, {bits} bits", "GatherBlockQuantized", {"d": data, "i": rng.integers(0, 9, (2, 3)), "s": scales}, ["y"], ("d", "s"), block_size=32, bits=bits, quantize_axis=1, gather_axis=0)
        zeros = rng.integers(0, 256, (9, (2 * bits + 7) // 8)).astype(np.uint8)
        compare("with zero points", "GatherBlockQuantized", {"d": data, "i": rng.integers(0, 9, (2, 3)), "s": scales, "z": zeros}, ["y"], ("d", "s", "z"), block_size=32, bits=bits, quantize_axis=1, gather_axis=0)


def test_nbits():
    k, n, block = 96, 24, 32
    for bits in (2, 4, 8):
        data = rng.integers(0, 256, (n, k // block, block * bits // 8)).astype(np.uint8)
        scales = floats(n * k // block, scale=0.1)
        zeros = rng.integers(0, 256, n * ((k // block * bits + 7) // 8)).astype(np.uint8)
        x = floats(7, k)
        c = ("b", "s", "z", "g")
        sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
        compare(f"MatMulNBits, {bits} bits", "MatMulNBits", {"x": x, "b": data, "s": scales}, ["y"], c, **sizes)
        compare("with zero points", "MatMulNBits", {"x": x, "b": data, "s": scales, "z": zeros}, ["y"], c, **sizes)
        if bits == 4:
            groups = rng.integers(0, k // block, k).astype(np.int32)
            compare("with group indices", "MatMulNBits", {"x": x, "b": data, "s": scales, "z": None, "g": groups}, ["y"], c, **sizes)
        if bits > 2:
            compare("at accuracy level 4", "MatMulNBits", {"x": x, "b": data, "s": scales}, ["y"], c, tolerance=1e-3, accuracy_level=4, **sizes)


def test_experts():
    e, h, n, t = 4, 16, 32, 6
    for activation in ("relu", "gelu", "silu", "identity", "swiglu"):
        wide = 2 * n if activation == "swiglu" else n
        more = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 3.0} if activation == "swiglu" else {}
        inputs = {"x": floats(t, h), "r": floats(t, e), "w1": floats(e, wide, h), "b1": floats(e, wide), "w2": floats(e, h, n), "b2": floats(e, h)}
        for k, normalized in ((1, 0), (2, 1), (3, 0)):
            compare(f"MoE, {activation}, {k} of {e} experts", "MoE", inputs, ["y"], activation_type=activation, k=k, normalize_routing_weights=normalized, **more)
    compare("MoE of rank 3 without biases", "MoE", {**inputs, "x": floats(2, 3, h), "b1": None, "b2": None}, ["y"], activation_type="swiglu", k=2, **more)
    h = 32
    for bits in (4, 8):
        for block in (0, 16):
            for zeros in (False, True):
                each, blocks = 8 // bits, h // block if block else 1

                def codes(*shape):
                    return rng.integers(0, 256, shape).astype(np.uint8)

                def layer(i, o, k):
                    made = {f"w{i}": codes(e, o, k // each), f"s{i}": np.abs(floats(*((e, o, blocks) if block else (e, o)), scale=0.05)), f"b{i}": floats(e, o)}
                    return made, codes(*((e, o, (blocks + each - 1) // each) if block else (e, o // each)))

                (first, z1), (second, z2) = layer(1, n, h), layer(2, h, n)
                inputs = {"x": floats(t, h), "r": floats(t, e), **first, **second}
                if zeros:
                    inputs |= {"w3": None, "s3": None, "b3": None, "z1": z1, "z2": z2}
                # onnxruntime's CPU kernel for 8 bits in blocks rounds activations.
                compare(f"QMoE, {bits} bits, {f'blocks of {block}' if block else 'a scale a row'}{', zero points' if zeros else ''}", "QMoE", inputs, ["y"],
                        tuple(k for k in inputs if k[0] in "wsz"), 3e-2 if bits == 8 and block else 2e-5, activation_type="silu", k=2, normalize_routing_weights=1, expert_weight_bits=bits,
                        **({"block_size": block} if block else {}))


def test_decoder():
    b, n, h, room, filled = 2, 4, 8, 9, 3
    q, k, v = floats(b, 1, n * h), floats(b, 1, n * h), floats(b, 1, n * h)
    cache = {f"p{i}": np.where(np.arange(room)[:, None] < filled, floats(b, n, room, h), 0).astype(np.float32) for i in "kv"}
    there, bias = {"len": np.array([filled], np.int32)}, floats(3 * n * h)
    what = "DecoderMaskedMultiHeadAttention"
    compare(what, what, {"q": q, "k": k, "v": v}, ["y"], num_heads=n)
    compare("keys of another sequence", what, {"q": q, "k": floats(b, n, 5, h), "v": floats(b, n, 5, h)}, ["y"], num_heads=n)
    for name, more in {"a cache filled in place": {}, "a mask": {"m": np.array([[0, 1, 1, 1], [1, 1, 1, 1]], np.int32)}, "an attention bias": {"a": floats(1, n, 1, filled + 1)}}.items():
        inputs = {"q": q, "k": k, "v": v, "m": None, "a": None, **cache, **there}
        compare(name, what, {**inputs, **more}, ["y", "k2", "v2"], num_heads=n, past_present_share_buffer=1)
    compare("biases", what, {**inputs, "beams": None, "at": None, "bias": bias}, ["y", "k2", "v2"], num_heads=n, past_present_share_buffer=1, scale=0.4)


if __name__ == "__main__":
    evidence.main()
