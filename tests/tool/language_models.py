# SPDX-License-Identifier: Apache-2.0
"""Makes small models like those that exporters of language models write, with numpy and onnx alone.

gpt(): tied embedding behind a Transpose, fused query, key and value, masks of -3.4e38. bert(): three embeddings, Gelu by Erf, classes at each place.
llama(): float16 weights, RMS normalization in float32, rotary positions, grouped heads, a cache, tied embedding.
whisper(): an encoder behind two convolutions and a decoder that looks at it, tied embedding.
"""
import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence.graphs import Graph

import numpy as np
from onnx import TensorProto, helper

LOWEST = np.float32(-3.4028234663852886e38)
logits = partial(evidence.evaluated, output="logits")  # of a model and data, with options of `qk evaluate`


def softmax_log(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def heads(g, x, count, width):
    return g.op("Transpose", g.op("Reshape", x, g.ints(0, 0, count, width)), perm=[0, 2, 1, 3])


def attend(g, q, k, v, bias, width, hidden):
    scores = g.op("Div", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]), name="scores"), g.number(np.sqrt(width)))
    weights = g.op("Softmax", g.op("Add", scores, bias, name="masked"), axis=-1)
    return g.op("Reshape", g.op("Transpose", g.op("MatMul", weights, v, name="context"), perm=[0, 2, 1, 3]), g.ints(0, 0, hidden))


def padding_bias(g, mask):
    """Returns [N,1,1,S]: 0 for real positions, LOWEST for padding."""
    real = g.op("Cast", g.op("Unsqueeze", mask, g.ints(1, 2)), to=TensorProto.FLOAT)
    return g.op("Mul", g.op("Sub", g.number(1.0), real), g.number(LOWEST))


def causal_bias(g, ids):
    """Returns [1,1,S,S]: LOWEST above the diagonal, else 0."""
    length = g.op("Gather", g.op("Shape", ids), g.ints(1), axis=0)
    square = g.op("ConstantOfShape", g.op("Concat", length, length, axis=0), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [LOWEST]))
    return g.op("Trilu", square, g.hold("above", np.array(1, np.int64)), upper=1)


def norm(g, x, name, hidden):
    return g.op("LayerNormalization", x, g.hold(g.prefix + name + ".weight", (1 + 0.1 * g.rng.standard_normal(hidden)).astype(g.dtype)), g.weight(name + ".bias", hidden, scale=0.02), axis=-1)


def gelu(g, x):
    return g.op("Mul", g.op("Mul", x, g.number(0.5)), g.op("Add", g.op("Erf", g.op("Div", x, g.number(np.sqrt(2)))), g.number(1.0)))


def places(g, ids):
    return g.op("Range", g.hold("zero", np.array(0, np.int64)), g.op("Squeeze", g.op("Gather", g.op("Shape", ids), g.ints(1), axis=0)), g.hold("one", np.array(1, np.int64)))


def gpt(path, vocabulary=61, hidden=32, layers=2, count=4, longest=64, seed=1, outliers=1.0):
    """input_ids, attention_mask -> logits [N,S,V]. `outliers` multiplies every eighth channel before the attention and divides the weights
    that read it, which keeps the function."""
    g = Graph(seed)
    wte = g.weight("wte", vocabulary, hidden, scale=0.3)
    x = g.op("Add", g.op("Gather", wte, "input_ids", name="tokens"), g.op("Gather", g.weight("wpe", longest, hidden, scale=0.1), places(g, "input_ids")))
    bias = g.op("Max", g.op("Add", causal_bias(g, "input_ids"), padding_bias(g, "attention_mask")), g.number(LOWEST))
    for i in range(layers):
        g.prefix = f"h{i}/"
        y = norm(g, x, "ln_1", hidden)
        g.held[g.prefix + "ln_1.weight"][::8] *= np.float32(outliers)
        fused = g.op("Add", g.op("MatMul", y, g.weight("attn.weight", hidden, 3 * hidden), name="attn"), g.weight("attn.bias", 3 * hidden, scale=0.02))
        g.held[g.prefix + "attn.weight"][::8] /= np.float32(outliers)
        q, k, v = g.op("Split", fused, g.ints(hidden, hidden, hidden), axis=-1, outputs=3)
        width = hidden // count
        y = attend(g, heads(g, q, count, width), heads(g, k, count, width), heads(g, v, count, width), bias, width, hidden)
        x = g.op("Add", x, g.op("MatMul", y, g.weight("proj.weight", hidden, hidden), name="proj"))
        y = g.op("MatMul", norm(g, x, "ln_2", hidden), g.weight("fc.weight", hidden, 4 * hidden), name="fc")
        x = g.op("Add", x, g.op("MatMul", gelu(g, g.op("Add", y, g.weight("fc.bias", 4 * hidden, scale=0.02))), g.weight("out.weight", 4 * hidden, hidden), name="out"))
    g.prefix = ""
    head = g.op("Transpose", wte, perm=[1, 0], name="tied")
    g.op("MatMul", norm(g, x, "ln_f", hidden), head, name="lm_head")
    g.rename("logits")
    ids = ["N", "S"]
    return g.save(path, [("input_ids", TensorProto.INT64, ids), ("attention_mask", TensorProto.INT64, ids)], [("logits", TensorProto.FLOAT, ["N", "S", vocabulary])])


