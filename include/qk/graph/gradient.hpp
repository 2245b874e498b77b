// SPDX-License-Identifier: Apache-2.0
// Reverse mode: gradients of a model's outputs by its inputs and weights.
#pragma once

#include "qk/graph/gradient/gradient.hpp"
