# SPDX-License-Identifier: Apache-2.0
"""Tests qk dot, qk formats --devices and qk vectors --device: every recorded case of a device, exit statuses, files."""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, folders, qk_json, run as qk

import numpy as np


def test_recorded_cases(folder):
    places = [f / "mma" for f in folders("mma")]
    packed = {f.name: f.read_bytes() for f in places[0].glob("*.npz")}
    files = sorted(places[0].glob("*.npz")) + sorted(f for place in places[1:] for f in place.glob("*.npz") if packed.get(f.name) != f.read_bytes())
    for file in files:
        r = qk("dot", "--case", file, "--device", file.stem)
        check(r.returncode == 0, f"{file.stem}: status {r.returncode}: {r.stdout}{r.stderr}")
    check(len(files) >= 154, "all recorded cases are there")
    file = places[0] / "nvidia.hopper.wgmma.m64n8k32.f32.e4m3.e4m3.npz"
    out = folder / "out.npz"
    check(qk("dot", "--case", file, "--device", file.stem, "-o", out).returncode == 0, "-o")
    ours, theirs = np.load(out)["d"], np.load(file)["d"]
    nan = lambda d: np.isnan(d.view(np.float32))
    check(ours.dtype == theirs.dtype and ((ours == theirs) | (nan(ours) & nan(theirs))).all(), "-o writes the device's d")


def test_made_cases(folder):
    device = "amd.cdna3.mfma.f32_f16"
    listed = qk_json("formats", "--devices")["devices"]
    check(len(listed) == 266 and all(d["accumulator"] and d["source"] for d in listed), "formats --devices")
    for name in (device, "nvidia.hopper.mma.f64.f64.f64.f64", "x86.avx512_vnni.vpdpbusds", "nvidia.rtx_blackwell.mma_block_scale.block16.f32.e2m1.e2m1.f32.ue4m3",
                 "nvidia.rtx_blackwell.mma_block_scale.block32.f32.e4m3.e5m2.f32.ue8m0", "nvidia.turing.mma.f16.f16.f16.f16"):
        r = qk("vectors", "--device", name, "--out", folder / name)
        check(r.returncode == 0, f"vectors {name}: {r.stderr}")
        case = folder / name / "case.npz"
        r = qk("dot", "--case", case, "--device", name)
        check(r.returncode == 0 and r.stdout.startswith("0 of 4096 differ"), f"{name}: {r.stdout}{r.stderr}")
        text = next(d for d in listed if d["name"] == json.loads((folder / name / "manifest.json").read_text())["device"])
        if text["a_format"] != "fp64":
            r = qk("dot", "--case", case, "--accumulator", text["accumulator"], "--a-format", text["a_format"], "--b-format", text["b_format"])
            check(r.returncode == 0, f"{name} by its accumulator's text: {r.stdout}{r.stderr}")
    # one bit changed in d
    arrays = dict(np.load(folder / device / "case.npz"))
    before = arrays["d"][3, 5]
    arrays["d"][3, 5] = 0x3F800001 if before != 0x3F800001 else 0
    np.savez_compressed(folder / "changed.npz", **arrays)
    r = qk("dot", "--case", folder / "changed.npz", "--device", device)
    check(r.returncode == 1 and "1 of 4096 differ" in r.stdout and "d[3,5]" in r.stdout, f"one difference: {r.returncode} {r.stdout}")
    r = qk("dot", "--case", folder / "changed.npz", "--device", device, "--json")
    report = json.loads(r.stdout)
    check(r.returncode == 1 and report["different"] == 1 and report["first"][0]["row"] == 3 and report["counts"]["nan"] > 0, "the same in JSON")
    # unusable input: status 2 and a sentence
    for arguments, said in ((("--case", folder / "none.npz", "--device", device), "none.npz"), (("--case", folder / "changed.npz", "--device", "amd.cdna3.mfma.f32_fp16"), device),
                            (("--case", folder / "changed.npz", "--device", "nvidia.hopper.wgmma.f32.e4m3.e4m3"), "no code of 8 bits"),
                            (("--case", folder / "changed.npz", "--accumulator", "aling=25", "--a-format", "fp16", "--b-format", "fp16"), "did you mean align"),
                            (("--case", folder / "x86.avx512_vnni.vpdpbusds" / "case.npz", "--device", device), "these codes have 16 bits"),
                            (("--case", folder / "changed.npz"), "--device")):
        r = qk("dot", *arguments)
        check(r.returncode == 2 and said in r.stderr, f"{arguments}: {r.returncode} {r.stderr}")
    del arrays["d"]
    np.savez(folder / "open.npz", **arrays)
    r = qk("dot", "--case", folder / "open.npz", "--device", device)
    check(r.returncode == 2 and "-o" in r.stderr, "no d and no -o")


def test_values(folder):
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((5, 70), (70, 3), (5, 3)))
    for name, x in (("a", a), ("b", b), ("c", c)):
        np.save(folder / f"{name}.npy", x)
    out = folder / "d.npy"
    files = [folder / "a.npy", folder / "b.npy", folder / "c.npy", out]
    r = qk("dot", *files, "--accumulator", "sum=exact", "--a-format", "fp32", "--b-format", "fp32")
    exact = (a.astype(np.longdouble) @ b.astype(np.longdouble) + c).astype(np.float32)
    check(r.returncode == 0 and np.array_equal(np.load(out), exact), f"exact float32: {r.stderr}")
    loop = np.array(c)
    for i in range(70):
        loop = loop + a[:, i : i + 1] * b[i : i + 1, :]
    r = qk("dot", *files, "--accumulator", "sum=sequential,fused=0", "--a-format", "fp32", "--b-format", "fp32")
    check(r.returncode == 0 and np.array_equal(np.load(out), loop), "a plain loop in numpy")
    for how in (["--device", "nvidia.hopper.wgmma.f32.e4m3.e4m3"], ["--accumulator", "groups=16,align=25,round=toward-zero", "--a-format", "mxfp8_e4m3", "--b-format", "mxfp4"],
                ["--device", "nvidia.blackwell.tcgen05mma_block_scale.block16.f32.e2m1.e2m1.ue4m3"]):
        r = qk("dot", *files, *how)
        check(r.returncode == 0 and np.abs(np.load(out) - exact).max() < 6, f"{how}: {r.stderr}")
    q, w = rng.integers(-128, 128, (4, 9)).astype(np.int8), rng.integers(-128, 128, (9, 4)).astype(np.int8)
    np.save(folder / "q.npy", q)
    np.save(folder / "w.npy", w)
    r = qk("dot", folder / "q.npy", folder / "w.npy", out, "--accumulator", "sum=integer", "--a-format", "int8", "--b-format", "int8")
    check(r.returncode == 0 and np.array_equal(np.load(out), q.astype(np.int64) @ w), f"integers: {r.stderr}")
    r = qk("dot", folder / "a.npy", folder / "a.npy", folder / "none.npy", "--device", "nvidia.hopper.wgmma.f32.e4m3.e4m3")
    check(r.returncode == 2 and not (folder / "none.npy").exists(), "shapes that do not fit")


if __name__ == "__main__":
    evidence.main()
