# SPDX-License-Identifier: Apache-2.0
"""What is chosen for a checkpoint is what is written: importance, budgets, groups that share a format, threads, and what a .gguf says of itself."""
import json
import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, check, ok, run

import numpy as np

import make_files as make


def refused(words, *arguments):
    """Status 2 with these words, and no output."""
    done = run(*arguments)
    missing = [w for w in words if w not in done.stderr]
    check(done.returncode == 2 and not missing, f"qk {' '.join(map(str, arguments))}: exit {done.returncode}, without {missing}: {done.stderr.strip()}")


def floats(tensors):
    return make.safetensors({k: ("F32", np.ascontiguousarray(v, np.float32)) for k, v in tensors.items()})


def gguf_of(tensors, keys=(), order="<"):
    return make.gguf({k: ("F32", v.shape, np.ascontiguousarray(v, order + "f4").tobytes()) for k, v in tensors.items()}, keys=keys, order=order)


def read_gguf(file, order="<"):
    """Keys with whole numbers, types and bytes of tensors, by a reader of our own."""
    raw, at = Path(file).read_bytes(), 24
    count, pairs = struct.unpack(order + "QQ", raw[8:24])
    keys, infos = {}, {}

    def text():
        nonlocal at
        n = struct.unpack(order + "Q", raw[at : at + 8])[0]
        at += 8 + n
        return raw[at - n : at].decode()

    for _ in range(pairs):
        key = text()
        kind = struct.unpack(order + "I", raw[at : at + 4])[0]
        at += 4
        if kind == 8:
            keys[key] = text()
        else:
            form = {2: "H", 4: "I", 5: "i", 10: "Q"}[kind]
            size = struct.calcsize(order + form)
            keys[key] = struct.unpack(order + form, raw[at : at + size])[0]
            at += size
    for _ in range(count):
        name = text()
        n = struct.unpack(order + "I", raw[at : at + 4])[0]
        shape = struct.unpack(order + f"{n}Q", raw[at + 4 : at + 4 + 8 * n])
        kind, offset = struct.unpack(order + "IQ", raw[at + 4 + 8 * n : at + 16 + 8 * n])
        at += 16 + 8 * n
        infos[name] = (kind, shape, offset)
    data = at + -at % 32
    ends = sorted(offset for _, _, offset in infos.values()) + [len(raw) - data]
    return keys, {name: (kind, raw[data + o : data + ends[ends.index(o) + 1]]) for name, (kind, _, o) in infos.items()}


def formats_in(file):
    return {w["name"]: w["format"] for w in json.loads(ok("inspect", file, "--json").stdout)["weights"]}


