# SPDX-License-Identifier: Apache-2.0
"""Takes the saved plans of twenty networks, changes every scale in them at random, as someone does who edits a plan by hand, and exports
them again: with onnxruntime's optimizer on, the error against the float model is at most 1 dB above that with the optimizer off, and `qk
evaluate` of the plan gives the same error.

usage: saved_plans_evidence.py QK    (the built command)
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    import onnxruntime_runs
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

QK = sys.argv[1] if len(sys.argv) > 1 else ""
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import data_folders

ort.set_default_logger_severity(4)


class Network:
    """A network under construction: `at` is the tensor that the next node reads, `shape` its shape without the batch."""

    def __init__(self, rng, shape):
        self.rng, self.nodes, self.held, self.at, self.shape, self.input = rng, [], {}, "x", list(shape), list(shape)

    def node(self, op, inputs=(), **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.at, *inputs], [name], f"{op.lower()}{len(self.nodes)}", **attributes))
        self.at = name
        return self

    def constant(self, *shape, like=None):
        name = f"c{len(self.held)}"
        self.held[name] = like if like is not None else (self.rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32)
        return name

    def conv(self, channels, size=3, group=1, bias=True):
        inputs = [self.constant(channels, self.shape[0] // group, size, size)] + ([self.constant(channels, 1, like=(0.3 * self.rng.standard_normal(channels)).astype(np.float32))] if bias else [])
        self.shape[0] = channels
        return self.node("Conv", inputs, pads=[size // 2] * 4, group=group)

    def gemm(self, features, turned, alpha=1.0):
        k = self.shape[-1]
        inputs = [self.constant(*((features, k) if turned else (k, features))), self.constant(like=(0.3 * self.rng.standard_normal(features)).astype(np.float32))]
        self.shape = [features]
        return self.node("Gemm", inputs, transB=int(turned), alpha=alpha)

    def matmul(self, features):
        w = self.constant(self.shape[-1], features)
        self.shape[-1] = features
        return self.node("MatMul", [w])

    def activation(self):
        op = ("Relu", "LeakyRelu", "Sigmoid", "Clip", "HardSwish", "Tanh")[self.rng.integers(6)]
        return self.node("Clip", [self.constant(like=np.float32(0)), self.constant(like=np.float32(1.5))]) if op == "Clip" else self.node(op)

    def pool(self, op):
        self.shape[1:] = [v // 2 for v in self.shape[1:]]
        return self.node(op, kernel_shape=[2, 2], strides=[2, 2])

    def flatten(self):
        self.shape = [int(np.prod(self.shape))]
        return self.node("Flatten")

    def model(self):
        self.nodes[-1].output[0] = "y"
        held = [numpy_helper.from_array(np.asarray(v), k) for k, v in self.held.items()]
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *self.input])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], held)
        m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(m)


def convolutions(rng):
    net = Network(rng, (3, 12, 12)).conv(int(rng.integers(6, 12))).activation()
    for _ in range(rng.integers(1, 4)):
        kind = rng.integers(4)
        if kind == 0:
            shortcut = net.at
            net.conv(net.shape[0], bias=bool(rng.integers(2))).activation().node("Add", [shortcut]).node("Relu")
        elif kind == 1:
            net.conv(net.shape[0], group=net.shape[0]).activation().conv(int(rng.integers(6, 12)), 1)
        elif kind == 2:
            other = net.at
            net.conv(net.shape[0]).activation().node("Concat", [other], axis=1)
            net.shape[0] *= 2
        else:
            net.conv(int(rng.integers(6, 12))).activation()
    net.pool(("MaxPool", "AveragePool")[rng.integers(2)])
    if rng.integers(2):
        net.conv(8, 1).node("GlobalAveragePool")
        net.shape = [8, 1, 1]
    return net.flatten().gemm(int(rng.integers(4, 9)), bool(rng.integers(2)))


def layers(rng):
    net = Network(rng, (int(rng.integers(6, 20)),))
    for _ in range(rng.integers(1, 4)):
        net.gemm(int(rng.integers(6, 20)), bool(rng.integers(2)), (1.0, 0.5)[rng.integers(2)]).activation()
    return net.gemm(5, bool(rng.integers(2)))


def attention(rng):
    net = Network(rng, (6, 8))
    tokens = net.at
    queries = net.matmul(8).node("Add", [net.constant(like=(0.1 * rng.standard_normal(8)).astype(np.float32))]).at
    net.at = tokens
    keys = net.matmul(8).node("Transpose", perm=[0, 2, 1]).at
    net.at = tokens
    net.shape = [6, 8]
    values = net.matmul(8).at
    net.at = queries
    net.node("MatMul", [keys]).node("Mul", [net.constant(like=np.float32(0.35))]).node("Softmax", axis=-1).node("MatMul", [values])
    net.shape = [6, 8]
    return net.matmul(8).node("Add", [tokens]).node("LayerNormalization", [net.constant(like=np.ones(8, np.float32)), net.constant(like=np.zeros(8, np.float32))]).matmul(12).activation().matmul(5)


def networks():
    """Yields (name, path or model, samples)."""
    for k in range(17):
        rng = np.random.default_rng(k)
        net = (convolutions, layers, attention)[(0, 0, 1, 0, 2)[k % 5]](rng)
        yield f"{('convolutions', 'convolutions', 'layers', 'convolutions', 'attention')[k % 5]} {k}", net.model(), rng.standard_normal((16, *net.input)).astype(np.float32)
    rng = np.random.default_rng(99)
    for folder in data_folders.folders(QK, "reference"):
        for name in ("mnist-8", "resnet20_cifar10_folded", "kwt1_mfcc") if (folder / "models" / "mnist-8.onnx").exists() else ("old_made", "resnet20_made_folded", "transformer_made"):
            path = str(folder / "models" / f"{name}.onnx")
            shape = [d.dim_value or 8 for d in onnx.load(path, load_external_data=False).graph.input[0].type.tensor_type.shape.dim]
            yield name, path, rng.standard_normal(shape).astype(np.float32)


def edited(plan, rng):
    """Multiplies every scale of a plan by a factor of its own, between 0.7 and 1.4: a tensor's, or each channel's."""
    for q in [*plan["tensors"].values(), *(e for e in plan.get("edges", []))]:
        if "scale" in q:
            factor = 2 ** rng.uniform(-0.5, 0.5, len(q["scale"]) if rng.integers(2) else 1)
            q["scale"] = [float(np.float32(v)) for v in np.asarray(q["scale"]) * factor]
    return plan


def of_changed_models(folder):
    """Yields (what, whether it holds) for plans of models that the command itself changes."""
    file = lambda name: os.path.join(folder, name)
    rng = np.random.default_rng(5)
    net = Network(rng, (3, 8, 8)).conv(6, bias=False).node("Relu").conv(5, bias=False)
    x = rng.standard_normal((16, 3, 8, 8)).astype(np.float32)
    onnx.save(net.model(), file("m.onnx"))
    np.save(file("x.npy"), x)
    plain = onnxruntime_runs.run(file("m.onnx"), x, "off")
    bytes_of = lambda name: open(file(name), "rb").read()
    error = lambda name: onnxruntime_runs.decibels(onnxruntime_runs.run(file(name), x, "off"), plain)
    asked = ["--activation", "int8", "--weight", "int4", "--calibration", file("x.npy"), "--recipe", "fast"]
    qk("quantize", file("m.onnx"), "-o", file("q.onnx"), *asked, "--bias-correction", "--save-plan", file("p.json"))
    qk("quantize", file("m.onnx"), "-o", file("n.onnx"), *asked)
    qk("quantize", file("m.onnx"), "-o", file("again.onnx"), "--plan", file("p.json"))
    yield "the plan of corrected biases and its own model are the file", bytes_of("again.onnx") == bytes_of("q.onnx") and error("q.onnx") > error("n.onnx")

    net = Network(rng, (6, 8)).matmul(8)
    net.node("LayerNormalization", [net.constant(like=np.ones(8, np.float32)), net.constant(like=np.zeros(8, np.float32))]).matmul(12).node("Relu").matmul(5)
    x = (rng.standard_normal((16, 6, 8)) * 2 ** rng.uniform(-2, 3, 8)).astype(np.float32)
    onnx.save(net.model(), file("m.onnx"))
    np.save(file("x.npy"), x)
    plain = onnxruntime_runs.run(file("m.onnx"), x, "off")
    qk("quantize", file("m.onnx"), "-o", file("q.onnx"), *asked, "--smooth-quant", "0.5", "--save-plan", file("p.json"))
    qk("quantize", file("m.onnx"), "-o", file("again.onnx"), "--plan", file("p.json"))
    yield "the plan of scaled channels and its own model are the file", bytes_of("again.onnx") == bytes_of("q.onnx")
    qk("inspect", file("q.onnx"), "--save-float", file("f.onnx"))
    done = subprocess.run([QK, "quantize", file("f.onnx"), "-o", file("no.onnx"), "--plan", file("p.json")], capture_output=True, text=True)
    yield f"channels are not scaled twice: {done.stderr.strip()}", done.returncode == 2 and "nothing is scaled yet" in done.stderr


def qk(*arguments):
    done = subprocess.run([QK, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[:300])


def main():
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        file = lambda name: os.path.join(folder, name)
        for k, (name, m, x) in enumerate(networks()):
            path = m if isinstance(m, str) else file("m.onnx")
            if path is not m:
                onnx.save(m, path)
            np.save(file("x.npy"), x)
            plain = onnxruntime_runs.run(path, x, "off")
            rng = np.random.default_rng(1000 + k)
            for style, options in (("portable", ["--per-channel"]), ("qdq", []), ("qoperator", ["--per-channel"])):
                count += 1
                try:
                    qk("quantize", path, "-o", file("q.onnx"), "--activation", "int8", "--weight", "int8", *options, "--calibration", file("x.npy"), "--save-plan", file("p.json"))
                    with open(file("p.json")) as f:
                        plan = edited(json.load(f), rng)
                    with open(file("e.json"), "w") as f:
                        json.dump(plan, f)
                    qk("quantize", path, "-o", file("q.onnx"), "--plan", file("e.json"), "--export", style)
                    on, off = (onnxruntime_runs.run(file("q.onnx"), x, level) for level in ("on", "off"))
                    kept, said = onnxruntime_runs.keeps(on, off, plain)
                    if style == "portable":
                        qk("evaluate", path, "--plan", file("e.json"), "--inputs", file("x.npy"), "--output-dir", file("y"))
                        (made,) = os.listdir(file("y"))
                        ours = onnxruntime_runs.decibels(np.load(file(f"y/{made}")), plain)
                        os.remove(file(f"y/{made}"))
                        kept, said = kept and abs(ours - onnxruntime_runs.decibels(off, plain)) <= 1, f"{said}, {ours:.1f} by qk"
                except Exception as failed:
                    kept, said = False, str(failed)
                failures += not kept
                print(f"{'ok   ' if kept else 'WRONG'} {name}, {style}: {said}")
        for said, kept in of_changed_models(folder):
            count, failures = count + 1, failures + (not kept)
            print(f"{'ok   ' if kept else 'WRONG'} {said}")
    print(f"{count - failures} of {count} hold")
    return 1 if failures else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
