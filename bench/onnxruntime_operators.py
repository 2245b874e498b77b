# SPDX-License-Identifier: Apache-2.0
"""Times files in onnxruntime, in turns of one run: the float32 model, the file's functions, qk's operators in their place, and products of packed weights.

    python bench/onnxruntime_operators.py build/release/qk ../shared [--only resnet20] [--formats mxfp8_e4m3,mxfp4] [--seconds 2] [--quark LIBRARY]
    python bench/onnxruntime_operators.py build/release/qk ../shared --decoder [--layers 32] [--only products,MatMulNBits] [--least]

Activations and weights are in one format; one sample a run, one thread, the optimizer on; medians in milliseconds, and the operators' share of
float32's time. --least takes minima in place of medians, which say more while others use the machine. --quark (tests/onnxruntime/quark_library.sh prints the path) also times AMD Quark's own library on the same network in Quark's style.
--decoder times a decoder's next token, with weights alone quantized, beside onnxruntime's MatMulNBits. The digits network is shipped, a ViT and the
decoders have random weights and are made here, the others lie in ../shared. Needs numpy, onnx, onnxruntime, and libqk_onnxruntime.so beside the command.
"""
import argparse
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "tool")]
NETWORKS = {"digits": None, "resnet20": "resnet20_cifar10_folded", "squeezenet1.1": "squeezenet1.1_imagenet", "kwt1": "kwt1_mfcc", "vit": None, "decoder": None}
FORMATS = "int8,bfp16,mx9,mxint8,mxfp8_e4m3,mxfp6_e3m2,mxfp4,nvfp4"


def vit(path, size=224, patch=16, hidden=192, layers=12, count=3):
    """Writes a ViT-Tiny (Dosovitskiy et al. 2021; Touvron et al. 2021): x [N,3,224,224] -> logits [N,1000]."""
    from evidence.graphs import Graph
    from onnx import TensorProto
    g = Graph(5, np.float32)

    def weight(name, *shape):
        return g.hold(g.prefix + name, (g.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def linear(x, name, a, b):
        return g.op("Add", g.op("MatMul", x, weight(name, a, b), name=name), weight(name + ".bias", b))

    def norm(x, name):
        return g.op("LayerNormalization", x, g.hold(g.prefix + name, np.ones(hidden, np.float32)), g.hold(g.prefix + name + ".bias", np.zeros(hidden, np.float32)), axis=-1)

    tokens = (size // patch) ** 2
    w = g.hold("patch", (g.rng.standard_normal((hidden, 3, patch, patch)) / np.sqrt(3 * patch * patch)).astype(np.float32))
    x = g.op("Conv", "x", w, kernel_shape=[patch, patch], strides=[patch, patch])
    x = g.op("Transpose", g.op("Reshape", x, g.ints(0, hidden, tokens)), perm=[0, 2, 1])
    x = g.op("Add", x, weight("position", 1, tokens, hidden))
    width = hidden // count
    for i in range(layers):
        g.prefix = f"layer{i}/"
        y = norm(x, "norm1")
        q, k, v = (g.op("Transpose", g.op("Reshape", linear(y, n, hidden, hidden), g.ints(0, tokens, count, width)), perm=[0, 2, 1, 3]) for n in ("q", "k", "v"))
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.hold(g.prefix + "scale", np.array(width**-0.5, np.float32)))
        y = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
        x = g.op("Add", x, linear(g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, tokens, hidden)), "o", hidden, hidden))
        y = linear(norm(x, "norm2"), "up", hidden, 4 * hidden)
        y = g.op("Mul", y, g.op("Sigmoid", g.op("Mul", y, g.hold(g.prefix + "gelu", np.array(1.702, np.float32)))))
        x = g.op("Add", x, linear(y, "down", 4 * hidden, hidden))
    g.prefix = ""
    x = g.op("ReduceMean", norm(x, "norm"), axes=[1], keepdims=0)
    linear(x, "head", hidden, 1000)
    g.rename("logits")
    g.save(path, [("x", TensorProto.FLOAT, ["N", 3, size, size])], [("logits", TensorProto.FLOAT, ["N", 1000])], opset=17)
    return path


def decoder(path, hidden=512, layers=8, vocabulary=8000, outside=False):
    import language_models
    return language_models.llama(str(path), vocabulary=vocabulary, hidden=hidden, layers=layers, count=hidden // 64, groups=hidden // 256, dtype=np.float32, transposed=False,
                                 outside=outside)


def session(path, library=None):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if library:
        options.register_custom_ops_library(str(library))
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed_of(s):
    """Random values; a decoder's next token behind a cache of 32."""
    r = np.random.default_rng(1)
    feed = {}
    for i in s.get_inputs():
        shape = [d if isinstance(d, int) and d > 0 else 32 if d == "P" else 1 for d in i.shape]
        if i.type == "tensor(float)":
            feed[i.name] = r.standard_normal(shape).astype(np.float32)
        else:
            feed[i.name] = np.full(shape, 32 if i.name == "position_ids" else 7, np.int64 if i.type == "tensor(int64)" else np.int32)
    return feed


def times_of(sessions, feed, seconds, least):
    """Takes turns, since the pace of a machine changes; returns medians, or minima."""
    times = [[] for _ in sessions]
    start = time.perf_counter()
    while len(times[0]) < 6 or time.perf_counter() - start < seconds:
        for s, own in zip(sessions, times):
            if s is None:
                continue
            begin = time.perf_counter()
            s.run(None, feed)
            own.append(time.perf_counter() - begin)
    return [1e3 * float(min(own[1:]) if least else np.median(own[1:])) if own else None for own in times]


