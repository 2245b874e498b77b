# SPDX-License-Identifier: Apache-2.0
"""Quantizes language models: weights behind constant paths, float16, masks, caches, packed weights, and the commands of the guide."""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, at, check, close, decibels, qk, qk_json, saved
from evidence.runtimes import keeps, outputs, session

import numpy as np
import onnx
from onnx import TensorProto

import language_models as models
from language_models import logits as evaluated, softmax_log

rng = np.random.default_rng(7)


def test_weights_are_weights():
    """A tied embedding larger than the folding limits is still a weight."""
    big = models.gpt(at("big.onnx"), vocabulary=33000, hidden=512, layers=1, count=8)
    check(33000 * 512 * 4 > 2**26, "the tied embedding is beyond the limit of other constants")
    data = saved("big.npz", input_ids=rng.integers(0, 33000, (2, 5)), attention_mask=np.ones((2, 5), np.int64))
    for formats in (["--activation", "int8", "--weight", "int8", "--calibration", data], ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"],
                    ["--activation", "mxfp8_e4m3", "--weight", "mxfp4"]):
        report = qk_json("quantize", "--recipe", "fast", big, "-o", at("big_q.onnx"), *formats, "--overwrite")
        head = [e for e in report["edges"] if e["consumer"] == "lm_head" and e["role"] == "weight"]
        check(len(head) == 1, f"lm_head's tied weights are weights under {formats[:4]}")
        check(any("wte" in n["subject"] + n["text"] and n["kind"] == "tied" for n in report["notes"]), "and a remark says that they are tied")
    qk("quantize", "--recipe", "fast", big, "-o", at("big_q.onnx"), "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", data, "--overwrite")
    check(close(outputs(at("big_q.onnx"), data)[0], evaluated(big, data, "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", data), 5e-2),
          "the int8 file runs in onnxruntime as planned")
    held = sum(len(t.raw_data) for t in onnx.load(at("big_q.onnx")).graph.initializer)
    check(held < 1.5 * 33000 * 512 * 4, "the exported file holds the embedding once in float32 and once as codes")
    for f in ("big.onnx", "big_q.onnx"):
        os.remove(at(f))


