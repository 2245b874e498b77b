# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of docs/reference/systems.md: side_by_side.py QK [PAGE].

Runs `qk convert --system` on inputs made by seed and says, for each pair of rules of one kind, in which share of the values they differ: in
any bit, and by more than 1e-5 of the larger one. With PAGE, replaces the text between its markers.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

GROUPS = {
    "nvfp4, two levels": ["transformer_engine.nvfp4", "modelopt.nvfp4", "compressed_tensors.nvfp4", "torchao.nvfp4", "auto_round.nvfp4",
                          "quark_torch.nvfp4_block_e4m3", "mlx.nvfp4_global"],
    "nvfp4, one level": ["mlx.nvfp4", "torchao.nvfp4_onelevel", "ggml.nvfp4"],
    "nvfp4, searched": ["transformer_engine.nvfp4_4over6_mae", "transformer_engine.nvfp4_4over6_mse", "modelopt.nvfp4_sweep",
                        "auto_round.nvfp4_search"],
    "mxfp4": ["ggml.mxfp4", "mlx.mxfp4", "mlx.mxfp4_rounded", "modelopt.mxfp4", "transformer_engine.mxfp4", "compressed_tensors.mxfp4",
              "torchao.mxfp4_e2m1.floor", "torchao.mxfp4_e2m1.rceil", "auto_round.mxfp4", "auto_round.mxfp4_725", "quark_torch.mxfp4_even"],
    "mxfp8": ["mlx.mxfp8", "mlx.mxfp8_rounded", "modelopt.mxfp8", "compressed_tensors.mxfp8", "torchao.mxfp8_e4m3.rceil", "auto_round.mxfp8"],
    "int4, 128 values": ["compressed_tensors.int4_g128", "modelopt.int4_g128", "auto_round.int_sym4_g128", "quark_torch.int4_g128_sym",
                         "mlx.affine4_g128"],
}


def inputs():
    rng = np.random.default_rng(20261126)
    normal = rng.standard_normal((64, 1024))
    blocks = np.exp2(rng.integers(-12, 13, (64, 32))).repeat(32, axis=1)
    return {
        "normal": normal,
        "weights": normal * 0.02,
        "outliers": np.where(rng.random(normal.shape) < 0.01, 100 * normal, normal),
        "ties": rng.integers(-64, 65, normal.shape) / 8,
        "ranges": normal * blocks,
    }


def main(qk, page=None):
    rules = {r["name"]: r for r in json.loads(subprocess.run([qk, "formats", "--systems", "--json"], check=True, capture_output=True).stdout)["systems"]}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        x, y = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
        made = {}
        for case, values in inputs().items():
            np.save(x, values.astype(np.float32))
            for names in GROUPS.values():
                for name in names:
                    subprocess.run([qk, "convert", x, y, "--system", name], check=True)
                    made[name, case] = np.load(y)
        for title, names in GROUPS.items():
            lines += [f"### {title}", "", "| rule | scale | dB, " + ", ".join(inputs()) + " |", "|---|---|---|"]
            for name in names:
                db = []
                for case, values in inputs().items():
                    reference = values.astype(np.float32).astype(np.float64)
                    db.append(f"{10 * np.log10((reference**2).sum() / ((made[name, case] - reference) ** 2).sum()):.2f}")
                lines.append(f"| {name} | {rules[name]['rule'].replace('|', chr(92) + '|')} | {', '.join(db)} |")
            lines += ["", "| differ by more than 1e-5 (in any bit), % | " + " | ".join(f"{i + 1}" for i in range(1, len(names))) + " |",
                      "|---|" + "---|" * (len(names) - 1)]
            for i, a in enumerate(names[:-1]):
                row = []
                for j in range(1, len(names)):
                    if j <= i:
                        row.append("")
                        continue
                    parts = []
                    for case in ("normal", "ties", "ranges"):
                        p, q = made[a, case].astype(np.float64), made[names[j], case].astype(np.float64)
                        far = np.abs(p - q) > 1e-5 * np.maximum(np.abs(p), np.abs(q))
                        bits = made[a, case].view(np.uint32) != made[names[j], case].view(np.uint32)
                        parts.append(f"{100 * far.mean():.1f} ({100 * bits.mean():.0f})")
                    row.append(", ".join(parts))
                lines.append(f"| {i + 1} {a} | " + " | ".join(row) + " |")
            lines.append("")
    text = "\n".join(lines)
    if page is None:
        print(text)
        return
    with open(page) as f:
        whole = f.read()
    begin, end = "<!-- made by tests/systems/side_by_side.py -->\n", "<!-- end -->"
    head, rest = whole.split(begin)
    with open(page, "w") as f:
        f.write(head + begin + "\n" + text + "\n" + end + rest.split(end)[1])


main(*sys.argv[1:])
