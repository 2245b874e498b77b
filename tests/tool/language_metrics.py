# SPDX-License-Identifier: Apache-2.0
"""Metrics over the positions of a language model agree with their definitions in NumPy, also for samples of different lengths."""
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, qk, qk_json, saved

import numpy as np
import onnx

import language_models as models
from language_models import logits as evaluated, softmax_log

rng = np.random.default_rng(7)


def numbers(y, r, labels, mask, next_token):
    """Returns the metrics by their definitions, in numpy; y and r are [N,S,V]."""
    shifted = np.full_like(labels, -100)
    if next_token:
        shifted[:, :-1] = np.where((mask[:, 1:] & mask[:, :-1]) > 0, labels[:, 1:], -100)
    else:
        shifted = np.where(mask > 0, labels, -100)
    p, q = softmax_log(y), softmax_log(r)
    real = shifted >= 0
    nll = -np.take_along_axis(p, np.maximum(shifted, 0)[..., None], -1)[..., 0][real]
    order = np.argsort(-y, axis=-1, kind="stable")
    compared = mask > 0
    compared &= (labels >= 0) if not next_token else np.concatenate([labels[:, 1:] >= 0, np.ones_like(labels[:, :1], bool)], 1)
    return {"loss": nll.mean(), "perplexity": np.exp(nll.mean()), "top1": (order[..., 0] == shifted)[real].mean(), "top5": (order[..., :5] == shifted[..., None]).any(-1)[real].mean(),
            "agreement": (y.argmax(-1) == r.argmax(-1))[compared].mean(), "kl": (np.exp(q) * (q - p)).sum(-1)[compared].mean()}


def test_positions():
    gpt = models.gpt(at("gpt.onnx"))
    ids = rng.integers(0, 61, (4, 11)).astype(np.int32)  # int32 for an input of int64
    lengths = [11, 7, 3, 9]
    mask = (np.arange(11)[None] < np.array(lengths)[:, None]).astype(np.int64)
    data = saved("gpt.npz", input_ids=ids, attention_mask=mask)
    formats = ["--activation", "mxfp4", "--weight", "mxfp4"]
    y, r = evaluated(gpt, data, *formats), evaluated(gpt, data)
    names = ["loss", "perplexity", "top1", "top5", "agreement", "kl"]
    common = ["--inputs", data, "--mask", "attention_mask", "--next-token"]
    got = qk_json("evaluate", gpt, *common, "--metric", ",".join(names), *formats)
    wanted = numbers(y, r, ids.astype(np.int64), mask, True)
    check(all(abs(got[n] - wanted[n]) < 1e-6 * max(1, abs(wanted[n])) for n in names), f"evaluate --next-token: {({n: round(got[n], 4) for n in names})}")
    check(0 < wanted["agreement"] < 1, "positions agree here and there")

    labels = rng.integers(0, 61, (4, 11))
    labels[:, 4] = -100
    np.save(at("labels.npy"), labels)
    placed = ["--inputs", data, "--mask", "attention_mask", "--labels", at("labels.npy")]
    got = qk_json("evaluate", gpt, *placed, "--metric", ",".join(names), *formats)
    wanted = numbers(y, r, labels, mask, False)
    check(all(abs(got[n] - wanted[n]) < 1e-6 * max(1, abs(wanted[n])) for n in names), "evaluate --labels [N,S] with -100")
    default = qk_json("evaluate", gpt, *placed)
    check({"top1", "top5", "loss", "perplexity"} <= default.keys(), "labels of positions: top1, top5, loss and perplexity without being asked")

    kept = mask > 0
    cosines = (y * r).sum(-1) / np.linalg.norm(y, axis=-1) / np.linalg.norm(r, axis=-1)
    got = qk_json("evaluate", gpt, "--inputs", data, "--mask", "attention_mask", "--metric", "cosine,l2,mse", "--per-position", *formats)
    check(abs(got["cosine"] - cosines[kept].mean()) < 1e-6 and abs(got["l2"] - np.linalg.norm(y - r, axis=-1)[kept].mean()) < 1e-5, "--per-position")
    check(abs(got["mse"] - ((y.astype(np.float64) - r) ** 2)[kept].mean()) < 1e-6, "padding counts in no metric")

    found = qk_json("sensitivity", gpt, *common, "--metric", "perplexity", "--wide", "mxfp4/mxfp4", "--narrow", "mxfp4/mxint8")
    float_and_wide = qk_json("evaluate", gpt, *common, "--metric", "perplexity", *formats)["perplexity"]
    check(abs(found["base_metric"] - float_and_wide) < 1e-9 * float_and_wide, "sensitivity measures perplexity as evaluate does")
    plain = qk_json("evaluate", gpt, *common)["perplexity"]
    mixed = qk_json("search", gpt, *common, "--wide", "mxfp8_e4m3/mxfp8_e4m3", "--narrow", "mxfp4/mxfp4", "--target-perplexity", str(1.05 * plain))
    check(mixed["metric"] == "perplexity" or mixed.get("metric_name") == "perplexity", "search --target-perplexity")

    bad = qk("evaluate", gpt, *common[:2], "--mask", "attention_maks", "--next-token", status=2).stderr
    check("attention_mask" in bad, "a mask that is no input names the nearest")


