// SPDX-License-Identifier: Apache-2.0
// Sensitivity and the search for a mix of formats.
#pragma once

#include <nlohmann/json.hpp>  // for what to_json returns

#include "qk/graph/search/choose_method.hpp"
#include "qk/graph/search/report.hpp"
#include "qk/graph/search/search.hpp"
