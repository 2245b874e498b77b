#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""runtime_test.py CUSTOM_RUNTIME: tokens and logits of checkpoints of random weights against numpy in float64, and against the same program with
every weight as float32: the same bits."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import make_checkpoint

PROMPT = [3, 1, 4, 1, 5]


def logits_of(config, weights, tokens):
    """The model of config in float64: a row of logits for each token."""
    heads, kv, head, width = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"))
    w = lambda name: weights[name + ".weight"].astype(numpy.float64)
    bias = lambda name: weights.get(name + ".bias", numpy.zeros(1)).astype(numpy.float64)
    linear = lambda x, name: x @ w(name).T + bias(name)
    normed = lambda x, name: norm(x, name) if name + ".weight" in weights else x
    norm = lambda x, name: x / numpy.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w(name)

    rope = config.get("rope_scaling") or {}
    size = 0.1 * numpy.log(rope["factor"]) + 1 if rope.get("rope_type") == "yarn" else 1

    def turned(x):
        angle = numpy.arange(len(tokens))[:, None] * frequencies(config)
        c, s = size * numpy.cos(angle)[:, None], size * numpy.sin(angle)[:, None]
        a, b = x[..., : head // 2], x[..., head // 2 :]
        return numpy.concatenate([a * c - b * s, b * c + a * s], -1)

    x = w("model.embed_tokens")[tokens]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        n = norm(x, at + "input_layernorm")
        q, k, v = (linear(n, at + f"self_attn.{p}_proj") for p in "qkv")
        q = turned(normed(q.reshape(-1, heads, head), at + "self_attn.q_norm"))
        k = turned(normed(k.reshape(-1, kv, head), at + "self_attn.k_norm"))
        k, v = (numpy.repeat(t.reshape(-1, kv, head), heads // kv, 1) for t in (k, v))
        scores = numpy.einsum("qhd,khd->hqk", q, k) / head**0.5 + numpy.triu(numpy.full((len(tokens),) * 2, -numpy.inf), 1)
        sliding = config["layer_types"][i] == "sliding_attention" if "layer_types" in config else config["model_type"] == "mistral"
        if sliding and config.get("sliding_window"):
            scores += numpy.tril(numpy.full((len(tokens),) * 2, -numpy.inf), -config["sliding_window"])
        sinks = weights.get(at + "self_attn.sinks", numpy.full(heads, -numpy.inf)).astype(numpy.float64)[:, None, None]
        scores = numpy.concatenate([scores, numpy.broadcast_to(sinks, (heads, len(tokens), 1))], -1)
        p = numpy.exp(scores - scores.max(-1, keepdims=True))
        p = (p / p.sum(-1, keepdims=True))[..., :-1]
        x = x + linear(numpy.einsum("hqk,khd->qhd", p, v).reshape(len(tokens), -1), at + "self_attn.o_proj")
        n = norm(x, at + "post_attention_layernorm")
        if config["model_type"] == "gpt_oss":
            x = x + numpy.stack([experts_of(config, weights, at + "mlp.", v, linear(v, at + "mlp.router")) for v in n])
            continue
        gate = linear(n, at + "mlp.gate_proj")
        x = x + linear(gate / (1 + numpy.exp(-gate)) * linear(n, at + "mlp.up_proj"), at + "mlp.down_proj")
    return norm(x, "model.norm") @ w("model.embed_tokens" if config["tie_word_embeddings"] else "lm_head").T


def experts_of(config, weights, at, x, scores):
    """What the experts with the highest scores give for one vector, each times its share."""
    chosen, limit = numpy.argsort(-scores, kind="stable")[: config["num_experts_per_tok"]], config["swiglu_limit"]
    share = numpy.exp(scores[chosen] - scores[chosen].max())
    y = 0
    for e, part in zip(chosen, share / share.sum()):
        product = lambda name, v: weights[at + f"experts.{name}"][e].astype(numpy.float64) @ v + weights[at + f"experts.{name}_bias"][e]
        both = product("gate_up_proj", x)
        gate, up = numpy.minimum(both[::2], limit), numpy.clip(both[1::2], -limit, limit)
        y = y + part * product("down_proj", gate / (1 + numpy.exp(-1.702 * gate)) * (up + 1))
    return y


def frequencies(config):
    """Radians a position. llama3: turns that take longer than the original context are `factor` times as slow, those in between in part."""
    head, rope = config["head_dim"], config.get("rope_scaling") or {}
    f = config["rope_theta"] ** (-2.0 * numpy.arange(head // 2) / head)
    if rope.get("rope_type") == "linear":
        return f / rope["factor"]
    if rope.get("rope_type") == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        length = 2 * numpy.pi / f
        smooth = (rope["original_max_position_embeddings"] / length - low) / (high - low)
        between = (1 - smooth) * f / rope["factor"] + smooth * f
        f = numpy.where(smooth < 0, f / rope["factor"], numpy.where(smooth > 1, f, between))
    if rope.get("rope_type") == "yarn":
        pair = lambda turns: head * numpy.log(rope["original_max_position_embeddings"] / (turns * 2 * numpy.pi)) / (2 * numpy.log(config["rope_theta"]))
        low, high = pair(rope["beta_fast"]), pair(rope["beta_slow"])
        low, high = (low, high) if rope.get("truncate") is False else (numpy.floor(low), numpy.ceil(high))
        low, high = max(low, 0), min(high, head - 1)
        slow = numpy.clip((numpy.arange(head // 2) - low) / (high - low), 0, 1)
        return f / rope["factor"] * slow + f * (1 - slow)
    return f


def run(program, folder, *options):
    out = folder / "logits"
    file = folder / "model.safetensors"
    file = file if file.exists() else folder / "model.safetensors.index.json"
    done = subprocess.run([program, file, "--prompt", ",".join(map(str, PROMPT)), "--logits", out, *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [int(t) for t in done.stdout.split()], numpy.fromfile(out, numpy.float32)


def main():
    program = sys.argv[1]
    for how in ("mxfp4", "nvfp4", "int8", "fp8", "bf16", "gpt_oss"):
        with tempfile.TemporaryDirectory() as name:
            folder, weights = pathlib.Path(name), {}
            config = make_checkpoint.make(folder, how, "tiny", 1, weights)
            words = config["vocab_size"]
            made, logits = run(program, folder, "--tokens", "12", "--cache", "fp32")
            logits = logits.reshape(-1, words)
            expected = logits_of(config, weights, PROMPT + made[:-1])
            error = numpy.abs(logits - expected).max() / numpy.abs(expected).max()
            assert logits.shape == expected.shape and error < 1e-5, (how, error)
            assert made == [int(t) for t in expected[len(PROMPT) - 1 :].argmax(-1)], how
            floats, as_floats = run(program, folder, "--tokens", "12", "--cache", "fp32", "--floats")
            assert floats == made and (as_floats.view(numpy.uint32) == logits.ravel().view(numpy.uint32)).all(), f"{how}: float weights give other bits"
            threads, shared = run(program, folder, "--tokens", "12", "--cache", "fp32", "--threads", "3", "--resident")
            assert threads == made and (shared.view(numpy.uint32) == logits.ravel().view(numpy.uint32)).all(), f"{how}: threads give other bits"
            _, rounded = run(program, folder, "--tokens", "1", "--cache", "fp32", "--integers")
            off = numpy.abs(rounded.reshape(-1, words) - expected[: len(PROMPT)]).max() / numpy.abs(expected).max()
            assert off < 0.1 and (off > 1e-5) == (how in ("mxfp4", "nvfp4", "int8", "gpt_oss")), (how, off)
            for cache, bound in (("bf16", 0.02), ("mxfp8_e4m3", 0.2), ("fp8_e4m3fn", 0.2), ("bfp16", 0.05)):
                packed, other = run(program, folder, "--tokens", "1", "--cache", cache)
                off = numpy.abs(other.reshape(-1, words) - expected[: len(PROMPT)]).max() / numpy.abs(expected).max()
                assert 0 < off < bound, (how, cache, off)
            print(f"{how}: logits within {error:.1e} of float64, the bits of float weights")
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
    for what, how, shards, changes in (
        ("tied embeddings, biases", "mxfp4", 1, dict(model_type="qwen2", tie_word_embeddings=True, attention_bias=True)),
        ("Llama 3's positions, biases everywhere, shards", "fp8", 3, dict(model_type="llama", attention_bias=True, mlp_bias=True, rope_scaling=llama3)),
        ("scales for 128 x 128 weights, a head for each query", "fp8_blocks", 2, dict(num_key_value_heads=6, hidden_size=160, intermediate_size=300)),
        ("a window of six tokens", "nvfp4", 1, dict(model_type="mistral", sliding_window=6)),
        ("YaRN, truncated", "bf16", 1, dict(model_type="llama", rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=64))),
        ("four of eight experts, shards", "gpt_oss", 3, dict(num_experts_per_tok=4, sliding_window=3)),
        ("slow positions", "bf16", 1, dict(model_type="llama", rope_scaling=dict(rope_type="linear", factor=4.0))),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder, weights = pathlib.Path(name), {}
            config = make_checkpoint.make(folder, how, "tiny", 2, weights, shards, **changes)
            made, logits = run(program, folder, "--tokens", "6", "--cache", "fp32")
            expected = logits_of(config, weights, PROMPT + made[:-1])
            error = numpy.abs(logits.reshape(expected.shape) - expected).max() / numpy.abs(expected).max()
            assert error < 1e-5, (what, error)
            print(f"{what}: logits within {error:.1e} of float64")
    for said, changes in (
        ('model_type "mixtral" is not known here', dict(model_type="mixtral")),
        ("rope_type longrope is not known here", dict(rope_scaling=dict(rope_type="longrope", factor=4.0))),
        ("use_sliding_window without layer_types is not known here", dict(model_type="qwen2", use_sliding_window=True)),
        ('hidden_act "relu2" is not known here', dict(hidden_act="relu2")),
        ("there is no number hidden_size", dict(hidden_size=None)),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            config = make_checkpoint.make(folder)
            (folder / "config.json").write_text(json.dumps({**config, **changes}))
            refused = subprocess.run([program, folder / "model.safetensors", "--prompt", "1", "--tokens", "6"], capture_output=True, text=True)
            assert refused.returncode == 1 and said in refused.stderr, refused.stderr
            (folder / "config.json").unlink()
            refused = subprocess.run([program, folder / "model.safetensors"], capture_output=True, text=True)
            assert refused.returncode == 1 and "config.json: is missing" in refused.stderr, refused.stderr
    for options in (["--tokens", "many"], ["--prompt", "1,,2"], ["--frobnicate"], ["--tokens"]):
        refused = subprocess.run([program, "model.safetensors", *options], capture_output=True, text=True)
        assert refused.returncode == 1 and options[0] in refused.stderr, refused.stderr
    refused = subprocess.run([program, "no_such_file.safetensors"], capture_output=True, text=True)
    assert refused.returncode == 1 and "no_such_file" in refused.stderr


main()
