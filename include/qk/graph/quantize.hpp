// SPDX-License-Identifier: Apache-2.0
// Requests and ranges become a plan; weights that are rounded so that a layer's output stays; plan files and encodings.
#pragma once

#include <nlohmann/json.hpp>  // of what to_json gives

#include "qk/graph/quantize/compensate.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
