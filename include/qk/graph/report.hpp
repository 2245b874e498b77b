// SPDX-License-Identifier: Apache-2.0
// HTML pages and JSON about what was done.
#pragma once

#include <nlohmann/json.hpp>  // for what to_json returns

#include "qk/graph/report/html.hpp"
#include "qk/graph/report/report.hpp"
#include "qk/graph/search/report.hpp"