def written(qk, model, out, *words):
    """Returns the file, or None with what the command said on standard error."""
    done = subprocess.run([qk, "quantize", model, "-o", out, *words, "--recipe", "fast", "--overwrite"], capture_output=True, text=True)
    if done.returncode:
        print(f"{Path(model).stem} {' '.join(map(str, words))}: {done.stderr.strip()[:300]}", file=sys.stderr)
    return None if done.returncode else out


def shown(t):
    return "" if t is None else f"{t:.3g}"


def networks(a, library, folder):
    quark = " Quark's library | qk's on its file |" if a.quark else ""
    print(f"| network | format | float32 | functions | operators | with products |{quark} operators / float32 |\n|---|---|---|---|---|---|{'---|---|' if a.quark else ''}---|")
    for name, stem in NETWORKS.items():
        if a.only not in (None, name):
            continue
        model = folder / f"{name}.onnx" if name in ("vit", "decoder") else ROOT / "examples/digits/digits.onnx" if stem is None else a.shared / "models" / f"{stem}.onnx"
        if name in ("vit", "decoder"):
            {"vit": vit, "decoder": decoder}[name](model)
        if not model.exists():
            continue
        plain = session(model)
        feed = feed_of(plain)
        np.savez(folder / "calibration.npz", **feed)
        for f in a.formats.split(","):
            words = ("--activation", f, "--weight", f, "--calibration", folder / "calibration.npz")
            out = written(a.qk, model, folder / "out.onnx", *words)
            if out is None:
                continue
            product = written(a.qk, model, folder / "product.onnx", *words, "--weights", "product") if f != "int8" else None
            if product and b"product_" not in product.read_bytes():
                product = None
            peer = written(a.qk, model, folder / "peer.onnx", *words, "--export", "amd") if a.quark else None
            sessions = [plain, session(out), session(out, library), product and session(product, library)]
            if a.quark:
                sessions += [peer and session(peer, a.quark), peer and session(peer, library)]
            whole, functions, operators, products, *peers = times_of(sessions, feed, a.seconds, a.least)
            best = min(t for t in (operators, products) if t is not None)
            print(f"| {name} | {f} | {shown(whole)} | {shown(functions)} | {shown(operators)} | {shown(products)} | " + "".join(f"{shown(t)} | " for t in peers) +
                  f"{best / whole:.2f} |", flush=True)


def next_tokens(a, library, folder):
    model = Path(decoder(folder / "decoder.onnx", hidden=1024, layers=a.layers, vocabulary=32000, outside=True))
    size = sum(f.stat().st_size for f in folder.iterdir())
    plain = session(model)
    feed = feed_of(plain)
    int4 = ("--weight", "int4", "--weight-block", "32")
    kinds = {"mxfp4, functions": (("--weight", "mxfp4"), None), "mxfp4, decoded by the library": (("--weight", "mxfp4"), library),
             "mxfp4, products": (("--weight", "mxfp4", "--weights", "product"), library), "nvfp4, products": (("--weight", "nvfp4", "--weights", "product"), library),
             "int4, products": ((*int4, "--weights", "product"), library), "int4, products of integers": ((*int4, "--weights", "product", "--accuracy-level", "4"), library),
             "int4, MatMulNBits": ((*int4, "--export", "nbits"), None), "int4, MatMulNBits at level 4": ((*int4, "--export", "nbits", "--accuracy-level", "4"), None)}
    print(f"A decoder of {size / 4e6:.0f} million parameters, one token behind 32, weights alone quantized, {size / 1e6:.0f} MB in float32.\n")
    print("| weights | ms a token | of float32 | file, of float32 |\n|---|---|---|---|")
    if a.only:
        kinds = {k: v for k, v in kinds.items() if any(part in k for part in a.only.split(","))}
    made = [(k, written(a.qk, model, folder / f"w{i}.onnx", "--approach", "weight_only", *words), where) for i, (k, (words, where)) in enumerate(kinds.items())]
    made = [(k, f, where) for k, f, where in made if f]
    sessions = [plain] + [session(f, where) for _, f, where in made]
    whole, *times = times_of(sessions, feed, a.seconds * len(sessions), a.least)
    print(f"| float32 | {whole:.3g} | 1 | 1 |")
    for (k, f, _), t in zip(made, times):
        held = sum(p.stat().st_size for p in folder.glob(f.name + "*"))
        print(f"| {k} | {t:.3g} | {t / whole:.2f} | {held / size:.3f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("qk", type=Path)
    p.add_argument("shared", type=Path)
    p.add_argument("--only", help="one of " + ", ".join(NETWORKS) + "; with --decoder parts of the names of rows, with commas between them")
    p.add_argument("--formats", default=FORMATS)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--quark", type=Path, help="AMD Quark's library")
    p.add_argument("--decoder", action="store_true")
    p.add_argument("--layers", type=int, default=32, help="of the decoder: 32 are 300 million parameters")
    p.add_argument("--least", action="store_true", help="minima in place of medians")
    a = p.parse_args()
    library = subprocess.run([a.qk, "--onnxruntime-library"], capture_output=True, text=True, check=True).stdout.strip()
    processor = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.machine())
    print(f"One thread of {processor}, onnxruntime {ort.__version__}, one sample a run, milliseconds: {'minima' if a.least else 'medians'} of turns.\n")
    with tempfile.TemporaryDirectory() as folder:
        (next_tokens if a.decoder else networks)(a, library, Path(folder))


if __name__ == "__main__":
    main()