def bert(path, vocabulary=61, hidden=32, layers=2, count=4, longest=64, classes=5, seed=2):
    """input_ids, attention_mask, token_type_ids -> logits [N,S,C], one for each position."""
    g = Graph(seed)
    parts = [g.op("Gather", g.weight("word", vocabulary, hidden, scale=0.3), "input_ids"), g.op("Gather", g.weight("type", 2, hidden, scale=0.1), "token_type_ids"),
             g.op("Gather", g.weight("place", longest, hidden, scale=0.1), places(g, "input_ids"))]
    x = norm(g, g.op("Add", g.op("Add", parts[0], parts[1]), parts[2]), "ln", hidden)
    bias = padding_bias(g, "attention_mask")
    width = hidden // count

    def linear(x, name, a, b):
        return g.op("Add", g.op("MatMul", x, g.weight(name + ".weight", a, b), name=name), g.weight(name + ".bias", b, scale=0.02))

    for i in range(layers):
        g.prefix = f"layer{i}/"
        y = attend(g, *(heads(g, linear(x, n, hidden, hidden), count, width) for n in ("query", "key", "value")), bias, width, hidden)
        x = norm(g, g.op("Add", x, linear(y, "dense", hidden, hidden)), "ln_1", hidden)
        x = norm(g, g.op("Add", x, linear(gelu(g, linear(x, "up", hidden, 4 * hidden)), "down", 4 * hidden, hidden)), "ln_2", hidden)
    g.prefix = ""
    linear(x, "classifier", hidden, classes)
    g.rename("logits")
    ids = ["N", "S"]
    return g.save(path, [(n, TensorProto.INT64, ids) for n in ("input_ids", "attention_mask", "token_type_ids")], [("logits", TensorProto.FLOAT, ["N", "S", classes])])


