// SPDX-License-Identifier: Apache-2.0
// HTML pages and JSON of what was done.
#pragma once

#include <nlohmann/json.hpp>  // of what to_json gives

#include "qk/graph/report/html.hpp"
#include "qk/graph/report/report.hpp"
#include "qk/graph/search/report.hpp"
