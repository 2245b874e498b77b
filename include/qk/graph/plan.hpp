// SPDX-License-Identifier: Apache-2.0
// What is asked (requests) and what edges carry (a precision plan).
#pragma once

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/plan/device_layer.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"
