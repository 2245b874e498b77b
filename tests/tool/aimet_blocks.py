# SPDX-License-Identifier: Apache-2.0
"""AIMET's encodings with scales of blocks (LPBQ and others): read into a plan, evaluated and exported beside numpy, written again in both versions."""
import copy
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, close, evaluated, qk
from evidence.graphs import model as made
from evidence.runtimes import outputs

import numpy as np
import onnx
import pytest
from onnx import helper as h

random = np.random.default_rng(4)
# Operator, shape of the input, shape of the weights, its axes of channels and blocks, attributes.
LAYERS = {
    "matmul": ("MatMul", [3, 64], [64, 24], 1, 0, {}),
    "gemm": ("Gemm", [3, 64], [24, 64], 0, 1, {"transB": 1}),
    "square": ("MatMul", [3, 32], [32, 2], 1, 0, {}),
    "conv": ("Conv", [1, 32, 5, 5], [8, 32, 3, 3], 0, 1, {}),
    "deconv": ("ConvTranspose", [1, 32, 4, 4], [32, 6, 2, 2], 1, 0, {}),
}
BLOCK = 16


def network(layer, weights):
    op, x, shape, _, _, attributes = LAYERS[layer]
    return made([h.make_node(op, ["x", "w"], ["y"], name="layer", **attributes)], {"x": x}, {"y": [None] * len(x)}, {"w": weights}, opset=21)


def written(folder, layer):
    w = random.normal(size=LAYERS[layer][2]).astype(np.float32) * 0.1
    onnx.save(network(layer, w), folder / f"{layer}.onnx")
    return folder / f"{layer}.onnx", w


def scales(layer):
    """Floats of channels and integers of blocks, in the weights' own rank."""
    _, _, shape, channel, block, _ = LAYERS[layer]
    def only(**lengths):
        return [lengths["c"] if a == channel else lengths["b"] if a == block else 1 for a in range(len(shape))]
    count = shape[block] // BLOCK
    return (random.uniform(0.002, 0.02, only(c=shape[channel], b=1)).astype(np.float32), random.integers(1, 17, only(c=shape[channel], b=count)))


def old(layer, floats, integers):
    """Version 1.0.0 has the blocks of matrices channel by channel."""
    _, _, shape, channel, _, _ = LAYERS[layer]
    flat = integers.T if len(shape) == 2 and channel == 1 else integers
    return {"version": "1.0.0", "activation_encodings": [], "param_encodings": [
        {"name": "w", "enc_type": "LPBQ", "dtype": "INT", "compressed_bw": 4, "bw": 8, "is_sym": True, "block_size": BLOCK, "scale": floats.flatten().tolist(),
         "per_block_int_scale": flat.flatten().tolist(), "offset": [-128] * floats.size}]}


def new(layer, floats, integers):
    return {"version": "2.0.0", "encodings": [{"name": "w", "output_dtype": "int4", "axis": LAYERS[layer][4], "block_size": BLOCK,
                                               "per_channel_float_scale": floats.tolist(), "per_block_int_scale": integers.tolist()}]}


def newest(layer, floats, integers):
    file = new(layer, floats, integers)
    entry = file["encodings"][0]
    del entry["per_channel_float_scale"], entry["per_block_int_scale"]
    file["version"] = "2.1.0"
    entry["y_scale"] = {"x": integers.tolist(), "x_scale": floats.flatten().tolist(), "axis": LAYERS[layer][3]}
    return file


def blockwise(layer, products):
    """The same scales as floats of blocks, in both versions."""
    _, _, shape, channel, block, _ = LAYERS[layer]
    flat = products.T if len(shape) == 2 and channel == 1 else products
    yield {"version": "1.0.0", "param_encodings": [{"name": "w", "enc_type": "PER_BLOCK", "dtype": "INT", "bw": 4, "is_sym": True, "block_size": BLOCK,
                                                    "scale": flat.flatten().tolist(), "offset": [-8] * products.size}]}
    yield {"version": "2.0.0", "encodings": [{"name": "w", "output_dtype": "int4", "axis": block - len(shape), "block_size": BLOCK, "y_scale": products.tolist()}]}


def run(model, x):
    return outputs(model, {"x": x}, "off")[0]  # on, int4 weights become a MatMulNBits, which rounds x to int8


def products_of(file):
    """The scales of what qk wrote, as the weights have them."""
    if file["version"] == "2.0.0":
        e = file["encodings"][0]
        return np.float32(e["y_scale"]) if "y_scale" in e else np.float32(e["per_channel_float_scale"]) * np.float32(e["per_block_int_scale"])
    return None


