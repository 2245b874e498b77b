// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/ops/groups/quantization-inl.hpp"
