// SPDX-License-Identifier: Apache-2.0
// `qk sensitivity` as one call.
#pragma once

#include <cstdint>
#include <string>

#include "qk/graph/pipeline/mix.hpp"

namespace qk::graph::pipeline {

struct sensitivity_settings : mix_settings {
    std::string direction = "narrow";  ///< or widen
    std::string method = "measured";   ///< or gradient, auto
    int passes = 0;                    ///< backward passes per sample for estimates; 0: chosen
    std::uint64_t seed = 0;            ///< seed of the random vectors that estimates use
};

/// Measures, and writes the report if one is named. Writes the same files as the command. Remarks are in the result. Throws
/// qk::graph::error.
sensitivity_result sensitivity(const sensitivity_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
