#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that are none, or become others: pipes and devices as inputs, files cut short while they are read, disks that are full, links in a
circle, standard output that takes nothing. Each command ends soon, by itself, with one sentence and without half of its outputs."""
import json
import os
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import command
from evidence.graphs import model as model_of_nodes

import numpy as np
import onnx
from onnx import helper

random = np.random.default_rng(0)


def qk(*words, size=None, memory=2 << 30, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **more):
    """Runs the command, whatever its status, under a limit of memory and, if given, of the size of a file."""

    def limits():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return evidence.run(*words, capture_output=False, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=60, preexec_fn=limits, **more)


def refused(sentence, done, *absent):
    assert done.returncode == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, (sentence, done)
    for file in absent:
        assert not os.path.lexists(file), (file, done)


def checkpoint(file, tensors):
    head, data = {}, b""
    for name, a in tensors.items():
        a = a.astype(np.float32)
        head[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(head).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


def network(file, rows=16, external=None):
    model = model_of_nodes([helper.make_node("MatMul", ["x", "w"], ["y"], name="a")], {"x": ["n", 16]}, {"y": ["n", rows]}, {"w": random.standard_normal((16, rows)).astype(np.float32)})
    onnx.save_model(model, file, save_as_external_data=external is not None, location=external, size_threshold=0)
    return file


def test_pipes_and_devices(folder):
    """Every verb refuses a pipe and a device wherever it reads a file, at once."""
    model, x, y = network(folder / "m.onnx"), folder / "x.npy", folder / "y.npz"
    np.save(x, random.standard_normal((4, 16)).astype(np.float32))
    scales = folder / "s.npy"
    np.save(scales, np.ones(4, np.float32))
    float_file = checkpoint(folder / "f.safetensors", {"w": random.standard_normal((32, 256))})
    for ending in ("", ".onnx", ".npy", ".npz", ".pb", ".png", ".json", ".safetensors", ".gguf", ".index.json", ".hex"):
        os.mkfifo(folder / f"pipe{ending}")
        os.symlink("/dev/zero", folder / f"zero{ending}")
    out = folder / "out"
    quantize = ["quantize", model, "-o", out, "--activation", "int8", "--weight", "int8"]
    search = ["search", model, "--inputs", x, "--target-l2", "1"]
    convert = ["convert", x, folder / "out.npy", "--format"]
    at = "{}"
    commands = [
        ["inspect", at], ["inspect", at + ".onnx"], ["inspect", at + ".safetensors"], ["inspect", at + ".gguf"], ["inspect", at + ".index.json"],
        ["quantize", at, "-o", out, "--activation", "bf16", "--weight", "bf16"], [*quantize, "--calibration", at + ".npy"], [*quantize, "--calibration", at + ".json"],
        [*quantize, "--calibration", x, "--plan", at + ".json"], [*quantize, "--calibration", x, "--target", at + ".json"],
        ["evaluate", at + ".onnx", "--inputs", x], *(["evaluate", model, "--inputs", at + e] for e in (".npy", ".npz", ".pb", ".png")),
        ["evaluate", model, "--inputs", x, "--labels", at + ".npy"],
        ["calibrate", model, "--inputs", at + ".npy", "-o", out], [*search, "--cache", at], [*search, "--latency-table", at + ".json"],
        ["sensitivity", at, "--inputs", x], ["diff", model, "--against", at + ".onnx", "--inputs", x], ["diff", at + ".onnx", "--against", model, "--inputs", x],
        ["gradient", model, "--inputs", x, "--vector", at + ".npy", "-o", out],
        ["convert", at + ".npy", out, "--format", "int8"], ["convert", at + ".npz", out], [*convert, "int8", "--scales", at + ".npy", "--scale-axis", "0"],
        [*convert, "int8", "--scales", scales, "--zero-points", at + ".npy", "--scale-axis", "0"], [*convert[:3], "--system", "ggml.q4_K", "--importance", at + ".npy"],
        ["convert", at + ".safetensors", folder / "out.gguf"], ["convert", float_file, folder / "out.gguf", "--plan", at + ".json"],
        ["convert", float_file, folder / "out.safetensors", "--like", at + ".safetensors"], ["lint", at + ".gguf"], ["compare", float_file, at + ".safetensors"],
        ["search", float_file, "--budget", "1000", "--formats", "q8_0", "--importance", at + ".npz"],
        ["compare", at + ".npy", x, "--format", "int8"], ["compare", x, at + ".npy", "--format", "int8"], ["compare", at + ".hex", x, "--format", "int8"],
        ["ver", "fp8_e4m3fn", "--file", at], ["cover", "fp8_e4m3fn", at], ["ver", "fp8_e4m3fn", "--file", x, "--results", at], ["dot", "--device", "nvidia.volta.mma.m8n8k4.f32.f16.f16.f32", "--case", at + ".npz"],
    ]
    for kind, sentence in (("pipe", "it is a pipe, not a regular file"), ("zero", "it is a device, not a regular file")):
        for command in commands:
            words = [str(w).replace("{}", str(folder / kind)) for w in command]
            done = qk(*words, memory=1 << 30)
            told = "it is no regular file" if "--cache" in command else sentence
            assert done.returncode == 2 and kind in done.stderr and told in done.stderr, (words, done)
            assert not os.path.lexists(out), words
    # What a folder or another file leads to.
    for kind in ("pipe", "zero"):
        for ending in (".npy", ".png"):
            inner = folder / f"inner-{kind}{ending}"
            inner.mkdir()
            os.symlink(folder / (kind + ending), inner / f"x{ending}")
            refused("not a regular file", qk("evaluate", model, "--inputs", inner))
        inner = folder / f"answers-{kind}"
        inner.mkdir()
        os.symlink(folder / kind, inner / "y.npy")
        refused("not a regular file", qk("evaluate", model, "--inputs", x, "--compare", inner))
        beside = folder / f"model-{kind}"
        beside.mkdir()
        checkpoint(beside / "m.safetensors", {"w": random.standard_normal((32, 256))})
        os.symlink(folder / kind, beside / "config.json")
        assert qk("inspect", beside / "m.safetensors").returncode in (0, 2)
        (beside / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"v": "v.safetensors"}}))
        os.symlink(folder / kind, beside / "v.safetensors")
        refused("v.safetensors", qk("inspect", beside / "model.safetensors.index.json"))
        model_of = network(beside / "m.onnx", external="w.data")
        os.remove(beside / "w.data")
        os.symlink(folder / kind, beside / "w.data")
        refused("w.data", qk("evaluate", model_of, "--inputs", x))
    with open("/dev/zero", "rb") as endless:
        refused("more than 64 MB", qk("ver", "fp8_e4m3fn", memory=1 << 30, stdin=endless))


def test_cut_short(folder):
    """Files that another process cuts short: a sentence or, where the verb was done before, its result; no signal, no part."""
    big, twin, model = folder / "big.safetensors", folder / "twin.safetensors", folder / "big.onnx"
    values = random.standard_normal((4096, 1024)).astype(np.float32)
    checkpoint(twin, {"w": values})
    whole = twin.read_bytes()
    network(model, rows=1 << 16)
    whole_model = model.read_bytes()
    np.save(folder / "x.npy", random.standard_normal((4, 16)).astype(np.float32))
    said = 0
    for words in (["convert", big, folder / "o.gguf", "-f", "q4_0"], ["convert", big, folder / "o.npz"], ["convert", big, folder / "o.safetensors"], ["lint", big],
                    ["compare", twin, big], ["sensitivity", big, "--formats", "q4_0,q8_0"], ["inspect", big], ["inspect", model],
                    ["quantize", model, "-o", folder / "o.onnx", "--activation", "bf16", "--weight", "int8"], ["evaluate", model, "--inputs", folder / "x.npy"]):
        for wait in (0.002, 0.01, 0.03):
            big.write_bytes(whole)
            model.write_bytes(whole_model)
            run = subprocess.Popen([command(), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(wait)
            os.truncate(big, 5000)
            os.truncate(model, 5000)
            error = run.communicate(timeout=60)[1]
            assert run.returncode in (0, 1, 2), (words, run.returncode, error)
            assert run.returncode != 2 or error.count("qk: ") == 1, (words, error)
            said += "it was changed while it was in use" in error
            assert not [n for n in os.listdir(folder) if n.endswith(".part")], words
            for name in [n for n in os.listdir(folder) if n.startswith("o.")]:
                assert run.returncode == 0, (words, name)
                os.remove(folder / name)
    assert said > 0


def test_full_disks(folder):
    """Several outputs, one of which finds no room: none of them is there, under no name."""
    model = network(folder / "m.onnx", rows=8192)
    x = folder / "x.npy"
    np.save(x, random.standard_normal((64, 16)).astype(np.float32))
    source = checkpoint(folder / "f.safetensors", {f"w{k}": random.standard_normal((16 << k, 256)) for k in range(5)})
    commands = [
        ["convert", source, "{}/s.gguf", "--shard-size", "20KB"], ["convert", source, "{}/s.safetensors", "--shard-size", "20KB"], ["convert", source, "{}/s.npz"],
        ["convert", source, "{}/s.gguf", "-f", "q8_0", "--shard-size", "20KB"], ["search", source, "--budget", "300000", "--formats", "q8_0", "-o", "{}/s.gguf", "--save-plan", "{}/p.json"],
        ["quantize", model, "-o", "{}/q.onnx", "--activation", "int8", "--weight", "int8", "--calibration", x, "--save-plan", "{}/p.json", "--report", "{}/r.html"],
        ["evaluate", model, "--inputs", x, "--output-dir", "{}/out"], ["evaluate", model, "--inputs", x, "--dump", "{}/dump"],
        ["convert", x, "{}/y.npy", "--format", "int8", "--packed", "{}/p.npz"],
    ]
    for number, command in enumerate(commands):
        failed = 0
        for size in (0, 500, 40_000, 70_000, 10_000_000):
            inner = folder / f"disk-{number}-{size}"
            inner.mkdir()
            done = qk(*(str(w).replace("{}", str(inner)) for w in command), size=size)
            if done.returncode == 0:
                assert os.listdir(inner), (command, size)
            else:
                assert done.returncode == 2 and not os.listdir(inner), (command, size, done, os.listdir(inner))
                failed += 1
        assert 0 < failed < 5, command
    # One of two outputs cannot be put in folder at the end.
    done = qk("search", source, "--budget", "300000", "--formats", "q8_0", "-o", folder / "s.gguf", "--save-plan", "/dev/full")
    refused("/dev/full", done, folder / "s.gguf")
    (folder / "s.gguf").write_text("what stood there before")
    done = qk("search", source, "--budget", "300000", "--formats", "q8_0", "-o", folder / "s.gguf", "--save-plan", "/dev/full")
    assert done.returncode == 2 and (folder / "s.gguf").read_text() == "what stood there before", done


def test_links(folder):
    """A link is written where it leads; one in a circle leads nowhere, and stays."""
    model, x = network(folder / "m.onnx"), folder / "x.npy"
    np.save(x, random.standard_normal((4, 16)).astype(np.float32))
    source = checkpoint(folder / "f.safetensors", {"w": random.standard_normal((32, 256))})
    for ending in ("onnx", "npy", "npz", "gguf", "safetensors", "json", "html"):
        os.symlink(f"self.{ending}", folder / f"self.{ending}")
        os.symlink(f"there.{ending}", folder / f"link.{ending}")
    quantize = ["quantize", model, "--activation", "bf16", "--weight", "bf16"]
    for name in ("self", "link"):
        for command in (["convert", source, folder / f"{name}.gguf"], ["convert", source, folder / f"{name}.npz"], ["convert", source, folder / f"{name}.safetensors"],
                        ["convert", x, folder / f"{name}.npy", "--format", "int8", "--scale", "1"], [*quantize, "-o", folder / f"{name}.onnx"],
                        [*quantize, "-o", folder / "o.onnx", "--save-plan", folder / f"{name}.json"],
                        ["search", source, "--budget", "100000", "--formats", "q8_0", "-o", folder / f"{name}.gguf", "--overwrite"]):
            done = qk(*command)
            if name == "self":
                refused("its links lead in a circle", done, folder / "o.onnx")
            else:
                assert done.returncode == 0, done
            assert all(os.path.islink(w) for w in command if isinstance(w, Path) and w.stem == name), command
    assert (folder / "there.gguf").stat().st_size > 1000 and (folder / "there.onnx").stat().st_size > 100


def test_standard_output(folder):
    """Status 2 says that nothing is written, and 3 that the files are, but not all that was for standard output."""
    model = network(folder / "m.onnx")
    out = folder / "o.onnx"
    quantize = ["quantize", model, "-o", out, "--activation", "bf16", "--weight", "bf16"]
    for words in ([], ["--json"]):
        closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", command(), *map(str, quantize), *words], stderr=subprocess.PIPE, text=True)
        refused("standard output is closed", closed, out)
        with open("/dev/full", "w") as full:
            done = qk(*quantize, *words, stdout=full)
        assert done.returncode == 3 and "the files that were asked for are written" in done.stderr, done
        onnx.checker.check_model(str(out))
        os.remove(out)
        with open("/dev/full", "w") as full:
            refused("cannot write to standard output", qk("inspect", model, *words, stdout=full))
    with open("/dev/full", "w") as full:
        done = qk(*quantize[:2], "-o", "-", *quantize[4:], "--save-plan", folder / "p.json", stdout=full)
        assert done.returncode == 3 and (folder / "p.json").exists(), done
        done = qk(*quantize[:2], "-o", "-", *quantize[4:], stdout=full)  # what it prints for people is on standard error
        assert done.returncode == 2 and done.stderr.endswith("qk: cannot write standard output: No space left on device\n"), done
    # Whatever is closed, no file that is opened takes its number, and with it what is printed.
    for streams in ("<&-", "2>&-", "<&- 2>&-"):
        done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", command(), *map(str, quantize)], stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0, (streams, done)
        onnx.checker.check_model(str(out))
    assert "3 standard output did not take everything" in qk("--help").stdout


if __name__ == "__main__":
    evidence.main()
