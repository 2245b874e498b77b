# SPDX-License-Identifier: Apache-2.0
"""Packs what the systems' packages answered into tests/data/systems: the inputs as they are, of each answer its type, shape and a hash.

pack.py GOLDENS OUT [MLX]: GOLDENS is a folder of SYSTEM.FORMAT.CASE.npy (and .codes.npy and so on beside it) with input.CASE.npy; MLX a
folder with the package mlx, which then answers for the group sizes that GOLDENS has no files of.
"""
import os
import sys

import numpy as np


def fnv(array):
    """64-bit FNV-1a over the array's 32-bit words (or bytes); every NaN is the same NaN."""
    if array.dtype == np.float32:
        array = np.where(np.isnan(array), np.float32(np.nan), array)
        array.view(np.uint32)[np.isnan(array)] = 0x7FC00000
    h = 0xCBF29CE484222325
    for byte in np.ascontiguousarray(array).tobytes():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def line(rule, case, plane, array):
    shape = "x".join(map(str, array.shape))
    return f"{rule} {case} {plane} {array.dtype.str[1:]} {shape} {fnv(array.copy()):016x}"


def packed_goldens(folder, inputs):
    lines = []
    for file in sorted(os.listdir(folder)):
        parts = file[:-4].split(".")
        if not file.endswith(".npy") or len(parts) < 3 or parts[0] in ("input", "gfloat"):
            continue
        system, form, rest = parts[0], parts[1], parts[2:]
        if form == "swizzle_32_4_4" or system == "ml_dtypes":
            continue
        if system == "torchao" and form.startswith("mx"):
            form += "." + rest.pop(0)
        case = rest.pop(0)
        if case == "imatrix":
            case += "+" + rest.pop(0)
        plane = rest[0] if rest else "values"
        if plane in ("decompressed", "scales_swizzled"):
            continue
        array = np.load(os.path.join(folder, file))
        if form == "ue5m3":
            if case != "probe" or plane != "codes":
                continue
            array, case = array.reshape(1, -1), "probe"
        elif case.removeprefix("imatrix+").removesuffix("_x2") not in inputs:
            continue
        lines.append(line(f"{system}.{form}", case, plane, array))
    return lines


def answers_of_mlx(folder, inputs):
    sys.path.insert(0, folder)
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    lines = []
    for bits in (1, 2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            for case in ("outlier256", "blockrange256"):
                w, s, b = mx.quantize(mx.array(inputs[case]), group_size=group, bits=bits)
                rule = f"mlx.affine{bits}_g{group}"
                lines.append(line(rule, case, "codes", np.array(w)))
                lines.append(line(rule, case, "scales", np.stack([np.array(s), np.array(b)])))
                lines.append(line(rule, case, "values", np.array(mx.dequantize(w, s, b, group_size=group, bits=bits))))
    return lines


def main(folder, out, mlx=None):
    names = [f.split(".")[1] for f in sorted(os.listdir(folder)) if f.startswith("input.") and "smallint" not in f]
    inputs = {n: np.load(os.path.join(folder, f"input.{n}.npy")) for n in names}
    lines = packed_goldens(folder, inputs)
    if mlx:
        lines += [x for x in answers_of_mlx(mlx, inputs) if x.rsplit(" ", 1)[0] not in {y.rsplit(" ", 1)[0] for y in lines}]
    inputs["probe"] = np.load(os.path.join(folder, "auto_round.ue5m3.probe.npy")).reshape(1, -1)
    inputs["importance"] = np.load(os.path.join(folder, "ggml.imatrix256.npy")).reshape(1, -1)
    heads, at = [], 0
    for name, array in inputs.items():
        heads.append(f"input {name} {array.shape[0]} {array.shape[1]} {at}")
        at += array.size
    np.save(os.path.join(out, "inputs.npy"), np.concatenate([a.astype("<f4").ravel() for a in inputs.values()]))
    with open(os.path.join(out, "answers.txt"), "w") as f:
        f.write("\n".join(heads + sorted(lines)) + "\n")
    print(len(lines), "answers of", len({x.split()[0] for x in lines}), "rules")


main(*sys.argv[1:])
