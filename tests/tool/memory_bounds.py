# SPDX-License-Identifier: Apache-2.0
"""Holds every verb of the command to its bound on memory (docs/reference/malformed_input.md) on small files that were made to take much.

Each run gets the bound as a limit of the process's address space, and must end with a result or one sentence that is not "out of memory".
A bound is what the same command takes of nothing in particular, 256 MB, and a number for each byte of the files that it reads.
"""
import io
import json
import os
import re
import resource
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, command, qk
from evidence.graphs import save, value

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SLACK, FACTOR, ARCHIVE = 256 << 20, 1000, 4 * 1032  # deflate makes at most 1032 bytes of one; a sample is held as read, joined and running
ENVIRONMENT = {**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}


def start_of():
    """Returns the address space that the command takes of itself."""
    with subprocess.Popen([command(), "ver", "int8", "--decode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as waits:
        time.sleep(0.5)
        size = int(re.search(r"VmPeak:\s+(\d+)", open(f"/proc/{waits.pid}/status").read())[1]) << 10
        waits.stdin.close()
        waits.stdout.read()
    return size


def run(words, limit, stdin=b""):
    """Returns the exit status, the message and the most memory of a run."""
    def bounded():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(at("stdin"), "wb") as f:
        f.write(stdin)
    with open(at("out"), "wb") as out, open(at("err"), "wb") as err, open(at("stdin"), "rb") as given:
        process = subprocess.Popen([command(), *map(str, words)], stdin=given, stdout=out, stderr=err, preexec_fn=bounded, env=ENVIRONMENT)
        _, status, used = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), open(at("err"), errors="replace").read(), used.ru_maxrss << 10


# --- models ---

def model(name, nodes, functions=(), initializers=(), inputs=None, outputs=None, imports=(), **more):
    return save(at(name), nodes, inputs or {"x": ["n", 4]}, outputs or {"y": ["n", 3]}, initializers, functions=functions, domains=["my", *imports], **more)


W = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
LAST = helper.make_node("MatMul", ["a", "w"], ["y"], name="layer")
node = helper.make_node


def function(name, nodes, inputs=("X",), attributes=()):
    return helper.make_function("my", name, list(inputs), ["Y"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)], list(attributes))


def chain(depth, name=lambda i: f"c{i}", last="Relu"):
    """Functions that call each other, one node each."""
    body = [function(f"F{i}", [node(f"F{i + 1}", ["X"], ["Y"], name=name(i), domain="my")]) for i in range(depth)]
    return [*body, function(f"F{depth}", [node(last, ["X"], ["Y"])])]


def fan(levels, calls, last="Relu"):
    def body(i):
        inner = ({"op_type": last, "domain": ""} if i == levels else {"op_type": f"F{i + 1}", "domain": "my"})
        between = ["X", *(f"t{k}" for k in range(calls - 1)), "Y"]
        return [node(inner["op_type"], [a], [b], domain=inner["domain"]) for a, b in zip(between, between[1:])]
    return [function(f"F{i}", body(i)) for i in range(levels + 1)]


CALL = [node("F0", ["x"], ["a"], name="call", domain="my"), LAST]


def nested(depth):
    """An If in an If, ... with one Relu inside."""
    def branch(d, which):
        inner = node("Relu", ["x"], [f"r{d}{which}"]) if d == 0 else node("If", ["yes"], [f"r{d}{which}"], then_branch=branch(d - 1, "t"), else_branch=leaf(d, which))
        return helper.make_graph([inner], f"b{d}", [], [value(f"r{d}{which}", "n", 4)])
    def leaf(d, which):
        return helper.make_graph([node("Relu", ["x"], [f"l{d}{which}"])], "l", [], [value(f"l{d}{which}", "n", 4)])
    return node("If", ["yes"], ["a"], then_branch=branch(depth, "t"), else_branch=leaf(depth, "e"))


