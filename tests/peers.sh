#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs, beside the tests' requirements, packages that some tests of the Python package use where they are: torch, jax, dask, openvino.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec build/venv/bin/pip install "$@" openvino torch jax 'dask[distributed]' pandas matplotlib
