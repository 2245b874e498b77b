# SPDX-License-Identifier: Apache-2.0
"""What the samples share: the shipped network and its data, as a user's own would stand there."""

import pathlib
from typing import Any

import numpy as np

DIGITS = pathlib.Path(__file__).resolve().parents[1] / "digits"
input_model_path = DIGITS / "digits.onnx"
images = np.load(DIGITS / "test_images.npy")[:256]
labels = np.load(DIGITS / "test_labels.npy")[:256]


class DataReader:
    """A calibration reader as onnxruntime and Quark have them."""

    def __init__(self, batch: int = 32) -> None:
        self.batches = iter(np.split(images, len(images) // batch))

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"image": batch}


def top1_acc(model_path: Any) -> float:
    """Measures a model's file with onnxruntime: a fraction."""
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(model_path)
    logits = np.asarray(session.run(None, {"image": images})[0])
    return float(np.mean(logits.argmax(1) == labels))