def test_halves():
    """Equal models in float16 and float32 get the same quantizers, each in its own type."""
    places = np.arange(7)[None].repeat(2, 0)
    ids = rng.integers(0, 61, (2, 7))
    files = {t: models.llama(at(f"llama_{np.dtype(t).name}.onnx"), dtype=t) for t in (np.float16, np.float32)}
    reports = {}
    for dtype, file in files.items():
        past = {k: (0.1 * rng.standard_normal((2, 2, 3, 8))).astype(dtype) for k in models.cache()}
        data = saved(f"{np.dtype(dtype).name}.npz", input_ids=ids, position_ids=places + 3, **past)
        for name, formats in {"int8": ["--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", data], "mx": ["--activation", "mxfp8_e4m3", "--weight", "mxfp4"],
                              "int4": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16"]}.items():
            out = at(f"{np.dtype(dtype).name}_{name}.onnx")
            reports[dtype, name] = qk_json("quantize", "--recipe", "fast", file, "-o", out, *formats)
            plain, planned = evaluated(file, data), evaluated(file, data, *formats)
            noise = np.abs(planned.astype(np.float64) - plain).max() / np.abs(plain).max()
            check(0 < noise < 1, f"{np.dtype(dtype).name} {name}: quantizing changes the outputs by {noise:.3f}")
            check(planned.dtype == dtype, "and they keep their type")
            got = outputs(out, data)[0]
            check(got.dtype == dtype and close(got, planned, max(5e-2, noise)), "the file runs in onnxruntime as planned")
            again = evaluated(out, data)
            check(close(again, planned, 2e-3), "and here")
            recovered = qk_json("inspect", out)
            check(recovered is not None, "and can be inspected")
    for name in ("int8", "mx", "int4"):
        half, single = (sorted((e["consumer"], e["role"], e["quantizer"]["format"]) for e in reports[t, name]["edges"]) for t in files)
        check(half == single and len(half) > 10, f"{name}: float16 gets the quantizers of float32 ({len(half)} edges)")


def test_speech():
    """whisper: convolutions, an encoder, and a decoder that reads it; int8 with onnxruntime's optimizer and without."""
    model = models.whisper(at("whisper.onnx"))
    data = saved("whisper.npz", input_features=rng.standard_normal((2, 16, 24)).astype(np.float32), input_ids=rng.integers(0, 61, (2, 7)))
    plain = evaluated(model, data)
    for formats in (["--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", data], ["--activation", "mxfp8_e4m3", "--weight", "mxfp4"]):
        planned = evaluated(model, data, *formats)
        qk("quantize", "--recipe", "fast", model, "-o", at("whisper_q.onnx"), *formats, "--overwrite")
        on, off = (outputs(at("whisper_q.onnx"), data, level)[0] for level in ("on", "off"))
        # The optimizer's other order of sums may round a value of a block format to its other neighbour.
        check(close(off, planned, 5e-2) and keeps(on, off, plain)[0] and decibels(on, planned) > 20, f"whisper, {formats[1]}: onnxruntime, {keeps(on, off, plain)[1]}")


def test_masks():
    """Masks that reach the lowest value of the type stay float; a strict plan refuses to leave them."""
    gpt = models.gpt(at("masked.onnx"))
    data = saved("masked.npz", input_ids=rng.integers(0, 61, (2, 8)), attention_mask=np.array([[1] * 8, [1] * 5 + [0] * 3]))
    all_of = ["--activation", "int8", "--weight", "int8", "--placement", "all", "--calibration", data]
    report = qk_json("quantize", "--recipe", "fast", gpt, "-o", at("masked_q.onnx"), *all_of)
    told = [n for n in report["notes"] if "mask" in n["text"]]
    check(told and all(n["kind"] == "unrealised" for n in told), f"{len(told)} tensors that hold a mask are left")
    scales = [s for e in report["edges"] for s in e["quantizer"].get("scale", [])]
    check(max(scales) < 1e3, "and no scale comes from one")
    keys = [json.dumps(n, sort_keys=True) for n in report["notes"]]
    check(len(keys) == len(set(keys)), "no remark stands twice")
    qk("quantize", "--recipe", "fast", gpt, "-o", at("none.onnx"), *all_of, "--strict", status=2)
    plain, planned = evaluated(gpt, data), evaluated(gpt, data, *all_of)
    check(np.abs(planned - plain).max() < 0.3 * np.abs(plain).max(), "the model still says something")
    # Torch masks with -Inf, by a Where or by adding a constant.
    g = models.Graph(5)
    seen = g.hold("seen", np.tril(np.ones((8, 8), bool)))
    bias = g.hold("bias", np.where(np.tril(np.ones((8, 8), bool), 2), 0, -np.inf).astype(np.float32))
    for operation, operands in (("Where", (seen, "scores/y", g.hold("lowest", np.array(-np.inf, np.float32)))), ("Add", ("scores/y", bias))):
        g.nodes.clear()
        g.op("MatMul", "x", g.op("Transpose", "x", perm=[0, 2, 1]), name="scores")
        g.op("MatMul", g.op("Softmax", g.op(operation, *operands), axis=-1), "x", name="context")
        g.rename("logits")
        infinite = g.save(at(f"{operation}.onnx"), [("x", TensorProto.FLOAT, ["N", 8, 16])], [("logits", TensorProto.FLOAT, ["N", 8, 16])])
        x = saved("infinite.npz", x=rng.standard_normal((3, 8, 16)).astype(np.float32))
        for formats in (["--activation", "int16", "--weight", "int16"], ["--activation", "bfp16", "--weight", "bfp16"]):
            asked = [*formats, "--placement", "all", "--calibration", x]
            told = qk_json("quantize", "--recipe", "fast", infinite, "-o", at("infinite_q.onnx"), *asked, "--overwrite")["notes"]
            check(any("holds a mask" in n["text"] for n in told), f"{formats[1]}, {operation}: a mask of -Inf is told")
            plain, planned = evaluated(infinite, x), evaluated(infinite, x, *asked)
            check(np.isfinite(planned).all() and np.abs(planned - plain).max() < 0.1 * np.abs(plain).max(), "and left")
            got = outputs(at("infinite_q.onnx"), x)[0]
            check(close(got, planned, 2e-2), "in the file, too")
    rows = qk_json("sensitivity", gpt, "--inputs", data, "--wide", "mxfp8_e4m3/mxfp8_e4m3", "--narrow", "mxfp8_e4m3/mxfp4")["sensitivity"]
    check(len(rows) == len({r["layer"] for r in rows}), "a layer whose weights alone are narrowed stands once")


def noise(model, data, *formats):
    plain, planned = evaluated(model, data).astype(np.float64), evaluated(model, data, *formats)
    return ((planned - plain) ** 2).sum() / (plain**2).sum()


def test_channels():
    """SmoothQuant and AWQ on models in which some channels are 30 times as large as the others."""
    gpt = models.gpt(at("outliers.onnx"), outliers=30.0)
    data = saved("outliers.npz", input_ids=rng.integers(0, 61, (4, 12)), attention_mask=np.ones((4, 12), np.int64))
    for formats in (["--activation", "int8", "--weight", "int8", "--per-channel"], ["--activation", "mxfp4", "--weight", "mxfp4"]):
        plain = noise(gpt, data, *formats, "--calibration", data)
        for option in (["--smooth-quant", "0.5"], ["--smooth-quant", "search"]) if "int8" in formats else (["--smooth-quant", "search"],):
            helped = noise(gpt, data, *formats, "--calibration", data, *option)
            check(helped < plain, f"{' '.join(option)}, {formats[1]}: noise {helped:.2e}, was {plain:.2e}")
    four = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"]
    plain, helped = noise(gpt, data, *four), noise(gpt, data, *four, "--awq", "search", "--calibration", data)
    check(helped < plain, f"--awq search, int4: noise {helped:.2e}, was {plain:.2e}")
    report = qk_json("quantize", "--recipe", "fast", gpt, "-o", at("smooth.onnx"), "--smooth-quant", "0.5", "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", data)
    told = [n for n in report["notes"] if n["kind"] == "scaled"]
    check(any("in '" in n["text"] for n in told) and any("Mul" in n["text"] for n in told), "factors go into normalizations, else into a Mul")
    got = outputs(at("smooth.onnx"), data)[0]
    check(close(got, evaluated(gpt, data, "--smooth-quant", "0.5", "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", data), 5e-2), "the file is plain ONNX")
    with open(at("smooth.json"), "w") as f:
        json.dump({"default": {"activation": "int8", "weight": {"format": "int8", "per_channel": True}}, "smooth_quant": {"alpha": 0.5}}, f)
    asked = qk_json("quantize", "--recipe", "fast", gpt, "-o", at("asked.onnx"), "--plan", at("smooth.json"), "--calibration", data)
    check([n for n in asked["notes"] if n["kind"] == "scaled"] == told, "a requests file asks for the same")
    half = models.llama(at("half.onnx"), outliers=30.0)
    past = {k: np.zeros((2, 2, 0, 8), np.float16) for k in models.cache()}
    text = saved("half.npz", input_ids=rng.integers(0, 61, (2, 7)), position_ids=np.arange(7)[None].repeat(2, 0), **past)
    check(noise(half, text, *four[:-1], "16", "--awq", "search", "--calibration", text) < 0.5 * noise(half, text, *four[:-1], "16"), "float16 models are scaled too")


def test_caches():
    half = models.llama(at("cached.onnx"))
    past = {k: np.zeros((1, 2, 0, 8), np.float16) for k in models.cache()}
    text = saved("cached.npz", input_ids=rng.integers(0, 61, (1, 7)), position_ids=np.arange(7)[None], **past)
    report = qk_json("quantize", "--recipe", "fast", half, "-o", at("cached_q.onnx"), "--kv-cache", "fp8_e4m3fn", "--calibration", text)
    kept = {e["tensor"] for e in report["edges"]}
    check({f"present.{i}.{k}" for i in range(2) for k in ("key", "value")} <= kept, "--kv-cache: keys and values")
    check(not any(e["role"] == "weight" or e["consumer"].endswith("_proj") for e in report["edges"]), "and no layer's weights or inputs")
    check(all(e["quantizer"]["format"] == "fp8_e4m3fn" for e in report["edges"]), "in their format")
    check(close(outputs(at("cached_q.onnx"), text)[0], evaluated(half, text, "--kv-cache", "fp8_e4m3fn", "--calibration", text), 3e-2), "the file runs in onnxruntime")

    # Generation in onnxruntime, written out here, with the cache.
    def by_hand(path, steps, forced=None):
        runs = session(path)
        names = [o.name for o in runs.get_outputs()]
        fed, tokens, rows = dict(np.load(text)), [], []
        for step in range(steps):
            out = dict(zip(names, runs.run(None, fed)))
            rows.append(out["logits"][0, -1].astype(np.float64))
            tokens.append(int(rows[-1].argmax()))
            token = tokens[-1] if forced is None else forced[step]
            fed = {"input_ids": np.array([[token]]), "position_ids": np.array([[7 + step]]), **{k: out[k.replace("past", "present")] for k in past}}
        return tokens, np.array(rows)

    single = models.llama(at("cached32.onnx"), dtype=np.float32)
    past = {k: v.astype(np.float32) for k, v in past.items()}
    text = saved("cached32.npz", input_ids=np.load(text)["input_ids"], position_ids=np.arange(7)[None], **past)
    four = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16"]
    got = qk_json("evaluate", single, "--inputs", text, "--generate", "6", "--metric", "perplexity,agreement,kl", *four)
    tokens, wanted = by_hand(single, 6)
    check(got["tokens"] == [tokens], f"--generate: the tokens that onnxruntime chooses ({tokens})")
    qk("quantize", "--recipe", "fast", single, "-o", at("gen4.onnx"), *four)
    _, planned = by_hand(at("gen4.onnx"), 6, tokens)
    p, q = softmax_log(planned), softmax_log(wanted)
    check(abs(got["perplexity"] - np.exp(-p[np.arange(6), tokens].mean())) < 1e-3 * got["perplexity"], "perplexity of the plan on these tokens")
    check(abs(got["agreement"] - (planned.argmax(1) == wanted.argmax(1)).mean()) < 1e-9 and abs(got["kl"] - (np.exp(q) * (q - p)).sum(1).mean()) < 1e-3, "agreement and kl")


def test_nbits():
    single = models.llama(at("nbits.onnx"), dtype=np.float32, hidden=64)
    past = {k: np.zeros((2, 2, 0, 16), np.float32) for k in models.cache()}
    text = saved("nbits.npz", input_ids=rng.integers(0, 61, (2, 7)), position_ids=np.arange(7)[None].repeat(2, 0), **past)
    for formats in (["--weight", "int4", "--weight-block", "32"], ["--weight", "uint4", "--weight-block", "16", "--asymmetric-weights"], ["--weight", "int8", "--weight-block", "64"], ["--weight", "int4", "--per-channel"]):
        asked = ["--approach", "weight_only", *formats]
        out = at("nbits_q.onnx")
        qk("quantize", "--recipe", "fast", single, "-o", out, "--export", "nbits", *asked, "--overwrite")
        kinds = [n.op_type for n in onnx.load(out).graph.node]
        check(kinds.count("MatMulNBits") == 15 and kinds.count("GatherBlockQuantized") == 1, f"nbits, {' '.join(formats)}: 15 products, one table")
        planned = evaluated(single, text, *asked)
        check(close(evaluated(out, text), planned, 1e-5), "here they compute what the plan says")
        got = outputs(out, text)[0]
        check(close(got, planned, 1e-4), "and in onnxruntime")
        qk("inspect", out, "--save-plan", at("again.json"), "--save-float", at("again.onnx"), "--overwrite")
        check(close(evaluated(at("again.onnx"), text, "--plan", at("again.json")), planned, 1e-5), "the plan is recovered")
        with open(at("again.json")) as f:
            edges = json.load(f)
        check(len(edges["tensors"]) + len(edges["edges"]) == 16, "with all of its weights")
    low = onnx.load(at("nbits_q.onnx"))
    for n in low.graph.node:
        if n.op_type == "MatMulNBits":
            n.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(low, at("level4.onnx"))
    mine, ours = evaluated(at("level4.onnx"), text), outputs(at("level4.onnx"), text)[0]
    loss = np.abs(mine - evaluated(at("nbits_q.onnx"), text)).max() / np.abs(mine).max()
    told = qk("inspect", at("level4.onnx"), "--save-plan", at("again.json"), "--overwrite")
    check("accuracy_level 4" in told.stdout + told.stderr, "a plan recovered from it says what it leaves out")
    check(loss > 1e-5 and close(mine, ours, max(5e-2, loss)), f"accuracy level 4 has activations as int8: {loss:.1e} from level 0, as in onnxruntime")
    half = models.llama(at("nbits16.onnx"))
    past = {k: v.astype(np.float16) for k, v in {k: np.zeros((2, 2, 0, 8)) for k in models.cache()}.items()}
    text = saved("nbits16.npz", input_ids=rng.integers(0, 61, (2, 7)), position_ids=np.arange(7)[None].repeat(2, 0), **past)
    asked = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16"]
    qk("quantize", "--recipe", "fast", half, "-o", at("nbits16_q.onnx"), "--export", "nbits", *asked)
    got = outputs(at("nbits16_q.onnx"), text)[0]
    check(got.dtype == np.float16 and close(got, evaluated(half, text, *asked), 3e-2), "a float16 model keeps its type around them")


def test_recovered():
    """Plan and float model are recovered from a quantized float16 model in each style, and give the same outputs in float16."""
    half = models.llama(at("recover.onnx"))
    text = saved("recover.npz", input_ids=rng.integers(0, 61, (2, 8)), position_ids=np.tile(np.arange(8), (2, 1)), **models.cache(samples=2))
    four, eight = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16"], ["--activation", "int8", "--weight", "int8", "--calibration", text]
    for style, formats in (("nbits", four), ("portable", four), ("portable", ["--activation", "mxfp8_e4m3", "--weight", "mxfp4"]), ("qdq", eight), ("amd", eight)):
        qk("quantize", "--recipe", "fast", half, "-o", at("file.onnx"), "--export", style, *formats)
        qk("inspect", at("file.onnx"), "--save-plan", at("back.json"), "--save-float", at("back.onnx"))
        same = close(evaluated(at("file.onnx"), text), evaluated(at("back.onnx"), text, "--plan", at("back.json")), 1e-3)
        check(same and {t.data_type for t in onnx.load(at("back.onnx")).graph.initializer} >= {TensorProto.FLOAT16}, f"float16, {style}, {formats[-1]}: recovered")


def test_threads():
    """With fewer samples than threads, parts of one sample run side by side and give the bits of one thread."""
    cases = {"bert": (models.bert(at("wide_bert.onnx"), vocabulary=300, hidden=256, layers=1, longest=256), ["attention_mask", "token_type_ids"]),
             "gpt": (models.gpt(at("wide_gpt.onnx"), vocabulary=300, hidden=192, layers=1, longest=256), ["attention_mask"]),
             # The output's 2.3 M weights are multiplied in groups of columns, one after the other.
             "llama": (models.llama(at("wide_llama.onnx"), vocabulary=9000, hidden=256, layers=1, longest=256, dtype=np.float32), ["position_ids"])}
    for what, (file, others) in cases.items():
        for samples, length in ((1, 200), (1, 77), (3, 33)):
            given = {"input_ids": rng.integers(0, 300, (samples, length))}
            for name in others:
                given[name] = np.tile(np.arange(length), (samples, 1)) if name == "position_ids" else np.full((samples, length), name == "attention_mask", np.int64)
            if what == "llama":
                given.update(models.cache(1, 2, 64, samples, 0, np.float32))
            text = saved("threads.npz", **given)
            for formats in ([], ["--activation", "mxfp4", "--weight", "mxfp4"], ["--activation", "int8", "--weight", "int8", "--calibration", text],
                            ["--activation", "int8", "--weight", "int8", "--approach", "dynamic"]):
                one, two, three, five = (evaluated(file, text, "--threads", n, *formats) for n in (1, 2, 3, 5))
                check(one.tobytes() == two.tobytes() == three.tobytes() == five.tobytes(), f"{what}, {samples} x {length} {formats[1:2]}: the same bits on 1, 2, 3 and 5 threads")
        run = {k: v[:1] for k, v in given.items()}
        check(close(evaluated(file, saved("threads.npz", **run), "--threads", 2), outputs(file, run, names=["logits"])[0], 1e-4), f"{what}: onnxruntime's numbers")


def test_guide():
    """Runs every command of docs/guide/language_models.md."""
    page = (ROOT / "docs" / "guide" / "language_models.md").read_text()
    folder = at("guide")
    os.makedirs(os.path.join(folder, "texts"))
    models.llama(os.path.join(folder, "model.onnx"))
    for i, length in enumerate((9, 6, 11)):
        np.savez(os.path.join(folder, "texts", f"{i}.npz"), input_ids=rng.integers(0, 61, (1, length)), position_ids=np.arange(length)[None], **models.cache())
    lines = [line for block in page.split("```sh\n")[1:] for line in block.split("```")[0].splitlines()]
    for line in lines:
        words = line.split()
        done = evidence.run(*words[1:], cwd=folder)
        check(words[0] == "qk" and done.returncode == 0, line + (done.stderr if done.returncode else ""))
    check(len(lines) > 10, f"{len(lines)} lines of the guide")


if __name__ == "__main__":
    evidence.main()
