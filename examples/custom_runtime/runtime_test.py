#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""runtime_test.py CUSTOM_RUNTIME: tokens and logits of checkpoints of random weights against numpy in float64, and against the same program with
every weight as float32: the same bits."""
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
    norm = lambda x, name: x / numpy.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w(name)

    def turned(x):
        angle = numpy.arange(len(tokens))[:, None] * config["rope_theta"] ** (-2.0 * numpy.arange(head // 2) / head)
        c, s = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
        a, b = x[..., : head // 2], x[..., head // 2 :]
        return numpy.concatenate([a * c - b * s, b * c + a * s], -1)

    x = w("model.embed_tokens")[tokens]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        n = norm(x, at + "input_layernorm")
        q, k, v = (n @ w(at + f"self_attn.{p}_proj").T for p in "qkv")
        q = turned(norm(q.reshape(-1, heads, head), at + "self_attn.q_norm"))
        k = turned(norm(k.reshape(-1, kv, head), at + "self_attn.k_norm"))
        k, v = (numpy.repeat(t.reshape(-1, kv, head), heads // kv, 1) for t in (k, v))
        scores = numpy.einsum("qhd,khd->hqk", q, k) / head**0.5 + numpy.triu(numpy.full((len(tokens),) * 2, -numpy.inf), 1)
        p = numpy.exp(scores - scores.max(-1, keepdims=True))
        x = x + numpy.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(len(tokens), -1) @ w(at + "self_attn.o_proj").T
        n = norm(x, at + "post_attention_layernorm")
        gate = n @ w(at + "mlp.gate_proj").T
        x = x + (gate / (1 + numpy.exp(-gate)) * (n @ w(at + "mlp.up_proj").T)) @ w(at + "mlp.down_proj").T
    return norm(x, "model.norm") @ w("lm_head").T


def run(program, folder, *options):
    out = folder / "logits"
    done = subprocess.run([program, folder / "model.safetensors", "--prompt", ",".join(map(str, PROMPT)), "--logits", out, *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [int(t) for t in done.stdout.split()], numpy.fromfile(out, numpy.float32)


def main():
    program = sys.argv[1]
    for how in ("mxfp4", "nvfp4", "fp8", "bf16"):
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
            for cache, bound in (("bf16", 0.02), ("mxfp8_e4m3", 0.2), ("fp8_e4m3fn", 0.2), ("bfp16", 0.05)):
                packed, other = run(program, folder, "--tokens", "1", "--cache", cache)
                off = numpy.abs(other.reshape(-1, words) - expected[: len(PROMPT)]).max() / numpy.abs(expected).max()
                assert 0 < off < bound, (how, cache, off)
            print(f"{how}: logits within {error:.1e} of float64, the bits of float weights")
    refused = subprocess.run([program, "no_such_file.safetensors"], capture_output=True, text=True)
    assert refused.returncode == 1 and "no_such_file" in refused.stderr


main()