def loops(depth):
    """Loops of 8 turns in each other, around a layer: opened, it is many layers."""
    turns, yes = (numpy_helper.from_array(np.array(v), n) for v, n in ((8, "turns"), (True, "yes")))
    def body(d):
        inner = node("MatMul", [f"s{d}", "square"], [f"o{d}"]) if d == 0 else node("Loop", ["turns", "yes", f"s{d}"], [f"o{d}"], body=body(d - 1))
        return helper.make_graph([node("Identity", [f"c{d}"], [f"k{d}"]), inner], f"b{d}", [value(f"i{d}", kind=TensorProto.INT64), value(f"c{d}", kind=TensorProto.BOOL), value(f"s{d}", "n", 4)],
                                 [value(f"k{d}", kind=TensorProto.BOOL), value(f"o{d}", "n", 4)])
    return node("Loop", ["turns", "yes", "x"], ["a"], body=body(depth)), [turns, yes, numpy_helper.from_array(np.eye(4, dtype=np.float32), "square")]


def models():
    """Names and files, small ones, whose memory must not grow faster than they do."""
    relus = lambda n, w=4: [node("Relu", ["x" if i == 0 else f"t{i}"], ["a" if i == n - 1 else f"t{i + 1}"]) for i in range(n)]
    yield "functions 60 deep", model("chain.onnx", CALL, chain(60), [W])
    yield "functions 60 deep with long names", model("long_chain.onnx", CALL, chain(60, lambda i: f"{i}" + "n" * 2000), [W])
    yield "functions 60 deep around a layer", model("layer_chain.onnx", [node("F0", ["x", "sq"], ["a"], name="call", domain="my"), LAST],
        [function(f"F{i}", [node(f"F{i + 1}" if i < 60 else "MatMul", ["X", "S"], ["Y"], name=f"c{i}", domain="my" if i < 60 else "")], ("X", "S")) for i in range(61)],
        [W, numpy_helper.from_array(np.eye(4, dtype=np.float32), "sq")])
    yield "functions that fan out to 10^5 nodes", model("fan.onnx", CALL, fan(4, 10), [W])
    yield "functions that fan out to 11,110 nodes", model("small_fan.onnx", CALL, fan(3, 10), [W])
    constants = [node("Constant", [], [f"k{i}"]) for i in range(300)]
    for c in constants:
        a = c.attribute.add()
        a.name, a.ref_attr_name, a.type = "value", "big", 4
    big = numpy_helper.from_array(np.zeros(10000, np.float32), "big")
    yield "an attribute of 40 kB that 300 nodes of a function refer to", model("attribute.onnx", [node("F0", ["x"], ["a"], name="call", domain="my", big=big), LAST], [function("F0", [*constants, node("Relu", ["X"], ["Y"])], attributes=["big"])], [W])
    yield "3,000 nodes in a row", model("row.onnx", [*relus(3000), LAST], (), [W])
    yield "20,000 inputs that nothing reads", model("inputs.onnx", [*relus(2), LAST], (), [W], inputs=[value("x", "n", 4), *(value(f"i{k}", "n", 1) for k in range(20000))])
    yield "20,000 initializers", model("initializers.onnx", [*relus(2), LAST], (), [W, *(numpy_helper.from_array(np.float32(k), f"i{k}") for k in range(20000))])
    yield "20,000 outputs", model("outputs.onnx", [*relus(2), LAST], (), [W], outputs=[value("y", "n", 3), *(value("a", "n", 4) for _ in range(20000))])
    yield "20,000 entries of value_info", model("infos.onnx", [*relus(2), LAST], (), [W], value_info=[value(f"i{k}", "n", 4) for k in range(20000)])
    yield "20,000 imports", model("imports.onnx", [*relus(2), LAST], (), [W], imports=[f"d{k}" for k in range(20000)])
    yield "2,000 functions that nobody calls", model("functions.onnx", [*relus(2), LAST], chain(0) + [function(f"G{i}", [node("Relu", ["X"], ["Y"])]) for i in range(2000)], [W])
    yield "20,000 attributes", model("attributes.onnx", [node("Relu", ["x"], ["a"], **{f"k{k}": k for k in range(20000)}), LAST], (), [W])
    yield "names of 100 kB", model("names.onnx", [node("Relu", ["x"], ["a"], name="r" * 100000), node("MatMul", ["a", "w"], ["t" * 100000], name="m" * 100000),
                                                 node("Relu", ["t" * 100000], ["y"])], (), [W])
    yield "an input of a name of 100 kB that is missing", model("missing.onnx", [node("Relu", ["x" * 100000], ["a"], name="r" * 100000), LAST], (), [W])
    yield "an If in an If, 20 deep", model("ifs.onnx", [nested(20), LAST], (), [W, numpy_helper.from_array(np.array(True), "yes")])
    loop, own = loops(1)
    yield "Loops in Loops around a layer", model("loops.onnx", [loop, LAST], (), [W, *own])
    yield "an input of 10^9 values, declared", model("declared.onnx", [*relus(2), LAST], (), [W], inputs=[value("x", "n", 4), value("z", 1000, 1000000)])


