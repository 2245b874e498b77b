# SPDX-License-Identifier: Apache-2.0
"""The networks of the benchmarks of gradients and searches: the shared ones with their preprocessing, and two that are made here.

    networks.make(NAME, SHARED_DIR, FOLDER, SAMPLES)    returns the paths of the model and of the samples

densenet121 (Huang et al. 2017, as torchvision writes it) and a decoder have random weights, so they say how methods compare, not how well a
trained network fares.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "tool"))


def cifar(data):
    x = np.load(data / "cifar10_2000_images_u8_nhwc.npy")
    return ((x / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(0, 3, 1, 2)


def imagenet(data):
    return (np.load(data / "imagenet150_images_227_u8_nhwc.npy")[..., ::-1].astype(np.float32) - [104, 117, 123]).transpose(0, 3, 1, 2)


def speech(data):
    return np.load(data / "speech_mfcc_119x98x40_f32.npy")


def magika(data):
    return np.load(data / "magika152_inputs_i32.npy")


def small_imagenet(data):
    x = np.load(data / "imagenet150_images_227_u8_nhwc.npy")[:, :224, :224]
    return ((x / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(0, 3, 1, 2)


SHARED = {"resnet20": ("resnet20_cifar10_folded.onnx", cifar), "squeezenet1.1": ("squeezenet1.1_imagenet.onnx", imagenet), "kwt1": ("kwt1_mfcc.onnx", speech),
          "magika": ("magika_v3_3.onnx", magika)}


def densenet121(path, seed=0):
    """Writes DenseNet-121: blocks of 6, 12, 24 and 16 layers, growth 32, input N,3,224,224, 1000 outputs."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(seed)
    nodes, constants = [], []

    def constant(name, values):
        constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(kind, inputs, name, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name + "_out"], name=name, **attributes))
        return name + "_out"

    def conv(x, name, channels, filters, size, stride=1):
        w = rng.normal(0, np.sqrt(2 / (channels * size * size)), (filters, channels, size, size))
        return node("Conv", [x, constant(name + ".weight", w)], name, kernel_shape=[size, size], strides=[stride] * 2, pads=[size // 2] * 4)

    def norm_relu(x, name, channels):
        ones, nothing = np.ones(channels), np.zeros(channels)
        of = [constant(f"{name}.{k}", v) for k, v in (("weight", ones), ("bias", nothing), ("mean", nothing), ("var", ones))]
        return node("Relu", [node("BatchNormalization", [x, *of], name)], name + ".relu")

    x, channels = norm_relu(conv("x", "conv0", 3, 64, 7, 2), "norm0", 64), 64
    x = node("MaxPool", [x], "pool0", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for b, layers in enumerate((6, 12, 24, 16)):
        for i in range(layers):
            name = f"block{b}.layer{i}"
            y = conv(norm_relu(x, name + ".norm1", channels), name + ".conv1", channels, 128, 1)
            y = conv(norm_relu(y, name + ".norm2", 128), name + ".conv2", 128, 32, 3)
            x = node("Concat", [x, y], name + ".concat", axis=1)
            channels += 32
        if b < 3:
            x = conv(norm_relu(x, f"transition{b}.norm", channels), f"transition{b}.conv", channels, channels // 2, 1)
            x = node("AveragePool", [x], f"transition{b}.pool", kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    x = node("Flatten", [node("GlobalAveragePool", [norm_relu(x, "norm5", channels)], "pool5")], "flatten")
    w = rng.uniform(-1, 1, (1000, channels)) / np.sqrt(channels)
    nodes.append(helper.make_node("Gemm", [x, constant("fc.weight", w), constant("fc.bias", np.zeros(1000))], ["y"], name="fc", transB=1))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "densenet121", [value("x", TensorProto.FLOAT, ["N", 3, 224, 224])], [value("y", TensorProto.FLOAT, ["N", 1000])],
                              constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def make(name, shared, folder, samples):
    shared, folder = Path(shared), Path(folder)
    if name == "decoder":
        import language_models

        model = language_models.gpt(str(folder / "decoder.onnx"), vocabulary=211, hidden=64, layers=4, count=4)
        inputs = str(folder / "decoder.npz")
        np.savez(inputs, input_ids=np.random.default_rng(1).integers(0, 211, (samples, 24)), attention_mask=np.ones((samples, 24), np.int64))
        return model, inputs
    inputs = str(folder / f"{name}.npy")
    if name == "densenet121":
        model, load = str(folder / "densenet121.onnx"), small_imagenet
        densenet121(model)
    else:
        file, load = SHARED[name]
        model = str(shared / "models" / file)
    x = load(shared / "data")[:samples]
    np.save(inputs, np.ascontiguousarray(x, x.dtype if x.dtype == np.int32 else np.float32))
    return model, inputs
