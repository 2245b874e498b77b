// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/execute/quantize_value-inl.hpp"
