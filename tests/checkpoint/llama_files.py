# SPDX-License-Identifier: Apache-2.0
"""A small random model with Llama's names and config, as transformers and mlx-lm load it."""
import json
from pathlib import Path

import numpy as np

import make_files as make


def config(kind="bfloat16", hidden=256, inner=352, vocabulary=96, layers=2, tied=False):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": hidden // 4, "vocab_size": vocabulary, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": tied, "torch_dtype": kind, "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False, "mlp_bias": False}


def tensors(kind="BF16", hidden=256, inner=352, vocabulary=96, layers=2, tied=False, seed=3, outliers=3):
    """Names to (type, array), as make_files.safetensors takes them. Some columns are ten times as large as the others."""
    draw = np.random.default_rng(seed)
    store = {"BF16": make.bfloat_bytes, "F16": lambda x: x.astype(np.float16), "F32": lambda x: x}[kind]

    def matrix(rows, columns):
        x = draw.standard_normal((rows, columns)).astype(np.float32) * 0.05
        x[:, draw.integers(0, columns, outliers)] *= 10
        return kind, store(x)

    made = {"model.embed_tokens.weight": matrix(vocabulary, hidden)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", hidden // 2, hidden), ("self_attn.v_proj", hidden // 2, hidden), ("self_attn.o_proj", hidden, hidden),
                                    ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden), ("mlp.down_proj", hidden, inner)):
            made[f"{layer}{name}.weight"] = matrix(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{layer}{name}.weight"] = kind, store(np.ones(hidden, np.float32))
    made["model.norm.weight"] = kind, store(np.ones(hidden, np.float32))
    if not tied:
        made["lm_head.weight"] = matrix(vocabulary, hidden)
    return made


def write(folder, kind="BF16", **sizes):
    """Writes FOLDER/model.safetensors and its config.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = tensors(kind, **sizes)
    sizes = {k: v for k, v in sizes.items() if k not in ("seed", "outliers")}
    (folder / "model.safetensors").write_bytes(make.safetensors(made, {"format": "pt"}))
    (folder / "config.json").write_text(json.dumps(config({"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[kind], **sizes), indent=2))
    return {name: floats(*t) for name, t in made.items()}


def floats(kind, array):
    return (array.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else array.astype(np.float32)
