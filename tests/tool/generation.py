# SPDX-License-Identifier: Apache-2.0
"""Generation with deployed files: with the cache of a quantized file, with a Concat of one input in front of the cache, beside an encoder,
and with masks that cover the cache first.
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, qk, qk_json
from evidence.graphs import Graph
from evidence.runtimes import outputs, session

import numpy as np
import onnx
from onnx import TensorProto, helper

import language_models as models

rng = np.random.default_rng(17)


def by_onnxruntime(path, prompt, steps):
    """Returns greedy tokens; each step gets the cache of the step before."""
    runs, fed, tokens = session(path), dict(prompt), []
    names = [o.name for o in runs.get_outputs()]
    for _ in range(steps):
        made = dict(zip(names, runs.run(None, fed)))
        tokens.append(int(made["logits"][0, -1].argmax()))
        fed = {"input_ids": np.array([[tokens[-1]]]), "position_ids": fed["position_ids"][:, -1:] + 1, **{k.replace("present", "past"): v for k, v in made.items() if k != "logits"}}
    return tokens


def test_deployed():
    model = models.llama(at("float.onnx"), dtype=np.float32)
    prompt = {"input_ids": rng.integers(0, 61, (1, 7)), "position_ids": np.arange(7)[None], **models.cache(dtype=np.float32)}
    np.savez(at("prompt.npz"), **prompt)
    wanted = qk_json("evaluate", model, "--inputs", at("prompt.npz"), "--generate", "6")["tokens"][0]
    check(wanted == by_onnxruntime(model, prompt, 6), f"the float model goes on: {wanted}")
    alone = onnx.load(model)
    joins = [n for n in alone.graph.node if n.op_type == "Concat" and any(i.startswith("past.") for i in n.input) and n.output[0].startswith("present.")]
    for n in joins:  # as torch's first exporter joins a list of one
        past = n.input[0]
        alone.graph.node.insert(0, helper.make_node("Concat", [past], [past + "_joined"], name=past + "_alone", axis=2))
        n.input[0] = past + "_joined"
    onnx.save(alone, at("alone.onnx"))
    check(len(joins) == 4 and qk_json("evaluate", at("alone.onnx"), "--inputs", at("prompt.npz"), "--generate", "6")["tokens"][0] == wanted, "behind a Concat of its own, too")
    for name, formats in {"int8": ["--activation", "int8", "--weight", "int8", "--calibration", at("prompt.npz")], "fp8 cache": ["--activation", "int8", "--weight", "int8", "--kv-cache", "fp8_e4m3fn", "--calibration", at("prompt.npz")],
                          "mx cache": ["--activation", "mxfp8_e4m3", "--weight", "mxfp4", "--kv-cache", "mxfp8_e4m3"], "nbits": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16", "--export", "nbits"]}.items():
        file = at("q.onnx")
        qk("quantize", "--recipe", "fast", model, "-o", file, *formats, "--overwrite")
        made = qk_json("evaluate", file, "--inputs", at("prompt.npz"), "--generate", "6")
        check(made["tokens"][0] == by_onnxruntime(file, prompt, 6), f"{name}: the quantized file goes on with its own cache: {made['tokens'][0]}")


def test_beside_an_encoder():
    g = Graph(6)
    x = g.op("Gather", g.weight("table", 23, 16, scale=0.5), "input_ids")
    seen = g.op("MatMul", g.op("Softmax", g.op("MatMul", x, g.op("Transpose", "encoder_hidden_states", perm=[0, 2, 1])), axis=-1), "encoder_hidden_states")
    g.op("MatMul", g.op("Add", x, seen), g.weight("head", 16, 23), name="head")
    g.rename("logits")
    model = g.save(at("decoder.onnx"), [("input_ids", TensorProto.INT64, ["N", "S"]), ("encoder_hidden_states", TensorProto.FLOAT, ["N", "E", 16]), ("encoder_attention_mask", TensorProto.INT64, ["N", "E"])],
                   [("logits", TensorProto.FLOAT, ["N", "S", 23])])
    fed = {"input_ids": rng.integers(0, 23, (1, 4)), "encoder_hidden_states": rng.standard_normal((1, 6, 16)).astype(np.float32), "encoder_attention_mask": np.ones((1, 6), np.int64)}
    np.savez(at("decoder.npz"), **fed)
    runs, ids = session(model), fed["input_ids"]
    for _ in range(3):
        ids = np.concatenate([ids, runs.run(None, {**fed, "input_ids": ids})[0][:, -1].argmax(-1)[None]], 1)
    made = qk_json("evaluate", model, "--inputs", at("decoder.npz"), "--generate", "3")["tokens"][0]
    check(made == list(ids[0, 4:]), f"what a decoder looks at stays: {made}")
    refused = qk("evaluate", model, "--inputs", at("decoder.npz"), "--next-token", "--mask", "encoder_attention_mask", status=2)
    check("mask of another sequence" in refused.stderr, "the encoder's mask is none of the decoder's positions")


def test_masks_with_a_cache():
    g = Graph(7)
    x = g.op("Gather", g.weight("table", 23, 16, scale=0.5), "input_ids")
    g.op("Concat", "past", g.op("Unsqueeze", x, g.ints(1)), axis=2)
    g.rename("present")
    bias = g.op("Unsqueeze", g.op("Mul", g.op("Sub", g.op("Cast", "attention_mask", to=TensorProto.FLOAT), g.number(1.0)), g.number(100.0)), g.ints(1))
    keys = g.op("Squeeze", "present", g.ints(1))
    weights = g.op("Softmax", g.op("Add", g.op("MatMul", x, g.op("Transpose", keys, perm=[0, 2, 1])), bias), axis=-1)
    g.op("MatMul", g.op("Add", x, g.op("MatMul", weights, keys)), g.weight("head", 16, 23), name="head")
    g.rename("logits")
    model = g.save(at("cached.onnx"), [("input_ids", TensorProto.INT64, ["N", "S"]), ("attention_mask", TensorProto.INT64, ["N", "T"]), ("past", TensorProto.FLOAT, ["N", 1, "P", 16])],
                   [("logits", TensorProto.FLOAT, ["N", "S", 23]), ("present", TensorProto.FLOAT, ["N", 1, "T", 16])])
    mask = np.ones((2, 9), np.int64)
    mask[0, 7:] = mask[1, :2] = 0  # one sample is padded at its end, the other at the start of its cache
    fed = {"input_ids": rng.integers(0, 23, (2, 6)), "attention_mask": mask, "past": rng.standard_normal((2, 1, 3, 16)).astype(np.float32)}
    np.savez(at("cached.npz"), **fed)
    y = outputs(model, fed, names=["logits"])[0].astype(np.float64)
    p = y - np.log(np.exp(y).sum(-1, keepdims=True))
    real = mask[:, 3:]
    losses = [-p[n, t, fed["input_ids"][n, t + 1]] for n in range(2) for t in range(5) if real[n, t] and real[n, t + 1]]
    made = qk_json("evaluate", model, "--inputs", at("cached.npz"), "--next-token", "--mask", "attention_mask", "--metric", "loss")["loss"]
    check(abs(made - np.mean(losses)) < 1e-5, f"a mask that begins with the cache ends where the positions do: {made:.5f}")


def test_merged():
    """One file for all steps: an If on `use_cache_branch`, as optimum merges decoders. The first step makes the keys of the encoder's
    output."""
    g = Graph(8)
    g.weight("table", 23, 16, scale=0.5), g.weight("head", 16, 23), g.weight("other", 16, 16)

    def branch(cached):
        b = Graph(9)
        b.prefix = "cached/" if cached else "first/"
        x = b.op("Gather", "table", "input_ids")
        keys = b.op("Concat", "past.decoder.key", b.op("Unsqueeze", x, b.ints(1)), axis=2) if cached else b.op("Unsqueeze", x, b.ints(1))
        other = "past.encoder.key" if cached else b.op("Unsqueeze", b.op("MatMul", "encoder_hidden_states", "other"), b.ints(1))
        every = b.op("Squeeze", b.op("Concat", keys, other, axis=2), b.ints(1))
        y = b.op("MatMul", b.op("Softmax", b.op("MatMul", x, b.op("Transpose", every, perm=[0, 2, 1])), axis=-1), every)
        results = [b.op("MatMul", b.op("Add", x, y), "head"), b.op("Identity", keys), b.hold("none", np.zeros((0, 1, 1, 16), np.float32)) if cached else b.op("Identity", other)]
        if cached:
            results[2] = b.op("Identity", results[2])
        return onnx.helper.make_graph(b.nodes, b.prefix[:-1], [], [onnx.helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results],
                                      [onnx.numpy_helper.from_array(v, k) for k, v in b.held.items()])

    g.nodes.append(onnx.helper.make_node("If", ["use_cache_branch"], ["logits", "present.decoder.key", "present.encoder.key"], name="merged", then_branch=branch(True), else_branch=branch(False)))
    caches = [(f"past.{w}.key", TensorProto.FLOAT, ["N", 1, n, 16]) for w, n in (("decoder", "P"), ("encoder", "F"))]
    model = g.save(at("merged.onnx"), [("input_ids", TensorProto.INT64, ["N", "S"]), ("encoder_hidden_states", TensorProto.FLOAT, ["N", "E", 16]), *caches, ("use_cache_branch", TensorProto.BOOL, [1])],
                   [("logits", TensorProto.FLOAT, ["N", "S", 23]), *((n.replace("past", "present"), t, None) for n, t, _ in caches)])
    fed = {"input_ids": rng.integers(0, 23, (1, 1)), "encoder_hidden_states": rng.standard_normal((1, 5, 16)).astype(np.float32), "past.decoder.key": np.zeros((1, 1, 0, 16), np.float32),
           "past.encoder.key": np.zeros((1, 1, 0, 16), np.float32), "use_cache_branch": np.array([False])}
    np.savez(at("merged.npz"), **fed)
    runs, tokens = session(model), []
    for _ in range(5):
        logits, own, others = runs.run(None, fed)
        tokens.append(int(logits[0, -1].argmax()))
        fed = {**fed, "input_ids": np.array([[tokens[-1]]]), "past.decoder.key": own, "past.encoder.key": others if others.size else fed["past.encoder.key"], "use_cache_branch": np.array([True])}
    made = qk_json("evaluate", model, "--inputs", at("merged.npz"), "--generate", "5")["tokens"][0]
    check(made == tokens, f"a merged decoder goes on in the branch that reads the cache: {made}")


if __name__ == "__main__":
    evidence.main()
