#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the networks of the tests, with what other software computes of them, and packs them as tests/data/networks.tar.xz.

    build/venv/bin/python tests/data/make_networks.py FOLDER          # models, inputs, onnxruntime's outputs; then packs FOLDER
    PYTHON tests/data/make_networks.py FOLDER --gradients             # where torch is: adds gradients/NAME.npz, by its autograd in float64
    PYTHON tests/data/make_networks.py FOLDER --quark                 # where amd-quark is: adds quark_models/, as AMD Quark exports them

The weights are random, from fixed seeds, and hold float16 values, which pack well. The structures are those of networks that people deploy:
a residual network with and without BatchNormalization, fire modules, an old file of opset 8 whose initializers are inputs, a transformer with
its layer norms in pieces, a classifier of bytes, a detector with several outputs.
"""
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).resolve().parents[1]))
from evidence.data import pictures, short
from pack import pack

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


class Network:
    def __init__(self, name, opset, seed, input_name, shape, type=FLOAT, ir_version=8):
        self.name, self.opset, self.ir_version = name, opset, ir_version
        self.rng = np.random.default_rng(seed)
        self.nodes, self.held, self.outputs = [], {}, []
        self.input = helper.make_tensor_value_info(input_name, type, shape)

    def hold(self, name, values):
        self.held[name] = np.asarray(values)
        return name

    def weight(self, name, shape, inputs, gain=2.0):
        return self.hold(name, short(self.rng.standard_normal(shape) * np.sqrt(gain / inputs)))

    def bias(self, name, n, size=0.1):
        return self.hold(name, short(self.rng.standard_normal(n) * size))

    def node(self, op, inputs, output, name=None, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name or output, **attributes))
        return output

    def output(self, name, shape):
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, shape))

    def model(self):
        held = [numpy_helper.from_array(v, k) for k, v in self.held.items()]
        inputs = [self.input]
        if self.ir_version < 4:  # there, initializers had to be inputs, too
            inputs += [helper.make_tensor_value_info(i.name, i.data_type, i.dims) for i in held]
        graph = helper.make_graph(self.nodes, self.name, inputs, self.outputs, held)
        m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=self.ir_version, producer_name="qk-tests")
        onnx.checker.check_model(m)
        return m


def run(model, x):
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {session.get_inputs()[0].name: x})))


def residual(folded):
    """The residual network of 20 layers for pictures of 32 x 32, at half its width. Folded: BatchNormalization is in the convolutions."""
    net = Network("resnet20_made", 13, 20, "input", ["N", 3, 32, 32])
    samples = pictures(np.random.default_rng(1), 16, 3, 32, 32)

    def conv(name, x, channels, width, stride):
        w = net.weight(f"{name}.weight", (width, channels, 3, 3), channels * 9)
        raw = net.node("Conv", [x, w], f"{name}_o", name, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[stride, stride])
        net.outputs = [helper.make_tensor_value_info(raw, FLOAT, ["N", width, None, None])]
        seen = run(net.model(), samples)[raw].transpose(1, 0, 2, 3).reshape(width, -1)
        mean, variance = short(seen.mean(1)), short(seen.var(1))
        scale = short(net.rng.uniform(0.6, 1.4, width) * (0.5 if name.endswith("conv2") else 1))
        shift = short(net.rng.standard_normal(width) * 0.2)
        if folded:
            factor = scale / np.sqrt(variance + 1e-5)
            net.held[w] = short(net.held[w] * factor[:, None, None, None])
            net.hold(f"{name}.bias", short(shift - mean * factor))
            net.nodes[-1].input.append(f"{name}.bias")
            net.nodes[-1].output[0] = f"{name}_bn"
        else:
            parts = [net.hold(f"{name}.bn.{k}", v) for k, v in (("weight", scale), ("bias", shift), ("mean", mean), ("var", variance))]
            net.node("BatchNormalization", [raw, *parts], f"{name}_bn", f"{name}.bn")
        return f"{name}_bn"

    x = net.node("Relu", [conv("conv1", "input", 3, 8, 1)], "conv1_bn_relu")
    channels = 8
    for stage, width in enumerate((8, 16, 32), 1):
        for block in range(3):
            at = f"layer{stage}.{block}"
            stride = 2 if width != channels else 1
            inner = net.node("Relu", [conv(f"{at}.conv1", x, channels, width, stride)], f"{at}.conv1_bn_relu")
            y = conv(f"{at}.conv2", inner, width, width, 1)
            if stride == 2:  # every second pixel, and zeros as the new channels
                ints = {k: net.hold(f"{at}.{k}", np.array(v, np.int64)) for k, v in (("st", [0, 0]), ("en", [2**31, 2**31]), ("ax", [2, 3]), ("sp", [2, 2]))}
                x = net.node("Slice", [x, *ints.values()], f"{at}_sl", f"{at}.slice")
                more = (width - channels) // 2
                x = net.node("Pad", [x, net.hold(f"{at}.pads", np.array([0, more, 0, 0, 0, more, 0, 0], np.int64))], f"{at}_pad", f"{at}.pad", mode="constant")
            x = net.node("Relu", [net.node("Add", [y, x], f"{at}_add", f"{at}.add")], f"{at}_out", f"{at}.relu")
            channels = width
    net.node("GlobalAveragePool", [x], "gap")
    net.node("Flatten", ["gap"], "flat", "flatten", axis=1)
    net.node("Gemm", ["flat", net.weight("linear.weight", (10, 32), 8), net.bias("linear.bias", 10)], "logits", "fc", transB=1)
    net.outputs = [helper.make_tensor_value_info("logits", FLOAT, ["N", 10])]
    return net.model(), samples


def fires():
    """Fire modules: 1 x 1 convolutions that squeeze, then 1 x 1 beside 3 x 3, joined."""
    net = Network("fires_made", 13, 21, "data", ["N", 3, 51, 51])

    def conv(name, x, channels, width, kernel, stride=1, pad=0):
        w, b = net.weight(f"{name}_w", (width, channels, kernel, kernel), channels * kernel * kernel), net.bias(f"{name}_b", width)
        y = net.node("Conv", [x, w, b], f"{name}_1", name, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4)
        return net.node("Relu", [y], f"{name}_2")

    x, channels = conv("conv1", "data", 3, 16, 3, 2), 16
    for k, (squeeze, expand) in enumerate(((8, 16), (8, 16), (12, 24), (12, 24)), 2):
        if k in (2, 4):
            x = net.node("MaxPool", [x], f"pool{k}", kernel_shape=[3, 3], strides=[2, 2])
        s = conv(f"fire{k}/squeeze1x1", x, channels, squeeze, 1)
        both = [conv(f"fire{k}/expand1x1", s, squeeze, expand, 1), conv(f"fire{k}/expand3x3", s, squeeze, expand, 3, 1, 1)]
        x, channels = net.node("Concat", both, f"fire{k}/concat", axis=1), 2 * expand
    x = conv("conv10", x, channels, 20, 1)
    net.node("GlobalAveragePool", [x], "pool10")
    net.node("Flatten", ["pool10"], "flat", axis=1)
    net.node("Softmax", ["flat"], "prob", axis=1)
    net.output("prob", ["N", 20])
    return net.model(), pictures(np.random.default_rng(2), 4, 3, 51, 51) * 2


def old_file():
    """Opset 8, one picture at a time, paddings by name, initializers among the inputs, weights that a Reshape flattens."""
    net = Network("old_made", 8, 22, "Input3", [1, 1, 28, 28], ir_version=3)
    x, channels = "Input3", 1
    for k, (width, pool) in enumerate(((8, 2), (16, 3))):
        y = net.node("Conv", [x, net.weight(f"Parameter{k}", (width, channels, 5, 5), channels * 25)], f"Convolution{k}", kernel_shape=[5, 5], auto_pad="SAME_UPPER", strides=[1, 1], group=1, dilations=[1, 1])
        y = net.node("Add", [y, net.hold(f"Bias{k}", short(net.rng.standard_normal((width, 1, 1)) * 0.1))], f"Plus{k}")
        y = net.node("Relu", [y], f"ReLU{k}")
        x = net.node("MaxPool", [y], f"Pooling{k}", kernel_shape=[pool, pool], strides=[pool, pool], auto_pad="NOTSET", pads=[0, 0, 0, 0])
        channels = width
    flat = net.node("Reshape", [x, net.hold("shape_x", np.array([1, 256], np.int64))], "Pooling_reshape")
    weights = net.node("Reshape", [net.weight("Parameter_product", (16, 4, 4, 10), 256), net.hold("shape_w", np.array([256, 10], np.int64))], "Parameter_reshape")
    net.node("MatMul", [flat, weights], "Times_Output")
    net.node("Add", ["Times_Output", net.hold("Parameter_bias", short(net.rng.standard_normal((1, 10)) * 0.1))], "Plus_Output")
    net.output("Plus_Output", [1, 10])
    return net.model(), np.abs(pictures(np.random.default_rng(3), 1, 1, 28, 28)) * 60


def transformer():
    """Two layers of attention with one head, a class token that an Expand copies for each sample, norms and GELU in pieces."""
    d, length, wide = 32, 20, 12
    net = Network("transformer_made", 13, 23, "features", ["N", length, wide])
    scalar = {k: net.hold(k, np.float32(v)) for k, v in {"two": 2, "three": 3, "half": 0.5, "one": 1, "c044": 0.044715, "c079": 0.7978846, "eps": 1e-5, "scale": d**-0.5}.items()}

    def linear(name, x, inputs, outputs, bias=True):
        y = net.node("MatMul", [x, net.weight(f"{name}.w", (inputs, outputs), inputs, 1)], f"{name}.mm")
        return net.node("Add", [y, net.bias(f"{name}.b", outputs)], f"{name}.out") if bias else y

    def norm(name, x):
        difference = net.node("Sub", [x, net.node("ReduceMean", [x], f"{name}.mean", axes=[-1], keepdims=1)], f"{name}.d")
        variance = net.node("ReduceMean", [net.node("Pow", [difference, "two"], f"{name}.sq")], f"{name}.var", axes=[-1], keepdims=1)
        y = net.node("Div", [difference, net.node("Sqrt", [net.node("Add", [variance, "eps"], f"{name}.ve")], f"{name}.std")], f"{name}.q")
        y = net.node("Mul", [y, net.hold(f"{name}.g", short(net.rng.uniform(0.7, 1.3, d)))], f"{name}.qg")
        return net.node("Add", [y, net.bias(f"{name}.b", d)], f"{name}.ln")

    x = linear("patch", "features", wide, d)
    count = net.node("Gather", [net.node("Shape", ["features"], "shape"), net.hold("zero_i", np.array([0], np.int64))], "n")
    shape = net.node("Concat", [count, net.hold("one_token", np.array([1, d], np.int64))], "es", axis=0)
    token = net.node("Expand", [net.hold("cls", short(net.rng.standard_normal((1, 1, d)))), shape], "clsN")
    x = net.node("Concat", [token, x], "tok", axis=1)
    x = net.node("Add", [x, net.hold("pos", short(net.rng.standard_normal((1, length + 1, d)) * 0.3))], "x0")
    for k in range(2):
        at = f"blk{k}"
        q, key, v = (linear(f"{at}.{c}", x, d, d, False) for c in "qkv")
        scores = net.node("MatMul", [q, net.node("Transpose", [key], f"{at}.kT", perm=[0, 2, 1])], f"{at}.qk")
        weights = net.node("Softmax", [net.node("Mul", [scores, "scale"], f"{at}.qks")], f"{at}.att", axis=-1)
        y = linear(f"{at}.proj", net.node("MatMul", [weights, v], f"{at}.av"), d, d)
        x = norm(f"{at}.n1", net.node("Add", [x, y], f"{at}.res1"))
        h = linear(f"{at}.fc1", x, d, 2 * d)
        cube = net.node("Mul", [net.node("Pow", [h, "three"], f"{at}.p3"), "c044"], f"{at}.p3m")
        inner = net.node("Mul", [net.node("Add", [h, cube], f"{at}.pa"), "c079"], f"{at}.pm")
        gate = net.node("Add", [net.node("Tanh", [inner], f"{at}.th"), "one"], f"{at}.th1")
        h = net.node("Mul", [net.node("Mul", [h, "half"], f"{at}.h"), gate], f"{at}.gelu")
        x = norm(f"{at}.n2", net.node("Add", [x, linear(f"{at}.fc2", h, 2 * d, d)], f"{at}.res2"))
    first = net.node("Gather", [x, net.hold("zero", np.array(0, np.int64))], "first", axis=1)
    linear("head", first, d, 12)
    net.nodes[-1].output[0] = "logits"
    net.output("logits", ["N", 12])
    rng = np.random.default_rng(4)
    return net.model(), short(rng.standard_normal((8, length, wide)) * rng.uniform(0.3, 2, wide))


def bytes_classifier():
    """Takes bytes as int32, spreads them over 257 columns by Equal, and ends in a softmax in pieces."""
    length, d = 64, 16
    net = Network("bytes_made", 15, 24, "bytes", ["N", length], INT32)
    net.node("Unsqueeze", ["bytes", net.hold("last", np.array([2], np.int64))], "column")
    net.node("Equal", ["column", net.hold("codes", np.arange(257, dtype=np.int32).reshape(1, 1, 257))], "same")
    net.node("Cast", ["same"], "one_hot", to=FLOAT)
    net.node("MatMul", ["one_hot", net.weight("embedding", (257, d), 1, 1)], "embedded")
    net.node("Add", ["embedded", net.bias("embedding_bias", d)], "e")
    cube = net.node("Mul", [net.node("Mul", ["e", "e"], "e2"), "e"], "e3")
    for k, v in (("c044", 0.044715), ("c079", 0.7978846), ("half", 0.5), ("one", 1), ("per", 1 / d), ("least", 1e-3)):
        net.hold(k, np.float32(v))
    net.node("Tanh", [net.node("Mul", [net.node("Add", ["e", net.node("Mul", [cube, "c044"], "e4")], "e5"), "c079"], "e6")], "e7")
    x = net.node("Mul", [net.node("Mul", ["e", "half"], "e8"), net.node("Add", ["e7", "one"], "e9")], "gelu")
    axes = net.hold("features", np.array([2], np.int64))
    mean = net.node("Mul", [net.node("ReduceSum", [x, axes], "sum", keepdims=1), "per"], "mean")
    difference = net.node("Sub", [x, mean], "difference")
    square = net.node("Mul", [difference, difference], "square")
    variance = net.node("Mul", [net.node("ReduceSum", [square, axes], "squares", keepdims=1), "per"], "variance")
    factor = net.node("Reciprocal", [net.node("Sqrt", [net.node("Max", [variance, "least"], "floored")], "deviation")], "factor")
    x = net.node("Mul", [net.node("Mul", [difference, factor], "normal"), net.hold("gain", short(net.rng.uniform(0.7, 1.3, d)))], "scaled")
    x = net.node("Transpose", [x], "turned", perm=[0, 2, 1])
    x = net.node("Conv", [x, net.weight("conv_w", (24, d, 5), d * 5), net.bias("conv_b", 24)], "conv", kernel_shape=[5], strides=[2])
    x = net.node("GlobalMaxPool", [x], "pooled")
    x = net.node("Squeeze", [x, axes], "flat")
    x = net.node("Add", [net.node("MatMul", [x, net.weight("out_w", (24, 15), 24)], "product"), net.bias("out_b", 15)], "scores")
    x = net.node("Exp", [net.node("Sub", [x, net.node("ReduceMax", [x], "top", axes=[1], keepdims=1)], "below")], "powers")
    net.node("Div", [x, net.node("ReduceSum", [x, net.hold("classes", np.array([1], np.int64))], "total", keepdims=1)], "label")
    net.output("label", ["N", 15])
    return net.model(), np.random.default_rng(5).integers(0, 257, (8, length)).astype(np.int32)


def detector():
    """Convolutions with depthwise ones between, two heads on two grids, and their boxes and scores joined."""
    net = Network("detector_made", 9, 25, "input", [1, 3, 48, 64], ir_version=4)

    def conv(name, x, channels, width, kernel=3, stride=1, group=1, relu=True, dilation=1):
        pad = dilation * (kernel // 2)
        w = net.weight(f"{name}.weight", (width, channels // group, kernel, kernel), channels // group * kernel * kernel)
        y = net.node("Conv", [x, w, net.bias(f"{name}.bias", width)], f"{name}.conv", kernel_shape=[kernel, kernel], pads=[pad] * 4, strides=[stride, stride], group=group, dilations=[dilation, dilation])
        return net.node("Relu", [y], f"{name}.relu") if relu else y

    x, channels = conv("base.0", "input", 3, 12, stride=2), 12
    grids = []
    for k, (width, stride) in enumerate(((16, 1), (16, 2), (24, 2)), 1):
        x = conv(f"base.{k}.depth", x, channels, channels, stride=stride, group=channels)
        x, channels = conv(f"base.{k}.point", x, channels, width, 1), width
        if k == 2:  # branches of several reaches, joined and added to a shortcut
            branches = [conv(f"branch.{b}", conv(f"branch.{b}.in", x, channels, 4, 1), 4, 8, relu=False, dilation=b + 1) for b in range(3)]
            joined = conv("branch.joined", net.node("Concat", branches, "branches", axis=1), 24, channels, 1, relu=False)
            x = net.node("Relu", [net.node("Add", [joined, conv("branch.shortcut", x, channels, channels, 1, relu=False)], "branch.sum")], "branch.relu")
        if k >= 2:
            grids.append((x, channels))
    found = {"scores": [], "boxes": []}
    for k, (x, channels) in enumerate(grids):
        for kind, numbers in (("scores", 2), ("boxes", 4)):
            y = conv(f"{kind}.{k}", x, channels, 2 * numbers, relu=False)
            y = net.node("Transpose", [y], f"{kind}.{k}.turned", perm=[0, 2, 3, 1])
            found[kind].append(net.node("Reshape", [y, net.hold(f"{kind}.{k}.shape", np.array([1, -1, numbers], np.int64))], f"{kind}.{k}.flat"))
    for kind, parts in found.items():
        net.node("Concat", parts, "joined.scores" if kind == "scores" else "boxes", axis=1)
    net.node("Softmax", ["joined.scores"], "scores", axis=2)
    net.output("scores", [1, 480, 2])
    net.output("boxes", [1, 480, 4])
    return net.model(), pictures(np.random.default_rng(6), 1, 3, 48, 64)


NETWORKS = {"resnet20_made": lambda: residual(False), "resnet20_made_folded": lambda: residual(True), "fires_made": fires, "old_made": old_file,
            "transformer_made": transformer, "bytes_made": bytes_classifier, "detector_made": detector}


def networks(folder):
    for sub in ("models", "reference"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    for name, make in NETWORKS.items():
        model, x = make()
        (folder / "models" / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
        np.save(folder / "reference" / f"{name}.input.{model.graph.input[0].name}.npy", x)
        for output, y in run(model, x).items():
            np.save(folder / "reference" / f"{name}.output.{output}.npy", y)
            print(f"{name:24} {sum(len(i.raw_data) for i in model.graph.initializer):8} bytes of weights, {output} {y.shape}, {np.abs(y).max():.3g} at most, spread over samples {y.std(0).mean():.3g}")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if "--gradients" in sys.argv:
        import network_gradients
        network_gradients.write(place)
    elif "--quark" in sys.argv:
        import quark_networks
        quark_networks.write(place)
    else:
        networks(place)
    pack(place, Path(__file__).with_name("networks.tar.xz"))