def test_importance(folder):
    """Blocks are those of ggml with the importance, by whatever file it comes and by whatever way they are written."""
    rng = np.random.default_rng(3)
    x, v = rng.standard_normal((48, 512)).astype(np.float32), rng.lognormal(0, 2, 512).astype(np.float32)
    (folder / "m.safetensors").write_bytes(floats({"a.weight": x, "b.weight": x[:16] ** 3}))
    np.save(folder / "x.npy", x)
    np.save(folder / "v.npy", v)
    np.savez(folder / "v.npz", **{"a.weight": v})
    calls = 7
    sums = (v * np.float32(calls)).astype(np.float32)
    entry = lambda name, values: struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, len(values)) + values.tobytes()
    (folder / "v.dat").write_bytes(struct.pack("<i", 1) + entry("a.weight", sums) + struct.pack("<ii", 3, 4) + b"text")
    (folder / "v.gguf").write_bytes(gguf_of({"a.weight.in_sum2": sums[None], "a.weight.counts": np.full((1, 1), calls, np.float32)}))
    divided = (sums / np.float32(calls)).astype(np.float32)
    np.savez(folder / "divided.npz", **{"a.weight": divided})
    matters = 0
    for kind, system in (("q4_k", "q4_K"), ("q2_k", "q2_K"), ("q3_k", "q3_K"), ("q5_k", "q5_K"), ("q6_k", "q6_K"), ("iq4_xs", "iq4_xs"), ("iq4_nl", "iq4_nl"), ("q4_0", "q4_0")):
        ok("convert", folder / "x.npy", folder / "y.npy", "--system", f"ggml.{system}", "--importance", folder / "v.npy", "--packed", folder / "p.npz")
        wanted = np.load(folder / "p.npz")["codes"].tobytes()
        ok("convert", folder / "m.safetensors", folder / "c.gguf", "--format", kind, "--importance", folder / "v.npz")
        ok("convert", folder / "m.safetensors", folder / "plain.gguf", "--format", kind)
        _, got = read_gguf(folder / "c.gguf")
        _, plain = read_gguf(folder / "plain.gguf")
        check(got["a.weight"][1][: len(wanted)] == wanted, f"{kind} with an importance has other blocks than the rule of one matrix")
        check(got["b.weight"] == plain["b.weight"], f"{kind}: a weight without an importance has other blocks than without the option")
        matters += got["a.weight"] != plain["a.weight"]
        for name, more in (("o.gguf", []), ("o2.gguf", ["--save-plan", folder / "plan.json"])):
            ok("search", folder / "m.safetensors", "--budget", 10**6, "--formats", kind, "--importance", folder / "v.npz", "-o", folder / name, *more)
        ok("convert", folder / "m.safetensors", folder / "o3.gguf", "--plan", folder / "plan.json", "--importance", folder / "v.npz")
        check(read_gguf(folder / "o.gguf")[1] == got, f"{kind}: search -o writes other blocks than convert")
        check((folder / "o.gguf").read_bytes() == (folder / "o2.gguf").read_bytes(), f"{kind}: -o is another file with --save-plan")
        check(read_gguf(folder / "o3.gguf")[1] == got, f"{kind}: the plan makes another file than -o")
    check(matters >= 6, f"the importance changes {matters} of 8 formats")
    ok("convert", folder / "m.safetensors", folder / "c.gguf", "--format", "q4_k", "--importance", folder / "divided.npz")
    for form in ("v.dat", "v.gguf"):
        ok("convert", folder / "m.safetensors", folder / "d.gguf", "--format", "q4_k", "--importance", folder / form)
        check((folder / "d.gguf").read_bytes() == (folder / "c.gguf").read_bytes(), f"{form}: other blocks than by the same vector of an .npz")
    stack = rng.standard_normal((3, 8, 256)).astype(np.float32)
    (folder / "s.safetensors").write_bytes(floats({"e.weight": stack}))
    each = rng.lognormal(0, 2, (3, 256)).astype(np.float32)
    np.savez(folder / "each.npz", **{"e.weight": each.reshape(-1)})
    ok("convert", folder / "s.safetensors", folder / "s.gguf", "--format", "q4_k", "--importance", folder / "each.npz")
    blocks = b""
    for matrix, weights in zip(stack, each):
        np.save(folder / "x.npy", matrix)
        np.save(folder / "v.npy", weights)
        ok("convert", folder / "x.npy", folder / "y.npy", "--system", "ggml.q4_K", "--importance", folder / "v.npy", "--packed", folder / "p.npz")
        blocks += np.load(folder / "p.npz")["codes"].tobytes()
    check(read_gguf(folder / "s.gguf")[1]["e.weight"][1][: len(blocks)] == blocks, "experts of a stack have an importance each")

    wrong = {"length": ({"a.weight": v[:100]}, ["a.weight", "512", "100"]), "negative": ({"a.weight": -v}, ["a.weight"]), "nan": ({"a.weight": v * np.nan}, ["a.weight"]),
             "strangers": ({"x": v, "y": v}, ["--importance", "none of its 2 names"]), "double": ({"a.weight": v.astype(np.float64)}, ["float32"])}
    for name, (arrays, words) in wrong.items():
        np.savez(folder / f"{name}.npz", **arrays)
        for verb in (["convert", folder / "m.safetensors", folder / "never.gguf", "--format", "q4_k"], ["search", folder / "m.safetensors", "--budget", 10**6, "--formats", "q4_k", "-o", folder / "never.gguf"]):
            refused(words, *verb, "--importance", folder / f"{name}.npz")
    refused(["--importance"], "convert", folder / "m.safetensors", folder / "never.npz", "--importance", folder / "v.npz")
    for name, raw in (("empty.dat", b""), ("cut.dat", (folder / "v.dat").read_bytes()[:200]), ("other.dat", b"not an imatrix at all, but a text of some length"), ("no.gguf", gguf_of({"a.weight": x[:1]}))):
        (folder / name).write_bytes(raw)
        refused([name], "convert", folder / "m.safetensors", folder / "never.gguf", "--format", "q4_k", "--importance", folder / name)
    check(not (folder / "never.gguf").exists() and not (folder / "never.npz").exists(), "a refused conversion leaves a file")
    np.savez(folder / "some.npz", **{"a.weight": v, "c.weight": v, "d.weight": v})
    done = ok("convert", folder / "m.safetensors", folder / "d.gguf", "--format", "q4_k", "--importance", folder / "some.npz")
    check("unused: " in done.stderr and "2 of its 3 names" in done.stderr, f"names that fit nothing: {done.stderr!r}")
    done = ok("convert", folder / "m.safetensors", folder / "d.gguf", "--format", "q8_0", "--importance", folder / "v.npz")
    check("unused: --importance" in done.stderr, f"a format that looks at no importance: {done.stderr!r}")


