# SPDX-License-Identifier: Apache-2.0
"""Intel Neural Compressor's "Quantization": without tuning, and with an accuracy to keep."""

from collections.abc import Iterator
from typing import Any

from common import images, input_model_path, labels, top1_acc

import qk


def batches() -> Iterator[Any]:
    for i in range(0, len(images), 32):
        yield images[i : i + 32], labels[i : i + 32]


q_model = qk.from_inc({"approach": "static"}).run(input_model_path, batches())
q_model.save("quantized.onnx")
print("without tuning", top1_acc("quantized.onnx"))


def eval_func(model: Any) -> float:
    return top1_acc(model)


q_model = qk.from_inc({"accuracy_criterion": {"tolerable_loss": 0.01}}, eval_func=eval_func).run(input_model_path, batches(), max_trials=8)
q_model.save("tuned.onnx")
print("tuned", q_model.metric, q_model.target_met)
