# SPDX-License-Identifier: Apache-2.0
"""Where the data of tests lies: what tests/data packs is unpacked beside the built command; ../shared, which has more, may lie beside the
project. Tests run on both."""
import numpy as np

from .running import ROOT, build


def folders(what):
    """Returns those of the two folders of data that have a folder `what`; at least one has."""
    places = build() / "test_data", ROOT.parent / "shared"
    found = [f for f in places if (f / what).is_dir()]
    if not found:
        raise FileNotFoundError(f"{what} is missing in {build()}/test_data, which cmake fills from tests/data")
    return found


def residual_network(folder):
    """Returns the residual network of 20 layers, without BatchNormalization, and a function that gives n of its samples."""
    (path,) = (folder / "models").glob("resnet20_*_folded.onnx")
    return path, lambda n: residual_samples(folder, n)


def short(x):
    """Rounds to float16 values."""
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def pictures(rng, n, channels, height, width):
    """Smooth pictures: a few waves in each channel."""
    y, x = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
    out = np.zeros((n, channels, height, width))
    for i in range(n):
        for _ in range(6):
            a, b, phase = rng.uniform(-12, 12), rng.uniform(-12, 12), rng.uniform(0, 6.28)
            out[i] += rng.standard_normal((channels, 1, 1)) * np.sin(a * x + b * y + phase)
    return short(out * 0.6)


def residual_samples(folder, n):
    photos = folder / "data" / "cifar10_2000_images_u8_nhwc.npy"
    if not photos.exists():
        return pictures(np.random.default_rng(1), n, 3, 32, 32)
    x = np.load(photos)[:n].astype(np.float32) / 255
    return ((x - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])).transpose(0, 3, 1, 2).copy()
