#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An evaluation function for `qk search --metric-server`: returns each trial's top-1 accuracy, with the model run by onnxruntime.

    qk search model.onnx --inputs x.npy --labels y.npy --metric-server "python3 server.py x.npy" --higher-is-better --target-metric 0.9
"""
import json
import sys

import numpy as np
import onnxruntime

images = np.load(sys.argv[1]).astype(np.float32)
print("ready model", flush=True)  # asks for a model file per trial; "ready" alone gets only qk's outputs
for line in sys.stdin:
    trial = json.loads(line)
    labels = np.load(trial["labels"])
    session = onnxruntime.InferenceSession(trial["model"], providers=["CPUExecutionProvider"])
    logits = session.run(None, {session.get_inputs()[0].name: images[: len(labels)]})[0]
    print(np.mean(logits.argmax(1) == labels), flush=True)