def verbs_of_models(file, data, out):
    """One run or more of each verb that reads a model."""
    given, formats = ["--inputs", data, "--threads", "1"], ["--activation", "int8", "--weight", "int8"]
    yield ["inspect", file, "--tensors", "--json"]
    yield ["evaluate", file, *given, *formats, "--calibration", data]
    yield ["calibrate", file, *given, "-o", out + ".json", "--overwrite"]
    yield ["quantize", file, "-o", out + ".onnx", *formats, "--calibration", data, "--threads", "1", "--overwrite"]
    yield ["explain", file, "w", *formats, "--calibration", data, "--threads", "1"]
    yield ["diff", file, "--against", "missing", *given]
    yield ["gradient", file, *given, "--vector", at("v.npy"), "-o", out + ".npz", "--overwrite"]
    yield ["sensitivity", file, *given, "--narrow", "int8/int8"]
    yield ["search", file, *given, "--wide", "int16/int8", "--narrow", "int8/int8", "--target-sqnr", "1"]
    yield ["finetune", file, *given, *formats, "--epochs", "1", "-o", out + "_f.onnx", "--overwrite"]


# --- checkpoints, arrays, text ---

def safetensors(name, entries, data=b"", metadata=None):
    header = json.dumps({**({"__metadata__": metadata} if metadata else {}), **entries}).encode()
    with open(at(name), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)
    return at(name)


