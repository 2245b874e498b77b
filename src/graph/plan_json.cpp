// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/plan_json-inl.hpp"

#include "qk/graph/plan_check-inl.hpp"
