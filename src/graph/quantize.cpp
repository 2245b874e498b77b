// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/quantize-inl.hpp"

#include "qk/graph/plan_cost-inl.hpp"
