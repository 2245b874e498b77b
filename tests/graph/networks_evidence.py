# SPDX-License-Identifier: Apache-2.0
"""Quantizes networks that make_networks.py exported into every style, and runs the files in onnxruntime, OpenVINO and onnx's reference evaluator.

usage: networks_evidence.py QK FOLDER [--networks A/B] [--formats A/B] [--styles A/B] [--no-reference] [--json OUT.json] [--page OUT.md] [--faults]
Each row is a network, formats and a style: decibels beside `qk evaluate --plan` on the float network in each runtime, for the file in qk, and for what `qk inspect` recovers
from it. A row is wrong where a file does not load in a runtime that its style promises, or departs by more than the format's own rounding explains. --page makes a page from
the rows that --json keeps; --faults plants faults in each network's files and has `qk diff` find them.
"""
import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, run
from evidence.runtimes import in_openvino as fixed_or_open, outputs as in_onnxruntime

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from rows import of, read, table, write  # noqa: E402

evidence.start()
NETWORKS = sys.argv[1]
BLOCKS_IN_NBITS = ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"]
# Formats: the options that ask for them, and whether onnxruntime's CPU has kernels for the types that style qdq writes them in.
FORMATS = {"int8": (["--activation", "int8", "--weight", "int8"], True), "bfp16": (["--activation", "bfp16", "--weight", "bfp16"], True),
           "mxfp8_e4m3, mxfp4": (["--activation", "mxfp8_e4m3", "--weight", "mxfp4"], False), "nvfp4": (["--activation", "nvfp4", "--weight", "nvfp4"], False),
           "int4 weights": (BLOCKS_IN_NBITS, True), "int8, int4": (["--activation", "int8", "--weight", "int4"], True)}
EVERYWHERE = ("onnxruntime, off", "onnxruntime, on", "onnx.reference", "openvino")
MICROSOFT = ("onnxruntime, off", "onnxruntime, on")
# Styles: options, formats that have them, and the runtimes that are promised.
STYLES = {"portable": ([], FORMATS, EVERYWHERE[:3]), "qdq": (["--export", "qdq"], FORMATS, EVERYWHERE[:3]), "portable, inline": (["--inline"], FORMATS, EVERYWHERE),
          "for openvino": (["--target", "openvino"], FORMATS, ("openvino", "onnx.reference")), "qoperator": (["--export", "qoperator"], ("int8",), EVERYWHERE[:3]),
          "qinteger": (["--export", "qinteger"], ("int8",), EVERYWHERE[:3]), "nbits": (["--export", "nbits"], ("int4 weights",), MICROSOFT)}
# The columns of --json.
COLUMNS = {"rows": ("network", "format", "style", "recurrent", "remarks", "quantize", "evaluate", "beside the floats", "qk", *EVERYWHERE, "openvino, open shapes", "recovered", "wrong"),
           "planted": ("network", "fault", "planted", "found", "rule", "wrong")}


def networks():
    """The names of all networks: files NAME.onnx with NAME.npz, or folders NAME with model.onnx and x.npz."""
    return sorted([f[:-5] for f in os.listdir(NETWORKS) if f.endswith(".onnx")] + [f for f in os.listdir(NETWORKS) if os.path.exists(os.path.join(NETWORKS, f, "x.npz"))])


def files_of(network):
    if os.path.isdir(os.path.join(NETWORKS, network)):
        return [os.path.join(NETWORKS, network, f) for f in ("model.onnx", "x.npz")]
    return [os.path.join(NETWORKS, network + end) for end in (".onnx", ".npz")]


def listed(option, otherwise):
    return sys.argv[sys.argv.index(option) + 1].split("/") if option in sys.argv else list(otherwise)


def one_line(text):
    """A message without line ends and without the places in OpenVINO's sources that it came by."""
    return re.sub(r"(Exception from|Check 'false' failed at) \S+:\d+: ", "", " ".join(str(text).split()))[:400]


def qk(*arguments):
    done = run(*arguments)
    if done.returncode < 0 or done.returncode > 2:
        raise RuntimeError(f"status {done.returncode}: {one_line(done.stderr)}")
    if done.returncode:
        raise RuntimeError(one_line(done.stderr or done.stdout))
    return done.stdout


def evaluate(model, inputs, outputs, *more):
    shutil.rmtree(at("out"), ignore_errors=True)
    rows = max([len(v) for v in np.load(inputs).values() if v.ndim], default=1)  # all samples in one run, as the runtimes have them
    qk("evaluate", model, "--inputs", inputs, "--output-dir", at("out"), "--threads", 1, "--batch", rows, *more)
    return [np.load(at(f"out/{n}.npy")) for n in outputs]