def test_ggml_with_importance(folder):
    """Where ggml's answers are: the blocks of a checkpoint with an importance are those that ggml made."""
    goldens = ROOT.parent / "shared" / "goldens2"
    if not (goldens / "ggml.imatrix256.npy").exists():
        return
    np.savez(folder / "v.npz", **{"x.weight": np.load(goldens / "ggml.imatrix256.npy").reshape(-1).astype(np.float32)})
    for codes in sorted(goldens.glob("ggml.*.imatrix.*.codes.npy")):
        kind, source = codes.name.split(".")[1].lower(), codes.name.split(".")[3]
        (folder / "x.safetensors").write_bytes(floats({"x.weight": np.load(goldens / f"input.{source}.npy")}))
        if ok("convert", folder / "x.safetensors", folder / "x.gguf", "--format", kind, "--importance", folder / "v.npz").returncode == 0:
            wanted = np.load(codes).tobytes()
            check(read_gguf(folder / "x.gguf")[1]["x.weight"][1][: len(wanted)] == wanted, f"{codes.name}: other blocks than ggml's")


def test_budgets_and_shares(folder):
    rng = np.random.default_rng(4)
    spread = lambda scale: (rng.standard_normal((16, 256)) * np.exp(scale * rng.standard_normal((16, 256)))).astype(np.float32)
    tensors = {f"model.layers.{n}.self_attn.{p}_proj.weight": spread(s) for n in (0, 1, 10) for p, s in zip("qkvo", (0, 0.5, 1.5, 1))}
    tensors |= {f"model.layers.{n}.mlp.experts.{e}.{p}_proj.weight": spread(e) for n in (0, 1) for e in range(3) for p in ("up", "down")}
    tensors |= {"norm.weight": rng.random(8).astype(np.float32)}
    file = folder / "m.safetensors"
    file.write_bytes(floats(tensors))
    values = sum(v.size for v in tensors.values() if v.ndim == 2)
    search = lambda *more: json.loads(ok("search", file, "--formats", "q2_k,q3_k,q4_k,q6_k", "--json", *more).stdout)
    for bits in (3, 4.7, 5.25):
        found = search("--budget", f"{bits}bpw")
        check(found["budget"] == np.floor(values * bits / 8) and found["bytes"] <= found["budget"], f"{bits}bpw: {found['bytes']} bytes of {found['budget']}")
        check(abs(found["bits_per_weight"] - 8 * found["bytes"] / values) < 1e-9 and found["bits_per_weight"] > bits - 0.3, f"{bits}bpw: {found['bits_per_weight']}")
        same = search("--budget", int(found["budget"]))
        check(same["rows"] == found["rows"], f"{bits}bpw chooses otherwise than its bytes")
    check(run("search", file, "--budget", "1bpw").returncode == 1, "1bpw: the smallest formats take more")
    refused(["--budget", "4.7b"], "search", file, "--budget", "4.7b")

    def shared(rows, members):
        formats = {r["tensor"]: r["format"] for r in rows}
        return [len({formats[m] for m in group}) == 1 for group in members]

    qkv = [[f"model.layers.{n}.self_attn.{p}_proj.weight" for p in "qkv"] for n in (0, 1, 10)]
    experts = [[k for k in tensors if k.startswith(f"model.layers.{n}.mlp.experts.")] for n in (0, 1)]
    free = search("--budget", "4bpw")["rows"]
    check(not all(shared(free, qkv + experts)), "without --share every group has one format, so that the test shows nothing")
    joined = search("--budget", "4bpw", "--share", "*.q_proj.*,*.k_proj.*,*.v_proj.*", "--share", "*.experts.*")
    check(all(shared(joined["rows"], qkv + experts)) and joined["bytes"] <= joined["budget"], "--share: groups of a layer have several formats")
    check(len({tuple(r["format"] for r in joined["rows"] if r["tensor"] in group) for group in qkv}) >= 1 and len(joined["rows"]) == len(free), "--share loses weights")
    chained = search("--budget", "4bpw", "--share", "*.q_proj.*,*.k_proj.*", "--share", "*.k_proj.*,*.v_proj.*")
    check(all(shared(chained["rows"], qkv)), "groups with a weight in common are one")
    refused(["fits '*.gate'"], "search", file, "--budget", "4bpw", "--share", "*.q_proj.*,*.gate")
    done = ok("search", file, "--budget", "4bpw", "--share", "model.layers.10.*.q_proj.*")
    check("unused: --share" in done.stderr, f"a group of one: {done.stderr!r}")
    ok("search", file, "--budget", "4bpw", "--share", "*.experts.*", "-o", folder / "o.gguf")
    check(all(len({formats_in(folder / "o.gguf")[k] for k in group}) == 1 for group in experts), "--share: -o has several formats in a group")


