#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Has other packages read what qk writes: tests/peers.sh [QK]. Their Python is $QK_PEERS_PYTHON, or an environment that this makes in
# build/peers (gguf, mlx, safetensors). The last result is docs/results/peers_checkpoints.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
qk=${1:-$root/build/release/qk}
python=${QK_PEERS_PYTHON:-}
if [ -z "$python" ]; then
    python=$root/build/peers/bin/python
    if [ ! -x "$python" ]; then
        python3 -m venv "$root/build/peers"
        "$root/build/peers/bin/pip" install --quiet gguf safetensors 'mlx[cpu]'
    fi
fi
"$python" "$root/tests/checkpoint/peers.py" "$qk"
