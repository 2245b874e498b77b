// SPDX-License-Identifier: Apache-2.0
// What is asked (requests), what edges carry (a precision plan), and what is known of values before anything runs.
#pragma once

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/ops/known_values.hpp"
#include "qk/graph/plan/device_layer.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"