def llama(path, vocabulary=61, hidden=32, layers=2, count=4, groups=2, longest=64, seed=3, dtype=np.float16, outside=False, transposed=True, outliers=1.0, norm="parts"):
    """input_ids, position_ids, past.i.key, past.i.value [N,groups,P,width] -> logits [N,S,V], present.i.key, present.i.value.

    `transposed`: weights are [out, in] as in torch, each behind a Transpose. `outliers` multiplies every eighth channel before the
    attention and before the gates and divides the weights that read it, which keeps the function. `norm`: "parts", "RMSNormalization"
    (opset 23), or "SimplifiedLayerNormalization" (onnxruntime's)."""
    g = Graph(seed, dtype)
    own = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    width = hidden // count
    angles = np.outer(np.arange(longest), 1 / 10000 ** (np.arange(0, width, 2) / width))
    angles = np.concatenate([angles, angles], 1)
    cosine = g.op("Unsqueeze", g.op("Gather", g.hold("cos", np.cos(angles).astype(dtype)), "position_ids"), g.ints(1))
    sine = g.op("Unsqueeze", g.op("Gather", g.hold("sin", np.sin(angles).astype(dtype)), "position_ids"), g.ints(1))

    def rotary(x):
        a, b = g.op("Split", x, g.ints(width // 2, width // 2), axis=-1, outputs=2)
        return g.op("Add", g.op("Mul", x, cosine), g.op("Mul", g.op("Concat", g.op("Neg", b), a, axis=-1), sine))

    def gain(name):
        values = 1 + 0.1 * g.rng.standard_normal(hidden)
        values[::8] *= outliers if name != "norm" else 1
        return g.hold(g.prefix + name, values.astype(dtype))

    def rms(x, name):
        if norm != "parts":
            return g.op(norm, x, gain(name), axis=-1, epsilon=1e-6)
        wide = g.op("Cast", x, to=TensorProto.FLOAT)
        mean = g.op("ReduceMean", g.op("Mul", wide, wide), axes=[-1], keepdims=1)
        wide = g.op("Div", wide, g.op("Sqrt", g.op("Add", mean, g.number(1e-6, np.float32))))
        return g.op("Mul", g.op("Cast", wide, to=own), gain(name))

    def linear(x, name, a, b):
        held = g.weight(name + ".weight", *((b, a) if transposed else (a, b)), scale=1 / np.sqrt(a))
        if name not in ("o_proj", "down_proj"):
            rows = g.held[held].T if transposed else g.held[held]
            rows[::8] /= dtype(outliers)
        return g.op("MatMul", x, g.op("Transpose", held, perm=[1, 0]) if transposed else held, name=name)

    table = g.weight("embed_tokens", vocabulary, hidden, scale=0.3)
    x = g.op("Gather", table, "input_ids", name="tokens")
    # Query i sees key j if j is not behind the query's position.
    total = g.op("Gather", g.op("Shape", g.op("Concat", "past.0.key", g.op("Identity", "past.0.key"), axis=1)), g.ints(2), axis=0)
    keys = g.op("Range", g.hold("zero", np.array(0, np.int64)), g.op("Squeeze", g.op("Add", total, g.op("Gather", g.op("Shape", "input_ids"), g.ints(1), axis=0))), g.hold("one", np.array(1, np.int64)))
    later = g.op("Greater", g.op("Unsqueeze", keys, g.ints(0, 1)), g.op("Unsqueeze", "position_ids", g.ints(2)))
    bias = g.op("Unsqueeze", g.op("Where", later, g.number(-60000.0 if dtype == np.float16 else LOWEST), g.number(0.0)), g.ints(1))
    outputs = []
    for i in range(layers):
        g.prefix = f"layers{i}/"
        y = rms(x, "input_norm")
        q = rotary(heads(g, linear(y, "q_proj", hidden, hidden), count, width))
        k = g.op("Concat", f"past.{i}.key", rotary(heads(g, linear(y, "k_proj", hidden, groups * width), groups, width)), axis=2)
        k = g.rename(f"present.{i}.key")
        v = g.op("Concat", f"past.{i}.value", heads(g, linear(y, "v_proj", hidden, groups * width), groups, width), axis=2)
        v = g.rename(f"present.{i}.value")
        outputs += [k, v]

        def repeated(x):
            wide = g.op("Concat", *[g.op("Unsqueeze", x, g.ints(2))] * (count // groups), axis=2)
            return g.op("Reshape", wide, g.ints(0, count, -1, width))

        x = g.op("Add", x, linear(attend(g, q, repeated(k), repeated(v), bias, width, hidden), "o_proj", hidden, hidden))
        y = rms(x, "post_norm")
        gate = linear(y, "gate_proj", hidden, 2 * hidden)
        x = g.op("Add", x, linear(g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), linear(y, "up_proj", hidden, 2 * hidden)), "down_proj", 2 * hidden, hidden))
    g.prefix = ""
    g.op("MatMul", rms(x, "norm"), g.op("Transpose", table, perm=[1, 0], name="tied"), name="lm_head")
    g.rename("logits")
    cache = ["N", groups, "P", width]
    inputs = [("input_ids", TensorProto.INT64, ["N", "S"]), ("position_ids", TensorProto.INT64, ["N", "S"])]
    inputs += [(f"past.{i}.{kind}", own, cache) for i in range(layers) for kind in ("key", "value")]
    return g.save(path, inputs, [("logits", own, ["N", "S", vocabulary])] + [(o, own, ["N", groups, "T", width]) for o in outputs], outside=outside,
                  opset=23 if norm == "RMSNormalization" else 17)


def whisper(path, vocabulary=61, hidden=32, layers=2, count=4, longest=64, mels=16, seed=4):
    """input_features [N,mels,2E], input_ids [N,S] -> logits [N,S,V]. All steps run at once, without a cache."""
    g = Graph(seed)
    width = hidden // count

    def linear(x, name, a, b, biased=True):
        y = g.op("MatMul", x, g.weight(name + ".weight", a, b), name=name)
        return g.op("Add", y, g.weight(name + ".bias", b, scale=0.02)) if biased else y

    def attention(x, seen, name, bias):
        q, k, v = (heads(g, linear(y, f"{name}.{n}", hidden, hidden, n != "k_proj"), count, width) for y, n in ((x, "q_proj"), (seen, "k_proj"), (seen, "v_proj")))
        scores = g.op("MatMul", g.op("Mul", q, g.number(width**-0.5)), g.op("Transpose", k, perm=[0, 1, 3, 2]), name=name + ".scores")
        weights = g.op("Softmax", g.op("Add", scores, bias) if bias else scores, axis=-1)
        y = g.op("Reshape", g.op("Transpose", g.op("MatMul", weights, v, name=name + ".context"), perm=[0, 2, 1, 3]), g.ints(0, 0, hidden))
        return linear(y, name + ".out_proj", hidden, hidden)

    def feed_forward(x):
        return g.op("Add", x, linear(gelu(g, linear(norm(g, x, "final_norm", hidden), "fc1", hidden, 4 * hidden)), "fc2", 4 * hidden, hidden))

    x = "input_features"
    for i, (channels, stride) in enumerate(((mels, 1), (hidden, 2))):
        filters = g.weight(f"conv{i + 1}.weight", hidden, channels, 3, scale=(3 * channels) ** -0.5)
        x = gelu(g, g.op("Conv", x, filters, g.weight(f"conv{i + 1}.bias", hidden, scale=0.02), strides=[stride], pads=[1, 1], name=f"conv{i + 1}"))
    x = g.op("Transpose", x, perm=[0, 2, 1])
    x = g.op("Add", x, g.op("Gather", g.weight("encoder.places", longest, hidden, scale=0.1), places(g, x)))
    for i in range(layers):
        g.prefix = f"encoder{i}/"
        y = norm(g, x, "norm", hidden)
        x = feed_forward(g.op("Add", x, attention(y, y, "self", "")))
    g.prefix = ""
    heard = norm(g, x, "encoder.norm", hidden)
    table = g.weight("decoder.tokens", vocabulary, hidden, scale=0.3)
    x = g.op("Add", g.op("Gather", table, "input_ids"), g.op("Gather", g.weight("decoder.places", longest, hidden, scale=0.1), places(g, "input_ids")))
    bias = causal_bias(g, "input_ids")
    for i in range(layers):
        g.prefix = f"decoder{i}/"
        y = norm(g, x, "norm", hidden)
        x = g.op("Add", x, attention(y, y, "self", bias))
        x = feed_forward(g.op("Add", x, attention(norm(g, x, "cross_norm", hidden), heard, "cross", "")))
    g.prefix = ""
    g.op("MatMul", norm(g, x, "decoder.norm", hidden), g.op("Transpose", table, perm=[1, 0]), name="proj_out")
    g.rename("logits")
    return g.save(path, [("input_features", TensorProto.FLOAT, ["N", mels, "F"]), ("input_ids", TensorProto.INT64, ["N", "S"])], [("logits", TensorProto.FLOAT, ["N", "S", vocabulary])])


def cache(layers=2, groups=2, width=8, samples=1, length=0, dtype=np.float16):
    return {f"past.{i}.{kind}": np.zeros((samples, groups, length, width), dtype) for i in range(layers) for kind in ("key", "value")}