def test_other_families(folder):
    """Formats that a .gguf has no place for are measured; -o says so before anything is measured."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((8, 256)).astype(np.float32)
    file = folder / "m.safetensors"
    file.write_bytes(floats({"a.weight": x}))
    done = ok("sensitivity", "--weights-only", file, "--formats", "int4_g128,int8,fp8_e4m3fn,mxfp8_e4m3,nvfp4,q4_0,bf16", "--json")
    rows = {r["format"]: r for r in json.loads(done.stdout)["rows"]}
    check(len(rows) == 7, f"formats measured: {list(rows)}")
    groups = x.reshape(-1, 128)
    scale = (np.abs(groups).max(1, keepdims=True) / np.float32(7)).astype(np.float32)
    back = (np.clip(np.rint(groups / scale), -8, 7) * scale).astype(np.float32).reshape(x.shape)
    wanted = 10 * np.log10((x.astype(np.float64) ** 2).sum() / ((x - back.astype(np.float64)) ** 2).sum())
    check(abs(rows["int4_g128"]["db"] - wanted) < 0.05 and rows["int4_g128"]["bytes"] == x.size // 2 + 2 * len(groups), f"int4_g128: {rows['int4_g128']}, {wanted:.2f} dB")
    scale = (np.abs(x).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    back = np.rint(x / scale) * scale
    wanted = 10 * np.log10((x.astype(np.float64) ** 2).sum() / ((x - back.astype(np.float64)) ** 2).sum())
    check(abs(rows["int8"]["db"] - wanted) < 0.05 and rows["int8"]["bytes"] == x.size + 2 * len(x), f"int8: {rows['int8']}, {wanted:.2f} dB")
    check(rows["mxfp8_e4m3"]["bytes"] == x.size + x.size // 32, f"mxfp8: {rows['mxfp8_e4m3']}")
    done = ok("search", file, "--budget", "5bpw", "--formats", "int4_g128,mxfp8_e4m3,fp8_e4m3fn", "--save-plan", folder / "p.json")
    refused(["int4_g128", "-o", "--save-plan"], "search", file, "--budget", "5bpw", "--formats", "q4_0,int4_g128", "-o", folder / "never.gguf")
    refused(["int4_g"], "search", file, "--budget", "5bpw", "--formats", "int4_g")
    check(not (folder / "never.gguf").exists(), "a refused search leaves a file")


def test_threads(folder):
    """Bytes and choices do not depend on threads."""
    rng = np.random.default_rng(6)
    (folder / "m.safetensors").write_bytes(floats({"a.weight": rng.standard_normal((301, 512)), "b.weight": rng.standard_normal((3, 5, 256)), "c.weight": rng.standard_normal((1, 1024))}))
    np.savez(folder / "v.npz", **{"a.weight": rng.lognormal(0, 1, 512).astype(np.float32), "b.weight": rng.lognormal(0, 1, 768).astype(np.float32)})
    for kind in ("q4_k", "q8_0", "iq4_xs", "mxfp4", "bf16"):
        files = []
        for n in (1, 2, 7):
            ok("convert", folder / "m.safetensors", folder / "o.gguf", "--format", kind, "--threads", n, "--importance", folder / "v.npz")
            files.append((folder / "o.gguf").read_bytes())
        check(files[0] == files[1] == files[2], f"{kind}: other bytes by other threads")
    shown = [ok("sensitivity", "--weights-only", folder / "m.safetensors", "--json", "--threads", n).stdout for n in (1, 3)]
    check(shown[0] == shown[1], "sensitivity: other numbers by other threads")


TYPES = {"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15, "q5_k": 17, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38, "nvfp4": 39, "f16": 1, "bf16": 32}
GGML = {"f32": 0, "f16": 1, "q4_0": 2, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20}


def test_what_a_gguf_says(folder):
    """general.file_type follows the type of most matrices, general.quantization_version what was quantized; other keys stay."""
    rng = np.random.default_rng(7)
    matrices = {f"blk.{k}.ffn_up.weight": rng.standard_normal((4, 256)).astype(np.float32) for k in range(3)} | {"blk.0.norm.weight": rng.standard_normal(256).astype(np.float32)}
    number = lambda n: struct.pack("<I", n)
    old = [("general.file_type", 4, number(0)), ("llama.block_count", 4, number(3))]
    (folder / "m.gguf").write_bytes(gguf_of(matrices, old))
    (folder / "m.safetensors").write_bytes(floats(matrices))
    for kind, wanted in TYPES.items():
        for source in ("m.gguf", "m.safetensors"):
            ok("convert", folder / source, folder / "o.gguf", "--format", kind)
            keys, _ = read_gguf(folder / "o.gguf")
            check(keys.get("general.file_type") == wanted, f"{kind} of {source}: file type {keys}")
            check(keys.get("general.quantization_version") == (2 if source == "m.safetensors" or not kind.endswith("f16") else None), f"{kind} of {source}: {keys}")
            check(source != "m.gguf" or keys["llama.block_count"] == 3, f"{kind}: a key is lost: {keys}")
    ok("convert", folder / "m.gguf", folder / "o.gguf", "--format", "q4_k", "--tensor", "blk.0.*=q6_k")
    check(read_gguf(folder / "o.gguf")[0]["general.file_type"] == 15, "two of three are q4_k")
    small = struct.pack("<I", 14)
    ok("convert", folder / "m.gguf", folder / "q.gguf", "--format", "q4_k")
    (folder / "s.gguf").write_bytes((folder / "q.gguf").read_bytes().replace(b"general.file_type" + struct.pack("<II", 4, 15), b"general.file_type" + struct.pack("<I", 4) + small))
    ok("convert", folder / "s.gguf", folder / "o.gguf", "--shard-size", "1GB")
    check((folder / "o.gguf").read_bytes() == (folder / "s.gguf").read_bytes(), "a file whose types stay has another file type (14 is q4_k, too)")
    ok("convert", folder / "m.gguf", folder / "cut.gguf", "--format", "q5_k", "--shard-size", "700")
    parts = sorted(folder.glob("cut-*.gguf"))
    check(len(parts) > 1 and read_gguf(parts[0])[0].get("general.file_type") == 17 and "general.file_type" not in read_gguf(parts[1])[0], "the first part of a split file says its type")
    (folder / "big.gguf").write_bytes(gguf_of(matrices, [("general.file_type", 4, struct.pack(">I", 0))], order=">"))
    ok("convert", folder / "big.gguf", folder / "o.gguf", "--format", "f16")
    check(read_gguf(folder / "o.gguf", ">")[0]["general.file_type"] == 1, "a file of the other byte order")

    odd = {f"blk.{k}.ffn_up.weight": rng.standard_normal((4, 320)).astype(np.float32) for k in range(3)} | {"blk.9.whole.weight": rng.standard_normal((4, 256)).astype(np.float32), "blk.9.ragged.weight": rng.standard_normal((4, 40)).astype(np.float32)}
    (folder / "odd.gguf").write_bytes(gguf_of(odd, old))
    for asked, taken in (("q4_k", "q5_0"), ("q5_k", "q5_1"), ("q6_k", "q8_0"), ("q2_k", "iq4_nl"), ("q3_k", "iq4_nl"), ("iq4_xs", "iq4_nl"), ("tq1_0", "q4_0"), ("tq2_0", "q4_0")):
        done = ok("convert", folder / "odd.gguf", folder / "o.gguf", "--format", asked)
        shown = formats_in(folder / "o.gguf")
        check(shown == {k: asked if "whole" in k else "f32" if "ragged" in k else taken for k in odd}, f"{asked} with rows of 320: {shown}")
        lines = [line for line in done.stderr.splitlines() if taken in line]
        check(len(lines) == 1 and "3 matrices" in lines[0] and "320" in lines[0], f"{asked}: not one remark that counts: {done.stderr!r}")
        keys, tensors = read_gguf(folder / "o.gguf")
        check(keys["general.file_type"] == TYPES[taken] and tensors["blk.0.ffn_up.weight"][0] == GGML[taken], f"{asked}: the file type follows what was written: {keys}")
        ok("convert", folder / "odd.gguf", folder / "p.gguf", "--format", taken)
        check(read_gguf(folder / "p.gguf")[1]["blk.1.ffn_up.weight"] == tensors["blk.1.ffn_up.weight"], f"{asked}: other blocks than by --format {taken}")
    for name in ("q4_K_M", "q3_K_L", "Q5_K_S", "mxfp4_moe"):
        refused([name, name.lower()[: name.rfind("_")], "--tensor"], "convert", folder / "m.gguf", folder / "never.gguf", "--format", name)
    refused(["q4_z"], "convert", folder / "m.gguf", folder / "never.gguf", "--format", "q4_z")
    check(not (folder / "never.gguf").exists(), "an unknown format leaves a file")


def test_names(folder):
    """A .gguf of a Hugging Face model is refused; globs and names that fit nothing are errors."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((4, 256)).astype(np.float32)
    model = folder / "hf"
    model.mkdir()
    config = model / "config.json"
    for name in ("model.layers.0.mlp.up_proj.weight", "transformer.h.11.attn.c_attn.weight", "bert.encoder.layer.3.output.dense.weight", "model.language_model.layers.2.w"):
        (model / "model.safetensors").write_bytes(floats({name: x}))
        config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
        sentence = ["LlamaForCausalLM", "convert_hf_to_gguf.py", "--names-as-they-are", "qk moves numbers, not architectures"]
        refused(sentence, "convert", model / "model.safetensors", folder / "never.gguf", "--format", "q8_0")
        refused(sentence, "search", model / "model.safetensors", "--budget", "9bpw", "-o", folder / "never.gguf")
        ok("search", model / "model.safetensors", "--budget", "9bpw", "--save-plan", folder / "p.json")
        ok("convert", model / "model.safetensors", folder / "o.gguf", "--format", "q8_0", "--names-as-they-are")
        check(formats_in(folder / "o.gguf") == {name: "q8_0"}, f"{name} with its name as it is")
        ok("search", model / "model.safetensors", "--budget", "9bpw", "-o", folder / "o.gguf", "--names-as-they-are")
        for plain in ({"model_type": "llama"}, {"architectures": []}):
            config.write_text(json.dumps(plain))
            ok("convert", model / "model.safetensors", folder / "o.gguf", "--format", "q8_0")
    config.write_text(json.dumps({"architectures": ["X"]}))
    for name in ("m.w.weight", "head.0.weight", "layers.weight"):
        (model / "model.safetensors").write_bytes(floats({name: x}))
        ok("convert", model / "model.safetensors", folder / "o.gguf", "--format", "q8_0")
    check(not (folder / "never.gguf").exists(), "a refused model leaves a file")

    (folder / "a.safetensors").write_bytes(floats({"model.layers.0.w.weight": x, "n": x[0]}))
    (folder / "b.gguf").write_bytes(gguf_of({"blk.0.w.weight": x, "m": x[0]}))
    (folder / "c.safetensors").write_bytes(floats({"other.weight": x}))
    for source, like, out in (("a.safetensors", "b.gguf", "never.gguf"), ("b.gguf", "a.safetensors", "never.safetensors"), ("a.safetensors", "c.safetensors", "never.safetensors")):
        refused(["--like", "no weight of", like], "convert", folder / source, folder / out, "--like", folder / like)
    for more in (["--format", "f16"], ["--tensor", "*=f16"], ["--system", "ggml.q8_0"]):
        refused(["--like", "out"], "convert", folder / "b.gguf", folder / "never.gguf", "--like", folder / "b.gguf", *more)
    for more in (["--tensor", "nothere*=q8_0"], ["--tensor", "*=q8_0", "--tensor", "x=q4_0"]):
        refused(["fits"], "convert", folder / "b.gguf", folder / "never.gguf", *more)
    (folder / "p.json").write_text(json.dumps({"requests": [{"tensor": "absent.*", "weight": "q8_0"}]}))
    refused(["absent.*"], "convert", folder / "b.gguf", folder / "never.gguf", "--plan", folder / "p.json")
    for out in ("never.gguf", "never.safetensors"):
        check(not (folder / out).exists(), f"{out} was written")

    ok("convert", folder / "b.gguf", folder / "s.gguf", "--system", "ggml.q4_K")
    ok("convert", folder / "b.gguf", folder / "f.gguf", "--format", "q4_k")
    check((folder / "s.gguf").read_bytes() == (folder / "f.gguf").read_bytes() and formats_in(folder / "s.gguf")["blk.0.w.weight"] == "q4_k", "--system ggml.q4_K writes q4_k")
    refused(["--system", "--format"], "convert", folder / "b.gguf", folder / "never.gguf", "--system", "ggml.q4_K", "--format", "q8_0")
    refused(["mlx.mxfp4", "--like"], "convert", folder / "b.gguf", folder / "never.gguf", "--system", "mlx.mxfp4")
    refused(["mlx.mxfp5"], "convert", folder / "b.gguf", folder / "never.gguf", "--system", "mlx.mxfp5")


if __name__ == "__main__":
    evidence.main()