@pytest.mark.parametrize("layer", LAYERS)
def test_there_and_back(folder, layer):
    _, x_shape, _, _, block, _ = LAYERS[layer]
    model, w = written(folder, layer)
    x = random.normal(size=x_shape).astype(np.float32)
    np.save(folder / "x.npy", x)
    floats, integers = scales(layer)
    products = floats * integers.astype(np.float32)
    each = np.repeat(products, BLOCK, axis=block)
    wanted = run(network(layer, np.clip(np.rint(w / each), -8, 7).astype(np.float32) * each).SerializeToString(), x)
    files = {"LPBQ 1.0.0": old(layer, floats, integers), "LPBQ 2.0.0": new(layer, floats, integers), "LPBQ 2.1.0": newest(layer, floats, integers)}
    files |= {f"blocks {f['version']}": f for f in blockwise(layer, products)}
    for name, file in files.items():
        (folder / "e.json").write_text(json.dumps(file))
        ours = evaluated(model, folder / "x.npy", "--plan", folder / "e.json")
        check(close(ours, wanted), f"{layer}, {name}: evaluated")
        for version in ("1.0.0", "2.0.0"):
            qk("quantize", model, "--plan", folder / "e.json", "--encodings", folder / "again.json", "--encodings-version", version, "--overwrite")
            again = json.loads((folder / "again.json").read_text())
            entry = again["encodings"][0] if version == "2.0.0" else again["param_encodings"][0]
            check("per_block_int_scale" in entry, f"{layer}, {name}: written as LPBQ of {version}")
            if version == "2.0.0":
                check(np.array_equal(products_of(again), products), f"{layer}, {name}: the same scales in {version}")
            check(np.array_equal(evaluated(model, folder / "x.npy", "--plan", folder / "again.json"), ours), f"{layer}, {name}: {version} evaluates to the same")
        for style in ("qdq", "portable"):
            qk("quantize", model, "--plan", folder / "e.json", "--export", style, "-o", folder / "q.onnx", "--overwrite")
            check(close(run(folder / "q.onnx", x), wanted), f"{layer}, {name}: {style} in onnxruntime")


def test_other_scales(folder):
    """Blocks whose scales have no common floats stay blocks."""
    products = random.uniform(0.01, 0.03, (4, 24)).astype(np.float32)
    model = written(folder, "matmul")[0]
    for file in blockwise("matmul", products):
        (folder / "e.json").write_text(json.dumps(file))
        qk("quantize", model, "--plan", folder / "e.json", "--encodings", folder / "a.json", "--encodings-version", "2.0.0", "--overwrite")
        check(np.array_equal(products_of(json.loads((folder / "a.json").read_text())), products), f"float scales of {file['version']} stay as they are")
        qk("quantize", model, "--plan", folder / "e.json", "--encodings", folder / "a.json", "--overwrite")
        entry = json.loads((folder / "a.json").read_text())["param_encodings"][0]
        check(entry["enc_type"] == "PER_BLOCK" and np.array_equal(np.float32(entry["scale"]).reshape(24, 4).T, products), f"{file['version']} becomes PER_BLOCK")


def test_malformed(folder):
    floats, integers = scales("matmul")
    model = written(folder, "matmul")[0]

    def wrong(file, words, **changes):
        file = copy.deepcopy(file)
        entry = (file.get("encodings") or file.get("param_encodings"))[0]
        for key, value in changes.items():
            if value is None:
                entry.pop(key)
            else:
                entry[key] = value
        (folder / "wrong.json").write_text(json.dumps(file))
        done = qk("quantize", model, "--plan", folder / "wrong.json", "--save-plan", folder / "never.json", status=(1, 2))
        check(words in done.stderr and "w" in done.stderr, f"{changes}: {words}\n      {done.stderr.strip()}")

    first, second = old("matmul", floats, integers), new("matmul", floats, integers)
    wrong(first, "compressed_bw", compressed_bw=None)
    wrong(first, "compressed_bw", compressed_bw=8)
    wrong(first, "bw", bw=4)
    wrong(first, "per_block_int_scale", per_block_int_scale=None)
    wrong(first, "per_block_int_scale", per_block_int_scale=[3, 4, 5])
    wrong(first, "per_block_int_scale", per_block_int_scale=[17] * integers.size)
    wrong(first, "per_block_int_scale", per_block_int_scale=[0] * integers.size)
    wrong(first, "per_block_int_scale", scale=floats.flatten().tolist()[:12], offset=[-128] * 12)
    wrong(first, "block_size", block_size=32)
    wrong(first, "block_size", block_size=None)
    wrong(first, "scale", scale=[-1.0] * 24)
    wrong(first, "offset", offset=[-8] * 24)
    wrong(first, "is_sym", is_sym=False)
    wrong(first, "dtype", dtype="FLOAT")
    wrong(second, "axis", axis=2)
    wrong(second, "axis", axis=None)
    wrong(second, "block_size", block_size=None)
    wrong(second, "blocks of 64", block_size=64)
    wrong(second, "per_channel_float_scale", per_channel_float_scale=[[0.1, 0.2]])
    wrong(second, "per_channel_float_scale", per_channel_float_scale=None)
    wrong(second, "per_block_int_scale", per_block_int_scale=[[1, 2], [3]])
    wrong(second, "per_block_int_scale", per_block_int_scale=[[1.5] * 24] * 4)
    wrong(second, "output_dtype", output_dtype="int99")
    wrong(second, "colour", colour="red")
    (folder / "wrong.json").write_text(json.dumps({"version": "2.2.0", "encodings": []}))
    check("2.2.0" in qk("quantize", model, "--plan", folder / "wrong.json", "--save-plan", folder / "never.json", status=(1, 2)).stderr, "a later version is refused")


if __name__ == "__main__":
    evidence.main()
