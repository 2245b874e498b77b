#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that are none, or become others: pipes and devices as inputs, files cut short while they are read, disks that are full, links in a
circle, standard output that takes nothing. Each command ends soon, by itself, with one sentence and without half of its outputs.

    python3 tests/tool/odd_files.py build/release/qk
"""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

QK = os.path.abspath(sys.argv[1])
random = np.random.default_rng(0)


def qk(*words, size=None, memory=2 << 30, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **more):
    """Runs the command under a limit of memory and, if given, of the size of a file."""

    def limits():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run([QK, *map(str, words)], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, preexec_fn=limits, **more)


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
    w = numpy_helper.from_array(random.standard_normal((16, rows)).astype(np.float32), "w")
    value = lambda name, k: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", k])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="a")], "g", [value("x", 16)], [value("y", rows)], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, file, save_as_external_data=external is not None, location=external, size_threshold=0)
    return file


def pipes_and_devices(place):
    """Every verb refuses a pipe and a device wherever it reads a file, at once."""
    model, x, y = network(place / "m.onnx"), place / "x.npy", place / "y.npz"
    np.save(x, random.standard_normal((4, 16)).astype(np.float32))
    scales = place / "s.npy"
    np.save(scales, np.ones(4, np.float32))
    float_file = checkpoint(place / "f.safetensors", {"w": random.standard_normal((32, 256))})
    for ending in ("", ".onnx", ".npy", ".npz", ".pb", ".png", ".json", ".safetensors", ".gguf", ".index.json", ".hex"):
        os.mkfifo(place / f"pipe{ending}")
        os.symlink("/dev/zero", place / f"zero{ending}")
    out = place / "out"
    quantize = ["quantize", model, "-o", out, "--activation", "int8", "--weight", "int8"]
    search = ["search", model, "--inputs", x, "--target-l2", "1"]
    convert = ["convert", x, place / "out.npy", "--format"]
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
        ["convert", at + ".safetensors", place / "out.gguf"], ["convert", float_file, place / "out.gguf", "--plan", at + ".json"],
        ["convert", float_file, place / "out.safetensors", "--like", at + ".safetensors"], ["lint", at + ".gguf"], ["compare", float_file, at + ".safetensors"],
        ["search", float_file, "--budget", "1000", "--formats", "q8_0", "--importance", at + ".npz"],
        ["compare", at + ".npy", x, "--format", "int8"], ["compare", x, at + ".npy", "--format", "int8"], ["compare", at + ".hex", x, "--format", "int8"],
        ["ver", "fp8_e4m3fn", "--file", at], ["ver", "fp8_e4m3fn", "--file", x, "--results", at], ["dot", "--device", "nvidia.volta.mma.m8n8k4.f32.f16.f16.f32", "--case", at + ".npz"],
    ]
    for kind, sentence in (("pipe", "it is a pipe, not a regular file"), ("zero", "it is a device, not a regular file")):
        for command in commands:
            words = [str(w).replace("{}", str(place / kind)) for w in command]
            done = qk(*words, memory=1 << 30)
            told = "it is no regular file" if "--cache" in command else sentence
            assert done.returncode == 2 and kind in done.stderr and told in done.stderr, (words, done)
            assert not os.path.lexists(out), words
    # What a folder or another file leads to.
    for kind in ("pipe", "zero"):
        for ending in (".npy", ".png"):
            folder = place / f"folder-{kind}{ending}"
            folder.mkdir()
            os.symlink(place / (kind + ending), folder / f"x{ending}")
            refused("not a regular file", qk("evaluate", model, "--inputs", folder))
        folder = place / f"answers-{kind}"
        folder.mkdir()
        os.symlink(place / kind, folder / "y.npy")
        refused("not a regular file", qk("evaluate", model, "--inputs", x, "--compare", folder))
        beside = place / f"model-{kind}"
        beside.mkdir()
        checkpoint(beside / "m.safetensors", {"w": random.standard_normal((32, 256))})
        os.symlink(place / kind, beside / "config.json")
        assert qk("inspect", beside / "m.safetensors").returncode in (0, 2)
        (beside / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"v": "v.safetensors"}}))
        os.symlink(place / kind, beside / "v.safetensors")
        refused("v.safetensors", qk("inspect", beside / "model.safetensors.index.json"))
        model_of = network(beside / "m.onnx", external="w.data")
        os.remove(beside / "w.data")
        os.symlink(place / kind, beside / "w.data")
        refused("w.data", qk("evaluate", model_of, "--inputs", x))
    with open("/dev/zero", "rb") as endless:
        refused("more than 64 MB", qk("ver", "fp8_e4m3fn", memory=1 << 30, stdin=endless))


def cut_short(place):
    """Files that another process cuts short: a sentence or, where the verb was done before, its result; no signal, no part."""
    big, twin, model = place / "big.safetensors", place / "twin.safetensors", place / "big.onnx"
    values = random.standard_normal((4096, 1024)).astype(np.float32)
    checkpoint(twin, {"w": values})
    whole = twin.read_bytes()
    network(model, rows=1 << 16)
    whole_model = model.read_bytes()
    np.save(place / "x.npy", random.standard_normal((4, 16)).astype(np.float32))
    said = 0
    for command in (["convert", big, place / "o.gguf", "-f", "q4_0"], ["convert", big, place / "o.npz"], ["convert", big, place / "o.safetensors"], ["lint", big],
                    ["compare", twin, big], ["sensitivity", big, "--formats", "q4_0,q8_0"], ["inspect", big], ["inspect", model],
                    ["quantize", model, "-o", place / "o.onnx", "--activation", "bf16", "--weight", "int8"], ["evaluate", model, "--inputs", place / "x.npy"]):
        for wait in (0.002, 0.01, 0.03):
            big.write_bytes(whole)
            model.write_bytes(whole_model)
            run = subprocess.Popen([QK, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(wait)
            os.truncate(big, 5000)
            os.truncate(model, 5000)
            error = run.communicate(timeout=60)[1]
            assert run.returncode in (0, 1, 2), (command, run.returncode, error)
            assert run.returncode != 2 or error.count("qk: ") == 1, (command, error)
            said += "it was changed while it was in use" in error
            assert not [n for n in os.listdir(place) if n.endswith(".part")], command
            for name in [n for n in os.listdir(place) if n.startswith("o.")]:
                assert run.returncode == 0, (command, name)
                os.remove(place / name)
    assert said > 0


def full_disks(place):
    """Several outputs, one of which finds no room: none of them is there, under no name."""
    model = network(place / "m.onnx", rows=8192)
    x = place / "x.npy"
    np.save(x, random.standard_normal((64, 16)).astype(np.float32))
    source = checkpoint(place / "f.safetensors", {f"w{k}": random.standard_normal((16 << k, 256)) for k in range(5)})
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
            folder = place / f"disk-{number}-{size}"
            folder.mkdir()
            done = qk(*(str(w).replace("{}", str(folder)) for w in command), size=size)
            if done.returncode == 0:
                assert os.listdir(folder), (command, size)
            else:
                assert done.returncode == 2 and not os.listdir(folder), (command, size, done, os.listdir(folder))
                failed += 1
        assert 0 < failed < 5, command
    # One of two outputs cannot be put in place at the end.
    done = qk("search", source, "--budget", "300000", "--formats", "q8_0", "-o", place / "s.gguf", "--save-plan", "/dev/full")
    refused("/dev/full", done, place / "s.gguf")
    (place / "s.gguf").write_text("what stood there before")
    done = qk("search", source, "--budget", "300000", "--formats", "q8_0", "-o", place / "s.gguf", "--save-plan", "/dev/full")
    assert done.returncode == 2 and (place / "s.gguf").read_text() == "what stood there before", done


def links(place):
    """A link is written where it leads; one in a circle leads nowhere, and stays."""
    model, x = network(place / "m.onnx"), place / "x.npy"
    np.save(x, random.standard_normal((4, 16)).astype(np.float32))
    source = checkpoint(place / "f.safetensors", {"w": random.standard_normal((32, 256))})
    for ending in ("onnx", "npy", "npz", "gguf", "safetensors", "json", "html"):
        os.symlink(f"self.{ending}", place / f"self.{ending}")
        os.symlink(f"there.{ending}", place / f"link.{ending}")
    quantize = ["quantize", model, "--activation", "bf16", "--weight", "bf16"]
    for name in ("self", "link"):
        for command in (["convert", source, place / f"{name}.gguf"], ["convert", source, place / f"{name}.npz"], ["convert", source, place / f"{name}.safetensors"],
                        ["convert", x, place / f"{name}.npy", "--format", "int8", "--scale", "1"], [*quantize, "-o", place / f"{name}.onnx"],
                        [*quantize, "-o", place / "o.onnx", "--save-plan", place / f"{name}.json"],
                        ["search", source, "--budget", "100000", "--formats", "q8_0", "-o", place / f"{name}.gguf", "--overwrite"]):
            done = qk(*command)
            if name == "self":
                refused("its links lead in a circle", done, place / "o.onnx")
            else:
                assert done.returncode == 0, done
            assert all(os.path.islink(w) for w in command if isinstance(w, Path) and w.stem == name), command
    assert (place / "there.gguf").stat().st_size > 1000 and (place / "there.onnx").stat().st_size > 100


def standard_output(place):
    """Status 2 says that nothing is written, and 3 that the files are, but not all that was for standard output."""
    model = network(place / "m.onnx")
    out = place / "o.onnx"
    quantize = ["quantize", model, "-o", out, "--activation", "bf16", "--weight", "bf16"]
    for words in ([], ["--json"]):
        closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", QK, *map(str, quantize), *words], stderr=subprocess.PIPE, text=True)
        refused("standard output is closed", closed, out)
        with open("/dev/full", "w") as full:
            done = qk(*quantize, *words, stdout=full)
        assert done.returncode == 3 and "the files that were asked for are written" in done.stderr, done
        onnx.checker.check_model(str(out))
        os.remove(out)
        with open("/dev/full", "w") as full:
            refused("cannot write to standard output", qk("inspect", model, *words, stdout=full))
    with open("/dev/full", "w") as full:
        done = qk(*quantize[:2], "-o", "-", *quantize[4:], "--save-plan", place / "p.json", stdout=full)
        assert done.returncode == 3 and (place / "p.json").exists(), done
        done = qk(*quantize[:2], "-o", "-", *quantize[4:], stdout=full)  # what it prints for people is on standard error
        assert done.returncode == 2 and done.stderr.endswith("qk: cannot write standard output: No space left on device\n"), done
    # Whatever is closed, no file that is opened takes its number, and with it what is printed.
    for streams in ("<&-", "2>&-", "<&- 2>&-"):
        done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", QK, *map(str, quantize)], stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0, (streams, done)
        onnx.checker.check_model(str(out))
    assert "3 standard output did not take everything" in qk("--help").stdout


def main():
    for part in (pipes_and_devices, cut_short, full_disks, links, standard_output):
        with tempfile.TemporaryDirectory() as folder:
            part(Path(folder))
    print("odd files: pipes and devices, files cut short, full disks, links, standard output")


main()