def gguf(name, infos, keys=(), data=b""):
    text = lambda s: struct.pack("<Q", len(s)) + s
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(text(k) + v for k, v in keys)
    head += b"".join(text(n) + struct.pack("<IQIQ", 1, 0 + 8, 0, offset) for n, offset in infos)
    with open(at(name), "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)
    return at(name)


def checkpoints():
    shape = {"dtype": "F32", "shape": [1, 0], "data_offsets": [0, 0]}
    yield "20,000 tensors in a header", safetensors("many.safetensors", {f"t{k}.weight": shape for k in range(20000)})
    yield "a header of brackets", safetensors("deep.safetensors", {}, b"") and broken("deep.safetensors", b'{"a":' * 20000)
    yield "names of 100 kB in a header", safetensors("names.safetensors", {"n" * 100000 + str(k): shape for k in range(3)})
    yield "metadata of 200 kB", safetensors("metadata.safetensors", {"t.weight": shape}, metadata={f"k{k}": "v" * 10 for k in range(10000)})
    yield "shapes of 64 dimensions", safetensors("shapes.safetensors", {f"t{k}": {"dtype": "F32", "shape": [0] + [1 << 20] * 63, "data_offsets": [0, 0]} for k in range(1000)})
    yield "20,000 tensors of GGUF", gguf("many.gguf", [(b"t%d" % k, 32 * k) for k in range(20000)], data=b"\0" * 32 * 20000)
    yield "a GGUF that claims 2^40 keys", broken("claims.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 1 << 40))
    yield "an array of 2^50 strings in GGUF", gguf("array.gguf", [], [(b"k", struct.pack("<IIQ", 9, 8, 1 << 50))])


def broken(name, content):
    header = struct.pack("<Q", len(content)) if name.endswith(".safetensors") else b""
    with open(at(name), "wb") as f:
        f.write(header + content)
    return at(name)


def npz(name, entries, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(at(name), "w", method) as z:
        for entry, content in entries.items():
            z.writestr(entry, content)
    return at(name)


def npy(shape, kind="<f4", data=b""):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


def texts():
    """Files of JSON, with the factor of the tree that is made of them."""
    yield "20,000 brackets", "[" * 20000
    yield "20,000 brackets, closed", "[" * 20000 + "]" * 20000
    yield "objects 40,000 deep", '{"a":' * 40000
    yield "objects below default", '{"default":' + '{"a":' * 20000
    yield "a key of 1 MB", '{"%s": 1}' % ("k" * 1000000)
    yield "a key of 100 kB with 5,000 strings", '{"%s": [%s]}' % ("k" * 100000, ",".join(['"s"'] * 5000))
    yield "requests of a key of 100 kB", '{"requests": [{"%s": "int8"}]}' % ("k" * 100000)
    yield "a name of 1 MB", '{"requests": [{"tensor": "%s", "format": "int8"}]}' % ("t" * 1000000)
    yield "a number beyond double", '{"requests": [{"tensor": "x", "range": [-1e999, 1e999]}]}'
    yield "a number of 100 kB", '{"requests": [{"tensor": "x", "range": [-1%s, 1]}]}' % ("0" * 100000)
    yield "5,000 requests for everything", '{"default": {"activation": "int8", "weight": "int8"}, "requests": [%s]}' % ",".join(['{"op_type": "*", "weight": "int8"}'] * 5000)
    yield "a string of 1 MB", '{"default": {"activation": "%s"}}' % ("i" * 1000000)


def readers_of_json(file, plain, data, out):
    formats = ["--activation", "int8", "--weight", "int8"]
    made = ["-o", out + ".onnx", "--overwrite", "--threads", "1"]
    yield ["quantize", plain, *made, "--plan", file, "--calibration", data]
    yield ["quantize", plain, *made, "--target", file, "--calibration", data]
    yield ["quantize", plain, *made, *formats, "--calibration", file]
    yield ["search", plain, "--inputs", data, "--wide", "int16/int8", "--narrow", "int8/int8", "--target-sqnr", "1", "--threads", "1", "--latency-table", file]
    yield ["search", plain, "--inputs", data, "--wide", "int16/int8", "--narrow", "int8/int8", "--target-sqnr", "1", "--threads", "1", "--cache", file]
    yield ["evaluate", plain, "--inputs", data, "--threads", "1", "--plan", file]
    yield ["convert", at("plain.safetensors"), out + ".gguf", "--plan", file, "--overwrite"]


def test_every_verb_keeps_its_bound():
    base = start_of()
    seen, worst, refused = set(), {}, 0
    given = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    np.savez(at("x.npz"), x=given)
    np.save(at("x.npy"), given)
    np.save(at("v.npy"), np.ones((5, 3), np.float32))
    plain = model("plain.onnx", [node("Relu", ["x"], ["a"]), LAST], (), [W])
    safetensors("plain.safetensors", {"t.weight": {"dtype": "F32", "shape": [2, 32], "data_offsets": [0, 256]}}, b"\0" * 256)

    def hold(what, words, files, factor=FACTOR, stdin=b"", allowed=(0, 1, 2)):
        nonlocal refused
        size = sum(os.path.getsize(f) for f in files) + len(stdin) + sum(len(str(w)) for w in words)
        begun = time.time()
        status, message, used = run(words, base + SLACK + factor * size, stdin)
        seen.add(words[0])
        refused += status == 2
        name = f"{what}: qk {' '.join(str(w)[:30].replace(at(''), '') for w in words[:4])}"
        good = status in allowed and "out of memory" not in message and "bad_alloc" not in message and "json.exception" not in message and "unexpected error" not in message
        short = all(len(line) < 6000 for line in message.splitlines())
        key = words[0]
        worst[key] = max(worst.get(key, (0, "")), (used, what))
        if not good or not short or os.environ.get("QK_SHOW"):
            check(good and short, f"{name}: {status}, {used >> 20} MB of {(SLACK + factor * size) >> 20}, {time.time() - begun:.1f} s {message[-300:]}")

    for number, (what, file) in enumerate(models()):
        all_verbs = list(verbs_of_models(file, at("x.npz"), at("made")))
        for k, words in enumerate(all_verbs):  # two verbs meet every model, each of the others every second one
            if (number + k) % 2 == 0 or words[0] in ("inspect", "quantize"):
                hold(what, words, [file, at("x.npz")])
    for what, file in checkpoints():
        for words in (["lint", file], ["inspect", file], ["convert", file, at("made.npz"), "--overwrite"], ["convert", file, at("made.gguf"), "--format", "f16", "--overwrite"], ["compare", file, file],
                      ["sensitivity", "--weights-only", file, "--formats", "q8_0"]):
            hold(what, words, [file])
    for what, text in texts():
        with open(at("given.json"), "w") as f:
            f.write(text)
        for words in readers_of_json(at("given.json"), plain, at("x.npz"), at("made")):
            hold(what, words, [at("given.json"), plain, at("x.npz")])

    bombs = {"an archive of 64 MB of zeros": npz("bomb.npz", {"x.npy": npy((4, 4194304), data=bytes(64 << 20))}),
             "an archive that claims 2^40 values": npz("claim.npz", {"x.npy": npy((1 << 38, 4))}),
             "an archive of 20,000 entries": npz("entries.npz", {f"e{k}.npy": npy((), data=b"\0\0\0\0") for k in range(20000)}, zipfile.ZIP_STORED),
             "an array that claims 2^40 values": broken("claim.npy", npy((1 << 38, 4))), "an array of 2^40 rows of none": broken("rows.npy", npy((1 << 40, 0)))}
    for what, file in bombs.items():
        for words in (["evaluate", plain, "--inputs", file, "--threads", "1"], ["calibrate", plain, "--inputs", file, "--threads", "1", "-o", at("made.json"), "--overwrite"],
                      ["convert", file, at("made.npy"), "--format", "int8", "--overwrite"], ["compare", file, file, "--format", "int8"], ["dot", "--case", file, "--device", "nvidia.hopper.wgmma.f32.e4m3.e4m3"],
                      ["evaluate", plain, "--inputs", at("x.npy"), "--labels", file, "--threads", "1"]):
            hold(what, words, [file, plain], ARCHIVE)
    np.save(at("labels.npy"), np.zeros(1000000, np.int64))
    for labels in (at("labels.npy"), broken("labels.txt", b"0\n" * 1000000)):
        hold("a million labels", ["evaluate", plain, "--inputs", at("x.npy"), "--labels", labels, "--threads", "1"], [plain, labels])

    for what, line in (("one line of 1 MB", b"0" * 1000000), ("200,000 lines", b"00 00000000\n" * 200000), ("bytes", os.urandom(200000))):
        hold(what, ["ver", "int8", "--decode"], [], stdin=line)
        hold(what, ["compare", broken("words.hex", line), at("x.npy"), "--format", "int8", "--decode"], [at("words.hex")])
    long = "mxfp4" + "," * 100000
    for words in (["formats", long], ["gen", long], ["cover", long], ["emit", long, "--language", "c"], ["vectors", "--format", long, "--out", at("vectors")], ["bench", long], ["completion", long], ["dot", long, long, long, "--device", long],
                  [long], ["formats", "--" + long], ["quantize", long, "-o", at("made.onnx"), "--weight", long], ["evaluate", plain, "--inputs", long], ["search", plain, "--inputs", at("x.npy"), "--narrow", long]):
        hold("a word of 100 kB", words, [])
    hold("nothing", ["gen", "int4"], [], allowed=(0,))
    hold("nothing", ["completion", "bash"], [], allowed=(0,))

    verbs = set(re.findall(r"^  ([a-z]+) ", re.search(r"Verbs:\n(.*?)\n\n", qk("--help").stdout, re.S)[1], re.M))
    check(verbs <= seen, f"every verb was held to its bound (not {sorted(verbs - seen)})")
    check(refused > 0, "sentences were among the answers")
    for verb, (used, what) in sorted(worst.items()):
        print(f"{verb[:20]}: at most {used >> 20} MB resident ({what})")


if __name__ == "__main__":
    evidence.main()