def in_openvino(model, inputs, fixed=True):
    """With the shapes of the data, as docs/reference/targets.md advises for int8, or with the model's own."""
    return fixed_or_open(model, inputs, fixed)


RUNTIMES = {"onnxruntime, off": lambda f, x: in_onnxruntime(f, x, "off"), "onnxruntime, on": in_onnxruntime,
            "onnx.reference": lambda f, x: ReferenceEvaluator(onnx.load(f)).run(None, x), "openvino": in_openvino}


def decibels(got, expected):
    """Signal over error of all outputs together; 200 for equal bits."""
    got, expected = (np.concatenate([np.asarray(v, np.float64).ravel() for v in values]) for values in (got, expected))
    if got.shape != expected.shape:
        return "shapes differ"
    if not np.array_equal(np.isfinite(got), np.isfinite(expected)):
        return "other values that are not finite"
    error = np.sum((got - expected) ** 2)
    return 200.0 if error == 0 else round(float(10 * np.log10(np.sum(expected ** 2) / error)), 1)


def beside(got, expected, floats):
    """Decibels beside the evaluator and beside the floats."""
    return [decibels(got, expected), decibels(got, floats)]


def tried(run):
    try:
        return run()
    except Exception as error:
        return "no: " + one_line(error)


def row_of(network, name, style, floats):
    model, data = files_of(network)
    inputs = dict(np.load(data))
    outputs = [o.name for o in onnx.load(model).graph.output]
    row = {"network": network, "format": name, "style": style}
    if any(n.op_type in ("GRU", "LSTM", "RNN") for n in onnx.load(model).graph.node):
        row["recurrent"] = True
    try:
        told = qk("quantize", model, "-o", at("cell.onnx"), *FORMATS[name][0], "--calibration", data, "--save-plan", at("plan.json"), *STYLES[style][0], "--overwrite", "--recipe", "fast", "--json")
    except RuntimeError as error:
        return row | {"quantize": "no: " + str(error)}
    told = json.loads(told)
    row["remarks"] = told["remarks"]
    expected = tried(lambda: evaluate(model, data, outputs, "--plan", at("plan.json")))
    if isinstance(expected, str):
        return row | {"evaluate": expected}
    row["beside the floats"] = decibels(expected, floats)
    row["qk"] = tried(lambda: beside(evaluate(at("cell.onnx"), data, outputs), expected, floats))
    for runtime, run in RUNTIMES.items():
        if (runtime != "openvino" or find_spec("openvino")) and not (runtime == "onnx.reference" and "--no-reference" in sys.argv):
            row[runtime] = tried(lambda: beside(run(at("cell.onnx"), inputs), expected, floats))

    if find_spec("openvino"):
        row["openvino, open shapes"] = tried(lambda: beside(in_openvino(at("cell.onnx"), inputs, False), expected, floats))

    def recovered():
        qk("inspect", at("cell.onnx"), "--save-plan", at("again.json"), "--save-float", at("again.onnx"), "--overwrite")
        return beside(evaluate(at("again.onnx"), data, outputs, "--plan", at("again.json")), expected, floats)
    if style != "qoperator":  # which has no quantizers to recover
        row["recovered"] = tried(recovered)
    return row


def promised_of(row):
    if row["style"] == "qdq" and not FORMATS[row["format"]][1]:
        return ("onnx.reference",)
    if row.get("recurrent") and row["style"] == "portable, inline" and "int8" in row["format"]:  # docs/reference/targets.md: --target openvino leaves these weights alone
        return EVERYWHERE[:3]
    return STYLES[row["style"]][2]


def absent(told):
    """Whether the runtime has no such operator: onnx's reference evaluator has DequantizeLinear from opset 19 on, and none of Microsoft's."""
    return isinstance(told, str) and (told.startswith("no: No implementation for operator") or "from domain 'com.microsoft' is unknown" in told)


def wrong_in(row):
    """What of a row is a defect: a verb or a promised runtime that fails, or values that another order of sums does not explain: where a network turns a
    tie that falls to the other side into much, the noise beside the floats still grows by no more than 1 dB."""
    if "quantize" in row or "evaluate" in row:
        return [k for k in ("quantize", "evaluate") if k in row]

    def right(told):
        if isinstance(told, str) or any(isinstance(v, str) for v in told):
            return absent(told)
        return told[0] >= 40 or told[1] >= row["beside the floats"] - 1
    return [k for k in ("qk", "recovered", *promised_of(row)) if k in row and not right(row[k])]


