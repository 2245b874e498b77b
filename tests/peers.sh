#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs packages of other people into build/venv, which ./dev test makes, and has them read what qk writes.
#
#     tests/peers.sh install    # torch, onnxscript, jax, dask, openvino, pandas, matplotlib, mypy, basedpyright: more tests of the Python package run where they are
#     tests/peers.sh [QK]       # gguf-py, mlx and safetensors read checkpoints that qk wrote; docs/results/peers_checkpoints.md has the last result
#     tests/peers.sh checkpoints [QK]   # so do compressed-tensors, ModelOpt, transformers, mlx-lm, AutoAWQ and GPTQModel, which bring torch: 6 GB; also called all
#     tests/peers.sh systems [QK]    # quantizes the same floats with nine packages and with qk convert --system; docs/results/peers_systems.md has the last result
#     tests/peers.sh torch [QK]      # the package's tests with torch, networks trained in formats beside their files, and names of layers with torch 2.5 as well
#     tests/peers.sh networks [QK]   # exports networks of torchvision, timm and transformers and runs what qk makes of them in every runtime; docs/results/networks.md
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = install ]; then
    shift
    exec build/venv/bin/pip install "$@" openvino torch onnxscript jax 'dask[distributed]' pandas matplotlib mypy basedpyright
fi
if [ "${1:-}" = torch ]; then
    python=${QK_TORCH_PYTHON:-build/torch/bin/python} older=${QK_TORCH25_PYTHON:-build/torch25/bin/python}
    if [ ! -x "$python" ]; then
        python3 -m venv build/torch
        build/torch/bin/pip install --quiet numpy onnx onnxruntime onnxscript torch pytest ml_dtypes
    fi
    if [ ! -x "$older" ]; then
        python3 -m venv build/torch25
        build/torch25/bin/pip install --quiet numpy onnx==1.17.0 'onnxscript<0.2' 'protobuf<5' torch==2.5.1 pytest
    fi
    qk=$(realpath "${2:-build/release/qk}")
    export PYTHONPATH=${QK_PACKAGE:-$(dirname "$qk")/python/package} QK_COMMAND=$qk PYTHONDONTWRITEBYTECODE=1
    status=0
    "$python" -m pytest -q -p no:cacheprovider tests/python/test_torch.py || status=1
    "$python" tests/python/trained_digits.py || status=1
    for each in "$python" "$older"; do
        env -u PYTHONPATH "$each" tests/tool/exported_names.py "$qk" || status=1
    done
    exit "$status"
fi
if [ "${1:-}" = networks ]; then
    python=${QK_NETWORKS_PYTHON:-build/networks/bin/python}
    if [ ! -x "$python" ]; then
        python3 -m venv build/networks
        build/networks/bin/pip install --quiet numpy onnx onnxruntime openvino onnxscript torch torchvision timm transformers
    fi
    made=$(mktemp -d)
    trap 'rm -rf "$made"' EXIT
    "$python" tests/graph/make_networks.py "$made"
    status=0
    results=(--json docs/results/data/networks.json --page docs/results/networks.md)
    "$python" tests/graph/networks_evidence.py "${2:-build/release/qk}" "$made" "${results[@]}" || status=1
    "$python" tests/graph/networks_evidence.py "${2:-build/release/qk}" "$made" --faults "${results[@]}" || status=1
    exit "$status"
fi
python=${QK_PEERS_PYTHON:-build/peers/bin/python}
if [ ! -x "$python" ]; then
    python3 -m venv build/peers
    build/peers/bin/pip install --quiet gguf safetensors 'mlx[cpu]'
fi
if [ "${1:-}" = all ] || [ "${1:-}" = checkpoints ]; then
    shift
    "$(dirname "$python")/pip" install --quiet torch compressed-tensors nvidia-modelopt transformers accelerate torchao pillow pypcre threadpoolctl defuser
    "$(dirname "$python")/pip" install --quiet --no-deps mlx-lm autoawq gptqmodel logbar tokenicer device-smi  # their readers, without kernels
elif [ "${1:-}" = systems ]; then
    shift
    "$(dirname "$python")/pip" install --quiet torch compressed-tensors nvidia-modelopt torchao auto-round amd-quark libggml-python ninja
    "$(dirname "$python")/pip" install --quiet --no-deps transformer_engine  # its Python files alone
    exec "$python" tests/systems/packages.py "${1:-build/release/qk}"
fi
exec "$python" tests/checkpoint/peers.py "${1:-build/release/qk}"