def test_ragged():
    gpt = models.gpt(at("gpt2.onnx"))
    lengths = [9, 4, 7]
    rows = [rng.integers(0, 61, (1, n)) for n in lengths]
    os.mkdir(at("folder"))
    files = []
    for i, row in enumerate(rows):
        np.savez(os.path.join(at("folder"), f"{i}.npz"), input_ids=row, attention_mask=np.ones_like(row))
        files.append(os.path.join(at("folder"), f"{i}.npz"))
    padded = np.zeros((3, 9), np.int64)
    mask = np.zeros((3, 9), np.int64)
    for i, row in enumerate(rows):
        padded[i, :row.shape[1]], mask[i, :row.shape[1]] = row[0], 1
    one = saved("padded.npz", input_ids=padded, attention_mask=mask)
    formats = ["--approach", "weight_only", "--weight", "mxfp4", "--metric", "perplexity,kl,agreement,sqnr"]  # activations' blocks would mix in padding
    wanted = qk_json("evaluate", gpt, "--inputs", one, "--mask", "attention_mask", "--next-token", *formats)
    for what, given in {"a list of .npz files": ",".join(files), "a folder of them": at("folder")}.items():
        got = qk_json("evaluate", gpt, "--inputs", given, "--next-token", *formats)
        check(got["samples"] == 3 and all(abs(got[n] - wanted[n]) < 1e-4 * abs(wanted[n]) for n in ("perplexity", "kl", "agreement", "sqnr")), f"{what}: what padding and a mask give")
    y = evaluated(gpt, at("folder"))
    alone = evaluated(gpt, files[1])
    check(y.shape == (3, 9, 61) and np.array_equal(y[1, :4], alone[0]) and not y[1, 4:].any(), "outputs are padded with zeros")
    qk("quantize", "--recipe", "fast", gpt, "-o", at("ragged.onnx"), "--activation", "int8", "--weight", "int8", "--calibration", at("folder"))
    qk("quantize", "--recipe", "fast", gpt, "-o", at("ragged4.onnx"), "--approach", "weight_only", "--weight", "int4", "--weight-block", "16", "--weight-rounding", "compensated", "--calibration", at("folder"))
    check(True, "calibration and compensated rounding take ragged data")
    folder = qk_json("sensitivity", gpt, "--inputs", at("folder"), "--next-token", "--metric", "perplexity", "--wide", "mxfp8_e4m3/mxfp8_e4m3", "--narrow", "mxfp4/mxfp4")
    check(folder["base_metric"] > 1, "sensitivity takes ragged data")
    fixed = onnx.load(gpt)
    for i in fixed.graph.input:
        i.type.tensor_type.shape.dim[1].dim_value = 9
    onnx.save(fixed, at("fixed.onnx"))
    message = qk("evaluate", at("fixed.onnx"), "--inputs", at("folder"), status=2).stderr
    check("[1,4]" in message and "[1,9]" in message, "a model of one length says which lengths it was given")


def test_words():
    """bert: labels count at their own positions, and -100 is ignored."""
    bert = models.bert(at("bert.onnx"))
    ids = rng.integers(0, 61, (3, 8))
    mask = np.ones((3, 8), np.int64)
    mask[1, 5:] = 0
    data = saved("bert.npz", input_ids=ids, attention_mask=mask, token_type_ids=ids * 0)
    labels = np.where(mask > 0, rng.integers(0, 5, (3, 8)), -100)
    np.save(at("tags.npy"), labels)
    got = qk_json("evaluate", bert, "--inputs", data, "--labels", at("tags.npy"))
    y = evaluated(bert, data)
    check(abs(got["top1"] - (y.argmax(-1) == labels)[labels >= 0].mean()) < 1e-9, "bert: top1 of tokens, -100 ignored")


if __name__ == "__main__":
    evidence.main()