def all_rows():
    rows, wrong = [], 0
    for network in listed("--networks", networks()):
        model, data = files_of(network)
        outputs = [o.name for o in onnx.load(model).graph.output]
        floats = tried(lambda: evaluate(model, data, outputs))
        beside = floats if isinstance(floats, str) else tried(lambda: decibels(floats, in_onnxruntime(model, dict(np.load(data)), "off")))
        print(f"{network}: floats {beside} dB beside onnxruntime", flush=True)
        wrong += isinstance(beside, str) or beside < 90
        if isinstance(floats, str):
            continue
        for name in listed("--formats", FORMATS):
            for style in listed("--styles", STYLES):
                if name in STYLES[style][1]:
                    row = row_of(network, name, style, floats)
                    row["wrong"] = wrong_in(row)
                    rows.append(row)
                    wrong += bool(row["wrong"])
                    print(("WRONG " if row["wrong"] else "ok    ") + json.dumps(row), flush=True)
    kept(rows, "rows")
    return wrong


def lowest(rows, runtime):
    """The lowest decibels of the files that are promised a runtime, as a page says it."""
    told = [r[runtime] for r in rows if runtime in r and (runtime in ("qk", "recovered") or runtime in promised_of(r)) and not absent(r[runtime])]
    if not told:
        return ""
    if any(isinstance(t, str) or isinstance(t[0], str) for t in told):
        return "fails"
    least = min(t[0] for t in told)
    return "equal" if least == 200 else f"{least}"


def page(rows, planted):
    """The rows as a page of docs/results: a line for each network and format, with the lowest decibels of its files."""
    networks_there = sorted({r["network"] for r in rows})
    lines = ["# Networks of other people in every runtime", "",
             f"`tests/peers.sh networks` exports small networks of torchvision, timm and transformers with random weights, by both of torch's exporters. It quantizes them in every",
             f"style and runs the files. Here are {len(rows)} files of {len(networks_there)} networks; [networks.json](data/networks.json) has each.", "",
             "Numbers are decibels beside `qk evaluate --plan` on the float network, the lowest of the files whose style promises the runtime. What a format costs beside the floats stands",
             "before them. Runtimes add in another order; where a tie falls to the other side, the noise beside the floats stays the same. OpenVINO runs with the data's shapes; what it",
             "makes of int8 with [open ones](../reference/targets.md#openvino) is in networks.json.", "",
             "| network | format | files | beside the floats | qk | recovered | " + " | ".join(RUNTIMES) + " |", "|---|---|---|---|---|---|" + "---|" * len(RUNTIMES)]
    for network in networks_there:
        for name in FORMATS:
            those = [r for r in rows if r["network"] == network and r["format"] == name and "beside the floats" in r]
            if those:
                cells = [str(len(those)), str(those[0]["beside the floats"]), *(lowest(those, k) for k in ("qk", "recovered", *RUNTIMES))]
                lines.append(f"| {network} | {name} | " + " | ".join(cells) + " |")
    if planted:
        lines += ["", "## Planted faults", "", "`qk diff` beside a file with one fault: the tensor that it names first, and the rule that explains it.", "",
                  "| network | fault | first tensor | as planted | rule |", "|---|---|---|---|---|"]
        lines += [f"| {r['network']} | {r['fault']} | `{r.get('found')}` | {'no' if r['wrong'] else 'yes'} | {r.get('rule', '')} |" for r in planted]
    return "\n".join(lines) + "\n"


def kept(rows, key):
    """Adds rows to those of --json, which holds all of them under a key; returns all."""
    if "--json" not in sys.argv:
        return
    path = sys.argv[sys.argv.index("--json") + 1]
    held = {k: of(table) for k, table in read(path).items()} if os.path.exists(path) else {}
    name = lambda r: (r["network"], r.get("format"), r.get("style"), r.get("fault"))
    held[key] = sorted(({name(r): r for r in held.get(key, [])} | {name(r): r for r in rows}).values(), key=lambda r: r["network"])
    write(path, {k: table(v, COLUMNS[k]) for k, v in held.items()})
    if "--page" in sys.argv:
        with open(sys.argv[sys.argv.index("--page") + 1], "w") as f:
            f.write(page(held.get("rows", []), held.get("planted", [])))


def initializer(model, name):
    return next((t for t in model.graph.initializer if t.name == name), None)


def readers_of(model, name):
    return [n for n in model.graph.node if name in n.input]


def replace(model, tensor, value):
    tensor.CopyFrom(onnx.numpy_helper.from_array(value.astype(onnx.numpy_helper.to_array(tensor).dtype), tensor.name))


