#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No option is passed over: for each verb, option and kind of input, the option is read for that kind, or it is an error that names it.

`qk VERB --help` says for which kinds an option is where it is not for all. With every other kind the command ends with status 2 and a
sentence. For the kinds under EFFECTS each option that is read has a line that shows what it does: another output, or another exit status.
"""
import re
import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "checkpoint")]
import evidence
from evidence import check
from evidence.graphs import save
import make_files as make

import numpy as np
import pytest
from onnx import helper


def run(folder, *arguments, stdin=""):
    return evidence.run(*arguments, cwd=folder, input=stdin)


def options_of(verb):
    """Name, whether it takes a value, and the kinds that it is for (none: all), of each option and argument."""
    page = run(".", verb, "--help").stdout
    page = re.sub(r"\n {30}(?! )", " ", page)
    found = []
    for line in page.splitlines():
        m = re.match(r"^  (?:-\w, )?(--[\w-]+|[A-Z]+)((?: (?!\[[a-z, ]+\] )\S+)?(?: \.\.\.)?) +(?:\[([a-z, ]+)\] )?\S", line)
        if m and m[1] != "--help":
            kinds = re.split(r", | and ", m[3]) if m[3] else []
            found.append((m[1], bool(m[2].strip()), kinds))
    return found


# What each verb is called with, for each kind of its input.
BASES = {
    "convert": {"arrays": "x.npy out.npy --format mxfp4", "packed arrays": "p.npz out.npy", "checkpoints": "c.safetensors out.gguf --format q4_k"},
    "inspect": {"models": "m.onnx", "checkpoints": "c.safetensors"},
    "compare": {
        "arrays": "x.npy y.npy --format mxfp4", "hexadecimal words": "x.hex y.hex --format fp16", "decoders": "codes.hex values.hex --format mxfp4 --decode",
        "checkpoints": "c.safetensors c.safetensors", "devices": "--dot --command false --a-format fp16 --b-format fp16",
        "answers of a device": "--dot case.npz --a-format fp16 --b-format fp16",
    },
    "vectors": {"converters": "--format int8 --out v", "devices": "--device amd.cdna3.mfma.f32_f16 --out v"},
    "gen": {"converters": "fp4_e2m1", "decoders": "fp4_e2m1 --decode", "multipliers": "fp4_e2m1 --pairs fp4_e2m1", "devices": "--device amd.cdna3.mfma.f32_f16"},
    "ver": {"converters": "fp4_e2m1", "decoders": "fp4_e2m1 --decode", "multipliers": "fp4_e2m1 --pairs fp4_e2m1", "devices": "--device amd.cdna3.mfma.f32_f16"},
    "cover": {"converters": "fp4_e2m1", "decoders": "fp4_e2m1 --decode", "multipliers": "fp4_e2m1 --pairs fp4_e2m1", "devices": "--device amd.cdna3.mfma.f32_f16"},
    "emit": {"converters": "fp4_e2m1 --language c", "decoders": "fp4_e2m1 --decode --language c", "devices": "--device x86.avx512_vnni.vpdpbusd --language c"},
    "sensitivity": {"models": "m.onnx --inputs in.npy", "checkpoints": "c.safetensors --weights-only --formats q4_k,q8_0"},
    "search": {"models": "m.onnx --inputs in.npy", "checkpoints": "c.safetensors --budget 40000 --formats q4_k,q8_0"},
}
MODELS_ALONE = ("quantize", "explain", "evaluate", "calibrate", "diff", "gradient", "finetune")

# For these kinds: what each option that is read changes. Words behind the base; or "-" and words in its place.
EFFECTS = {
    ("convert", "packed arrays"): {"--format": "--format int8", "--overwrite": "- p2.npz p2.npz --overwrite", "INPUT": "- nosuch.npz out.npy", "OUTPUT": "- p.npz nosuch/out.npy"},
    ("convert", "checkpoints"): {
        "INPUT": "- nosuch.safetensors out.gguf", "OUTPUT": "- c.safetensors nosuch/out.gguf", "--format": "- c.safetensors out.gguf --format q8_0",
        "--overwrite": "- c2.gguf c2.gguf --format q8_0 --overwrite", "--like": "- c.safetensors out.safetensors --like half.safetensors", "--tensor": "--tensor b*=q8_0",
        "--plan": "- c.safetensors out.gguf --plan plan.json", "--shard-size": "--shard-size 3000", "--system": "- c.safetensors out.gguf --system ggml.q8_0",
        "--importance": "--importance v.npz", "--threads": "--threads 0", "--names-as-they-are": "- hf/c.safetensors out.gguf --format q4_k --names-as-they-are",
        "--to": "- c.safetensors out.safetensors --to mlx:4,64", "--lossless": "--lossless", "--requantize": "--requantize --lossless", "--json": "--json",
    },
    ("inspect", "checkpoints"): {"MODEL": "- nosuch.gguf", "--json": "--json"},
    ("compare", "checkpoints"): {"INPUT": "- nosuch.gguf c.safetensors", "DEVICE": "- c.safetensors nosuch.gguf", "--json": "--json"},
    ("sensitivity", "checkpoints"): {
        "MODEL": "- nosuch.gguf --weights-only", "--json": "--json", "--weights-only": "- c.safetensors --formats q8_0", "--formats": "- c.safetensors --weights-only --formats q8_0",
        "--importance": "--importance v.npz", "--threads": "--threads 0",
    },
    ("search", "checkpoints"): {
        "MODEL": "- nosuch.gguf --budget 1", "--json": "--json", "--budget": "- c.safetensors --budget 1 --formats q4_k,q8_0", "--formats": "- c.safetensors --budget 40000 --formats q4_k",
        "--importance": "--importance v.npz", "--threads": "--threads 0", "--share": "--share nothing*", "--output": "-o out.gguf", "--save-plan": "--save-plan p.json",
        "--overwrite": "- c2.gguf --budget 40000 --formats q4_k,q8_0 -o c2.gguf --overwrite", "--names-as-they-are": "- hf/c.safetensors --budget 40000 --formats q8_0 -o out.gguf --names-as-they-are",
    },
}
# These say themselves which kind of input is given.
SWITCHES = {"compare": ("--decode", "--dot", "--command")}
# An effect is told from the same words without these.
WITHOUT = ("--overwrite", "--names-as-they-are")


def make_inputs(folder):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((32, 256)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "in.npy", x[:4])
    for words in ("convert x.npy y.npy --format mxfp4 --packed p.npz", "vectors --device amd.cdna3.mfma.f32_f16 --out made"):
        run(folder, *words.split())
    (folder / "p2.npz").write_bytes((folder / "p.npz").read_bytes())
    (folder / "case.npz").write_bytes((folder / "made" / "case.npz").read_bytes())
    (folder / "x.hex").write_text("3f800000\n40000000\n")
    (folder / "y.hex").write_text("3f800000\n40000000\n")
    (folder / "codes.hex").write_text("1 " * 32 + "7f\n")
    (folder / "values.hex").write_text("3f000000 " * 32 + "\n")
    tensors = {"a.weight": ("F32", x), "b.weight": ("F32", x[:16] ** 3)}
    hf = {f"model.layers.0.{k}": v for k, v in tensors.items()}
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    (folder / "hf" / "c.safetensors").write_bytes(make.safetensors(hf))
    (folder / "c.safetensors").write_bytes(make.safetensors(tensors))
    (folder / "half.safetensors").write_bytes(make.safetensors({k: ("F16", v[1].astype(np.float16)) for k, v in tensors.items()}))
    run(folder, "convert", "c.safetensors", "c2.gguf", "--format", "f32")
    np.savez(folder / "v.npz", **{"a.weight": rng.lognormal(0, 2, 256).astype(np.float32)})
    (folder / "plan.json").write_text('{"requests": [{"weight": "q8_0"}]}')
    save(folder / "m.onnx", [helper.make_node("MatMul", ["in", "w"], ["out"], name="fc")], {"in": ["n", 256]}, {"out": ["n", 8]}, {"w": x[:8].T.copy()})


def refused(folder, verb, kind, base, name, takes_value):
    """An option of other kinds: status 2, and a sentence that names it."""
    for value in ("1", "x", "60"):
        words = [*base.split(), name, value] if takes_value else [*base.split(), name]
        done = run(folder, verb, *words)
        wanted = re.search(r"is none of ([\w@.-]+)", done.stderr)
        if wanted:
            done = run(folder, verb, *words[:-1], wanted[1].rstrip(",."))
        if "does not read" in done.stderr:
            break
    check(done.returncode == 2 and f"does not read {name}" in done.stderr and " for " in done.stderr, f"qk {verb} {name} for {kind}: exit {done.returncode}: {done.stderr[:200]!r}")


def outcome(folder, verb, words):
    """Exit status, what was printed, and what was written."""
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    done = run(folder, verb, *words)
    written = {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file() and before.get(f) != f.read_bytes()}
    for f in list(folder.rglob("*")):
        if f.is_file() and f not in before:
            f.unlink()
    for f, content in before.items():
        if not f.exists() or f.read_bytes() != content:
            f.write_bytes(content)
    return done.returncode, done.stdout, done.stderr, written


def has_effect(folder, verb, kind, base, name):
    words = EFFECTS[verb, kind].get(name)
    if words is None:
        return check(False, f"qk {verb} {name} is read for {kind}, and no line of EFFECTS says what it does")
    words = words.split()
    words = words[1:] if words[0] == "-" else [*base.split(), *words]
    plain = [w for w in words if w != name] if name in WITHOUT else base.split()
    check(outcome(folder, verb, words) != outcome(folder, verb, plain), f"qk {verb} {' '.join(words)} does what the same does without {name}")


@pytest.fixture
def folder(folder):
    make_inputs(folder)
    return folder


def test_every_option_of_every_verb(folder):
    verbs = re.findall(r"^  ([a-z]+) {2,}", run(folder, "--help").stdout, re.M)
    for verb in verbs:
        options = options_of(verb)
        check(len(options) > 0 or verb == "completion", f"qk {verb} --help lists no options")
        named = {k for _, _, kinds in options for k in kinds}
        bases = BASES.get(verb, {})
        check(named <= set(bases), f"qk {verb} --help names kinds that this test does not know: {named - set(bases)}")
        for kind, base in bases.items():
            for name, takes_value, kinds in options:
                if kinds and kind not in kinds:
                    if name.startswith("--") and name not in SWITCHES.get(verb, ()):
                        refused(folder, verb, kind, base, name, takes_value)
                elif (verb, kind) in EFFECTS:
                    has_effect(folder, verb, kind, base, name)


def test_models_alone_and_missing_files(folder):
    for verb in MODELS_ALONE:
        done = run(folder, verb, "c2.gguf", *(["x"] if verb == "explain" else []), *(["--inputs", "x.npy"] if verb not in ("quantize", "explain") else []), *(["-o", "out"] if verb in ("gradient", "finetune") else []))
        if "there is no verb" not in done.stderr:
            check(done.returncode == 2 and "checkpoint" in done.stderr and "models" in done.stderr, f"qk {verb} of a checkpoint: exit {done.returncode}: {done.stderr!r}")
    for file in ("m.onnx", "x.npy", "p.npz"):
        done = run(folder, "lint", file)
        check(done.returncode == 2 and "qk lint is for checkpoints" in done.stderr, f"qk lint {file}: exit {done.returncode}: {done.stderr!r}")
    # A file that an option names is opened, or missing is an error.
    for words in ("c.safetensors out.gguf --format q4_k --importance nosuch.npz", "c.safetensors out.gguf --plan nosuch.json", "c.safetensors out.gguf --like nosuch.gguf"):
        done = run(folder, "convert", *words.split())
        check(done.returncode == 2 and "nosuch" in done.stderr and not (folder / "out.gguf").exists(), f"{words}: exit {done.returncode}: {done.stderr!r}")
    done = run(folder, "formats", "--devices", "--codes")
    check(done.returncode == 2 and "--codes" in done.stderr, f"formats --devices --codes: {done.stderr!r}")


if __name__ == "__main__":
    evidence.main()
