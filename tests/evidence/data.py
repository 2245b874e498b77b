# SPDX-License-Identifier: Apache-2.0
"""Where the data of tests lies: what tests/data packs is unpacked beside the built command; ../shared, which has more, may lie beside the
project. Tests run on both."""
import importlib.util

from .running import ROOT, TESTS, build


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


def residual_samples(folder, n):
    import numpy as np
    photos = folder / "data" / "cifar10_2000_images_u8_nhwc.npy"
    if not photos.exists():
        spec = importlib.util.spec_from_file_location("data_make_networks", TESTS / "data" / "make_networks.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made.pictures(np.random.default_rng(1), n, 3, 32, 32)
    x = np.load(photos)[:n].astype(np.float32) / 255
    return ((x - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])).transpose(0, 3, 1, 2).copy()