def scale_fault(model):
    """The scale of an activation in the middle of the network, 5 % too large."""
    all_of = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and initializer(model, n.input[1]) is not None]
    node = all_of[len(all_of) // 2]
    scale = initializer(model, node.input[1])
    replace(model, scale, onnx.numpy_helper.to_array(scale) * np.float32(1.05))
    return node.output[0]


def zero_point_fault(model):
    all_of = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and len(n.input) > 2 and initializer(model, n.input[2]) is not None]
    node = all_of[len(all_of) // 3]
    zero = initializer(model, node.input[2])
    value = onnx.numpy_helper.to_array(zero).astype(np.int64)
    replace(model, zero, np.where(value == np.iinfo(onnx.numpy_helper.to_array(zero).dtype).max, value - 1, value + 1))
    return node.output[0]


def nibble_fault(model):
    """The codes of a byte of 4-bit weights, swapped; of the last weights, which a layer's output certainly hangs on."""
    four = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)
    node = [n for n in model.graph.node if n.op_type == "DequantizeLinear" and getattr(initializer(model, n.input[0]), "data_type", 0) in four][-1]
    codes = initializer(model, node.input[0])
    raw = bytearray(codes.raw_data)
    place = max(range(len(raw)), key=lambda i: abs(((raw[i] >> 4) ^ 8) - ((raw[i] & 15) ^ 8)))
    raw[place] = (raw[place] >> 4) | (raw[place] & 15) << 4
    codes.raw_data = bytes(raw)
    return node.output[0]


def bias_fault(model):
    """The bias of a layer in the middle left out: that of Conv and Gemm, or a constant that is added."""
    made = {o: n for n in model.graph.node for o in n.output}

    def bias_of(n):
        if n.op_type in ("Conv", "Gemm") and len(n.input) > 2:
            return n.input[2]
        if n.op_type == "Add":
            return next((t for t in n.input if getattr(initializer(model, t), "data_type", 0) == 1 and len(initializer(model, t).dims) == 1), None)
        return None
    all_of = [(n, b) for n in model.graph.node if (b := bias_of(n)) is not None]

    def codes_of(name):
        while name in made and made[name].op_type in ("Max", "DequantizeLinear"):
            name = made[name].input[0]
        return name
    large = [(n, b) for n, b in all_of if initializer(model, codes_of(b)) is not None and np.abs(onnx.numpy_helper.to_array(initializer(model, codes_of(b)))).max() > 0]
    if not large:
        return None
    node, bias = large[len(large) // 2]
    tensor = initializer(model, codes_of(bias))
    replace(model, tensor, onnx.numpy_helper.to_array(tensor) * 0)
    return readers_of(model, tensor.name)[0].output[0]


FAULTS = {"a changed scale": ("int8", scale_fault), "a zero point off by one": ("int8", zero_point_fault), "a bias left out": ("int8", bias_fault),
          "swapped nibbles": ("int4 weights", nibble_fault)}


def faults():
    """Plants faults in each network's files, which `qk diff` must find by the tensor's name."""
    rows = []
    for network in listed("--networks", networks()):
        model, data = files_of(network)
        for name in dict.fromkeys(f for f, _ in FAULTS.values()):
            qk("quantize", model, "-o", at(f"{name}.onnx"), *FORMATS[name][0], "--calibration", data, "--export", "qdq", "--recipe", "fast", "--overwrite")
        for what, (name, plant) in FAULTS.items():
            faulty = onnx.load(at(f"{name}.onnx"))
            row = {"network": network, "fault": what}
            try:
                row["planted"] = plant(faulty)
                if row["planted"] is None:  # a network without a bias
                    continue
                onnx.save(faulty, at("faulty.onnx"))
                done = run("diff", at(f"{name}.onnx"), "--against", at("faulty.onnx"), "--inputs", data, "--samples", "4", "--json")
                side = json.loads(done.stdout)["sides"][0]
                row["found"] = side["first"]
                row["rule"] = next((t.get("rule", "") for t in side["tensors"] if t["name"] == side["first"]), "")
            except Exception as error:
                row["found"] = "no: " + one_line(error)
            row["wrong"] = row.get("planted") != row["found"]
            rows.append(row)
            print(("WRONG " if row["wrong"] else "ok    ") + json.dumps(row), flush=True)
    kept(rows, "planted")
    return sum(row["wrong"] for row in rows)


if __name__ == "__main__":
    wrong = faults() if "--faults" in sys.argv else all_rows()
    print(f"{wrong} wrong")
    sys.exit(1 if wrong else 0)
