// SPDX-License-Identifier: Apache-2.0
// Turns requests and ranges into a plan; rounds weights so that a layer's output stays; reads and writes plan files and encodings.
#pragma once

#include <nlohmann/json.hpp>  // for what to_json returns

#include "qk/graph/quantize/compensate.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/learning.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/quantize/remarks.hpp"
